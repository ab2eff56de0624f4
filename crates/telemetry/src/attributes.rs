//! Attributes as OTLP has them, and those of the resource. Numbers of 64 bits are texts in JSON.

use std::process;

use serde_json::{Value, json};

/// The attribute that tells one process from another.
pub(crate) const INSTANCE: &str = "service.instance.id";

/// The attributes of a resource, a data point or a span.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<Value>);

impl Attributes {
    /// Adds a text.
    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.with(key, json!({ "stringValue": value }))
    }

    /// Adds a whole number.
    pub(crate) fn number(self, key: &str, value: u64) -> Self {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.with(key, json!({ "intValue": value.to_string() }))
    }

    /// Adds a number.
    pub(crate) fn double(self, key: &str, value: f64) -> Self {
        self.with(key, json!({ "doubleValue": value }))
    }

    /// Adds a text that is only there where there is one.
    pub(crate) fn maybe(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    fn with(mut self, key: &str, value: Value) -> Self {
        self.0.push(json!({ "key": key, "value": value }));
        self
    }

    /// Returns the array.
    pub(crate) fn into_json(self) -> Value {
        Value::Array(self.0)
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
    let mut attributes = known.fold(Attributes::default(), |all, (key, value)| all.text(key, value));
    if is_free("process.pid") {
        attributes = attributes.number("process.pid", pid.into());
    }
    let attributes = configured.iter().fold(attributes, |all, (key, value)| all.text(key, value));
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
