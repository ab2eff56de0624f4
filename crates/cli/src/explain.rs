//! `millrace explain`: what holds for a user, who said so, and whether a login would be let in.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use millrace_server::auth::{self, Effective, Origin};
use millrace_server::limits::{Limits, Used};
use millrace_server::{Attempt, Permissions, Protocol};

use crate::args::Explain;
use crate::config::{self, Written};
use crate::failure::Failure;

pub(crate) fn run(arguments: &Explain) -> Result<(), Failure> {
    let site = config::load(Written::default(), arguments.config.as_deref())?;
    let attempt = Attempt {
        user: arguments.user.as_bytes(),
        password: b"",
        from: arguments.from,
        protocol: if arguments.http { Protocol::Http } else { Protocol::Ftp },
        encrypted: arguments.tls,
        certified: false,
        host: "",
        now: SystemTime::now(),
    };
    let found = site.accounts.explain(&attempt).map_err(|why| Failure::Running(format!("{why}.")))?;
    let Some((source, effective)) = found else {
        return Err(Failure::Configuration(format!(
            "no account is named {}; anonymous is {}.",
            arguments.user,
            if site.config.anonymous { "on" } else { "off" }
        )));
    };
    // Nobody may read on; that is no failure.
    let folders = site.mounts.of(&effective);
    let shared = shared(&effective.groups, &site.config.limits.groups);
    let text = explanation(&source, &effective, &shared, &folders, &attempt);
    let used = used(&site.accounts.used(&effective, attempt.now));
    let _ = io::stdout().write_all(format!("{text}{used}").as_bytes());
    Ok(())
}

/// What is used of quotas, a line each.
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

/// What members of these groups share, a line each.
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
    source: &str,
    effective: &Effective,
    shared: &str,
    folders: &[(String, Permissions)],
    attempt: &Attempt<'_>,
) -> String {
    let mut text = format!("{} is in {source}", effective.user);
    match &effective.groups[..] {
        [] => text += ".\n\n",
        groups => text += &format!(", and of {}.\n\n", groups.join(", ")),
    }
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
    let how = if attempt.encrypted { "with TLS" } else { "without TLS" };
    text += &format!("\nA login from {} by {} {how}, now: ", attempt.from, attempt.protocol);
    match effective.admit(attempt) {
        Ok(()) => text += "let in with the right password.\n",
        Err(why) => text += &format!("refused, {why}.\n"),
    }
    text
}
