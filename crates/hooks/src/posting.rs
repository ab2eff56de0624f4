//! Tells a receiver of events from a queue: posts them, or runs a program with one.

use std::time::Duration;

use super::delivery::Recipient;
use super::webhook::{Credentials, DeliveryError, Keyring, Webhook};
use super::{HEARD, facts};
use millrace_process::{How, Program, Purpose};

/// An event as it is told.
pub(super) struct Told<'a> {
    /// By which the receiver knows it again.
    pub(super) id: String,
    /// A JSON object, not yet with its id.
    pub(super) body: &'a str,
    /// A program's words and variables, packed.
    pub(super) words: &'a [u8],
    pub(super) variables: &'a [u8],
}

impl Told<'_> {
    /// `{"id":"6f1a...-17",...}`
    fn with_id(&self) -> String {
        let rest = self.body.strip_prefix('{').unwrap_or("}");
        format!("{{\"id\":\"{}\",{rest}", self.id)
    }
}

/// The door to a receiver.
#[derive(Debug, Clone)]
pub(super) enum Door {
    Webhook(Webhook),
    Program,
}

impl Door {
    pub(super) fn of(to: &Recipient) -> Self {
        match to {
            Recipient::Webhook { url, milliseconds, .. } => {
                Self::Webhook(Webhook::new(url, Duration::from_millis(*milliseconds)))
            }
            Recipient::Program { .. } => Self::Program,
        }
    }

    /// Returns true if it is a program, which is not tried for ever.
    pub(super) fn is_program(&self) -> bool {
        matches!(self, Self::Program)
    }
}

impl Recipient {
    /// How many events it is told of at a time.
    pub(super) fn together(&self) -> usize {
        match self {
            Self::Webhook { batch, .. } => (*batch).max(1),
            Self::Program { .. } => 1,
        }
    }
}

impl Keyring {
    /// The credentials that are shown to a receiver.
    pub(super) fn of(&self, to: &Recipient) -> Credentials {
        match to {
            Recipient::Webhook { url, shows, .. } => self.find(url, *shows),
            Recipient::Program { .. } => Credentials::default(),
        }
    }

    /// Returns whether a rule tells this receiver.
    pub(super) fn knows(&self, to: &Recipient) -> bool {
        match to {
            Recipient::Webhook { url, shows, .. } => self.has_address(url, *shows),
            Recipient::Program { name, .. } => self.has_program(name),
        }
    }
}

/// Tells a receiver of some events: by one post, which has this id, or by a program for each.
pub(super) fn tell(
    to: &Recipient,
    door: &Door,
    credentials: &Credentials,
    id: &str,
    events: &[Told<'_>],
) -> Result<(), DeliveryError> {
    match (to, door) {
        (Recipient::Webhook { batch, .. }, Door::Webhook(webhook)) => {
            let bodies: Vec<String> = events.iter().map(Told::with_id).collect();
            let body = match *batch {
                0 | 1 => bodies.concat(),
                _ => format!("[{}]", bodies.join(",")),
            };
            webhook.post(credentials, Some(id), body.as_bytes()).map(drop)
        }
        (Recipient::Program { milliseconds, .. }, _) => {
            events.iter().try_for_each(|event| run(event, *milliseconds))
        }
        (Recipient::Webhook { .. }, Door::Program) => Ok(()),
    }
}

fn run(event: &Told<'_>, milliseconds: u64) -> Result<(), DeliveryError> {
    let variables = facts::unpack(event.variables);
    let mut pairs = variables.into_iter();
    let environment = std::iter::from_fn(|| Some((pairs.next()?, pairs.next()?))).collect();
    let program = Program {
        words: facts::unpack(event.words),
        environment,
        time: Duration::from_millis(milliseconds),
        most: HEARD,
        purpose: Purpose::Work,
    };
    match program.run(event.with_id().as_bytes()) {
        Ok(ended) if ended.how == How::Exited(0) => Ok(()),
        Ok(ended) => {
            let errors = String::from_utf8_lossy(&ended.complaints);
            Err(DeliveryError::Retryable(format!("it {} {}", ended.how, errors.trim())))
        }
        Err(error) => Err(DeliveryError::Retryable(error.to_string())),
    }
}
