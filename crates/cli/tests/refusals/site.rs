//! A server of its own at an address of its own, and what it says.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::faulty;

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

const PATIENCE: Duration = Duration::from_secs(60);

/// What a row wants of its server.
#[derive(Default)]
pub(crate) struct Setup {
    /// Keys of the file.
    pub(crate) keys: String,
    /// Keys of the user `alice`.
    pub(crate) alice: String,
    /// Tables of the file.
    pub(crate) tables: String,
    /// What a shell does before it becomes the server.
    pub(crate) shell: &'static str,
    /// Not the program, but the server within this one, on files whose device has a quota.
    pub(crate) faulty: bool,
    /// Something that listens at the server's address: `PORT` in the keys is its port.
    pub(crate) listens: bool,
}

pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    pub(crate) host: IpAddr,
    pub(crate) ftp: SocketAddr,
    pub(crate) http: SocketAddr,
    _listener: Option<TcpListener>,
    child: Child,
    log: Mutex<Receiver<String>>,
}

/// A client that was refused.
pub(crate) struct Refused {
    pub(crate) peer: SocketAddr,
    /// What it was told.
    pub(crate) reply: String,
}

impl Site {
    pub(crate) fn start(index: usize, setup: &Setup) -> Self {
        let id = std::process::id();
        // An address of its own, so that no other process's ports are in the way.
        let host = Ipv4Addr::new(127, 100 + (id % 100) as u8, (id / 100 % 250) as u8, index as u8 + 1);
        let folder = std::env::temp_dir().join(format!("millrace-refusals-{id}-{index}"));
        fs::create_dir_all(folder.join("files/cgi")).unwrap();
        fs::write(folder.join("files/f"), [b'x'; 1000]).unwrap();
        let program = folder.join("files/cgi/sleep");
        fs::write(&program, "#!/bin/sh\nexec sleep 30\n").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let listener = setup.listens.then(|| TcpListener::bind((host, 0)).unwrap());
        let port = listener.as_ref().map_or(0, |listener| listener.local_addr().unwrap().port());
        let ports =
            if setup.keys.contains("passive-ports") { "" } else { "passive-ports = \"61000-61015\"\n" };
        let text = format!(
            "directory = \"files\"\nftp = \"{host}:0\"\nhttp = \"{host}:0\"\nworkers = 1\ncontrol = \"control\"\n\
             users = \"off\"\nquotas = \"quotas.db\"\nstate = \"state\"\n{ports}{}\n[[user]]\nname = \"alice\"\n\
             password = \"{HASH}\"\ngroups = [\"staff\"]\n{}\n[[group]]\nname = \"staff\"\n{}",
            setup.keys, setup.alice, setup.tables
        );
        let text = text.replace("PORT", &port.to_string()).replace("HOST", &host.to_string());
        fs::write(folder.join("m.toml"), text).unwrap();
        let millrace = [env!("CARGO_BIN_EXE_millrace"), "serve", "--config", "m.toml"].map(str::to_owned);
        let command = match setup.faulty {
            false => millrace.to_vec(),
            true => faulty::COMMAND.iter().map(ToString::to_string).fold(this_program(), |mut all, word| {
                all.push(word);
                all
            }),
        };
        let mut child = Command::new("sh")
            .args(["-c", &format!("{}\nexec \"$@\"", setup.shell), "sh"])
            .args(command)
            .env("REFUSALS_HOST", host.to_string())
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut address = |scheme: &str| -> SocketAddr {
            let said = lines.find_map(|line| Some(line.split_once(scheme)?.1.to_owned()));
            let said = said.unwrap_or_else(|| panic!("no {scheme}: {:?}", log.iter().collect::<Vec<_>>()));
            said.split('/').next().unwrap().rsplit('@').next().unwrap().parse().unwrap()
        };
        let (ftp, http) = (address("ftp://"), address("http://"));
        assert!(lines.any(|line| line.starts_with("Ready")), "it is ready");
        Self { folder, host: host.into(), ftp, http, _listener: listener, child, log: Mutex::new(log) }
    }

    /// The line about this client with these words.
    #[track_caller]
    pub(crate) fn log_of(&self, peer: SocketAddr, words: &str) -> String {
        let (log, mut lines) = (self.log.lock().unwrap(), Vec::new());
        while let Ok(line) = log.recv_timeout(PATIENCE) {
            if line.contains(&format!(" {peer} ")) && line.contains(words) {
                return line;
            }
            lines.push(line);
        }
        panic!("no line of {peer} with {words}: {lines:#?}");
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["ctl", "--control", "control"])
            .args(arguments)
            .current_dir(&self.folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A client that has not read the greeting.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.ftp)
    }

    /// A client that was greeted.
    pub(crate) fn connect(&self) -> Client {
        let mut client = self.client();
        client.expect("220");
        client
    }

    pub(crate) fn log_in(&self) -> Client {
        let mut client = self.connect();
        for (line, code) in [("USER alice", "331"), ("PASS password", "230"), ("TYPE I", "200")] {
            client.say(line, code);
        }
        client
    }

    /// A client of HTTP.
    pub(crate) fn browse(&self) -> Client {
        Client::new(self.http)
    }
}

fn this_program() -> Vec<String> {
    vec![std::env::current_exe().unwrap().to_str().expect("the path is text").to_owned()]
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A connection, of either protocol.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// The next line.
    pub(crate) fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, code: &str) -> String {
        let line = self.reply();
        assert!(line.starts_with(code), "expected {code}: {line:?}");
        line
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    pub(crate) fn say(&mut self, line: &str, code: &str) -> String {
        self.send(&format!("{line}\r\n"));
        self.expect(code)
    }

    /// A data connection.
    pub(crate) fn passive(&mut self) -> TcpStream {
        let reply = self.say("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        TcpStream::connect((self.0.get_ref().peer_addr().unwrap().ip(), port)).unwrap()
    }

    /// Sends a file; the last reply.
    pub(crate) fn store(&mut self, content: &[u8]) -> String {
        let mut data = self.passive();
        self.send("STOR new\r\n");
        let first = self.reply();
        if !first.starts_with("150") {
            return first;
        }
        // It may be cut before all of it is taken.
        let _ = data.write_all(content);
        drop(data);
        self.reply()
    }

    /// Asks for a file; the last reply.
    pub(crate) fn fetch(&mut self) -> String {
        let mut data = self.passive();
        self.send("RETR f\r\n");
        let first = self.reply();
        if !first.starts_with("150") {
            return first;
        }
        let _ = data.read_to_end(&mut Vec::new());
        self.reply()
    }

    /// A request as `alice`.
    pub(crate) fn request(&mut self, line: &str, fields: &str, body: &str) {
        let length = body.len();
        self.send(&format!(
            "{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        ));
    }

    /// The answer, head and body.
    pub(crate) fn response(&mut self) -> String {
        let (mut text, mut length) = (String::new(), 0);
        loop {
            let line = self.reply();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            text += &line;
            if line.trim_end().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        text + &String::from_utf8_lossy(&body)
    }

    /// What it was told.
    pub(crate) fn told(&self, reply: String) -> Refused {
        Refused { peer: self.0.get_ref().local_addr().unwrap(), reply }
    }
}
