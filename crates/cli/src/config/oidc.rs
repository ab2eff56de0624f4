//! The `[admin-oidc]` table: the provider of OpenID Connect whose users may use the admin API.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_oidc::{Provider, Settings, SetupError};
use millrace_terminal::Failure;

use super::places::Places;
use super::said::Said;
use super::setting::{default, required, settings, unset};
use super::slot::{Many, One};
use super::sources;
use super::written::Written;

settings! {
    /// The `[admin-oidc]` table.
    OidcTable of "admin-oidc" {
        /// The provider, by its name: `"https://id.example.net/realms/staff"`. Its metadata is looked up beneath
        /// that.
        issuer: Said<String> = required();
        /// What this server is called there: its client ID
        client: Said<String> = required();
        /// A file whose first line is the secret of the client
        secret_file: One<PathBuf> = unset("a public client, without a secret");
        /// The claim that has the groups of a user: a name, or an array of names
        groups: One<String> = default("groups");
        /// What is asked for beside `openid`. Some providers tell groups only where `"groups"` is among these.
        scopes: Many<String> = default("[\"profile\", \"email\"]");
        /// A file of CA certificates in PEM, one of which has to have signed the provider's
        ca: One<PathBuf> = unset("what browsers trust");
    }
}

impl OidcTable {
    /// Files that it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Said<PathBuf>> {
        [&self.secret_file, &self.ca].into_iter().flatten()
    }
}

/// The provider as written.
pub(super) fn provider(written: &Written, places: &Places<'_>) -> Result<Option<Arc<Provider>>, Failure> {
    let Some(table) = written.admin_oidc.first() else { return Ok(None) };
    let scopes = match &table.scopes[..] {
        [] => ["profile", "email"].map(str::to_owned).to_vec(),
        scopes => scopes.iter().map(|scope| scope.value.clone()).collect(),
    };
    let provider = Provider::new(Settings {
        issuer: table.issuer.value.clone(),
        client: table.client.value.clone(),
        secret: sources::password(table.secret_file.as_ref(), places)?,
        groups: table.groups.as_ref().map_or_else(|| "groups".to_owned(), |said| said.value.clone()),
        scopes,
        roots: sources::read(table.ca.as_ref(), "ca", places)?,
    });
    let provider = provider.map_err(|error| match (&error, &table.ca) {
        (SetupError::NoCertificate, Some(ca)) => {
            let message = format!("{} has no certificate in PEM", places.path(ca).display());
            places.error(&ca.place, "ca", &message)
        }
        _ => places.error(&table.issuer.place, "issuer", &error),
    })?;
    Ok(Some(Arc::new(provider)))
}
