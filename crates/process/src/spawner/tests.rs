use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_process_group, test_kill_process};

use super::client::{Spawner, pair};
use super::policy::{Policy, Word};
use super::service::run_spawner;
use crate::{Process, ProgramLimits, Start};

/// A spawner in a thread of this process.
fn spawner(policy: &Policy) -> Spawner {
    let (ours, theirs) = pair().unwrap();
    std::thread::spawn(move || run_spawner(theirs));
    Spawner::new(&ours, policy).unwrap()
}

fn shell(words: &[&str]) -> Policy {
    let command = words.iter().copied().map(Word::fixed).collect();
    Policy { commands: vec![command], variables: vec!["MILLRACE_".to_owned()], ..Policy::default() }
}

struct Request {
    program: CString,
    arguments: Vec<u8>,
    environment: Vec<u8>,
    folder: CString,
}

fn request(program: &str, arguments: &[&str]) -> Request {
    let arguments = arguments.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let (program, folder) = (CString::new(program).unwrap(), c"/".to_owned());
    Request { program, arguments, environment: Vec::new(), folder }
}

impl Request {
    fn variable(mut self, variable: &str) -> Self {
        self.environment.extend([variable.as_bytes(), b"\0"].concat());
        self
    }

    fn start(&self, spawner: &Spawner) -> io::Result<(Process, File)> {
        let (output, said) = rustix::pipe::pipe().unwrap();
        let nothing = File::open("/dev/null").unwrap();
        let start = Start {
            program: &self.program,
            arguments: &self.arguments,
            environment: &self.environment,
            folder: &self.folder,
            streams: [nothing.as_fd(), said.as_fd(), nothing.as_fd()],
        };
        Ok((spawner.start(&start)?, File::from(output)))
    }

    fn error(&self, spawner: &Spawner) -> io::ErrorKind {
        self.start(spawner).map(|_| ()).unwrap_err().kind()
    }
}

fn sh() -> String {
    let file = crate::program::find("sh".as_ref()).unwrap();
    file.into_string().unwrap()
}

#[test]
fn a_program_of_the_policy_is_started_and_its_end_is_told() {
    let script = "echo \"$MILLRACE_USER\"; exit 7";
    let spawner = spawner(&shell(&["sh", "-c", script]));
    let request = request(&sh(), &["sh", "-c", script]).variable("MILLRACE_USER=alice");
    let (mut process, mut output) = request.start(&spawner).unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    let end = process.end().unwrap();
    let mut watched = [PollFd::new(&end, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap();
    assert_eq!((said.trim(), watched[0].revents()), ("alice", PollFlags::IN));
    assert_eq!(process.try_wait().unwrap().and_then(|status| status.code()), Some(7));
    assert_eq!(process.wait().unwrap().code(), Some(7), "it stays known");
}

#[test]
fn its_number_is_its_own_until_the_server_lets_go_of_it() {
    let spawner = spawner(&shell(&["sh", "-c", "sleep 1000"]));
    let (mut process, _output) = request(&sh(), &["sh", "-c", "sleep 1000"]).start(&spawner).unwrap();
    let pid = process.pid();
    assert!(process.try_wait().unwrap().is_none());
    kill_process_group(pid, Signal::KILL).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&process.wait().unwrap()), Some(9));
    test_kill_process(pid).expect("it was collected while the server held it");
    drop(process);
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while test_kill_process(pid).is_ok() {
        assert!(std::time::Instant::now() < end, "it was never collected");
        std::thread::yield_now();
    }
}

