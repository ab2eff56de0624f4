//! Clients that are refused before the login.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_server::auth::{Attempt, Decision};
use millrace_server::{Authenticator, BanRules, Config};
use millrace_storage::MemoryStorage;

use crate::kit::{Client, Served, config, serve_with};

fn serve(bans: BanRules) -> Served {
    let config = config(Arc::new(MemoryStorage::new()));
    serve_with(Config { bans, login_delay: Duration::from_millis(1), ..config })
}

#[test]
fn a_banned_user_gets_the_same_answer_to_the_right_password() {
    let served = serve(BanRules { after: 3, ..BanRules::default() });
    for _ in 0..3 {
        let mut client = served.connect();
        client.expect("USER u", 331);
        client.expect("PASS wrong", 530);
    }
    let mut client = served.connect();
    client.expect("USER u", 331);
    client.expect("PASS p", 530);
    // No other user is locked out, not even from there.
    client.log_in("r", "p");
    let mut elsewhere = Client::connect_from("127.0.0.9", served.address);
    elsewhere.expect_reply(220);
    elsewhere.log_in("u", "p");
    let bans = served.running.bans();
    assert_eq!((bans.len(), bans[0].user.as_deref()), (1, Some(&b"u"[..])));
    assert!(served.running.lift_ban("127.0.0.1".parse().unwrap()));
    served.login();
}

/// Accounts that decide about the right password only once they are told to, as of a guess behind many others.
#[derive(Debug)]
struct Slow {
    accounts: Arc<dyn Authenticator>,
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

#[test]
fn a_right_password_counts_for_nothing_if_its_user_is_banned_while_it_is_looked_at() {
    let (tell, told) = channel();
    let config = config(Arc::new(MemoryStorage::new()));
    let accounts = Arc::new(Slow { accounts: config.accounts.clone(), told: Mutex::new(told) });
    let bans = BanRules { after: 3, ..BanRules::default() };
    let served = serve_with(Config { accounts, bans, login_delay: Duration::from_millis(1), ..config });
    let mut right = served.connect();
    right.expect("USER u", 331);
    right.send("PASS p\r\n");
    for _ in 0..3 {
        let mut client = served.connect();
        client.expect("USER u", 331);
        client.expect("PASS wrong", 530);
    }
    tell.send(()).unwrap();
    right.expect_reply(530);
    assert_eq!(served.running.bans().len(), 1, "the ban holds");
}

#[test]
fn an_address_that_guesses_names_is_refused_at_the_door() {
    let served = serve(BanRules { after: 2, ..BanRules::default() });
    for number in 0..10 {
        let mut client = Client::connect_from("127.0.0.9", served.address);
        client.expect_reply(220);
        client.expect(format!("USER guess{number}"), 331);
        client.expect("PASS x", 530);
    }
    let mut refused = Client::connect_from("127.0.0.9", served.address);
    assert!(refused.expect_reply(421).text.contains("banned"));
    refused.expect_end();
    served.login();
}

#[test]
fn the_lists_can_be_changed_while_it_runs() {
    let served = serve(BanRules { deny: vec!["127.0.0.9".parse().unwrap()], ..BanRules::default() });
    let from = |address| Client::connect_from(address, served.address).reply().code;
    assert_eq!((from("127.0.0.9"), from("127.0.0.1")), (421, 220));
    let rules = BanRules { allow: vec!["127.0.0.8/31".parse().unwrap()], ..BanRules::default() };
    served.running.reload(Config { bans: rules, ..config(Arc::new(MemoryStorage::new())) }).unwrap();
    assert_eq!((from("127.0.0.9"), from("127.0.0.1")), (220, 421));
    assert!(served.running.ban("127.0.0.9".parse().unwrap(), None));
    assert_eq!((from("127.0.0.9"), from("127.0.0.8")), (421, 220));
}
