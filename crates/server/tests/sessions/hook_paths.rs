//! Rules with `paths` hold for every command that touches a path, however the line says which.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_ftp::commands::{COMMANDS, Command, Paths, SITE_COMMANDS};
use millrace_ftp::digest::Algorithm;
use millrace_server::hooks::{
    Action, Event, EventContext, HookVerdict, Hooks, PathPattern, Rule, Rules, Template,
};
use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::{Archives, Conversions, MemoryStorage};
use millrace_vfs::{Storage, VirtualPath};

use crate::kit::{Client, Served, config, serve_with};

/// A line for each row that names a path and for each way to name one, with the directory to be put in for `HERE`.
/// What goes before `|` is said before the rules hold; both begin in that directory.
const LINES: &[&str] = &[
    "CWD HERE",
    "CWD .",
    "XCWD HERE/d",
    "CWD d|CDUP",
    "CWD d|XCUP",
    "RETR HERE/f",
    "STOR HERE/n",
    "STOR n",
    "APPE HERE/f",
    "STOU",
    "STOU HERE/n",
    "ALLO 5",
    "RNFR HERE/f",
    "RNFR /else/f|RNTO HERE/n",
    "RNFR HERE/f|RNTO /else/n",
    "DELE HERE/f",
    "RMD HERE/d",
    "XRMD HERE/d",
    "MKD HERE/n",
    "XMKD n",
    "LIST",
    "LIST -la",
    "LIST -la HERE/d",
    "LIST HERE/f",
    "LIST HERE/*",
    "LIST /else/../HERE/d*",
    "NLST",
    "NLST HERE/*.txt",
    "STAT -a",
    "STAT HERE/f",
    "SIZE HERE/f",
    "MDTM HERE/f",
    "MDTM 20200101000000 HERE/f",
    "MLST",
    "MLST HERE/f",
    "MLSD",
    "MLSD HERE",
    "HASH HERE/f",
    "XCRC \"HERE/f\" 0 5",
    "XMD5 HERE/f 0 5",
    "XSHA HERE/f",
    "XSHA1 HERE/f 5",
    "XSHA256 f",
    "XSHA512 HERE/f",
    "MD5 HERE/f",
    "MMD5 /else/f, \"HERE/f\"",
    "XDIGEST SHA-256 HERE/f",
    "MFMT 20200101000000 HERE/f",
    "MFF Modify=20200101000000; HERE/f",
    "AVBL",
    "AVBL HERE",
    "COMB HERE/f /else/f",
    "COMB /else/n /else/f \"HERE/f\"",
    "DSIZ",
    "DSIZ HERE",
    "RMDA HERE/d",
    "SITE CHMOD 600 HERE/f",
    "SITE CHOWN 5 HERE/f",
    "SITE CHGRP 5 HERE/f",
    "SITE UTIME 20200101000000 HERE/f",
    "SITE UTIME HERE/f 20200101000000 20200101000000 20200101000000 UTC",
    "SITE MKDIR HERE/n/m",
    "SITE RMDIR HERE/d",
    "SITE SYMLINK /else/f HERE/n",
    "SITE SYMLINK HERE/f /else/n",
    "SITE COPY HERE/f /else/n",
    "SITE COPY /else/f \"HERE/n\"",
    "SITE CPFR HERE/f",
    "SITE CPFR /else/f|SITE CPTO HERE/n",
    "SITE CPFR HERE/f|SITE CPTO /else/n",
    "SITE NEWER 20200101000000",
    "SITE MINFO 20200101000000 HERE",
    "SITE CHECKSUM HERE/f",
    "SITE QUOTA",
];

/// Rules that hold when a test says so.
#[derive(Debug)]
struct Switched {
    rules: Rules,
    hold: AtomicBool,
}

impl Hooks for Switched {
    fn concerns(&self, event: Event, verb: &str) -> bool {
        self.hold.load(Ordering::Relaxed) && self.rules.concerns(event, verb)
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        self.rules.call(context)
    }
}

