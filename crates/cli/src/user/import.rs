//! Users of other servers, read from the text files that these keep.
//!
//! Every line becomes a user, or a note that says why not: nothing is lost silently. A user whose restrictions (a
//! folder, a network) cannot be imported is skipped.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueEnum};
use millrace_load::units::counted;
use millrace_server::auth::{self, Password, Profile, Stored, User};
use millrace_terminal::Failure;
use serde_json::{Map, Value, json};

use super::settings::{self, Setting};

/// Accounts of smaller numbers are the system's own, on every distribution of the last years.
const FIRST_UID: u32 = 1000;

/// The user ID of `nobody`.
const UNPRIVILEGED_ID: u32 = 65534;

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The format of the file
    #[arg(value_enum)]
    format: Format,
    /// The file with the users
    file: PathBuf,
    /// Settings for all of them, which go before what the file says: see "millrace user add --help"
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// The file with the hashes, for passwd: /etc/shadow
    #[arg(long, value_name = "FILE")]
    shadow: Option<PathBuf>,
    /// The file with the groups, as /etc/group: for passwd and proftpd
    #[arg(long, value_name = "FILE")]
    groups: Option<PathBuf>,
    /// The folder with a file of settings for each user, for vsftpd: its user_config_dir
    #[arg(long, value_name = "FOLDER")]
    user_config: Option<PathBuf>,
    /// The folder that is served: homes lie in it
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    beneath: PathBuf,
    /// Replace existing users
    #[arg(long)]
    pub(crate) replace: bool,
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Passwd,
    Htpasswd,
    Puredb,
    Vsftpd,
    Proftpd,
}

/// Shells of system accounts without logins.
const REFUSING_SHELLS: [&str; 2] = ["/nologin", "/false"];

/// The imported users.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    pub(crate) users: Vec<Stored>,
    /// The settings that were not imported, and the reason; a sentence each.
    pub(crate) notes: Vec<String>,
}

/// A line, before it is known whether all of it can be taken over.
#[derive(Debug, Default)]
struct Line {
    name: String,
    hash: String,
    groups: Vec<String>,
    home: Option<String>,
    /// As JSON, so that one parser reports every error.
    keys: Map<String, Value>,
}

/// The line, or why it is left out.
type Parsed = Result<Line, Skipped>;

/// Why an account is not taken over.
#[derive(Debug, thiserror::Error)]
enum Skipped {
    #[error("{text:?} is no line of {expected}")]
    Line { text: String, expected: &'static str },
    #[error("{name}: {hours:?} are no hours")]
    Hours { name: String, hours: String },
    #[error("{name} has {what}, which cannot be taken over")]
    Setting { name: String, what: String },
    #[error("{0:?} has no following line with a password")]
    Password(String),
    #[error(transparent)]
    Name(#[from] auth::NameError),
    #[error("{name}: {error}")]
    Profile { name: String, error: serde_json::Error },
    #[error("{name}: {failure}")]
    Flag { name: String, failure: Failure },
    #[error("{name}: the home {home} is not within {}, which --beneath names", beneath.display())]
    Outside { name: String, home: String, beneath: PathBuf },
    #[error("{name}: the home {home} cannot be a folder here")]
    Home { name: String, home: String },
}

/// Reads the files.
pub(crate) fn read(import: &Import) -> Result<Brought, Failure> {
    // Errors that are independent of the user.
    settings::apply(&import.settings, &mut User::default())?;
    let text = read_text(&import.file)?;
    let mut brought = Brought::default();
    let lines: Vec<Parsed> = match import.format {
        Format::Passwd => with_shadow(passwd(&text, true, &mut brought.notes), import.shadow.as_deref())?,
        Format::Proftpd => passwd(&text, false, &mut brought.notes),
        Format::Htpasswd => htpasswd(&text),
        Format::Puredb => puredb(&text),
        Format::Vsftpd => vsftpd(&text, import.user_config.as_deref())?,
    };
    let groups = import.groups.as_deref().map(memberships).transpose()?.unwrap_or_default();
    for line in lines {
        let finished = line.and_then(|mut line| {
            line.groups.extend(groups.get(&line.name).into_iter().flatten().cloned());
            finish(line, import, &mut brought.notes)
        });
        match finished {
            Ok(stored) => brought.users.push(stored),
            Err(why) => brought.notes.push(format!("left out: {why}")),
        }
    }
    Ok(brought)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = fs::read(path);
    let bytes =
        bytes.map_err(|error| Failure::Configuration(format!("cannot read {}: {error}.", path.display())))?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::Configuration(format!("{} is not UTF-8: is it the text file?", path.display())))
}

/// Lines that say something.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}

/// `name:hash:uid:gid:comment:home:shell`, as passwd(5); ProFTPD's AuthUserFile has the same form.
fn passwd(text: &str, skips_system: bool, notes: &mut Vec<String>) -> Vec<Parsed> {
    let mut parsed = Vec::new();
    let mut system = 0;
    for line in lines(text) {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, hash, uid, _, _, home, ref rest @ ..] = fields[..] else {
            parsed.push(Err(Skipped::Line {
                text: fields[0].to_owned(),
                expected: "NAME:HASH:UID:GID:COMMENT:HOME:SHELL",
            }));
            continue;
        };
        let is_system = uid.parse().is_ok_and(|uid: u32| uid < FIRST_UID || uid == UNPRIVILEGED_ID);
        if skips_system && is_system {
            system += 1;
            continue;
        }
        let mut keys = Map::new();
        let shell = rest.first().copied().unwrap_or_default();
        if skips_system && REFUSING_SHELLS.iter().any(|refusing| shell.ends_with(refusing)) {
            keys.insert("disabled".to_owned(), json!(true));
            notes.push(format!("{name} is disabled, as the shell is {shell}: millrace user enable {name}"));
        }
        parsed.push(Ok(Line {
            name: name.to_owned(),
            hash: hash.to_owned(),
            home: Some(home.to_owned()),
            keys,
            ..Line::default()
        }));
    }
    if system > 0 {
        notes.push(format!(
            "left out: {} of the system itself, with a uid below {FIRST_UID}",
            counted(system, "account")
        ));
    }
    parsed
}