#[test]
fn what_the_policy_does_not_list_is_refused() {
    let spawner = spawner(&shell(&["sh", "-c", "true"]));
    let denied = io::ErrorKind::PermissionDenied;
    let listed = || request(&sh(), &["sh", "-c", "true"]);
    listed().start(&spawner).unwrap();
    for other in [
        request(&sh(), &["sh", "-c", "id"]),
        request(&sh(), &["sh", "-c"]),
        request(&sh(), &["sh", "-c", "true", "more"]),
        request(&sh(), &[]),
        // The words of the policy, but another program.
        request("/bin/cat", &["sh", "-c", "true"]),
        request("/proc/self/exe", &["sh", "-c", "true"]),
        Request { folder: c"/tmp".to_owned(), ..listed() },
        // What loads code into any program.
        listed().variable("LD_PRELOAD=/tmp/x.so"),
        listed().variable("BASH_ENV=/tmp/x"),
        listed().variable("PATH=/tmp"),
        listed().variable("no equals sign"),
        // Not ended by NUL.
        Request { arguments: b"sh\0-c\0true".to_vec(), ..listed() },
    ] {
        assert_eq!(other.error(&spawner), denied, "{:?}", String::from_utf8_lossy(&other.arguments));
    }
    assert_eq!(
        spawner.start_successor(&pair().unwrap().0).map(|_| ()).unwrap_err().kind(),
        denied,
        "none is in the policy"
    );
}

#[test]
fn a_placeholder_takes_any_text_and_nothing_else_does() {
    let words = vec![
        Word::fixed("sh"),
        Word::fixed("-c"),
        Word::fixed("echo \"$0\""),
        Word { prefix: "--file=".into(), suffix: Some(".part".into()) },
    ];
    let spawner = spawner(&Policy { commands: vec![words], ..Policy::default() });
    let with = |last: &str| request(&sh(), &["sh", "-c", "echo \"$0\"", last]);
    let (_process, mut output) = with("--file=a b.part").start(&spawner).unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(said, "--file=a b.part\n");
    assert_eq!(with("--other=a.part").error(&spawner), io::ErrorKind::PermissionDenied);
    assert_eq!(with("--file=a.whole").error(&spawner), io::ErrorKind::PermissionDenied);
}

#[test]
fn files_of_a_listed_folder_are_programs_and_others_are_not() {
    let folder = std::env::temp_dir().join(format!("millrace-spawner-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    let folder = folder.canonicalize().unwrap();
    for file in ["deep/hello", "outside"] {
        std::fs::write(folder.join(file), "#!/bin/sh\necho hello\n").unwrap();
        std::fs::set_permissions(folder.join(file), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let spawner = spawner(&Policy { folders: vec![folder.join("deep")], ..Policy::default() });
    let of = |file: PathBuf| {
        let text = file.to_str().unwrap();
        let beside = CString::new(file.parent().unwrap().as_os_str().as_bytes()).unwrap();
        Request { folder: beside, ..request(text, &[text]) }
    };
    let (_process, mut output) = of(folder.join("deep/hello")).start(&spawner).unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(said, "hello\n");
    let denied = io::ErrorKind::PermissionDenied;
    assert_eq!(of(folder.join("outside")).error(&spawner), denied);
    assert_eq!(of(folder.join("deep/../outside")).error(&spawner), denied);
    assert_eq!(of(folder.join("deep")).error(&spawner), denied);
    assert_eq!(of(folder.join("deep/none")).error(&spawner), io::ErrorKind::NotFound);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_spawner_that_has_ended_is_told_of() {
    let (ours, theirs) = pair().unwrap();
    let spawner = Spawner::new(&ours, &shell(&["sh"])).unwrap();
    drop(theirs);
    let error = request(&sh(), &["sh"]).start(&spawner).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("restart the server"), "{error}");
}

#[test]
fn a_policy_is_read_as_it_was_written_and_a_cut_one_is_an_error() {
    let policy = Policy {
        commands: vec![
            vec![Word::fixed("a"), Word { prefix: "b".into(), suffix: Some("c".into()) }],
            Vec::new(),
        ],
        folders: vec!["/x".into()],
        variables: vec!["A_".to_owned()],
        limits: ProgramLimits { cpu: Some(Duration::from_secs(3)), memory: None, processes: Some(7) },
        successor: ["millrace", "serve"].map(OsString::from).to_vec(),
    };
    let whole = policy.to_bytes();
    assert_eq!(Policy::read(&whole).unwrap(), policy);
    for length in 0..whole.len() {
        assert!(Policy::read(&whole[..length]).is_err(), "cut at {length}");
    }
    assert!(Policy::read(&[&whole[..], b"more"].concat()).is_err());
}
