//! Accounts that are kept elsewhere: real databases and directories, each run by the test that asks it, in a folder
//! of its own, and taken away and brought back by it.

#[path = "../kit/mod.rs"]
mod kit;

mod daemon;
mod ldap;
mod mariadb;
mod mysql;
mod postgres;
mod postgresql;
mod slapd;

use std::sync::Arc;
use std::time::Duration;

use millrace_server::auth::{Chain, Found, Homes, Source};
use millrace_server::{Attempt, Config};
use millrace_storage::{LocalOptions, MemoryStorage};

use kit::{Client, Scratch, Served, config, serve_with};

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// How long an answer may take where the test is not about that.
const PATIENT: Duration = Duration::from_secs(30);

/// A server of a folder of its own, whose accounts are those of a source.
fn serve(source: impl Source + 'static) -> (Served, Scratch) {
    let scratch = Scratch::new();
    let root = scratch.path().canonicalize().unwrap();
    let chain = Chain::new(Arc::new(Homes::new(root, LocalOptions::default()))).source(source);
    let config = Config { accounts: Arc::new(chain), ..config(Arc::new(MemoryStorage::new())) };
    (serve_with(config), scratch)
}

/// The code of the last reply of a login.
fn try_login(served: &Served, user: &str, password: &str) -> u16 {
    let mut client = served.connect();
    client.expect(format!("USER {user}"), 331);
    client.command(format!("PASS {password}")).code
}

fn login(served: &Served, user: &str) -> Client {
    let mut client = served.connect();
    client.log_in(user, "password");
    client
}

/// What a source has of a name, in a word.
fn known(source: &impl Source, name: &str, password: &str) -> String {
    match source.find(&Attempt::new(name.as_bytes(), password.as_bytes())) {
        Ok(Found::Unknown) => "unknown".to_owned(),
        Ok(Found::User(user, proof)) => {
            let profile = serde_json::to_string(&user.profile).unwrap();
            let proof = format!("{proof:?}");
            format!("{} {:?} {profile} {}", user.name, user.groups, proof.split('(').next().unwrap())
        }
        Err(why) => format!("error: {why}"),
    }
}
