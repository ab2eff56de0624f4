//! `millrace hash-password`: a password in, its argon2id hash out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process;
use std::thread;

use millrace_server::auth::{check_password, hash_password};
use millrace_terminal::Failure;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Characters that a password should have (OWASP ASVS 2.1.1).
const ADVISED_LENGTH: usize = 12;

pub(crate) fn run() -> Result<(), Failure> {
    println!("{}", hash_password(&ask()?));
    Ok(())
}

/// The password that is typed, twice, or else the first line of standard input.
pub(crate) fn ask() -> Result<Vec<u8>, Failure> {
    let password = match io::stdin().is_terminal() {
        true => ask_twice()?,
        false => read_line()?,
    };
    check_password(&password).map_err(|error| Failure::Configuration(format!("{error}.")))?;
    if String::from_utf8_lossy(&password).chars().count() < ADVISED_LENGTH {
        eprintln!("warning: the password has fewer than {ADVISED_LENGTH} characters, and may be guessed");
    }
    Ok(password)
}

fn ask_twice() -> Result<Vec<u8>, Failure> {
    let _echo = EchoOff::new().map_err(failed)?;
    let password = prompt("Password: ")?;
    match prompt("Once more: ")? == password {
        true => Ok(password),
        false => Err(Failure::Configuration("the two passwords differ; try again.".to_owned())),
    }
}

fn prompt(text: &str) -> Result<Vec<u8>, Failure> {
    eprint!("{text}");
    io::stderr().flush().map_err(failed)?;
    let line = read_line();
    eprintln!();
    line
}

/// Reads one line, as bytes, without its end. Further input that has arrived is an error; it does not wait for more.
fn read_line() -> Result<Vec<u8>, Failure> {
    let mut line = Vec::new();
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut stdin = BufReader::new(File::from(stdin));
    stdin.read_until(b'\n', &mut line).map_err(failed)?;
    if !stdin.buffer().is_empty() {
        eprintln!("warning: only the first line was taken for the password; more followed it");
    }
    if line.ends_with(b"\n") {
        line.pop();
    }
    if line.ends_with(b"\r") {
        line.pop();
    }
    Ok(line)
}

fn failed(error: io::Error) -> Failure {
    Failure::Running(format!("cannot read the password: {error}."))
}

/// Turns off the terminal's echo until it is dropped or a signal ends the program.
struct EchoOff(Termios);

impl EchoOff {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let on_signal = before.clone();
        thread::Builder::new().spawn(move || {
            if let Some(signal) = signals.forever().next() {
                restore(&on_signal);
                process::exit(128 + signal);
            }
        })?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        restore(&self.0);
    }
}

fn restore(termios: &Termios) {
    // Nothing better can be done about a terminal that has gone away.
    let _ = tcsetattr(io::stdin(), OptionalActions::Flush, termios);
}
