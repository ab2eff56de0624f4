//! What other threads tell a worker.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use millrace_ftp::session::Answer;
use millrace_net::inbox::Sender;

use super::{Core, Listener};
use crate::auth::Decision;
use crate::client::Client;
use crate::ftp::Reviewed;
use crate::hooks::Ruling;
use crate::http;
use crate::passive::Lease;
use crate::slab::Key;
use crate::transfer::JobDone;
use crate::web::InForce;

/// Of a connection, where it names one by its key.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to a session's question, with the question's serial number.
    Answer(Key, u64, Answer),
    /// A login was decided.
    Login(Key, u64, Decision),
    /// The account of somebody who is logged in was looked at again.
    Reviewed(Key, Box<Reviewed>),
    /// A transfer's job is done.
    Job(Key, JobDone),
    /// The passive port that a session waited for.
    Port(Key, Lease),
    /// A hook has answered, with the serial number of what it was asked.
    Ruled(Key, u64, Ruling),
    /// A session's data connection was accepted by another session.
    Wake(Key),
    /// Do this with every connection that is of note.
    Each(Errand),
    /// What HTTP adds to files is this from now on.
    Web(Arc<InForce>),
    /// Another connection's requests, as a connection of HTTP/1.1.
    Adopt(Box<http::Adopted>),
    /// Something for a connection of HTTP.
    Http(Key, http::Message),
    /// Say where clients come to, with copies of the sockets.
    ShowListeners(mpsc::Sender<io::Result<Vec<Listener>>>),
    /// Accept nobody, or again; whoever comes meanwhile waits in the kernel. Say when that is so.
    Accept(bool, mpsc::Sender<()>),
    /// Another server accepts now. Whoever is here stays until then; what is under way then, until it has ended.
    Retire(Instant),
    /// Accept nobody more; what has not ended by then is ended.
    ShutDown(Instant),
    /// End at once.
    Stop,
}

/// Sends its message when dropped: also when the job that was to fill it in panics.
#[derive(Debug)]
pub(crate) struct Promise {
    pub(crate) sender: Sender<Message>,
    pub(crate) message: Option<Message>,
}

impl Promise {
    /// Sends this in place of what would have been sent.
    pub(crate) fn keep(mut self, message: Message) {
        self.message = Some(message);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.sender.send(message);
        }
    }
}

/// Something to be done with connections; everything that came of it is there when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Errand(pub(super) Arc<Work>);

pub(super) type Work = dyn Fn(&mut Client, &mut Core) + Send + Sync;

impl Errand {
    pub(crate) fn new(work: impl Fn(&mut Client, &mut Core) + Send + Sync + 'static) -> Self {
        Self(Arc::new(work))
    }
}

impl std::fmt::Debug for Errand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Errand")
    }
}
