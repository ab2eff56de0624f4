//! How many programs a second threads start, read to the end and wait for, themselves or by a spawner; and what one
//! costs in processor time, the spawner's and the program's own included.
//!
//! `cargo run --release -p millrace-process --example starts -- here|spawner FOLDER/PROGRAM SECONDS THREADS [VARIABLES]`

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_process::{Policy, Start, connect_spawner, run_spawner};

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [how, program, seconds, threads, rest @ ..] = &words[1..] else {
        return run_spawner(io::stdin().as_fd().try_clone_to_owned()?);
    };
    let folder = Path::new(program).parent().unwrap_or(Path::new("/")).to_owned();
    if how == "spawner" {
        let policy = Policy {
            folders: vec![folder.clone()],
            variables: vec!["VARIABLE".to_owned()],
            ..Policy::default()
        };
        connect_spawner(Command::new("/proc/self/exe"), &policy)?;
    }
    let [seconds, threads] = [seconds, threads].map(|number| number.parse::<u64>().unwrap_or(1));
    let variables = rest.first().and_then(|number| number.parse::<usize>().ok()).unwrap_or(25);
    let environment: String =
        (0..variables).map(|i| format!("VARIABLE{i}=some value of a variable\0")).collect();
    let program = CString::new(program.as_bytes())?;
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let (began, before) = (Instant::now(), ticks()?);
    let starter = || {
        let (program, folder, environment) = (program.clone(), folder.clone(), environment.clone());
        std::thread::spawn(move || -> io::Result<u64> {
            let (mut count, mut said) = (0, Vec::new());
            let nothing = File::open("/dev/null")?;
            while began.elapsed() < Duration::from_secs(seconds) {
                let (output, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
                let mut process = Start {
                    program: &program,
                    arguments: program.as_bytes_with_nul(),
                    environment: environment.as_bytes(),
                    folder: &folder,
                    streams: [nothing.as_fd(), theirs.as_fd(), nothing.as_fd()],
                }
                .start()?;
                drop(theirs);
                said.clear();
                File::from(output).read_to_end(&mut said)?;
                assert!(process.wait()?.success(), "{program:?}");
                count += 1;
            }
            Ok(count)
        })
    };
    let starters: Vec<_> = (0..threads).map(|_| starter()).collect();
    let mut count = 0;
    for starter in starters {
        count += starter.join().map_err(|_| io::Error::other("a panic"))??;
    }
    let (elapsed, used) = (began.elapsed().as_secs_f64(), ticks()? - before);
    println!("{:.0} {:.1}", count as f64 / elapsed, used as f64 * 1e4 / count as f64);
    Ok(())
}

/// Hundredths of a second that this process and its children have used so far, and those that they have waited for.
fn ticks() -> io::Result<u64> {
    let own = std::process::id().to_string();
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        // Others, as `self`, are names of processes that are listed already.
        if !entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((pid, fields)) = stat.split_once(' ').zip(stat.rsplit_once(") ")).map(|(a, b)| (a.0, b.1))
        else {
            continue;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        if pid == own || fields.get(1) == Some(&own.as_str()) {
            sum += fields[11..15].iter().filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
        }
    }
    Ok(sum)
}
