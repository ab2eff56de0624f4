//! Virtual hosts as sessions of FTP know them: what a client is told differently there.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use millrace_accounts::{KnownBy, plain_host};
use millrace_ftp::Settings;
use millrace_ftp::session::Texts;

/// A virtual host; what it does not say is as the server says.
#[derive(Debug, Clone, Default)]
pub struct FtpHost {
    /// What it is known by.
    pub known_by: KnownBy,
    /// The text of the first reply.
    pub greeting: Option<String>,
    /// Lines before it.
    pub greeting_lines: Option<Vec<Vec<u8>>>,
    /// Lines behind a login.
    pub welcome_lines: Option<Vec<Vec<u8>>>,
    /// Lines for clients that a limit on sessions turns away.
    pub limit_lines: Option<Vec<Vec<u8>>>,
    /// The address that PASV names.
    pub public_ip: Option<Ipv4Addr>,
    /// Whether the anonymous user is welcome.
    pub anonymous: Option<bool>,
    /// The file in which its transfers are told.
    pub transfer_log: Option<Arc<Path>>,
}

impl FtpHost {
    /// Returns the settings of its sessions, where those of the server are these.
    fn settings(&self, server: &Settings) -> Settings {
        let texts = Texts {
            greeting: self.greeting_lines.as_ref().unwrap_or(&server.texts.greeting).clone(),
            welcome: self.welcome_lines.as_ref().unwrap_or(&server.texts.welcome).clone(),
            limit: self.limit_lines.as_ref().unwrap_or(&server.texts.limit).clone(),
            contact: server.texts.contact.clone(),
        };
        Settings {
            greeting: self.greeting.as_ref().unwrap_or(&server.greeting).clone(),
            texts: Arc::new(texts),
            public_ip: self.public_ip.or(server.public_ip),
            anonymous: self.anonymous.unwrap_or(server.anonymous),
            transfer_log: self.transfer_log.clone(),
            ..server.clone()
        }
    }
}

/// The settings of sessions: of the server, and of each host.
#[derive(Debug)]
pub(super) struct SettingsByHost {
    server: Arc<Settings>,
    hosts: Vec<(FtpHost, Arc<Settings>)>,
}

impl SettingsByHost {
    /// Returns the settings of a server and these hosts.
    pub(super) fn new(server: Settings, hosts: &[FtpHost]) -> Self {
        let hosts = hosts.iter().map(|host| (host.clone(), Arc::new(host.settings(&server)))).collect();
        Self { server: Arc::new(server), hosts }
    }

    /// Returns the same for other settings of the server.
    pub(super) fn changed(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut server = Settings::clone(&self.server);
        change(&mut server);
        let hosts: Vec<_> = self.hosts.iter().map(|(host, _)| host.clone()).collect();
        Self::new(server, &hosts)
    }

    /// Returns the same for other hosts.
    pub(super) fn with_hosts(&self, hosts: &[FtpHost]) -> Self {
        Self::new(Settings::clone(&self.server), hosts)
    }

    /// Returns the settings of the server.
    pub(super) fn of_server(&self) -> Arc<Settings> {
        Arc::clone(&self.server)
    }

    /// Returns the settings for a client that says this plain name, and has come to this address.
    pub(super) fn of_client(&self, name: &str, local: SocketAddr) -> Arc<Settings> {
        let host = KnownBy::choose(&self.hosts, |(host, _)| &host.known_by, name, Some(local));
        Arc::clone(host.map_or(&self.server, |(_, settings)| settings))
    }

    /// Returns whether there are hosts that are told apart by name.
    pub(super) fn have_names(&self) -> bool {
        self.hosts.iter().any(|(host, _)| !host.known_by.names.is_empty())
    }

    /// Returns whether a host has this name.
    pub(super) fn have(&self, name: &str) -> bool {
        let plain = plain_host(name.as_bytes());
        self.hosts.iter().any(|(host, _)| host.known_by.has_name(&plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_what_it_says_and_the_rest_from_the_server_that_changes() {
        let host = FtpHost {
            known_by: KnownBy { addresses: vec!["192.0.2.7".parse().unwrap()], ..KnownBy::default() },
            greeting: Some("Mirror.".to_owned()),
            ..FtpHost::default()
        };
        let settings = SettingsByHost::new(Settings::default(), &[host]);
        let settings = settings.changed(|server| server.login_attempts = 9);
        let greeting = |local: &str| settings.of_client("", local.parse().unwrap()).greeting.clone();
        assert_eq!((&*greeting("192.0.2.7:21"), &*greeting("192.0.2.8:21")), ("Mirror.", "Millrace ready."));
        assert_eq!(settings.of_client("", "192.0.2.7:21".parse().unwrap()).login_attempts, 9);
    }
}
