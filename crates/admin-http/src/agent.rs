//! The agent that HAProxy asks whether a server takes new clients: a line `agent` in place of a request.
//!
//! The answer is a line of its own too, as HAProxy's `agent-check` defines it. A request of HTTP begins with a capital
//! letter, so the first byte tells them apart and no further address is needed.

use std::io;

use millrace_server::{Readiness, Running};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What asks.
const QUESTION: &[u8] = b"agent\n";

/// Returns true if what begins with this byte is no request of HTTP.
pub(crate) fn is_asked(first: u8) -> bool {
    first == QUESTION[0]
}

/// Reads the question, answers it, and hangs up. Another line gets no answer.
pub(crate) async fn answer(mut stream: TcpStream, server: Option<&Running>) -> io::Result<()> {
    let mut asked = [0; QUESTION.len()];
    stream.read_exact(&mut asked).await?;
    if asked == QUESTION {
        stream.write_all(state(server.map(Running::readiness)).as_bytes()).await?;
    }
    stream.shutdown().await
}

/// `ready` and `up` lift what an earlier answer has said.
fn state(readiness: Option<Readiness>) -> &'static str {
    match readiness {
        Some(Readiness::Ready) => "ready up\n",
        Some(Readiness::Draining | Readiness::HandedOver) | None => "drain\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_takes_no_clients_is_drained_and_not_down() {
        assert_eq!(state(Some(Readiness::Ready)), "ready up\n");
        for readiness in [Some(Readiness::Draining), Some(Readiness::HandedOver), None] {
            assert_eq!(state(readiness), "drain\n");
        }
    }
}
