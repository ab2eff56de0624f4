//! The keys about bandwidth and sessions, as the server takes them.

use millrace_server::auth::Quantity;
use millrace_server::limits::{Limit, Limits, LoginRates, Rate, RateError, ServerLimits};
use millrace_server::{BanRules, Network};

use super::said::Said;
use super::value::Value;
use super::written::Written;

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

impl Value for Quantity {
    const EXPECTED: &'static str = "a number, such as 1000 or \"10G\", or \"none\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::auth::ValueError| error.to_string())
    }

    fn from_integer(number: i64) -> Option<Result<Self, String>> {
        let value = u64::try_from(number).map(|number| Self(Some(number)));
        Some(value.map_err(|_| format!("{number} is below zero; write a number such as 1000")))
    }
}

impl Value for Network {
    const EXPECTED: &'static str = "a network, such as \"10.0.0.0/8\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: millrace_server::NetworkError| error.to_string())
    }
}

/// A rate of logins, or `"none"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logins(Option<Rate>);

impl Value for Logins {
    const EXPECTED: &'static str = "a rate, such as \"60/minute\", or \"none\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            text => text.parse().map(|rate| Self(Some(rate))).map_err(|error: RateError| error.to_string()),
        }
    }
}

/// How often somebody may log in.
pub(crate) fn logins(written: &Written) -> LoginRates {
    let rate = |said: &Option<Said<Logins>>| said.as_ref().and_then(|said| said.value.0);
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

/// What was written about them.
pub(crate) fn limits(written: &Written) -> ServerLimits {
    let said = |said: &Option<Said<Limit>>| {
        said.as_ref().map(|said| said.value.clone()).filter(|limit| !limit.is_none())
    };
    ServerLimits {
        server: Limits {
            download: said(&written.download_limit),
            upload: said(&written.upload_limit),
            sessions: None,
        },
        listeners: Vec::new(),
        user: Limits {
            download: said(&written.user_download_limit),
            upload: said(&written.user_upload_limit),
            sessions: said(&written.user_sessions),
        },
        session: Limits {
            download: said(&written.session_download_limit),
            upload: said(&written.session_upload_limit),
            sessions: None,
        },
    }
}