fn rule(verbs: &[&str], paths: &[&str], action: Action) -> Rule {
    Rule {
        on: vec![Event::Command],
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        users: Vec::new(),
        paths: paths.iter().map(|pattern| PathPattern::new(pattern)).collect(),
        larger_than: None,
        smaller_than: None,
        action,
        wait: None,
        time_limit: Duration::from_secs(30),
        refuses_on_failure: true,
        refused_to: None,
    }
}

fn refuse(paths: &[&str], text: &str) -> Rule {
    rule(&[], paths, Action::Refuse(text.to_owned()))
}

/// Serves `/keep`, `/free` and `/else`, each with a file and a directory, to a user with all permissions.
fn serve(rules: Vec<Rule>) -> (Served, Arc<Switched>) {
    let storage = Arc::new(MemoryStorage::new());
    for directory in ["/keep", "/free", "/else"] {
        for made in [directory.to_owned(), format!("{directory}/d")] {
            storage.make_directory(&VirtualPath::parse(made.as_bytes()).unwrap()).unwrap();
        }
    }
    let everything = Permissions::READ_WRITE.with(millrace_server::Permission::Admin);
    let accounts = Accounts::new().user("u", "p", everything, storage.clone());
    let switched = Arc::new(Switched { rules: Rules::new(rules, None), hold: AtomicBool::new(false) });
    let hooks: Arc<dyn Hooks> = switched.clone();
    let config = Config { accounts: Arc::new(accounts), hooks: Some(hooks), ..config(storage) };
    let served = serve_with(config);
    let mut client = served.login();
    for directory in ["/keep", "/free", "/else"] {
        client.store(format!("STOR {directory}/f"), b"12345");
    }
    (served, switched)
}

/// Says a line of the table about a directory; the reply to the last part of it.
fn say(client: &mut Client, switched: &Switched, line: &str, directory: &str) -> String {
    switched.hold.store(false, Ordering::Relaxed);
    client.expect(format!("CWD {directory}"), 250);
    let line = line.replace("HERE", directory);
    let said = match line.split_once('|') {
        Some((before, said)) => {
            assert!(client.command(before).code < 400, "{before}");
            said
        }
        None => &line,
    };
    client.expect("PASV", 227);
    switched.hold.store(true, Ordering::Relaxed);
    let text = client.command(said).text;
    switched.hold.store(false, Ordering::Relaxed);
    text
}

#[test]
fn a_rule_about_reading_holds_for_archives_and_conversions_of_what_it_is_about() {
    let storage = Arc::new(MemoryStorage::new());
    for directory in ["/in", "/in/secret", "/in/open", "/out", "/one"] {
        storage.make_directory(&VirtualPath::parse(directory.as_bytes()).unwrap()).unwrap();
    }
    let rules = vec![
        rule(&["RETR"], &["/in/secret/**"], Action::Refuse("552 Kept.".to_owned())),
        rule(&["RETR"], &["/out/**"], Action::Rewrite(Template::parse("/in/open/f").unwrap())),
        rule(&["RETR"], &["/one/f"], Action::Rewrite(Template::parse("/in/open/f").unwrap())),
    ];
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(rules, None));
    let converting = Arc::new(Conversions::new(Arc::new(Archives::new(storage))));
    let served = serve_with(Config { hooks: Some(hooks), ..config(converting) });
    let mut client = served.login();
    for file in ["/in/secret/f", "/in/secret/p.gz", "/in/open/f", "/in/secret.zip.zip", "/out/f", "/one/f"] {
        client.store(format!("STOR {file}"), b"12345");
    }
    for (name, code) in [
        ("/in.tar", 552),
        ("/in/secret.tgz", 552),
        ("/in/secret/g.zip", 552),
        ("/in/open.tar.gz", 226),
        ("/in/secret.zip.zip", 226),
        ("/none.zip", 550),
        ("/out.tar", 451),
        ("/out/f", 226),
        ("/in/secret/f.gz", 552),
        ("/in/secret/p", 552),
        ("/in/secret.tar.zst", 552),
        ("/in/open/f.Z", 226),
        ("/in/open.tar.Z", 226),
        ("/in/open/none.Z", 550),
        ("/out/f.zst", 226),
        ("/one/f.zst", 451),
    ] {
        client.expect("TYPE I", 200);
        assert_eq!(client.try_fetch(format!("RETR {name}")).1.code, code, "{name}");
    }
}

