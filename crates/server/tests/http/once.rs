//! A request is executed once and has one event, however slow accounts and disks are, whether its client stays or not.
//! Otherwise a request could be executed twice, or for another client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_server::auth::{Account, Attempt, Decision};
use millrace_server::config::Programs;
use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks, Refusal};
use millrace_server::limits::{AccountLimits, Limit, Limits};
use millrace_server::{Accounts, Authenticator, Config, Permissions};
use millrace_storage::{Fault, FaultStorage, MemoryStorage};
use millrace_vfs::{Storage, VirtualPath};

use crate::kit::{Scratch, eventually, http_config, reset, serve_http_with};

/// `u:p`.
const LOGIN: &str = "Authorization: Basic dTpw\r\n";

/// Accounts that answer from the pool only, as those of a database do, and count how often they are asked.
#[derive(Debug)]
struct Pooled {
    accounts: Accounts,
    limits: AccountLimits,
    asked: AtomicUsize,
}

impl Pooled {
    fn new(storage: Arc<dyn Storage>, limits: AccountLimits) -> Arc<Self> {
        let accounts = Accounts::new().user("u", "p", Permissions::READ_WRITE, storage);
        Arc::new(Self { accounts, limits, asked: AtomicUsize::new(0) })
    }
}

impl Authenticator for Pooled {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.accounts.authenticate(attempt) {
            Decision::Granted(account) => {
                Decision::Granted(Account { limits: Some(Arc::new(self.limits.clone())), ..account })
            }
            decision => decision,
        }
    }
}

/// What hooks were told.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<String>>);

impl Hooks for Told {
    fn concerns(&self, event: Event, _: &str) -> bool {
        matches!(event, Event::Upload | Event::UploadFailed | Event::Command)
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        if context.path.as_ref().is_some_and(|path| path.as_bytes() == b"/kept") {
            return HookVerdict::Refuse(Refusal::new("Not that one."));
        }
        if context.event != Event::Command {
            self.0.lock().unwrap().push(context.event.to_string());
        }
        HookVerdict::Pass
    }
}

#[test]
fn an_upload_that_got_its_name_is_heard_of_though_its_client_was_gone() {
    let storage = FaultStorage::new(MemoryStorage::new());
    let faults = storage.faults();
    let told = Arc::new(Told::default());
    let hooks: Arc<dyn Hooks> = told.clone();
    let served = serve_http_with(Config { hooks: Some(hooks), ..http_config(Arc::new(storage)) });
    let put = |name: &str| {
        format!("PUT /{name} HTTP/1.1\r\nHost: h\r\n{LOGIN}Content-Length: 5\r\n\r\n12345").into_bytes()
    };
    assert_eq!(served.ask(put("counted")).status, 201);
    let last = faults.calls();
    assert_eq!(told.0.lock().unwrap().drain(..).collect::<Vec<_>>(), ["upload"]);
    faults.reset();
    faults.once(last, Fault::Stuck);
    let mut client = served.connect();
    client.send(put("a"));
    eventually("the commit is under way", || faults.stuck() == 1);
    reset(client.stream);
    // By the same worker: it has heard of the reset when it answers.
    assert_eq!(served.ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").status, 204);
    faults.release();
    eventually("it is heard of", || !told.0.lock().unwrap().is_empty());
    assert_eq!(*told.0.lock().unwrap(), ["upload"]);
    assert_eq!(served.get("/a", "").body, b"12345");
}

#[test]
fn a_request_that_outlasts_its_cached_login_is_executed_once() {
    let storage = FaultStorage::new(MemoryStorage::new());
    storage.inner().insert("/a", "gone").insert("/b", "stays");
    let faults = storage.faults();
    let storage = Arc::new(storage);
    let accounts = Pooled::new(storage.clone(), AccountLimits::default());
    let served = serve_http_with(Config { accounts: accounts.clone(), ..http_config(storage) });
    faults.from(1, Fault::Slow(Duration::from_millis(600)));
    let mut client = served.connect();
    client.send(format!("DELETE /a HTTP/1.1\r\nHost: h\r\n{LOGIN}\r\n"));
    assert_eq!(client.response().status, 204, "asked twice it would not be there");
    faults.release();
    // A body that was taken is behind it: the next request begins where it ends.
    faults.from(faults.calls() + 1, Fault::Slow(Duration::from_millis(600)));
    let body = "<propfind xmlns=\"DAV:\"><allprop/></propfind>";
    client.send(format!(
        "PROPFIND /b HTTP/1.1\r\nHost: h\r\n{LOGIN}Depth: 0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.response().status, 207);
    faults.release();
    client.send(format!("GET /b HTTP/1.1\r\nHost: h\r\n{LOGIN}\r\n"));
    assert_eq!(client.response().body, b"stays");
}

#[test]
fn a_session_too_many_is_refused_and_not_asked_about_for_ever() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let user = Limits { sessions: Some(Limit::of(1)), ..Limits::default() };
    let accounts = Pooled::new(Arc::clone(&storage), AccountLimits { user, ..AccountLimits::default() });
    let served = serve_http_with(Config { accounts: accounts.clone(), ..http_config(storage) });
    let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{LOGIN}\r\n");
    let mut first = served.connect();
    first.send(&request);
    assert_eq!(first.response().status, 200);
    let before = accounts.asked.load(Ordering::SeqCst);
    let mut second = served.connect();
    second.send(&request);
    let refused = second.response();
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("Too many sessions of this user"), "{}", refused.text());
    assert_eq!(accounts.asked.load(Ordering::SeqCst), before + 1);
    drop(first);
    eventually("there is room again", || {
        second = served.connect();
        second.send(&request);
        second.response().status == 200
    });
}

const PROGRAM: &str = "#!/bin/sh\necho 'Location: /kept'; echo\n";

#[test]
fn hooks_rule_on_where_a_program_redirects_to() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("cgi")).unwrap();
    scratch.write("cgi/go", PROGRAM.as_bytes());
    scratch.write("kept", b"secret");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scratch.file("cgi/go"), executable).unwrap();
    let folder = scratch.file("cgi").canonicalize().unwrap();
    let programs =
        Programs { folders: vec![(VirtualPath::parse(b"/cgi").unwrap(), folder)], ..Programs::default() };
    let hooks: Arc<dyn Hooks> = Arc::new(Told::default());
    let served = serve_http_with(Config { hooks: Some(hooks), programs, ..http_config(scratch.storage()) });
    for target in ["/kept", "/cgi/go"] {
        let refused = served.get(target, "");
        assert_eq!(refused.status, 403, "{target}");
        assert!(refused.text().contains("Not that one."), "{target}: {}", refused.text());
    }
}
