//! Accounts on real sockets: rules by place, and changes that count while sessions run.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use millrace_server::auth::{
    Chain, Changed, Found, Group, Homes, KnownBy, Needs, Password, Profile, Proof, Source, SourceError, User,
};
use millrace_server::config::FtpHost;
use millrace_server::limits::{Limit, Limits, ServerLimits};
use millrace_server::{Attempt, Config};
use millrace_storage::LocalOptions;

use crate::kit::{Client, Scratch, Served, config, serve_with};

/// One user, `alice`, whose settings the test changes.
#[derive(Debug, Clone, Default)]
struct Changing {
    profile: Arc<Mutex<Option<Profile>>>,
    groups: Arc<Mutex<Vec<String>>>,
    changes: Arc<AtomicUsize>,
    /// Whether the source cannot be reached.
    away: Arc<Mutex<bool>>,
}

impl Changing {
    fn set(&self, profile: Option<&str>) {
        *self.profile.lock().unwrap() = profile.map(|json| serde_json::from_str(json).unwrap());
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Source for Changing {
    fn name(&self) -> &str {
        "the test"
    }

    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        if *self.away.lock().unwrap() {
            return Err(SourceError::backend("the cable is out"));
        }
        let profile = self.profile.lock().unwrap().clone();
        Ok(match profile {
            Some(profile) if attempt.user == b"alice" => {
                let groups = self.groups.lock().unwrap().clone();
                let user = User { name: "alice".to_owned(), groups, profile };
                Found::User(Box::new(user), Proof::Password(Password::from("secret")))
            }
            _ => Found::Unknown,
        })
    }

    fn changed(&self, _: &dyn Fn() -> Vec<Vec<u8>>) -> Changed {
        match self.changes.swap(0, Ordering::Relaxed) {
            0 => Changed::Nothing,
            _ => Changed::Users(vec![b"alice".to_vec()]),
        }
    }
}

/// A server of a folder with `pub/file` and `in/file`, for alice.
fn server(profile: &str) -> (Served, Changing, Scratch) {
    let scratch = Scratch::new();
    for folder in ["pub", "in", "home"] {
        fs::create_dir(scratch.path().join(folder)).unwrap();
        fs::write(scratch.path().join(folder).join("file"), vec![7; 100_000]).unwrap();
    }
    let source = Changing::default();
    source.set(Some(profile));
    let root = scratch.path().canonicalize().unwrap();
    let homes = Arc::new(Homes::new(root, LocalOptions::default()));
    let chain = Chain::new(homes).source(source.clone());
    let config =
        Config { accounts: Arc::new(chain), ..config(Arc::new(millrace_storage::MemoryStorage::new())) };
    (serve_with(config), source, scratch)
}

fn login(served: &Served) -> Client {
    let mut client = Client::connect(served.address);
    client.expect_reply(220);
    client.log_in("alice", "secret");
    client
}

#[test]
fn permissions_hold_at_their_place_whatever_command_asks() {
    let (served, _, _scratch) = server(
        r#"{"access": "ro", "tree": [{"path": "/in", "access": ["write"]}, {"path": "/home", "access": "none"}]}"#,
    );
    let mut client = login(&served);
    client.expect("SIZE pub/file", 213);
    client.expect("DELE pub/file", 550);
    client.expect("SIZE in/file", 550);
    client.expect("CWD home", 550);
    client.expect("CWD in", 250);
    client.expect("MDTM file", 550);
    client.expect("RNFR file", 550);
    client.expect("HASH file", 550);
    client.expect("CDUP", 250);
    let facts = client.expect("MLST pub", 250).text;
    assert!(facts.contains("perm=el;") || facts.contains("perm=le;"), "{facts}");
    assert!(!client.expect("STAT .", 213).text.contains("home"));
}

/// CVE-2015-1419: what was compared was not what was opened.
#[test]
fn forbidden_paths_are_forbidden_in_every_spelling() {
    let (served, _, scratch) =
        server(r#"{"access": "rw", "deny-names": ["*.key"], "tree": [{"path": "/home", "access": "none"}]}"#);
    scratch.write("pub/own.key", &[9; 12_345]);
    let mut client = login(&served);
    for path in ["home/file", "pub/own.key"] {
        let doubled = path.replace('/', "//");
        for spelling in [
            path.to_owned(),
            format!("/{path}"),
            format!("//{doubled}"),
            format!("././{path}"),
            format!("pub/../{path}"),
            format!("/../../{path}"),
            format!("in/../pub/./../{path}"),
            format!("home/../{path}"),
            format!("{path}/"),
            format!("{path}/."),
            format!("{path}/x/.."),
        ] {
            for command in [
                "SIZE",
                "MDTM",
                "MLST",
                "DELE",
                "RNFR",
                "HASH",
                "XSHA256",
                "SITE CHMOD 666",
                "MFMT 20200101000000",
                "SITE CPFR",
                "SITE COPY pub/file",
            ] {
                let reply = client.command(format!("{command} {spelling}"));
                assert!(reply.code >= 500, "{command} {spelling}: {reply:?}");
            }
            assert!(client.try_fetch(format!("RETR {spelling}")).1.code >= 500, "{spelling}");
            for command in ["STOR", "APPE"] {
                assert!(client.try_store(format!("{command} {spelling}"), b"x").code >= 500, "{spelling}");
            }
            for command in ["LIST", "NLST", "LIST -a"] {
                let (listing, _) = client.try_fetch(format!("{command} {spelling}"));
                assert_eq!(listing, b"", "{command} {spelling}");
            }
            client.expect("RNFR pub/file", 350);
            assert!(client.command(format!("RNTO {spelling}")).code >= 500, "{spelling}");
        }
    }
    for pattern in ["h*/f*", "hom[e]/*", "*/*.key", "pub/*.k?y", "pub/own.ke*"] {
        assert_eq!(client.try_fetch(format!("NLST {pattern}")).0, b"", "{pattern}");
    }
    assert_eq!(scratch.read("home/file").unwrap(), vec![7; 100_000]);
    assert_eq!(scratch.read("pub/own.key").unwrap(), vec![9; 12_345]);
    assert_eq!(scratch.read("pub/file").unwrap(), vec![7; 100_000]);
}

/// Like `ls`: the rest of the tree is listed, and unreadable parts are named.
#[test]
fn a_listing_of_a_tree_names_what_may_not_be_read() {
    let (served, _, scratch) = server(
        r#"{"access": "rw", "tree": [{"path": "/in", "access": ["write"]}, {"path": "/home", "access": "none"}]}"#,
    );
    fs::create_dir(scratch.path().join("pub/new")).unwrap();
    let mut client = login(&served);
    for line in ["LIST -R", "NLST -R", "LIST */f*", "LIST -R */*"] {
        let (listing, reply) = client.try_fetch(line);
        let listing = String::from_utf8(listing).unwrap();
        assert!(
            listing.contains("file") && !listing.contains("in/file") && !listing.contains("in:"),
            "{listing}"
        );
        let expected =
            "226 Transfer complete, without what could not be read: \"/in\" (permission denied).\r\n";
        assert_eq!(reply.text, expected, "{line}");
    }
    let status = client.expect("STAT -R .", 213).text;
    assert!(
        status.ends_with("213 End of status, without 1 folder(s) that could not be read.\r\n"),
        "{status}"
    );
    for line in ["LIST", "LIST -R pub", "NLST p*/*"] {
        assert_eq!(client.try_fetch(line).1.text, "226 Transfer complete.\r\n", "{line}");
    }
    client.expect("LANG de", 200);
    let (_, reply) = client.try_fetch("LIST -R");
    assert!(reply.text.contains("ohne das, was nicht zu lesen war: \"/in\" (nicht erlaubt)."), "{reply:?}");
}

#[test]
fn an_unreadable_file_does_not_become_readable_by_renaming() {
    let (served, _, _scratch) = server(
        r#"{"access": "rw", "tree": [{"path": "/in", "access": ["list", "rename", "delete"]},
            {"path": "/home", "access": ["write", "rename", "delete"]}]}"#,
    );
    let mut client = login(&served);
    client.expect("RNFR in/file", 350);
    client.expect("RNTO pub/stolen", 550);
    client.expect("RNFR in/file", 350);
    client.expect("RNTO in/renamed", 250);
    for place in ["in", "home"] {
        client.expect(format!("RNFR {place}"), 350);
        client.expect("RNTO pub/place", 550);
    }
}

