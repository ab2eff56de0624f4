//! The keys about bandwidth and sessions, as the server takes them.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_server::limits::{Limit, Limits, LoginRates, Quantity, RateLimit, Scheduled, ServerLimits};
use millrace_server::{BanRules, Network};
use serde::Deserialize;

use super::logins::GroupTable;
use super::places::Places;
use super::said::Said;
use super::value::{Listen, Value};
use super::written::Written;
use crate::failure::Failure;

impl Value for Limit {
    const EXPECTED: &'static str = "a number, such as 1000 or \"10M; mon-fri 08:00-18:00 1M\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::limits::LimitError| error.to_string())
    }

    fn from_integer(number: i64) -> Option<Result<Self, String>> {
        let value = u64::try_from(number).map(Self::of);
        Some(value.map_err(|_| format!("{number} is below zero; write a number such as 1000")))
    }
}

impl Value for Scheduled<Quantity> {
    const EXPECTED: &'static str = "a number, such as 1000 or \"10G; sat,sun 20G\", or \"none\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::limits::LimitError| error.to_string())
    }

    fn from_integer(number: i64) -> Option<Result<Self, String>> {
        let value = u64::try_from(number).map(|number| Self::from(Quantity(number)));
        Some(value.map_err(|_| format!("{number} is below zero; write a number such as 1000")))
    }
}

impl Value for Network {
    const EXPECTED: &'static str = "a network, such as \"10.0.0.0/8\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::NetworkError| error.to_string())
    }
}

impl Value for RateLimit {
    const EXPECTED: &'static str = "a rate, such as \"60/minute\", or \"none\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::limits::LimitError| error.to_string())
    }
}

/// A `[[listener]]` table: what all who come to an address share.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ListenerTable {
    address: Said<Listen>,
    download: Option<Said<Limit>>,
    upload: Option<Said<Limit>>,
    sessions: Option<Said<Limit>>,
}

/// How often somebody may log in.
pub(crate) fn logins(written: &Written) -> LoginRates {
    let rate =
        |said: &Option<Said<RateLimit>>| said.as_ref().map(|said| said.value.clone()).unwrap_or_default();
    LoginRates {
        server: rate(&written.logins),
        address: rate(&written.logins_per_address),
        network: rate(&written.logins_per_network),
        user: rate(&written.user_logins),
    }
}

/// Who may connect, and who is banned.
pub(crate) fn bans(written: &Written) -> BanRules {
    let default = BanRules::default();
    let networks = |said: &[Said<Network>]| said.iter().map(|said| said.value).collect();
    BanRules {
        allow: networks(&written.allow),
        deny: networks(&written.deny),
        after: written
            .ban_after
            .as_ref()
            .map_or(default.after, |said| u32::try_from(said.value.0).unwrap_or(u32::MAX)),
        time: written.ban_time.as_ref().map_or(default.time, |said| said.value.0),
    }
}

/// What was written of a scope.
fn both(
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
        groups: written.group_tables.iter().map(shared).filter(|(_, limits)| !limits.is_empty()).collect(),
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
