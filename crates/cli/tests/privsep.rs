//! Accounts of the system on a server that has given up root: their passwords, and the rights to their files.
//!
//! The users are of a `passwd` and a `shadow` of the test's own, and PAM is that of the machine (`pam_unix`): both are
//! mounted over the files of `/etc` where the server sees them, in a mount namespace, and nowhere else.

#[path = "kit/client.rs"]
mod client;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use millrace_privsep::{Policy, Question, Service, Setup, UserFiles, Verdict, connect_helper, helper};
use millrace_storage::{LocalOptions, RootDirectory, Uploads, UserStorage};
use millrace_vfs::Wait;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// The user of the server, of whom no database knows.
const SERVER: u32 = 54_321;
/// The users, who are also groups, and a group of the first alone.
const ONE: u32 = 54_401;
const TWO: u32 = 54_402;
const SHARED: u32 = 54_410;

/// The hash of `password`.
const HASH: &str =
    "$6$millrace$draLvfLG0depLTKYaD54AFFCWm5V/wzAt7I43O/xUapYJTsuIPSodPsmE0raAQ6ADYQWO9ixSuDnuUcGx6Uuk0";

const SERVICE: &str =
    "auth required pam_unix.so nodelay\naccount required pam_nologin.so\naccount required pam_unix.so\n";

/// A folder with homes to serve, and the files that are mounted over those of `/etc`.
struct Site(PathBuf);

