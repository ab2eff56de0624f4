//! Many slow requests: they are served in order, and quick ones do not wait for them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use millrace_server::Config;
use millrace_server::auth::{Attempt, Authenticator, Decision};
use millrace_server::config::Programs;
use millrace_server::web::Web;
use millrace_vfs::VirtualPath;

use crate::kit::{Scratch, eventually, http_config, serve_http_with};

/// Nothing is in it, and to hash it takes minutes.
fn make_vast(scratch: &Scratch, name: &str) {
    File::create(scratch.file(name)).unwrap().set_len(1 << 40).unwrap();
}

const DIGEST: &str = "Want-Repr-Digest: sha-512=1\r\n";

/// Any reader may ask for a hash, in 70 bytes.
#[test]
fn hashes_delay_no_other_request_and_end_with_their_clients() {
    let scratch = Scratch::new();
    make_vast(&scratch, "vast");
    make_vast(&scratch, "other");
    // Too large to be kept in memory, where it would be hashed at once.
    scratch.write("large", &vec![b'x'; 1 << 20]);
    let served = serve_http_with(Config {
        blocking_threads: 1,
        web: Web { digest_bytes: u64::MAX, ..Web::default() },
        ..http_config(scratch.storage())
    });
    let ask = |path: &str| {
        let mut client = served.connect();
        client.send(format!("HEAD /{path} HTTP/1.1\r\nHost: h\r\n{DIGEST}\r\n"));
        client
    };
    let (first, second) = (ask("vast"), ask("other"));
    assert!(served.get("/", "").text().contains("vast"), "who wants a page gets it meanwhile");
    first.stream.set_nonblocking(true).unwrap();
    let nothing = (&first.stream).read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(nothing, Err(ErrorKind::WouldBlock), "it is not that it was hashed before");
    // There is one thread for hashes, which is free again when their clients have gone.
    drop((first, second));
    let mut third = ask("large");
    assert!(third.response_to(true).field("repr-digest").is_some());
}

/// Accounts that answer from the pool only, as those of a database do.
#[derive(Debug)]
struct Pooled(Arc<dyn Authenticator>);

impl Authenticator for Pooled {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        self.0.authenticate(attempt)
    }
}

/// A decision about a user is valid for a second; a request that waits longer is decided again at its turn.
#[test]
fn requests_that_wait_for_a_program_are_served_in_order() {
    const COUNT: usize = 12;
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("cgi")).unwrap();
    let text = "#!/bin/sh\necho $QUERY_STRING >> order\nprintf 'Content-Type: a/b\\n\\n'\nsleep 0.3\n";
    scratch.write("cgi/slow", text.as_bytes());
    std::fs::set_permissions(scratch.file("cgi/slow"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let folder = scratch.file("cgi").canonicalize().unwrap();
    let folders = vec![(VirtualPath::parse(b"/cgi").unwrap(), folder)];
    let config = http_config(scratch.storage());
    let served = serve_http_with(Config {
        programs: Programs { folders, most: 1, ..Programs::default() },
        accounts: Arc::new(Pooled(config.accounts.clone())),
        ..config
    });
    let under_way = || served.running.sessions().len();
    let mut clients = Vec::new();
    for number in 0..COUNT {
        let mut client = served.connect();
        let fields = "Host: h\r\nAuthorization: Basic dTpw";
        client.send(format!("GET /cgi/slow?{number} HTTP/1.1\r\n{fields}\r\n\r\n"));
        clients.push(client);
        eventually("it has a place, or one in the line", || under_way() > number);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let order = String::from_utf8(scratch.read("cgi/order").unwrap()).unwrap();
    let expected: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    assert_eq!(order.lines().collect::<Vec<_>>(), expected);
}
