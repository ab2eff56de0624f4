//! A receiver of notices: a webhook or mail.

use std::time::Duration;

use millrace_hooks::{Credentials, DeliveryError, Webhook};
use thiserror::Error;

use super::mail::{Mail, MailError};
use super::message::Message;

/// How long a webhook may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who gets notices.
#[derive(Debug, Clone)]
pub enum Receiver {
    /// A web address, which is shown these credentials.
    Webhook(Webhook, Credentials),
    /// Mail addresses.
    Mail(Box<Mail>),
}

/// Why a receiver did not take notices.
#[derive(Debug, Error)]
pub enum SendError {
    /// A webhook.
    #[error("{0}")]
    Webhook(#[from] DeliveryError),
    /// Mail.
    #[error("{0}")]
    Mail(#[from] MailError),
}

impl Receiver {
    /// Posts to this address, which [`Webhook::check`] has found good.
    pub fn webhook(url: &str, credentials: Credentials) -> Self {
        Self::Webhook(Webhook::new(url, PATIENCE), credentials)
    }

    /// Returns what it is called in messages.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Webhook(webhook, _) => webhook.url(),
            Self::Mail(mail) => mail.name(),
        }
    }

    /// Sends notices. Waits for the receiver.
    pub(crate) fn send(&self, message: &Message<'_>) -> Result<(), SendError> {
        match self {
            Self::Webhook(webhook, credentials) => {
                webhook.post(credentials, None, &message.json()).map(drop)?
            }
            Self::Mail(mail) => mail.send(message)?,
        }
        Ok(())
    }
}
