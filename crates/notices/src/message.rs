//! The message that carries notices: JSON for webhooks, text for mail.

use serde::Serialize;

use super::conditions::Kind;
use super::states::Notice;

/// What is posted.
#[derive(Debug, Serialize)]
struct Posted<'a> {
    event: &'static str,
    server: &'a str,
    notices: Vec<PostedNotice<'a>>,
}

/// A notice in it.
#[derive(Debug, Serialize)]
struct PostedNotice<'a> {
    notice: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: &'a str,
    text: &'a str,
    time: String,
    since: String,
}

/// The notices of one message, from a server of this name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) server: &'a str,
    pub(crate) notices: &'a [Notice],
}

impl Message<'_> {
    /// Returns the body of a post.
    pub(crate) fn json(&self) -> Vec<u8> {
        let (server, notices) = (self.server, self.notices.iter().map(posted).collect());
        serde_json::to_vec(&Posted { event: "notice", server, notices }).unwrap_or_default()
    }

    /// Returns the subject of a mail: one line.
    pub(crate) fn subject(&self) -> String {
        let what = match self.notices {
            [only] => format!("{}{}", prefix(only), only.text),
            all => {
                let bad = all.iter().filter(|notice| notice.is_bad).count();
                format!("{bad} to look at, {} well again", all.len() - bad)
            }
        };
        let line = format!("[{}] {what}", self.server);
        line.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
    }

    /// Returns the text of a mail.
    pub(crate) fn text(&self) -> String {
        let line = |notice: &Notice| {
            let since = match notice.kind {
                Kind::Trial => String::new(),
                _ => format!(", since {}", time(notice.since)),
            };
            format!("{}{}.\n  at {}{since}\n", prefix(notice), notice.text, time(notice.at))
        };
        let lines: String = self.notices.iter().map(line).collect();
        format!("{lines}\nMillrace on {}\n", self.server)
    }
}

fn posted(notice: &Notice) -> PostedNotice<'_> {
    PostedNotice {
        notice: notice.kind.name(),
        state: state(notice),
        subject: &notice.subject,
        text: &notice.text,
        time: time(notice.at),
        since: time(notice.since),
    }
}

fn prefix(notice: &Notice) -> &'static str {
    if notice.is_bad || notice.kind == Kind::Trial { "" } else { "well again: " }
}

fn state(notice: &Notice) -> &'static str {
    match (notice.kind, notice.is_bad) {
        (Kind::Trial, _) => "trial",
        (_, true) => "bad",
        (_, false) => "well",
    }
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices() -> [Notice; 2] {
        let text = "the disk of /a has 3.0 % free".to_owned();
        let bad = Notice { kind: Kind::Disk, subject: "/a".to_owned(), is_bad: true, text, at: 60, since: 0 };
        let well = Notice {
            kind: Kind::Bans,
            subject: String::new(),
            is_bad: false,
            text: "bans: 0\nBcc: x".to_owned(),
            ..bad.clone()
        };
        [bad, well]
    }

    #[test]
    fn webhooks_get_json() {
        let notices = notices();
        let json = Message { server: "files", notices: &notices }.json();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["event"], "notice");
        assert_eq!(value["server"], "files");
        let first = serde_json::json!({
            "notice": "disk", "state": "bad", "subject": "/a", "text": "the disk of /a has 3.0 % free",
            "time": "1970-01-01T00:01:00Z", "since": "1970-01-01T00:00:00Z",
        });
        assert_eq!(value["notices"][0], first);
        assert_eq!(value["notices"][1]["state"], "well");
    }

    #[test]
    fn a_mail_says_it_in_its_subject_which_is_one_line() {
        let notices = notices();
        let of = |notices: &[Notice]| Message { server: "files", notices }.subject();
        assert_eq!(of(&notices), "[files] 1 to look at, 1 well again");
        assert_eq!(of(&notices[..1]), "[files] the disk of /a has 3.0 % free");
        assert_eq!(of(&notices[1..]), "[files] well again: bans: 0 Bcc: x");
        let text = Message { server: "files", notices: &notices }.text();
        let first = "the disk of /a has 3.0 % free.\n  at 1970-01-01T00:01:00Z, since 1970-01-01T00:00:00Z\n";
        assert!(text.starts_with(first), "{text}");
    }
}
