//! Settings in environment variables: `MILLRACE_PASSIVE_PORTS` is the key `passive-ports`. The value of
//! `MILLRACE_PASSIVE_PORTS_FILE` is the name of a file that has it, as containers are given secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use super::error::ValueError;
use super::report::nearest;
use super::said::Place;
use super::setting::Table;
use super::written::Written;
use millrace_terminal::Failure;

const PREFIX: &str = "MILLRACE_";

/// Variables of the process.
pub(super) type Variables = BTreeMap<String, OsString>;

/// The variable that programs of hooks have. Others of theirs are named as settings are: `MILLRACE_USER` is a client.
const OF_HOOKS: &str = "MILLRACE_EVENT";

/// Returns the variables of this process that may be settings: none in a program of a hook. An empty one counts as not
/// set.
pub(super) fn variables() -> Variables {
    let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    settings(named.collect())
}

fn settings(all: Variables) -> Variables {
    match all.contains_key(OF_HOOKS) {
        true => Variables::new(),
        false => {
            all.into_iter().filter(|(name, value)| name.starts_with(PREFIX) && !value.is_empty()).collect()
        }
    }
}

/// Returns the name of a key's variable.
pub(crate) fn name(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('-', "_"))
}

/// Reads the settings among these variables.
pub(super) fn read(variables: &Variables) -> Result<Written, Failure> {
    let mut written = Written::default();
    let mut wrong = Vec::new();
    for row in Written::ROWS {
        let Some((name, value)) = value(row.name, variables) else { continue };
        let slot = (row.slot)(&mut written);
        let place = Place::Environment(name.clone());
        let result = value.and_then(|text| {
            slot.split(&text).into_iter().try_for_each(|text| slot.read_text(text, &place, row.key.range))
        });
        wrong.extend(result.err().map(|message| format!("{name}: {message}.")));
    }
    wrong.extend(variables.iter().filter_map(|(name, value)| misspelt(name, &value.to_string_lossy())));
    if wrong.is_empty() { Ok(written) } else { Err(Failure::Configuration(wrong.join("\n"))) }
}

/// Returns the variable that has a key's value, and the value.
fn value(key: &str, variables: &Variables) -> Option<(String, Result<String, ValueError>)> {
    let name = name(key);
    let file = format!("{name}_FILE");
    match (variables.get(&name), variables.get(&file)) {
        (Some(_), Some(_)) => Some((name, Err(ValueError::BothSet(file)))),
        (Some(value), None) => {
            let text = value.to_str().map(str::to_owned).ok_or(ValueError::Encoding);
            Some((name, text))
        }
        (None, Some(path)) => {
            let text = fs::read_to_string(path).map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
            Some((
                file,
                match text {
                    // A secret that has not come is not the wish for none: without users everyone may read.
                    Ok(text) if text.trim().is_empty() => Err(ValueError::EmptyFile { path: path.into() }),
                    Ok(text) => Ok(text),
                    Err(error) => Err(ValueError::Unreadable { path: path.into(), error }),
                },
            ))
        }
        (None, None) => None,
    }
}

/// Says which variable one of another name was meant to be, as far as one can tell. Kubernetes sets variables of its own
/// for a service that is called millrace: `MILLRACE_PORT`, `MILLRACE_SERVICE_HOST`, `MILLRACE_PORT_21_TCP_ADDR`.
fn misspelt(name: &str, value: &str) -> Option<String> {
    let key = name.strip_prefix(PREFIX)?.to_lowercase().replace('_', "-");
    let is_known = Written::row(key.strip_suffix("-file").unwrap_or(&key)).is_some() || key == "config";
    let is_of_kubernetes =
        value.contains("://") || ["service", "port"].iter().any(|word| key.starts_with(word));
    if is_known || is_of_kubernetes {
        return None;
    }
    let known: Vec<&str> = Written::ROWS.iter().map(|row| row.name).collect();
    let near = nearest(&key, &known).filter(|near| strsim::jaro_winkler(near, &key) > 0.9)?;
    Some(format!("there is no setting {name}; did you mean {}?", self::name(near)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_named_and_those_of_others_are_not() {
        for (name, value, meant) in [
            ("MILLRACE_PASIVE_PORTS", "50000", Some("MILLRACE_PASSIVE_PORTS")),
            ("MILLRACE_FTP_", "off", Some("MILLRACE_FTP")),
            ("MILLRACE_FTP", "off", None),
            ("MILLRACE_USER_FILE", "/run/secrets/user", None),
            ("MILLRACE_CONFIG", "/etc/millrace.toml", None),
            ("MILLRACE_GOLDEN", "write", None),
            ("MILLRACE_PORT", "tcp://10.0.0.1:21", None),
            ("MILLRACE_FTP_PORT", "tcp://10.0.0.1:21", None),
            ("MILLRACE_SERVICE_PORT_FTP", "21", None),
        ] {
            let told = misspelt(name, value);
            assert_eq!(told.is_some(), meant.is_some(), "{name}: {told:?}");
            assert!(told.is_none_or(|told| told.contains(meant.unwrap())), "{name}");
        }
    }

    #[test]
    fn programs_of_hooks_and_empty_variables_set_nothing() {
        let settings = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
            settings(all.collect()).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(
            settings(&[("MILLRACE_USER", "a:b"), ("MILLRACE_FTP", ""), ("HOME", "/")]),
            ["MILLRACE_USER"]
        );
        assert!(settings(&[("MILLRACE_USER", "alice"), ("MILLRACE_EVENT", "upload")]).is_empty());
    }
}
