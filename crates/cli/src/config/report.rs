//! Errors that show where: file, line, column, the line itself.

use millrace_terminal::Failure;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A configuration file that was read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) keys: KnownKeys,
}

/// Keys that a file may have: a line that begins with one of them is known to be harmless, or to be secret.
#[derive(Debug)]
pub(crate) struct KnownKeys {
    /// Of the file's top level.
    pub(crate) file: Vec<&'static str>,
    /// Of a `[[user]]` table.
    pub(crate) user: Vec<&'static str>,
    /// Of the other tables, by their names.
    pub(crate) tables: Vec<(&'static str, Vec<&'static str>)>,
}

impl Source {
    /// The folder of the file, from which the paths in it count.
    pub(crate) fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }

    /// An error at these bytes of the file.
    pub(crate) fn point(&self, span: Range<usize>, message: &str) -> Failure {
        let start = floor(&self.text, span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |length| start + length);
        let number = self.text[..start].matches('\n').count() + 1;
        let column = self.text[line_start..start].chars().count() + 1;
        let line = self.text[line_start..line_end].trim_end();
        let marked = floor(&self.text, span.end).clamp(start, line_end);
        let width = self.text[start..marked].chars().count().max(1);

        let is_secret = is_secret(&self.text[..line_start], line, &self.keys);
        let message = if is_secret { without_value(message, line) } else { message.to_owned() };
        let message = sentence(&self.keys.without_dashes(&message));
        let mut text = format!("{}:{number}:{column}: {message}\n", self.path.display());
        if is_secret {
            text += &format!("{number:>5} | (a line that may hold a password is not shown)");
        } else {
            // Tabs stay tabs, so that the mark is below what it marks.
            let blank = |char| if char == '\t' { '\t' } else { ' ' };
            let indent: String = self.text[line_start..start].chars().map(blank).collect();
            text += &format!("{number:>5} | {line}\n      | {indent}{}", "^".repeat(width));
        }
        Failure::Configuration(text)
    }
}

/// A message without what stands behind a line's key, which it may repeat.
fn without_value(message: &str, line: &str) -> String {
    // Behind the name of a key that there is not, the message has names of keys that there are.
    if let Some((unknown, hint)) = message.split_once("`; ")
        && unknown.contains(" has no key `")
        && !line.contains("`; ")
    {
        return format!("{}`; {hint}", without_value(unknown, line));
    }
    let (kind, expected) = (message.split_once(": "), message.rsplit_once(", expected "));
    let mut message = match (kind, expected) {
        (Some((kind, _)), Some((_, expected))) if kind.starts_with("invalid ") => {
            format!("{kind}, expected {expected}")
        }
        _ => message.to_owned(),
    };
    let (key, value) = line.split_once('=').unwrap_or(("", line));
    // Where the secret is may be told.
    if key.trim().ends_with("-file") {
        return message;
    }
    // Every other part is between quotes; outside of them are keys and numbers.
    for (at, part) in value.split(['"', '\'']).enumerate() {
        let numbers = part.split(|char: char| !char.is_ascii_digit());
        let parts: Vec<&str> = if at % 2 == 1 { vec![part] } else { numbers.collect() };
        for said in parts.into_iter().filter(|said| said.len() > 2) {
            message = message.replace(said, "...");
        }
    }
    message
}

/// Keys with secret values, or keys that begin tables with such.
const SECRET: [&str; 6] = ["password", "totp", "header", "user", "source", "shutdown-password"];

/// Keys of tables whose values may have credentials within them: addresses, command lines, queries, header fields.
const WITH_CREDENTIALS: [&str; 8] =
    ["secret", "headers", "webhook", "run", "endpoint", "attributes", "postgres", "query"];

/// Tables of what is posted to, with header fields that may be secrets.
const RECEIVERS: [&str; 3] = ["hook", "notice", "otlp"];

