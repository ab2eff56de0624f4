//! Keys that count from the next start of a server only: a reload that finds one changed says so.

use std::fmt::Debug;

use super::resolve::Site;

/// What these keys mean to a server that runs. Texts, so that nothing of the accounts is kept with them.
#[derive(Debug, Clone)]
pub(crate) struct Begun(Vec<(&'static str, String)>);

impl Begun {
    /// With what a server is started.
    pub(crate) fn with(site: &Site) -> Self {
        Self(rows(site).into_iter().map(|(key, value)| (key, format!("{value:?}"))).collect())
    }

    /// The keys that mean something else now.
    pub(crate) fn changed(&self, site: &Site) -> Vec<&'static str> {
        let now = Self::with(site).0;
        let pairs = self.0.iter().zip(now);
        pairs.filter(|((_, before), (_, now))| before != now).map(|((key, _), _)| *key).collect()
    }

    /// The keys, in the order in which they are told.
    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<&'static str> {
        self.0.iter().map(|(key, _)| *key).collect()
    }
}

fn rows(site: &Site) -> Vec<(&'static str, &dyn Debug)> {
    let config = &site.config;
    vec![
        ("ftp", &config.ftp),
        ("ftps", &config.ftps),
        ("http", &config.http),
        ("https", &config.https),
        ("passive-ports", &config.passive_ports),
        ("public-ip", &config.public_ip),
        ("control", &site.control),
        ("cgi", &config.programs.folders),
        ("cgi-processes", &config.programs.most),
        ("cgi-timeout", &config.programs.time),
        ("program-cpu", &config.program_limits.cpu),
        ("program-memory", &config.program_limits.memory),
        ("program-processes", &config.program_limits.processes),
        ("pass", &config.passes),
        ("tus", &config.resumable.is_on),
        ("tus-expire", &config.resumable.age),
        ("state", &site.shown.state),
        ("quotas", &site.shown.quotas),
        ("sessions", &config.sessions),
        ("sessions-per-address", &config.sessions_per_address),
        ("sessions-per-network", &config.sessions_per_network),
        ("network-bits-ipv4", &config.network_bits.ipv4),
        ("network-bits-ipv6", &config.network_bits.ipv6),
        ("cpu-limit", &config.cpu_limit),
        ("workers", &config.workers),
        ("blocking-threads", &config.blocking_threads),
        ("hook-threads", &config.hook_threads),
        ("shutdown-password", &site.shown.shutdown_password),
        ("greeting", &config.greeting),
        ("list-sort", &config.sort_entries),
        ("messages", &config.messages),
        ("foreign-data", &config.foreign_data),
        ("mode-z", &config.mode_z),
        ("coalesce", &config.coalesce),
        ("login-timeout", &config.login_timeout),
        ("idle-timeout", &config.idle_timeout),
        ("connect-timeout", &config.connect_timeout),
        ("stall-timeout", &config.stall_timeout),
        ("http-head-timeout", &config.http_head_timeout),
        ("http-idle-timeout", &config.http_idle_timeout),
        ("keepalive", &config.keepalive),
        ("grace", &config.grace),
        ("login-attempts", &config.login_attempts),
        ("login-delay", &config.login_delay),
        ("log-format", &config.log),
        ("access-log", &config.access_log),
        ("xferlog", &config.xferlog),
    ]
}
