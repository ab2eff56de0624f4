//! Names of hosts: one, or all beneath one.

use std::fmt;

/// The name of a host, or all names beneath one: `*.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// In lower case; a wildcard's suffix begins with its dot.
    name: String,
    is_beneath: bool,
}

/// A text that is no name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a host: expected one such as \"files.example.org\" or \"*.example.org\", without a port"
)]
pub struct HostNameError(String);

impl HostName {
    /// Reads a name as it is written in a configuration.
    pub fn parse(text: &str) -> Result<Self, HostNameError> {
        let (rest, is_beneath) = match text.strip_prefix('*') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let labels = if is_beneath { rest.strip_prefix('.').unwrap_or_default() } else { rest };
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        match labels.split('.').all(is_label) {
            true => Ok(Self { name: rest.to_ascii_lowercase(), is_beneath }),
            false => Err(HostNameError(text.to_owned())),
        }
    }

    /// Returns true if a name in lower case is this one.
    pub fn covers(&self, plain: &str) -> bool {
        match self.is_beneath {
            true => plain.len() > self.name.len() && !plain.starts_with('.') && plain.ends_with(&self.name),
            false => plain == self.name,
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_beneath { "*" } else { "" }, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused() {
        for text in ["", "*", "*a.b", "a..b", "a.b:80", "a/b", "a b", ".a", "a.", "*."] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
    }
}
