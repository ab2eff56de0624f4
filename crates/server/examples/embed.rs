//! A server inside a program, as an integration test has it: files in memory, accounts and hooks of its own, a
//! free port.
//!
//! ```text
//! cargo run -p millrace-server --example embed
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_server::config::LogFormat;
use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks, Refusal};
use millrace_server::storage::MemoryStorage;
use millrace_server::vfs::Wait;
use millrace_server::{Account, Attempt, Authenticator, Config, Decision, Permissions, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let sensors = Arc::new(Sensors::default());
    let config = Config {
        ftp: vec!["127.0.0.1:0".parse()?],
        log: LogFormat::Off,
        hooks: Some(Arc::new(Plausible)),
        ..Config::new(Arc::clone(&sensors) as Arc<dyn Authenticator>)
    };
    let running = Server::start(config)?;
    let address = running.ftp_addresses()[0];
    println!("serving ftp://{address}/");

    upload(address, "sensor-7", "reading.txt", b"21.5 C\n")?;

    // The program sees at once what its clients upload.
    let tree = sensors.tree(b"sensor-7");
    println!("sensor-7 sent {:?}", tree.read("/reading.txt").map(|bytes| bytes.escape_ascii().to_string()));
    // What no sensor can have measured was refused.
    assert!(upload(address, "sensor-8", "reading.txt", b"a virus\n").is_err());
    running.shut_down();
    Ok(())
}

#[test]
fn it_does_what_it_says() -> Result<(), Box<dyn Error>> {
    main()
}

/// Looks at every file before its sender is told that it has arrived.
#[derive(Debug)]
struct Plausible;

impl Hooks for Plausible {
    fn concerns(&self, event: Event, _: &str) -> bool {
        event == Event::Upload
    }

    /// Called where waiting is allowed; only the session that uploads waits.
    fn call(&self, context: &EventContext) -> HookVerdict {
        let (Some(files), Some(path)) = (&context.storage, &context.path) else { return HookVerdict::Pass };
        let is_plausible = files.metadata(path, Wait::Allowed).is_ok_and(|file| (1..=7).contains(&file.size));
        if is_plausible {
            return HookVerdict::Pass;
        }
        let _ = files.remove_file(path);
        HookVerdict::Refuse(Refusal::new("This is not a reading."))
    }
}

/// Accounts of a kind that no list holds: every `sensor-<number>` may log in, to a tree of its own.
#[derive(Debug, Default)]
struct Sensors(Mutex<HashMap<Vec<u8>, Arc<MemoryStorage>>>);

impl Sensors {
    fn tree(&self, name: &[u8]) -> Arc<MemoryStorage> {
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(trees.entry(name.to_vec()).or_default())
    }
}

impl Authenticator for Sensors {
    /// Called where waiting is allowed: a database could be asked here.
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        let number = attempt.user.strip_prefix(b"sensor-").unwrap_or_default();
        let is_sensor = matches!(number.len(), 1..=4) && number.iter().all(u8::is_ascii_digit);
        // One secret for all of them is for an example only; `Accounts` keeps hashes.
        if !is_sensor || attempt.password != b"installed-in-2026" {
            return Decision::Denied;
        }
        Decision::Granted(Account::new(self.tree(attempt.user), Permissions::READ_WRITE))
    }
}

/// The least that an FTP client does to store a file.
fn upload(address: SocketAddr, user: &str, name: &str, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut control = BufReader::new(TcpStream::connect(address)?);
    expect(&mut control, "220")?;
    command(&mut control, &format!("USER {user}"), "331")?;
    command(&mut control, "PASS installed-in-2026", "230")?;
    let passive = command(&mut control, "EPSV", "229")?;
    let port = passive.split('|').nth(3).ok_or("no port in the reply")?.parse()?;
    write!(control.get_mut(), "STOR {name}\r\n")?;
    let mut data = TcpStream::connect((address.ip(), port))?;
    data.write_all(content)?;
    drop(data);
    expect(&mut control, "150")?;
    expect(&mut control, "226")?;
    command(&mut control, "QUIT", "221")?;
    Ok(())
}

fn command(control: &mut BufReader<TcpStream>, line: &str, code: &str) -> Result<String, Box<dyn Error>> {
    write!(control.get_mut(), "{line}\r\n")?;
    expect(control, code)
}

fn expect(control: &mut BufReader<TcpStream>, code: &str) -> Result<String, Box<dyn Error>> {
    let mut reply = String::new();
    control.read_line(&mut reply)?;
    match reply.starts_with(code) {
        true => Ok(reply),
        false => Err(format!("expected {code}, but the server said {reply:?}").into()),
    }
}
