//! A client of HTTP, and servers that share a folder.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::postgresql::Postgres;
use super::{Node, PATIENCE};

/// The folder that all nodes serve.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("millrace-cluster-http-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| error.to_string())
    }

    /// Servers that serve it.
    pub(super) fn nodes<const N: usize>(
        &self,
        database: &Postgres,
        names: [&str; N],
        lease: u32,
    ) -> [Node; N] {
        let keys = format!("http = \"127.0.0.1:0\"\ndirectory = \"{}\"", self.0.display());
        names.map(|name| Node::start(database, name, &keys, lease))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    /// A field of its head.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// The head of a request as the user `free`: `PUT /f`, with these lines and a body of this many bytes.
fn head(request: &str, lines: &[&str], length: Option<usize>) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
    format!(
        "{request} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic ZnJlZTpwYXNzd29yZA==\r\nConnection: close\r\n\
         {lines}{length}\r\n"
    )
}

/// Sends the head of a request for a body of this many bytes, and a part of that.
pub(super) fn begin(node: &Node, request: &str, lines: &[&str], length: usize, part: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&node.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head(request, lines, Some(length)).as_bytes()).unwrap();
    stream.write_all(part.as_bytes()).unwrap();
    stream
}

/// Reads an answer, up to the end.
pub(super) fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A server that refuses a body may reset the connection behind its answer.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// Sends a request.
pub(super) fn ask(node: &Node, request: &str, lines: &[&str], body: &str) -> Answer {
    let length = Some(body.len()).filter(|length| *length > 0 || request.starts_with("PUT"));
    let mut stream = TcpStream::connect(&node.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head(request, lines, length).as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    answer(stream)
}

/// The names in a folder.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