#[test]
fn without_overwrite_an_upload_goes_on_at_the_end_or_not_at_all() {
    let permissions = r#""access": ["list", "read", "write", "append"]"#;
    for profile in [format!("{{{permissions}}}"), format!(r#"{{{permissions}, "deny-names": ["x"]}}"#)] {
        let (served, _, scratch) = server(&profile);
        let mut client = login(&served);
        client.expect("TYPE I", 200);
        let mut store_from = |at: u64| {
            client.passive();
            client.expect(format!("REST {at}"), 350);
            client.command("STOR pub/file").code
        };
        assert_eq!([store_from(0), store_from(1), store_from(99_999)], [550, 550, 550], "{profile}");
        client.expect("REST 100000", 350);
        client.store("STOR pub/file", b"more");
        let content = scratch.read("pub/file").unwrap();
        assert!(content[..100_000] == vec![7; 100_000] && content[100_000..] == *b"more");
    }
}

#[test]
fn appending_makes_no_new_file_for_who_may_not_write() {
    let (served, _, scratch) = server(r#"{"access": ["list", "read", "append"]}"#);
    let mut client = login(&served);
    client.expect("TYPE I", 200);
    assert_eq!(client.try_store("APPE pub/new", b"x").code, 550);
    assert_eq!(scratch.read("pub/new"), None);
    client.store("APPE pub/file", b"x");
}

#[test]
fn names_of_their_own_are_found_in_a_place_that_shows_nothing() {
    for profile in [
        r#"{"access": "ro", "tree": [{"path": "/in", "access": ["write", "mkdir"]}]}"#,
        r#"{"access": ["write"]}"#,
    ] {
        let (served, _, scratch) = server(profile);
        let mut client = login(&served);
        for name in ["file.1", "file.2"] {
            client.store("STOU in/file", b"x");
            assert_eq!(scratch.read(&format!("in/{name}")).as_deref(), Some(&b"x"[..]), "{profile}");
        }
    }
}

#[test]
fn a_member_of_a_missing_group_is_refused() {
    let (served, source, _scratch) = server("{}");
    let mut client = login(&served);
    source.groups.lock().unwrap().push("typo".to_owned());
    source.set(Some("{}"));
    let mut late = Client::connect(served.address);
    late.expect_reply(220);
    late.expect("USER alice", 331);
    late.expect("PASS secret", 421);
    client.expect("NOOP", 200);
}

#[test]
fn a_tree_that_may_not_go_as_a_whole_stays_as_a_whole() {
    let (served, _, scratch) =
        server(r#"{"tree": [{"path": "/pub/kept", "access": "ro"}, {"path": "/in", "access": "ro"}]}"#);
    fs::create_dir(scratch.path().join("pub/kept")).unwrap();
    let mut client = login(&served);
    for tree in ["pub", "in"] {
        client.expect(format!("RMDA {tree}"), 550);
        assert!(scratch.read(&format!("{tree}/file")).is_some(), "{tree}");
    }
    client.expect("RMDA home", 250);
    assert!(scratch.read("home/file").is_none());
}

#[test]
fn a_change_counts_for_the_session_that_runs() {
    let (served, source, scratch) = server(r#"{"access": "ro"}"#);
    let mut client = login(&served);
    client.expect("MKD new", 550);
    source.set(Some(r#"{"access": "rw"}"#));
    crate::kit::eventually("alice may write now", || client.command("MKD new").code == 257);
    assert!(scratch.path().join("new").is_dir());
}

#[test]
fn a_session_of_a_disabled_or_removed_account_ends_with_421() {
    for change in [Some(r#"{"disabled": true}"#), Some(r#"{"from": ["192.0.2.1"]}"#), None] {
        let (served, source, _scratch) = server("{}");
        let mut client = login(&served);
        source.set(change);
        assert!(client.expect_reply(421).text.contains("account"));
        client.expect_end();
        let mut again = Client::connect(served.address);
        again.expect_reply(220);
        again.expect("USER alice", 331);
        again.expect("PASS secret", 530);
    }
}

#[test]
fn while_a_source_is_away_logins_get_421_and_who_is_in_stays_in() {
    let (served, source, _scratch) = server("{}");
    let mut client = login(&served);
    *source.away.lock().unwrap() = true;
    source.set(Some("{}"));
    let mut refused = Client::connect(served.address);
    refused.expect_reply(220);
    refused.expect("USER alice", 331);
    let told = refused.expect("PASS secret", 421).text;
    assert!(!told.contains("cable"), "{told}");
    client.expect_alive();
    *source.away.lock().unwrap() = false;
    login(&served).expect_alive();
}

#[test]
fn a_folder_that_a_template_names_is_made_at_the_first_login() {
    let (served, _, scratch) = server(r#"{"directory": "home/{user}"}"#);
    let mut client = login(&served);
    client.expect("MKD mine", 257);
    assert!(scratch.path().join("home/alice/mine").is_dir());
}

/// A first code comes with the password, the next by `ACCT`; the same words let in more connections.
#[test]
fn a_second_factor_is_asked_for() {
    const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    let (served, _source, _scratch) = server(&format!(r#"{{"totp": "{SECRET}"}}"#));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let code = SECRET.parse::<millrace_server::auth::Secret>().unwrap().code_at(now.as_secs() as i64);
    for _ in 0..2 {
        let mut client = Client::connect(served.address);
        client.expect_reply(220);
        client.log_in("alice", &format!("secret{code}"));
    }
    let mut client = Client::connect(served.address);
    client.expect_reply(220);
    for (line, reply) in [
        ("ACCT 1", 202),
        ("USER alice", 331),
        ("PASS secret", 332),
        ("LIST", 530),
        ("PASS secret", 503),
        ("ACCT 000000x", 530),
        ("ACCT 1", 202),
        ("USER alice", 331),
        ("PASS wrong", 530),
        ("USER alice", 331),
        ("PASS secret", 332),
    ] {
        client.expect(line, reply);
    }
    client.expect(format!("ACCT {code}"), 230);
    client.expect("ACCT 1", 202);
}

/// A source that knows one user, `alice` of the group `staff`, by no more than this.
#[derive(Debug, Clone, Copy)]
struct Knows {
    name: &'static str,
    needs: Needs,
    directory: &'static str,
}

impl Source for Knows {
    fn name(&self) -> &str {
        self.name
    }

    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        let is_asked_without = self.needs == Needs::Password && attempt.password.is_empty();
        assert!(!is_asked_without, "there is nothing to ask it with");
        let profile = Profile { directory: Some(self.directory.to_owned()), ..Profile::default() };
        let user = User { name: "alice".to_owned(), groups: vec!["staff".to_owned()], profile };
        Ok(Found::User(Box::new(user), Proof::Password(Password::from("secret"))))
    }

    fn needs(&self) -> Needs {
        self.needs
    }
}

/// What these sources and groups with this access come to, where users may upload so much a second.
fn staffed(scratch: &Scratch, sources: &[Knows], access: &str, upload: u64) -> Config {
    let root = scratch.path().canonicalize().unwrap();
    let homes = Arc::new(Homes::new(root, LocalOptions::default()));
    let profile = serde_json::from_str(&format!("{{\"access\": {access:?}}}")).unwrap();
    let chain = Chain::new(homes).group(Group { name: "staff".to_owned(), profile });
    let chain = sources.iter().fold(chain, |chain, source| chain.source(*source));
    let user = Limits { upload: Some(Limit::of(upload)), ..Limits::default() };
    Config {
        accounts: Arc::new(chain),
        limits: ServerLimits { user, ..ServerLimits::default() },
        ..config(Arc::new(millrace_storage::MemoryStorage::new()))
    }
}

fn places(names: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    for name in names {
        fs::create_dir(scratch.path().join(name)).unwrap();
    }
    scratch
}

/// Waits until the look at the account that a reload brings has been had: the group may no longer write.
fn await_read_only(client: &mut Client) {
    let mut names = 0..;
    crate::kit::eventually("the group may not write any more", || {
        client.command(format!("MKD d{}", names.next().unwrap())).code == 550
    });
}

#[test]
fn a_reload_counts_for_sessions_whose_source_tells_nothing_without_the_password() {
    let scratch = places(&["in", "other"]);
    let program = Knows { name: "the program", needs: Needs::Password, directory: "in" };
    let other = Knows { name: "the file", needs: Needs::Name, directory: "other" };
    let served = serve_with(staffed(&scratch, &[program, other], "rw", 0));
    let mut client = login(&served);
    client.expect("MKD first", 257);
    served.running.reload(staffed(&scratch, &[program, other], "ro", 5_000_000)).unwrap();
    await_read_only(&mut client);
    let limits = served.running.limits();
    let own = limits.iter().find(|report| report.scope.to_string() == "user alice").unwrap();
    assert_eq!(own.upload, 5_000_000);
    // It is not the other `alice`, who has another folder.
    client.expect("CWD /first", 250);
    served.running.reload(staffed(&scratch, &[other], "ro", 0)).unwrap();
    assert!(client.expect_reply(421).text.contains("account"));
}

#[test]
fn another_user_of_the_same_name_takes_over_no_session() {
    let scratch = places(&["in", "other"]);
    let own = Knows { name: "users.db", needs: Needs::Name, directory: "in" };
    let other = Knows { name: "the file", needs: Needs::Name, directory: "other" };
    let served = serve_with(staffed(&scratch, &[own], "rw", 0));
    let mut client = login(&served);
    client.expect("MKD first", 257);
    served.running.reload(staffed(&scratch, &[other, own], "ro", 0)).unwrap();
    await_read_only(&mut client);
    client.expect("CWD /first", 250);
    login(&served).expect("CWD /first", 550);
    served.running.reload(staffed(&scratch, &[other], "ro", 0)).unwrap();
    assert!(client.expect_reply(421).text.contains("account"));
}

/// RFC 7151 section 3.2.2: a client that asks for another server hears so before it says who it is.
#[test]
fn a_host_that_there_is_not_is_504_where_there_are_several() {
    use millrace_server::auth::HostName;
    let hosts = vec![HostName::parse("files.test").unwrap(), HostName::parse("*.sites.test").unwrap()];
    for (hosts, name, code) in [
        (&[][..], "anything.test", 220),
        (&hosts, "Files.Test", 220),
        (&hosts, "files.test.", 220),
        (&hosts, "a.sites.test", 220),
        (&hosts, "127.0.0.1", 220),
        (&hosts, "other.test", 504),
        (&hosts, "sites.test", 504),
        (&hosts, "192.0.2.1", 504),
        (&hosts, "[2001:db8::1]", 504),
    ] {
        let files = Scratch::new();
        let mut config = config(files.storage());
        let known_by = KnownBy { names: hosts.to_vec(), ..KnownBy::default() };
        config.hosts = vec![FtpHost { known_by, ..FtpHost::default() }];
        let served = serve_with(config);
        let mut client = served.connect();
        client.expect(format!("HOST {name}"), code);
        // It may ask for another, or go on with what all others see.
        client.log_in("u", "p");
        client.expect("HOST files.test", 503);
    }
}
