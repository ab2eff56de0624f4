//! Reloads while the server runs: the new settings apply from then on, and running requests are not affected.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_server::hooks::PathPattern;
use millrace_server::limits::{AccountLimits, Limit, Limits};
use millrace_server::web::{Cors, ErrorPage, FieldRule, Fields, Grant, Origin, Types, Web};
use millrace_server::{Account, Accounts, Attempt, Authenticator, Config, Decision, Permissions};

use crate::kit::{Scratch, eventually, http_config, pattern, serve_http_with};

fn fields(value: &str) -> Fields {
    let fields = vec![("X-Said".to_owned(), value.to_owned())];
    Fields::new(vec![FieldRule { fields, ..FieldRule::default() }], false).unwrap()
}

fn grant(origin: &str) -> Grant {
    Grant {
        origins: vec![Origin::parse(origin).unwrap()],
        methods: vec!["GET".to_owned()],
        request_fields: Vec::new(),
        exposed: Vec::new(),
        credentials: false,
        max_age: 1,
    }
}

/// Everything that can be said of answers, with this in it.
fn web(word: &str, index: &str) -> Web {
    let mut types = Types::default();
    types.set("txt", &format!("text/x-{word}")).unwrap();
    let page = ErrorPage::new(vec![404], Vec::new(), "text/plain".into(), word.as_bytes().to_vec());
    let cors = Cors { paths: Vec::<PathPattern>::new(), grant: grant(&format!("https://{word}.example")) };
    Web {
        fields: fields(word),
        index: vec![index.as_bytes().to_vec()],
        types,
        error_pages: vec![page],
        cors: vec![cors],
        ..Web::default()
    }
}

#[test]
fn rules_of_answers_are_reloaded_and_running_answers_continue() {
    let scratch = Scratch::new();
    let content = pattern(30_000_000);
    scratch.write("large", &content);
    scratch.write("a.txt", b"text");
    scratch.write("one", b"first");
    scratch.write("two", b"second");
    let config = |web: Web| Config {
        web,
        workers: 2,
        stall_timeout: Duration::from_secs(60),
        ..http_config(scratch.storage())
    };
    let served = serve_http_with(config(web("one", "one")));
    let mut kept = served.connect();
    let mut expect = |word: &str, body: &[u8]| {
        let origin = format!("Origin: https://{word}.example\r\n");
        kept.send(format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{origin}\r\n"));
        let file = kept.response();
        let media_type = format!("text/x-{word}");
        let allowed = format!("https://{word}.example");
        let index = kept.get("/");
        (file.field("x-said"), file.field("content-type")) == (Some(word), Some(&*media_type))
            && file.field("access-control-allow-origin") == Some(&*allowed)
            && index.body == body
            && kept.get("/none").text() == word
            && kept.get("/none").field("x-said") == Some(word)
    };
    assert!(expect("one", b"first"));
    let mut download = served.connect();
    download.send("GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let mut begun = vec![0; 1_000];
    download.stream.read_exact(&mut begun).unwrap();

    served.running.reload(config(web("two", "two"))).unwrap();
    // By workers who hear of it in their next turn.
    eventually("the new ones hold", || expect("two", b"second"));
    begun.extend(download.rest());
    assert!(begun.ends_with(&content), "{} bytes", begun.len());
    let head = String::from_utf8_lossy(&begun[..600]).into_owned();
    assert!(head.contains("\r\nX-Said: one\r\n"), "{head}");

    served.running.reload(config(Web { index: Vec::new(), ..Web::default() })).unwrap();
    let mut plain = served.connect();
    eventually("there is none any more", || plain.get("/a.txt").field("x-said").is_none());
    scratch.write("index.html", b"not this");
    assert!(plain.get("/").text().contains("href=\"./one\""));
}

/// A request without a password is from `anonymous`, or refused, as last configured.
#[test]
fn whether_anonymous_is_welcome_is_read_again() {
    let scratch = Scratch::new();
    scratch.write("a", b"text");
    let config = |anonymous| {
        let accounts = Accounts::new().user("u", "p", Permissions::READ_ONLY, scratch.storage());
        let accounts = match anonymous {
            true => accounts.anonymous(Permissions::READ_ONLY, scratch.storage()),
            false => accounts,
        };
        let accounts = Arc::new(accounts);
        let login_delay = Duration::from_secs(600);
        Config { accounts, anonymous, login_delay, ..http_config(scratch.storage()) }
    };
    let served = serve_http_with(config(true));
    let mut kept = served.connect();
    assert_eq!(kept.get("/a").status, 200);
    served.running.reload(config(false)).unwrap();
    // At once: a request without credentials is not a failed login.
    for _ in 0..3 {
        assert_eq!(kept.get("/a").status, 401);
        assert_eq!(served.get("/a", "").status, 401);
    }
    served.running.reload(config(true)).unwrap();
    assert_eq!(kept.get("/a").status, 200);
    assert_eq!(served.get("/a", "").status, 200);
}

/// A rate that an account has only since then, on a connection that goes on and for an answer that is under way.
#[test]
fn limits_of_an_account_are_read_again_for_those_who_are_connected() {
    let scratch = Scratch::new();
    scratch.write("a", &pattern(100_000));
    let config = |limits: AccountLimits| {
        let account = Account::new(scratch.storage(), Permissions::READ_ONLY);
        let account = Account { limits: Some(Arc::new(limits)), ..account };
        Config { accounts: Arc::new(Only(account)), ..http_config(scratch.storage()) }
    };
    let served = serve_http_with(config(AccountLimits::default()));
    let mut kept = served.connect();
    let mut get = || {
        let began = Instant::now();
        kept.send("GET /a HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n\r\n");
        assert_eq!(kept.response().body, pattern(100_000));
        began.elapsed()
    };
    get();
    let slow = Limits { download: Some(Limit::of(40_000)), ..Limits::default() };
    served.running.reload(config(AccountLimits { user: slow, ..AccountLimits::default() })).unwrap();
    assert!(get() > Duration::from_secs(1));
}

/// `u`, whatever the password.
#[derive(Debug)]
struct Only(Account);

impl Authenticator for Only {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        match attempt.user {
            b"u" => Decision::Granted(self.0.clone()),
            _ => Decision::Denied,
        }
    }
}
