//! Logins by a provider of OpenID Connect: a relying party, with the authorization code flow (OpenID Connect Core 1.0, section
//! 3.1), PKCE (RFC 7636), and the metadata of the provider (OpenID Connect Discovery 1.0).
//!
//! A login takes three steps. [`Provider::begin`] makes the address of the provider's page, to which the browser goes.
//! From there it comes back with a code. [`Provider::finish`] exchanges the code for an ID token, and returns whom it names.
//!
//! The invariant: an [`Identity`] comes from a token that a key of the provider has signed, for this client, for this very
//! login, and not long ago. A login is finished by the browser that began it, which keeps it sealed in a cookie, and at most once: the
//! server that began it sees to that. Of a cluster any server may finish it ([`Seals`]); then the provider does, which takes a code once.
//!
//! The crate `openidconnect` is not used: it brings some seventy crates along, among them 13 in a second version, and
//! `rsa`, of which RUSTSEC-2023-0071 warns. `ring`, which is here for TLS, verifies the same signatures.

mod claims;
mod endpoint;
mod error;
mod keys;
mod pending;
mod provider;
mod sealed;

pub use self::error::{LoginError, SetupError, TokenError};
pub use self::pending::{Begun, Pending};
pub use self::provider::{Identity, Provider, Response, Settings};
pub use self::sealed::Seals;
