//! Requests that programs or other servers answer: how they are started or asked, and how their answers reach the client.

pub(crate) mod begin;
pub(crate) mod cgi;
pub(crate) mod proxy;
pub(crate) mod relaying;
