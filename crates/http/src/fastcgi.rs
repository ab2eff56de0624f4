//! FastCGI 1.0: records between a server and an application that stays, one request at a time on a connection.
//!
//! It has both sides: for applications, and for tests within the process. The content of `FCGI_STDOUT` has the format
//! of a CGI answer: see [`crate::cgi`].
//!
//! The invariant: an answer is complete only after `FCGI_END_REQUEST`. A length is never trusted beyond its record, and
//! a malformed record ends the connection.

use crate::cgi::Environment;

/// The only request of a connection has this number.
const REQUEST: u16 = 1;

/// Bytes of a record's content at most; a multiple of eight needs no padding.
const MOST: usize = 32 * 1024;

const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// `FCGI_RESPONDER`, and whether the connection stays open behind the request.
const RESPONDER: u8 = 1;
const KEEP: u8 = 1;

/// How an application says that a request is done (`FCGI_REQUEST_COMPLETE`).
const COMPLETE: u8 = 0;

fn record(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    let [id_high, id_low] = REQUEST.to_be_bytes();
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    let [high, low] = length.to_be_bytes();
    out.extend_from_slice(&[1, kind, id_high, id_low, high, low, 0, 0]);
    out.extend_from_slice(&content[..usize::from(length)]);
}

/// A stream's bytes, in as many records as it takes. Without any this writes nothing: an empty record is its end.
fn stream(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    bytes.chunks(MOST).for_each(|content| record(kind, content, out));
}

/// Begins a request, with its variables; the body follows.
pub fn begin(variables: &Environment, keep: bool, out: &mut Vec<u8>) {
    record(BEGIN_REQUEST, &[0, RESPONDER, if keep { KEEP } else { 0 }, 0, 0, 0, 0, 0], out);
    let mut pairs = Vec::new();
    for (name, value) in variables.iter() {
        [name.len(), value.len()].into_iter().for_each(|size| length(size, &mut pairs));
        pairs.extend_from_slice(name);
        pairs.extend_from_slice(value);
    }
    stream(PARAMS, &pairs, out);
    record(PARAMS, &[], out);
}

/// The length of a name or value: one byte, or four.
fn length(size: usize, out: &mut Vec<u8>) {
    match u8::try_from(size) {
        Ok(small @ 0..=127) => out.push(small),
        _ => out.extend_from_slice(&(u32::try_from(size).unwrap_or(0) | 1 << 31).to_be_bytes()),
    }
}

/// Bytes of the request's body.
pub fn stdin(bytes: &[u8], out: &mut Vec<u8>) {
    stream(STDIN, bytes, out);
}

/// The end of the request's body.
pub fn end_stdin(out: &mut Vec<u8>) {
    record(STDIN, &[], out);
}

/// The answer is not wanted any more.
pub fn abort(out: &mut Vec<u8>) {
    record(ABORT_REQUEST, &[], out);
}

/// Bytes of the answer.
pub fn stdout(bytes: &[u8], out: &mut Vec<u8>) {
    stream(STDOUT, bytes, out);
}

/// Data on the error stream.
pub fn stderr(bytes: &[u8], out: &mut Vec<u8>) {
    stream(STDERR, bytes, out);
}

/// The answer is whole.
pub fn end(out: &mut Vec<u8>) {
    record(STDOUT, &[], out);
    record(END_REQUEST, &[0, 0, 0, 0, COMPLETE, 0, 0, 0], out);
}

