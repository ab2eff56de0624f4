//! The operations that are more than an order of `millrace ctl`.

pub(crate) mod configuring;
pub(crate) mod links;
pub(crate) mod live;
pub(crate) mod orders;
pub(crate) mod provided;
pub(crate) mod users;
pub(crate) mod visits;
