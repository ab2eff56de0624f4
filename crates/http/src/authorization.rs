//! Basic authentication (RFC 7617).

use crate::base64;

/// The challenge that a 401 carries.
pub const CHALLENGE: &str = "Basic realm=\"Millrace\", charset=\"UTF-8\"";

/// The name and password of an `Authorization` field; `None` where it is no Basic one, or malformed.
pub fn basic(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut user = base64::decode(rest.trim_ascii())?;
    let colon = memchr::memchr(b':', &user)?;
    let password = user.split_off(colon + 1);
    user.pop();
    Some((user, password))
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
