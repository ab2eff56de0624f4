//! wu-ftpd's xferlog: one line a transfer, which log analysers have read since 1993.
//!
//! `Sun Sep  9 01:46:40 2001 1 10.0.0.1 1024 /pub/a_file b _ o r alice ftp 0 * c`: when it ended (UTC here),
//! whole seconds, client, bytes, path (blanks as underscores), type, special action, direction, access
//! mode, user (of an anonymous one the address that was given for a password), service, authentication, its user id, and
//! whether it was complete. Where the configuration asks for them, the start and the end follow, in microseconds since 1970.

use std::io::Write;

use millrace_vfs::{Civil, Conversion, Timestamp};

use super::{Direction, Subject, Transferred};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Appends the line of a transfer; listings have none.
pub(super) fn write(
    now: Timestamp,
    subject: &Subject<'_>,
    transfer: &Transferred<'_>,
    (service, has_times): (&str, bool),
    out: &mut Vec<u8>,
) {
    let direction = match transfer.direction {
        Direction::Download => 'o',
        Direction::Upload => 'i',
        Direction::Listing => return,
    };
    let civil = Civil::from_seconds(now.seconds);
    // 1970-01-01 was a Thursday.
    let day = DAYS[now.seconds.div_euclid(86_400).rem_euclid(7) as usize];
    let month = MONTHS[usize::from(civil.month.clamp(1, 12)) - 1];
    let _ = write!(
        out,
        "{day} {month} {:2} {:02}:{:02}:{:02} {} {} {} {} ",
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        civil.year,
        transfer.elapsed.as_secs_f64().round() as u64,
        subject.peer.ip(),
        transfer.bytes,
    );
    out.extend(transfer.path.as_bytes().iter().map(|&byte| plain(byte)));
    let kind = if transfer.ascii { 'a' } else { 'b' };
    let user = subject.user.unwrap_or(b"-");
    let anonymous = user.eq_ignore_ascii_case(b"anonymous") || user.eq_ignore_ascii_case(b"ftp");
    let _ = write!(
        out,
        " {kind} {} {direction} {} ",
        special(transfer.conversion),
        if anonymous { 'a' } else { 'r' }
    );
    out.extend(transfer.guest.unwrap_or(user).iter().map(|&byte| plain(byte)));
    let _ = write!(out, " {service} 0 * {}", if transfer.failure.is_none() { 'c' } else { 'i' });
    if has_times {
        let (started, ended) = transfer.span(now);
        let _ = write!(out, " {started} {ended}");
    }
    out.push(b'\n');
}

/// The special action, in wu-ftpd's order: compressed, packed by tar, uncompressed.
fn special(conversion: Conversion) -> String {
    let flags = [(conversion.compressed, 'C'), (conversion.archived, 'T'), (conversion.uncompressed, 'U')];
    match conversion.is_none() {
        true => "_".to_owned(),
        false => flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag).collect(),
    }
}

/// The characters of a field: neither space nor control.
fn plain(byte: u8) -> u8 {
    if byte <= b' ' || byte == 0x7f { b'_' } else { byte }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_metrics::Waited;
    use millrace_vfs::VirtualPath;

    use super::*;

    #[test]
    fn a_line_is_as_wu_ftpd_writes_it() {
        let path = VirtualPath::parse(b"/pub/a file\n").unwrap();
        let transfer = Transferred {
            direction: Direction::Download,
            path: &path,
            bytes: 1024,
            elapsed: Duration::from_millis(1400),
            first_byte: None,
            lag: Duration::ZERO,
            waited: Waited::default(),
            failure: None,
            hash: None,
            ascii: false,
            conversion: Conversion::default(),
            guest: None,
            log: None,
        };
        let written = |user: &[u8], transfer: &Transferred<'_>, has_times| {
            let subject = Subject { session: 1, peer: "10.0.0.1:9".parse().unwrap(), user: Some(user) };
            let mut out = Vec::new();
            write(
                Timestamp { seconds: 1_000_000_000, nanoseconds: 0 },
                &subject,
                transfer,
                ("ftp", has_times),
                &mut out,
            );
            String::from_utf8(out).unwrap()
        };
        let line = |user: &[u8], transfer: &Transferred<'_>| written(user, transfer, false);
        let start = "Sun Sep  9 01:46:40 2001 1 10.0.0.1 1024 /pub/a_file_ b _ o";
        assert_eq!(line(b"alice", &transfer), format!("{start} r alice ftp 0 * c\n"));
        let times = "999999998600000 1000000000000000";
        assert_eq!(written(b"alice", &transfer, true), format!("{start} r alice ftp 0 * c {times}\n"));
        assert_eq!(line(b"ftp", &transfer), format!("{start} a ftp ftp 0 * c\n"));
        let packed = Conversion { compressed: true, archived: true, ..Conversion::default() };
        for (conversion, flags) in
            [(Conversion { uncompressed: true, ..Conversion::default() }, "U"), (packed, "CT")]
        {
            let line = line(b"alice", &Transferred { conversion, ..transfer });
            assert!(line.contains(&format!(" b {flags} o r alice ")), "{line}");
        }
        let transfer = Transferred { guest: Some(b"me @example"), ..transfer };
        assert_eq!(line(b"anonymous", &transfer), format!("{start} a me_@example ftp 0 * c\n"));
    }
}
