//! The protocols of a worker: what its connections share there, and what its threads are told.

mod client;
mod streams;

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use millrace_ftp_server as ftp;
use millrace_gateway::runtime::Side;
use millrace_http_server as http;
use millrace_metrics::Metric;
use millrace_net::inbox;
use millrace_runtime::services::Services;
use millrace_runtime::slab::Key;
use millrace_runtime::worker::{self, Doors, Newcomer, Post};
use serde::{Deserialize, Serialize};

pub(crate) use self::client::Client;

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

/// The protocol of a listener. Metrics have them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// FTP, which `AUTH TLS` may encrypt.
    Ftp,
    /// FTP that begins with TLS.
    Ftps,
    /// HTTP in clear.
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

/// What all workers share.
#[derive(Debug)]
pub(crate) struct SharedByWorkers {
    /// What both protocols use.
    pub(crate) services: Arc<Services>,
    /// What connections of FTP share.
    pub(crate) ftp: Arc<ftp::Ftp>,
    /// What connections of HTTP share.
    pub(crate) http: Arc<http::Http>,
    /// What has a runtime of its own beside the workers.
    pub(crate) side: Arc<Side>,
}

/// What connections share on a worker.
pub(crate) struct Core {
    /// The core of the worker, with what connections of HTTP share.
    pub(crate) http: http::Core,
    /// What connections of FTP share.
    pub(crate) ftp: Arc<ftp::Door>,
    /// The runtime beside the workers.
    side: Arc<Side>,
}

impl Deref for Core {
    type Target = worker::Core;

    fn deref(&self) -> &worker::Core {
        &self.http.kernel
    }
}

impl DerefMut for Core {
    fn deref_mut(&mut self) -> &mut worker::Core {
        &mut self.http.kernel
    }
}

/// Makes a worker of a server, with its listeners, and the way to it.
pub(crate) fn worker(
    shared: &SharedByWorkers,
    listeners: Vec<Listener>,
) -> std::io::Result<(Worker, Sender)> {
    let SharedByWorkers { services, ftp, http, side } = shared;
    Worker::new(Arc::clone(services), listeners, |kernel, sender| {
        let (to_ftp, to_http) = (sender.clone(), sender.clone());
        let to_ftp = move |key, message| to_ftp.send(WorkerMessage::Client(key, ClientMessage::Ftp(message)));
        let to_http =
            move |key, message| to_http.send(WorkerMessage::Client(key, ClientMessage::Http(message)));
        Core {
            http: http::Core::new(kernel, http, Post::new(to_http)),
            ftp: ftp::Door::new(Arc::clone(ftp), Post::new(to_ftp)),
            side: Arc::clone(side),
        }
    })
}

impl Doors for Core {
    type Door = Door;
    type Client = Client;
    type Message = ClientMessage;

    fn client_speaks_first(door: Door) -> bool {
        door == Door::Http
    }

    fn refusal(&self, door: Door, peer: SocketAddr, reason: &'static str, is_full: bool, out: &mut Vec<u8>) {
        match door {
            Door::Ftp | Door::Ftps => self.ftp.refuse(peer, self.now.wall, reason, is_full, out),
            Door::Http => http::refusal(reason, out),
            // Nothing that is not encrypted would be understood.
            Door::Https => {}
        }
    }

    fn open(&mut self, key: Key, newcomer: Newcomer<Door>) -> Client {
        self.metrics.add(Metric::Connections, &[newcomer.door as usize], 1);
        match newcomer.door {
            Door::Ftp | Door::Ftps => {
                let door = Arc::clone(&self.ftp);
                Client::Ftp(Box::new(ftp::Connection::new(key, &door, newcomer, &mut self.http.kernel)))
            }
            Door::Http | Door::Https => {
                let Newcomer { socket, peer, way, member, admission, has_sent_nothing, .. } = newcomer;
                let connection =
                    http::Connection::new(key, socket, peer, member, Some(admission), &self.http)
                        .facing(way.and_then(|way| way.facing));
                Client::Http(Box::new(if has_sent_nothing { connection.silent() } else { connection }))
            }
        }
    }

    fn read_errors(&mut self) {
        self.http.read_errors();
    }

    fn end_turn(&mut self) {
        self.http.end_turn();
    }

    fn due(&self) -> Option<Instant> {
        self.http.due()
    }

    fn begin_shutdown(worker: &mut Worker) {
        worker.doors().side.begin_shutdown();
        streams::drain_http2(worker);
    }

    fn hand_on(worker: &mut Worker) {
        streams::hand_on(worker);
    }

    fn is_busy(&self) -> bool {
        self.http.has_multiplexed()
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
