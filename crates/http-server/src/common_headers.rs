//! The header fields that answers begin with, made once a second: `Server`, `Date`, and those that are configured.

use millrace_http::response::PreparedFields;

use crate::web::Web;

/// The lines that answers begin with; made once a second.
#[derive(Debug)]
pub(crate) struct CommonHeaders {
    /// The second that they were made for.
    second: i64,
    /// For those that add their own fields, and for others; each also for encrypted connections.
    lines: [[PreparedFields; 2]; 2],
    /// Fields that are configured for answers without a file.
    of_others: Vec<u8>,
    /// That browsers are to come by HTTPS, where they did.
    of_encrypted: Vec<u8>,
}

/// Which fields an answer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderSet {
    /// `Server` and `Date`: the others are with the file, or what a program has said.
    Bare,
    /// Those that are configured as well.
    Whole,
}

impl CommonHeaders {
    pub(crate) fn new(web: &Web) -> Self {
        let of_encrypted = match web.fields.transport_security {
            None => Vec::new(),
            Some(time) => format!("Strict-Transport-Security: max-age={}\r\n", time.as_secs()).into_bytes(),
        };
        let of_others = web.fields.of_others();
        Self { second: i64::MIN, lines: Default::default(), of_others, of_encrypted }
    }

    /// The lines of an answer in this second.
    pub(crate) fn lines(&mut self, second: i64, set: HeaderSet, encrypted: bool) -> &PreparedFields {
        if self.second != second {
            self.second = second;
            for (whole, both) in self.lines.iter_mut().enumerate() {
                for (encrypted, lines) in both.iter_mut().enumerate() {
                    let mut text = b"Server: Millrace\r\nDate: ".to_vec();
                    millrace_http::date::write(second, &mut text);
                    text.extend_from_slice(b"\r\n");
                    text.extend_from_slice(if whole > 0 { &self.of_others } else { &[] });
                    text.extend_from_slice(if encrypted > 0 { &self.of_encrypted } else { &[] });
                    *lines = text.into();
                }
            }
        }
        &self.lines[set as usize][usize::from(encrypted)]
    }
}
