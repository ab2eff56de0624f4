//! The keys about bandwidth and sessions, as the server takes them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_server::Network;
use millrace_server::limits::{Class, Limit, Limits, Quantity, RateLimit, Scheduled, ServerLimits};
use millrace_terminal::Failure;

use super::error::ValueError;
use super::logins::GroupTable;
use super::places::Places;
use super::said::Said;
use super::setting::{required, settings, unset};
use super::slot::{Many, One};
use super::texts::text_file;
use super::value::{Listen, Switch, Value};
use super::written::Written;

impl Value for Limit {
    const EXPECTED: &'static str = "a number, such as 1000 or \"10M; mon-fri 08:00-18:00 1M\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(text.parse()?)
    }

    fn from_integer(number: i64) -> Option<Result<Self, ValueError>> {
        let value = u64::try_from(number).map(Self::of);
        Some(value.map_err(|_| ValueError::Negative { number, expected: "a number such as 1000" }))
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.most())
    }
}

impl Value for Scheduled<Quantity> {
    const EXPECTED: &'static str = "a number, such as 1000 or \"10G; sat,sun 20G\", or \"none\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(text.parse()?)
    }

    fn from_integer(number: i64) -> Option<Result<Self, ValueError>> {
        let value = u64::try_from(number).map(|number| Self::from(Quantity(number)));
        Some(value.map_err(|_| ValueError::Negative { number, expected: "a number such as 1000" }))
    }
}

impl Value for Network {
    const EXPECTED: &'static str = "a network, such as \"10.0.0.0/8\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(text.parse()?)
    }
}

impl Value for RateLimit {
    const EXPECTED: &'static str = "a rate, such as \"60/minute\", or \"none\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(text.parse()?)
    }
}

settings! {
    /// A `[[listener]]` table: the limits shared by all clients of an address.
    ListenerTable of "listener" {
        /// One of the addresses in `ftp`, `ftps`, `http` and `https`, written as it is there:
        /// `"192.0.2.1:2122"`
        address: Said<Listen> = required();
        /// Bytes a second to all clients of this address together: `"10M"`, or with a schedule
        download: One<Limit> = unset("none");
        /// The same from them
        upload: One<Limit> = unset("none");
        /// Sessions at this address
        sessions: One<Limit> = unset("none");
    }
}

settings! {
    /// A `[[class]]` table: sessions of FTP that share limits because of where their clients are. A session is in
    /// the first class that fits it.
    ClassTable of "class" {
        /// The name, for the log and `millrace ctl limits`
        name: Said<String> = required();
        /// Networks that its clients come from, one or an array
        from: Many<Network> = unset("any");
        /// Names of hosts that they come from, besides: `"client.example.org"`, or `"*.example.org"` for all beneath; one or an
        /// array
        hosts: Many<String> = unset("any");
        /// Whether it is of anonymous users (`true`), or of all others (`false`)
        anonymous: One<Switch> = unset("of both");
        /// Sessions of the class: `"100; mon-fri 08:00-18:00 20"`
        sessions: One<Limit> = unset("none");
        /// Bytes a second to all of them together
        download: One<Limit> = unset("none");
        /// The same from them
        upload: One<Limit> = unset("none");
        /// A file whose lines are told to a client that `sessions` turns away
        limit_file: One<PathBuf> = unset("`limit-file` of the top level");
    }
}

/// The classes, with their messages.
pub(crate) fn classes(tables: &[ClassTable], places: &Places<'_>) -> Result<Vec<Class>, Failure> {
    let mut classes: Vec<Class> = Vec::new();
    for table in tables {
        let name = table.name.value.clone();
        if classes.iter().any(|class| class.name == name) {
            let message = format!("there are two [[class]] tables of the name {name}");
            return Err(places.error(&table.name.place, "name", &message));
        }
        classes.push(Class {
            name,
            from: table.from.iter().map(|said| said.value).collect(),
            hosts: super::hosts::names(&table.hosts, "hosts", places)?,
            anonymous: table.anonymous.as_ref().map(|said| said.value.0),
            limits: both(&table.download, &table.upload, &table.sessions),
            message: text_file(table.limit_file.as_ref(), "limit-file", places)?.into(),
        });
    }
    Ok(classes)
}

/// What was written of a scope.
pub(super) fn both(
    download: &Option<Said<Limit>>,
    upload: &Option<Said<Limit>>,
    sessions: &Option<Said<Limit>>,
) -> Limits {
    let said = |said: &Option<Said<Limit>>| {
        said.as_ref().map(|said| said.value.clone()).filter(|limit| !limit.is_none())
    };
    Limits { download: said(download), upload: said(upload), sessions: said(sessions) }
}

/// What was written about them, but for listeners.
pub(crate) fn limits(written: &Written) -> ServerLimits {
    let shared = |group: &GroupTable| {
        let name: Arc<str> = group.name.value.as_str().into();
        (name, both(&group.shared_download, &group.shared_upload, &group.shared_sessions))
    };
    ServerLimits {
        server: both(&written.download_limit, &written.upload_limit, &None),
        listeners: Vec::new(),
        groups: written.group.iter().map(shared).filter(|(_, limits)| !limits.is_empty()).collect(),
        user: both(&written.user_download_limit, &written.user_upload_limit, &written.user_sessions),
        session: both(&written.session_download_limit, &written.session_upload_limit, &None),
    }
}

/// What was written about listeners, which are those at the doors.
pub(crate) fn listeners(
    tables: &[ListenerTable],
    doors: &[(&str, &[SocketAddr])],
    places: &Places<'_>,
) -> Result<Vec<(SocketAddr, Limits)>, Failure> {
    let mut listeners: Vec<(SocketAddr, Limits)> = Vec::new();
    for table in tables {
        let wrong = |message: &str| Err(places.error(&table.address.place, "address", message));
        let Listen::On(address) = table.address.value else {
            return wrong("\"off\" is no address at which anybody is served");
        };
        if listeners.iter().any(|(other, _)| *other == address) {
            return wrong(&format!("there are two [[listener]] tables for {address}"));
        }
        if !doors.iter().any(|(_, addresses)| addresses.contains(&address)) {
            let message =
                "is none of the addresses in `ftp`, `ftps`, `http` and `https`; write it as it is there";
            return wrong(&format!("{address} {message}"));
        }
        listeners.push((address, both(&table.download, &table.upload, &table.sessions)));
    }
    Ok(listeners)
}
