//! A receiver of webhooks that keeps what came.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What an event is about: its kind, the user and the path.
pub(crate) type Subject = (String, String, String);

/// Listens until the process ends.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    events: Arc<Mutex<BTreeMap<String, Subject>>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let receiver = Self { port, events: Arc::default() };
        let its = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let its = its.clone();
                std::thread::spawn(move || while its.take(&stream).is_some() {});
            }
        });
        receiver
    }

    /// How many different events came about each subject.
    pub(crate) fn counts(&self) -> BTreeMap<Subject, usize> {
        let events = self.events.lock().unwrap();
        let mut counts = BTreeMap::new();
        for subject in events.values() {
            *counts.entry(subject.clone()).or_insert(0) += 1;
        }
        counts
    }

    /// Takes one request.
    fn take(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body: serde_json::Value = serde_json::from_slice(&body).ok()?;
        for event in body.as_array().map_or(std::slice::from_ref(&body), Vec::as_slice) {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            let subject = (text("event"), text("user"), text("path"));
            self.events.lock().unwrap().insert(text("id"), subject);
        }
        (&mut &*stream).write_all(b"HTTP/1.1 204 Taken\r\ncontent-length: 0\r\n\r\n").ok()
    }
}
