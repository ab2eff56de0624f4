//! TLS as a server has it: the acceptor, the connector for copies between servers, the policies.

use millrace_net::tls::{Acceptor, Connector, LoadError, Trust, Versions};

use crate::config::Tls;

/// What all workers share of TLS.
#[derive(Debug)]
pub(crate) struct Security {
    pub(crate) acceptor: Acceptor,
    /// For data connections to another server, in whose handshake we play the client. FTP has no way to say
    /// who that is: nobody's certificate is checked, and only what the session was told to send is sent.
    pub(crate) connector: Connector,
    pub(crate) policy: Tls,
}

impl Security {
    pub(crate) fn new(policy: &Tls) -> Result<Self, LoadError> {
        Ok(Self {
            acceptor: Acceptor::new(&policy.plan)?,
            connector: Connector::new(Trust::Anybody, Versions::All, None)?.without_resumption(),
            policy: policy.clone(),
        })
    }

    /// Reads the certificates again.
    pub(crate) fn reload(&self) -> Result<(), LoadError> {
        self.acceptor.reload(&self.policy.plan)
    }

    /// Claims that a client that calls itself this may end an upload without close_notify.
    pub(crate) fn excuses(&self, client: Option<&[u8]>) -> bool {
        let policy = &self.policy.close_notify;
        let is_excused =
            |client: &[u8]| policy.excused.iter().any(|name| client.starts_with(name.as_bytes()));
        !policy.required || client.is_some_and(is_excused)
    }
}
