//! What leaves the reactors: requests that are forwarded to other servers by HTTP (`forward.rs`), on a runtime that the
//! first of them starts (`runtime.rs`).

pub(super) mod forward;
mod runtime;

pub(crate) use forward::Kept;
pub(crate) use runtime::Side;
