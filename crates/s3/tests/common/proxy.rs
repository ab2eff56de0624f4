//! A proxy before a store that notes each request, and holds them back from some on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// A proxy; its threads end with the test.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// `PUT /files/key` of each request, without what follows a question mark but its first word.
    requests: Vec<String>,
    /// How many more requests with `x-amz-copy-source` pass, where that is bounded.
    copies: Option<usize>,
    /// How many are held back.
    held: usize,
}

impl Proxy {
    pub(crate) fn before(store: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let of_threads = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (shared, store) = (Arc::clone(&of_threads), TcpStream::connect(("127.0.0.1", store)));
                let Ok(store) = store else { continue };
                let (mut back, mut answers) = (client.try_clone().unwrap(), store.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
                std::thread::spawn(move || shared.forward(BufReader::new(client), store));
            }
        });
        Self { port, shared }
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state.lock().unwrap().requests)
    }

    /// Lets so many copies pass, also of those that are held back, and holds back all others.
    pub(crate) fn hold_after(&self, copies: usize) {
        self.shared.state.lock().unwrap().copies = Some(copies);
        self.shared.changed.notify_all();
    }

    /// Waits until that many have passed and another one is held back.
    pub(crate) fn wait_until_held(&self) {
        let state = self.shared.state.lock().unwrap();
        drop(self.shared.changed.wait_while(state, |state| state.held == 0).unwrap());
    }
}

impl Shared {
    fn forward(&self, mut client: BufReader<TcpStream>, mut store: TcpStream) -> std::io::Result<()> {
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if client.read_line(&mut head)? == 0 {
                    return store.shutdown(std::net::Shutdown::Both);
                }
            }
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = client.by_ref().take(length.map_or(0, |length| length.trim().parse().unwrap()));
            let first: Vec<&str> = head.split(' ').take(2).collect();
            let what = first.join(" ").split('&').next().unwrap_or_default().to_owned();
            self.admit(what, lower.contains("x-amz-copy-source:"));
            store.write_all(head.as_bytes())?;
            std::io::copy(&mut body, &mut store)?;
        }
    }

    /// Waits until a request may pass.
    fn admit(&self, what: String, is_copy: bool) {
        let mut state = self.state.lock().unwrap();
        state.requests.push(what);
        if !is_copy {
            return;
        }
        if state.copies == Some(0) {
            state.held += 1;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |state| state.copies == Some(0)).unwrap();
            state.held -= 1;
        }
        if let Some(more) = &mut state.copies {
            *more -= 1;
        }
    }
}
