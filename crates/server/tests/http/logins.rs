//! Permissions of users by Basic authentication.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrace_server::auth::{Attempt, Decision};
use millrace_server::{
    Accounts, AdminLogin, Authenticator, BanRules, Config, LoginAttempt, Permissions, Protocol,
};

use crate::kit::{PATIENCE, Scratch, ServedHttp, http_config, serve_http, serve_http_with};

/// `u:p`, `u:wrong`.
const RIGHT: &str = "Authorization: Basic dTpw\r\n";
const WRONG: &str = "Authorization: Basic dTp3cm9uZw==\r\n";

fn closed(scratch: &Scratch) -> ServedHttp {
    let accounts = Accounts::new().user("u", "p", Permissions::READ_ONLY, scratch.storage());
    let config = http_config(scratch.storage());
    serve_http_with(Config { accounts: Arc::new(accounts), anonymous: false, ..config })
}

#[test]
fn without_anonymous_a_user_has_to_say_who_it_is() {
    let scratch = Scratch::new();
    scratch.write("a", b"secret");
    let served = closed(&scratch);
    let refused = served.get("/a", "");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.field("www-authenticate"), Some("Basic realm=\"Millrace\", charset=\"UTF-8\""));
    assert!(!refused.text().contains("secret"));
    assert_eq!(served.get("/a", RIGHT).body, b"secret");
    assert_eq!(served.get("/nothing", "").status, 401, "the answer does not reveal which files exist");
    assert_eq!(served.get("/a", "Authorization: Bearer x\r\n").status, 401);
}

#[test]
fn a_password_holds_for_its_request_only() {
    let scratch = Scratch::new();
    scratch.write("a", b"secret");
    let served = closed(&scratch);
    let mut client = served.connect();
    let mut ask = |fields: &str| {
        client.send(format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        client.response().status
    };
    assert_eq!([ask(RIGHT), ask(""), ask(RIGHT), ask(WRONG), ask(RIGHT)], [200, 401, 200, 401, 200]);
}

#[test]
fn wrong_passwords_close_the_connection_in_the_end() {
    let scratch = Scratch::new();
    let served = serve_http_with(Config { login_attempts: 3, ..http_config(scratch.storage()) });
    let mut client = served.connect();
    for attempt in 1..=3 {
        client.send(format!("GET / HTTP/1.1\r\nHost: h\r\n{WRONG}\r\n"));
        let response = client.response();
        assert_eq!(response.status, 401);
        assert_eq!(response.field("connection"), (attempt == 3).then_some("close"));
    }
    client.expect_end();
}

/// A client with a connection for each guess waits as one with a single connection does.
#[test]
fn the_delay_for_wrong_passwords_grows_across_connections() {
    let scratch = Scratch::new();
    let login_delay = Duration::from_millis(40);
    let served = serve_http_with(Config { login_delay, ..http_config(scratch.storage()) });
    for doublings in 0..5 {
        let begun = Instant::now();
        assert_eq!(served.get("/", WRONG).status, 401);
        assert!(begun.elapsed() >= login_delay * 2u32.pow(doublings), "{doublings}: {:?}", begun.elapsed());
    }
}

#[test]
fn anonymous_reads_where_it_may() {
    let scratch = Scratch::new();
    scratch.write("a", b"open");
    let served = serve_http(scratch.storage());
    assert_eq!(served.get("/a", "").body, b"open");
    assert_eq!(served.get("/a", RIGHT).body, b"open");
    assert_eq!(served.get("/a", WRONG).status, 401, "a wrong password is wrong");
}

#[test]
fn pipelined_requests_wait_for_a_login_that_is_asked_about() {
    let scratch = Scratch::new();
    scratch.write("a", b"secret");
    let hash = millrace_server::auth::hash_password(b"p");
    let password = millrace_server::auth::Password::hashed(&hash).unwrap();
    let accounts = Accounts::new().user("u", password, Permissions::READ_ONLY, scratch.storage());
    let config = http_config(scratch.storage());
    let served = serve_http_with(Config { accounts: Arc::new(accounts), anonymous: false, ..config });
    let mut client = served.connect();
    let request = |fields: &str| format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    client.send([request(RIGHT), request(""), request(WRONG), request(RIGHT)].concat());
    let statuses: Vec<u16> = (0..4).map(|_| client.response().status).collect();
    assert_eq!(statuses, [200, 401, 401, 200]);
}

#[test]
fn wrong_passwords_ban_a_user_at_an_address_as_they_do_by_ftp() {
    let scratch = Scratch::new();
    scratch.write("a", b"secret");
    let bans = BanRules { after: 3, ..BanRules::default() };
    let served = serve_http_with(Config { bans, ..http_config(scratch.storage()) });
    for _ in 0..3 {
        assert_eq!(served.get("/a", WRONG).status, 401);
    }
    assert_eq!(served.get("/a", RIGHT).status, 401, "the right password is as good as a wrong one");
    assert_eq!(served.get("/a", "").status, 200, "anonymous is another user");
    assert!(served.running.lift_ban("127.0.0.1".parse().unwrap()));
    assert_eq!(served.get("/a", RIGHT).status, 200);
}

/// Accounts that are out of reach.
#[derive(Debug)]
struct Away;

impl Authenticator for Away {
    fn authenticate(&self, _: &Attempt<'_>) -> Decision {
        Decision::Unavailable("the cable is out".to_owned())
    }
}

/// 401 would have browsers ask for the password again, and programs give it up.
#[test]
fn accounts_out_of_reach_are_no_wrong_password() {
    let scratch = Scratch::new();
    let bans = BanRules { after: 3, ..BanRules::default() };
    let accounts = Arc::new(Away);
    let served =
        serve_http_with(Config { accounts, bans, anonymous: false, ..http_config(scratch.storage()) });
    for _ in 0..5 {
        let response = served.get("/", RIGHT);
        assert_eq!(response.status, 503);
        assert!(response.field("retry-after").is_some() && response.field("www-authenticate").is_none());
    }
    assert!(served.running.bans().is_empty());
}

/// Accounts that decide about the right password only once they are told to, as of a guess behind many others.
#[derive(Debug)]
struct Slow {
    accounts: Accounts,
    told: Mutex<Receiver<()>>,
}

impl Authenticator for Slow {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        if attempt.password == b"p" {
            self.told.lock().unwrap().recv().unwrap();
        }
        self.accounts.authenticate(attempt)
    }
}

