//! What administrators may write of a user: names, passwords and settings, checked before anything is kept.
//!
//! `millrace user` and the admin API check by these functions alike, and report early what a login would report.

use std::path::{Component, Path};

use serde_json::{Map, Value};

use super::password::{Password, PasswordError, hash_password};
use super::profile::Profile;

/// Why a setting cannot have a value; a sentence without its full stop.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error("{source}, `groups`")]
    Unknown {
        /// What was written for a setting.
        key: String,
        /// The reader's error, which lists the settings that there are.
        source: serde_json::Error,
    },
    /// The setting cannot have this value.
    #[error("{key}: {source}")]
    Value {
        /// The setting.
        key: String,
        /// The reader's error.
        source: serde_json::Error,
    },
    /// The folder does not lie in the served one.
    #[error("directory: {0} has to lie within the folder that is served, without .. or a leading /")]
    Directory(String),
}

impl SettingError {
    /// Returns the setting.
    pub fn key(&self) -> &str {
        match self {
            Self::Unknown { key, .. } | Self::Value { key, .. } => key,
            Self::Directory(_) => "directory",
        }
    }
}

/// Why a text is no name of a user.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("the name of a user is empty")]
    Empty,
    /// It has a character that ends a line of FTP, or the like.
    #[error("the name {0:?} contains a control character, which no client can send")]
    Control(String),
}

/// Why a password or a hash cannot be a user's.
#[derive(Debug, thiserror::Error)]
pub enum NewPasswordError {
    /// It is empty.
    #[error("the password is empty; type one")]
    Empty,
    /// It has a character that ends a line of FTP, or the like.
    #[error("the password contains a control character, which FTP clients cannot send")]
    Control,
    /// The hash cannot be verified.
    #[error(transparent)]
    Hash(#[from] PasswordError),
}

/// Refuses what is no name of a user.
pub fn check_name(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        _ if name.contains(char::is_control) => Err(NameError::Control(name.to_owned())),
        _ => Ok(()),
    }
}

/// Refuses passwords that no client can send.
pub fn check_password(password: &[u8]) -> Result<(), NewPasswordError> {
    match password {
        [] => Err(NewPasswordError::Empty),
        _ if password.iter().any(u8::is_ascii_control) => Err(NewPasswordError::Control),
        _ => Ok(()),
    }
}

/// Returns the hash to keep of a new password.
pub fn hash_new_password(password: &[u8]) -> Result<String, NewPasswordError> {
    check_password(password).map(|()| hash_password(password))
}

/// Returns a hash that another program made, if it can be verified.
pub fn check_hash(hash: String) -> Result<String, NewPasswordError> {
    Password::hashed(&hash)?;
    Ok(hash)
}

/// Reads one setting. `null` is a setting that is taken back.
pub fn read_setting(key: &str, value: Value) -> Result<Profile, SettingError> {
    serde_json::from_value(Value::Object(Map::from_iter([(key.to_owned(), value)]))).map_err(|source| {
        let key = key.to_owned();
        match source.to_string().starts_with("unknown field") {
            true => SettingError::Unknown { key, source },
            false => SettingError::Value { key, source },
        }
    })
}

/// Reads the settings of a user. The error names the first that cannot be kept.
pub fn read_settings(settings: Map<String, Value>) -> Result<Profile, SettingError> {
    settings.iter().try_for_each(|(key, value)| read_setting(key, value.clone()).map(drop))?;
    let whole = serde_json::from_value(Value::Object(settings));
    let profile: Profile =
        whole.map_err(|source| SettingError::Value { key: "settings".to_owned(), source })?;
    check_directory(&profile).map(|()| profile)
}

/// Refuses a folder outside of the one that is served.
fn check_directory(profile: &Profile) -> Result<(), SettingError> {
    let descends = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    match &profile.directory {
        Some(folder) if !Path::new(folder).components().all(descends) => {
            Err(SettingError::Directory(folder.clone()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: Value) -> Result<Profile, SettingError> {
        let Value::Object(settings) = settings else { unreachable!() };
        read_settings(settings)
    }

    #[test]
    fn an_error_names_its_setting() {
        for (settings, key, told) in [
            (json!({ "acess": "ro" }), "acess", "unknown field `acess`"),
            (json!({ "sessions": 2, "access": "all" }), "access", "no permission"),
            (json!({ "directory": "../../etc" }), "directory", "within the folder"),
            (json!({ "expires": "soon" }), "expires", "2027-01-31"),
        ] {
            let error = read(settings).unwrap_err();
            assert_eq!(error.key(), key);
            assert!(error.to_string().contains(told), "{error}");
        }
        let profile = read(json!({ "directory": "home/{user}", "sessions": 2, "access": null })).unwrap();
        assert_eq!((profile.directory.as_deref(), profile.access), (Some("home/{user}"), None));
    }

    #[test]
    fn names_and_passwords_are_what_clients_can_send() {
        assert!(check_name("zoë").is_ok() && check_name("").is_err() && check_name("a\r\n").is_err());
        assert!(hash_new_password(b"").is_err() && hash_new_password(b"a\nb").is_err());
        assert!(check_hash("md5".to_owned()).is_err() && check_hash(hash_password(b"x")).is_ok());
    }
}
