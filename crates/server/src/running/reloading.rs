//! Applies a new configuration to a running server, without an effect on its connections.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use millrace_net::tls::LoadError;
use thiserror::Error;

use super::Running;
use crate::certificates;
use crate::config::{Config, Tls};
use crate::hooks::HookError;
use crate::limits::ServerLimits;
use crate::log;
use crate::tls::Security;
use crate::web::Web;
use crate::worker::{Errand, Worker, WorkerMessage};

/// Why what was read again is not in force.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The certificates cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] LoadError),
    /// Certificates that are fetched cannot be kept.
    #[error("cannot keep certificates in {}: {source}", folder.display())]
    Acme {
        /// Where.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The hooks cannot begin.
    #[error("cannot begin with the hooks: {0}")]
    Hooks(#[source] HookError),
}

impl Running {
    /// Reads the certificates again: new connections get the new ones, sessions keep theirs. Where one cannot
    /// be used, all stays as it was.
    pub fn reload_certificates(&self) -> Result<(), LoadError> {
        self.state.tls.as_ref().map_or(Ok(()), Security::reload)
    }

    /// Applies the settings that can change at run time: the accounts, limits, hooks, allowed networks, header fields
    /// of HTTP, host names, certificates and the TLS policy. Limits [set](Running::set_limits) at run time stay. The
    /// accounts of running sessions are checked again, and their new settings apply. Log files are reopened. If a
    /// certificate cannot be used, or hooks cannot start, everything stays as it was.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        if let Some(hooks) = &config.hooks {
            self.state.cluster.iter().for_each(|cluster| hooks.join(cluster));
            let log = self.log.clone();
            hooks.begin(Arc::new(move |text| log.warn(text))).map_err(ReloadError::Hooks)?;
        }
        if let Some(acme) = &config.acme {
            let folder = acme.folder.clone();
            let warning = acme.prepare().map_err(|source| ReloadError::Acme { folder, source })?;
            warning.iter().for_each(|text| self.log.warn(text));
        }
        if self.state.tls.is_none() && config.tls.is_some() {
            self.log.warn("TLS begins with the next start: there was no certificate at this one");
        }
        if let (Some(tls), Some(policy)) = (&self.state.tls, &config.tls) {
            tls.replace(policy)?;
            tls.doubts(SystemTime::now()).iter().for_each(|text| self.log.warn(text));
            self.replace_settings(policy);
            certificates::configure(&self.state, config.acme.as_ref());
        }
        let is_open = config.is_open_to_anonymous();
        self.state.policy.replace_hooks(config.hooks);
        self.state.log.reopen();
        self.state.shared.ftp.replace_hosts(&config.hosts);
        self.replace_web(config.web);
        self.replace_limits(config.limits);
        self.state.logins_rated.configure(config.logins);
        self.state.bans.configure(config.bans);
        self.state.proxies.configure(config.proxy_from);
        self.state.shared.ftp.replace_classes(&config.classes);
        self.state.shared.ftp.change_settings(|settings| {
            (settings.anonymous, settings.texts) = (config.anonymous, Arc::clone(&config.texts));
        });
        self.state.policy.replace_accounts(config.accounts);
        self.state.shared.http.permit_anonymous(is_open);
        self.state.policy.begin_edition();
        let errand = Errand::new(|client, core| client.review(core, |_, _| true));
        self.workers.iter().for_each(|worker| worker.send(WorkerMessage::Each(errand.clone())));
        Ok(())
    }

    /// Sessions of FTP that begin from now on have to do this under TLS.
    fn replace_settings(&self, policy: &Tls) {
        self.state.shared.ftp.change_settings(|settings| settings.tls = Some(policy.of_sessions()));
    }

    /// Limits of listeners hold where these really are.
    fn replace_limits(&self, limits: ServerLimits) {
        let old = &self.state.config;
        let doors = [
            (&old.ftp, &self.ftp[..]),
            (&old.ftps, &self.ftps[..]),
            (&old.http, &self.http[..]),
            (&old.https, &self.https[..]),
        ];
        let placed = limits.listeners.iter().map(|(asked, of)| (really(*asked, &doors), of.clone()));
        let listeners = placed.collect();
        self.state.limits.configure(ServerLimits { listeners, ..limits }, Instant::now());
    }

    /// What HTTP adds to files is this from now on; answers under way are as they were begun.
    fn replace_web(&self, web: Web) {
        let http = &self.state.shared.http;
        let keys = http.link_keys().names();
        let web = http.replace_web(web);
        let left = http.link_keys().names();
        for key in keys.iter().filter(|key| !left.contains(key)) {
            self.log.note(log::Event::LinkKeyRemoved { key });
        }
        self.state.tell_workers(|| {
            let web = Arc::clone(&web);
            move |worker: &mut Worker| worker.doors().http.replace_web(web)
        });
    }
}

/// Where a listener is that was asked for at an address: the port may have been 0.
fn really(asked: SocketAddr, doors: &[(&Vec<SocketAddr>, &[SocketAddr])]) -> SocketAddr {
    let found = doors.iter().find_map(|(wanted, bound)| {
        wanted.iter().position(|address| *address == asked).and_then(|index| bound.get(index))
    });
    found.copied().unwrap_or(asked)
}
