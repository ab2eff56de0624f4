//! A spawner in a process of its own starts the children of this one.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_process::{Policy, Start, Word, connect_spawner, has_spawner, run_spawner};
use rustix::process::{WaitOptions, wait};

const PRINTS_PARENT: &str = "echo $PPID; exit 3";

/// Guards the children of this process, which the tests share.
static CHILDREN: Mutex<()> = Mutex::new(());

/// Has a spawner start the programs of this process: this file once more, as `serves_as_the_spawner`.
fn with_spawner() -> MutexGuard<'static, ()> {
    let guard = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_spawner() {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "--ignored", "--quiet", "serves_as_the_spawner"]);
        let shell = ["sh", "-c", PRINTS_PARENT].map(Word::fixed).to_vec();
        let policy = Policy { commands: vec![shell], folders: vec!["/nowhere".into()], ..Policy::default() };
        connect_spawner(command, &policy).unwrap();
    }
    guard
}

#[test]
#[ignore = "the other tests run it"]
fn serves_as_the_spawner() {
    run_spawner(io::stdin().as_fd().try_clone_to_owned().unwrap()).unwrap();
}

fn start(program: &str, folder: &str, arguments: &str) -> io::Result<(u32, io::Result<Option<i32>>)> {
    let (output, theirs) = rustix::pipe::pipe().unwrap();
    let nothing = std::fs::File::open("/dev/null").unwrap();
    let (program, folder) = (CString::new(program).unwrap(), CString::new(folder).unwrap());
    let mut process = Start {
        program: &program,
        arguments: arguments.as_bytes(),
        environment: b"",
        folder: &folder,
        streams: [nothing.as_fd(), theirs.as_fd(), nothing.as_fd()],
    }
    .start()?;
    drop(theirs);
    let said = io::read_to_string(std::fs::File::from(output)).unwrap();
    let status = process.wait().map(|status| status.code());
    Ok((said.trim().parse().unwrap(), status))
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_program_of_the_spawner_is_a_child_of_the_server() {
    let _guard = with_spawner();
    let shell = if std::fs::exists("/usr/bin/sh").unwrap() { "/usr/bin/sh" } else { "/bin/sh" };
    let (parent, status) = start(shell, "/", &format!("sh\0-c\0{PRINTS_PARENT}\0")).unwrap();
    assert_eq!((parent, status.unwrap()), (std::process::id(), Some(3)));
}

#[test]
fn a_program_that_cannot_be_started_leaves_no_child() {
    let _guard = with_spawner();
    let none = "/nowhere/none";
    // Several, so that the first has ended by then.
    for _ in 0..20 {
        let error = start(none, "/nowhere", &format!("{none}\0")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
    // The spawner itself is a child, and has not ended.
    assert!(wait(WaitOptions::NOHANG).unwrap().is_none(), "a child has ended and was not collected");
}
