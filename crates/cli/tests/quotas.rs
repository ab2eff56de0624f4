//! Quotas as they are configured, kept over a kill, counted anew, explained and told.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

const PATIENCE: Duration = Duration::from_secs(30);

struct Site(PathBuf);

impl Site {
    fn new(name: &str, keys: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-quotas-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("tree/alice")).unwrap();
        fs::create_dir_all(folder.join("tree/bob")).unwrap();
        fs::create_dir_all(folder.join("shared")).unwrap();
        let users = ["alice", "bob"].map(|name| {
            format!(
                "[[user]]\nname = \"{name}\"\npassword = \"{HASH}\"\ndirectory = \"{name}\"\ngroups = \"all\"\n"
            )
        });
        let head = "directory = \"tree\"\ncontrol = \"control\"\nquotas = \"quotas.db\"\nhooks-queue = \"queue.db\"\n";
        let keys = keys.replace("HERE", folder.to_str().unwrap());
        fs::write(folder.join("m.toml"), format!("{head}{}{keys}", users.concat())).unwrap();
        Self(folder)
    }

    fn start(&self) -> Serving {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--ftp", "127.0.0.1:0", "--quiet", "--config"])
            .arg(self.0.join("m.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let out = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines: Vec<String> = out.take_while(|line| !line.starts_with("Ready")).collect();
        let at = |scheme: &str| {
            let line = lines.iter().find(|line| line.contains(scheme)).expect("it says where it is");
            let (_, rest) = line.split_once(scheme).unwrap();
            rest.split('/').next().unwrap().rsplit('@').next().unwrap().parse().unwrap()
        };
        let (address, http) = (at("ftp://"), at("http://"));
        Serving { child, address, http, log, control: self.0.join("control") }
    }

    /// What `millrace` prints, where all went well.
    #[track_caller]
    fn tell(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .current_dir(&self.0)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Serving {
    child: Child,
    address: SocketAddr,
    http: SocketAddr,
    log: Receiver<String>,
    control: PathBuf,
}

impl Serving {
    fn log_in(&self, user: &str) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.reply();
        client.expect(&format!("USER {user}"), "331");
        client.expect("PASS password", "230");
        client.expect("TYPE I", "200");
        client
    }

    #[track_caller]
    fn expect_log(&self, text: &str) {
        let line =
            std::iter::from_fn(|| self.log.recv_timeout(PATIENCE).ok()).find(|line| line.contains(text));
        assert!(line.is_some(), "the log does not say {text}");
    }

    /// No time to say goodbye.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = fs::remove_file(&self.control);
    }

    /// Time to say goodbye.
    fn stop(mut self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap();
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
        let mut text = String::new();
        loop {
            let begin = text.len();
            assert!(self.0.read_line(&mut text).unwrap() > 0, "it hung up: {text}");
            let line = &text.as_bytes()[begin..];
            if line.len() > 3 && line[..3].iter().all(u8::is_ascii_digit) && line[3] == b' ' {
                return text;
            }
        }
    }

    #[track_caller]
    fn expect(&mut self, line: &str, code: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").unwrap();
        let reply = self.reply();
        assert!(reply.starts_with(code), "{line}: expected {code}: {reply}");
        reply
    }

    /// Stores this many bytes; the last reply.
    fn store(&mut self, name: &str, count: usize) -> String {
        let reply = self.expect("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let mut data = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(self.0.get_mut(), "STOR {name}\r\n").unwrap();
        let first = self.reply();
        if !first.starts_with("150") {
            return first;
        }
        // A server that has enough may hang up.
        let _ = data.write_all(&vec![b'x'; count]);
        let _ = data.shutdown(std::net::Shutdown::Write);
        let _ = data.read_to_end(&mut Vec::new());
        self.reply()
    }

    #[track_caller]
    fn holds(&mut self, bytes: u64, files: u64) {
        let (bytes, files) = (format!("Bytes: {bytes} of "), format!("Files: {files} of "));
        // What was refused is given up on another thread than the one that says so.
        eventually(&format!("{bytes}{files}"), || {
            let told = self.expect("SITE QUOTA", "200");
            told.contains(&bytes) && told.contains(&files)
        });
    }
}

#[test]
fn users_and_groups_have_quotas_that_are_explained_and_outlive_a_stop_and_a_kill() {
    let site = Site::new("kept", "quota-files = 7\n[[group]]\nname = \"all\"\nquota-bytes = \"10k\"\n");
    let explained = site.tell(&["explain", "bob", "--config", "m.toml"]);
    let line = |key: &str| explained.lines().find(|line| line.contains(key)).unwrap_or_default();
    assert!(
        line("quota-bytes").contains("10000") && line("quota-bytes").contains("group all"),
        "{explained}"
    );
    assert!(line("quota-files").contains('7') && line("quota-files").contains("user"), "{explained}");

    let serving = site.start();
    let (mut alice, mut bob) = (serving.log_in("alice"), serving.log_in("bob"));
    assert!(alice.store("a", 6_000).starts_with("226"));
    assert!(bob.store("b", 9_000).starts_with("226"), "each has a quota of one's own");
    let told = alice.store("c", 6_000);
    assert!(told.starts_with("552") && told.contains("quota of bytes of this account"), "{told}");
    serving.expect_log("limit=\"quota-bytes\" value=10000");
    alice.holds(6_000, 1);
    bob.holds(9_000, 1);
    serving.stop();

    // The count stored at shutdown is used: the tree is not walked.
    fs::write(site.0.join("tree/alice/stray"), [b'x'; 1_000]).unwrap();
    let serving = site.start();
    let mut alice = serving.log_in("alice");
    alice.holds(6_000, 1);
    let counted = site.tell(&["ctl", "--control", "control", "recount"]);
    assert!(counted.contains("tree/alice  7 kB "), "{counted}");
    alice.holds(7_000, 2);
    assert!(site.tell(&["ctl", "--control", "control", "quotas"]).contains(" 7 kB "));

    // A kill while something is under way: it is counted again.
    let reply = alice.expect("EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let _data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    alice.expect("STOR d", "150");
    serving.kill();
    fs::write(site.0.join("tree/alice/another"), [b'x'; 500]).unwrap();
    let serving = site.start();
    let mut alice = serving.log_in("alice");
    alice.holds(7_500, 3);
    assert!(alice.store("e", 3_000).starts_with("552"));
    assert!(alice.store("e", 2_500).starts_with("226"));
}

#[test]
fn a_user_of_the_same_folder_without_a_quota_is_counted_too() {
    let carol = format!("[[user]]\nname = \"carol\"\npassword = \"{HASH}\"\ndirectory = \"alice\"\n");
    let site = Site::new("others", &format!("{carol}[[group]]\nname = \"all\"\nquota-bytes = \"10k\"\n"));
    let serving = site.start();
    let mut alice = serving.log_in("alice");
    assert!(alice.store("a", 4_000).starts_with("226"));
    let mut carol = serving.log_in("carol");
    assert!(carol.store("c", 5_000).starts_with("226"));
    alice.holds(9_000, 2);
    assert!(alice.store("b", 2_000).starts_with("552"));
    assert!(carol.store("d", 50_000).starts_with("226"), "who has no quota is held to none");
    carol.expect("DELE d", "250");
    carol.expect("DELE c", "250");
    alice.holds(4_000, 1);
    serving.stop();
    // It is not used if the tree was changed behind the server's back.
    let serving = site.start();
    let mut carol = serving.log_in("carol");
    assert!(carol.store("c", 5_000).starts_with("226"));
    let mut alice = serving.log_in("alice");
    alice.holds(9_000, 2);
}

#[test]
fn usage_is_shown_while_the_server_runs_without_creating_files() {
    let site = Site::new("used", "[[group]]\nname = \"all\"\nquota-bytes = \"10k\"\nquota-files = 7\n");
    let file = site.0.join("m.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("users = \"users.db\"\n{text}")).unwrap();
    fs::create_dir(site.0.join("tree/carol")).unwrap();
    let settings = ["quota-upload=10k/day", "quota-transfer=20k/week", "ratio=1:3", "directory=carol"];
    let add = ["user", "--users", "users.db", "add", "carol", "--hash", HASH];
    site.tell(&[&add[..], &settings[..]].concat());
    let explain = |user: &str| site.tell(&["explain", user, "--config", "m.toml"]);
    let show = || site.tell(&["user", "--users", "users.db", "show", "carol", "--config", "m.toml"]);
    assert!(!explain("alice").contains("Used"), "{}", explain("alice"));
    assert!(show().contains("quota-upload      0 of 10000\n"), "{}", show());
    assert!(!site.0.join("quotas.db").exists());

    let serving = site.start();
    let (mut alice, mut carol) = (serving.log_in("alice"), serving.log_in("carol"));
    assert!(alice.store("a", 6_000).starts_with("226"));
    assert!(carol.store("c", 4_000).starts_with("226"));
    eventually("what alice holds is kept", || {
        explain("alice")
            .ends_with("Used, as was last kept:\nquota-bytes       6000 of 10000\nquota-files       1 of 7\n")
    });
    let expected =
        "quota-upload      4000 of 10000\nquota-transfer    4000 of 20000\nratio             0 of 12000\n";
    eventually("what carol has moved is kept", || show().ends_with(expected));
    assert!(explain("carol").ends_with(expected), "{}", explain("carol"));
    serving.stop();
}

#[test]
fn a_folder_has_a_quota_of_its_own_that_a_reload_may_change_and_a_hook_hears_of() {
    let keys = "[[group]]\nname = \"all\"\n[[folder]]\npath = \"/in\"\ndirectory = \"shared\"\nquota-files = 1\n\
                [[hook]]\non = \"quota\"\nrun = [\"/bin/sh\", \"-c\", \"cat > HERE/heard\"]\n";
    let site = Site::new("folder", keys);
    let serving = site.start();
    let (mut alice, mut bob) = (serving.log_in("alice"), serving.log_in("bob"));
    assert!(alice.store("/in/a", 10).starts_with("226"));
    assert!(alice.store("/one", 10).starts_with("226"));
    assert!(alice.store("/two", 10).starts_with("226"), "it is no quota of the user's");
    let told = bob.store("/in/b", 10);
    assert!(told.starts_with("552") && told.contains("quota of files of this folder"), "{told}");
    serving.expect_log("limit=\"quota-files\" value=1 of=\"folder /in\"");
    eventually("the hook has heard", || {
        let heard = fs::read_to_string(site.0.join("heard")).unwrap_or_default();
        heard.contains("quota-files of folder /in") && heard.contains("/in/b")
    });
    let text = fs::read_to_string(site.0.join("m.toml")).unwrap();
    fs::write(site.0.join("m.toml"), text.replace("quota-files = 1", "quota-files = 2")).unwrap();
    site.tell(&["ctl", "--control", "control", "reload"]);
    let mut bob = serving.log_in("bob");
    assert!(bob.store("/in/b", 10).starts_with("226"), "it counts on from what it was");
    assert!(bob.store("/in/c", 10).starts_with("552"));
    let explain = || site.tell(&["explain", "bob", "--config", "m.toml"]);
    eventually("what the folder holds is kept", || {
        explain().ends_with("Used, as was last kept:\nquota-files       2 of 2 in /in\n")
    });
}

fn eventually(what: &str, mut claim: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !claim() {
        assert!(std::time::Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn why_an_answer_is_cut_is_told_in_words() {
    let site = Site::new("cut", "[[group]]\nname = \"all\"\nquota-download = \"100k/month\"\n");
    fs::write(site.0.join("tree/alice/f"), vec![b'x'; 300_000]).unwrap();
    let serving = site.start();
    let mut stream = TcpStream::connect(serving.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // As alice, with her password.
    let head = "GET /f HTTP/1.1\r\nHost: h\r\nAuthorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // The reset that says that it is not all comes as an error.
    let _ = stream.read_to_end(&mut Vec::new());
    serving.expect_log("an answer was cut: this account may download no more for now");
}
