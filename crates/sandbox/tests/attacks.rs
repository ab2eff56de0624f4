//! What code that has taken over a confined process tries. Each test runs once more in a process of its own, which
//! confines itself as a server does.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::thread;

use millrace_sandbox::{Access, Grant, Identity, enter, enter_as_helper, enter_without_network, probe};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{getegid, geteuid};

const ATTACK: &str = "MILLRACE_ATTACK";
const FOLDER: &str = "MILLRACE_ATTACK_FOLDER";

/// Two folders side by side: one that is granted, and one that is not.
struct Ground(PathBuf);

impl Ground {
    fn inside(&self) -> PathBuf {
        self.0.join("inside")
    }

    fn outside(&self) -> PathBuf {
        self.0.join("outside")
    }

    fn enter(&self) {
        let confinement = enter(&[Grant::new(self.inside(), Access::Write)]).unwrap();
        confinement.landlock.expect("Landlock");
        confinement.seccomp.expect("seccomp");
    }
}

/// Runs an attack in a process of its own; not at all where the kernel lacks what it attacks, and says so.
fn attack(name: &str, attack: impl FnOnce(&Ground)) {
    if env::var(ATTACK).is_ok_and(|wanted| wanted == name) {
        attack(&Ground(env::var_os(FOLDER).unwrap().into()));
        // The harness would go on in a thread that is not confined.
        exit(0);
    }
    if !probe().is_complete() {
        return eprintln!("{name} is not tried: this kernel confines by {}", probe());
    }
    in_process(name, &env::temp_dir());
}

/// As [`attack`], in a process that is confined as one that runs modules of PAM as root.
fn attack_as_helper(name: &str, attack: impl FnOnce(&Ground)) {
    // Not where modules may write, as they may to temporary files.
    let beneath = Path::new("/opt");
    let is_possible = geteuid().is_root() && probe().is_complete() && beneath.is_dir();
    if env::var(ATTACK).is_ok_and(|wanted| wanted == name) {
        let ground = Ground(env::var_os(FOLDER).unwrap().into());
        let confinement = enter_as_helper(&[ground.inside()]).unwrap();
        confinement.landlock.expect("Landlock");
        confinement.seccomp.expect("seccomp");
        attack(&ground);
        exit(0);
    }
    match is_possible {
        true => in_process(name, beneath),
        false => eprintln!("{name} is not tried: it takes root, /opt, and a kernel that confines"),
    }
}

