//! The server's own files that lie in a served folder: a user with read permission there gets its keys and passwords,
//! and one with write permission can replace a program that it runs, a CA that it trusts, or a page whose scripts run at
//! its origin.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::folders::FolderTable;
use super::logins::Login;
use super::places::Places;
use super::said::Said;
use super::value::Access;
use super::written::Written;
use super::{database, tls};

/// A file of the server's own.
#[derive(Debug)]
pub(super) struct Own {
    /// The key that names it, or what it is.
    what: &'static str,
    path: PathBuf,
}

/// All of them that the configuration names, or that are where they are by default.
pub(super) fn files(written: &Written, places: &Places<'_>) -> Vec<Own> {
    let mut files = Vec::new();
    let mut add = |what: &'static str, said: Option<&Said<PathBuf>>| {
        let said = said.filter(|said| said.is_file());
        files.extend(said.map(|said| Own { what, path: places.path(said) }));
    };
    for key in &written.tls_key {
        add("tls-key", Some(key));
    }
    if written.tls_key.is_empty() {
        written.tls_cert.iter().for_each(|both| add("tls-cert", Some(both)));
    }
    for (what, said) in [
        ("users", &written.users),
        ("control", &written.control),
        ("hooks-queue", &written.hooks_queue),
        ("http-link-keys", &written.http_link_keys),
        ("quotas", &written.quotas),
        ("xferlog", &written.xferlog),
        ("access-log", &written.access_log),
        ("audit-log", &written.audit_log),
        ("syslog-key", &written.syslog_key),
        ("syslog-ca", &written.syslog_ca),
        ("tls-client-ca", &written.tls_client_ca),
        ("acme-ca", &written.acme_ca),
    ] {
        add(what, said.as_ref());
    }
    for host in &written.host {
        add("xferlog", host.xferlog.as_ref());
    }
    for folder in &written.folder {
        add("key-file", folder.key_file.as_ref());
        add("password-file", folder.password_file.as_ref());
        add("credentials-file", folder.credentials_file.as_ref());
        add("database", folder.database.as_ref());
        add("ca", folder.ca.as_ref());
        add("database-ca", folder.database_ca.as_ref());
    }
    // Their scripts run at the server's own origin.
    for page in &written.error_page {
        add("error-page", Some(&page.file));
    }
    for host in &written.host {
        add("users", host.users.as_ref());
        add("tls-key", host.tls_key.as_ref().or(host.tls_cert.as_ref()));
    }
    for source in &written.source {
        add("password-file", source.password_file.as_ref());
        add("ca", source.ca.as_ref());
    }
    for cluster in &written.cluster {
        add("password-file", cluster.password_file.as_ref());
        add("ca", cluster.ca.as_ref());
    }
    for provider in &written.admin_oidc {
        add("secret-file", provider.secret_file.as_ref());
        add("ca", provider.ca.as_ref());
    }
    for collector in &written.otlp {
        add("ca", collector.ca.as_ref());
    }
    for hook in &written.hook {
        add("secret-file", hook.secret_file.as_ref());
    }
    for notice in &written.notice {
        add("secret-file", notice.secret_file.as_ref());
        add("smtp-password-file", notice.smtp_password_file.as_ref());
        add("smtp-ca", notice.smtp_ca.as_ref());
    }
    for hook in &written.hook {
        files.extend(program(hook.run.first(), places).map(|path| Own { what: "run", path }));
    }
    for source in &written.source {
        files.extend(program(source.program.first(), places).map(|path| Own { what: "program", path }));
    }
    files.extend(places.file().map(|path| Own { what: "the configuration", path: path.to_owned() }));
    let state = tls::state_folder(written, &super::said::Place::CommandLine, places).ok();
    let users = written.users.is_none().then(database::default_path).flatten();
    let by_default = [("state", state), ("users", users)];
    files.extend(by_default.into_iter().filter_map(|(what, path)| {
        let path = path.filter(|path| path.exists())?;
        Some(Own { what, path })
    }));
    files
}

/// A program that was named by where it is; what `PATH` finds is not found among files that are served.
fn program(said: Option<&Said<String>>, places: &Places<'_>) -> Option<PathBuf> {
    let said = said.filter(|said| said.value.contains('/'))?;
    Some(match places.folder_of_program(said) {
        Some(folder) => folder.join(&said.value),
        None => PathBuf::from(&said.value),
    })
}

/// The folders beside `directory` that the configuration serves: other hosts', and virtual ones.
pub(super) fn others(written: &Written, places: &Places<'_>) -> Vec<PathBuf> {
    let hosts = written.host.iter().map(|host| &host.directory);
    let virtual_ones = written.folder.iter().filter_map(|folder| folder.directory.as_ref());
    hosts.chain(virtual_ones).map(|said| places.path(said)).collect()
}

