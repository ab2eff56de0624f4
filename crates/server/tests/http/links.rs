//! Links that expire: what others may do by them, and what is written down of them.

use std::sync::Arc;

use millrace_server::auth::{Attempt, Decision};
use millrace_server::limits::LoginRates;
use millrace_server::web::{Link, LinkKeys, Web};
use millrace_server::{Authenticator, Config};
use millrace_vfs::VirtualPath;

use crate::kit::{Scratch, eventually, http_config, serve_http_with};

/// Accounts that know somebody without a password, as those of a configuration file do.
#[derive(Debug)]
struct Knowing(Arc<dyn Authenticator>);

impl Authenticator for Knowing {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        self.0.authenticate(attempt)
    }

    fn current(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        Some(self.0.authenticate(&Attempt { password: b"p", ..*attempt }))
    }
}

/// Accounts that know the user no more.
#[derive(Debug)]
struct Forgetful;

impl Authenticator for Forgetful {
    fn authenticate(&self, _: &Attempt<'_>) -> Decision {
        Decision::Denied
    }

    fn current(&self, _: &Attempt<'_>) -> Option<Decision> {
        Some(Decision::Denied)
    }
}

/// A page may have any number of them.
#[test]
fn who_follows_a_link_of_a_user_that_is_gone_has_guessed_no_password() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    let keys = LinkKeys::parse("0123456789abcdef0123456789abcdef").unwrap();
    let path = VirtualPath::parse(b"/f").unwrap();
    let link = Link { path, puts: false, user: b"ghost".to_vec(), expires: 4_000_000_000 };
    let target = keys.sign(&link).unwrap();
    let served = serve_http_with(Config {
        accounts: Arc::new(Forgetful),
        web: Web { links: keys, ..Web::default() },
        // Nobody would wait for so long.
        login_delay: std::time::Duration::from_secs(3600),
        ..http_config(scratch.storage())
    });
    for _ in 0..50 {
        let refused = served.get(&target, "");
        assert_eq!((refused.status, refused.field("www-authenticate")), (403, None));
    }
}

#[test]
fn whoever_has_a_link_locks_nobody_out_and_is_not_written_down_with_it() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    let (logs, keys) = (Scratch::new(), LinkKeys::parse("0123456789abcdef0123456789abcdef").unwrap());
    let path = VirtualPath::parse(b"/f").unwrap();
    let link = Link { path, puts: false, user: b"u".to_vec(), expires: 4_000_000_000 };
    let target = keys.sign(&link).unwrap();
    let config = http_config(scratch.storage());
    let access_log = logs.path().join("access.log");
    let served = serve_http_with(Config {
        accounts: Arc::new(Knowing(config.accounts.clone())),
        web: Web { links: keys, ..Web::default() },
        logins: LoginRates { user: "1/hour".parse().unwrap(), ..LoginRates::default() },
        access_log: Some(access_log.clone()),
        ..config
    });
    for _ in 0..3 {
        assert_eq!(served.get(&target, "").body, b"content");
    }
    // What only looks like one.
    for query in ["signature", "signature&b", "a;signature", "signature=", "&signature&"] {
        assert_eq!(served.get(&format!("/f?{query}"), "").status, 403, "{query}");
        let referer = format!("Referer: http://h/?{query}\r\n");
        assert_eq!(served.get("/f", &referer).status, 200, "{query}");
    }
    // A page sends its own address along with what it asks for; so does one that is not there.
    let referer = format!("Authorization: Basic dTpw\r\nReferer: http://h{target}\r\n");
    assert_eq!(served.get("/f", &referer).status, 200, "the user's first login");
    assert_eq!(served.get("/f", &referer).status, 429, "the second");
    let read = || std::fs::read_to_string(&access_log).unwrap_or_default();
    eventually("all is written", || read().lines().count() >= 15);
    let signature = target.split("signature=").nth(1).unwrap();
    assert!(!read().contains(signature), "{}", read());
    assert!(read().contains("http://h/f?expires=4000000000&user=u&signature=..."), "{}", read());
}
