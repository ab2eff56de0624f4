//! Accounts that are replaced while a login or a look at an account is under way: what holds in the end is what the
//! new ones say.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use millrace_server::{Account, Attempt, Authenticator, Config, Decision, Hooks, Permissions};
use millrace_storage::MemoryStorage;

use crate::kit::{AtLogin, Gate, PATIENCE, Served, config, eventually, serve_with};

/// All users are known, or none is.
#[derive(Debug)]
struct Everybody {
    storage: Arc<MemoryStorage>,
    may: Option<Permissions>,
    /// Where a login stops.
    login: Option<Arc<Gate>>,
    /// Where the looks at an account stop, one after the other, and what they come to.
    looks: Mutex<VecDeque<(Arc<Gate>, Permissions)>>,
}

impl Everybody {
    fn new(may: Option<Permissions>) -> Self {
        let storage = Arc::new(MemoryStorage::new());
        Self { storage, may, login: None, looks: Mutex::default() }
    }

    fn decide(&self, may: Option<Permissions>) -> Decision {
        match may {
            Some(may) => Decision::Granted(Account::new(self.storage.clone(), may)),
            None => Decision::Denied,
        }
    }
}

impl Authenticator for Everybody {
    fn authenticate(&self, _: &Attempt<'_>) -> Decision {
        if let Some(gate) = &self.login {
            gate.pass();
        }
        self.decide(self.may)
    }

    fn current(&self, _: &Attempt<'_>) -> Option<Decision> {
        let look = self.looks.lock().unwrap().pop_front();
        Some(match look {
            Some((gate, may)) => {
                gate.pass();
                self.decide(Some(may))
            }
            None => self.decide(self.may),
        })
    }
}

fn with(accounts: Everybody, hooks: Option<Arc<dyn Hooks>>) -> Config {
    Config { accounts: Arc::new(accounts), hooks, ..config(Arc::new(MemoryStorage::new())) }
}

/// A login is under way where it stops, and the accounts are replaced by those that allow this; the reply to it, and to
/// an `MKD` behind it.
fn overtaken(served: &Served, stopped: &Receiver<()>, go: &Sender<()>, new: Config) -> [u16; 2] {
    let mut client = served.connect();
    client.expect("USER u", 331);
    client.send("PASS p\r\nMKD d\r\n");
    stopped.recv_timeout(PATIENCE).unwrap();
    served.running.reload(new).unwrap();
    go.send(()).unwrap();
    [client.reply().code, client.reply().code]
}

const NOW: [(Option<Permissions>, [u16; 2]); 3] = [
    (None, [530, 530]),
    (Some(Permissions::READ_ONLY), [230, 550]),
    (Some(Permissions::READ_WRITE), [230, 257]),
];

#[test]
fn a_login_that_waits_for_a_hook_is_let_in_by_the_accounts_that_hold_then() {
    for (now, replies) in NOW {
        let (gate, stopped, go) = Gate::new();
        let hooks: Arc<dyn Hooks> = Arc::new(AtLogin(gate));
        let old = Everybody::new(Some(Permissions::READ_WRITE));
        let served = serve_with(with(old, Some(hooks.clone())));
        let new = with(Everybody::new(now), Some(hooks));
        assert_eq!(overtaken(&served, &stopped, &go, new), replies, "{now:?}");
        assert!(stopped.try_recv().is_err(), "the hook is asked once");
    }
}

#[test]
fn a_login_that_old_accounts_take_long_for_is_let_in_by_the_new_ones() {
    for (now, replies) in NOW {
        let (gate, stopped, go) = Gate::new();
        let old = Everybody { login: Some(gate), ..Everybody::new(Some(Permissions::READ_WRITE)) };
        let served = serve_with(with(old, None));
        assert_eq!(overtaken(&served, &stopped, &go, with(Everybody::new(now), None)), replies, "{now:?}");
    }
}

#[test]
fn an_older_look_at_an_account_does_not_replace_what_a_newer_one_found() {
    let (first, first_stopped, first_may_go) = Gate::new();
    let (second, second_stopped, second_may_go) = Gate::new();
    let (third, third_stopped, third_may_go) = Gate::new();
    let (more, less) = (Permissions::READ_WRITE, Permissions::READ_ONLY);
    let looks = Mutex::new(VecDeque::from([(first, more), (second, less), (third, less)]));
    let accounts = Arc::new(Everybody { looks, ..Everybody::new(Some(more)) });
    let config = || Config { accounts: accounts.clone(), ..config(Arc::new(MemoryStorage::new())) };
    let served = serve_with(config());
    let mut client = served.login();
    for stopped in [&first_stopped, &second_stopped] {
        served.running.reload(config()).unwrap();
        stopped.recv_timeout(PATIENCE).unwrap();
    }
    second_may_go.send(()).unwrap();
    eventually("the second look counts", || client.command("MKD d").code == 550);
    first_may_go.send(()).unwrap();
    // The first look has its answer delivered before a third one is even begun on its thread, or so soon after that
    // a hundred commands would see it.
    served.running.reload(config()).unwrap();
    third_stopped.recv_timeout(PATIENCE).unwrap();
    for number in 0..100 {
        client.expect(format!("MKD d{number}"), 550);
    }
    third_may_go.send(()).unwrap();
}