/// Hashes from the other file, where this one has but an `x`.
fn with_shadow(mut lines: Vec<Parsed>, shadow: Option<&Path>) -> Result<Vec<Parsed>, Failure> {
    let Some(path) = shadow else { return Ok(lines) };
    let text = read_text(path)?;
    let hashes: HashMap<&str, &str> = self::lines(&text)
        .filter_map(|line| {
            let mut fields = line.split(':');
            Some((fields.next()?, fields.next()?))
        })
        .collect();
    for line in lines.iter_mut().flatten().filter(|line| line.hash == "x") {
        if let Some(hash) = hashes.get(line.name.as_str()) {
            line.hash = (*hash).to_owned();
        }
    }
    Ok(lines)
}

/// The groups of each user: `group:x:gid:member,member`.
fn memberships(path: &Path) -> Result<HashMap<String, Vec<String>>, Failure> {
    let mut groups: HashMap<String, Vec<String>> = HashMap::new();
    for line in lines(&read_text(path)?) {
        let fields: Vec<&str> = line.split(':').collect();
        let [group, _, _, members, ..] = fields[..] else { continue };
        for member in members.split(',').filter(|member| !member.is_empty()) {
            groups.entry(member.trim().to_owned()).or_default().push(group.to_owned());
        }
    }
    Ok(groups)
}

/// `name:hash`
fn htpasswd(text: &str) -> Vec<Parsed> {
    let line = |line: &str| match line.split_once(':') {
        Some((name, hash)) => Ok(Line { name: name.to_owned(), hash: hash.to_owned(), ..Line::default() }),
        None => Err(Skipped::Line { text: line.to_owned(), expected: "NAME:HASH" }),
    };
    lines(text).map(line).collect()
}

/// Eighteen fields, as `pure-pw` writes them.
fn puredb(text: &str) -> Vec<Parsed> {
    lines(text).map(puredb_line).collect()
}

fn puredb_line(line: &str) -> Parsed {
    let mut fields: Vec<&str> = line.split(':').collect();
    let name = fields[0].to_owned();
    if fields.len() < 6 {
        return Err(Skipped::Line { text: name, expected: "Pure-FTPd's pure-pw" });
    }
    fields.resize(18, "");
    let mut keys = Map::new();
    let mut say = |key: &str, value: Value| keys.insert(key.to_owned(), value);
    for (key, text) in [("upload", fields[6]), ("download", fields[7]), ("sessions", fields[10])] {
        if !matches!(text, "" | "0") {
            say(key, json!(text));
        }
    }
    for (key, text) in [("from", fields[15]), ("not-from", fields[16])] {
        if !text.is_empty() {
            say(key, json!(text.split(',').collect::<Vec<_>>()));
        }
    }
    if !fields[17].is_empty() {
        say(
            "hours",
            json!([puredb_hours(fields[17])
                .ok_or_else(|| Skipped::Hours { name: name.clone(), hours: fields[17].to_owned() })?]),
        );
    }
    // Settings that would grant more access than before if they were ignored.
    for (index, what) in [
        (8, "a ratio"),
        (9, "a ratio"),
        (11, "a quota"),
        (12, "a quota"),
        (13, "local addresses"),
        (14, "local addresses"),
    ] {
        if !matches!(fields[index], "" | "0") {
            return Err(Skipped::Setting { name, what: what.to_owned() });
        }
    }
    Ok(Line {
        hash: fields[1].to_owned(),
        // "/home/ftp/joe/./" is where Pure-FTPd makes a root of it.
        home: Some(fields[5].replace("/./", "/")),
        name,
        keys,
        groups: Vec::new(),
    })
}

