//! Why `millrace ctl` gives up.

use std::io;
use std::path::PathBuf;

/// Why a request has not been carried out: a full sentence or more.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(&'static str),
    /// No server answers at the socket.
    #[error("no answer from {}: {error}; is a server running with --control {}?", socket.display(), socket.display())]
    NoAnswer {
        /// The control socket.
        socket: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// No socket was named, and none is where they are by default.
    #[error("no running server of this user was found (control sockets were looked for in {}); start one with \"millrace serve\", or name its control socket by --control FILE.", list(.0))]
    NoServer(Vec<PathBuf>),
    /// No socket was named, and several servers run.
    #[error("several servers run; name one by --control FILE:{}", lines(.0))]
    ManyServers(Vec<FoundServer>),
    /// What came is not a line of JSON.
    #[error("{0:?} is no answer: {1}.")]
    NotAnAnswer(String, #[source] serde_json::Error),
    /// The server's own words.
    #[error("{}", sentence(.0))]
    Refused(String),
    /// A kick that met nothing.
    #[error("no session matches; \"millrace ctl sessions\" lists them.")]
    NoSession,
    /// A receiver of notices did not take a trial.
    #[error("a receiver did not take the trial.")]
    NoticeNotTaken,
    /// The terminal of `top`.
    #[error("the terminal cannot be used: {0}.")]
    Terminal(#[source] io::Error),
    /// Standard output.
    #[error("cannot write to standard output: {0}.")]
    Output(#[source] io::Error),
}

/// A server that answers where its socket was looked for.
#[derive(Debug)]
pub struct FoundServer {
    /// Its control socket.
    pub(super) socket: PathBuf,
    /// Where it listens: `ftp://127.0.0.1:2121/`.
    pub(super) urls: Vec<String>,
}

/// Returns a text with its full stop. One that ends with quoted lines has it before them.
fn sentence(text: &str) -> String {
    if text.contains('\n') { text.to_owned() } else { format!("{text}.") }
}

/// Returns a line for each server.
fn lines(servers: &[FoundServer]) -> String {
    let line = |server: &FoundServer| format!("\n  {}   {}", server.socket.display(), server.urls.join(" "));
    servers.iter().map(line).collect()
}

/// Returns paths with commas between them.
fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_quotes_a_file_has_no_full_stop_behind_the_quotation() {
        let told = |text: &str| ClientError::Refused(text.to_owned()).to_string();
        assert_eq!(told("it is full"), "it is full.");
        assert_eq!(told("m.toml:1:1: no.\n 1 | a\n   | ^"), "m.toml:1:1: no.\n 1 | a\n   | ^");
    }
}
