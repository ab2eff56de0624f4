//! `millrace user` and a server that runs meanwhile; and every command of `docs/accounts.md`.

#[path = "../../server/tests/sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
#[path = "../../server/tests/sources/mariadb.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod mariadb;
#[path = "user/pam.rs"]
mod pam;
#[path = "../../server/tests/sources/postgresql.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod postgresql;
#[path = "../../server/tests/sources/slapd.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod slapd;
#[path = "user/sources.rs"]
mod sources;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TEXT: &str = include_str!("../../../docs/accounts.md");

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// A folder to serve, `files`, with a folder for each of some users; the database is beside it.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-user-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("files/home/alice")).unwrap();
        Self(folder)
    }

    /// The command, with a database that is found by itself.
    fn millrace(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.env("XDG_DATA_HOME", self.0.join("data")).current_dir(&self.0);
        command
    }

    fn user(&self, arguments: &[&str]) -> Output {
        let mut command = self.millrace();
        command
            .arg("user")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may end without having read it.
        let _ = child.stdin.take().unwrap().write_all(b"password\n");
        child.wait_with_output().unwrap()
    }

    /// What it prints, where all went well.
    #[track_caller]
    fn tell(&self, arguments: &[&str]) -> String {
        let output = self.user(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], told: &str) {
        let output = self.user(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(told), "{arguments:?}: {error}");
    }

    fn serve(&self, arguments: &[&str]) -> Serving {
        self.serve_with(&[&["files"], arguments].concat(), |_| ())
    }

    /// As [`Site::serve`] but for the folder, with whatever else the command needs.
    fn serve_with(&self, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Serving {
        let mut command = self.millrace();
        command
            .args(["serve", "--ftp", "127.0.0.1:0", "--quiet"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Serving { child, address: String::new(), announced: String::new() };
        for line in out.lines().map(Result::unwrap) {
            if let Some((_, rest)) = line.split_once("ftp://") {
                serving.address = rest.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned();
            }
            serving.announced += &format!("{line}\n");
            if line.starts_with("Ready") {
                return serving;
            }
        }
        panic!("it ended before it was ready");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Serving {
    child: Child,
    address: String,
    announced: String,
}

impl Serving {
    fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.expect("220");
        client
    }

    fn log_in(&self, user: &str) -> Client {
        let mut client = self.connect();
        client.say(&format!("USER {user}"), "331");
        client.say("PASS password", "230");
        client
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    #[track_caller]
    fn expect(&mut self, code: &str) {
        let line = self.reply();
        assert!(line.starts_with(code), "expected {code}: {line:?}");
    }

    #[track_caller]
    fn say(&mut self, line: &str, code: &str) {
        self.ask(line);
        self.expect(code);
    }

    fn ask(&mut self, line: &str) {
        write!(self.0.get_ref(), "{line}\r\n").unwrap();
    }

    /// Asks again until the answer is this: changes take up to a second.
    #[track_caller]
    fn say_until(&mut self, line: &str, code: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            self.ask(line);
            let reply = self.reply();
            if reply.starts_with(code) {
                return;
            }
            assert!(Instant::now() < end, "still {reply:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_first_user_makes_the_database_that_the_server_finds() {
    let site = Site::new("default");
    site.tell(&["add", "alice", "directory=home/alice"]);
    assert!(site.0.join("data/millrace/users.db").exists());
    let serving = site.serve(&[]);
    assert!(serving.announced.contains("the users of "), "{}", serving.announced);
    let mut client = serving.log_in("alice");
    client.say("MKD inside", "257");
    assert!(site.0.join("files/home/alice/inside").exists());
    let mut client = serving.connect();
    client.say("USER anonymous", "331");
    client.say("PASS x@", "530");
    assert!(site.serve(&["--users", "off"]).announced.contains("anonymous may read"));
}

#[test]
fn changes_count_for_sessions_that_run() {
    let site = Site::new("changes");
    site.tell(&["add", "alice", "--hash", HASH]);
    site.tell(&["add", "bob", "--hash", HASH]);
    let serving = site.serve(&[]);
    let (mut alice, mut bob) = (serving.log_in("alice"), serving.log_in("bob"));
    alice.say("MKD one", "257");
    site.tell(&["set", "alice", "access=ro"]);
    alice.say_until("MKD two", "5");
    site.tell(&["disable", "alice"]);
    alice.expect("421");
    let mut client = serving.connect();
    client.say("USER alice", "331");
    client.say("PASS password", "530");
    site.tell(&["enable", "alice"]);
    let mut alice = serving.log_in("alice");
    site.tell(&["remove", "alice"]);
    alice.expect("421");
    bob.say("NOOP", "200");
}

#[test]
fn failed_commands_are_reported_and_change_nothing() {
    let site = Site::new("refusals");
    site.refused(&["list"], "millrace user add NAME");
    site.refused(&["add", "alice", "acess=ro"], "unknown field `acess`");
    site.tell(&["add", "alice", "--hash", HASH]);
    site.refused(&["add", "alice", "--hash", HASH], "named alice already");
    site.refused(&["add", "bob", "--hash", "secret"], "not a password hash");
    site.refused(&["add", "b\u{7}b", "--hash", HASH], "control character");
    for arguments in
        [&["show", "carol"][..], &["passwd", "carol"], &["set", "carol", "access=ro"], &["remove", "carol"]]
    {
        site.refused(arguments, "no user named carol");
    }
    site.refused(&["set", "alice", "access=all"], "access");
    assert_eq!(site.tell(&["list"]), "alice\n");
    site.refused(&["import", "htpasswd", "nowhere"], "nowhere");
    site.refused(&["import", "htpasswd", "nowhere", "acess=ro"], "unknown field `acess`");
    let crypted = "$6$saltstring$Qp0P2VMSypSuGQh9JQl0/vDFCzAo8IBhVgMUoDt2VjdsbqJHuSBHx7ioLWrAfnEHayAFe97v9sD1Z8EeTbGP3/";
    site.tell(&["add", "crypted", "--hash", crypted]);
    assert!(site.tell(&["show", "crypted"]).contains("password          SHA-512-crypt\n"));
}

#[test]
fn a_database_that_cannot_be_used_is_told_at_the_start() {
    let site = Site::new("damaged");
    fs::write(site.0.join("users.db"), "this is no database, and long enough to be seen as none").unwrap();
    for (file, told) in [("users.db", "not a database"), ("missing.db", "there is no missing.db")] {
        let output = site.millrace().args(["serve", "files", "--users", file]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(told), "{error}");
    }
}

/// The commands of a heading's section, less their remarks.
fn commands(heading: &str) -> Vec<Vec<String>> {
    let section = TEXT.split(&format!("# {heading}\n")).nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let words = |line: &str| {
        let line = line.split("  #").next().unwrap();
        line.split_whitespace().skip(2).map(|word| word.trim_matches('\'').to_owned()).collect()
    };
    block.lines().map(words).collect()
}

fn run_all(site: &Site, commands: &[Vec<String>]) -> String {
    let run = |command: &Vec<String>| site.tell(&command.iter().map(String::as_str).collect::<Vec<_>>());
    commands.iter().map(run).collect()
}

#[test]
fn the_documented_commands_do_what_is_said() {
    let site = Site::new("documented");
    let printed = run_all(&site, &commands("Users in a database"));
    assert!(printed.contains("directory         home/alice"), "{printed}");
    assert!(printed.contains("from              10.0.0.0/8, 127.0.0.1"), "{printed}");
    assert!(!printed.contains("expires"), "{printed}");
    assert!(printed.ends_with("alice\nscanner\n"), "{printed}");
    assert_eq!(site.tell(&["list"]), "alice\n");
}

#[test]
fn users_of_other_servers_log_in() {
    let site = Site::new("import");
    let etc = site.0.join("etc");
    for folder in ["pure-ftpd", "vsftpd/users", "proftpd"] {
        fs::create_dir_all(etc.join(folder)).unwrap();
    }
    fs::create_dir_all(site.0.join("files/joe")).unwrap();
    let home = |base: &str| format!("{base}/joe");
    let passwd =
        |name: &str, hash: &str, base: &str| format!("{name}:{hash}:1000:1000::{}:/bin/sh\n", home(base));
    for (file, text) in [
        ("passwd", passwd("pam", "x", "/home")),
        ("shadow", format!("pam:{HASH}:19000:0:99999:7:::\n")),
        ("group", "web:x:100:pam\n".to_owned()),
        ("../.htpasswd", format!("web:{HASH}\n")),
        ("pure-ftpd/pureftpd.passwd", format!("pure:{HASH}:1000:1000::/srv/ftp/joe/./::::::::::::\n")),
        ("vsftpd/logins.txt", "vs\npassword\n".to_owned()),
        ("vsftpd/users/vs", "local_root=/srv/ftp/joe\n".to_owned()),
        ("proftpd/ftpd.passwd", passwd("pro", HASH, "/srv/ftp")),
        ("proftpd/ftpd.group", "staff:x:100:pro,web\n".to_owned()),
    ] {
        fs::write(etc.join(file), text).unwrap();
    }
    let here = |word: &String| word.replace("/etc/", &format!("{}/", etc.display()));
    let commands: Vec<Vec<String>> =
        commands("From another server").iter().map(|words| words.iter().map(here).collect()).collect();
    assert_eq!(run_all(&site, &commands), "1 user brought in.\n".repeat(5));
    assert!(run_all(&site, &commands[..1]).contains("0 users brought in. 1 was there already"));
    assert_eq!(site.tell(&["list"]), "pam\npro\npure\nvs\nweb\n");
    assert!(site.tell(&["show", "pro"]).contains("groups            staff"));
    // A user with a group is accepted where the group is configured.
    let groups = site.0.join("groups.toml");
    fs::write(&groups, "[[group]]\nname = \"staff\"\n[[group]]\nname = \"web\"\n").unwrap();
    let serving = site.serve(&["--config", groups.to_str().unwrap()]);
    for name in ["pam", "pro", "pure", "vs"] {
        let mut client = serving.log_in(name);
        client.say(&format!("MKD {name}"), "257");
        assert!(Path::new(&site.0).join("files/joe").join(name).exists(), "{name}");
    }
    serving.log_in("web").say("MKD web", "5");
}

#[test]
fn a_group_that_is_not_configured_is_refused() {
    let site = Site::new("groups");
    let config = site.0.join("m.toml");
    fs::write(&config, "[[group]]\nname = \"staff\"\n").unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let add = |name: &'static str, group: &'static str| ["add", name, group, "--hash", HASH];
    site.refused(&add("al", "groups=nosuch"), "which --config FILE names");
    site.refused(&[&add("al", "groups=nosuch")[..], &config].concat(), "nosuch: there is no [[group]] table");
    site.refused(&["show", "al"], "there is no user named al");
    site.tell(&[&add("al", "groups=staff")[..], &config].concat());
    site.refused(&[&["set", "al", "groups=nosuch"], &config[..]].concat(), "nosuch: there is no [[group]]");
    site.tell(&["set", "al", "access=ro"]);
    assert!(site.tell(&["show", "al"]).contains("groups            staff"));
}

#[test]
fn the_database_is_the_one_that_the_configuration_names() {
    let site = Site::new("of-configuration");
    fs::create_dir(site.0.join("etc")).unwrap();
    fs::write(site.0.join("etc/m.toml"), "directory = \"../files\"\nusers = \"own.db\"\n").unwrap();
    let config = ["--config", "etc/m.toml"];
    site.tell(&[&["add", "al", "--hash", HASH][..], &config].concat());
    assert_eq!(site.tell(&["list", "--users", "etc/own.db"]), "al\n");
    assert_eq!(site.tell(&[&["list"][..], &config].concat()), "al\n");
    site.tell(&[&["add", "other", "--users", "flag.db", "--hash", HASH][..], &config].concat());
    assert_eq!(site.tell(&["list", "--users", "flag.db"]), "other\n");
    fs::write(site.0.join("etc/m.toml"), "users = \"off\"\n").unwrap();
    site.refused(&[&["list"][..], &config].concat(), "m.toml:1:9: The server has no database of users");
}

#[test]
fn explain_shows_users_of_a_database_given_by_a_flag_and_the_order_of_sources() {
    let site = Site::new("explained");
    site.tell(&["--users", "own.db", "add", "alice", "access=ro", "--hash", HASH]);
    let (_, explained) = site.ask(&["explain", "alice", "--users", "own.db"]);
    assert!(explained.starts_with("alice is in the database of users own.db.\n\n"), "{explained}");
    assert!(explained.contains("access            ro "), "{explained}");
    assert!(explained.ends_with("without TLS, now: let in with the right password.\n"), "{explained}");
    let group = site.0.join("group.toml");
    fs::write(&group, "[[group]]\nname = \"typo\"\n").unwrap();
    let group = ["--config", group.to_str().unwrap()];
    for (setting, how, verdict) in [
        ("groups=typo", &[][..], "without TLS, now: refused, alice is of the group typo in "),
        ("groups=", &[], "without TLS, now: let in with the right password.\n"),
        ("totp=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", &[], "now: let in with the right password and code.\n"),
        ("totp=", &["--tls"], "with TLS, now: let in with the right password.\n"),
        ("tls-client-login=alone", &["--tls"], "now: refused, there is no client certificate"),
        (
            "tls-client-login=alone",
            &["--certificate"],
            "with a certificate, now: let in without a password.\n",
        ),
        (
            "tls-client-login=",
            &["--http", "--from", "192.0.2.1"],
            "now: refused, no password is taken by HTTP without TLS from another computer",
        ),
        (
            "directory=customers/{user}",
            &[],
            "now: refused, the folder customers, in which customers/alice would be made, is not there in ",
        ),
        ("directory=", &[], "now: let in"),
    ] {
        site.tell(&[&["--users", "own.db", "set", "alice", setting], &group[..]].concat());
        let (_, explained) = site.ask(&[&["explain", "alice", "--users", "own.db"], how].concat());
        assert!(explained.contains(verdict), "{setting} {how:?}: {explained}");
    }
    let (is_known, told) = site.ask(&["explain", "alice"]);
    assert!(!is_known && told.ends_with("no account is named alice; anonymous is on.\n"), "{told}");
    site.configure(
        "deny = \"192.0.2.0/24\"\ntls-self-signed = true\nstate = \"state\"\ntls-required = \"login\"\n",
    );
    for (how, verdict) in [
        (&["--tls", "--from", "192.0.2.1"][..], "now: refused, the address is in the server's deny"),
        (&[], "now: refused, the connection is not encrypted, and the server's tls-required"),
        (&["--tls"], "now: let in with the right password"),
    ] {
        let common = ["explain", "alice", "--users", "own.db", "--config", "m.toml"];
        let (_, explained) = site.ask(&[&common[..], how].concat());
        assert!(explained.contains(verdict), "{how:?}: {explained}");
    }
    site.configure("[[source]]\nprogram = [\"true\"]\n");
    let first = " First asked at a login, and it decides where it knows the name: the program true.\n";
    // It is asked behind the database.
    for (name, is_in_it) in [("alice", true), ("bob", false)] {
        let (is_known, told) = site.ask(&["explain", name, "--users", "own.db", "--config", "m.toml"]);
        assert_eq!((is_known, told.contains(first)), (is_in_it, !is_in_it), "{told}");
    }
}

#[test]
fn the_folder_that_a_name_of_the_server_chooses_is_explained() {
    let site = Site::new("by-host");
    for folder in ["other/alice", "files/alice"] {
        fs::create_dir_all(site.0.join(folder)).unwrap();
    }
    let root = site.0.canonicalize().unwrap();
    site.configure(&format!(
        "directory = \"files\"\n[[host]]\nnames = [\"a.example\", \"*.b.example\"]\ndirectory = \"other\"\n\
         [[user]]\nname = \"alice\"\npassword = \"{HASH}\"\ndirectory = \"alice\"\n"
    ));
    let explain = |how: &[&str]| site.ask(&[&["explain", "alice", "--config", "m.toml"], how].concat()).1;
    assert!(!explain(&[]).contains("all that is served is"));
    for (name, told, folder) in [
        ("a.example", "By the name a.example the host a.example is reached", "other"),
        ("X.B.example:8080", "By the name X.B.example:8080 the host *.b.example is reached", "other"),
        ("c.example", "No [[host]] table is about the name c.example", "files"),
    ] {
        let explained = explain(&["--host", name]);
        let expected = format!("all that is served is {}", root.join(folder).display());
        assert!(explained.contains(told) && explained.contains(&expected), "{explained}");
        assert!(
            explained.contains("The folder is alice.") && explained.contains("now: let in"),
            "{explained}"
        );
    }
    fs::remove_dir(root.join("other/alice")).unwrap();
    let explained = explain(&["--host", "a.example"]);
    assert!(explained.contains("now: refused, the folder alice is not there in "), "{explained}");
    assert!(explain(&["--host", "c.example"]).contains("now: let in"));
}

#[test]
fn a_group_named_anonymous_applies_to_the_anonymous_user() {
    let site = Site::new("anonymous");
    fs::create_dir_all(site.0.join("files/incoming")).unwrap();
    fs::write(site.0.join("files/.env"), "secret").unwrap();
    fs::write(site.0.join("files/plain"), "content").unwrap();
    let example = TEXT.split("# The anonymous user\n").nth(1).unwrap();
    let example = example.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    site.configure(&example.replace("[\"write\"]", "[\"list\", \"mkdir\"]"));
    let serving = site.serve_with(&["--config", "m.toml"], |_| {});
    let log_in = || {
        let mut client = serving.connect();
        client.say("USER anonymous", "331");
        client.ask("PASS x@");
        client
    };
    let mut client = log_in();
    client.expect("230");
    for (line, code) in [
        ("TYPE I", "200"),
        ("SIZE plain", "213"),
        ("SIZE .env", "550"),
        ("MKD made", "550"),
        ("MKD incoming/made", "257"),
        ("DELE plain", "550"),
    ] {
        client.say(line, code);
    }
    let (_, explained) = site.ask(&["explain", "ftp", "--config", "m.toml"]);
    assert!(explained.starts_with("anonymous is in the configuration, and of anonymous.\n"), "{explained}");
    assert!(
        explained.contains("deny-names        *.bak") && explained.contains("download          20"),
        "{explained}"
    );
    site.configure(&example.replace("sessions = 50", "from = [\"192.0.2.1\"]"));
    let serving = site.serve_with(&["--config", "m.toml"], |_| {});
    let mut client = serving.connect();
    client.say("USER anonymous", "331");
    client.say("PASS x@", "530");
}

#[test]
fn a_code_is_asked_for_until_the_secret_is_taken_back() {
    let site = Site::new("totp");
    site.tell(&["add", "alice", "--hash", HASH]);
    let commands = commands("A second factor");
    let printed = run_all(&site, &commands[..1]);
    let (secret, url) = printed.split_once('\n').unwrap();
    assert_eq!(url, format!("otpauth://totp/Millrace:alice?secret={secret}&issuer=Millrace\n"));
    assert!(!site.tell(&["list", "--json"]).contains(secret), "it is shown once only");
    assert!(site.tell(&["show", "alice"]).contains("totp              asked for"));
    let serving = site.serve(&[]);
    let mut client = serving.connect();
    client.say("USER alice", "331");
    client.say("PASS password", "332");
    run_all(&site, &commands[1..]);
    serving.log_in("alice");
}

/// The program of the documentation, which gives the documented answer to the documented question.
#[test]
fn a_program_decides_logins() {
    let site = Site::new("program");
    let section = TEXT.split("# A program or a web service\n").nth(1).unwrap();
    let json: Vec<&str> =
        section.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [question, answer] = json[..] else { panic!("a question and an answer: {json:?}") };
    let answer = answer.replace("\"customers\"", "");
    let script = format!(
        "#!/bin/sh\ncat > {0}/question\ngrep -q '\"password\":\"password\"' {0}/question && echo '{1}' || echo '{2}'\n",
        site.0.display(),
        answer.trim(),
        "{\"result\": \"wrong\"}",
    );
    fs::write(site.0.join("logins"), script).unwrap();
    let text = section.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (text, _) = text.rsplit_once("[[source]]").unwrap();
    // `sh` runs it: what was written just now may be busy while another test forks.
    let text = text
        .replace("\"/usr/local/bin/logins\", \"--json\"", &format!("\"sh\", \"{}/logins\"", site.0.display()))
        .replace("/srv/files", "files")
        .replace("2s", "20s");
    fs::write(site.0.join("m.toml"), text).unwrap();
    let serving = site.serve(&["--config", "m.toml"]);
    let mut client = serving.log_in("alice");
    client.say("MKD x", "550");
    let asked: String = fs::read_to_string(site.0.join("question")).unwrap();
    let keys = |json: &str| -> Vec<String> {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&asked), keys(question), "{asked}");
    let mut client = serving.connect();
    client.say("USER alice", "331");
    client.say("PASS wrong", "530");
}
