//! The sandbox and the change of user, on a server as it is started.
//!
//! What the kernel keeps from code inside is attacked in `crates/sandbox/tests/attacks.rs`.

#[path = "kit/client.rs"]
mod client;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use client::Client;
const PATIENCE: Duration = Duration::from_secs(30);

/// A user and a group that do not exist.
const USER: (u32, u32) = (54_321, 54_322);

/// A server in a folder of its own, `site`, which serves `files` in it.
struct Site {
    folder: PathBuf,
    child: Child,
    ftp: String,
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("millrace-confinement-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    for part in ["site/files", "state", "outside"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    fs::write(folder.join("site/files/f"), "text").unwrap();
    folder.canonicalize().unwrap()
}

fn configure(folder: &Path, keys: &str) {
    let always =
        "directory = \"files\"\nhttp = \"off\"\nanonymous = \"rw\"\nusers = \"off\"\nstate = \"../state\"\n";
    fs::write(folder.join("site/millrace.toml"), format!("{always}{keys}")).unwrap();
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(["serve", "--config", "site/millrace.toml"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(fs::File::create(folder.join("log")).unwrap());
    command
}

impl Site {
    fn start(name: &str, keys: &str) -> Self {
        let folder = folder(name);
        configure(&folder, keys);
        Self::in_folder(folder)
    }

    fn in_folder(folder: PathBuf) -> Self {
        let mut child = command(&folder).spawn().unwrap();
        let mut ftp = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            if let Some((_, rest)) = line.split_once("ftp://") {
                ftp = rest.split('/').next().unwrap().to_owned();
            }
            if line.starts_with("Ready") {
                return Self { folder, child, ftp };
            }
        }
        let status = child.wait().unwrap();
        panic!("it ended, {status}: {}", fs::read_to_string(folder.join("log")).unwrap());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Waits until the log has this.
    fn expect_in_log(&self, text: &str) {
        self.expect(&format!("{text:?} in the log"), || self.log().contains(text));
    }

    /// Waits until this is so.
    fn expect(&self, what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "not {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn reload(&self, keys: &str) {
        configure(&self.folder, keys);
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    fn ctl(&self, word: &str) -> Output {
        let control = self.folder.join("state/control");
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["ctl", "--control"]).arg(control).arg(word).output().unwrap()
    }

    /// What is in `/proc/PID/status` of each thread.
    fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
        tasks.filter_map(|task| status(task.unwrap())).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Client {
    fn log_in(site: &Site) -> Self {
        let stream = TcpStream::connect(&site.ftp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self(BufReader::new(stream));
        client.expect("220");
        client.say("USER anonymous", "331");
        client.say("PASS a@", "230");
        client.say("TYPE I", "200");
        client
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not tried: only root can become another user");
    }
    is_root
}

/// Logs and databases lie on other disks by links, some of which lead to nothing before the first start.
#[test]
fn files_that_are_links_into_other_folders_are_granted_there() {
    let folder = folder("links");
    let names = ["audit", "transfers", "queue.db", "rows.db", "quotas.db"];
    for name in names {
        std::os::unix::fs::symlink(format!("../outside/{name}"), folder.join("site").join(name)).unwrap();
    }
    fs::write(folder.join("outside/audit"), "").unwrap();
    configure(
        &folder,
        "ftp = \"127.0.0.1:0\"\naudit-log = \"audit\"\nxferlog = \"transfers\"\nhooks-queue = \"queue.db\"\n\
         quotas = \"quotas.db\"\n[[hook]]\non = \"upload\"\nrun = [\"/bin/true\"]\nwait = false\n\
         [[folder]]\npath = \"/rows\"\ndatabase = \"rows.db\"\nquota-bytes = \"1M\"\n",
    );
    let site = Site::in_folder(folder);
    // Threads of their own write the logs.
    site.expect("a record of the start", || {
        fs::metadata(site.folder.join("outside/audit")).unwrap().len() > 0
    });
    for name in ["transfers", "queue.db", "rows.db"] {
        assert!(site.folder.join("outside").join(name).exists(), "{name}: {}", site.log());
    }
}

#[test]
fn every_thread_is_confined_and_the_log_says_so() {
    let site = Site::start("threads", "ftp = \"127.0.0.1:0\"\n");
    let mut client = Client::log_in(&site);
    client.upload("STOR new", "text");
    assert_eq!(client.download("RETR new"), "text");
    site.expect_in_log(" started ");
    let log = site.log();
    let line = log.lines().find(|line| line.contains(" started ")).unwrap();
    let holds = |text: &str| line.contains(text);
    assert!(holds("sandbox="), "{line}");
    assert!(!holds("threads that were there before"), "{line}");
    for status in site.threads() {
        let has = |key: &str, value: &str| status.lines().any(|line| line == format!("{key}:\t{value}"));
        assert!(has("NoNewPrivs", "1"), "{status}");
        assert!(has("Seccomp", "2") || holds("system calls not"), "{status}");
    }
}

#[test]
fn without_a_sandbox_the_log_says_so() {
    let site = Site::start("off", "ftp = \"127.0.0.1:0\"\nsandbox = \"off\"\n");
    site.expect_in_log("sandbox=\"off\"");
    assert!(site.threads().iter().all(|status| status.contains("Seccomp:\t0")));
}

#[test]
fn a_reload_that_needs_more_than_the_sandbox_grants_changes_nothing() {
    let more = folder("more");
    let keys =
        |rest: &str| format!("ftp = \"127.0.0.1:0\"\nsandbox-paths = [\"{}\"]\n{rest}", more.display());
    let site = Site::start("reload", &keys(""));
    if site.log().contains("files not (") {
        return eprintln!("not tried: {}", site.log());
    }
    let folder = |path: &str, of: &Path| {
        format!("[[folder]]\npath = \"{path}\"\ndirectory = \"{}\"\naccess = \"rw\"\n", of.display())
    };
    site.reload(&keys(&folder("/outside", &site.folder.join("outside"))));
    site.expect_in_log("/outside out of reach: restart the server, or add the path to sandbox-paths");
    Client::log_in(&site).say("CWD /outside", "550");
    // What is granted is served from then on.
    site.reload(&keys(&folder("/more", &more.join("site"))));
    site.expect_in_log(" - - - reloaded");
    let mut client = Client::log_in(&site);
    client.say("CWD /more", "250");
    client.upload("STOR new", "text");
    assert_eq!(fs::read_to_string(more.join("site/new")).unwrap(), "text");
    site.reload(&keys("hooks-queue = \"../state/q.db\"\n[[hook]]\non = \"upload\"\nrun = [\"/bin/true\"]\n"));
    site.expect_in_log("does not let it start /bin/true so: restart the server");
    fs::remove_dir_all(more).unwrap();
}

#[test]
fn programs_of_hooks_run_outside_of_the_sandbox() {
    let outside = "touch \"$0/made\"; cat /proc/self/status > \"$0/status\"; echo refused >&2; exit 1";
    let folder = folder("hooks");
    let hook = format!(
        "ftp = \"127.0.0.1:0\"\nhooks-queue = \"q.db\"\n[[hook]]\non = \"upload\"\nwait = true\n\
         run = [\"sh\", \"-c\", '''{outside}''', \"{}\"]\n",
        folder.join("outside").display()
    );
    configure(&folder, &hook);
    let site = Site::in_folder(folder);
    let mut client = Client::log_in(&site);
    let mut data = client.data();
    client.say("STOR new", "150");
    data.write_all(b"text").unwrap();
    drop(data);
    client.expect("55");
    let status = fs::read_to_string(site.folder.join("outside/status")).unwrap();
    assert!(status.contains("Seccomp:\t0") && status.contains("NoNewPrivs:\t0"), "{status}");
    assert!(site.folder.join("outside/made").exists());
}

#[test]
fn programs_of_cgi_run_outside_of_the_sandbox_and_have_a_body_and_an_end() {
    let folder = folder("cgi");
    configure(&folder, "");
    let program = folder.join("site/files/programs/status");
    fs::create_dir(program.parent().unwrap()).unwrap();
    let script = "#!/bin/sh\nread line\nprintf 'Content-Type: text/plain\\n\\n%s %s\\n' \"$line\" \"$HTTP_X_NAME\"\n\
                  grep Seccomp: /proc/self/status\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let keys = "directory = \"files\"\nftp = \"off\"\nhttp = \"127.0.0.1:0\"\nstate = \"../state\"\ncgi = \"programs\"\n";
    fs::write(folder.join("site/millrace.toml"), keys).unwrap();
    let mut child = command(&folder).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let url =
        lines.find_map(|line| Some(line.split_once("http://")?.1.split('/').next()?.to_owned())).unwrap();
    lines.find(|line| line.starts_with("Ready")).unwrap();
    for number in 0..20 {
        let mut client = TcpStream::connect(&url).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = format!("line {number}\n");
        let length = body.len();
        write!(
            client,
            "POST /programs/status HTTP/1.1\r\nHost: x\r\nX-Name: n\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains(&format!("line {number} n\n")),
            "{answer}"
        );
        assert!(answer.contains("Seccomp:\t0"), "{answer}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_user_who_is_not_there_is_told_of() {
    let folder = folder("user");
    for (text, told) in [
        (
            "no-such-user",
            "there is no user \"no-such-user\"; make one, for example by `useradd --system no-such-user`",
        ),
        ("nobody:no-such-group", "there is no group \"no-such-group\""),
        ("root", "\"root\" is root"),
    ] {
        configure(&folder, &format!("ftp = \"127.0.0.1:0\"\nrun-as = \"{text}\"\n"));
        let mut child = command(&folder).spawn().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2));
        let log = fs::read_to_string(folder.join("log")).unwrap();
        assert!(log.to_lowercase().contains(&told.to_lowercase()), "{log}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn root_is_warned_and_told_what_to_set() {
    if !is_root() {
        return;
    }
    let site = Site::start("root", "ftp = \"0.0.0.0:0\"\n");
    site.expect_in_log("warning: this server runs as root");
    assert!(site.log().contains("run-as = \"millrace\""));
    for status in site.threads() {
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
        let effective = u64::from_str_radix(effective, 16).unwrap();
        // CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SETUID.
        assert_eq!(effective & (1 << 21 | 1 << 19 | 1 << 16 | 1 << 17 | 1 << 7), 0, "{status}");
    }
}

/// A folder of which the server's user may have what it serves and keeps, and root alone a key and a log.
fn folder_for_user(name: &str) -> PathBuf {
    let folder = folder(name);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    for part in ["site/files", "state"] {
        chown(folder.join(part), Some(USER.0), Some(USER.1)).unwrap();
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("site/cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("site/key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(folder.join("site/key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    folder
}

/// Ports that only root may open.
fn low_ports() -> [u16; 2] {
    let mut free = (500..1024).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [free.next().unwrap(), free.next().unwrap()]
}

/// Asks the admin port whether the server is ready, and for its metrics, which need files of the system.
fn assert_ready(port: u16) {
    for (path, expected) in [("/readyz", "\r\nready\n"), ("/metrics", "\nprocess_resident_memory_bytes ")] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(expected), "{path}: {answer}");
    }
}

#[test]
fn no_thread_keeps_root_or_a_capability_and_all_of_it_still_works() {
    if !is_root() {
        return;
    }
    let folder = folder_for_user("run-as");
    let [ftp, admin] = low_ports();
    let keys = format!(
        "ftp = \"127.0.0.1:{ftp}\"\nadmin = \"127.0.0.1:{admin}\"\nrun-as = \"{}:{}\"\n\
         tls-cert = \"cert.pem\"\ntls-key = \"key.pem\"\nxferlog = \"xferlog\"\n\
         control = \"../state/control\"\n",
        USER.0, USER.1
    );
    configure(&folder, &keys);
    let site = Site::in_folder(folder);
    assert_ready(admin);
    assert!(!site.log().contains("runs as root"));
    let mut client = Client::log_in(&site);
    client.upload("STOR new", "text");
    assert_eq!(client.download("RETR new"), "text");
    let threads = site.threads();
    assert!(threads.len() > 2);
    let spawner = children(site.child.id());
    assert_eq!(spawner.len(), 1, "what starts programs");
    for status in threads.iter().chain(&spawner) {
        let values = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("{key}:\t"))).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(values("Uid"), vec![USER.0.to_string(); 4]);
        assert_eq!(values("Gid"), vec![USER.1.to_string(); 4]);
        assert_eq!(values("Groups"), vec![USER.1.to_string()]);
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(values(set), ["0000000000000000"], "{set}");
        }
    }
    assert!(threads.iter().all(|status| status.contains("NoNewPrivs:\t1")));
    for made in ["site/files/new", "site/xferlog", "state/control"] {
        let made = fs::metadata(site.folder.join(made)).unwrap();
        assert_eq!((made.uid(), made.gid()), USER);
    }
    // The key is root's: a reload says so, and all goes on.
    site.reload(&keys);
    site.expect_in_log("the old configuration stays in force");
    assert!(site.log().contains("key.pem"), "{}", site.log());
    Client::log_in(&site);
    // Once the user may read it, it is read.
    chown(site.folder.join("site/key.pem"), Some(USER.0), None).unwrap();
    site.reload(&keys);
    site.expect_in_log(" - - - reloaded");
    assert_ready(admin);
    // The listening sockets below 1024 are handed over.
    let upgraded = site.ctl("upgrade");
    assert!(upgraded.status.success(), "{}", String::from_utf8_lossy(&upgraded.stderr));
    drop(client);
    Client::log_in(&site).upload("STOR after", "text");
    assert_ready(admin);
    assert!(site.ctl("stop").status.success());
}

/// The status of each child of a process.
fn children(pid: u32) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok());
    let statuses = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    statuses.filter(|status| status.lines().any(|line| line == format!("PPid:\t{pid}"))).collect()
}