/// `0900-1800`
fn puredb_hours(text: &str) -> Option<String> {
    let clock = |digits: &str| {
        let is_clock = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_clock.then(|| format!("{}:{}", &digits[..2], &digits[2..]))
    };
    let (from, to) = text.split_once('-')?;
    Some(format!("{}-{}", clock(from)?, clock(to)?))
}

/// A line with a name, a line with the password: what `db_load` is fed for pam_userdb.
fn vsftpd(text: &str, user_config: Option<&Path>) -> Result<Vec<Parsed>, Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks(2).filter(|pair| pair.iter().any(|line| !line.is_empty()));
    pairs
        .map(|pair| {
            let [name, password] = pair else {
                return Ok(Err(Skipped::Password(pair[0].to_owned())));
            };
            let hash = match Password::hashed(password) {
                Ok(_) => (*password).to_owned(),
                Err(_) => auth::hash_password(password.as_bytes()),
            };
            let mut line = Line { name: (*name).to_owned(), hash, ..Line::default() };
            let own = user_config.map(|folder| folder.join(name)).filter(|path| path.is_file());
            if let Some(path) = own {
                return Ok(vsftpd_settings(&read_text(&path)?, &mut line).map(|()| line));
            }
            Ok(Ok(line))
        })
        .collect()
}

/// `KEY=VALUE`, of vsftpd.conf(5).
fn vsftpd_settings(text: &str, line: &mut Line) -> Result<(), Skipped> {
    for (key, value) in lines(text).filter_map(|line| line.split_once('=')) {
        match (key, value.trim_end()) {
            ("local_root", home) => line.home = Some(home.to_owned()),
            ("write_enable", "NO") => drop(line.keys.insert("access".to_owned(), json!("ro"))),
            ("write_enable", _) | ("local_max_rate" | "anon_max_rate", "0") => {}
            ("local_max_rate" | "anon_max_rate", rate) => {
                for key in ["session-download", "session-upload"] {
                    line.keys.insert(key.to_owned(), json!(rate));
                }
            }
            (key, _) => return Err(Skipped::Setting { name: line.name.clone(), what: key.to_owned() }),
        }
    }
    Ok(())
}

/// Makes a user of a line; settings that are not imported are noted, or are the reason to skip the user.
fn finish(line: Line, import: &Import, notes: &mut Vec<String>) -> Result<Stored, Skipped> {
    let Line { name, hash, groups, home, mut keys } = line;
    auth::check_name(&name)?;
    let (hash, is_locked) = match hash.strip_prefix('!') {
        Some(hash) => (hash, true),
        None => (hash.as_str(), false),
    };
    if let Some(home) = home {
        keys.insert("directory".to_owned(), json!(directory(&name, &home, &import.beneath)?));
    }
    if is_locked {
        keys.insert("disabled".to_owned(), json!(true));
    }
    let profile: Profile = serde_json::from_value(Value::Object(keys))
        .map_err(|error| Skipped::Profile { name: name.clone(), error })?;
    let mut user = User { name, groups, profile };
    settings::apply(&import.settings, &mut user)
        .map_err(|failure| Skipped::Flag { name: user.name.clone(), failure })?;
    let hash = match hash {
        "" | "x" | "*" | "!" => Err("no password".to_owned()),
        hash => Password::hashed(hash).map(|_| hash.to_owned()).map_err(|error| error.to_string()),
    };
    if let Err(why) = &hash {
        notes.push(format!("{0} has no password ({why}): millrace user passwd {0}", user.name));
    }
    Ok(Stored { user, hash: hash.ok() })
}

