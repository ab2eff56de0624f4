//! Basic authentication (RFC 7617).

/// The challenge that a 401 carries.
pub const CHALLENGE: &str = "Basic realm=\"Millrace\", charset=\"UTF-8\"";

/// The name and password of an `Authorization` field; `None` where it is no Basic one, or malformed.
pub fn basic(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut user = decode_base64(rest.trim_ascii())?;
    let colon = memchr::memchr(b':', &user)?;
    let password = user.split_off(colon + 1);
    user.pop();
    Some((user, password))
}

/// Base64 with or without its padding.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
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

fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_hold_colons() {
        let table: [(&str, Option<(&str, &str)>); 9] = [
            // The example of RFC 7617.
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", Some(("Aladdin", "open sesame"))),
            ("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ", Some(("Aladdin", "open sesame"))),
            ("Basic dTphOmI=", Some(("u", "a:b"))),
            ("Basic Og==", Some(("", ""))),
            ("Basic dQ==", None),
            ("Basic !!!!", None),
            ("Basic Q", None),
            ("Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", None),
            ("", None),
        ];
        for (field, expected) in table {
            let expected = expected.map(|(user, password)| (user.into(), password.into()));
            assert_eq!(basic(field.as_bytes()), expected, "{field}");
        }
    }
}