/// Returns true if a line may contain a password, also under a misspelt key, because error messages end up in logs. Of
/// users' tables only keys that are known to be harmless, or are similar to one, are shown.
fn is_secret(before: &str, line: &str, keys: &KnownKeys) -> bool {
    let key = line.split('=').next().unwrap_or_default().trim();
    let has_login = line.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    if has_login || SECRET.contains(&key) || may_name_login(before, key, line, keys) {
        return true;
    }
    // Whatever the path or the name that such a key has for its value.
    if is_harmless_key(before, key, keys) && line.matches('=').count() == 1 {
        return false;
    }
    let may_be_password = strsim::jaro_winkler(key, "password") > 0.8 && !key.starts_with("passive");
    if line.contains("passw") || may_be_password {
        return true;
    }
    if is_for_receivers(before, key, line) {
        return true;
    }
    let among_users = before.lines().any(|line| line.trim_start_matches('[').starts_with("user"));
    let is_plain = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    // Another key behind it may be anything.
    let is_alone = key == "tree" || line.matches('=').count() == 1;
    let is_harmless = || match keys.file.contains(&key) || keys.user.contains(&key) {
        true => is_alone,
        false => {
            let meant = nearest(key, table_keys(before, keys).unwrap_or(&keys.user));
            is_alone && is_plain(key) && meant.is_some_and(is_no_secret)
        }
    };
    among_users && !line.starts_with('[') && !is_harmless()
}

/// Returns true if a value has the form `NAME:PASSWORD` where someone may have meant a user: behind a key that is taken for
/// `user`, or one that does not exist. Paths and addresses are none.
fn may_name_login(before: &str, key: &str, line: &str, keys: &KnownKeys) -> bool {
    let Some((_, value)) = line.split_once('=') else { return false };
    let is_taken_for_user = ["users", "logins"].contains(&key);
    if is_taken_for_user && value.trim_start().starts_with('{') {
        return true;
    }
    let is_login = |text: &str| {
        text.split_once(':').is_some_and(|(name, behind)| {
            let is_address = behind.bytes().all(|byte| byte.is_ascii_digit())
                && (name == "localhost" || name.contains('.') || is_harmless_key(before, key, keys))
                || text.starts_with(['[', ':'])
                || text.split('/').next().is_some_and(|address| address.parse::<IpAddr>().is_ok());
            !is_address && !behind.starts_with("//") && !name.contains('/')
        })
    };
    let is_known = keys.file.contains(&key) || keys.user.contains(&key);
    (is_taken_for_user || !is_known) && value.split(['"', '\'']).skip(1).step_by(2).any(is_login)
}

/// Returns whether a key exists where it stands, and has a value that is no secret.
fn is_harmless_key(before: &str, key: &str, keys: &KnownKeys) -> bool {
    match last_table(before) {
        None => keys.file.contains(&key) && !RECEIVERS.contains(&key),
        Some(table) if table.starts_with("[[user]]") => keys.user.contains(&key),
        Some(table) if table.starts_with("[cluster]") && key == "database" => false,
        Some(_) => is_no_secret(key) && table_keys(before, keys).is_some_and(|known| known.contains(&key)),
    }
}

/// The line that begins the table that `before` ends in.
fn last_table(before: &str) -> Option<&str> {
    before.lines().map(str::trim_start).rfind(|line| line.starts_with('['))
}

/// The keys of the table that `before` ends in, where it is one of those that are known, and none of users.
fn table_keys<'a>(before: &str, keys: &'a KnownKeys) -> Option<&'a [&'static str]> {
    let name = last_table(before)?.trim_start_matches('[').split(']').next()?;
    keys.tables.iter().find(|(table, _)| *table == name).map(|(_, keys)| &**keys)
}

/// Returns true if a line may contain credentials for receivers of posts.
fn is_for_receivers(before: &str, key: &str, line: &str) -> bool {
    let table = before.lines().rev().map(str::trim_start).find(|line| line.starts_with('[')).unwrap_or("");
    let name = table.trim_start_matches('[');
    let first =
        |name: &str| name.split(['.', ']']).next().unwrap_or("").trim().trim_matches(['"', '\'']).to_owned();
    let is_among = RECEIVERS.contains(&first(name).as_str());
    let is_header = ["header", "uthorization", "api-key", "oken"].iter().any(|part| line.contains(part));
    let has_query = line.split_once("://").is_some_and(|(_, rest)| rest.contains('?'));
    is_among && (is_header || has_query || strsim::jaro_winkler(key, "headers") > 0.8 || name.contains('.'))
        || RECEIVERS.contains(&first(key).as_str())
        || line.replace("secret-file", "").contains("secret")
        || strsim::jaro_winkler(key, "secret") > 0.9
}

