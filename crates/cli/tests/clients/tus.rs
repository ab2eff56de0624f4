//! tuspy, the Python client of tus: uploads in pieces, over connections that are cut and a server that is killed.

use std::fs;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, skip};
use crate::tree::noise;

/// Begins or goes on, sends some pieces, and prints the address.
const SESSION: &str = r#"
import base64, socket, struct, sys
from urllib.parse import urlsplit
from tusclient import client

endpoint, user, password, address, pieces, checks = sys.argv[1:]
login = {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
tus = client.TusClient(endpoint, headers=login)
uploader = tus.uploader("big", chunk_size=300_000, metadata={"filename": "b\u00e4ld.bin"},
                        upload_checksum=checks == "yes",
                        url=address and endpoint.rstrip("/") + urlsplit(address).path or None)
print(uploader.offset, file=sys.stderr)
for _ in range(int(pieces)):
    if uploader.offset < uploader.get_file_size():
        uploader.upload_chunk()
print(uploader.url)
if int(pieces) < 100:
    # And a part of the next one, before the connection is reset.
    parts = urlsplit(uploader.url)
    cut = socket.create_connection((parts.hostname, parts.port))
    head = (f"PATCH {parts.path} HTTP/1.1\r\nHost: h\r\nAuthorization: {login['Authorization']}\r\n"
            f"Tus-Resumable: 1.0.0\r\nContent-Type: application/offset+octet-stream\r\n"
            f"Upload-Offset: {uploader.offset}\r\nContent-Length: 300000\r\n\r\n")
    cut.sendall(head.encode() + open("big", "rb").read()[uploader.offset:][:100_000])
    cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    cut.close()
"#;

/// Debian's own Python, which has it.
fn tuspy() -> Option<Tool> {
    let is_there = fs::exists("/var/lib/dpkg/info/python3-tuspy.list").unwrap_or(false);
    let python = is_there.then(|| Tool::at("/usr/bin/python3")).flatten();
    if python.is_none() {
        skip("Debian's python3-tuspy is not installed");
    }
    python
}

#[test]
fn tuspy_goes_on_behind_cut_connections_and_a_killed_server() {
    let Some(python) = tuspy() else { return };
    let mut server = Server::start();
    let contents = noise(3, 2_000_001);
    fs::write(server.local().join("big"), &contents).unwrap();
    fs::write(server.local().join("session.py"), SESSION).unwrap();
    let mut address = String::new();
    for (pieces, checks) in [("1", "no"), ("2", "yes"), ("1", "no"), ("100", "yes")] {
        let endpoint = server.http_url("");
        let arguments = ["session.py", &endpoint, USER, PASSWORD, &address, pieces, checks];
        address = python.run(&server, &arguments).trim().to_owned();
        assert_eq!(server.served().join("b\u{e4}ld.bin").exists(), pieces == "100");
        server.is_killed_and_started_again();
    }
    assert!(read(server.served().join("b\u{e4}ld.bin")) == contents);
    let left = fs::read_dir(server.served().join(".millrace-staging"));
    assert_eq!(left.map_or(0, |entries| entries.count()), 0, "nothing is left");
}
