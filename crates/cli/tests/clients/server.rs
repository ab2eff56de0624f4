//! The server under test: the real binary, on a free port, over a directory that goes with the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Who logs in, everywhere.
pub(crate) const USER: &str = "alice";
/// Its password.
pub(crate) const PASSWORD: &str = "s3cret";

/// Lines of the server's log that a failed test shows.
const LOG_TAIL: usize = 60;

/// How long a line of the log may take to be there.
const LOG_PATIENCE: Duration = Duration::from_secs(30);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A running server. It ends, and its directories go, when it is dropped.
pub(crate) struct Server {
    child: Child,
    scratch: Scratch,
    /// What it was started with.
    arguments: Vec<String>,
    /// Where it serves FTP.
    pub(crate) address: SocketAddr,
    /// Where it serves HTTP.
    pub(crate) http: Option<SocketAddr>,
    /// Where it serves FTP that begins with TLS.
    pub(crate) ftps: Option<SocketAddr>,
    /// Where it serves HTTP that begins with TLS.
    pub(crate) https: Option<SocketAddr>,
}

impl Server {
    /// Serves an empty tree to one user, read and write.
    pub(crate) fn start() -> Self {
        Self::on("127.0.0.1:0")
    }

    /// The same, elsewhere.
    pub(crate) fn on(listen: &str) -> Self {
        Self::with(listen, &[])
    }

    /// The same, with further arguments.
    pub(crate) fn with(listen: &str, arguments: &[&str]) -> Self {
        Self::over(Scratch::new(), listen, arguments)
    }

    /// The same, with a configuration file, and more files that lie beside it.
    pub(crate) fn configured_with(configuration: &str, files: &[(&str, &[u8])]) -> Self {
        Self::configured_on("127.0.0.1:0", configuration, files)
    }

    /// The same, elsewhere.
    pub(crate) fn configured_on(listen: &str, configuration: &str, files: &[(&str, &[u8])]) -> Self {
        let scratch = Scratch::new();
        let file = scratch.0.join("millrace.toml");
        fs::write(&file, configuration).unwrap();
        for (name, content) in files {
            let file = scratch.0.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        Self::over(scratch, listen, &["--config", file.to_str().unwrap()])
    }

    /// With a certificate of its own, explicit and implicit FTPS, HTTPS, and this policy about resumption.
    pub(crate) fn secure(resumption: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.0.join("millrace.toml");
        let ports = own_ports();
        let text = format!("tls-resumption = \"{resumption}\"\npassive-ports = \"{ports}\"\n");
        fs::write(&file, text).unwrap();
        let (file, state) = (file.display().to_string(), scratch.state().display().to_string());
        let mut arguments = vec!["--config", &file, "--tls-self-signed", "--state", &state];
        arguments.extend(["--ftps", "127.0.0.1:0", "--https", "127.0.0.1:0"]);
        Self::over(scratch, "127.0.0.1:0", &arguments)
    }

    fn over(scratch: Scratch, listen: &str, arguments: &[&str]) -> Self {
        let arguments: Vec<String> =
            ["--ftp", listen].iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
        let (child, [address, http, ftps, https]) = launch(&scratch, &arguments);
        Self { child, scratch, arguments, address: address.expect("FTP is served"), http, ftps, https }
    }

    /// Kills it, as nothing else ends a process, and starts another over the same folders, on other ports.
    pub(crate) fn is_killed_and_started_again(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let (child, [address, http, ftps, https]) = launch(&self.scratch, &self.arguments);
        (self.child, self.http, self.ftps, self.https) = (child, http, ftps, https);
        self.address = address.expect("FTP is served");
    }

    /// Its certificate, which clients are to trust.
    pub(crate) fn authority(&self) -> PathBuf {
        self.scratch.state().join("tls/self-signed/certificate.pem")
    }

    /// Puts a changed configuration in force, by its control socket.
    pub(crate) fn reload(&self, socket: &Path) {
        let reload = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["ctl", "--control", socket.to_str().unwrap(), "reload"])
            .output()
            .unwrap();
        assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
    }

    /// The served folder.
    pub(crate) fn served(&self) -> PathBuf {
        self.scratch.served()
    }

    /// Where the client is: the directory that it is started in.
    pub(crate) fn local(&self) -> PathBuf {
        self.scratch.0.join("local")
    }

    /// The client's home, empty: no user settings apply.
    pub(crate) fn home(&self) -> PathBuf {
        self.scratch.0.join("home")
    }

    /// The URL of a path (as URLs have it, without the slash in front), with name and password in it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{USER}:{PASSWORD}@{}/{path}", self.address)
    }

    /// The same by HTTP, without a name in it.
    pub(crate) fn http_url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.http.expect("HTTP is served by default"))
    }

    /// The same by HTTP in TLS.
    pub(crate) fn https_url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.https.expect("it was asked for"))
    }

    /// Waits until the log says something this many times, and answers the log. It is written behind what happens.
    #[track_caller]
    pub(crate) fn log_with(&self, text: &str, count: usize) -> String {
        let deadline = Instant::now() + LOG_PATIENCE;
        loop {
            let log = self.log();
            if log.matches(text).count() >= count {
                return log;
            }
            assert!(Instant::now() < deadline, "not {count} times {text:?} in:\n{log}");
            std::thread::yield_now();
        }
    }

    /// What the server wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.scratch.log()).unwrap_or_default()).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- the server's log:\n{}", lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n"));
        }
    }
}

/// Passive ports that no other server of these tests is likely to have, nor any client: those of clients begin above.
fn own_ports() -> String {
    const COUNT: u32 = 64;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id().wrapping_mul(7).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
    let first = 30_000 + number % 42 * COUNT;
    format!("{first}-{}", first + COUNT - 1)
}

/// Starts a server; answers where it serves FTP, HTTP, FTPS and HTTPS.
fn launch(scratch: &Scratch, arguments: &[String]) -> (Child, [Option<SocketAddr>; 4]) {
    // What it keeps is its own, as all the rest.
    let state: &[PathBuf] = match arguments.iter().any(|argument| argument == "--state") {
        true => &[],
        false => &["--state".into(), scratch.state()],
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .arg("serve")
        .arg(scratch.served())
        .args(state)
        .args(["--user", &format!("{USER}:{PASSWORD}:rw")])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::options().create(true).append(true).open(scratch.log()).unwrap())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut addresses = [None; 4];
    for line in stdout.lines() {
        let line = line.unwrap();
        for (address, scheme) in addresses.iter_mut().zip(["ftp://", "http://", "ftps://", "https://"]) {
            *address = address.or_else(|| address_of(scheme, &line));
        }
        if line.starts_with("Ready") {
            break;
        }
    }
    if addresses[0].is_none() {
        let _ = child.kill();
        panic!("the server did not say where it serves:\n{}", fs::read_to_string(scratch.log()).unwrap());
    }
    (child, addresses)
}

/// The address in a line that has a URL: `ftp://127.0.0.1:40123/`, with a name before an `@` or not.
fn address_of(scheme: &str, line: &str) -> Option<SocketAddr> {
    let (_, url) = line.split_once(scheme)?;
    let authority = url.split(|end: char| end == '/' || end.is_whitespace()).next()?;
    authority.rsplit('@').next()?.parse().ok()
}

/// A directory that vanishes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("millrace-clients-{}-{number}", std::process::id()));
        let scratch = Self(root);
        for part in ["served", "local", "home"] {
            fs::create_dir_all(scratch.0.join(part)).unwrap();
        }
        scratch
    }

    fn served(&self) -> PathBuf {
        self.0.join("served")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The contents of a file, for comparisons.
pub(crate) fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
