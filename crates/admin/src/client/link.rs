//! A connection to a server's control socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::ClientError;

/// The server at a control socket: one connection for all requests, made anew where it has broken.
pub(super) struct ServerLink {
    socket: PathBuf,
    stream: Option<BufReader<UnixStream>>,
    /// How long an answer may take.
    patience: Duration,
}

impl ServerLink {
    /// Leads to the server at `socket`, whose answers may take as long as `patience`.
    pub(super) fn new(socket: &Path, patience: Duration) -> Self {
        Self { socket: socket.to_owned(), stream: None, patience }
    }

    /// Asks once more where the connection has broken, which is right for questions alone.
    pub(super) fn ask_again(&mut self, request: &Value) -> Result<Value, ClientError> {
        match self.exchange(request) {
            Ok(answer) => parsed(&answer),
            Err(_) => self.ask(request),
        }
    }

    /// Returns the answer to a request.
    pub(super) fn ask(&mut self, request: &Value) -> Result<Value, ClientError> {
        parsed(&self.ask_for_line(request)?)
    }

    /// Returns the answer as the server wrote it.
    pub(super) fn ask_for_line(&mut self, request: &Value) -> Result<String, ClientError> {
        let socket = self.socket.clone();
        self.exchange(request).map_err(|error| ClientError::NoAnswer { socket, error })
    }

    /// Asks, and hands over each line behind the answer, until `take` says no more, the time has come or the server ends.
    pub(super) fn follow(
        &mut self,
        request: &Value,
        until: Option<Instant>,
        mut take: impl FnMut(&str) -> Result<bool, ClientError>,
    ) -> Result<(), ClientError> {
        self.ask(request)?;
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let no_answer = |error| ClientError::NoAnswer { socket: self.socket.clone(), error };
        let mut line = Vec::new();
        loop {
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            if rest == Some(Duration::ZERO) {
                return Ok(());
            }
            stream.get_ref().set_read_timeout(rest).map_err(no_answer)?;
            match stream.read_until(b'\n', &mut line) {
                Ok(_) if line.last() != Some(&b'\n') => return Ok(()),
                Ok(_) if !take(&String::from_utf8_lossy(&line))? => return Ok(()),
                Ok(_) => line.clear(),
                // The time has come, or nearly.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(no_answer(error)),
            }
        }
    }

    fn exchange(&mut self, request: &Value) -> io::Result<String> {
        let answer = self.write_and_read(request);
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    fn write_and_read(&mut self, request: &Value) -> io::Result<String> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = UnixStream::connect(&self.socket)?;
                stream.set_read_timeout(Some(self.patience))?;
                self.stream.insert(BufReader::new(stream))
            }
        };
        stream.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        match stream.read_line(&mut answer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(answer),
        }
    }
}

/// Reads an answer, or the error that it is.
pub(super) fn parsed(answer: &str) -> Result<Value, ClientError> {
    let parsed: Value =
        serde_json::from_str(answer).map_err(|error| ClientError::NotAnAnswer(answer.to_owned(), error))?;
    match parsed["ok"] == true {
        true => Ok(parsed),
        false => Err(ClientError::Refused(told_by_the_server(&parsed["error"]))),
    }
}

/// Returns an error of a server, which may quote lines of a file and what clients named.
pub(super) fn told_by_the_server(error: &Value) -> String {
    let text = error.as_str().unwrap_or("it says not why").trim_end_matches('.');
    let shown = |char: char| match char {
        '\n' => "\n".to_owned(),
        char if char.is_control() => char.escape_debug().to_string(),
        char => char.to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_is_shown_as_it_was_written_and_moves_no_cursor() {
        let error = json!("m.toml:1:9: no \"thing\"\n    1 | \u{1b}[2J.");
        assert_eq!(told_by_the_server(&error), "m.toml:1:9: no \"thing\"\n    1 | \\u{1b}[2J");
    }
}
