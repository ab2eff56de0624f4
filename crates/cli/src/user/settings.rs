//! `KEY=VALUE`: settings of a user on the command line, of the same names and forms as in a `[[user]]` table.

use std::str::FromStr;

use millrace_server::auth::{self, User};
use millrace_terminal::Failure;
use serde_json::{Map, Value};

/// A setting as it was written.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    key: String,
    /// `None` takes the setting back.
    value: Option<String>,
}

impl Setting {
    /// As it was written, less what logs in.
    pub(crate) fn for_audit(&self) -> String {
        let Self { key, value } = self;
        match (key.as_str(), value) {
            ("totp", Some(_)) => "totp=(secret)".to_owned(),
            (_, value) => format!("{key}={}", value.as_deref().unwrap_or_default()),
        }
    }
}

/// A text that is no setting.
#[derive(Debug, thiserror::Error)]
#[error("write KEY=VALUE, such as access=ro")]
pub(crate) struct SettingError;

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (key, value) = text.split_once('=').ok_or(SettingError)?;
        Ok(Self { key: key.to_owned(), value: Some(value.to_owned()).filter(|value| !value.is_empty()) })
    }
}

/// Takes settings over; where one makes no sense, none.
pub(crate) fn apply(settings: &[Setting], user: &mut User) -> Result<(), Failure> {
    let mut groups = user.groups.clone();
    let mut keys = match serde_json::to_value(&user.profile) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    };
    for Setting { key, value } in settings {
        match (key.as_str(), value) {
            ("groups", value) => {
                groups = value.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect()
            }
            (key, None) => {
                auth::read_setting(key, Value::Null).map_err(refused)?;
                keys.remove(key);
            }
            (key, Some(value)) => {
                let value = meant(key, value)?;
                keys.insert(key.to_owned(), value);
            }
        }
    }
    user.profile = auth::read_settings(keys).map_err(refused)?;
    user.groups = groups;
    Ok(())
}

fn refused(error: auth::SettingError) -> Failure {
    Failure::Configuration(format!("{error}."))
}

/// The first of these that the key can be: what TOML would read, the text itself, the words between commas.
fn meant(key: &str, text: &str) -> Result<Value, Failure> {
    let whole = Value::String(text.to_owned());
    let words = Value::Array(text.split(',').map(|word| Value::String(word.trim().to_owned())).collect());
    let mut told = None;
    for form in as_toml(text).into_iter().chain([whole, words]) {
        match auth::read_setting(key, form.clone()).map_err(refused) {
            Ok(_) => return Ok(form),
            // A form that this key never has is not worth a mention.
            Err(failure) if told.is_none() || !failure.to_string().contains(": invalid type") => {
                told = Some(failure);
            }
            Err(_) => {}
        }
    }
    Err(told.unwrap_or_else(|| Failure::Configuration(format!("{key} cannot be {text}."))))
}

fn as_toml(text: &str) -> Option<Value> {
    let table: toml::Table = toml::from_str(&format!("value = {text}")).ok()?;
    let value = table.get("value").filter(|_| table.len() == 1)?;
    // A date would become something that only TOML knows.
    if value.is_datetime() { None } else { serde_json::to_value(value).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(settings: &[&str]) -> Result<User, String> {
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        let mut user = User::default();
        apply(&settings, &mut user).map_err(|failure| failure.to_string())?;
        Ok(user)
    }

    #[test]
    fn words_stand_for_what_the_key_takes() {
        let user = applied(&[
            "access=ro",
            "directory=home/{user}",
            "groups=staff,all",
            "from=10.0.0.0/8,192.0.2.7",
            "not-from=[\"10.1.0.0/16\"]",
            "expires=2027-01-31",
            "sessions=3",
            "download=10M; sat 20M",
            "require-tls=true",
            "deny-names=.*",
            "tree=[{path = \"/in\", access = \"rw\"}]",
        ])
        .unwrap();
        assert_eq!(user.groups, ["staff", "all"]);
        let said = serde_json::to_value(&user.profile).unwrap();
        assert_eq!(
            said.to_string(),
            serde_json::json!({
                "access": "ro", "directory": "home/{user}", "from": ["10.0.0.0/8", "192.0.2.7"],
                "not-from": ["10.1.0.0/16"], "expires": "2027-01-31T00:00:00Z", "sessions": "3",
                "download": "10000000; sat 20000000", "require-tls": true, "deny-names": [".*"],
                "tree": [{"path": "/in", "access": "rw"}],
            })
            .to_string()
        );
    }

    #[test]
    fn a_setting_is_taken_back_by_an_empty_value() {
        let mut user = applied(&["access=ro", "sessions=3", "groups=staff"]).unwrap();
        apply(&["access=".parse().unwrap(), "groups=".parse().unwrap()], &mut user).unwrap();
        assert_eq!(user.profile, applied(&["sessions=3"]).unwrap().profile);
        assert!(user.groups.is_empty());
    }

    #[test]
    fn invalid_settings_change_nothing_and_are_reported() {
        for (settings, told) in [
            (&["acess=ro"][..], "unknown field `acess`"),
            (&["sessions=2", "access=all"], "access: "),
            (&["expires=soon"], "2027-01-31"),
            (&["from=lan"], "10.0.0.0/8"),
            (&["directory=../../etc"], "within the folder"),
            (&["directory=/etc"], "within the folder"),
            (&["nonsense="], "unknown field `nonsense`"),
        ] {
            let error = applied(settings).unwrap_err();
            assert!(error.contains(told), "{settings:?}: {error}");
        }
        assert!("access".parse::<Setting>().is_err());
    }
}