/// The home directory's place within the served tree. `/` is the whole tree.
fn directory(name: &str, home: &str, beneath: &Path) -> Result<String, Skipped> {
    let within = Path::new(home).strip_prefix(beneath).map_err(|_| Skipped::Outside {
        name: name.to_owned(),
        home: home.to_owned(),
        beneath: beneath.to_owned(),
    })?;
    // A brace would be read as a template.
    let part = |part| match part {
        Component::Normal(name) => name.to_str().filter(|name| !name.contains(['{', '}'])),
        _ => None,
    };
    let parts: Option<Vec<&str>> = within.components().map(part).collect();
    match parts.as_deref() {
        None => Err(Skipped::Home { name: name.to_owned(), home: home.to_owned() }),
        Some([]) => Ok(".".to_owned()),
        Some(parts) => Ok(parts.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    fn import(format: Format) -> Import {
        Import {
            format,
            file: PathBuf::new(),
            settings: Vec::new(),
            shadow: None,
            groups: None,
            user_config: None,
            beneath: "/srv".into(),
            replace: false,
        }
    }

    fn finished(lines: Vec<Parsed>, format: Format) -> (Vec<String>, Vec<String>) {
        let (mut users, mut notes) = (Vec::new(), Vec::new());
        for line in lines {
            match line.and_then(|line| finish(line, &import(format), &mut notes)) {
                Ok(stored) => {
                    let profile = serde_json::to_string(&stored.user.profile).unwrap();
                    let password = if stored.hash.is_some() { "password" } else { "none" };
                    users.push(format!("{} {password} {profile}", stored.user.name));
                }
                Err(why) => notes.push(why.to_string()),
            }
        }
        (users, notes)
    }

    #[test]
    fn lines_of_passwd_become_users_without_the_systems_own() {
        let text = format!(
            "root:x:0:0:root:/root:/bin/bash\n# a remark\nann:{HASH}:1000:100::/srv/ann:/bin/sh\n\
             bob:!{HASH}:1001:100::/srv/b/./ob/:/bin/sh\ncid:$1$a$b:1002:1::/srv:/usr/sbin/nologin\ndot:x:1003:1::/home/dot:/x\n\
             eve:x:1004:1::/srv/../etc:/x\nnobody:x:65534:1::/:/x\nbroken:x\n"
        );
        let mut notes = Vec::new();
        let lines = passwd(&text, true, &mut notes);
        assert_eq!(
            notes,
            [
                "cid is disabled, as the shell is /usr/sbin/nologin: millrace user enable cid",
                "left out: 2 accounts of the system itself, with a uid below 1000"
            ]
        );
        let (users, notes) = finished(lines, Format::Passwd);
        assert_eq!(
            users,
            [
                r#"ann password {"directory":"ann"}"#,
                r#"bob password {"directory":"b/ob","disabled":true}"#,
                r#"cid none {"directory":".","disabled":true}"#,
            ]
        );
        assert!(notes[0].starts_with("cid has no password (this is a hash by 1;"), "{notes:?}");
        assert!(notes[1].contains("dot: the home /home/dot is not within /srv"), "{notes:?}");
        assert!(notes[2].contains("eve: the home /srv/../etc cannot be"), "{notes:?}");
        assert!(notes[3].starts_with("\"broken\" is no line"), "{notes:?}");
    }

    #[test]
    fn pure_ftpds_fields_become_settings() {
        let text = format!(
            "ann:{HASH}:1000:100::/srv/ann/./:1048576:2097152::::::::10.0.0.0/8,192.0.2.7:10.1.0.0/16:0900-1800:\n\
             bob:{HASH}:1000:100::/srv/bob/./::::::::::::::\n\
             cid:{HASH}:1000:100::/srv/cid/./::::::::::::lan::\nshort:x:1\n"
        );
        let (users, notes) = finished(puredb(&text), Format::Puredb);
        assert_eq!(
            users,
            [
                "ann password {\"directory\":\"ann\",\"from\":[\"10.0.0.0/8\",\"192.0.2.7\"],\
                 \"not-from\":[\"10.1.0.0/16\"],\"hours\":[\"09:00-18:00\"],\"download\":\"2097152\",\
                 \"upload\":\"1048576\"}",
                r#"bob password {"directory":"bob"}"#,
            ]
        );
        assert!(notes[0].starts_with("cid: ") && notes[0].contains("lan"), "{notes:?}");
        assert!(notes[1].starts_with("\"short\" is no line"), "{notes:?}");
    }

    #[test]
    fn vsftpds_passwords_in_clear_are_hashed() {
        let lines = vsftpd("ann\nsecret\nbob\n", None).unwrap();
        let line = lines[0].as_ref().unwrap();
        assert!(line.name == "ann" && line.hash.starts_with("$argon2id$"), "{line:?}");
        assert!(lines[1].as_ref().unwrap_err().to_string().contains("bob"));
        let mut line = Line { name: "ann".to_owned(), ..Line::default() };
        let said = "local_root=/srv/ann\nwrite_enable=NO\nlocal_max_rate=1000\n";
        vsftpd_settings(said, &mut line).unwrap();
        assert_eq!(line.home.as_deref(), Some("/srv/ann"));
        let keys = r#"{"access":"ro","session-download":"1000","session-upload":"1000"}"#;
        assert_eq!(serde_json::to_string(&line.keys).unwrap(), keys);
        assert!(vsftpd_settings("cmds_allowed=RETR\n", &mut line).is_err());
    }

    #[test]
    fn a_line_of_htpasswd_is_a_name_and_a_hash() {
        let text = format!("ann:{HASH}\nbob:{{SHA}}x\nnothing\n");
        let (users, notes) = finished(htpasswd(&text), Format::Htpasswd);
        assert_eq!(users, ["ann password {}", "bob none {}"]);
        assert_eq!(notes.len(), 2, "{notes:?}");
    }
}
