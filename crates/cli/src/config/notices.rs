//! `[[notice]]` tables: what administrators are told, and where.

use std::path::PathBuf;
use std::time::Duration;

use millrace_notices::{Kind, Mail, MailEncryption, MailError, MailServer, Receiver, Rule, Thresholds};
use millrace_server::hooks::Action;
use millrace_terminal::Failure;

use super::hooks::credentials;
use super::places::Places;
use super::said::{Place, Said};
use super::setting::{default, settings, unset};
use super::slot::{Many, Map, One};
use super::sources;
use super::value::{Count, Period};
use super::written::Written;

settings! {
    /// A `[[notice]]` table. That it has a receiver is checked when it is resolved.
    NoticeTable of "notice" {
        /// What it is about, or an array: `"certificate"`, `"disk"`, `"deliveries"`, `"bans"`, `"log"`
        on: Many<String> = unset("all of them");
        /// Sends a notice of a certificate that expires within this time
        certificate: One<Period> = default("14d");
        /// Sends a notice when less than this share of a disk is free, in percent: of a served folder, of logs, or of `state`
        disk_free: One<Count> = default("10").at_most(100, "percent");
        /// Sends a notice when this number of events of hooks wait or are parked
        deliveries: One<Count> = default("1000").positive();
        /// Sends a notice after this number of bans for failed logins within `bans-within`
        bans: One<Count> = default("20").positive();
        /// The time that bans are counted in
        bans_within: One<Period> = default("10m").positive();
        /// After how long a notice is repeated while nothing has changed. 0: not.
        repeat: One<Period> = default("1d");
        /// An address that notices are posted to: `"https://example.com/notices"`
        webhook: One<String> = unset("none");
        /// What goes with each post besides, as of a `[[hook]]`
        headers: Map<String> = unset("none");
        /// What posts are signed with, at least 24 characters
        secret: One<String> = unset("none");
        /// A file whose first line is that
        secret_file: One<PathBuf> = unset("none");
        /// Mail addresses that notices are sent to: `"ops@example.net"`
        mail_to: Many<String> = unset("none");
        /// The address that mail is from
        mail_from: One<String> = unset("the first of `mail-to`");
        /// The server that takes mail, `"HOST"` or `"HOST:PORT"`
        smtp: One<String> = unset("none");
        /// `"starttls"` (port 587), `"tls"` (port 465), or `"off"` (port 25)
        smtp_tls: One<MailEncryption> = default("starttls");
        /// Certificates, in PEM, of which one has to have signed the mail server's
        smtp_ca: One<PathBuf> = unset("what browsers trust");
        /// The user to log in to the mail server as
        smtp_user: One<String> = unset("no login");
        /// A file whose first line is the password
        smtp_password_file: One<PathBuf> = unset("none");
        /// An environment variable that has the password
        smtp_password_env: One<String> = unset("none");
    }
}

impl NoticeTable {
    /// Files that it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Said<PathBuf>> {
        [&self.secret_file, &self.smtp_ca, &self.smtp_password_file].into_iter().flatten()
    }

    /// `disk, bans: to https://example.com/notices, ops@example.net`
    pub(crate) fn shown(&self) -> String {
        let words = |said: &[Said<String>]| said.iter().map(|said| said.value.clone()).collect::<Vec<_>>();
        let on = if self.on.is_empty() { "all".to_owned() } else { words(&self.on).join(", ") };
        let to = self.webhook.iter().map(|said| said.value.clone()).chain(words(&self.mail_to));
        format!("{on}: to {}", to.collect::<Vec<_>>().join(", "))
    }

    /// Where the first of its keys was written that has a value.
    fn place(&self) -> Place {
        let keys = [&self.webhook, &self.smtp, &self.mail_from, &self.smtp_user, &self.secret];
        let lists = self.on.first().into_iter().chain(self.mail_to.first());
        lists.chain(keys.into_iter().flatten()).next().map_or(Place::CommandLine, |said| said.place.clone())
    }
}

/// The notices as written.
pub(crate) fn notices(tables: &[NoticeTable], places: &Places<'_>) -> Result<Vec<Rule>, Failure> {
    tables.iter().map(|table| rule(table, places)).collect()
}

fn rule(table: &NoticeTable, places: &Places<'_>) -> Result<Rule, Failure> {
    let webhook = table.webhook.as_ref().map(|url| webhook(table, url, places)).transpose()?;
    let mail = mail(table, places)?;
    let receivers: Vec<Receiver> = webhook.into_iter().chain(mail).collect();
    if receivers.is_empty() {
        let message = "say where notices go: webhook, or mail-to and smtp";
        return Err(places.error(&table.place(), "notice", message));
    }
    let count = |said: &One<Count>, default: u64| said.as_ref().map_or(default, |said| said.value.0 as u64);
    let period = |said: &One<Period>, default: u64| {
        said.as_ref().map_or(Duration::from_secs(default), |said| said.value.0)
    };
    let on = table.on.iter().map(|said| kind(said, places)).collect::<Result<Vec<_>, _>>()?;
    let thresholds = Thresholds {
        on: if on.is_empty() { Kind::ALL.to_vec() } else { on },
        certificate: period(&table.certificate, 14 * 86_400),
        disk_free: count(&table.disk_free, 10) as f64,
        deliveries: count(&table.deliveries, 1000),
        bans: count(&table.bans, 20),
        bans_within: period(&table.bans_within, 600),
    };
    Ok(Rule { thresholds, repeat: period(&table.repeat, 86_400), receivers })
}

