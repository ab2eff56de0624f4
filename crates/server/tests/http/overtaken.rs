//! A request whose login is under way while the accounts are replaced: the new ones decide about it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use millrace_server::{Account, Attempt, Authenticator, Config, Decision, Hooks, Permissions};
use millrace_vfs::Storage;

use crate::kit::{AtLogin, Gate, PATIENCE, Scratch, ServedHttp, http_config, serve_http_with};

/// All users have these permissions, or none is known; a login stops at the gate.
#[derive(Debug)]
struct Everybody(Arc<dyn Storage>, Option<Permissions>, Option<Arc<Gate>>);

impl Authenticator for Everybody {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        self.2.iter().for_each(|gate| gate.pass());
        self.current(attempt).unwrap()
    }

    fn current(&self, _: &Attempt<'_>) -> Option<Decision> {
        Some(match self.1 {
            Some(may) => Decision::Granted(Account::new(self.0.clone(), may)),
            None => Decision::Denied,
        })
    }
}

/// The status of a `PUT`, if there is one, whose login stops while the accounts are replaced.
fn overtaken(served: &ServedHttp, stopped: &Receiver<()>, go: &Sender<()>, new: Config) -> Option<u16> {
    let mut client = served.connect();
    client.send(
        "PUT /new HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\nConnection: close\r\n\
         Content-Length: 1\r\n\r\n1",
    );
    stopped.recv_timeout(PATIENCE).unwrap();
    served.running.reload(new).unwrap();
    go.send(()).unwrap();
    let answer = String::from_utf8(client.rest()).unwrap();
    answer.get(9..12).map(|code| code.parse().unwrap())
}

const NOW: [(Option<Permissions>, u16); 3] =
    [(None, 401), (Some(Permissions::READ_ONLY), 403), (Some(Permissions::READ_WRITE), 201)];

#[test]
fn a_login_that_old_accounts_take_long_for_is_decided_by_the_new_ones() {
    for (now, status) in NOW {
        let scratch = Scratch::new();
        let (gate, stopped, go) = Gate::new();
        let with = |may, gate| {
            let accounts = Arc::new(Everybody(scratch.storage(), may, gate));
            Config { accounts, ..http_config(scratch.storage()) }
        };
        let served = serve_http_with(with(Some(Permissions::READ_WRITE), Some(gate)));
        assert_eq!(overtaken(&served, &stopped, &go, with(now, None)), Some(status), "{now:?}");
    }
}

#[test]
fn a_request_that_waits_for_a_hook_is_carried_out_for_who_is_known_then() {
    for (now, status) in NOW {
        let scratch = Scratch::new();
        let (gate, stopped, go) = Gate::new();
        let hooks: Arc<dyn Hooks> = Arc::new(AtLogin(gate));
        let with = |may| {
            let accounts = Arc::new(Everybody(scratch.storage(), may, None));
            Config { accounts, hooks: Some(hooks.clone()), ..http_config(scratch.storage()) }
        };
        let served = serve_http_with(with(Some(Permissions::READ_WRITE)));
        let answered = overtaken(&served, &stopped, &go, with(now));
        // Whose account is gone is cut off, or told so: whichever comes first.
        assert!(answered == Some(status) || (now.is_none() && answered.is_none()), "{now:?}: {answered:?}");
        assert_eq!(scratch.path().join("new").exists(), status == 201, "{now:?}");
    }
}
