//! Converts a row of a database or an entry of a directory to a user.
//!
//! Each cell is a setting by its name, in any form that has one meaning: a list may be an array, JSON, or words with
//! commas between; a truth may be 1. NULL and empty values are not set. A malformed value is an error that refuses the
//! login: without it, the account might lack a limit.

use serde_json::{Map, Value};

use super::profile::{Profile, User};

/// A column or attribute has a value that its setting cannot have.
#[derive(Debug, thiserror::Error)]
pub(super) enum CellError {
    /// The value cannot be read, with the setting that it is for.
    #[error("{key}: {source}")]
    Value { key: String, source: serde_json::Error },
    /// There is no such setting, or one of the profile cannot be read.
    #[error(transparent)]
    Profile(#[from] serde_json::Error),
    /// The profile is JSON, but not an object.
    #[error("profile: expected an object of JSON")]
    NotAnObject,
}

/// Makes a user and the hash of the password from the cells of a row. Returns `None` if the name in the row differs from
/// `name`: a database may ignore case or blanks, and each spelling would count as a user with its own sessions.
pub(super) fn user(
    name: &str,
    cells: impl IntoIterator<Item = (String, Value)>,
) -> Result<Option<(User, Option<String>)>, CellError> {
    let mut user = User { name: name.to_owned(), ..User::default() };
    // A column overrides the same key of the profile.
    let (mut hash, mut keys, mut own) = (None, Map::new(), Map::new());
    for (column, value) in cells {
        match (column.as_str(), value) {
            (_, Value::Null) => {}
            (_, Value::String(text)) if text.is_empty() => {}
            ("name", Value::String(found)) if found != name => return Ok(None),
            ("name", _) => {}
            ("password", Value::String(text)) => hash = Some(text),
            ("groups", value) => user.groups = names(value)?,
            ("profile", value) => keys = profile(value)?,
            (key, value) => {
                let key = key.replace('_', "-");
                let value = meant(&key, value)?;
                own.insert(key, value);
            }
        }
    }
    keys.extend(own);
    user.profile = read(Value::Object(keys))?;
    Ok(Some((user, hash)))
}

fn read(keys: Value) -> Result<Profile, serde_json::Error> {
    serde_json::from_value(keys)
}

/// Returns the constructor of the error for a value of `key`.
fn wrong(key: &str) -> impl Fn(serde_json::Error) -> CellError {
    move |source| CellError::Value { key: key.to_owned(), source }
}

fn names(value: Value) -> Result<Vec<String>, CellError> {
    let list = match value {
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(list @ Value::Array(_)) => list,
            _ => words(&text),
        },
        value => value,
    };
    serde_json::from_value(list).map_err(wrong("groups"))
}

fn profile(value: Value) -> Result<Map<String, Value>, CellError> {
    let object = match value {
        Value::String(text) => serde_json::from_str(&text).map_err(wrong("profile"))?,
        value => value,
    };
    match object {
        Value::Object(keys) => Ok(keys),
        _ => Err(CellError::NotAnObject),
    }
}

fn words(text: &str) -> Value {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// Returns the first form of a value that the key can have.
fn meant(key: &str, value: Value) -> Result<Value, CellError> {
    let others = match &value {
        Value::String(text) => {
            let json = serde_json::from_str(text).ok();
            json.into_iter().chain([words(text)]).collect()
        }
        Value::Number(number) => number
            .as_u64()
            .filter(|number| *number < 2)
            .map(|number| (number == 1).into())
            .into_iter()
            .collect(),
        _ => Vec::new(),
    };
    let mut told = None;
    for form in std::iter::once(value).chain(others) {
        match read(Value::Object(Map::from_iter([(key.to_owned(), form.clone())]))) {
            Ok(_) => return Ok(form),
            // The error of a form that this key never has explains less.
            Err(error) if told.is_none() || !error.to_string().starts_with("invalid type") => {
                told = Some(error);
            }
            Err(_) => {}
        }
    }
    let source = told.expect("the value itself is a form");
    // That error names the key.
    Err(if source.to_string().starts_with("unknown field") { source.into() } else { wrong(key)(source) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_row(row: Value) -> String {
        let Value::Object(cells) = row else { panic!("a row is an object here") };
        match user("alice", cells) {
            Ok(Some((user, hash))) => {
                let profile = serde_json::to_string(&user.profile).unwrap();
                format!("{} {:?} {profile} {}", user.name, user.groups, hash.as_deref().unwrap_or("-"))
            }
            Ok(None) => "unknown".to_owned(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn a_cell_is_understood_in_any_form_that_has_one_meaning() {
        for (row, expected) in [
            (json!({}), "alice [] {} -"),
            (json!({"name": "alice", "password": "$6$x"}), "alice [] {} $6$x"),
            (json!({"name": "Alice"}), "unknown"),
            (json!({"password": "", "directory": null, "expires": ""}), "alice [] {} -"),
            (json!({"groups": "a, b"}), r#"alice ["a", "b"] {} -"#),
            (json!({"groups": "[\"a\"]"}), r#"alice ["a"] {} -"#),
            (json!({"groups": ["a"]}), r#"alice ["a"] {} -"#),
            (json!({"groups": ""}), "alice [] {} -"),
            (json!({"require_tls": 1, "disabled": 0}), r#"alice [] {"require-tls":true,"disabled":false} -"#),
            (json!({"disabled": "true"}), r#"alice [] {"disabled":true} -"#),
            (json!({"from": "10.0.0.0/8,192.0.2.1"}), r#"alice [] {"from":["10.0.0.0/8","192.0.2.1"]} -"#),
            (json!({"access": "list,read"}), r#"alice [] {"access":"ro"} -"#),
            (json!({"sessions": 4}), r#"alice [] {"sessions":"4"} -"#),
            (json!({"profile": "{\"access\": \"ro\"}"}), r#"alice [] {"access":"ro"} -"#),
            (json!({"profile": {"access": "ro"}, "access": "rw"}), r#"alice [] {"access":"rw"} -"#),
            (
                json!({"tree": "[{\"path\": \"/in\", \"access\": \"rw\"}]"}),
                r#"alice [] {"tree":[{"path":"/in","access":"rw"}]} -"#,
            ),
        ] {
            assert_eq!(read_row(row.clone()), expected, "{row}");
        }
    }

    #[test]
    fn malformed_values_are_errors() {
        for (row, told) in [
            (json!({"acess": "ro"}), "unknown field `acess`"),
            (json!({"access": "all"}), "access: \"all\" is no permission"),
            (json!({"disabled": 2}), "disabled: invalid type"),
            (json!({"expires": "soon"}), "expires: \"soon\" is no date"),
            (json!({"profile": "[]"}), "profile: expected an object"),
            (json!({"profile": "{"}), "profile: "),
            (json!({"profile": {"acess": "ro"}}), "unknown field `acess`"),
            (json!({"groups": 7}), "groups: "),
        ] {
            let found = read_row(row.clone());
            assert!(found.starts_with(told), "{row}: {found}");
        }
    }
}
