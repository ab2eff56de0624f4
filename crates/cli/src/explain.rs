//! `millrace explain`: a user's effective settings, their origin, and whether a login would succeed.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use millrace_server::auth::{self, Effective, Explained, Origin};
use millrace_server::limits::{Limits, Used};
use millrace_server::{Attempt, Config, Network, Permissions, Protocol};
use millrace_terminal::Failure;

use crate::config::{self, Said, Written};

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The name that the client sends
    #[arg(value_name = "USER")]
    pub(crate) user: String,

    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// A database of accounts, or "off", as "millrace serve" is told
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().map(Said::on_command_line))]
    pub(crate) users: Option<Said<PathBuf>>,

    /// The address that the login comes from
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    pub(crate) from: IpAddr,

    /// The login comes over an encrypted connection
    #[arg(long)]
    pub(crate) tls: bool,

    /// The client shows a certificate with the user's name in it; encrypted, as with --tls
    #[arg(long)]
    pub(crate) certificate: bool,

    /// The login comes by HTTP, not by FTP
    #[arg(long)]
    pub(crate) http: bool,

    /// The name of the server that the client came by: HTTP's Host, FTP's HOST, or SNI
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// The address and port of the server that the client came to
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) at: Option<SocketAddr>,
}

pub(crate) fn run(arguments: &Explain) -> Result<(), Failure> {
    let flags = Written { users: arguments.users.clone(), ..Written::default() };
    let site = config::load(flags, arguments.config.as_deref())?;
    let attempt = Attempt {
        user: arguments.user.as_bytes(),
        password: b"",
        from: arguments.from,
        protocol: if arguments.http { Protocol::Http } else { Protocol::Ftp },
        encrypted: arguments.tls || arguments.certificate,
        certified: arguments.certificate,
        host: arguments.host.as_deref().unwrap_or_default(),
        local: arguments.at,
        now: SystemTime::now(),
    };
    let found = site.accounts.explain(&attempt).map_err(|why| Failure::Running(format!("{why}.")))?;
    let Some(explained) = found else {
        return Err(Failure::Configuration(format!(
            "no account is named {}; anonymous is {}.{}",
            arguments.user,
            if site.config.anonymous { "on" } else { "off" },
            silent(&site.accounts.silent_before(None)),
        )));
    };
    // The reader may close the pipe early; that is not a failure.
    let effective = &explained.effective;
    let folders = site.mounts.of(effective);
    let shared = shared(&effective.groups, &site.config.limits.groups);
    let silent = silent(&site.accounts.silent_before(Some(&explained.source)));
    let refused = at_the_door(&site.config, &attempt).or_else(|| explained.refused.clone());
    let text = explanation(&explained, &silent, &shared, &folders)
        + &by_host(&explained, arguments)
        + &verdict(effective, refused, &attempt);
    let used = used(&site.accounts.used(effective, &attempt));
    let _ = io::stdout().write_all(format!("{text}{used}").as_bytes());
    Ok(())
}

/// A note about sources that can be asked at logins only.
fn silent(sources: &[&str]) -> String {
    match sources {
        [] => String::new(),
        sources => format!(
            " First asked at a login, and it decides where it knows the name: {}.",
            sources.join(", then ")
        ),
    }
}

/// The use of quotas, a line each.
pub(crate) fn used(used: &[Used]) -> String {
    let line = |used: &Used| {
        let since = if used.exact { "" } else { ", before something that changes now" };
        let place = used.folder.as_ref().map_or(String::new(), |path| format!(" in {path}"));
        format!("{:18}{} of {}{place}{since}\n", used.key, used.used, used.most)
    };
    match used {
        [] => String::new(),
        used => format!("\nUsed, as was last kept:\n{}", used.iter().map(line).collect::<String>()),
    }
}

