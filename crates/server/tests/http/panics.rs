//! A panic on a thread of the pool (a bug): the client that waits for the job gets an error, and others are served.

use std::sync::Arc;

use millrace_server::{Accounts, Attempt, Authenticator, Config, Decision, Permissions};
use millrace_storage::{Fault, FaultStorage, MemoryStorage};

use crate::kit::{http_config, serve_http, serve_http_with};

/// `u:p`.
const LOGIN: &str = "Authorization: Basic dTpw\r\n";

#[test]
fn a_request_is_answered_wherever_a_storage_panics() {
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.inner().insert("/f", vec![7; 300_000]);
    let faults = storage.faults();
    let served = serve_http(Arc::new(storage));
    for method in ["GET", "PUT", "PROPFIND", "DELETE"] {
        let (length, body) =
            if method == "PUT" { (100_000, "x".repeat(100_000)) } else { (0, String::new()) };
        let request = |name: &str| {
            let fields = format!("{LOGIN}Connection: close\r\nDepth: 0\r\nContent-Length: {length}\r\n");
            format!("{method} /{name} HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
        };
        let ask = |name: &str| {
            let mut client = served.connect();
            client.send(request(name));
            // An answer that had begun ends with its connection; none waits for ever.
            client.rest()
        };
        for call in 1..=3 {
            faults.reset();
            faults.from(call, Fault::Panic);
            let answer = ask("f");
            assert!(!answer.starts_with(b"HTTP/1.1 2") || method == "GET", "{}", answer.escape_ascii());
        }
        faults.reset();
        let answer = ask(if method == "PUT" { "g" } else { "f" });
        assert!(answer.starts_with(b"HTTP/1.1 2"), "{method}: {}", answer.escape_ascii());
    }
}

/// Accounts that panic where a password is right.
#[derive(Debug)]
struct Wrong(Accounts);

impl Authenticator for Wrong {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        assert_ne!(attempt.user, b"u", "on purpose: accounts that are wrong");
        self.0.authenticate(attempt)
    }
}

#[test]
fn a_login_is_answered_where_the_accounts_panic() {
    let storage = Arc::new(MemoryStorage::new());
    storage.insert("/f", "file");
    let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, storage.clone());
    let served = serve_http_with(Config { accounts: Arc::new(Wrong(accounts)), ..http_config(storage) });
    assert_eq!(served.ask(format!("GET /f HTTP/1.1\r\nHost: h\r\n{LOGIN}\r\n")).status, 503);
    assert_eq!(served.get("/f", "").status, 200);
}
