//! Command lines in reports, without passwords: the server's, and the one that repeats the run.

use crate::terminal::WIDTH;

const HIDDEN: &str = "***";

/// How a process was started: its program and arguments, without what may be a password.
pub(super) fn of_process(pid: i32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let words = text.split('\0').filter(|word| !word.is_empty());
    let mut follows_password = false;
    let mut told = Vec::new();
    for word in words {
        told.push(if follows_password { HIDDEN.to_owned() } else { without_password(word) });
        follows_password = word.starts_with('-') && !word.contains('=') && names_password(word);
    }
    Some(told.join(" "))
}

/// `--password`, `--db-pass`, and not `--passive-ports`.
fn names_password(flag: &str) -> bool {
    flag.contains("passw") || flag.ends_with("pass")
}

/// `me:secret` and `--password=secret` without the secret; addresses stay.
fn without_password(word: &str) -> String {
    match (word.split_once('='), word.split_once(':')) {
        (Some((flag, _)), _) if names_password(flag) => format!("{flag}={HIDDEN}"),
        (_, Some((_, behind))) if behind.starts_with("//") => without_login(word),
        (_, Some((name, port))) if name == "localhost" && port.parse::<u16>().is_ok() => word.to_owned(),
        (_, Some((name, _))) if !name.is_empty() && name.parse::<std::net::IpAddr>().is_err() => {
            let is_address =
                word.parse::<std::net::SocketAddr>().is_ok() || word.parse::<std::net::IpAddr>().is_ok();
            if is_address { word.to_owned() } else { format!("{name}:{HIDDEN}") }
        }
        _ => word.to_owned(),
    }
}

/// The command line of this process, to be given to a shell again once the passwords are filled in.
pub fn of_this_process() -> String {
    to_repeat(std::env::args().skip(1))
}

fn to_repeat(arguments: impl Iterator<Item = String>) -> String {
    arguments.fold("millrace".to_owned(), |line, word| line + " " + &quoted(&without_login(&word)))
}

/// A URL without its password; words within a word are the flags of a server that a race starts.
fn without_login(argument: &str) -> String {
    let mut is_user = false;
    let hide = |word: &str| {
        let follows_user = std::mem::replace(&mut is_user, word == "--user");
        let (before, login) = word.split_once("://").map_or(("", word), |(scheme, rest)| (scheme, rest));
        match (before, login.rsplit_once('@'), word.split_once(':')) {
            ("", _, Some((name, _))) if follows_user => format!("{name}:{HIDDEN}"),
            ("", ..) | (_, None, _) => word.to_owned(),
            (scheme, Some((login, place)), _) => match login.split_once(':') {
                Some((user, _)) => format!("{scheme}://{user}:{HIDDEN}@{place}"),
                None => word.to_owned(),
            },
        }
    };
    argument.split(' ').map(hide).collect::<Vec<_>>().join(" ")
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_-./:=,@%+".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A command in lines of a terminal, which a shell takes as one.
pub(crate) fn folded(command: &str) -> String {
    let mut lines = vec![String::new()];
    let mut is_quoted = false;
    for word in command.split(' ') {
        let is_within = is_quoted;
        is_quoted ^= word.matches('\'').count() % 2 == 1;
        match lines.last_mut() {
            Some(line) if is_within || line.len() + word.len() + " ".len() < WIDTH - " \\".len() => {
                *line += if line.is_empty() { "" } else { " " };
                *line += word;
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines.join(" \\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_told_without_passwords() {
        assert_eq!(without_password("me:secret"), "me:***");
        assert_eq!(without_password("--password=secret"), "--password=***");
        assert_eq!(without_password("postgres://me:secret@db/x"), "postgres://me:***@db/x");
        for kept in [
            "--passive-ports=1-2",
            "127.0.0.1:2121",
            "[::1]:21",
            "::1",
            "/srv/ftp",
            "--ftp",
            "localhost:5200",
            "https://a/b",
        ] {
            assert_eq!(without_password(kept), kept);
        }
        assert!(!of_process(std::process::id() as i32).unwrap().is_empty());
    }

    #[test]
    fn the_command_that_repeats_a_run_has_its_words_and_no_password() {
        let repeated = |words: &[&str]| to_repeat(words.iter().map(|word| (*word).to_owned()));
        let words = ["bench", "ftp://a:s3cret@[::1]:21/x", "--fail-if", "retr.p99 > 20ms", "--size", "1k,1m"];
        let command = "millrace bench 'ftp://a:***@[::1]:21/x' --fail-if 'retr.p99 > 20ms' --size 1k,1m";
        assert_eq!(repeated(&words), command);
        let race = ["race", "millrace --user a:s3cret --coalesce off", "ftp://b@c/"];
        assert_eq!(repeated(&race), "millrace race 'millrace --user a:*** --coalesce off' ftp://b@c/");
        assert_eq!(folded(command), command);
        let long = folded(&format!("{command} {command}"));
        assert!(long.lines().count() == 2 && long.lines().all(|line| line.len() <= WIDTH), "{long}");
        assert_eq!(long.replace(" \\\n   ", ""), format!("{command} {command}"));
    }
}
