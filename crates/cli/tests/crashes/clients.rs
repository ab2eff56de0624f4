//! An FTP and an HTTP client that report a connection that breaks as an error, because servers are killed under them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than an operation takes, short enough to end a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PASSWORD: &str = "password";

fn broken() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// A control connection, logged in.
#[derive(Debug)]
pub(crate) struct Ftp {
    control: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Ftp {
    pub(crate) fn log_in(address: SocketAddr, user: &str) -> io::Result<Self> {
        let mut ftp = Self { control: connect(address)?, address };
        ftp.reply()?;
        ftp.command(&format!("USER {user}"))?;
        let (code, text) = ftp.command(&format!("PASS {PASSWORD}"))?;
        assert_eq!(code, 230, "{text}");
        ftp.command("TYPE I")?;
        Ok(ftp)
    }

    /// Sends a command; the code of its reply, and all of its text.
    pub(crate) fn command(&mut self, line: &str) -> io::Result<(u16, String)> {
        self.control.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    /// Uploads by a command; the code of the last reply.
    pub(crate) fn upload(&mut self, command: &str, contents: &[u8]) -> io::Result<u16> {
        let (_, text) = self.command("EPSV")?;
        let port = text.split('|').nth(3).and_then(|port| port.parse().ok()).ok_or_else(broken)?;
        let mut data = TcpStream::connect_timeout(&(self.address.ip(), port).into(), PATIENCE)?;
        data.set_write_timeout(Some(PATIENCE))?;
        let (code, _) = self.command(command)?;
        if code >= 400 {
            return Ok(code);
        }
        // An upload that is refused in its midst ends with a reset; the reply says why.
        let _ = data.write_all(contents);
        drop(data);
        Ok(self.reply()?.0)
    }

    fn reply(&mut self) -> io::Result<(u16, String)> {
        let mut text = String::new();
        loop {
            let begin = text.len();
            if self.control.read_line(&mut text)? == 0 || !text.ends_with('\n') {
                return Err(broken());
            }
            let line = &text.as_bytes()[begin..];
            if line.len() > 3 && line[..3].iter().all(u8::is_ascii_digit) && line[3] == b' ' {
                let code = text[begin..begin + 3].parse().map_err(io::Error::other)?;
                return Ok((code, text));
            }
        }
    }
}

/// A connection of HTTP that stays open.
#[derive(Debug)]
pub(crate) struct Http {
    stream: BufReader<TcpStream>,
    login: &'static str,
}

/// The status of a response, and its fields in lower case.
pub(crate) struct Response {
    pub(crate) status: u16,
    fields: String,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.fields.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Http {
    pub(crate) fn connect(address: SocketAddr, user: &str) -> io::Result<Self> {
        let login = match user {
            "alice" => "YWxpY2U6cGFzc3dvcmQ=",
            "bob" => "Ym9iOnBhc3N3b3Jk",
            _ => "Y2Fyb2w6cGFzc3dvcmQ=",
        };
        Ok(Self { stream: connect(address)?, login })
    }

    /// Sends a request with further fields, each of which ends in CR LF.
    pub(crate) fn request(&mut self, line: &str, fields: &str, body: &[u8]) -> io::Result<Response> {
        let Self { stream, login } = self;
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {login}\r\n{fields}Content-Length: {length}\r\n\r\n"
        );
        stream.get_mut().write_all(head.as_bytes())?;
        // A server that refuses closes early; its response says why.
        let _ = stream.get_mut().write_all(body);
        let mut fields = String::new();
        while !fields.ends_with("\r\n\r\n") {
            if stream.read_line(&mut fields)? == 0 {
                return Err(broken());
            }
        }
        let status = fields.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
        let response = Response { status, fields };
        let length = response.field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if !line.starts_with("HEAD ") {
            stream.read_exact(&mut vec![0; length])?;
        }
        Ok(response)
    }
}
