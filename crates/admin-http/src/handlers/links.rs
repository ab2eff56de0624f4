//! Links that expire. The checks are those of `millrace link`.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use millrace_server::{LinkRefused, NewLink, issue_link};
use serde_json::json;

use crate::call::Call;
use crate::operation::Answering;
use crate::reply::{Problem, Reply};

/// Makes a link.
pub(crate) fn make(call: Call) -> Answering {
    Box::pin(async move {
        let api = Arc::clone(&call.api);
        api.wait_for(move || issue(&call)).await?
    })
}

fn issue(call: &Call) -> Result<Reply, Problem> {
    let new = NewLink {
        path: call.text("path").unwrap_or_default(),
        user: call.text("user").unwrap_or("anonymous"),
        valid: Duration::from_secs(call.number("seconds").unwrap_or_default()),
        is_upload: call.text("permits") == Some("put"),
        is_forced: false,
        url: call.text("url").unwrap_or_default(),
    };
    let made = call.as_administrator(|by| issue_link(&call.running, &new, by))?;
    Ok(Reply::json(&json!({
        "ok": true,
        "url": format!("{}{}", new.url.trim_end_matches('/'), made.target),
        "permits": made.permits(),
        "expires": made.link.expires,
        "note": made.doubt,
    })))
}

impl From<LinkRefused> for Problem {
    fn from(refused: LinkRefused) -> Self {
        let text = refused.to_string();
        match refused {
            LinkRefused::NoKey => Self::new(StatusCode::CONFLICT, text),
            LinkRefused::UnknownUser(_) | LinkRefused::AnonymousOff => Self::invalid(text).in_field("user"),
            LinkRefused::Expired => Self::invalid(text).in_field("seconds"),
            LinkRefused::NoPath(_)
            | LinkRefused::NoFile(..)
            | LinkRefused::IsFolder(_)
            | LinkRefused::Unseen(..)
            | LinkRefused::Forbidden(..) => Self::invalid(text).in_field("path"),
        }
    }
}