/// Runs a test of this name once more, in a process of its own with a folder of its own.
fn in_process(name: &str, beneath: &Path) {
    let folder = beneath.join(format!("millrace-attack-{}-{name}", std::process::id()));
    for part in ["inside/deep", "outside"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    fs::write(folder.join("inside/own"), "own").unwrap();
    fs::write(folder.join("outside/secret"), "secret").unwrap();
    let folder = folder.canonicalize().unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .envs([(ATTACK, name.as_ref()), (FOLDER, folder.as_os_str())])
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(&folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn is_denied<T>(tried: std::io::Result<T>) -> bool {
    tried.is_err_and(|error| matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::CrossesDevices))
}

#[test]
fn files_outside_cannot_be_opened() {
    attack("files_outside_cannot_be_opened", |ground| {
        let secret = ground.outside().join("secret");
        let shadow = Path::new("/etc/shadow");
        let is_root = geteuid().is_root();
        assert!(File::open(&secret).is_ok() && (!is_root || File::open(shadow).is_ok()), "before");
        let folder_before = File::open(ground.outside()).unwrap();
        let mut file_before = File::open(&secret).unwrap();
        symlink(&secret, ground.inside().join("link")).unwrap();
        ground.enter();
        let thread = thread::spawn({
            let secret = secret.clone();
            move || is_denied(File::open(secret))
        });
        assert!(thread.join().unwrap(), "a thread that was started later");
        assert!(is_denied(File::open(&secret)) && is_denied(File::open(shadow)));
        assert!(is_denied(File::open(ground.inside().join("../outside/secret"))));
        assert!(is_denied(File::open(ground.inside().join("link"))));
        assert!(is_denied(fs::read_dir(ground.outside())));
        let through = format!("/proc/self/root{}", secret.display());
        assert!(is_denied(File::open(through)));
        let through = format!("/proc/self/fd/{}/secret", folder_before.as_raw_fd());
        assert!(is_denied(File::open(through)));
        let beneath = openat(&folder_before, "secret", OFlags::RDONLY, Mode::empty());
        assert!(is_denied(beneath.map_err(Into::into)), "by a descriptor of the folder");
        let again = format!("/proc/self/fd/{}", file_before.as_raw_fd());
        assert!(is_denied(File::open(again)), "a descriptor opened again");
        // What is open stays open: it was opened before.
        file_before.read_exact(&mut [0; 6]).unwrap();
    });
}

#[test]
fn a_log_that_is_gone_on_with_is_neither_cut_nor_removed() {
    attack("a_log_that_is_gone_on_with_is_neither_cut_nor_removed", |ground| {
        let (folder, log) = (ground.inside(), ground.inside().join("own"));
        let before = OpenOptions::new().write(true).open(&log).unwrap();
        let confinement = enter(&[Grant::new(&folder, Access::Extend)]).unwrap();
        // Truncation is a right of its own since Linux 6.2.
        let keeps_length = confinement.landlock.expect("Landlock") >= 3;
        let mut file = OpenOptions::new().read(true).append(true).open(&log).unwrap();
        file.write_all(b" more").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "own more");
        File::create_new(folder.join("next")).unwrap();
        assert!(is_denied(fs::remove_file(&log)));
        assert!(is_denied(fs::rename(&log, folder.join("moved"))));
        assert!(!keeps_length || is_denied(File::create(&log)));
        assert!(!keeps_length || is_denied(file.set_len(0)));
        assert!(before.set_len(0).is_ok(), "a descriptor of before");
    });
}

#[test]
fn files_outside_cannot_be_made_changed_or_removed() {
    attack("files_outside_cannot_be_made_changed_or_removed", |ground| {
        let (inside, outside) = (ground.inside(), ground.outside());
        ground.enter();
        assert!(is_denied(File::create(outside.join("new"))));
        assert!(is_denied(OpenOptions::new().append(true).open(outside.join("secret"))));
        let unnamed = OFlags::TMPFILE.bits().cast_signed();
        assert!(is_denied(OpenOptions::new().write(true).custom_flags(unnamed).open(&outside)));
        assert!(is_denied(OpenOptions::new().write(true).truncate(true).open(outside.join("secret"))));
        assert!(is_denied(fs::create_dir(outside.join("folder"))));
        assert!(is_denied(symlink("/", outside.join("link"))));
        assert!(is_denied(fs::remove_file(outside.join("secret"))));
        assert!(is_denied(UnixListener::bind(outside.join("socket"))));
        assert!(is_denied(UnixListener::bind(inside.join("socket"))), "none is granted");
        // Neither what is outside brought in, nor what is inside put out.
        let secret = outside.join("secret");
        let linked = linkat(CWD, &secret, CWD, inside.join("linked"), AtFlags::empty());
        assert!(is_denied(linked.map_err(Into::into)));
        assert!(is_denied(renameat(CWD, &secret, CWD, inside.join("moved")).map_err(Into::into)));
        assert!(is_denied(renameat(CWD, inside.join("own"), CWD, outside.join("put")).map_err(Into::into)));
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 2);
    });
}

