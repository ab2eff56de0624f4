//! TLS: rustls without its sockets, over ours.
//!
//! - [`Acceptor`] and [`Connector`] are the two sides' settings; [`Host`] is one FTP control connection's
//!   part, whose data connections resume with its own tickets only.
//! - [`TicketId`] tells by a ClientHello which control connection a data connection belongs to.
//! - [`Tls`] is a connection without a socket; [`Channel`] has the copy loop over one.
//! - [`self_signed`] makes a certificate for a first try, [`Hello`] says what a client offered.
//! - [`CertificateInfo`] is the information in a certificate, [`CertificateDiagnostics`] the errors that clients will find in it;
//!   [`ACME_TLS`] is the protocol of an ACME challenge.
//!
//! The algorithms are ring's. aws-lc-rs is about as fast for AES-GCM, but its build takes minutes and
//! cmake where ring's takes seconds.

mod acceptor;
mod calls;
mod certificate_diagnostics;
mod certificate_info;
mod challenge;
mod channel;
mod client;
mod connection;
mod der;
mod fault;
mod hello;
mod identity;
mod key_pair;
mod load_error;
mod names;
mod pem;
mod records;
mod roots;
mod self_signed;
mod shared_tickets;
mod ticket_resend;
mod tickets;
mod unwritten;

#[cfg(test)]
mod file_faults;
#[cfg(test)]
mod tests;

pub use acceptor::{Acceptor, Authorities, Clients, Host, Plan};
pub use certificate_diagnostics::CertificateDiagnostics;
pub use certificate_info::CertificateInfo;
pub use challenge::ACME_TLS;
pub use channel::{BUFFER, Channel, Heard};
pub use client::{Connector, Trust, Versions};
pub use connection::Tls;
pub use fault::Fault;
pub use hello::Hello;
pub use identity::fingerprint;
pub use key_pair::KeyPair;
pub use load_error::LoadError;
pub use names::client_names;
pub use roots::{RootsError, client_config};
pub use rustls::ServerConfig;
pub use self_signed::{placeholder, self_signed};
pub use shared_tickets::TicketSecret;
pub use tickets::TicketId;
pub use unwritten::Unwritten;