/// A message from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// Bytes of the request's body; none are its end.
    Stdin(&'a [u8]),
    /// The answer is not wanted any more.
    Abort,
    /// Bytes of the answer.
    Stdout(&'a [u8]),
    /// Data for the log.
    Stderr(&'a [u8]),
    /// The request is done; whether as one that was answered, or was not taken.
    End(bool),
}

/// A malformed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedRecord;

/// Takes records apart, in whatever pieces they come.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Of a header that is not whole.
    header: Vec<u8>,
    /// In a record: its kind, whether it is of our request, and the bytes of content and padding to come.
    within: Option<(u8, bool, usize, usize)>,
    /// The content of an `FCGI_END_REQUEST`.
    end: Vec<u8>,
    has_ended: bool,
}

impl Decoder {
    /// Returns whether the request is done.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes bytes from the connection; tells `said` what they say.
    pub fn take(&mut self, bytes: &[u8], said: &mut impl FnMut(Said<'_>)) -> Result<(), MalformedRecord> {
        let mut rest = bytes;
        while !rest.is_empty() || matches!(self.within, Some((_, _, 0, 0))) {
            match &mut self.within {
                None => self.take_header(&mut rest, said)?,
                Some((_, _, 0, 0)) => self.within = None,
                Some((_, _, 0, padding)) => {
                    let count = rest.len().min(*padding);
                    *padding -= count;
                    rest = &rest[count..];
                }
                Some((kind, is_ours, left, _)) => {
                    let (kind, is_ours, count) = (*kind, *is_ours, rest.len().min(*left));
                    *left -= count;
                    let is_all = *left == 0;
                    let (content, behind) = rest.split_at(count);
                    rest = behind;
                    if is_ours {
                        self.tell(kind, content, is_all, said)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn take_header(
        &mut self,
        rest: &mut &[u8],
        said: &mut impl FnMut(Said<'_>),
    ) -> Result<(), MalformedRecord> {
        let count = rest.len().min(8 - self.header.len());
        self.header.extend_from_slice(&rest[..count]);
        *rest = &rest[count..];
        let &[version, kind, id_high, id_low, high, low, padding, _] = &self.header[..] else {
            return Ok(());
        };
        self.header.clear();
        let id = u16::from_be_bytes([id_high, id_low]);
        // Behind its end there is nothing more of a request; number 0 is about the application itself.
        if version != 1 || (id != REQUEST && id != 0) || (self.has_ended && id == REQUEST) {
            return Err(MalformedRecord);
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if id == REQUEST && length == 0 {
            match kind {
                STDIN => said(Said::Stdin(&[])),
                ABORT_REQUEST => said(Said::Abort),
                END_REQUEST => return Err(MalformedRecord),
                _ => {}
            }
        }
        self.within = Some((kind, id == REQUEST, length, usize::from(padding)));
        Ok(())
    }

    fn tell(
        &mut self,
        kind: u8,
        content: &[u8],
        is_all: bool,
        said: &mut impl FnMut(Said<'_>),
    ) -> Result<(), MalformedRecord> {
        match kind {
            STDIN => said(Said::Stdin(content)),
            STDOUT => said(Said::Stdout(content)),
            STDERR => said(Said::Stderr(content)),
            END_REQUEST => {
                if self.end.len() + content.len() > 64 {
                    return Err(MalformedRecord);
                }
                self.end.extend_from_slice(content);
                if is_all {
                    let status = self.end.get(4).ok_or(MalformedRecord)?;
                    self.has_ended = true;
                    said(Said::End(*status == COMPLETE));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Names the records and their data, with consecutive data of one stream joined.
    fn hear(wire: &[u8], piece: usize) -> Result<Vec<(String, Vec<u8>)>, MalformedRecord> {
        let (mut decoder, mut heard) = (Decoder::default(), Vec::<(String, Vec<u8>)>::new());
        for bytes in wire.chunks(piece) {
            decoder.take(bytes, &mut |said| {
                let (name, bytes) = match said {
                    Said::Stdin(b"") => ("end of stdin".to_owned(), &b""[..]),
                    Said::Stdin(bytes) => ("stdin".to_owned(), bytes),
                    Said::Stdout(bytes) => ("stdout".to_owned(), bytes),
                    Said::Stderr(bytes) => ("stderr".to_owned(), bytes),
                    Said::Abort => ("abort".to_owned(), &b""[..]),
                    Said::End(is_complete) => (format!("end {is_complete}"), &b""[..]),
                };
                match heard.last_mut() {
                    Some((last, all)) if *last == name => all.extend_from_slice(bytes),
                    _ => heard.push((name, bytes.to_vec())),
                }
            })?;
        }
        Ok(heard)
    }

    fn variables(pairs: [(&str, &[u8]); 2]) -> Environment {
        let mut variables = Environment::default();
        pairs.into_iter().for_each(|(name, value)| variables.set(name, value));
        variables
    }

    #[test]
    fn each_side_parses_the_others_records_in_any_pieces() {
        let long = vec![b'x'; 100_000];
        let mut wire = Vec::new();
        begin(&variables([("A", b"b"), ("L", &[b'l'; 200])]), true, &mut wire);
        stdin(&long, &mut wire);
        end_stdin(&mut wire);
        abort(&mut wire);
        stdout(b"answer", &mut wire);
        // With padding, and something about the application itself in between.
        wire.extend_from_slice(&[1, STDERR, 0, 1, 0, 3, 5, 0, b'e', b'r', b'r', 0, 0, 0, 0, 0]);
        wire.extend_from_slice(&[1, 10, 0, 0, 0, 2, 0, 0, 9, 9]);
        end(&mut wire);
        let expected = [
            ("stdin", &long[..]),
            ("end of stdin", b""),
            ("abort", b""),
            ("stdout", b"answer"),
            ("stderr", b"err"),
            ("end true", b""),
        ];
        let expected: Vec<(String, Vec<u8>)> =
            expected.into_iter().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect();
        for piece in [1, 7, 8, 9, 4096, wire.len()] {
            assert_eq!(hear(&wire, piece).unwrap(), expected, "{piece}");
        }
    }

    #[test]
    fn variables_have_lengths_of_one_byte_or_four() {
        let mut wire = Vec::new();
        begin(&variables([("AB", b"c"), ("D", &[b'e'; 300])]), false, &mut wire);
        let content = &wire[16..];
        assert_eq!(&wire[..16], [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&content[8..13], [2, 1, b'A', b'B', b'c']);
        assert_eq!(&content[13..19], [1, 0x80, 0, 1, 44, b'D']);
        assert_eq!(&wire[wire.len() - 8..], [1, PARAMS, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn records_of_other_requests_are_refused() {
        let mut done = Vec::new();
        end(&mut done);
        let again = [&done[..], &done].concat();
        for wire in [
            &[2, STDOUT, 0, 1, 0, 0, 0, 0][..],
            &[1, STDOUT, 0, 2, 0, 0, 0, 0],
            &[1, END_REQUEST, 0, 1, 0, 0, 0, 0],
            &[1, END_REQUEST, 0, 1, 0, 2, 0, 0, 0, 0],
            b"HTTP/1.1 200 OK\r\n",
            &again,
        ] {
            assert_eq!(hear(wire, 3), Err(MalformedRecord), "{wire:?}");
        }
        let refused = [1, END_REQUEST, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
        assert_eq!(hear(&refused, 16).unwrap(), [("end false".to_owned(), Vec::new())]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
            let _ = hear(&bytes, piece);
            let mut records: Vec<u8> = Vec::new();
            for chunk in bytes.chunks(11) {
                record(chunk[0] % 12, chunk, &mut records);
            }
            let _ = hear(&records, piece);
        }
    }
}
