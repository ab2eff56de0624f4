//! Connections of HTTP on a worker: the same files, accounts and logs as FTP.
//!
//! ```text
//!            head complete                found            sent
//!   Idle -------------------> dispatch ----------> Sending ------> Idle, or closing
//!     ^                         |  ^
//!     |                         v  | the pool's answer
//!     |                        Asked
//! ```
//!
//! The rooms from the top down. Each imports only what stands below it; `millrace_http` decides what HTTP says.
//!
//! | room | what it does |
//! |---|---|
//! | `h2` | a connection of HTTP/2; each of its streams is a [`Connection`] without a socket |
//! | `driver` | gives each event to what the connection is busy with (`Work`): `reading`, `deadlines`, `ending`, `admin` |
//! | `dispatch` | decides what answers a request: first accounts, then hooks, then files, WebDAV, tus or an upstream |
//! | `methods` | answers from files by method: `get`, `writing`, `dav`, `tus`, `index`, and `to_https` |
//! | `upstream` | CGI programs, FastCGI and other servers: begins them, and relays their answers |
//! | `upload` | receives a body into a file |
//! | `hook_gate` | asks hooks, and goes on with their verdict |
//! | `authentication` | asks accounts, with a cache of recent decisions; delays wrong passwords |
//! | `answer` | writes answers: pages, `file`, streams (`delivery`), and their log lines (`logging`) |
//! | `notices` | tells hooks and logs what happened |
//! | `body_reader`, `secure` | reads bodies; the TLS handshake |
//! | `connection` | the state of one client, and one request on it (`exchange`, and for traces `arrival`) |
//! | `worker`, `message` | what connections share on a worker; what other threads tell them |
//! | `lookup`, `cache`, `listing` | what a path stands for |
//! | `change`, `dav_work`, `tus_work`, `receiving` | work on the blocking pool: looks up, has it decided, performs it |
//! | `shared` | what connections share on a server |
//! | `dav_state`, `tus_state` | hold and keep locks, properties and uploads, for which `millrace_http` has the rules |
//! | `web`, `config`, `link`, `body`, `record` | settings, the socket, a body that is sent, what the log tells |
//!
//! A request's head is parsed once. What waits for the pool holds it, and its memory is used again for later requests.

mod answer;
mod authentication;
mod body;
mod body_reader;
mod cache;
mod change;
mod chunks;
mod common_headers;
mod config;
mod connection;
mod dav_state;
mod dav_work;
mod dispatch;
mod driver;
mod h2;
mod hook_gate;
mod hook_state;
mod identity;
mod link;
mod listing;
mod lookup;
mod message;
mod methods;
mod notices;
mod receiving;
mod record;
mod refusal;
mod refused;
mod secure;
mod sending;
mod shared;
mod stream_context;
mod trees;
mod tus_state;
mod tus_work;
mod upload;
mod upload_outcome;
mod upstream;
mod upstream_response;
mod user_places;
pub mod web;
mod worker;

pub use config::{HttpConfig, Resumable, TrustedProxies};
pub use connection::Connection;
pub use dav_state::{Dav, KeepError};
pub use h2::{Http2Connection, StreamDriver};
pub use message::Message;
pub use refusal::refusal;
pub use shared::{ChallengeAnswer, Http, HttpParts};
pub use worker::Core;
