//! The configuration: read, looked at, replaced, restored.

use std::path::Path;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{ETAG, IF_MATCH};
use millrace_server::Administrator;
use serde_json::{Map, Value, json};

use crate::call::{Api, Call};
use crate::configuration::{Configuration, difference, tag};
use crate::operation::Answering;
use crate::reply::{Problem, Reply};

/// Returns the text, what it says as JSON, and its entity tag.
pub(crate) fn read(call: Call) -> Answering {
    Box::pin(async move {
        let api = Arc::clone(&call.api);
        call.api.wait_for(move || Ok(shown(of(&api)?, &text(of(&api)?)?))).await?
    })
}

fn shown(configuration: &Configuration, text: &str) -> Reply {
    let parsed: Option<toml::Table> = toml::from_str(text).ok();
    let (path, tag) = (configuration.file.path.display().to_string(), tag(text));
    let told = json!({
        "ok": true, "path": path, "text": text, "parsed": parsed, "etag": tag,
        "writable": configuration.file.is_writable,
    });
    Reply::json(&told).with(ETAG, &tag)
}

/// Looks at a text as a reload would.
pub(crate) fn validate(call: Call) -> Answering {
    Box::pin(async move {
        let (api, text) = (Arc::clone(&call.api), call.text("text").unwrap_or_default().to_owned());
        call.api.wait_for(move || check(&api, &text).map(|()| Reply::json(&json!({ "ok": true })))).await?
    })
}

/// Replaces the file, and puts it in force.
pub(crate) fn write(call: Call) -> Answering {
    Box::pin(async move {
        let text = call.text("text").unwrap_or_default().to_owned();
        put(call, move |_| Ok(text)).await
    })
}

/// Lists the versions that are kept, the newest first.
pub(crate) fn history(call: Call) -> Answering {
    Box::pin(async move {
        let api = Arc::clone(&call.api);
        let list = move || {
            let configuration = of(&api)?;
            let told = |number: u64| {
                let version = configuration.version(number)?;
                Some(json!({ "version": number, "time": version["time"], "by": version["by"] }))
            };
            let versions: Vec<_> = configuration.numbers().into_iter().rev().filter_map(told).collect();
            Ok(Reply::json(&json!({ "ok": true, "versions": versions })))
        };
        call.api.wait_for(list).await?
    })
}

/// Returns a version, what it had changed, and what would change if it were restored.
pub(crate) fn version(call: Call) -> Answering {
    Box::pin(async move {
        let (api, number) = (Arc::clone(&call.api), call.number("version").unwrap_or(0));
        let tell = move || {
            let configuration = of(&api)?;
            let (version, own) = kept(configuration, number)?;
            let before = configuration.numbers().into_iter().rev().find(|other| *other < number);
            let before = before.and_then(|before| kept(configuration, before).ok());
            let before = before.map_or_else(String::new, |(_, text)| text);
            Ok(Reply::json(&json!({
                "ok": true, "version": number, "time": version["time"], "by": version["by"], "text": own,
                "change": difference(&before, &own), "diff": difference(&text(configuration)?, &own),
            })))
        };
        call.api.wait_for(tell).await?
    })
}

/// Replaces the file by a version, and puts it in force.
pub(crate) fn restore(call: Call) -> Answering {
    Box::pin(async move {
        let number = call.number("version").unwrap_or(0);
        put(call, move |configuration| kept(configuration, number).map(|(_, text)| text)).await
    })
}

fn of(api: &Api) -> Result<&Configuration, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "this server has no configuration file (--config)");
    api.configuration.as_ref().ok_or_else(none)
}

fn text(configuration: &Configuration) -> Result<String, Problem> {
    let failed = |error| Problem::failed(format!("the configuration file cannot be read: {error}"));
    configuration.read().map_err(failed)
}

fn kept(configuration: &Configuration, number: u64) -> Result<(Value, String), Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, format!("there is no version {number}"));
    let version = configuration.version(number).ok_or_else(none)?;
    let text = version["text"].as_str().ok_or_else(none)?.to_owned();
    Ok((version, text))
}

fn check(api: &Api, text: &str) -> Result<(), Problem> {
    let path = &of(api)?.file.path;
    api.administration.validate(text).map_err(|error| {
        let error = error.to_string();
        let line = line_of(&error, path);
        Problem::invalid(error).at_line(line)
    })
}

/// Returns the line of `FILE:LINE:COLUMN: what is wrong`. The file is named as the command line has it: its path may be
/// relative there.
fn line_of(error: &str, path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let (_, place) = error.split_once(&format!("{name}:"))?;
    place.split(':').next()?.parse().ok()
}

async fn put(
    call: Call,
    text: impl FnOnce(&Configuration) -> Result<String, Problem> + Send + 'static,
) -> Result<Reply, Problem> {
    let api = Arc::clone(&call.api);
    let done = move || {
        let configuration = of(&call.api)?;
        let _alone = configuration.lock();
        let text = text(configuration)?;
        let by = call.name();
        let result = replace(&call, configuration, &text);
        let failed = result.as_ref().err().map(Problem::detail);
        let by = Administrator::Remote { name: &by, from: call.peer.ip().to_canonical() };
        call.running.note_administered("write-configuration", failed, Some(by));
        result
    };
    api.wait_for(done).await?
}

fn replace(call: &Call, configuration: &Configuration, new: &str) -> Result<Reply, Problem> {
    if !configuration.file.is_writable {
        let refused =
            "the API may not replace the file: admin-writes-config = true permits it, from the next start on";
        return Err(Problem::new(StatusCode::FORBIDDEN, refused));
    }
    let old = text(configuration)?;
    match call.field(IF_MATCH.as_str()) {
        None => {
            let missing = "say by If-Match which text you have seen: its ETag comes with GET /api/v1/config";
            return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, missing));
        }
        Some(seen) if seen != tag(&old) => {
            let other = "the file has been changed since you read it: read it again";
            return Err(Problem::new(StatusCode::PRECONDITION_FAILED, other).with(ETAG, tag(&old)));
        }
        Some(_) => {}
    }
    check(&call.api, new)?;
    let failed = |error| Problem::failed(format!("the file cannot be replaced, and is as it was: {error}"));
    configuration.keep(&old, "before").map_err(failed)?;
    configuration.replace(new).map_err(failed)?;
    let by = call.name();
    let from = Administrator::Remote { name: &by, from: call.peer.ip().to_canonical() };
    let order = Map::from_iter([("do".to_owned(), "reload".into())]);
    let mut told = match call.api.administration.perform(order, &call.running, Some(from)) {
        Ok(told) => told,
        Err(error) => {
            // What is in force and what the file says stay the same.
            configuration.replace(&old).map_err(failed)?;
            return Err(error.into());
        }
    };
    if let Err(error) = configuration.keep(new, &by) {
        call.running.warn(&format!("the history of the configuration cannot be kept: {error}"));
    }
    let tag = tag(new);
    told["etag"] = tag.as_str().into();
    Ok(Reply::json(&told).with(ETAG, &tag))
}
