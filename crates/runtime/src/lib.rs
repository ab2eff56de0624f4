//! What sessions of every protocol run on, without knowing any: passive ports, transfers, TLS as a server has it, trusted
//! proxies, connections by number.

pub mod handshakes;
pub mod passive;
pub mod proxies;
pub mod slab;
pub mod tls;
pub mod transfer;
