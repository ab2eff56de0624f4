//! What sessions of every protocol run on, without knowing any: workers, admission, what these share, passive ports,
//! transfers, TLS as a server has it, trusted proxies, connections by number.

pub mod handshakes;
pub mod passive;
pub mod proxies;
pub mod report;
pub mod services;
pub mod sessions;
pub mod slab;
pub mod tls;
pub mod transfer;
pub mod worker;
