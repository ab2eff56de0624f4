//! A thousand sessions, each limited to 100 KB/s: what each got in ten seconds, and what the server spent.
//!
//! ```text
//! cargo run --release -p millrace-server --example limited_sessions [sessions] [bytes a second] [seconds]
//! ```
//!
//! The server is a process of its own; its processor time is taken from `/proc`.

use std::error::Error;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_server::config::LogFormat;
use millrace_server::limits::{Limit, Limits, ServerLimits};
use millrace_server::{Accounts, Config, Permissions, Server};
use millrace_storage::{LocalOptions, LocalStorage};

/// How often the client looks at its sockets.
const LOOK: Duration = Duration::from_millis(25);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let number = |index: usize, default: u64| arguments.get(index).copied().unwrap_or(default);
    let (sessions, rate, seconds) = (number(0, 1000), number(1, 100_000), number(2, 10));
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return serve(number(0, rate));
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", &rate.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let address: SocketAddr = line.trim().parse()?;
    let measured = measure(address, child.id(), sessions, Duration::from_secs(seconds));
    drop(child.stdin.take());
    child.wait()?;
    let (mut got, took, cpu) = measured?;
    got.sort_unstable();
    let expected = rate as f64 * took.as_secs_f64();
    let off = |bytes: &u64| (*bytes as f64 / expected - 1.0) * 100.0;
    let within = got.iter().filter(|bytes| off(bytes).abs() <= 2.0).count();
    println!("{sessions} sessions, each limited to {rate} bytes/s, {:.2} s", took.as_secs_f64());
    println!(
        "off the limit: least {:+.2} %, median {:+.2} %, most {:+.2} %; within 2 %: {within} of {}",
        got.first().map_or(0.0, off),
        got.get(got.len() / 2).map_or(0.0, off),
        got.last().map_or(0.0, off),
        got.len()
    );
    println!("server: {:.1} % of a core", cpu.as_secs_f64() / took.as_secs_f64() * 100.0);
    Ok(())
}

/// The server, until its input ends.
fn serve(rate: u64) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("millrace-limited-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("f"), vec![b'x'; 64 << 20])?;
    let storage = Arc::new(LocalStorage::open(&folder, LocalOptions::default())?);
    let accounts = Accounts::new().user("u", "p", Permissions::READ_ONLY, storage);
    let limits = Limits { download: (rate > 0).then(|| Limit::of(rate)), ..Limits::default() };
    let running = Server::start(Config {
        ftp: vec!["127.0.0.1:0".parse()?],
        limits: ServerLimits { session: limits, ..ServerLimits::default() },
        passive_ports: 20_000..=22_999,
        log: LogFormat::Off,
        ..Config::new(Arc::new(accounts))
    })?;
    println!("{}", running.ftp_addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    running.stop_now();
    Ok(std::fs::remove_dir_all(folder)?)
}

type Measured = (Vec<u64>, Duration, Duration);

fn measure(
    address: SocketAddr,
    server: u32,
    count: u64,
    period: Duration,
) -> Result<Measured, Box<dyn Error>> {
    let mut sessions = (0..count).map(|_| begin(address)).collect::<Result<Vec<_>, _>>()?;
    let mut buffer = vec![0; 1 << 20];
    let mut look = |got: &mut Vec<u64>| -> Result<(), Box<dyn Error>> {
        for ((_, data), got) in sessions.iter_mut().zip(got) {
            match data.read(&mut buffer) {
                Ok(count) => *got += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        sleep(LOOK);
        Ok(())
    };
    // What comes first is the end of the ramp.
    let mut got = vec![0; count as usize];
    let ramp = Instant::now();
    while ramp.elapsed() < Duration::from_secs(2) {
        look(&mut got)?;
    }
    let (start, before) = (Instant::now(), processor_time(server)?);
    got.fill(0);
    while start.elapsed() < period {
        look(&mut got)?;
    }
    Ok((got, start.elapsed(), processor_time(server)? - before))
}

/// A session with a download under way: its control and its data connection.
fn begin(address: SocketAddr) -> Result<(BufReader<TcpStream>, TcpStream), Box<dyn Error>> {
    let mut control = BufReader::new(TcpStream::connect(address)?);
    let mut reply = String::new();
    control.read_line(&mut reply)?;
    for command in ["USER u", "PASS p", "TYPE I", "EPSV"] {
        write!(control.get_mut(), "{command}\r\n")?;
        reply.clear();
        control.read_line(&mut reply)?;
    }
    let port = reply.split('|').nth(3).ok_or("no port")?.parse()?;
    let data = TcpStream::connect((address.ip(), port))?;
    data.set_nonblocking(true)?;
    write!(control.get_mut(), "RETR f\r\n")?;
    Ok((control, data))
}

/// Processor time of a process so far, from `/proc`, in ticks of 10 ms.
fn processor_time(process: u32) -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
