//! The protocol-independent runtime of sessions: passive ports, transfers, server-side TLS, trusted proxies,
//! connections by number.

pub mod handshakes;
pub mod passive;
pub mod proxies;
pub mod slab;
pub mod tls;
pub mod transfer;
