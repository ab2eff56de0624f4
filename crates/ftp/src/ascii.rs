//! TYPE A: lines end in LF in our files and in CR LF on the wire (RFC 959 section 3.1.1.1).
//!
//! Sending, a bare LF becomes CR LF, and a CR LF that is in the file stays what it is: vsftpd and ProFTPD
//! do so too, and a file with DOS line ends does not grow a second CR. Receiving, CR LF becomes LF, and a
//! CR before anything else is data. A file with bare LFs only, or with no LF, comes back as it was.
//!
//! Both converters carry one bit from buffer to buffer, so the buffers may be cut anywhere.

use memchr::memchr_iter;

/// Local bytes to wire bytes.
#[derive(Debug, Default)]
pub struct ToNetwork {
    /// The last byte of the last buffer was a CR.
    after_cr: bool,
}

impl ToNetwork {
    /// Appends the wire form of `input`: at most twice its length.
    pub fn convert(&mut self, input: &[u8], out: &mut Vec<u8>) {
        out.reserve(input.len() + input.len() / 16);
        let mut start = 0;
        for feed in memchr_iter(b'\n', input) {
            let after_cr = if feed == 0 { self.after_cr } else { input[feed - 1] == b'\r' };
            if !after_cr {
                out.extend_from_slice(&input[start..feed]);
                out.push(b'\r');
                start = feed;
            }
        }
        out.extend_from_slice(&input[start..]);
        self.after_cr = input.last().map_or(self.after_cr, |&last| last == b'\r');
    }
}

/// Wire bytes to local bytes.
#[derive(Debug, Default)]
pub struct FromNetwork {
    /// A CR ended the last buffer; what follows it decides whether it is data.
    held_cr: bool,
}

impl FromNetwork {
    /// Appends the local form of `input`: at most one byte more than it has.
    pub fn convert(&mut self, input: &[u8], out: &mut Vec<u8>) {
        let Some(&first) = input.first() else { return };
        if self.held_cr && first != b'\n' {
            out.push(b'\r');
        }
        self.held_cr = input.last() == Some(&b'\r');
        let input = &input[..input.len() - usize::from(self.held_cr)];
        let mut start = 0;
        for cr in memchr_iter(b'\r', input) {
            if input.get(cr + 1) == Some(&b'\n') {
                out.extend_from_slice(&input[start..cr]);
                start = cr + 1;
            }
        }
        out.extend_from_slice(&input[start..]);
    }

    /// Appends a CR that was the last byte of all.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.held_cr) {
            out.push(b'\r');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to_network(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut converter, mut out) = (ToNetwork::default(), Vec::new());
        pieces.iter().for_each(|piece| converter.convert(piece, &mut out));
        out
    }

    fn from_network(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut converter, mut out) = (FromNetwork::default(), Vec::new());
        pieces.iter().for_each(|piece| converter.convert(piece, &mut out));
        converter.finish(&mut out);
        out
    }

    #[test]
    fn a_bare_line_feed_gets_a_carriage_return_and_a_whole_line_end_stays() {
        assert_eq!(to_network(&[b"a\nb\r\n\n\rc\r"]), b"a\r\nb\r\n\r\n\rc\r");
        assert_eq!(to_network(&[b"a\r", b"\nb", b"\n", b"\n"]), b"a\r\nb\r\n\r\n");
        assert_eq!(to_network(&[b"\r", b"", b"\n"]), b"\r\n");
    }

    #[test]
    fn a_lone_carriage_return_is_data() {
        assert_eq!(from_network(&[b"a\r\nb\rc\n\r\r\nd\r"]), b"a\nb\rc\n\r\nd\r");
        assert_eq!(from_network(&[b"a\r", b"\nb\r", b"", b"\r", b"c"]), b"a\nb\r\rc");
    }

    proptest! {
        #[test]
        fn unix_text_comes_back_however_it_is_cut(text in "[ab\n]{0,60}", first in 0..60usize, second in 0..120usize) {
            let (left, right) = text.as_bytes().split_at(first.min(text.len()));
            let wire = to_network(&[left, right]);
            prop_assert_eq!(wire.iter().filter(|byte| **byte == b'\r').count(), text.matches('\n').count());
            let (left, right) = wire.split_at(second.min(wire.len()));
            prop_assert_eq!(from_network(&[left, right]), text.as_bytes());
        }

        #[test]
        fn cuts_change_nothing(bytes in prop::collection::vec(prop::sample::select(&b"\r\na"[..]), 0..20), cut in 0..20usize) {
            let (left, right) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(to_network(&[left, right]), to_network(&[&bytes]));
            prop_assert_eq!(from_network(&[left, right]), from_network(&[&bytes]));
        }
    }
}