#[test]
fn no_program_is_started() {
    attack("no_program_is_started", |ground| {
        let program = ground.inside().join("program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(Command::new("/bin/true").status().unwrap().success(), "before");
        ground.enter();
        for program in [Path::new("/bin/true"), Path::new("/proc/self/exe"), &program] {
            assert!(Command::new(program).status().is_err(), "{}", program.display());
            // In this very process, without a fork.
            let error = std::os::unix::process::CommandExt::exec(&mut Command::new(program));
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", program.display());
        }
    });
}

#[test]
fn other_processes_are_closed_to_it() {
    attack("other_processes_are_closed_to_it", |ground| {
        ground.enter();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
        for file in ["environ", "mem", "maps", "cwd/x", "root/etc/hostname", "fd/0"] {
            assert!(is_denied(File::open(format!("/proc/{parent}/{file}"))), "{file}");
        }
        assert!(File::open("/proc/self/status").is_ok());
        let of_parent = rustix::process::setpriority_process(rustix::process::getppid(), 5);
        assert_eq!(of_parent.unwrap_err(), rustix::io::Errno::NOSYS);
        assert!(rustix::process::setpriority_process(None, 5).is_ok());
    });
}

#[test]
fn namespaces_devices_and_other_sockets_are_refused() {
    attack("namespaces_devices_and_other_sockets_are_refused", |ground| {
        ground.enter();
        for flags in [CloneFlags::CLONE_NEWUSER, CloneFlags::CLONE_NEWNS, CloneFlags::CLONE_NEWNET] {
            assert!(unshare(flags).is_err());
        }
        for family in
            [AddressFamily::PACKET, AddressFamily::from_raw(38), AddressFamily::VSOCK, AddressFamily::CAN]
        {
            let made = socket_with(family, SocketType::RAW, SocketFlags::empty(), None);
            assert_eq!(made.unwrap_err(), rustix::io::Errno::NOSYS);
        }
        assert!(File::open("/dev/mem").is_err() && File::open("/dev/kmsg").is_err());
        assert!(File::open("/proc/kcore").is_err());
        assert!(rustix::process::chroot("/").is_err());
        assert!(
            rustix::thread::set_thread_res_uid(
                rustix::process::getuid(),
                rustix::process::Uid::from_raw(12_345),
                geteuid()
            )
            .is_err()
        );
    });
}

#[test]
fn without_network_no_socket_is_made_and_no_address_reached() {
    attack("without_network_no_socket_is_made_and_no_address_reached", |ground| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ready = || socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let made_before = ready().unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        enter_without_network(&[Grant::new(ground.inside(), Access::Write)]).unwrap();
        assert!(ready().is_err(), "a socket");
        assert!(UnixStream::pair().is_err(), "a pair");
        let address = listener.local_addr().unwrap();
        assert!(rustix::net::connect(&made_before, &address).is_err(), "a connection");
        assert!(listener.accept().is_err(), "a client");
        File::open(ground.inside().join("own")).unwrap();
    });
}

