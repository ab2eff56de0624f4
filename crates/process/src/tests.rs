//! Each test starts its programs in both ways: what one does the other has to do.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use super::*;

type Way = fn(&Start<'_>) -> io::Result<Process>;

/// The quick method, with and without slots, which may be unavailable where the tests run; and the one that is always
/// available.
const WAYS: [Way; 3] = [
    |start| start.start(),
    |start| {
        keep_descriptors()?;
        start.start()
    },
    |start| start.start_by_command(),
];

struct Wanted {
    program: CString,
    arguments: Vec<u8>,
    environment: Vec<u8>,
    folder: CString,
}

impl Wanted {
    fn new(program: &str, arguments: &[&str]) -> Self {
        Self {
            program: CString::new(program).unwrap(),
            arguments: block(&[&[program], arguments].concat()),
            environment: block(&["PATH=/usr/bin:/bin"]),
            folder: c"/".into(),
        }
    }

    fn shell(script: &str) -> Self {
        Self::new("/bin/sh", &["-c", script])
    }

    fn start(&self, way: Way, [input, output, errors]: [BorrowedFd<'_>; 3]) -> io::Result<Process> {
        way(&Start {
            program: &self.program,
            arguments: &self.arguments,
            environment: &self.environment,
            folder: &self.folder,
            streams: [input, output, errors],
        })
    }

    /// Runs it; what it wrote to its output, and how it ended.
    fn run(&self, way: Way) -> io::Result<(String, ExitStatus)> {
        let (output, theirs) = pipe();
        let nothing = File::open("/dev/null")?;
        let mut process = self.start(way, [nothing.as_fd(), theirs.as_fd(), theirs.as_fd()])?;
        drop(theirs);
        let mut said = String::new();
        File::from(output).read_to_string(&mut said)?;
        Ok((said, process.wait()?))
    }
}

fn block(strings: &[&str]) -> Vec<u8> {
    strings.iter().flat_map(|string| [string.as_bytes(), &[0]].concat()).collect()
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

#[test]
fn it_has_its_arguments_variables_folder_and_streams() {
    for way in WAYS {
        let mut wanted = Wanted::new(
            "/bin/sh",
            &["-c", "echo $0 $1 $#; pwd; env | sort; cat; echo no >&2", "a b", "", "é"],
        );
        wanted.environment = block(&["EMPTY=", "NAME=a=b", "PATH=/usr/bin:/bin"]);
        wanted.folder = c"/usr/bin".into();
        let (output, theirs) = pipe();
        let (mine, input) = {
            let (read, write) = pipe();
            (write, read)
        };
        let (errors, complaints) = pipe();
        let mut process = wanted.start(way, [input.as_fd(), theirs.as_fd(), complaints.as_fd()]).unwrap();
        drop((theirs, input, complaints));
        io::Write::write_all(&mut File::from(mine), b"from here").unwrap();
        let read = |from: OwnedFd| io::read_to_string(File::from(from)).unwrap();
        let said = read(output);
        let said: Vec<&str> = said
            .lines()
            .filter(|line| !["PWD=", "_=", "SHLVL=", "OLDPWD="].iter().any(|own| line.starts_with(own)))
            .collect();
        assert_eq!(said, ["a b 2", "/usr/bin", "EMPTY=", "NAME=a=b", "PATH=/usr/bin:/bin", "from here"]);
        assert_eq!((read(errors).as_str(), process.wait().unwrap().code()), ("no\n", Some(0)));
    }
}

#[test]
fn it_is_a_group_of_its_own_and_signals_are_as_a_shell_has_them() {
    // Signals that the test's parent ignores stay ignored; Rust ignores SIGPIPE on top.
    let ours = std::fs::read_to_string("/proc/self/status").unwrap();
    let ours = ours.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ours, 16).unwrap();
    let pipe = 1 << (13 - 1);
    assert_ne!(ignored & pipe, 0);
    for way in WAYS {
        let of_itself = ["-E", "^(Pid|NSpgid|SigBlk|SigIgn)", "/proc/self/status"];
        let (said, _) = Wanted::new("/bin/grep", &of_itself).run(way).unwrap();
        let values: Vec<&str> = said.split_whitespace().skip(1).step_by(2).collect();
        let [pid, group, blocked, without] = values[..] else { panic!("{said}") };
        assert_eq!(pid, group);
        let set = |text| u64::from_str_radix(text, 16).unwrap();
        // Two signals are the C library's own business.
        let own = 0b11 << 31;
        assert_eq!([set(blocked), set(without) & !own], [0, ignored & !pipe & !own]);
    }
}

#[test]
fn it_has_no_descriptor_of_ours() {
    let held: Vec<File> = (0..40).map(|_| File::open("/dev/null").unwrap()).collect();
    for way in WAYS {
        let (said, _) = Wanted::shell("ls /proc/$$/fd").run(way).unwrap();
        let theirs: Vec<i32> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert!(theirs.starts_with(&[0, 1]) && theirs.contains(&2), "{theirs:?}");
        assert!(!held.iter().any(|file| theirs.contains(&file.as_raw_fd())), "{theirs:?}");
    }
    // As a supervisor leaves them open for us.
    held.iter().for_each(|file| rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap());
    let by_command = Wanted::shell("ls /proc/$$/fd | wc -l").run(WAYS[2]).unwrap().0.trim().parse::<usize>();
    for way in &WAYS[..2] {
        let (said, _) = Wanted::shell("ls /proc/$$/fd | wc -l").run(*way).unwrap();
        let count = said.trim().parse::<usize>().unwrap();
        // The shell has one or two of its own for the pipe.
        assert!(count < held.len() || Ok(count) == by_command, "{count}: none, or it is not available here");
    }
}

#[test]
fn why_it_cannot_be_started_is_told_and_nothing_is_left() {
    for way in WAYS {
        let error = |wanted: Wanted| wanted.run(way).map(|_| ()).unwrap_err();
        assert_eq!(error(Wanted::new("/nowhere/at/all", &[])).kind(), io::ErrorKind::NotFound);
        assert_eq!(error(Wanted::new("/etc/passwd", &[])).kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(error(Wanted::new("/etc", &[])).kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            error(Wanted { folder: c"/nowhere".into(), ..Wanted::shell("") }).kind(),
            io::ErrorKind::NotFound
        );
        let cut = Wanted { arguments: b"sh".to_vec(), ..Wanted::shell("") };
        assert_eq!(error(cut).kind(), io::ErrorKind::InvalidInput);
        let empty: Vec<&[u8]> = strings(&[0, 0]).unwrap().collect();
        assert_eq!(
            (empty, strings(&[0]).unwrap().count(), strings(&[]).unwrap().count()),
            (vec![&[][..]; 2], 1, 0)
        );
        let long = "x".repeat(4 << 20);
        assert_eq!(error(Wanted::new("/bin/true", &[&long])).kind(), io::ErrorKind::ArgumentListTooLong);
    }
}

#[test]
fn its_end_is_known_once_and_stays_known() {
    for way in WAYS {
        let nothing = File::options().read(true).write(true).open("/dev/null").unwrap();
        let streams = [nothing.as_fd(); 3];
        let mut process = Wanted::shell("exit 7").start(way, streams).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(7));
        assert_eq!(process.try_wait().unwrap().and_then(|status| status.code()), Some(7));
        let mut process = Wanted::shell("sleep 1000 & sleep 1000").start(way, streams).unwrap();
        assert!(process.try_wait().unwrap().is_none());
        rustix::process::kill_process_group(process.pid(), rustix::process::Signal::KILL).unwrap();
        assert_eq!(process.wait().unwrap().signal(), Some(9));
    }
}

#[test]
fn many_threads_start_programs_at_once() {
    for way in WAYS {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for number in 0..25 {
                        let expected = format!("{thread} {number}\n");
                        let (said, status) = Wanted::shell(&format!("echo {thread} {number}; exit {number}"))
                            .run(way)
                            .unwrap();
                        assert_eq!((said, status.code()), (expected, Some(number)));
                    }
                });
            }
        });
    }
}

#[test]
fn a_slot_holds_nothing_of_a_child_when_it_has_started() {
    keep_descriptors().unwrap();
    let (output, theirs) = pipe();
    let lent = slots::lend([theirs.as_fd(); 3]).unwrap();
    assert!(lent.is_some());
    drop((lent, theirs));
    assert_eq!(io::read_to_string(File::from(output)).unwrap(), "", "the end of the pipe");
}
