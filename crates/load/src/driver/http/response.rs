//! Cuts a stream of bytes into HTTP/1 responses (RFC 9112), as a value: it reads no socket.
//!
//! Only what tells where a response ends is understood: its status, `Content-Length`, chunks, and whether the
//! connection goes on. Bodies are counted and not kept.

use thiserror::Error;

/// A head that is longer is not believed.
const MAX_HEAD: usize = 64 * 1024;

/// What is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Broken {
    #[error("the server sent what is no HTTP response")]
    NotHttp,
    #[error("the head of a response is longer than {MAX_HEAD} bytes")]
    TooLong,
    #[error("a chunk has no length")]
    Chunk,
    #[error("Content-Length is no number")]
    Length,
}

/// What a response's head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// The connection can be used again.
    pub(super) keeps_alive: bool,
    pub(super) length: Option<u64>,
    pub(super) server: Option<String>,
    /// A field that answers out of files have, and those of programs have not.
    pub(super) of_file: Option<&'static str>,
}

/// What a server says of a file that it sends: a program's answer is not dated, and is not asked for in parts.
const OF_FILES: [&str; 3] = ["last-modified", "etag", "accept-ranges"];

/// Where in a response the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    /// So many bytes of the body follow.
    Body(u64),
    /// The body ends with the connection.
    Rest,
    /// A line with a chunk's length, or with the end of its data.
    ChunkLine,
    /// So many bytes of a chunk follow, its line end included.
    Chunk(u64),
    /// Lines until an empty one.
    Trailer,
    Over,
}

/// Reads one response.
#[derive(Debug)]
pub(super) struct Reader {
    place: Place,
    /// Of the head, or of a line between chunks.
    text: Vec<u8>,
    head: Option<Head>,
    /// Bytes of the body, and of everything.
    pub(super) body: u64,
    pub(super) all: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self { place: Place::Head, text: Vec::new(), head: None, body: 0, all: 0 }
    }
}

impl Reader {
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// The response has come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// Nothing of it has come.
    pub(super) fn is_fresh(&self) -> bool {
        self.all == 0
    }

    /// How many bytes of the body follow for certain: nobody needs to look at them.
    pub(super) fn dull(&self) -> u64 {
        match self.place {
            Place::Body(left) => left,
            _ => 0,
        }
    }

    /// So many of these have come.
    pub(super) fn skip(&mut self, count: u64) {
        if let Place::Body(left) = self.place {
            self.count(count, true);
            self.place = if left > count { Place::Body(left - count) } else { Place::Over };
        }
    }

    /// The stream has ended: claims that the response had, too.
    pub(super) fn end(&mut self) -> bool {
        if self.place == Place::Rest {
            self.place = Place::Over;
        }
        self.is_over()
    }

