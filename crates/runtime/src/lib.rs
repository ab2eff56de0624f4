//! The protocol-independent runtime of sessions: workers, admission, what these share; the state of client sockets, logins,
//! events for hooks, passive ports, transfers, server-side TLS, trusted proxies; connections by number and by deadline.

pub mod client_names;
pub mod clock;
pub mod handshakes;
pub mod hook_line;
pub mod login;
pub mod passive;
pub mod places;
pub mod proxies;
pub mod report;
pub mod services;
pub mod sessions;
pub mod slab;
pub mod socket_state;
pub mod tls;
pub mod transfer;
pub mod wheel_entry;
pub mod worker;
