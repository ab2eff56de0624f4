//! What the tables of a file say, a line each, for `millrace check`; hooks are in `written.rs`, virtual folders where
//! they are resolved.

use std::path::PathBuf;

use millrace_server::auth::{self, Effective, Group, Origin};

use super::cluster::ClusterTable;
use super::hooks::HookTable;
use super::hosts::HostTable;
use super::logins::{GroupTable, UserTable};
use super::notices::NoticeTable;
use super::otlp::OtlpTable;
use super::places::Places;
use super::proxy_routes::ProxyTable;
use super::said::Said;
use super::written::Written;
use super::{tls, web};

/// Descriptions of tables and of state files.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The hooks.
    pub(crate) hooks: Vec<String>,
    /// What administrators are told.
    pub(crate) notices: Vec<String>,
    /// The collector of OpenTelemetry, if there is one.
    pub(crate) otlp: Vec<String>,
    /// The cluster, if there is one.
    pub(crate) cluster: Vec<String>,
    /// What holds for members of groups.
    pub(crate) groups: Vec<String>,
    /// Names under which other folders are served.
    pub(crate) hosts: Vec<String>,
    /// Paths of HTTP that others answer.
    pub(crate) proxy_routes: Vec<String>,
    /// Fields of answers of HTTP.
    pub(crate) headers: Vec<String>,
    /// What pages of other origins may do.
    pub(crate) origins: Vec<String>,
    /// Pages of errors.
    pub(crate) error_pages: Vec<String>,
    /// The state folder.
    pub(crate) state: Option<PathBuf>,
    /// The file of quotas' counts, if configured; `None` within: no file.
    pub(crate) quotas: Option<Option<PathBuf>>,
}

impl Shown {
    pub(crate) fn of(written: &Written, places: &Places<'_>) -> Self {
        let quotas = written.quotas.as_ref().map(|said| match said.value.as_os_str() == "off" {
            true => None,
            false => Some(places.path(said)),
        });
        Self {
            hooks: written.hook.iter().map(HookTable::shown).collect(),
            notices: written.notice.iter().map(NoticeTable::shown).collect(),
            otlp: written.otlp.iter().map(OtlpTable::shown).collect(),
            cluster: written.cluster.iter().map(ClusterTable::shown).collect(),
            groups: written.group.iter().map(group).collect(),
            hosts: written
                .host
                .iter()
                .map(|host| {
                    let (folder, users) = (places.path(&host.directory), users_of(host, written, places));
                    format!("{}: the folder {}{users}", host.shown(), folder.display())
                })
                .collect(),
            proxy_routes: written.proxy.iter().map(proxy).collect(),
            headers: written.header.iter().map(header).collect(),
            origins: written.cors.iter().map(origins).collect(),
            error_pages: written
                .error_page
                .iter()
                .map(|page| format!("{}: {}", statuses(page), places.path(&page.file).display()))
                .collect(),
            state: tls::state_folder(written, &super::said::Place::CommandLine, places).ok(),
            quotas,
        }
    }
}

/// `; only zoe and the users of staging.db log in there`; empty where a host has no users of its own.
fn users_of(host: &HostTable, written: &Written, places: &Places<'_>) -> String {
    let is_its = |user: &&UserTable| user.host.as_ref().is_some_and(|said| host.is_written_as(&said.value));
    let listed = written.user.tables.iter().filter(is_its).map(|user| user.name.value.clone());
    let of_database = host.users.iter().map(|said| format!("the users of {}", places.path(said).display()));
    let all: Vec<String> = listed.chain(of_database).collect();
    match &all[..] {
        [] => String::new(),
        [one] => format!("; only {one} may log in there"),
        [some @ .., last] => format!("; only {} and {last} may log in there", some.join(", ")),
    }
}

fn words(said: &[Said<String>]) -> String {
    said.iter().map(|said| &*said.value).collect::<Vec<_>>().join(", ")
}

/// `staff: access ro, sessions 3`
fn group(table: &GroupTable) -> String {
    let group = Group { name: table.name.value.clone(), profile: table.profile.clone() };
    let member = auth::User { groups: vec![group.name.clone()], ..auth::User::default() };
    let effective: Effective = auth::resolve(&member, |_| Some(group.clone()));
    let said = effective.explain().into_iter().filter(|(.., origin)| *origin != Origin::Default);
    let said: Vec<String> = said.map(|(key, value, _)| format!("{key} {value}")).collect();
    match said.is_empty() {
        true => format!("{}: nothing of its own", group.name),
        false => format!("{}: {}", group.name, said.join(", ")),
    }
}

/// `/app, of it names ending in .php, to fastcgi:/run/php.sock`
fn proxy(table: &ProxyTable) -> String {
    let path = table.path.as_ref().map_or("/", |said| &said.value);
    let suffix = table.suffix.as_ref().map(|said| format!(", of it what ends in {}", said.value));
    format!("{path}{} to {}", suffix.map_or(String::new(), |suffix| suffix + ","), table.to.value)
}

/// `/assets/** and text/css: Cache-Control: no-store`
fn header(table: &web::HeaderTable) -> String {
    let cache = table.cache_control.iter().map(|said| format!("Cache-Control: {}", said.value));
    let set = table.set.iter().map(|(name, said)| match said.value.as_str() {
        "" => format!("no {name}"),
        value => format!("{name}: {value}"),
    });
    let fields: Vec<String> = cache.chain(set).collect();
    let whose = [&table.paths, &table.types].map(|said| words(said));
    let whose: Vec<&str> = whose.iter().map(String::as_str).filter(|words| !words.is_empty()).collect();
    let whose = if whose.is_empty() { "all answers".to_owned() } else { whose.join(" of ") };
    format!("{whose}: {}", fields.join("; "))
}

/// `https://app.example.org: GET, PUT, with logins, at /api/**`
fn origins(table: &web::CorsTable) -> String {
    let methods = match &table.methods[..] {
        [] => "GET, HEAD".to_owned(),
        methods => words(methods),
    };
    let credentials = table.credentials.as_ref().is_some_and(|said| said.value.0);
    let logins = if credentials { ", with logins" } else { "" };
    let paths = if table.paths.is_empty() { String::new() } else { format!(", at {}", words(&table.paths)) };
    format!("pages of {} by {methods}{logins}{paths}", words(&table.origins))
}

/// `403, 404 at /shop/**`
fn statuses(table: &web::ErrorPageTable) -> String {
    let statuses: Vec<String> = table.status.iter().map(|said| said.value.0.to_string()).collect();
    let mut text = if statuses.is_empty() { "all errors".to_owned() } else { statuses.join(", ") };
    for said in [&table.paths, &table.hosts] {
        if !said.is_empty() {
            text += &format!(" at {}", words(said));
        }
    }
    text
}
