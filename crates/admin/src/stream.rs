//! What a client of the control socket follows live: lines of JSON behind the answer, until it hangs up.
//!
//! The thread of the client waits for it. What it does not take in time is counted where the lines come from, and told as
//! `{"dropped":7}`.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use millrace_server::Live;
use rustix::net::{RecvFlags, recv};
use serde_json::{Map, Value};

use super::administration::{Administration, Wake};

/// How often it is looked whether the client is still there.
const PULSE: Duration = Duration::from_secs(1);

/// Returns whether an order is followed live.
pub(super) fn is_live(order: &Map<String, Value>) -> bool {
    matches!(order.get("do").and_then(Value::as_str), Some("trace" | "log"))
}

/// Returns what says that there are lines, and hears it.
pub(super) fn bell() -> (Wake, Receiver<()>) {
    let (sender, woken) = sync_channel(1);
    // One word that waits is enough.
    let ring = move || _ = sender.try_send(());
    (Box::new(ring), woken)
}

/// Sends lines until the client hangs up or the server ends.
pub(super) fn send(
    live: &Live,
    woken: &Receiver<()>,
    administration: &Administration,
    out: &mut UnixStream,
) -> io::Result<()> {
    loop {
        if woken.recv_timeout(PULSE) == Err(RecvTimeoutError::Disconnected) {
            return Ok(());
        }
        let (lines, dropped) = live.take();
        let mut text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        if dropped > 0 {
            text += &format!("{{\"dropped\":{dropped}}}\n");
        }
        out.write_all(text.as_bytes())?;
        if has_gone(out) || administration.running().is_none() {
            return Ok(());
        }
    }
}

/// Returns whether the client has hung up. What else it says waits.
fn has_gone(stream: &UnixStream) -> bool {
    matches!(recv(stream, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((_, 0)))
}