#[test]
fn a_rule_about_paths_stops_every_command_that_touches_one() {
    // The second rule stops what the first one does not, so that nothing is done in either case.
    let (served, switched) = serve(vec![refuse(&["/keep/**"], "552 Kept."), refuse(&[], "553 Not kept.")]);
    let mut client = served.login();
    for line in LINES {
        assert_eq!(say(&mut client, &switched, line, "/keep"), "552 Kept.\r\n", "{line}");
        assert_eq!(say(&mut client, &switched, line, "/free"), "553 Not kept.\r\n", "{line}");
    }
}

#[test]
fn a_rule_about_a_folder_stops_the_patterns_that_lead_into_it() {
    let (served, switched) = serve(vec![refuse(&["/keep/**"], "552 Kept."), refuse(&[], "553 Not kept.")]);
    let mut client = served.login();
    for (line, reply) in [
        ("LIST /*/x*", "552 Kept.\r\n"),
        ("LIST ../k?ep/x*", "552 Kept.\r\n"),
        ("NLST /[fk]*e*/", "552 Kept.\r\n"),
        ("STAT -a /*/d/*", "552 Kept.\r\n"),
        ("LIST /f*/x*", "553 Not kept.\r\n"),
        ("LIST /k?p/x*", "553 Not kept.\r\n"),
        ("LIST /*", "553 Not kept.\r\n"),
    ] {
        assert_eq!(say(&mut client, &switched, line, "/free"), reply, "{line}");
    }
}

#[test]
fn no_pattern_leads_up_and_so_round_a_rule() {
    let (served, switched) = serve(vec![refuse(&["/keep/**"], "552 Kept.")]);
    switched.hold.store(true, Ordering::Relaxed);
    let mut client = served.login();
    // Too long for a name, so that it is nothing but a pattern.
    let any = "*".repeat(300);
    let names = client.fetch(format!("NLST /f*/../else/{any}"));
    assert_eq!(names, b"/free/../else/d\r\n/free/../else/f\r\n");
    for way in ["/f*/../keep", "/f*/../../../keep", "/f*/d/../../k*", "/[f]ree/../[k]eep"] {
        assert_eq!(client.try_fetch(format!("NLST {way}/{any}")).1.text, "552 Kept.\r\n", "{way}");
    }
}

#[test]
fn two_rules_that_verify_a_file_hold_it_to_its_hash_once() {
    let on_upload = |paths: &[&str], action| Rule { on: vec![Event::Upload], ..rule(&[], paths, action) };
    let verify = || Action::Verify(Algorithm::parse(b"SHA-256").unwrap());
    let (served, switched) = serve(vec![
        on_upload(&["/keep/**"], verify()),
        on_upload(&["/**"], verify()),
        on_upload(&["/keep/**"], Action::Move(Template::parse("/else/{name}").unwrap())),
    ]);
    switched.hold.store(true, Ordering::Relaxed);
    let mut client = served.login();
    let hash = b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for (name, sum_first) in [("a", false), ("b", true)] {
        let mut halves = [(name.to_owned(), &b"abc"[..]), (format!("{name}.sha256"), &hash[..])];
        if sum_first {
            halves.reverse();
        }
        for (half, content) in &halves {
            client.store(format!("STOR /keep/{half}"), content);
        }
        for (half, _) in &halves {
            client.expect(format!("SIZE /else/{half}"), 213);
        }
    }
}

