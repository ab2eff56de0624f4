//! A receiver of webhooks that keeps what came.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What an event is about: its kind, the user and the path.
pub(crate) type Subject = (String, String, String);

/// The status of an answer to a post of these events.
type Answer = dyn Fn(&[Subject]) -> u16 + Send + Sync;

/// Listens until the process ends.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    /// The ids of events and what they are about, in the order in which they came.
    events: Arc<Mutex<Vec<(String, Subject)>>>,
    answer: Arc<Answer>,
}

impl Receiver {
    /// Takes all events.
    pub(crate) fn start() -> Self {
        Self::answering(|_| 204)
    }

    /// Answers with this status, once the events are on record.
    pub(crate) fn answering(answer: impl Fn(&[Subject]) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let receiver = Self { port, events: Arc::default(), answer: Arc::new(answer) };
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
        let events: BTreeMap<String, Subject> = self.arrived().into_iter().collect();
        let mut counts = BTreeMap::new();
        for subject in events.into_values() {
            *counts.entry(subject).or_insert(0) += 1;
        }
        counts
    }

    /// The ids of events and what they are about, in the order in which they came; again those that came again.
    pub(crate) fn arrived(&self) -> Vec<(String, Subject)> {
        self.events.lock().unwrap().clone()
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
        let mut subjects = Vec::new();
        for event in body.as_array().map_or(std::slice::from_ref(&body), Vec::as_slice) {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            let subject = (text("event"), text("user"), text("path"));
            self.events.lock().unwrap().push((text("id"), subject.clone()));
            subjects.push(subject);
        }
        let head = format!("HTTP/1.1 {} Heard\r\ncontent-length: 0\r\n\r\n", (self.answer)(&subjects));
        (&mut &*stream).write_all(head.as_bytes()).ok()
    }
}