/// The served folders: those of the users, and all of `directory` if accounts from other sources may be anywhere in it.
pub(super) fn served(
    directory: &Path,
    logins: &[Login],
    has_sources: bool,
    others: Vec<PathBuf>,
) -> Vec<PathBuf> {
    let of_logins = logins.iter().map(|login| match &login.beneath {
        Some(folder) => directory.join(folder),
        None => directory.to_owned(),
    });
    let mut folders: Vec<PathBuf> =
        has_sources.then(|| directory.to_owned()).into_iter().chain(of_logins).collect();
    folders.extend(others);
    folders.iter_mut().for_each(|folder| *folder = whole(folder));
    folders.sort();
    folders.dedup();
    // What lies in another that is served is told once.
    let all = folders.clone();
    folders.retain(|folder| !all.iter().any(|other| other != folder && folder.starts_with(other)));
    folders
}

/// The warnings about files there: a sentence for each folder.
pub(super) fn warnings(files: &[Own], served: &[PathBuf]) -> Vec<String> {
    let warning = |folder: &PathBuf| {
        let exposed = |own: &&Own| whole(&own.path).starts_with(folder);
        let mut names: Vec<String> = files.iter().filter(exposed).map(Own::shown).collect();
        names.sort();
        names.dedup();
        (!names.is_empty()).then(|| {
            format!(
                "files of the server's own lie in {}, where clients may read or replace them: {}; keep them elsewhere",
                folder.display(),
                names.join(", ")
            )
        })
    };
    served.iter().filter_map(warning).collect()
}

/// The warnings about `[[folder]]` tables of a part of a served folder, by which clients reach it without the table: a
/// sentence for each.
pub(super) fn reached_twice(written: &Written, places: &Places<'_>, served: &[PathBuf]) -> Vec<String> {
    let warning = |table: &FolderTable| {
        let is_for_some = !table.users.is_empty() || !table.groups.is_empty();
        let is_less = table.access.as_ref().is_some_and(|said| said.value == Access::ReadOnly)
            || table.quota_bytes.is_some()
            || table.quota_files.is_some();
        let directory = whole(&places.path(table.directory.as_ref()?));
        let (root, rest) = served.iter().find_map(|root| Some((root, directory.strip_prefix(root).ok()?)))?;
        let beneath = Path::new("/").join(rest);
        let is_elsewhere = beneath != Path::new(table.path.value.trim_end_matches('/'));
        let who = match (is_for_some, is_less && is_elsewhere) {
            (true, false) => "who is not among its users reaches it",
            (_, true) => "clients reach it",
            (false, false) => return None,
        };
        Some(format!(
            "the folder {} lies in {}, which is served as well: {who} as {}, without what its table says; keep it elsewhere",
            table.path.value,
            root.display(),
            beneath.display()
        ))
    };
    written.folder.iter().filter_map(warning).collect()
}

/// Files that hold a key or a password; `tls-cert` is one where the key is in it.
const SECRETS: [&str; 9] = [
    "tls-key",
    "tls-cert",
    "syslog-key",
    "http-link-keys",
    "key-file",
    "password-file",
    "credentials-file",
    "smtp-password-file",
    "secret-file",
];

/// The warnings about keys and passwords that other local users can read: a sentence for each.
pub(super) fn unguarded(files: &[Own]) -> Vec<String> {
    let mut warnings: Vec<String> = files
        .iter()
        .filter(|own| SECRETS.contains(&own.what))
        .filter_map(|own| {
            let mode = own.others_may()?;
            let path = own.path.display();
            Some(format!("others may read {path} ({}), of mode {mode:04o}: chmod 600 {path}", own.what))
        })
        .collect();
    warnings.sort();
    warnings.dedup();
    warnings
}

impl Own {
    /// The file's mode, where that lets others have it. What a group may is its owner's to say, as it is of a key that
    /// belongs to root and that a group of servers reads.
    fn others_may(&self) -> Option<u32> {
        let file = self.path.metadata().ok()?;
        let is_mine = file.uid() == rustix::process::geteuid().as_raw();
        let barred = if is_mine { 0o077 } else { 0o007 };
        (file.mode() & barred != 0).then_some(file.mode() & 0o7777)
    }

    fn shown(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        format!("{} ({})", name.display(), self.what)
    }
}

/// The whole path of a file that need not be there. Where its name is a link, the link is what clients could replace.
fn whole(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if path.is_dir() {
        return path.canonicalize().unwrap_or(path);
    }
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}
