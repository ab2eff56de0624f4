//! A store that answers as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What is answered: a status with headers, each ended by `\r\n`, and a body, of which so many bytes are sent before the
/// connection ends, if not all.
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) cut: Option<usize>,
}

/// The store; its threads end with the test.
pub(crate) struct Scripted {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// Answers with what `answer` makes of the head of a request, in lower case, and of the number of requests before it.
    pub(crate) fn new(answer: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (noted, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                std::thread::spawn(move || serve(client, &noted, &*answer));
            }
        });
        Self { port, requests }
    }

    /// The heads of all requests, in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    client: TcpStream,
    noted: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str, usize) -> Answer,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        head.make_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().unwrap());
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        let before = {
            let mut noted = noted.lock().unwrap();
            noted.push(head.clone());
            noted.len() - 1
        };
        let Answer { head, body, cut } = answer(&head, before);
        let sent = cut.unwrap_or(body.len());
        (&client).write_all(format!("HTTP/1.1 {head}content-length: {}\r\n\r\n", body.len()).as_bytes())?;
        (&client).write_all(&body[..sent])?;
        if cut.is_some() {
            return client.shutdown(std::net::Shutdown::Both);
        }
    }
}
