//! The protocols of a worker: what its connections share there, and what its threads are told.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use millrace_ftp::reply::{Reply, code};
use millrace_ftp_server as ftp;
use millrace_log::{self as log, Subject};
use millrace_net::inbox;
use millrace_runtime::slab::Key;
use millrace_runtime::worker::{self, Doors, Newcomer, Post};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::state::Server;
use crate::{http, streams};

pub(crate) use millrace_runtime::worker::AS_LONG_AS_IT_TAKES;

/// The way to a worker.
pub(crate) type Sender = inbox::Sender<worker::Message<Core>>;
/// A socket that clients come to.
pub(crate) type Listener = worker::Listener<Door>;
/// Something to be done with connections.
pub(crate) type Errand = worker::Errand<Core>;
/// What a worker is told.
pub(crate) type WorkerMessage = worker::Message<Core>;
/// A reactor that serves FTP and HTTP.
pub(crate) type Worker = worker::Worker<Core>;

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Door {
    Ftp,
    /// FTP that begins with TLS.
    Ftps,
    Http,
    /// HTTP in TLS.
    Https,
}

/// Something for a connection.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    Ftp(ftp::Message),
    Http(http::Message),
}

/// What connections share on a worker.
pub(crate) struct Core {
    /// What they have of the worker, whatever they speak.
    pub(crate) kernel: worker::Core,
    /// What all workers share.
    pub(crate) server: Arc<Server>,
    /// What connections of FTP share.
    pub(crate) ftp: Arc<ftp::Door>,
    /// What connections of HTTP share.
    pub(crate) http: http::Shared,
    /// The way from other threads to connections of HTTP.
    pub(crate) post: Post<http::Message>,
}

impl Deref for Core {
    type Target = worker::Core;

    fn deref(&self) -> &worker::Core {
        &self.kernel
    }
}

impl DerefMut for Core {
    fn deref_mut(&mut self) -> &mut worker::Core {
        &mut self.kernel
    }
}

/// Makes a worker of a server, with its listeners, and the way to it.
pub(crate) fn worker(server: &Arc<Server>, listeners: Vec<Listener>) -> std::io::Result<(Worker, Sender)> {
    Worker::new(Arc::clone(&server.services), listeners, |kernel, sender| {
        let (to_ftp, to_http) = (sender.clone(), sender.clone());
        let to_ftp = move |key, message| to_ftp.send(WorkerMessage::Client(key, ClientMessage::Ftp(message)));
        let to_http =
            move |key, message| to_http.send(WorkerMessage::Client(key, ClientMessage::Http(message)));
        Core {
            http: http::Shared::new(server),
            ftp: ftp::Door::new(Arc::clone(&server.ftp), Post::new(to_ftp)),
            server: Arc::clone(server),
            kernel,
            post: Post::new(to_http),
        }
    })
}

impl Core {
    /// Ends programs whose time is over, and lets others begin.
    fn look_after_programs(&mut self) {
        let overdue = self.http.programs.look(self.kernel.now.instant);
        if !overdue.is_empty() {
            self.discard(overdue);
        }
        let Self { http, kernel, .. } = self;
        let (now, yielded) = (kernel.now.instant, &mut kernel.yielded);
        http.programs.admit(now, yielded);
        http.passing.iter_mut().for_each(|passing| passing.look(now, yielded));
    }
}

impl Doors for Core {
    type Door = Door;
    type Client = Client;
    type Message = ClientMessage;

    fn client_speaks_first(door: Door) -> bool {
        door == Door::Http
    }

    fn refusal(door: Door, reason: &'static str, out: &mut Vec<u8>) {
        match door {
            Door::Ftp | Door::Ftps => Reply::owned(code::SERVICE_CLOSING, reason).write(out),
            Door::Http => http::refusal(reason, out),
            // Nothing that is not encrypted would be understood.
            Door::Https => {}
        }
    }

    fn open(&mut self, key: Key, newcomer: Newcomer<Door>) -> Client {
        match newcomer.door {
            Door::Ftp | Door::Ftps => {
                let door = Arc::clone(&self.ftp);
                Client::Ftp(Box::new(ftp::Connection::new(key, &door, newcomer, &mut self.kernel)))
            }
            Door::Http | Door::Https => {
                let Newcomer { socket, peer, member, admission, has_sent_nothing, .. } = newcomer;
                let connection = http::Connection::new(key, socket, peer, member, Some(admission), self);
                Client::Http(Box::new(if has_sent_nothing { connection.silent() } else { connection }))
            }
        }
    }

    fn read_errors(&mut self) {
        loop {
            let (lines, more) = self.http.programs.said(&mut self.kernel.scratch);
            let peer = SocketAddr::from(([0, 0, 0, 0], 0));
            for line in lines {
                let subject = Subject { session: 0, peer, user: None };
                self.kernel.log(&subject, log::Event::ProgramSaid { text: &line });
            }
            if !more {
                return;
            }
        }
    }

    fn end_turn(&mut self) {
        self.http.cache.sweep(self.kernel.now.instant);
        self.look_after_programs();
    }

    fn due(&self) -> Option<Instant> {
        let of_http = self.http.cache.sweep_due().into_iter().chain(self.http.programs.due());
        of_http.chain(self.http.passing.iter().filter_map(http::Passing::due)).min()
    }

    fn begin_shutdown(worker: &mut Worker) {
        worker.doors().server.side.begin_shutdown();
        streams::drain_http2(worker);
    }

    fn hand_on(worker: &mut Worker) {
        streams::hand_on(worker);
    }

    fn is_busy(&self) -> bool {
        !self.http.multiplexed.is_empty()
    }

    fn before_clock(worker: &mut Worker, key: Key) {
        streams::note_acknowledged(worker, key);
    }

    fn after_child(worker: &mut Worker, child: Key, parent: Key, is_sound: bool) {
        streams::after_stream(worker, child, parent, is_sound);
    }

    fn end_children(worker: &mut Worker, children: Vec<Key>) {
        streams::end_streams(worker, children);
    }
}