fn is_no_secret(key: &str) -> bool {
    !SECRET.contains(&key) && !WITH_CREDENTIALS.contains(&key)
}

impl KnownKeys {
    /// Rewrites a message about flags for a file: `--tls-cert` is the key tls-cert there. Other flags, such as those of
    /// cargo, keep their dashes, and so do commands, which stand between backticks.
    fn without_dashes(&self, message: &str) -> String {
        let mut is_command = false;
        let is_key = |key: &str| {
            let key = key.trim_end_matches(|char: char| !char.is_ascii_alphanumeric());
            self.file.contains(&key) || self.user.contains(&key)
        };
        let word = |word: &str| {
            let was_command = is_command;
            is_command ^= word.matches('`').count() % 2 == 1;
            match word.strip_prefix("--") {
                Some(key) if !was_command && is_key(key) => key.to_owned(),
                _ => word.to_owned(),
            }
        };
        message.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }
}

fn sentence(message: &str) -> String {
    let message = message.trim_end().replace('\n', "; ");
    let mut chars = message.chars();
    let first = message.split(' ').next().unwrap_or_default();
    let mut sentence = match first.contains('/') {
        // A path is spelt as it is.
        true => String::new(),
        false => chars.next().into_iter().flat_map(char::to_uppercase).collect::<String>(),
    };
    sentence.push_str(chars.as_str());
    if !sentence.ends_with(['.', '?', '!', ')']) {
        sentence.push('.');
    }
    sentence
}

/// The known key that a name was meant to be, as far as one can tell: the one that is most like it, or that it ends with.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    /// So much alike are two names of which one is a slip of the pen.
    const SLIP: f64 = 0.95;
    let name = name.replace('_', "-");
    // In a short name two letters that changed places leave the other measure little to go by.
    let mut slips = known.iter().copied().filter(|known| strsim::osa_distance(&name, known) == 1);
    if let (Some(slip), None) = (slips.next(), slips.next()) {
        return Some(slip);
    }
    let likeness = |known: &str| strsim::jaro_winkler(&name, known);
    let like = known.iter().copied().max_by(|left, right| likeness(left).total_cmp(&likeness(right)));
    let ends = |known: &&str| name.strip_suffix(*known).is_some_and(|before| before.ends_with('-'));
    let end = known.iter().copied().filter(ends).max_by_key(|known| known.len());
    match (like, end) {
        (Some(like), _) if likeness(like) > SLIP => Some(like),
        (_, Some(end)) => Some(end),
        (like, None) => like.filter(|like| likeness(like) > 0.8),
    }
}

