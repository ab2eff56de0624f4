//! Base64 (RFC 4648): in its usual alphabet, and in the one that URLs can hold.

const USUAL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The bytes that a text in either alphabet stands for, with or without its padding.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut text = text;
    while let [rest @ .., b'='] = text {
        text = rest;
    }
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        if group.len() == 1 {
            return None;
        }
        let mut bits = 0_u32;
        for &byte in group {
            bits = bits << 6 | u32::from(sextet(byte)?);
        }
        bits <<= 6 * (4 - group.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

/// Text in the usual alphabet, padded.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = write(bytes, USUAL);
    out.extend(std::iter::repeat_n('=', out.len().next_multiple_of(4) - out.len()));
    out
}

/// Text for a URL, without padding.
pub fn encode_url(bytes: &[u8]) -> String {
    write(bytes, URL)
}

fn write(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(word);
        for at in 0..=group.len() {
            out.push(char::from(alphabet[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    out
}

fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_bytes_are_decoded() {
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|at| at.wrapping_mul(83) ^ 0xff).collect();
            assert_eq!(decode(encode_url(&bytes).as_bytes()), Some(bytes));
        }
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"\xff\xfe", "//4="),
        ] {
            assert_eq!(encode(bytes), expected);
        }
        assert_eq!(decode(b"Zm9vYg=="), Some(b"foob".to_vec()));
        assert_eq!((decode(b"Z"), decode(b"Z!9v")), (None, None));
    }
}
