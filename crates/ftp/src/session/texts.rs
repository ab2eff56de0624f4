//! Texts that an administrator has written for clients, with the cookies that wu-ftpd fills in.

use std::fmt::Debug;
use std::net::IpAddr;

use millrace_vfs::{Civil, Timestamp};

/// What clients are told, in lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// Before the greeting.
    pub greeting: Vec<Vec<u8>>,
    /// Behind a login.
    pub welcome: Vec<Vec<u8>>,
    /// Where a limit on sessions turns a client away.
    pub limit: Vec<Vec<u8>>,
    /// The mail address of the administrator.
    pub contact: String,
}

/// How many sessions a server has.
pub trait Occupancy: Debug + Send + Sync {
    /// Returns how many there are.
    fn sessions(&self) -> u64;
    /// Returns how many there may be; `None` without a limit.
    fn most(&self) -> Option<u64>;
}

/// A server that does not know.
#[derive(Debug)]
pub(crate) struct UnknownOccupancy;

impl Occupancy for UnknownOccupancy {
    fn sessions(&self) -> u64 {
        1
    }

    fn most(&self) -> Option<u64> {
        None
    }
}

/// A limit that is reached: how many sessions there are, and how many there may be.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) u64);

impl Occupancy for Full {
    fn sessions(&self) -> u64 {
        self.0
    }

    fn most(&self) -> Option<u64> {
        Some(self.0)
    }
}

/// The values of cookies at one moment.
#[derive(Debug)]
pub struct Cookies<'a> {
    /// What all sessions are told.
    pub texts: &'a Texts,
    /// How many they are.
    pub occupancy: &'a dyn Occupancy,
    /// The client's address.
    pub peer: IpAddr,
    /// The server's.
    pub local: IpAddr,
    /// The time.
    pub wall: Timestamp,
    /// The user; empty before the login.
    pub user: &'a [u8],
    /// The working directory; empty before the login.
    pub directory: &'a [u8],
    /// Free bytes there, where they are known.
    pub free: Option<u64>,
}

impl Cookies<'_> {
    /// Fills lines.
    pub fn fill_all(&self, lines: &[Vec<u8>]) -> Vec<Vec<u8>> {
        lines.iter().map(|line| self.fill(line)).collect()
    }

    /// A line with what wu-ftpd's cookies stand for. Others stay as they are.
    fn fill(&self, line: &[u8]) -> Vec<u8> {
        let mut filled = Vec::with_capacity(line.len());
        let mut rest = line;
        while let Some(at) = memchr::memchr(b'%', rest) {
            let (before, cookie) = rest.split_at(at);
            filled.extend_from_slice(before);
            let whole = &cookie[..cookie.len().min(2)];
            match whole.get(1).and_then(|letter| self.value(*letter)) {
                Some(value) => filled.extend_from_slice(&value),
                None => filled.extend_from_slice(whole),
            }
            rest = &cookie[whole.len()..];
        }
        filled.extend_from_slice(rest);
        filled
    }

    fn value(&self, letter: u8) -> Option<Vec<u8>> {
        let occupancy = self.occupancy;
        let text = match letter {
            b'C' => return Some(self.directory.to_vec()),
            b'E' => self.texts.contact.clone(),
            // In kilobytes, as df tells it.
            b'F' => self.free.map_or_else(|| "unknown".to_owned(), |free| (free / 1024).to_string()),
            b'L' => self.local.to_string(),
            b'M' => occupancy.most().map_or_else(|| "unlimited".to_owned(), |most| most.to_string()),
            b'N' => occupancy.sessions().to_string(),
            b'R' => self.peer.to_string(),
            b'T' => date(self.wall),
            b'U' => return Some(self.user.to_vec()),
            // Whom the client's own computer would name (RFC 1413), which is not asked.
            b'u' => "[unknown]".to_owned(),
            b'%' => "%".to_owned(),
            _ => return None,
        };
        Some(text.into_bytes())
    }
}

/// `Thu Nov 15 17:12:42 1990`, as `ctime(3)` has it, in UTC.
fn date(wall: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Civil { year, month, day, hour, minute, second, .. } = Civil::from_seconds(wall.seconds);
    // 1970 began on a Thursday.
    let weekday = DAYS[wall.seconds.div_euclid(86_400).rem_euclid(7) as usize];
    let month = MONTHS[usize::from(month).saturating_sub(1) % 12];
    format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

/// Returns whether lines tell of free room.
pub(crate) fn ask_for_room(lines: &[Vec<u8>]) -> bool {
    lines.iter().any(|line| line.windows(2).any(|cookie| cookie == b"%F"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cookie_of_wu_ftpd_is_filled() {
        let texts = Texts { contact: "root@files.test".to_owned(), ..Texts::default() };
        let cookies = Cookies {
            texts: &texts,
            occupancy: &UnknownOccupancy,
            peer: [192, 0, 2, 7].into(),
            local: [192, 0, 2, 1].into(),
            wall: Timestamp { seconds: 658_689_162, nanoseconds: 0 },
            user: b"eve",
            directory: b"/pub",
            free: Some(5_000_000),
        };
        let filled = |line: &str| String::from_utf8(cookies.fill(line.as_bytes())).unwrap();
        assert_eq!(filled("%T"), "Thu Nov 15 17:12:42 1990");
        assert_eq!(filled("%C %U %u %R %L %E"), "/pub eve [unknown] 192.0.2.7 192.0.2.1 root@files.test");
        assert_eq!(filled("%N of %M, %F kB; 100%% %x %"), "1 of unlimited, 4882 kB; 100% %x %");
    }
}