impl Site {
    /// `None` where only root could try.
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tried: only root can become another user");
            return None;
        }
        if !millrace_sandbox::probe().is_complete() {
            eprintln!("not tried: this kernel confines by {}", millrace_sandbox::probe());
            return None;
        }
        let folder = std::env::temp_dir().join(format!("millrace-privsep-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for part in ["home/one", "home/two", "home/zero", "state", "etc/pam.d"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let folder = folder.canonicalize().unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let (one, two) = (folder.join("home/one"), folder.join("home/two"));
        for (path, owner) in [(&one, ONE), (&two, TWO), (&folder.join("state"), SERVER)] {
            chown(path, Some(owner), Some(owner)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let site = Self(folder);
        site.write_accounts();
        let probe = site.command("true", &[]).output().unwrap();
        if !probe.status.success() {
            eprintln!("not tried: no file can be mounted here: {}", String::from_utf8_lossy(&probe.stderr));
            return None;
        }
        Some(site)
    }

    fn write_accounts(&self) {
        let etc = self.0.join("etc");
        let own = |name: &str| fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
        let home = self.0.join("home");
        let users = [("mrone", ONE, "one"), ("mrtwo", TWO, "two"), ("mrzero", 0, "zero")];
        let passwd: String = users
            .iter()
            .map(|(name, number, folder)| {
                format!("{name}:x:{number}:{number}::{}/{folder}:/bin/sh\n", home.display())
            })
            .collect();
        let shadow: String = users.iter().map(|(name, ..)| format!("{name}:{HASH}:1::::::\n")).collect();
        let group = format!("mrone:x:{ONE}:\nmrtwo:x:{TWO}:\nmrshared:x:{SHARED}:mrone\n");
        fs::write(etc.join("passwd"), own("passwd") + &passwd).unwrap();
        fs::write(etc.join("shadow"), own("shadow") + &shadow).unwrap();
        fs::write(etc.join("group"), own("group") + &group).unwrap();
        for service in ["millrace", "guests"] {
            fs::write(etc.join("pam.d").join(service), SERVICE).unwrap();
        }
        fs::write(etc.join("pam.d/other"), "auth required pam_deny.so\naccount required pam_deny.so\n")
            .unwrap();
        fs::set_permissions(etc.join("shadow"), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn configure(&self, keys: &str) {
        let always = format!(
            "directory = \"home\"\nhttp = \"off\"\nftp = \"127.0.0.1:0\"\nusers = \"off\"\nstate = \"state\"\n\
             login-delay = 0\nrun-as = \"{SERVER}:{SERVER}\"\nsandbox = \"required\"\nuploads = \"staged\"\n"
        );
        fs::write(self.0.join("m.toml"), always + keys).unwrap();
    }

    /// A command that sees the accounts, and further mounts.
    fn command(&self, program: &str, mounts: &[(&str, &str)]) -> Command {
        let etc = self.0.join("etc");
        let mut script = String::from("set -e\n");
        for name in ["passwd", "shadow", "group", "pam.d"] {
            script += &format!("mount --bind '{}' /etc/{name}\n", etc.join(name).display());
        }
        for (what, over) in mounts {
            script += &format!("mount --bind '{what}' '{over}'\n");
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{script}exec \"$0\" \"$@\""), program]);
        command.current_dir(&self.0).env("XDG_DATA_HOME", self.0.join("data"));
        command
    }

    fn serve(self, keys: &str) -> Serving {
        self.configure(keys);
        let mut command = self.command(env!("CARGO_BIN_EXE_millrace"), &[]);
        command.args(["serve", "--config", "m.toml"]).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(fs::File::create(self.0.join("log")).unwrap());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            if let Some((_, rest)) = line.split_once("ftp://") {
                address = rest.split('/').next().unwrap().to_owned();
            }
            if line.starts_with("Ready") {
                return Serving { site: self, child, address };
            }
        }
        let status = child.wait().unwrap();
        panic!("it ended, {status}: {}", fs::read_to_string(self.0.join("log")).unwrap());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Serving {
    site: Site,
    child: Child,
    address: String,
}

impl Serving {
    fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(stream));
        client.expect("220");
        client
    }

    #[track_caller]
    fn log_in_with(&self, user: &str, password: &str, code: &str) -> Client {
        let mut client = self.connect();
        client.say(&format!("USER {user}"), "331");
        client.say(&format!("PASS {password}"), code);
        client
    }

    #[track_caller]
    fn log_in(&self, user: &str) -> Client {
        let mut client = self.log_in_with(user, "password", "230");
        client.say("TYPE I", "200");
        client
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.0.join("home").join(name)
    }

    /// Makes a file of an owner's.
    fn put(&self, name: &str, text: &str, owner: (u32, u32), mode: u32) {
        fs::write(self.path(name), text).unwrap();
        chown(self.path(name), Some(owner.0), Some(owner.1)).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[track_caller]
    fn owner(&self, name: &str) -> (u32, u32) {
        let found = fs::symlink_metadata(self.path(name)).unwrap();
        (found.uid(), found.gid())
    }

    #[track_caller]
    fn expect_in_log(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        let log = || fs::read_to_string(self.site.0.join("log")).unwrap();
        while !log().contains(text) {
            assert!(Instant::now() < end, "no {text:?} in {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The process of this command beneath the server.
    #[track_caller]
    fn process(&self, command: &str) -> Pid {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = descendants(self.child.id()).into_iter().find(|pid| runs(*pid, command));
            match found {
                Some(pid) => return Pid::from_raw(pid.cast_signed()).unwrap(),
                None => assert!(Instant::now() < end, "no {command} runs"),
            }
        }
    }

    fn ctl(&self, word: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["ctl", "--control"]).arg(self.site.0.join("state/control")).arg(word).output().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes that another has started, and those that they have.
fn descendants(of: u32) -> Vec<u32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = processes
        .filter_map(|pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            Some((pid, status.lines().find_map(|line| line.strip_prefix("PPid:\t")?.parse().ok())?))
        })
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

fn runs(pid: u32, command: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|&byte| byte == 0).nth(1) == Some(command.as_bytes())
}

/// What is in the status of each thread of a process.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok()).collect()
}

#[track_caller]
fn assert_powerless(status: &str, user: u32) {
    let values = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{key}:\t"))).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(values("Uid"), vec![user.to_string(); 4], "{status}");
    assert_eq!(values("Gid"), vec![user.to_string(); 4], "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(values(set), ["0000000000000000"], "{set}");
    }
    assert_eq!((values("NoNewPrivs"), values("Seccomp")), (vec!["1".to_owned()], vec!["2".to_owned()]));
}

impl Client {
    /// A transfer that is refused.
    #[track_caller]
    fn refused(&mut self, command: &str) {
        let data = self.data();
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        drop(data);
        let mut line = String::new();
        while !line.starts_with('5') {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            assert!(line.starts_with('1') || line.starts_with("55"), "{line}");
        }
    }
}

const ACCOUNTS: &str = "[[source]]\npam = true\npasswd = true\ncache = 0\n";

#[test]
fn passwords_of_the_system_are_checked_by_a_server_that_has_given_up_root() {
    let Some(site) = Site::new("passwords") else { return };
    let serving = site.serve(ACCOUNTS);
    serving.log_in("mrone");
    serving.log_in_with("mrone", "Password", "530");
    serving.log_in_with("mrone", "", "530");
    serving.log_in_with("mrnone", "password", "530");
    // Of a password that is longer than PAM's longest, PAM is not asked.
    serving.log_in_with("mrone", &"p".repeat(600), "530");
    serving.log_in_with("mrzero", "password", "421");
    serving.expect_in_log("mrzero is root, with whose rights no files are served");
    for status in threads(serving.child.id()) {
        assert_powerless(&status, SERVER);
    }
    let helper = serving.process("privileged-helper").as_raw_nonzero().get().unsigned_abs();
    let listening = |pid: u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        links
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .filter(|inode| sockets.split_whitespace().any(|word| word == inode))
            .count()
    };
    assert!(listening(serving.child.id()) > 0);
    assert_eq!(listening(helper), 0, "the helper has a socket of the network");
}

#[test]
fn files_are_used_with_the_rights_of_their_users() {
    let Some(site) = Site::new("files") else { return };
    let serving = site.serve(ACCOUNTS);
    serving.put("one/theirs", "theirs", (TWO, TWO), 0o600);
    serving.put("one/groups", "of the group", (0, SHARED), 0o640);
    fs::create_dir(serving.path("one/locked")).unwrap();
    serving.put("one/locked/f", "locked", (TWO, TWO), 0o644);
    fs::set_permissions(serving.path("one/locked"), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("../two", serving.path("one/out")).unwrap();

    let mut client = serving.log_in("mrone");
    // What belongs to others.
    client.refused("RETR theirs");
    client.refused("APPE theirs");
    client.say("SITE CHMOD 666 theirs", "5");
    client.say("MFMT 20200101000000 theirs", "5");
    client.refused("RETR locked/f");
    client.refused("STOR locked/new");
    client.say("MKD locked/d", "550");
    client.say("DELE locked/f", "550");
    client.say("SIZE locked/f", "550");
    client.say("RNFR groups", "350");
    client.say("RNTO locked/groups", "5");
    client.refused("RETR out/f");
    client.say("CWD /..", "250");
    assert_eq!(fs::read_to_string(serving.path("one/theirs")).unwrap(), "theirs");
    // What a supplementary group may.
    assert_eq!(client.download("RETR groups"), "of the group");
    // What is the user's own.
    for (command, name, text) in [
        ("STOR new", "new", "new"),
        ("STOR new", "new", "newer"),
        ("APPE new", "new", "newer, and more"),
        ("STOU", "", ""),
    ] {
        let more = if command.starts_with("APPE") { ", and more" } else { text };
        client.upload(command, more);
        if !name.is_empty() {
            assert_eq!(fs::read_to_string(serving.path("one/new")).unwrap(), text, "{command}");
            assert_eq!(serving.owner("one/new"), (ONE, ONE), "{command}");
        }
    }
    client.say("REST 3", "350");
    client.upload("STOR new", "EST");
    assert_eq!(client.download("RETR new"), "newEST and more");
    client.say("MKD d", "257");
    assert_eq!(serving.owner("one/d"), (ONE, ONE));
    client.say("RNFR new", "350");
    client.say("RNTO d/old", "250");
    client.say("SITE CHMOD 640 d/old", "200");
    client.say("MFMT 20200101000000 d/old", "213");
    let old = fs::metadata(serving.path("one/d/old")).unwrap();
    assert_eq!((old.mode() & 0o7777, old.mtime()), (0o640, 1_577_836_800));
    let listed = client.download("MLSD");
    for name in ["theirs", "groups", "locked", "d"] {
        assert!(listed.lines().any(|line| line.ends_with(&format!(" {name}"))), "{name}: {listed}");
    }
    assert!(client.download("LIST d").contains(" old"));
    client.say("DELE d/old", "250");
    client.say("RMD d", "250");
    // The folder is the user's, and so is what is removed from it.
    client.say("DELE theirs", "250");
    serving.log_in("mrtwo").say("CWD /../one", "550");

    let files = serving.process("user-files").as_raw_nonzero().get().unsigned_abs();
    let statuses = threads(files);
    assert!(statuses.len() > 4);
    let users = [ONE, TWO].map(|user| format!("Uid:\t{user}\t"));
    let user = if statuses[0].contains(&users[0]) { ONE } else { TWO };
    statuses.iter().for_each(|status| assert_powerless(status, user));
    threads(serving.child.id()).iter().for_each(|status| assert_powerless(status, SERVER));
}

/// A process as the helper starts them, for a folder that belongs to its user.
fn storage_of_user(site: &Site, options: LocalOptions) -> UserStorage {
    let home = site.0.join("home/one");
    let setup = Setup { user: ONE, group: ONE, groups: vec![ONE, SHARED], sandbox: Some(vec![home.clone()]) };
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("user-files");
    let user = Arc::new(UserFiles::start(command, &setup).unwrap());
    let found = RootDirectory::new(home).find(Path::new(""), Wait::Allowed).unwrap();
    UserStorage::open_found(&found, options, &user).unwrap()
}

#[test]
fn a_storage_with_the_rights_of_a_user_is_one_like_every_other() {
    let Some(site) = Site::new("conformance") else { return };
    for uploads in [Uploads::Staged, Uploads::InPlace] {
        let storage = storage_of_user(&site, LocalOptions { uploads, ..LocalOptions::default() });
        millrace_vfs::conformance::run_with(&storage, 3000);
    }
    let left = fs::read_dir(site.0.join("home/one")).unwrap().count();
    assert_eq!(left, 0, "nothing is left, no staging folder either");
}

#[test]
fn many_names_are_looked_at_at_a_time_and_each_has_its_own_answer() {
    let Some(site) = Site::new("names") else { return };
    let home = site.0.join("home/one");
    let setup = Setup { user: ONE, group: ONE, groups: vec![ONE], sandbox: Some(vec![home.clone()]) };
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("user-files");
    let user = UserFiles::start(command, &setup).unwrap();
    // More than go in one call, by number and by length; some are not there.
    let names: Vec<String> = (0..250).map(|number| format!("{number}{}", "x".repeat(number))).collect();
    let is_there = |number: usize| !number.is_multiple_of(7);
    for (number, name) in names.iter().enumerate().filter(|(number, _)| is_there(*number)) {
        fs::write(home.join(name), vec![b'x'; number]).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", home.join("link")).unwrap();
    let inside = fs::File::open(&home).unwrap();
    let all: Vec<&[u8]> = names.iter().map(String::as_bytes).chain([&b"link"[..], b".."]).collect();
    let found = user.look_at(inside.as_fd(), &all);
    assert_eq!(found.len(), all.len());
    for (number, found) in found[..names.len()].iter().enumerate() {
        let size =
            found.as_ref().map(|file| rustix::fs::fstat(file).unwrap().st_size).map_err(|error| *error);
        assert_eq!(size, if is_there(number) { Ok(number as i64) } else { Err(Errno::NOENT) });
    }
    let link = rustix::fs::fstat(found[names.len()].as_ref().unwrap()).unwrap();
    assert_eq!(rustix::fs::FileType::from_raw_mode(link.st_mode), rustix::fs::FileType::Symlink);
    assert!(found[names.len() + 1].is_err(), "nothing leads up");
}

/// What a server tries that was taken over.
#[test]
fn a_process_that_opens_files_of_a_user_opens_no_other() {
    let Some(site) = Site::new("attacks") else { return };
    let home = site.0.join("home/one");
    fs::write(home.join("own"), "own").unwrap();
    std::os::unix::fs::symlink(site.0.join("etc/passwd"), home.join("out")).unwrap();
    let setup = Setup { user: ONE, group: ONE, groups: vec![ONE], sandbox: Some(vec![home.clone()]) };
    let start = |setup: &Setup| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg("user-files");
        UserFiles::start(command, setup)
    };
    let user = start(&setup).unwrap();
    let (inside, outside) = (fs::File::open(&home).unwrap(), fs::File::open(site.0.join("etc")).unwrap());
    let open = |directory: &fs::File, path: &str, flags: OFlags, resolve: ResolveFlags| {
        user.open(directory.as_fd(), path.as_bytes(), flags, Mode::from_raw_mode(0o4755), resolve)
    };
    let read = |directory: &fs::File, path: &str| {
        open(directory, path, OFlags::RDONLY, ResolveFlags::empty()).map(drop)
    };
    read(&inside, "own").unwrap();
    for path in ["/etc/passwd", "../two", "out", "own/../../two"] {
        assert!(matches!(read(&inside, path), Err(Errno::XDEV | Errno::NOTDIR)), "{path}");
    }
    // The sandbox, where the modes of files would let the user in.
    assert_eq!(read(&outside, "passwd"), Err(Errno::ACCESS));
    assert_eq!(read(&outside, "shadow"), Err(Errno::ACCESS));
    let refused =
        open(&inside, "x", OFlags::CREATE | OFlags::from_bits_retain(0o40000), ResolveFlags::empty());
    assert_eq!(refused.map(drop), Err(Errno::PERM), "a flag that no server uses");
    // Bits that would have a program run as the user.
    let made = open(&inside, "new", OFlags::CREATE | OFlags::RDWR, ResolveFlags::empty()).unwrap();
    assert_eq!(rustix::fs::fstat(&made).unwrap().st_mode & 0o7777, 0o755);
    assert_eq!(user.set_mode(made.as_fd(), Mode::from_raw_mode(0o4755)), Err(Errno::PERM));
    assert_eq!(user.set_owner(made.as_fd(), Some(rustix::fs::Uid::from_raw(TWO)), None), Err(Errno::PERM));
    for name in ["../two/x", "..", "/x"] {
        assert_eq!(
            user.make_directory(inside.as_fd(), name.as_bytes(), Mode::RWXU),
            Err(Errno::PERM),
            "{name}"
        );
        assert_eq!(user.remove(inside.as_fd(), name.as_bytes(), true), Err(Errno::PERM), "{name}");
    }
    // None becomes root.
    let error = start(&Setup { user: 0, ..setup }).unwrap_err();
    assert!(error.to_string().contains("rights that are not the user's"), "{error}");
}

#[test]
fn a_helper_serves_nobody_who_has_not_logged_in() {
    let Some(site) = Site::new("helper") else { return };
    let mut command = site.command(env!("CARGO_BIN_EXE_millrace"), &[]);
    command.arg("privileged-helper");
    let services = [("guests", false), ("millrace", true)]
        .map(|(name, opens_files)| Service { name: name.to_owned(), opens_files });
    connect_helper(command, Policy { services: services.into(), sandbox: None }).unwrap();
    let helper = helper().unwrap();
    let check = |user: &str, password: &str, service: &str| {
        let from = "192.0.2.7".parse().unwrap();
        helper.check(&Question { service, user, password, from, by_http: true, wants_entry: true })
    };
    let refused = |user: &str| helper.files_of(user).map(|files| files.user()).unwrap_err().to_string();
    helper.begin("millrace").unwrap();
    let other = "does not ask the service other, which was not in the configuration";
    assert!(helper.begin("other").unwrap_err().to_string().contains(other));
    assert!(check("mrone", "password", "other").unwrap_err().to_string().contains(other));
    assert!(refused("mrone").contains("has let no user mrone in"));
    assert_eq!(check("mrone", "wrong", "millrace").unwrap(), Verdict::Wrong);
    assert_eq!(check("mrnone", "password", "millrace").unwrap(), Verdict::Unknown);
    assert_eq!(check("mrone", &"p".repeat(600), "millrace").unwrap(), Verdict::Unknown);
    assert!(refused("mrone").contains("has let no user mrone in"));
    let Verdict::Right(Some(entry)) = check("mrone", "password", "millrace").unwrap() else {
        panic!("the password is right");
    };
    assert_eq!(entry.home, site.0.join("home/one"));
    assert_eq!(entry.groups, ["mrone", "mrshared"]);
    assert_eq!(helper.files_of("mrone").unwrap().user(), ONE);
    // A service whose users are only called as those of the system.
    assert!(matches!(check("mrtwo", "password", "guests"), Ok(Verdict::Right(_))));
    assert!(refused("mrtwo").contains("has let no user mrtwo in"));
    assert!(matches!(check("mrzero", "password", "millrace"), Ok(Verdict::Right(_))));
    assert!(refused("mrzero").contains("mrzero is root"));
    // Of one user there is one process, as long as anything uses it.
    assert!(Arc::ptr_eq(&helper.files_of("mrone").unwrap(), &helper.files_of("mrone").unwrap()));
}

#[test]
fn without_the_rights_of_users_files_are_the_servers() {
    let Some(site) = Site::new("servers-own") else { return };
    let shared = site.0.join("home/shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, Some(SERVER), Some(SERVER)).unwrap();
    let keys =
        "[[group]]\nname = \"all\"\ndirectory = \"shared\"\n[[source]]\npam = true\ngroups = \"all\"\n";
    let serving = site.serve(keys);
    serving.log_in("mrone").upload("STOR new", "text");
    assert_eq!(serving.owner("shared/new"), (SERVER, SERVER));
    let helper = serving.process("privileged-helper").as_raw_nonzero().get().unsigned_abs();
    assert_eq!(descendants(helper), [helper], "it has started something");
}

#[test]
fn without_the_helper_logins_are_refused_and_open_sessions_go_on() {
    let Some(site) = Site::new("death") else { return };
    let serving = site.serve(ACCOUNTS);
    let mut client = serving.log_in("mrone");
    kill_process(serving.process("user-files"), Signal::KILL).unwrap();
    client.say("MKD d", "451");
    // The next login has another process.
    let mut client = serving.log_in("mrone");
    client.say("MKD d", "257");
    kill_process(serving.process("privileged-helper"), Signal::KILL).unwrap();
    serving.log_in_with("mrone", "password", "421");
    serving.expect_in_log("the privileged helper has ended: restart the server");
    client.say("MKD e", "257");
    assert_eq!(serving.owner("one/e"), (ONE, ONE));
}

#[test]
fn a_reload_that_needs_more_of_the_helper_changes_nothing() {
    let Some(site) = Site::new("reload") else { return };
    let serving = site.serve(ACCOUNTS);
    serving.site.configure(&ACCOUNTS.replace("true\npasswd", "\"other\"\npasswd"));
    kill_process(Pid::from_child(&serving.child), Signal::HUP).unwrap();
    serving.expect_in_log("the privileged helper of this server was not started for these accounts of PAM");
    serving.log_in("mrone");
}

#[test]
fn without_the_library_check_and_the_start_say_so() {
    let Some(site) = Site::new("no-library") else { return };
    let folders = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let library = folders.map(|folder| folder.join("libpam.so.0")).find(|path| path.exists());
    let library = library.expect("PAM is on this machine").canonicalize().unwrap();
    site.configure(ACCOUNTS);
    for words in [&["check", "m.toml"][..], &["serve", "--config", "m.toml"]] {
        let mut command =
            site.command(env!("CARGO_BIN_EXE_millrace"), &[("/dev/null", library.to_str().unwrap())]);
        let output = command.args(words).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("need the library libpam, which cannot be loaded ("), "{told}");
        assert_eq!(told.trim_end().lines().count(), 1, "{told}");
    }
    let checked =
        site.command(env!("CARGO_BIN_EXE_millrace"), &[]).args(["check", "m.toml"]).output().unwrap();
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(told.contains("opens files with the rights of users"), "{told}");
}

/// A program of a module, with the rights that the helper has.
const HOSTILE: &str = r#"#!/bin/sh
tries() { "$@" >/dev/null 2>&1 && echo "did $*" >>hostile.did; }
cd "$(dirname "$0")" || exit 1
server=$(sed -n 's/^PPid:\t//p' "/proc/$PPID/status")
tries touch /etc/millrace-hostile && rm -f /etc/millrace-hostile
tries cat "/proc/$server/environ"
tries kill -0 "$server"
tries mount -t tmpfs none /mnt
tries unshare --mount true
tries mknod disk b 1 1
tries chroot / true
grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status >hostile.status
cat /etc/shadow >hostile.shadow
exit 0
"#;

#[test]
fn what_a_module_starts_is_confined_and_passwords_are_still_checked() {
    let Some(site) = Site::new("hostile") else { return };
    let (program, folder) = (site.0.join("hostile"), site.0.clone());
    fs::write(&program, HOSTILE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let module = format!("auth required pam_exec.so quiet {}\n", program.display());
    fs::write(site.0.join("etc/pam.d/millrace"), module + SERVICE).unwrap();
    let serving = site.serve(ACCOUNTS);
    serving.log_in("mrone").say("MKD d", "257");
    assert_eq!(serving.owner("one/d"), (ONE, ONE));
    serving.log_in_with("mrone", "wrong", "530");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    assert_eq!(read("hostile.did"), "");
    // What modules need is theirs: root, and every file to read.
    assert!(read("hostile.shadow").contains("mrone:"));
    // CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SETGID, SETUID and AUDIT_WRITE.
    let kept = "00000000200000cf";
    let expected =
        format!("Uid:\t0\t0\t0\t0\nCapEff:\t{kept}\nCapBnd:\t{kept}\nNoNewPrivs:\t1\nSeccomp:\t2\n");
    assert_eq!(read("hostile.status"), expected);
    let helper = serving.process("privileged-helper").as_raw_nonzero().get().unsigned_abs();
    for status in threads(helper) {
        assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
        assert!(status.contains(&format!("CapPrm:\t{kept}")), "{status}");
    }
    let limits = fs::read_to_string(format!("/proc/{helper}/limits")).unwrap();
    let of = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!((of("Max core file size"), of("Max open files")), ("0".to_owned(), "1024".to_owned()));
}

#[test]
fn a_hot_upgrade_hands_the_helper_over() {
    let Some(site) = Site::new("upgrade") else { return };
    let serving = site.serve(&format!("control = \"state/control\"\n{ACCOUNTS}"));
    let helper = serving.process("privileged-helper");
    let mut before = serving.log_in("mrone");
    let upgraded = serving.ctl("upgrade");
    assert!(upgraded.status.success(), "{}", String::from_utf8_lossy(&upgraded.stderr));
    before.say("MKD before", "257");
    serving.log_in("mrone").say("MKD after", "257");
    drop(before);
    // The old server has ended, and its helper serves the new one.
    let end = Instant::now() + PATIENCE;
    let status = format!("/proc/{}/status", serving.child.id());
    while fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
        assert!(Instant::now() < end, "the old server has not ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    serving.log_in("mrtwo").say("MKD after", "257");
    serving.log_in_with("mrtwo", "wrong", "530");
    assert_eq!(serving.owner("two/after"), (TWO, TWO));
    // A configuration that needs more of it is not taken over.
    serving.site.configure(&ACCOUNTS.replace("pam = true", "pam = \"other\""));
    let upgraded = serving.ctl("upgrade");
    let told = String::from_utf8_lossy(&upgraded.stderr);
    assert!(!upgraded.status.success() && told.contains("was not started for these accounts"), "{told}");
    serving.log_in("mrone");
    assert!(serving.ctl("stop").status.success());
    while rustix::process::test_kill_process(helper).is_ok() {
        assert!(Instant::now() < end, "the helper has not ended with the last server");
        std::thread::sleep(Duration::from_millis(5));
    }
}
