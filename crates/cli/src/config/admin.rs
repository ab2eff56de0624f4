//! What the `admin` keys mean: where health, metrics, the dashboard and the admin API are served, and who may use them.

use std::net::SocketAddr;
use std::path::PathBuf;

use millrace_admin_http::AdminAccess;
use millrace_terminal::Failure;

use super::places::Places;
use super::said::Said;
use super::slot::is_on;
use super::written::Written;
use super::{doors, resolve, tls};

/// The admin listener.
#[derive(Debug)]
pub(crate) struct AdminSite {
    /// None: there is no such listener.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) has_tls: bool,
    /// Who may use the admin API there.
    pub(crate) access: AdminAccess,
    /// Whether the API may replace the configuration file.
    pub(crate) writes_config: bool,
    /// The folder for the tokens of the API, and the history of the configuration.
    pub(crate) state: Option<PathBuf>,
}

/// Resolves the keys; without a certificate the listener cannot be asked to encrypt.
pub(super) fn admin(
    written: &Written,
    has_certificate: bool,
    places: &Places<'_>,
) -> Result<AdminSite, Failure> {
    let access = access(written, places)?;
    Ok(AdminSite {
        addresses: doors::listens(written.admin.clone(), "--admin", Vec::new(), places)?,
        has_tls: tls::encrypts(written.admin_tls.clone(), "admin-tls", has_certificate, places)?,
        access,
        writes_config: is_on(written.admin_writes_config.clone(), false),
        state: resolve::kept(written, "admin", places),
    })
}

/// Who may use the admin API.
fn access(written: &Written, places: &Places<'_>) -> Result<AdminAccess, Failure> {
    let names = |said: &[Said<String>]| said.iter().map(|said| said.value.clone()).collect();
    let provider = super::oidc::provider(written, places)?;
    let lists = [&written.admin_viewers, &written.admin_operators, &written.admin_administrators];
    let of_provider = lists.into_iter().flatten().find(|said| said.value.starts_with("oidc "));
    if let Some(said) = of_provider.filter(|_| provider.is_none()) {
        let message = format!("{:?} needs an [admin-oidc] table, which names the provider", said.value);
        return Err(places.error(&said.place, "admin", &message));
    }
    Ok(AdminAccess {
        viewers: names(&written.admin_viewers),
        operators: names(&written.admin_operators),
        administrators: names(&written.admin_administrators),
        hosts: names(&written.admin_hosts),
        provider,
    })
}
