//! A request as programs and applications hear of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_http::{Head, cgi};
use millrace_vfs::{Storage, VirtualPath};

/// A request, with what is known of its client.
pub struct GatewayRequest {
    /// The user's files, in which scripts lie.
    pub storage: Arc<dyn Storage>,
    /// The authenticated user.
    pub user: Option<Vec<u8>>,
    /// The path that is asked for.
    pub path: VirtualPath,
    /// Whether it was written with a slash at its end.
    pub is_directory: bool,
    /// What stands behind the `?`.
    pub query: Vec<u8>,
    /// The head of the request.
    pub head: Arc<Head>,
    /// The address of the client.
    pub peer: IpAddr,
    /// The address that the client has connected to.
    pub local: SocketAddr,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}

impl GatewayRequest {
    /// The request for a script and the path behind it (RFC 3875 section 4.1).
    pub(crate) fn for_script<'a>(
        &'a self,
        script: &'a [u8],
        path_info: &'a [u8],
        path_translated: Option<&'a [u8]>,
    ) -> cgi::Request<'a> {
        cgi::Request {
            script,
            path_info,
            path_translated,
            query: &self.query,
            user: self.user.as_deref(),
            peer: self.peer,
            local: self.local,
            encrypted: self.encrypted,
            protocol: self.head.version.name(),
        }
    }
}