    /// Takes what has come. What comes behind the end is of no interest: requests are not pipelined.
    pub(super) fn feed(&mut self, mut input: &[u8]) -> Result<(), Broken> {
        while !input.is_empty() && !self.is_over() {
            match self.place {
                Place::Body(left) | Place::Chunk(left) => {
                    let count = left.min(input.len() as u64);
                    input = &input[count as usize..];
                    if matches!(self.place, Place::Body(_)) {
                        self.skip(count);
                    } else {
                        self.count(count, true);
                        self.place = if left > count { Place::Chunk(left - count) } else { Place::ChunkLine };
                    }
                }
                Place::Rest => {
                    self.count(input.len() as u64, true);
                    input = &[];
                }
                _ => self.feed_line(&mut input)?,
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64, is_body: bool) {
        self.all += bytes;
        self.body += if is_body { bytes } else { 0 };
    }

    fn feed_line(&mut self, input: &mut &[u8]) -> Result<(), Broken> {
        let end = input.iter().position(|&byte| byte == b'\n').map_or(input.len(), |end| end + 1);
        let (piece, rest) = input.split_at(end);
        *input = rest;
        self.count(piece.len() as u64, false);
        self.text.extend_from_slice(piece);
        if self.text.len() > MAX_HEAD {
            return Err(Broken::TooLong);
        }
        if !piece.ends_with(b"\n") {
            return Ok(());
        }
        match self.place {
            Place::Head => {
                let is_end = self.text.ends_with(b"\n\r\n") || self.text.ends_with(b"\n\n");
                if is_end {
                    self.end_head()?;
                }
            }
            Place::ChunkLine => {
                let line = std::mem::take(&mut self.text);
                let line = line.trim_ascii();
                if !line.is_empty() {
                    self.place = match chunk_length(line).ok_or(Broken::Chunk)? {
                        0 => Place::Trailer,
                        length => Place::Chunk(length),
                    };
                }
            }
            _ => {
                let is_empty = self.text.trim_ascii().is_empty();
                self.text.clear();
                if is_empty {
                    self.place = Place::Over;
                }
            }
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), Broken> {
        let text = std::mem::take(&mut self.text);
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let (version, status) = status_line(lines.next().unwrap_or_default()).ok_or(Broken::NotHttp)?;
        if (100..200).contains(&status) {
            return Ok(()); // the real one follows
        }
        let mut head = Head { status, keeps_alive: version == 1, length: None, server: None, of_file: None };
        let mut is_chunked = false;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = Some(value.parse().map_err(|_| Broken::Length)?),
                "transfer-encoding" => is_chunked = value.to_ascii_lowercase().ends_with("chunked"),
                "connection" if value.eq_ignore_ascii_case("close") => head.keeps_alive = false,
                "connection" if value.eq_ignore_ascii_case("keep-alive") => head.keeps_alive = true,
                "server" => head.server = Some(value.to_owned()),
                name => head.of_file = head.of_file.or(OF_FILES.into_iter().find(|&one| one == name)),
            }
        }
        self.place = match head.length {
            _ if matches!(status, 204 | 304) => Place::Over,
            _ if is_chunked => Place::ChunkLine,
            Some(0) => Place::Over,
            Some(length) => Place::Body(length),
            None => Place::Rest,
        };
        head.keeps_alive &= self.place != Place::Rest;
        self.head = Some(head);
        Ok(())
    }
}

/// Minor version and status.
fn status_line(line: &str) -> Option<(u8, u16)> {
    let mut words = line.strip_prefix("HTTP/1.")?.splitn(3, ' ');
    let version = words.next()?.parse().ok()?;
    let status = words.next()?.parse().ok()?;
    (100..1000).contains(&status).then_some((version, status))
}

fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|&byte| byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, keep-alive, body and all bytes, however the response is cut.
    fn read(text: &[u8], is_ended: bool) -> (u16, bool, u64, u64) {
        let mut found = None;
        for size in 1..=text.len() {
            let mut reader = Reader::default();
            text.chunks(size).for_each(|piece| reader.feed(piece).unwrap());
            assert!(reader.is_over() || is_ended && reader.end(), "{size}: {reader:?}");
            let head = reader.head().unwrap();
            let this = (head.status, head.keeps_alive, reader.body, reader.all);
            assert_eq!(*found.get_or_insert(this), this, "{size}");
        }
        found.unwrap()
    }

    #[test]
    fn a_response_ends_where_its_head_says() {
        let text = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n\r\nhello";
        assert_eq!(read(text, false), (200, true, 5, text.len() as u64));
        let text = b"HTTP/1.1 404 Not Found\nContent-Length: 0\nConnection: close\n\n";
        assert_eq!(read(text, false), (404, false, 0, text.len() as u64));
        assert!(read(b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n", false).1);
    }

    #[test]
    fn chunks_are_counted_without_their_frame() {
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n";
        assert_eq!(read(text, false), (200, true, 13, text.len() as u64));
    }

    #[test]
    fn without_a_length_the_connection_ends_it() {
        let text = b"HTTP/1.0 200 OK\r\n\r\nuntil the end";
        assert_eq!(read(text, true), (200, false, 13, text.len() as u64));
    }

    #[test]
    fn a_preliminary_response_is_passed_over() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        assert_eq!(read(text, false).0, 200);
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        for bad in
            [&b"220 FTP\r\n\r\n"[..], b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
        {
            assert!(Reader::default().feed(bad).is_err(), "{bad:?}");
        }
        let endless = [&b"HTTP/1.1 200 OK\r\n"[..], &b"a: b\r\n".repeat(MAX_HEAD)].concat();
        assert_eq!(Reader::default().feed(&endless), Err(Broken::TooLong));
    }
}
