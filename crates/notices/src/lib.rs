//! Notices to administrators: a certificate near its end, a disk that is nearly full, events of hooks that are not delivered,
//! many bans, a log that loses lines. They go to webhooks and by mail.
//!
//! The readings are those of the metrics. A table of thresholds turns them into conditions (`conditions.rs`), a state machine
//! decides what is told when (`states.rs`), and an outbox keeps what a receiver has not taken yet (`outbox.rs`). All three are
//! values without a clock; `notifier.rs` has the threads.
//!
//! The invariant: no receiver delays another one, or the server; and what waits for a receiver is bounded by the number of
//! conditions, however long it is out of reach.

mod conditions;
mod mail;
mod message;
mod notifier;
mod outbox;
mod receiver;
mod states;

pub use conditions::{Kind, Look, Thresholds};
pub use mail::{Mail, MailEncryption, MailError, MailServer};
pub use notifier::{Notices, Read, Rule, Warn};
pub use receiver::{Receiver, SendError};