/// A server of `u`, whose right password is looked at when the sender tells; three wrong ones lead to a ban.
fn slow(scratch: &Scratch) -> (ServedHttp, Sender<()>) {
    scratch.write("a", b"secret");
    let (tell, told) = channel();
    let accounts = Accounts::new().user("u", "p", Permissions::READ_ONLY, scratch.storage());
    let accounts = Arc::new(Slow { accounts, told: Mutex::new(told) });
    let bans = BanRules { after: 3, ..BanRules::default() };
    (serve_http_with(Config { accounts, bans, ..http_config(scratch.storage()) }), tell)
}

fn have_banned(served: &ServedHttp) {
    for _ in 0..3 {
        assert_eq!(served.get("/a", WRONG).status, 401);
    }
    assert_eq!(served.running.bans().len(), 1);
}

/// A client that guesses on many connections at once gets no more guesses than one that waits.
#[test]
fn a_right_password_counts_for_nothing_if_its_user_is_banned_while_it_is_looked_at() {
    let scratch = Scratch::new();
    let (served, tell) = slow(&scratch);
    let mut right = served.connect();
    right.send(format!("GET /a HTTP/1.1\r\nHost: h\r\n{RIGHT}\r\n"));
    have_banned(&served);
    tell.send(()).unwrap();
    assert_eq!(right.response().status, 401);
    assert_eq!(served.running.bans().len(), 1, "the ban holds");
}

#[test]
fn nor_does_that_of_an_administrator() {
    let scratch = Scratch::new();
    let (served, tell) = slow(&scratch);
    let from = SocketAddr::from(([127, 0, 0, 1], 4000));
    let attempt = LoginAttempt {
        user: b"u".to_vec(),
        password: b"p".to_vec(),
        from: from.ip(),
        protocol: Protocol::Http,
        encrypted: true,
        certified: false,
        host: String::new(),
        local: None,
        listener: None,
        class: None,
        session: 0,
    };
    let (decide, decided) = channel();
    served.running.log_in(attempt, from, move |login| decide.send(login).unwrap());
    have_banned(&served);
    tell.send(()).unwrap();
    let login = decided.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(login, AdminLogin::Denied(_)), "{login:?}");
    assert_eq!(served.running.bans().len(), 1, "the ban holds");
}
