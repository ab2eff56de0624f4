//! A session as the server reports it, and what can be told from two reports.

use serde_json::Value;

use crate::client::told::{shown, size};

/// A session at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SeenSession {
    pub(super) number: u64,
    pub(super) user: String,
    /// The virtual host that the user is at.
    pub(super) host: String,
    /// The client's address and port.
    pub(super) peer: String,
    pub(super) protocol: String,
    /// Seconds since it began, and since anything happened.
    pub(super) age: f64,
    pub(super) idle: f64,
    pub(super) command: String,
    /// The working directory, or what is asked for.
    pub(super) place: String,
    pub(super) waits_for: String,
    pub(super) transfer: Option<SeenTransfer>,
    /// Bytes a second of its transfer: since the last report, or else on average.
    pub(super) rate: f64,
}

/// A transfer at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SeenTransfer {
    pub(super) kind: String,
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) total: Option<u64>,
    pub(super) seconds: f64,
}

impl SeenSession {
    /// Reads one of the answer's sessions.
    pub(super) fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(shown).unwrap_or_default();
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let transfer =
            Some(&value["transfer"]).filter(|transfer| !transfer.is_null()).map(|transfer| SeenTransfer {
                kind: text(&transfer["kind"]),
                path: text(&transfer["path"]),
                bytes: transfer["bytes"].as_u64().unwrap_or(0),
                total: transfer["total"].as_u64(),
                seconds: number(&transfer["seconds"]),
            });
        Self {
            number: value["session"].as_u64().unwrap_or(0),
            user: text(&value["user"]),
            host: text(&value["host"]),
            peer: text(&value["peer"]),
            protocol: text(&value["protocol"]),
            age: number(&value["age"]),
            idle: number(&value["idle"]),
            command: text(&value["command"]),
            place: text(&value["place"]),
            waits_for: text(&value["waits-for"]),
            rate: transfer.as_ref().map_or(0.0, SeenTransfer::mean_rate),
            transfer,
        }
    }

    /// Computes the rate since an earlier report of the same session.
    pub(super) fn since(mut self, before: &Self) -> Self {
        if let (Some(now), Some(then)) = (&self.transfer, &before.transfer) {
            let time = now.seconds - then.seconds;
            let is_same = now.kind == then.kind && now.path == then.path && now.bytes >= then.bytes;
            if is_same && time > 0.0 {
                self.rate = (now.bytes - then.bytes) as f64 / time;
            }
        }
        self
    }

    /// The client's address without its port.
    pub(super) fn address(&self) -> &str {
        let host = self.peer.rsplit_once(':').map_or(&*self.peer, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The file that is transferred, or else the working directory.
    pub(super) fn file(&self) -> &str {
        self.transfer.as_ref().map_or(&self.place, |transfer| &transfer.path)
    }

    /// How much of the transfer is done, from 0 to 1.
    pub(super) fn share(&self) -> Option<f64> {
        let transfer = self.transfer.as_ref()?;
        let total = transfer.total.filter(|total| *total > 0)?;
        Some((transfer.bytes as f64 / total as f64).min(1.0))
    }

    /// `down`, `up` or `list`; empty without a transfer.
    pub(super) fn direction(&self) -> &'static str {
        match self.transfer.as_ref().map(|transfer| &*transfer.kind) {
            Some("download") => "down",
            Some("upload") => "up",
            Some(_) => "list",
            None => "",
        }
    }

    /// `1.2 MB/s`; empty without a transfer.
    pub(super) fn rate_text(&self) -> String {
        self.transfer.as_ref().map_or(String::new(), |_| rate(self.rate))
    }

    /// Returns true if one of the columns that name something has this text.
    pub(super) fn has(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        [&self.user, &self.host, &self.peer, &self.protocol, &self.command, &self.place, &self.waits_for]
            .into_iter()
            .map(String::as_str)
            .chain([self.file(), self.direction()])
            .any(|field| field.to_lowercase().contains(&text))
    }
}

impl SeenTransfer {
    fn mean_rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

/// `1.2 MB/s`
pub(super) fn rate(bytes_a_second: f64) -> String {
    format!("{}/s", size(bytes_a_second.max(0.0) as u64))
}

/// `7s`, `3m12`, `2h05`, `4d03`: five characters at most.
pub(super) fn short_time(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}", seconds / 3600, seconds % 3600 / 60),
        _ if seconds < 100 * 86_400 => format!("{}d{:02}", seconds / 86_400, seconds % 86_400 / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: f64, bytes: u64, path: &str) -> SeenSession {
        SeenSession::of(&json!({
            "session": 17, "user": "eve", "peer": "[2001:db8::1]:40000", "protocol": "ftp", "age": 75.0, "idle": 0.25,
            "command": "RETR", "place": "/", "waits-for": "client",
            "transfer": { "kind": "download", "path": path, "bytes": bytes, "total": 8000, "seconds": seconds },
        }))
    }

    #[test]
    fn a_rate_is_that_since_the_last_report_of_the_same_transfer() {
        let first = at(2.0, 1000, "/f");
        assert_eq!(first.rate, 500.0);
        assert_eq!(at(3.0, 4000, "/f").since(&first).rate, 3000.0);
        assert_eq!(at(1.0, 4000, "/g").since(&first).rate, 4000.0, "another file");
        assert_eq!(at(1.0, 500, "/f").since(&first).rate, 500.0, "the same file again");
        let idle = SeenSession { transfer: None, ..first.clone() };
        assert_eq!((idle.clone().since(&first).rate_text(), idle.direction()), (String::new(), ""));
    }

    #[test]
    fn a_session_is_found_by_what_its_columns_name() {
        let session = at(2.0, 2000, "/Pub/f");
        assert_eq!((session.address(), session.share()), ("2001:db8::1", Some(0.25)));
        for (text, is_found) in
            [("EVE", true), ("pub", true), ("2001:", true), ("down", true), ("bob", false)]
        {
            assert_eq!(session.has(text), is_found, "{text}");
        }
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in
            [(0.9, "0s"), (59.0, "59s"), (192.0, "3m12"), (7500.0, "2h05"), (86_400.0 * 4.125, "4d03")]
        {
            assert_eq!(short_time(seconds), text);
        }
    }
}