#[test]
fn a_server_still_does_its_work() {
    attack("a_server_still_does_its_work", |ground| {
        let inside = ground.inside();
        ground.enter();
        // Staged and linked, renamed between folders, locked, removed.
        let unnamed = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(inside.join("deep"))
            .unwrap();
        (&unnamed).write_all(b"text").unwrap();
        let link = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
        linkat(CWD, link, CWD, inside.join("deep/new"), AtFlags::SYMLINK_FOLLOW).unwrap();
        fs::rename(inside.join("deep/new"), inside.join("new")).unwrap();
        fs::hard_link(inside.join("new"), inside.join("deep/other")).unwrap();
        fs::create_dir(inside.join("folder")).unwrap();
        symlink("new", inside.join("link")).unwrap();
        assert_eq!(fs::read_to_string(inside.join("link")).unwrap(), "text");
        fs::remove_file(inside.join("new")).unwrap();
        fs::remove_dir(inside.join("folder")).unwrap();
        // Threads, connections, names, time zones, the kernel's figures.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || TcpStream::connect(address).unwrap());
        listener.accept().unwrap();
        client.join().unwrap();
        assert!("localhost:80".to_socket_addrs().unwrap().next().is_some());
        assert!(
            Path::new("/usr/share/zoneinfo").read_dir().is_ok() || !Path::new("/usr/share/zoneinfo").exists()
        );
        assert!(fs::read_to_string("/proc/stat").is_ok());
        thread::available_parallelism().unwrap();
        let (mut ours, theirs) = std::io::pipe().unwrap();
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn root_is_given_up_by_all_threads() {
    attack("root_is_given_up_by_all_threads", |ground| {
        if !geteuid().is_root() {
            return eprintln!("not tried: only root can become another user");
        }
        // A number that is no user's.
        let identity = Identity::find("54321:54322").unwrap();
        rustix::fs::chown(ground.inside(), Some(rustix::fs::Uid::from_raw(54_321)), None).unwrap();
        fs::write(ground.0.join("key"), "key").unwrap();
        fs::set_permissions(ground.0.join("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        identity.assume().unwrap();
        ground.enter_with_key();
        let (say, hear) = std::sync::mpsc::channel::<()>();
        let waiting = thread::spawn(move || {
            let _ = hear.recv();
            status("/proc/thread-self/status")
        });
        // What root has, before it is given up; and what is made belongs to the user already.
        fs::read(ground.0.join("key")).unwrap();
        fs::write(ground.inside().join("made"), "").unwrap();
        let made = std::os::unix::fs::MetadataExt::uid(&fs::metadata(ground.inside().join("made")).unwrap());
        assert_eq!(made, 54_321);
        let _low =
            (1..1024).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).expect("a low port");
        identity.drop_privileges().unwrap();
        drop(say);
        for status in [waiting.join().unwrap(), status("/proc/thread-self/status")] {
            assert!(status.contains("Uid: 54321 54321 54321 54321"), "{status}");
            assert!(status.contains("Gid: 54322 54322 54322 54322"), "{status}");
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert!(status.contains(&format!("{set}: 0000000000000000")), "{status}");
            }
            assert!(status.contains("NoNewPrivs: 1"), "{status}");
        }
        assert!(is_denied(fs::read(ground.0.join("key"))));
        assert!(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).is_err());
        assert_eq!(getegid().as_raw(), 54_322);
    });
}

/// What a process of root's has that runs modules of PAM: CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SETGID, SETUID
/// and AUDIT_WRITE.
const OF_HELPER: &str = "00000000200000cf";

#[test]
fn a_helper_changes_no_file_but_where_modules_keep_theirs() {
    attack_as_helper("a_helper_changes_no_file_but_where_modules_keep_theirs", |ground| {
        let (inside, outside) = (ground.inside(), ground.outside());
        let secret = outside.join("secret");
        assert!(is_denied(OpenOptions::new().append(true).open(&secret)));
        assert!(is_denied(OpenOptions::new().write(true).truncate(true).open(&secret)));
        assert!(is_denied(File::create(outside.join("new"))));
        assert!(is_denied(fs::create_dir(outside.join("folder"))));
        assert!(is_denied(fs::remove_file(&secret)));
        assert!(is_denied(fs::rename(&secret, inside.join("moved"))));
        assert!(is_denied(fs::hard_link(&secret, inside.join("linked"))));
        assert!(is_denied(OpenOptions::new().append(true).open("/etc/passwd")));
        let program = Command::new("sh").args(["-c", "echo x >>\"$0\""]).arg(&secret).output().unwrap();
        assert!(!program.status.success(), "a program that it starts");
        // What modules do: they read any file, write their own, give it to a user, and start programs.
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        for own in [inside.join("own"), env::temp_dir().join(format!("millrace-{}", std::process::id()))] {
            fs::write(&own, "of a module").unwrap();
            std::os::unix::fs::chown(&own, Some(54_321), Some(54_321)).unwrap();
            OpenOptions::new().append(true).open(&own).unwrap();
            fs::remove_file(&own).unwrap();
        }
        assert!(Command::new("/bin/true").status().unwrap().success());
        assert!("localhost:80".to_socket_addrs().unwrap().next().is_some());
    });
}

#[test]
fn a_helper_keeps_no_capability_that_it_does_not_need_and_gets_none_back() {
    attack_as_helper("a_helper_keeps_no_capability_that_it_does_not_need_and_gets_none_back", |ground| {
        let program = Command::new("cat").arg("/proc/self/status").output().unwrap();
        let of_program = String::from_utf8(program.stdout).unwrap().replace('\t', " ");
        for status in [status("/proc/thread-self/status"), of_program] {
            for set in ["CapPrm", "CapEff", "CapBnd"] {
                assert!(status.contains(&format!("{set}: {OF_HELPER}")), "{status}");
            }
            assert!(status.contains("NoNewPrivs: 1") && status.contains("Seccomp: 2"), "{status}");
        }
        let all = rustix::thread::CapabilitySet::all();
        let sets = rustix::thread::CapabilitySets { effective: all, permitted: all, inheritable: all };
        assert!(rustix::thread::set_capabilities(None, sets).is_err());
        let disk = ground.inside().join("disk");
        let device = rustix::fs::makedev(1, 1);
        let kind = rustix::fs::FileType::BlockDevice;
        assert!(rustix::fs::mknodat(CWD, &disk, kind, Mode::RUSR, device).is_err(), "a device");
        let raw = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::empty(), None);
        assert!(raw.is_err(), "a raw socket");
        assert!((1..1024).all(|port| TcpListener::bind(("127.0.0.1", port)).is_err()), "a low port");
        // It becomes users, who have nothing of it.
        let script = "import os; os.setgroups([]); os.setresgid(54321,54321,54321); os.setresuid(54321,54321,54321); \
                      print(open('/proc/self/status').read())";
        match Command::new("python3").args(["-c", script]).output() {
            Err(_) => eprintln!("no user is tried: there is no python3"),
            Ok(output) => {
                let status = String::from_utf8(output.stdout).unwrap();
                assert!(status.contains("Uid:\t54321\t54321\t54321\t54321"), "{status}");
                assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
            }
        }
    });
}

#[test]
fn a_helper_reaches_no_other_process_namespace_or_device() {
    attack_as_helper("a_helper_reaches_no_other_process_namespace_or_device", |_| {
        let parent = rustix::process::getppid().unwrap();
        for file in ["mem", "environ", "maps", "fd/0"] {
            let path = format!("/proc/{}/{file}", parent.as_raw_nonzero());
            assert!(is_denied(File::open(&path)), "{path}");
        }
        // Signals have a scope since Linux 6.12.
        if probe().landlock.expect("Landlock") >= 6 {
            assert!(rustix::process::test_kill_process(parent).is_err(), "a signal");
        }
        for flags in [CloneFlags::CLONE_NEWUSER, CloneFlags::CLONE_NEWNS, CloneFlags::CLONE_NEWNET] {
            assert_eq!(unshare(flags).unwrap_err(), nix::Error::ENOSYS);
        }
        assert_eq!(rustix::process::chroot("/").unwrap_err(), rustix::io::Errno::NOSYS);
        for family in [AddressFamily::PACKET, AddressFamily::from_raw(38), AddressFamily::VSOCK] {
            let made = socket_with(family, SocketType::DGRAM, SocketFlags::empty(), None);
            assert_eq!(made.unwrap_err(), rustix::io::Errno::NOSYS);
        }
        for (program, words) in [
            ("mount", &["-t", "tmpfs", "none", "/mnt"][..]),
            ("unshare", &["--user", "true"]),
            ("nsenter", &["--target", "1", "--mount", "true"]),
            ("chroot", &["/", "true"]),
        ] {
            let output = Command::new(program).args(words).output().unwrap();
            assert!(!output.status.success(), "{program}");
        }
        // Programs that it starts may still be ended.
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

impl Ground {
    fn enter_with_key(&self) {
        enter(&[Grant::new(self.inside(), Access::Write), Grant::new(self.0.join("key"), Access::Read)])
            .unwrap();
    }
}

fn status(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn a_user_who_is_not_there_is_an_error_that_says_what_to_do() {
    let error = |text: &str| Identity::find(text).unwrap_err().to_string();
    assert_eq!(
        error("nobody-of-this-name"),
        "there is no user \"nobody-of-this-name\"; make one, for example by `useradd --system nobody-of-this-name`"
    );
    assert!(error("nobody:no-such-group").contains("there is no group \"no-such-group\""));
    assert_eq!(error("root"), "\"root\" is root");
    assert_eq!(error("54321"), "54321 is the number of no user: name the group, too, as 54321:GROUP");
}
