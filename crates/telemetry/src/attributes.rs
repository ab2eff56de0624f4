//! Attributes as OTLP has them, and those of the resource. Numbers of 64 bits are texts in JSON.

use std::borrow::Cow;
use std::net::IpAddr;
use std::process;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The attribute that tells one process from another.
pub(crate) const INSTANCE: &str = "service.instance.id";

/// The attributes of a resource, a data point or a span.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Attributes<'a>(Vec<KeyValue<'a>>);

#[derive(Debug, Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Debug, Serialize)]
enum AnyValue<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    #[serde(rename = "stringValue")]
    Address(IpAddr),
    #[serde(rename = "intValue", serialize_with = "long")]
    Number(u64),
    #[serde(rename = "doubleValue")]
    Double(f64),
}

/// Writes a number of 64 bits.
pub(crate) fn long<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

impl<'a> Attributes<'a> {
    /// Returns none, with room for this many.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Adds a text.
    pub(crate) fn text(self, key: &'a str, value: impl Into<Cow<'a, str>>) -> Self {
        self.with(key, AnyValue::Text(value.into()))
    }

    /// Adds an address.
    pub(crate) fn address(self, key: &'a str, value: IpAddr) -> Self {
        self.with(key, AnyValue::Address(value))
    }

    /// Adds a whole number.
    pub(crate) fn number(self, key: &'a str, value: u64) -> Self {
        self.with(key, AnyValue::Number(value.min(i64::MAX.unsigned_abs())))
    }

    /// Adds a number.
    pub(crate) fn double(self, key: &'a str, value: f64) -> Self {
        self.with(key, AnyValue::Double(value))
    }

    /// Adds a text that is only there where there is one.
    pub(crate) fn maybe(self, key: &'a str, value: Option<impl Into<Cow<'a, str>>>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    fn with(mut self, key: &'a str, value: AnyValue<'a>) -> Self {
        self.0.push(KeyValue { key, value });
        self
    }

    /// Returns the array.
    pub(crate) fn into_json(self) -> Value {
        serde_json::to_value(self).expect("keys are texts")
    }
}

/// Returns the resource: which server it is. What is configured goes before what is known here.
pub(crate) fn resource(configured: &[(String, String)]) -> Value {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let pid = process::id();
    let known = [
        ("service.name", "millrace".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        // During a hot upgrade there are two processes, and the counters of each begin at zero.
        (INSTANCE, format!("{host}:{pid}")),
        ("host.name", host),
    ];
    let is_free = |key: &str| configured.iter().all(|(name, _)| name != key);
    let known = known.iter().filter(|(key, _)| is_free(key));
    let mut attributes = known.fold(Attributes::default(), |all, (key, value)| all.text(key, value.as_str()));
    if is_free("process.pid") {
        attributes = attributes.number("process.pid", pid.into());
    }
    let attributes = configured.iter().fold(attributes, |all, (key, value)| all.text(key, value.as_str()));
    json!({ "attributes": attributes.into_json() })
}

/// Returns the scope: what has measured.
pub(crate) fn scope() -> Value {
    json!({ "name": "millrace", "version": env!("CARGO_PKG_VERSION") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_goes_before_what_is_known() {
        let configured = [("service.instance.id", "web-1"), ("deployment.environment.name", "test")];
        let resource = resource(&configured.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let attributes = resource["attributes"].as_array().unwrap();
        let value = |key: &str| -> Vec<&Value> {
            attributes.iter().filter(|one| one["key"] == key).map(|one| &one["value"]).collect()
        };
        assert_eq!(value("service.name"), [&json!({ "stringValue": "millrace" })]);
        assert_eq!(value("service.instance.id"), [&json!({ "stringValue": "web-1" })]);
        assert_eq!(value("deployment.environment.name"), [&json!({ "stringValue": "test" })]);
        assert_eq!(value("process.pid"), [&json!({ "intValue": process::id().to_string() })]);
    }
}