#[test]
fn rules_that_a_reload_brings_hold_in_sessions_that_run() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let accounts = || Accounts::new().user("u", "p", Permissions::READ_WRITE, storage.clone());
    let served = serve_with(Config { accounts: Arc::new(accounts()), ..config(storage.clone()) });
    let mut client = served.login();
    client.store("STOR f", b"12345");
    let upload = Rule { on: vec![Event::Upload], ..refuse(&["/n"], "552 No upload.") };
    let by_user = Rule { users: vec![PathPattern::new("u")], ..refuse(&["/f"], "552 Kept.") };
    let rules: Arc<dyn Hooks> = Arc::new(Rules::new(vec![by_user, upload], None));
    let new = Config { accounts: Arc::new(accounts()), hooks: Some(rules), ..config(storage.clone()) };
    served.running.reload(new).unwrap();
    assert_eq!(client.expect("DELE f", 552).text, "552 Kept.\r\n");
    assert_eq!(client.try_store("STOR n", b"1").text, "552 No upload.\r\n");
    let new = Config { accounts: Arc::new(accounts()), ..config(storage.clone()) };
    served.running.reload(new).unwrap();
    client.expect("DELE f", 250);
}

#[test]
fn every_row_that_names_paths_has_a_line_in_the_table() {
    let verbs: Vec<&str> = LINES.iter().map(|line| line.rsplit('|').next().unwrap()).collect();
    let table = |prefix: &'static str, rows: &'static [Command]| {
        rows.iter()
            .filter(|row| !matches!(row.paths, Paths::None))
            .map(move |row| format!("{prefix}{}", row.verb))
    };
    for verb in table("", COMMANDS).chain(table("SITE ", SITE_COMMANDS)) {
        let is_it = |line: &&str| **line == verb || line.starts_with(&format!("{verb} "));
        assert!(verbs.iter().any(is_it), "{verb}");
    }
}

#[test]
fn a_rule_about_a_verb_holds_for_its_old_name() {
    let twins = [("XCWD", "CWD"), ("XCUP", "CDUP"), ("XPWD", "PWD"), ("XMKD", "MKD"), ("XRMD", "RMD")];
    for row in COMMANDS.iter().filter(|row| row.source == "RFC 775") {
        let (_, name) = twins.iter().find(|twin| twin.0 == row.verb).expect(row.verb);
        let (served, switched) = serve(vec![rule(&[name], &[], Action::Refuse("552 Kept.".to_owned()))]);
        switched.hold.store(true, Ordering::Relaxed);
        let takes_path = matches!(row.paths, Paths::Whole(_)) && row.verb != "XCUP";
        let line = if takes_path { format!("{} d", row.verb) } else { row.verb.to_owned() };
        assert_eq!(served.login().command(line).text, "552 Kept.\r\n", "{}", row.verb);
    }
    assert_eq!(COMMANDS.iter().filter(|row| row.source == "RFC 775").count(), twins.len());
}

#[test]
fn only_a_command_with_one_path_is_put_to_another() {
    let to = |text: &str| Action::Rewrite(Template::parse(text).unwrap());
    let (served, switched) = serve(vec![
        rule(&["STOR", "SITE MKDIR"], &["/keep/**"], to("/free/{name}")),
        rule(&[], &["/else/**"], to("/free/{name}")),
    ]);
    let mut client = served.login();
    switched.hold.store(true, Ordering::Relaxed);
    client.store("STOR /keep/new", b"123");
    assert_eq!(client.expect("SIZE /free/new", 213).text, "213 3\r\n");
    client.expect("SITE MKDIR /keep/made", 257);
    client.expect("CWD /free/made", 250);
    // Rules apply to no other path than their own, and commands without a path do not wait.
    for line in
        ["SITE CHMOD 600 /else/f", "COMB /keep/n /else/f", "STAT /else", "SITE COPY /free/new /else/n"]
    {
        client.expect(line, 451);
    }
    client.expect("NOOP", 200);
    // RNFR was asked about the old name, and is the one to be put to another.
    switched.hold.store(false, Ordering::Relaxed);
    client.expect("RNFR /else/f", 350);
    switched.hold.store(true, Ordering::Relaxed);
    client.expect("RNTO /keep/f2", 250);
    client.expect("SIZE /keep/n", 550);
    switched.hold.store(false, Ordering::Relaxed);
    client.expect("SIZE /else/n", 550);
    client.expect("SIZE /keep/f2", 213);
}
