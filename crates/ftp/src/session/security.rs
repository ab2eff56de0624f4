//! The protection of the connections, and the required protection.

use super::{Access, Act, DataPlan, Phase, Protection, Session, Step};
use crate::codec::Coding;
use crate::listing::Facts;
use crate::reply::{Reply, code};

/// The protection agreed on with `AUTH`, `PBSZ`, `PROT` and similar commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Security {
    /// Commands and replies are encrypted.
    pub(crate) is_encrypted: bool,
    /// They are, or were until `CCC`: what was agreed on for data connections holds.
    pub(crate) was_encrypted: bool,
    /// The greeting has been given.
    pub(crate) greeted: bool,
    /// The client has shown a certificate, and it was found to be good.
    pub(crate) has_certificate: bool,
    /// `PBSZ` was given.
    pub(crate) agreed_size: bool,
    /// `PROT P`.
    pub(crate) protects_data: bool,
    /// `SSCN ON`: we are the client in the handshakes of data connections.
    pub(crate) plays_client: bool,
    /// `CPSV`: the same for the next one only.
    pub(crate) plays_client_next: bool,
}

impl Session {
    /// The session begins with a handshake (implicit TLS); the greeting follows it, and data connections are
    /// encrypted unless the client says otherwise.
    pub fn begin_with_tls(&mut self) {
        self.security = Security { agreed_size: true, protects_data: true, ..Security::default() };
        self.phase = Phase::Securing;
    }

    /// Discards everything received in clear, which an attacker may have sent, and waits for the handshake.
    pub(crate) fn secure(&mut self, security: Security) {
        self.log_out();
        self.coding = Coding::default();
        self.data = DataPlan::None;
        self.extended_only = false;
        self.facts = Facts::default();
        self.extras = None;
        self.security = Security { greeted: true, ..security };
        self.phase = Phase::Securing;
    }

    /// Takes no line until the driver says [`Secured`](super::Input::Secured).
    pub(crate) fn wait_for_handshake(&mut self) {
        self.phase = Phase::Securing;
    }

    pub(super) fn secured(&mut self) -> Step {
        if !matches!(self.phase, Phase::Securing) {
            return Step::NOTHING;
        }
        self.phase = Phase::Ready;
        if self.security.was_encrypted {
            // The end of CCC.
            return Step::NOTHING;
        }
        (self.security.is_encrypted, self.security.was_encrypted) = (true, true);
        match std::mem::replace(&mut self.security.greeted, true) {
            true => Step::NOTHING,
            false => crate::session::notes::greet(self),
        }
    }

    /// The client has shown a certificate, and it was found to be good: it may make the password needless. Said
    /// before [`Secured`](super::Input::Secured).
    pub fn show_certificate(&mut self) {
        self.security.has_certificate = true;
    }

    /// Returns true if a certificate may prove the user name that is sent now: not in clear text (`CCC`), which an
    /// attacker may have sent.
    pub(crate) fn may_be_recognized(&self) -> bool {
        self.security.has_certificate && self.security.is_encrypted
    }

    /// Closes where no reply could be read.
    pub(super) fn close_silently(&mut self) -> Step {
        self.phase = Phase::Closed;
        Step::act(Act::Close)
    }

    /// Returns true if the control connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.security.is_encrypted
    }

    /// How the next data connection will be protected.
    pub fn protection(&self) -> Protection {
        let Security { protects_data, plays_client, plays_client_next, .. } = self.security;
        match protects_data {
            false => Protection::Clear,
            true if plays_client || plays_client_next => Protection::AsClient,
            true => Protection::AsServer,
        }
    }

    /// Returns true if this session's data connections have to be encrypted.
    pub(crate) fn requires_encrypted_data(&self) -> bool {
        let user = matches!(&self.access, Access::User(login) if login.encrypted_data);
        user || self.settings.tls.as_ref().is_some_and(|tls| tls.data)
    }

    /// The reply to a transfer that would be in clear where it must not be.
    pub(super) fn data_refusal(&self) -> Option<Reply> {
        (self.requires_encrypted_data() && !self.security.protects_data).then_some(Reply::new(
            code::DATA_NEEDS_PROTECTION,
            "Data connections have to be encrypted here: PROT P.",
        ))
    }

    /// The reply to a listing that would be in clear on the control connection, where it must not be.
    pub(crate) fn listing_refusal(&self) -> Option<Reply> {
        (self.requires_encrypted_data() && !self.security.is_encrypted).then_some(Reply::new(
            code::DATA_NEEDS_PROTECTION,
            "Listings have to be encrypted here: AUTH TLS, or LIST with PROT P.",
        ))
    }

    /// The reply to a name that would be said in clear where it must not be.
    pub(crate) fn login_refusal(&self) -> Option<Reply> {
        let required = self.settings.tls.as_ref().is_some_and(|tls| tls.login);
        (required && !self.security.is_encrypted)
            .then_some(Reply::new(code::NOT_LOGGED_IN, "Encryption is required here: give AUTH TLS first."))
    }
}
