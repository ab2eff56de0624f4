//! A client that makes one request and leaves, and takes any failure for no answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// For how long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// `ann:password`.
const AUTHORIZATION: &str = "Basic YW5uOnBhc3N3b3Jk";

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Makes a request of HTTP; returns its status and its body, which is as long as its head says.
pub(crate) fn ask(
    server: SocketAddr,
    method: &str,
    path: &str,
    content: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = BufReader::new(connect(server)?);
    let length =
        if method == "PUT" { format!("Content-Length: {}\r\n", content.len()) } else { String::new() };
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: {AUTHORIZATION}\r\n{length}\r\n");
    stream.get_mut().write_all(head.as_bytes())?;
    stream.get_mut().write_all(content)?;
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let (mut line, mut status, mut length) = (String::new(), None, 0);
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let field = line.to_ascii_lowercase();
        if status.is_none() {
            status = field.split(' ').nth(1).and_then(|code| code.parse().ok());
        } else if let Some(value) = field.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| wrong())?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status.ok_or_else(wrong)?, body))
}

/// Uploads by FTP; returns the last reply.
pub(crate) fn store(server: SocketAddr, path: &str, content: &[u8]) -> io::Result<String> {
    let mut lines = BufReader::new(connect(server)?);
    let mut reply = String::new();
    let mut say = |command: &str, reply: &mut String| {
        if !command.is_empty() {
            lines.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        }
        reply.clear();
        lines.read_line(reply).map(drop)
    };
    for (command, code) in [("", "220"), ("USER ann", "331"), ("PASS password", "230"), ("EPSV", "229")] {
        say(command, &mut reply)?;
        if !reply.starts_with(code) {
            return Ok(reply);
        }
    }
    let port =
        reply.split('|').nth(3).and_then(|port| port.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let mut data = connect(SocketAddr::new(server.ip(), port))?;
    say(&format!("STOR {path}"), &mut reply)?;
    if reply.starts_with("150") {
        data.write_all(content)?;
        drop(data);
        say("", &mut reply)?;
    }
    Ok(reply)
}