/// The nearest character boundary at or before `index`.
fn floor(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index).rev().find(|&index| text.is_char_boundary(index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_in_no_message_either() {
        for (line, message, told) in [
            (
                "headers = \"Authorization: Bearer s3cret\"",
                "invalid type: string \"Authorization: Bearer s3cret\", expected a map",
                "invalid type, expected a map",
            ),
            ("password = 998877", "this is the number 998877; quote it", "this is the number ...; quote it"),
            ("headers = { Key = 12345 }", "12345 is no text", "... is no text"),
            (
                "pass = \"all\"",
                "It has no key `pass`; there are `allow`",
                "It has no key `pass`; there are `allow`",
            ),
            (
                "user = { \"s3cret\" = 1 }",
                "It has no key `s3cret`; there are",
                "It has no key `...`; there are",
            ),
        ] {
            assert_eq!(without_value(message, line), told);
        }
    }

    #[test]
    fn a_line_is_shown_unless_it_may_hold_a_password() {
        let keys = crate::config::known_keys();
        let (user, source) = ("[[user]]\nname = \"a\"\n", "[[source]]\n");
        for (before, line, secret) in [
            ("", "user-download-limit = \"10 quick\"", false),
            ("", "users = \"/nonexistent/users.db\"", false),
            ("", "users = \"/nonexistent/a:b.db\"", false),
            ("", "users = \"./users.db\"", false),
            ("", "users = \"a:hunter2\"", true),
            ("", "users = [\"a:hunter2\"]", true),
            ("", "users = { a = \"hunter2\" }", true),
            ("", "logins = [\"b\", 'a:hunter2']", true),
            ("", "logins = \"60/hour\"", false),
            ("", "accounts = \"a:12345\"", true),
            ("", "listen = \"127.0.0.1:2121\"", false),
            ("", "listen = [\"[::1]:21\", \"localhost:21\"]", false),
            ("[cluster]\n", "data-address = \"2001:db8:7::/48\"", false),
            ("[cluster]\n", "node = \"a:hunter2\"", true),
            ("[cluster]\n", "database = \"host=db password=hunter2\"", true),
            ("[[notice]]\n", "smtp = \"mail:99999\"", false),
            ("[[notice]]\n", "smtp-password-file = \"none\"", false),
            ("[[user]]\n[[folder]]\n", "database = \"none\"", false),
            ("[[user]]\n[[folder]]\n", "pth = \"/x\"", false),
            ("[[user]]\n[[folder]]\n", "xyz = \"hunter2\"", true),
            ("[[user]]\n[[hook]]\n", "run = \"x -p hunter2\"", true),
            ("", "root = \"/srv/a:b\"", false),
            ("", "tls-cert = \"nosuch/password.pem\"", false),
            ("", "tls-key = \"/etc/secrets/key.pem\"", false),
            ("", "acme-directory = \"https://me:s3cret@ca.example/\"", true),
            ("", "passwrd = \"s3cret\"", true),
            (user, "directory = \"passwords\"", false),
            ("[[hook]]\n[hook.headers]\n", "state = \"s3cret password\"", true),
            ("[otlp]\n", "headers = \"Authorization: Bearer 5e9f\"", true),
            ("[otlp]\n", "heders = { Authorization = \"Bearer 5e9f\" }", true),
            ("[otlp.headers]\n", "Authorization = \"Bearer 5e9f", true),
            ("[ otlp . headers ]\n", "X-Key = \"5e9f", true),
            ("[\"otlp\"]\n", "Authorization = \"Bearer 5e9f\"", true),
            ("[otlp]\n", "endpoint = \"https://x?key=5e9f\"", true),
            ("[otlp]\n", "endpoint = \"ftp://collector\"", false),
            ("", "otlp.headers.X-Key = 5e9f", true),
            ("", "otlp = { headers = { Authorization = \"Bearer 5e9f\" } }", true),
            ("[otlp]\n", "interval = \"soon\"", false),
            ("[[notice]]\n", "headers = \"Authorization: Bearer 5e9f\"", true),
            ("", "user = [{ name = \"a\", key = \"s3cret\" }]", true),
            (user, "acess = \"ro\"", false),
            (user, "access = \"some\"", false),
            (user, "[[group]]", false),
            (user, "pass = \"s3cret\"", true),
            (user, "pw = \"s3cret\"", true),
            (user, "secret = \"s3cret\"", true),
            (user, "totp = \"JBSWY3DP\"", true),
            (user, "top = \"JBSWY3DP\"", true),
            (user, "  { name = \"b\", key = \"s3cret\" },", true),
            (source, "header = \"Authorization: Bearer 5e9f\"", true),
            (source, "mysql = \"mysql://me:s3cret@db/x\"", true),
            (source, "timeout = \"soon\"", false),
        ] {
            assert_eq!(is_secret(before, line, &keys), secret, "{line}");
        }
    }

    #[test]
    fn in_a_file_there_are_keys_and_no_flags() {
        let of_keys = |message: &str| crate::config::known_keys().without_dashes(message);
        assert_eq!(of_keys("name one with --tls-cert, or --acme"), "name one with tls-cert, or acme");
        let command = "there is no x; `millrace user --users x add NAME` makes it, --users off not";
        assert_eq!(of_keys(command), command.replace(", --", ", "));
        let build = "build it with: cargo build --release --features pam";
        assert_eq!(of_keys(build), build);
        let dashes = "the line -----END CERTIFICATE----- is missing -- all of it";
        assert_eq!(of_keys(dashes), dashes);
    }

    #[test]
    fn a_sentence_begins_with_a_capital_unless_it_begins_with_a_path() {
        assert_eq!(sentence("expected a number"), "Expected a number.");
        assert_eq!(sentence("logs/x cannot be made"), "logs/x cannot be made.");
    }
}
