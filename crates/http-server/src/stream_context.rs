//! A stream of HTTP/2, as the connection that answers its request knows it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use millrace_limits::{AccountLimits, Refused};
use millrace_runtime::slab::Key;

use crate::shared::Http;
use crate::user_places::{Places, UserPlace};

/// What is the same for all streams of a connection.
#[derive(Debug)]
pub(crate) struct StreamOrigin {
    /// The connection that they belong to.
    pub(crate) connection: Key,
    /// Its number in the log.
    pub(crate) session: u64,
    /// Where the client came to.
    pub(crate) local: SocketAddr,
    /// The same as the proxy before this server says, if there is one.
    pub(crate) reached: SocketAddr,
    /// The names in its certificate.
    pub(crate) names: Arc<[String]>,
    pub(crate) tls_version: Option<&'static str>,
    pub(crate) places: Places,
}

/// What a `Connection` is to the connection of HTTP/2 that it is a stream of.
#[derive(Debug)]
pub(crate) struct StreamContext {
    pub(crate) shared: Arc<StreamOrigin>,
    /// The number of the stream.
    pub(crate) id: u32,
    pub(crate) answer: AnswerProgress,
    /// Bytes of the request's body that were given to it, and those of them that its window was opened for again.
    pub(crate) received: u64,
    pub(crate) released: u64,
    /// The whole connection is to end.
    pub(crate) dismisses: bool,
    /// The client takes nothing of the answer any more.
    pub(crate) is_stalled: bool,
    /// How much the client had taken of all that the connection sent when it was last asked.
    pub(crate) acknowledged: Option<u64>,
    /// The place of the user in whose name is asked.
    pub(crate) place: Option<UserPlace>,
}

/// How far the answer on a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerProgress {
    Head,
    Body,
    /// It has ended, or was reset.
    Ended,
}

impl StreamContext {
    /// Has the client's connection end: it is told so (GOAWAY), and what still runs on it may go on.
    pub(crate) fn dismiss(&mut self) {
        self.dismisses = true;
    }

    /// The client takes nothing of the answer any more.
    pub(crate) fn note_stall(&mut self) {
        self.is_stalled = true;
    }

    /// How much the client has taken of all that it is sent, in whatever unit.
    pub(crate) fn acknowledged(&self) -> io::Result<u64> {
        self.acknowledged.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// A user asks: on all of the connection it is once that there has to be a place.
    pub(crate) fn enter(
        &mut self,
        server: &Http,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
    ) -> Result<(), Refused> {
        self.place = Some(self.shared.places.of(&server.limits, user, limits, now)?);
        Ok(())
    }

    /// Returns whether no stream of the connection has asked as this user before.
    pub(crate) fn is_new(&self, user: &[u8]) -> bool {
        self.shared.places.is_new(user)
    }

    /// The names in the client's certificate.
    pub(crate) fn names(&self) -> Arc<[String]> {
        Arc::clone(&self.shared.names)
    }

    /// The version of TLS.
    pub(crate) fn tls_version(&self) -> Option<&'static str> {
        self.shared.tls_version
    }
}