fn kind(said: &Said<String>, places: &Places<'_>) -> Result<Kind, Failure> {
    Kind::parse(&said.value).ok_or_else(|| {
        let names = Kind::ALL.map(Kind::name).join(", ");
        let message = format!("there is no notice {:?}; there are {names}", said.value);
        places.error(&said.place, "on", &message)
    })
}

fn webhook(table: &NoticeTable, url: &Said<String>, places: &Places<'_>) -> Result<Receiver, Failure> {
    Action::check_url(&url.value).map_err(|error| places.error(&url.place, "webhook", &error))?;
    let shown = credentials(&table.headers, (&table.secret, &table.secret_file), url, places)?;
    Ok(Receiver::webhook(&url.value, shown))
}

fn mail(table: &NoticeTable, places: &Places<'_>) -> Result<Option<Receiver>, Failure> {
    let (smtp, first) = match (&table.smtp, table.mail_to.first()) {
        (None, None) => return Ok(None),
        (Some(smtp), Some(first)) => (smtp, first),
        (Some(said), None) => return Err(places.error(&said.place, "smtp", "say to whom: mail-to")),
        (None, Some(said)) => {
            return Err(places.error(&said.place, "mail-to", "say which server takes mail: smtp"));
        }
    };
    let (host, port) = host_and_port(&smtp.value).ok_or_else(|| {
        places.error(&smtp.place, "smtp", "write HOST or HOST:PORT, such as mail.example.net")
    })?;
    let server = MailServer {
        host,
        port,
        encryption: table.smtp_tls.as_ref().map(|said| said.value).unwrap_or_default(),
        ca: sources::read(table.smtp_ca.as_ref(), "smtp-ca", places)?,
        login: login(table, places)?,
    };
    let to: Vec<String> = table.mail_to.iter().map(|said| said.value.clone()).collect();
    let from = table.mail_from.as_ref().unwrap_or(first);
    let mail = Mail::new(&server, &from.value, &to);
    let mail = mail.map_err(|error| {
        let written = table.mail_to.iter().chain(&table.mail_from);
        let wrong = match &error {
            MailError::Address(address) => written.into_iter().find(|said| said.value == *address),
            _ => None,
        };
        places.error(&wrong.unwrap_or(smtp).place, "smtp", &error)
    })?;
    Ok(Some(Receiver::Mail(Box::new(mail))))
}

/// `mail.example.net`, `mail.example.net:25`, `[::1]:25`
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port.parse().ok()?)),
        _ => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = !host.is_empty() && !host.contains(['/', ' ', '@']);
    is_host.then(|| (host.to_owned(), port))
}

/// The user and the password for the mail server.
fn login(table: &NoticeTable, places: &Places<'_>) -> Result<Option<(String, String)>, Failure> {
    let Some(user) = &table.smtp_user else { return Ok(None) };
    let wrong = |place: &Place, key: &str, message: &str| Err(places.error(place, key, message));
    let password = match (&table.smtp_password_file, &table.smtp_password_env) {
        (Some(file), None) => {
            let bytes = sources::read(Some(file), "smtp-password-file", places)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.lines().next().unwrap_or_default().to_owned()
        }
        (None, Some(name)) => match std::env::var(&name.value) {
            Ok(password) => password,
            Err(_) => {
                return wrong(&name.place, "smtp-password-env", "there is no such environment variable");
            }
        },
        _ => {
            let message = "say where the password is: smtp-password-file or smtp-password-env";
            return wrong(&user.place, "smtp-user", message);
        }
    };
    Ok(Some((user.value.clone(), password)))
}

/// The folders whose disks are watched: those that are served, and those of logs and of what is kept.
pub(crate) fn watched(
    written: &Written,
    trees: Vec<PathBuf>,
    state: Option<PathBuf>,
    places: &Places<'_>,
) -> Vec<PathBuf> {
    let logs = [&written.access_log, &written.xferlog, &written.audit_log, &written.hooks_queue];
    let logs = logs.into_iter().flatten().filter_map(|said| {
        let path = std::path::absolute(places.path(said)).ok()?;
        path.parent().map(PathBuf::from)
    });
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in trees.into_iter().chain(logs).chain(state) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_server_is_named_with_a_port_or_without() {
        let read = |text: &str| host_and_port(text).map(|(host, port)| (host, port.unwrap_or(0)));
        for (text, host, port) in [
            ("mail.example.net", "mail.example.net", 0),
            ("mail.example.net:25", "mail.example.net", 25),
            ("[::1]:2525", "::1", 2525),
            ("::1", "::1", 0),
        ] {
            assert_eq!(read(text), Some((host.to_owned(), port)));
        }
        for wrong in ["", ":25", "smtp://mail", "mail:smtp", "mail:70000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
