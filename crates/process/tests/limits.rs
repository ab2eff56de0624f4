//! Limits hold for every program that is started; a process of its own, since they are the process's.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use millrace_process::{ProgramLimits, Start, limit_programs};
use rustix::pipe::{PipeFlags, pipe_with};

/// Runs a script of the shell; what it wrote, and how it ended.
fn run(script: &str) -> (String, ExitStatus) {
    let (output, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let nothing = File::open("/dev/null").unwrap();
    let start = Start {
        program: c"/bin/sh",
        arguments: &[b"sh\0-c\0", script.as_bytes(), b"\0"].concat(),
        environment: b"PATH=/usr/bin:/bin\0",
        folder: c"/",
        streams: [nothing.as_fd(), theirs.as_fd(), theirs.as_fd()],
    };
    let mut process = start.start().unwrap();
    drop(theirs);
    let mut said = String::new();
    File::from(output).read_to_string(&mut said).unwrap();
    (said, process.wait().unwrap())
}

#[test]
fn a_program_is_held_to_its_limits_before_its_first_instruction() {
    const SHOWN: &str =
        "ulimit -St; ulimit -Ht; ulimit -Sv; ulimit -Hv; grep 'Max processes' /proc/self/limits";
    let before = run(SHOWN).0;
    limit_programs(ProgramLimits {
        cpu: Some(Duration::from_secs(7)),
        memory: Some(512 << 20),
        processes: Some(5000),
    });
    let (held, _) = run(SHOWN);
    let lines: Vec<&str> = held.lines().collect();
    assert_eq!(lines[..4], ["7", "7", "524288", "524288"]);
    assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>()[2..4], ["5000", "5000"], "{held}");
    // None above what this process has itself.
    limit_programs(ProgramLimits { cpu: Some(Duration::from_secs(1)), ..ProgramLimits::default() });
    let (_, ended) = run("while :; do :; done");
    assert!(ended.signal().is_some(), "{ended:?}");
    limit_programs(ProgramLimits::default());
    assert_eq!(run(SHOWN).0, before);
}
