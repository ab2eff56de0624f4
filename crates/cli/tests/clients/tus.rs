//! Clients of tus: uploads in pieces and in parts, over connections that are cut and a server that is killed.

use std::fs;

use crate::basic_ftp::install;
use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, skip, skip_anyway, tool};
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

/// Begins two parts or goes on with them, a piece each; prints their addresses, or joins them and prints what came of it.
const PARTS: &str = r#"
import base64, io, sys
from urllib.parse import urlsplit
import requests
from tusclient import client

endpoint, user, password, addresses, ends = sys.argv[1:]
login = {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
tus = client.TusClient(endpoint, headers={**login, "Upload-Concat": "partial"})
content, known = open("big", "rb").read(), addresses.split()
parts = []
for number, part in enumerate([content[:1_000_000], content[1_000_000:]]):
    url = endpoint.rstrip("/") + known[number] if known else None
    parts.append(tus.uploader(file_stream=io.BytesIO(part), chunk_size=400_000, url=url))
for part in parts:
    while part.offset < part.get_file_size():
        part.upload_chunk()
        if ends == "no":
            break
if ends == "no":
    print(*(urlsplit(part.url).path for part in parts))
else:
    name = base64.b64encode("whole.bin".encode()).decode()
    final = {**login, "Tus-Resumable": "1.0.0", "Upload-Metadata": f"filename {name}",
             "Upload-Concat": "final;" + " ".join(part.url for part in parts)}
    print(requests.post(endpoint, headers=final).status_code)
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

#[test]
fn tuspys_parts_are_one_file_though_the_server_was_killed_before_it_was() {
    let Some(python) = tuspy() else { return };
    let mut server = Server::start();
    let contents = noise(4, 1_900_001);
    fs::write(server.local().join("big"), &contents).unwrap();
    fs::write(server.local().join("parts.py"), PARTS).unwrap();
    let mut addresses = String::new();
    for ends in ["no", "no", "yes"] {
        let endpoint = server.http_url("");
        addresses = python.run(&server, &["parts.py", &endpoint, USER, PASSWORD, &addresses, ends]);
        assert_eq!(server.served().join("whole.bin").exists(), ends == "yes", "{addresses}");
        server.is_killed_and_started_again();
    }
    assert_eq!(addresses.trim(), "201");
    assert!(read(server.served().join("whole.bin")) == contents);
    let left = fs::read_dir(server.served().join(".millrace-staging"));
    assert_eq!(left.map_or(0, |entries| entries.count()), 0, "nothing is left");
}

/// The version that the next test was written with.
const TUS_JS_CLIENT: &str = "tus-js-client@4.3.1";

/// What an upload form does, with four connections at a time.
const PARALLEL: &str = r#"
import * as tus from "tus-js-client"
import fs from "node:fs"
const [endpoint, user, password] = process.argv.slice(2)
const headers = { Authorization: "Basic " + Buffer.from(`${user}:${password}`).toString("base64") }
const options = (filename, more) => ({ endpoint, headers, metadata: { filename }, chunkSize: 100_000, ...more })
const send = (filename, more) => new Promise((onSuccess, onError) => {
  new tus.Upload(fs.readFileSync("big"), { ...options(filename, more), onSuccess, onError }).start()
})
await send("at once.bin", {})
await send("parallel.bin", { parallelUploads: 4 })
"#;

#[test]
fn tus_js_client_sends_a_file_by_four_connections_at_a_time() {
    let Some(node) = tool("node") else { return };
    let server = Server::start();
    if !install(&server, TUS_JS_CLIENT) {
        return skip_anyway("npm is not installed, or cannot fetch tus-js-client");
    }
    let contents = noise(5, 1_500_001);
    fs::write(server.local().join("big"), &contents).unwrap();
    fs::write(server.local().join("session.mjs"), PARALLEL).unwrap();
    node.run(&server, &["session.mjs", &server.http_url(""), USER, PASSWORD]);
    for name in ["at once.bin", "parallel.bin"] {
        assert!(read(server.served().join(name)) == contents, "{name}");
    }
    let left = fs::read_dir(server.served().join(".millrace-staging"));
    assert_eq!(left.map_or(0, |entries| entries.count()), 0, "nothing is left");
}

#[test]
fn pieces_from_tuspy_go_through_hooks_also_after_a_kill() {
    let Some(python) = tuspy() else { return };
    let hooks = "[[hook]]\non = \"upload\"\nrun = [\"/bin/sh\", \"-c\", \"[ $(wc -c < $1) -eq 2000001 ]\", \"sh\", \"{file}\"]\n\
                 [[hook]]\non = \"upload\"\nmove = \"/checked/{name}\"\n";
    let mut server = Server::configured_with(hooks, &[]);
    let contents = noise(4, 2_000_001);
    fs::write(server.local().join("big"), &contents).unwrap();
    fs::write(server.local().join("session.py"), SESSION).unwrap();
    let mut address = String::new();
    for pieces in ["2", "1", "100"] {
        let endpoint = server.http_url("");
        let arguments = ["session.py", &endpoint, USER, PASSWORD, &address, pieces, "no"];
        address = python.run(&server, &arguments).trim().to_owned();
        assert_eq!(server.served().join("checked/b\u{e4}ld.bin").exists(), pieces == "100");
        server.is_killed_and_started_again();
    }
    assert!(!server.served().join("b\u{e4}ld.bin").exists(), "it was moved");
    assert!(read(server.served().join("checked/b\u{e4}ld.bin")) == contents);
}