/// The limits shared by members of these groups, a line each.
fn shared(groups: &[String], limits: &[(Arc<str>, Limits)]) -> String {
    let mut text = String::new();
    for (name, Limits { download, upload, sessions }) in limits {
        if !groups.iter().any(|group| **group == **name) {
            continue;
        }
        let keys = [("shared-download", download), ("shared-upload", upload), ("shared-sessions", sessions)];
        for (key, limit) in keys {
            if let Some(limit) = limit {
                text += &format!(
                    "{key:18}{:32}  of all members of the group {name} together\n",
                    limit.to_string()
                );
            }
        }
    }
    text
}

fn explanation(
    Explained { source, effective, .. }: &Explained,
    silent: &str,
    shared: &str,
    folders: &[(String, Permissions)],
) -> String {
    let mut text = format!("{} is in {source}", effective.user);
    match &effective.groups[..] {
        [] => text += ".",
        groups => text += &format!(", and of {}.", groups.join(", ")),
    }
    text += &format!("{silent}\n\n");
    for (key, value, origin) in effective.explain() {
        let by = match origin {
            Origin::Default => "by default".to_owned(),
            origin => format!("said of the {origin}"),
        };
        text += &format!("{key:18}{value:32}  {by}\n");
    }
    text += shared;
    for group in &effective.unknown_groups {
        text += &format!("\nThere is no [[group]] table named {group}.\n");
    }
    match effective.directory() {
        Ok(Some(folder)) => text += &format!("\nThe folder is {folder}.\n"),
        Ok(None) => {}
        Err(why) => text += &format!("\nThere is no folder: {why}.\n"),
    }
    for (path, access) in folders {
        text += &format!("At {path} lies another folder, with at most {}.\n", auth::Access(*access));
    }
    text
}

/// The effect of the host name that a client connects to.
fn by_host(Explained { host, root, .. }: &Explained, arguments: &Explain) -> String {
    let root = root.display();
    let name = arguments.host.as_ref().map(|name| format!("the name {name}"));
    let address = arguments.at.map(|address| format!("the address {address}"));
    let by: Vec<String> = name.into_iter().chain(address).collect();
    match (&by[..], host) {
        ([], _) => String::new(),
        (by, Some(host)) => {
            format!(
                "\nBy {} the host {host} is reached, and all that is served is {root}.\n",
                by.join(" at ")
            )
        }
        (by, None) => {
            format!(
                "\nNo [[host]] table is about {}: all that is served is {root}, as without a name.\n",
                by.join(" or ")
            )
        }
    }
}

/// Why the server refuses a login before it checks the account.
fn at_the_door(config: &Config, attempt: &Attempt<'_>) -> Option<String> {
    let names = |networks: &[Network]| networks.iter().any(|network| network.contains(attempt.from));
    let requires_tls = config.tls.as_ref().is_some_and(|tls| tls.login_required);
    match config {
        _ if names(&config.bans.deny) => Some("the address is in the server's deny".to_owned()),
        _ if !config.bans.allow.is_empty() && !names(&config.bans.allow) => {
            Some("the address is not in the server's allow".to_owned())
        }
        _ if attempt.encrypted => None,
        _ if requires_tls => {
            Some("the connection is not encrypted, and the server's tls-required wants it to be".to_owned())
        }
        _ if attempt.protocol == Protocol::Http && !attempt.from.is_loopback() => {
            Some("no password is taken by HTTP without TLS from another computer".to_owned())
        }
        _ => None,
    }
}

/// The result of a login.
fn verdict(effective: &Effective, refused: Option<String>, attempt: &Attempt<'_>) -> String {
    let how = match (attempt.certified, attempt.encrypted) {
        (true, _) => "with a certificate",
        (false, true) => "with TLS",
        (false, false) => "without TLS",
    };
    let verdict = match refused {
        Some(why) => format!("refused, {why}"),
        None if attempt.certified && effective.certificate_suffices() => {
            "let in without a password".to_owned()
        }
        None if effective.said.totp.is_some() => "let in with the right password and code".to_owned(),
        None => "let in with the right password".to_owned(),
    };
    format!("\nA login from {} by {} {how}, now: {verdict}.\n", attempt.from, attempt.protocol)
}
