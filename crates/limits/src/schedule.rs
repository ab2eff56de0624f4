//! A limit as it is written, and what it is at a moment: a number that may follow the clock.
//!
//! ```text
//! 10M                                        ten million, always
//! 10M; mon-fri 08:00-18:00 1M                one million in office hours, by this computer's clock
//! none; sat,sun none; 22:00-06:00 UTC 50Mi   the first rule that matches decides, else the first value
//! ```
//!
//! Numbers of bytes or sessions are written so, rates of logins, and quotas and ratios: `10G/day; sat,sun none`.
//!
//! A rule looks at the civil time of its zone, so it is right on the days on which clocks are put forward or
//! back. Hours that end before they begin go past midnight and belong to the day on which they begin.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use thiserror::Error;

/// A value that may depend on the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Schedule<T> {
    /// Where no rule matches.
    otherwise: T,
    rules: Arc<[Rule<T>]>,
}

/// A value for some hours of some days.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule<T> {
    /// Bit 0 is Monday.
    days: u8,
    /// Minutes of the day: the first, and one past the last. Equal: the whole day.
    from: u16,
    to: u16,
    zone: Zone,
    value: T,
}

/// A value of some kind, or `none`, which may depend on the time: a rate of logins, a quota, a ratio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled<T>(Schedule<Option<T>>);

/// An amount such as `10G`. Unlike in a [`Limit`], 0 means none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity(pub u64);

/// A number that is not to be exceeded, or none; it may depend on the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limit(Schedule<u64>);

/// A time zone and the name that it was given.
#[derive(Debug, Clone)]
struct Zone {
    /// Empty for the computer's own.
    name: Box<str>,
    zone: TimeZone,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

/// Why a text is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LimitError(pub(super) String);

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const EVERY_DAY: u8 = 0x7f;
const DAY: u16 = 24 * 60;

impl Limit {
    /// No limit.
    pub fn none() -> Self {
        Self::default()
    }

    /// The same at any time; 0 for no limit.
    pub fn of(value: u64) -> Self {
        Self(Schedule::of(value))
    }

    /// The value at a moment, in seconds since 1970; 0 for no limit.
    pub fn at(&self, seconds: i64) -> u64 {
        self.0.at(seconds)
    }

    /// Returns true if there never is a limit.
    pub fn is_none(&self) -> bool {
        self.0.is_always(0)
    }

    /// The most that it ever is; 0 where it never is anything.
    pub fn most(&self) -> u64 {
        self.0.rules.iter().map(|rule| rule.value).chain([self.0.otherwise]).max().unwrap_or(0)
    }

    /// Returns true if the value depends on the time.
    pub fn follows_the_clock(&self) -> bool {
        !self.0.rules.is_empty()
    }
}

impl<T> Default for Scheduled<T> {
    fn default() -> Self {
        Self(Schedule::default())
    }
}

impl<T: Copy + PartialEq> Scheduled<T> {
    /// The value at a moment, in seconds since 1970; `None` for no limit.
    pub fn at(&self, seconds: i64) -> Option<T> {
        self.0.at(seconds)
    }

    /// Returns true if there never is a limit.
    pub fn is_none(&self) -> bool {
        self.0.is_always(None)
    }
}

impl<T: Copy + PartialEq> From<T> for Scheduled<T> {
    fn from(value: T) -> Self {
        Self(Schedule::of(Some(value)))
    }
}

impl<T: Copy + PartialEq + FromStr<Err: fmt::Display>> FromStr for Scheduled<T> {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let value = |word: &str| match word {
            "none" => Ok(None),
            word => word.parse().map(Some).map_err(|error: T::Err| LimitError(error.to_string())),
        };
        Schedule::parse(text, value).map(Self)
    }
}

impl<T: Copy + PartialEq + fmt::Display> fmt::Display for Scheduled<T> {
    /// In a form that can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, |value| value.map_or("none".to_owned(), |value| value.to_string()))
    }
}

impl FromStr for Quantity {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        match text.ends_with("/s") {
            true => Err(LimitError(format!("{text:?} is so many a second; write how many there may be"))),
            false => number(text).map(Self),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Copy + PartialEq> Schedule<T> {
    /// The same at any time.
    pub(super) fn of(value: T) -> Self {
        Self { otherwise: value, rules: Arc::from([]) }
    }

    /// The value at a moment, in seconds since 1970.
    pub(super) fn at(&self, seconds: i64) -> T {
        let matching = self.rules.iter().find(|rule| rule.holds_at(seconds));
        matching.map_or(self.otherwise, |rule| rule.value)
    }

    /// Returns true if it is this at any time.
    pub(super) fn is_always(&self, value: T) -> bool {
        self.otherwise == value && self.rules.iter().all(|rule| rule.value == value)
    }

    /// Reads a first value, and rules; `value` reads one word.
    pub(super) fn parse(
        text: &str,
        value: impl Fn(&str) -> Result<T, LimitError>,
    ) -> Result<Self, LimitError> {
        let (mut otherwise, mut rules) = (None, Vec::new());
        for (index, part) in text.split(';').enumerate() {
            let words: Vec<&str> = part.split_whitespace().collect();
            match words[..] {
                [word] if index == 0 => otherwise = Some(value(word)?),
                [word] => {
                    let message = "without days or hours only the first value can stand";
                    return Err(LimitError(format!("{word:?} is not a rule; {message}")));
                }
                [ref when @ .., word] if index > 0 => rules.push(rule(when, value(word)?)?),
                [_, ref rest @ ..] => {
                    let message = "begin with the value that holds otherwise, such as none, and a semicolon";
                    return Err(LimitError(format!(
                        "{:?} stands behind the first value; {message}",
                        rest.join(" ")
                    )));
                }
                [] => {
                    return Err(LimitError(format!("{text:?} has an empty part; write a value such as 10M")));
                }
            }
        }
        let otherwise = otherwise.expect("the first part is a value, or an error");
        Ok(Self { otherwise, rules: rules.into() })
    }

    /// In a form that can be parsed again.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, word: impl Fn(T) -> String) -> fmt::Result {
        f.write_str(&word(self.otherwise))?;
        self.rules.iter().try_for_each(|rule| write!(f, "; {}{}", rule.when(), word(rule.value)))
    }
}

impl<T> Rule<T> {
    fn holds_at(&self, seconds: i64) -> bool {
        let Ok(moment) = Timestamp::from_second(seconds) else { return false };
        let civil = self.zone.zone.to_datetime(moment);
        let minute = civil.hour() as u16 * 60 + civil.minute() as u16;
        let today = 1 << civil.weekday().to_monday_zero_offset();
        let yesterday = 1 << ((civil.weekday().to_monday_zero_offset() + 6) % 7);
        let begins_today = self.days & today != 0;
        match self.from < self.to {
            true => begins_today && (self.from..self.to).contains(&minute),
            false if self.from == self.to => begins_today,
            false => begins_today && minute >= self.from || self.days & yesterday != 0 && minute < self.to,
        }
    }

    /// Its days and hours and the zone, with a space behind each.
    fn when(&self) -> String {
        let days: Vec<&str> = DAYS
            .iter()
            .enumerate()
            .filter(|(day, _)| self.days >> day & 1 == 1)
            .map(|(_, name)| *name)
            .collect();
        let mut text = format!("{} ", days.join(","));
        if self.from != self.to {
            let (from, to) = (self.from, self.to);
            text += &format!("{:02}:{:02}-{:02}:{:02} ", from / 60, from % 60, to / 60, to % 60);
        }
        if !self.zone.name.is_empty() {
            text += &format!("{} ", self.zone.name);
        }
        text
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        Schedule::parse(text, number).map(Self)
    }
}

fn rule<T>(words: &[&str], value: T) -> Result<Rule<T>, LimitError> {
    let (mut days, mut hours, mut zone) = (None, None, None);
    for word in words {
        if let Some(found) = parse_days(word) {
            once(&mut days, found, word)?;
        } else if let Some(found) = parse_hours(word) {
            once(&mut hours, found, word)?;
        } else {
            once(&mut zone, parse_zone(word)?, word)?;
        }
    }
    let (from, to) = hours.unwrap_or((0, 0));
    let zone = zone.unwrap_or_else(|| Zone { name: "".into(), zone: TimeZone::system() });
    Ok(Rule { days: days.unwrap_or(EVERY_DAY), from, to, zone, value })
}

fn once<T>(place: &mut Option<T>, found: T, word: &str) -> Result<(), LimitError> {
    match place.replace(found) {
        None => Ok(()),
        Some(_) => Err(LimitError(format!("{word:?} is one too many; a rule has days, hours and a zone"))),
    }
}

/// `mon-fri`, `sat,sun`, `fri-mon`
fn parse_days(word: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|day| name.eq_ignore_ascii_case(day));
    word.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7;
        Some((0..=count).fold(days, |days, step| days | 1 << ((first + step) % 7)))
    })
}

/// `08:00-18:30`
fn parse_hours(word: &str) -> Option<(u16, u16)> {
    let minute = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let all_digits = |text: &str| matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
        let valid = all_digits(hour) && all_digits(minute);
        let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
        (valid && minute < 60 && hour * 60 + minute <= DAY).then_some(hour * 60 + minute)
    };
    let (from, to) = word.split_once('-')?;
    let (from, to) = (minute(from)?, minute(to)?);
    // A whole day may be written 00:00-24:00; from 24:00 nothing begins.
    (from < DAY).then_some((from, if from == 0 && to == DAY { 0 } else { to }))
}

fn parse_zone(word: &str) -> Result<Zone, LimitError> {
    let zone = match word {
        "local" => TimeZone::system(),
        "UTC" | "Z" => TimeZone::UTC,
        _ => TimeZone::get(word).map_err(|_| unknown(word))?,
    };
    Ok(Zone { name: word.into(), zone })
}

/// A word with a slash is nothing else than the name of a zone.
fn unknown(word: &str) -> LimitError {
    LimitError(match word.contains('/') {
        true => {
            format!("{word:?} is no time zone that this computer knows; write such as Europe/Paris, or UTC")
        }
        false => {
            format!(
                "{word:?} is neither days (mon-fri), nor hours (08:00-18:00), nor a time zone (Europe/Paris)"
            )
        }
    })
}

/// Checks that a word is a time: days, hours or a time zone.
pub fn says_when(word: &str) -> Result<(), LimitError> {
    match parse_days(word).is_some() || parse_hours(word).is_some() {
        true => Ok(()),
        false => parse_zone(word).map(drop),
    }
}

/// `10M`, `64KiB/s`, `none`
pub(super) fn number(text: &str) -> Result<u64, LimitError> {
    if text == "none" {
        return Ok(0);
    }
    let plain = text.strip_suffix("/s").unwrap_or(text);
    let end = plain.find(|char: char| !char.is_ascii_digit()).unwrap_or(plain.len());
    let (digits, unit) = plain.split_at(end);
    let factor = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => Some(1),
        "k" | "K" => Some(1000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "Ki" => Some(1 << 10),
        "Mi" => Some(1 << 20),
        "Gi" => Some(1 << 30),
        _ => None,
    };
    let number =
        digits.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    number.ok_or_else(|| {
        LimitError(format!("{text:?} is not a number; write one such as 100, 10M or 64KiB, or none"))
    })
}

impl fmt::Display for Limit {
    /// In a form that can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, |value| match value {
            0 => "none".to_owned(),
            value => value.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(limit: &str, moment: &str) -> u64 {
        limit.parse::<Limit>().unwrap().at(moment.parse::<Timestamp>().unwrap().as_second())
    }

    #[test]
    fn a_rule_holds_from_its_first_minute_to_before_its_last() {
        let limit = "10M; mon-fri 08:00-18:00 UTC 1M";
        // 2026-11-20 is a Friday.
        for (moment, value) in [
            ("2026-11-20T07:59:59Z", 10_000_000),
            ("2026-11-20T08:00:00Z", 1_000_000),
            ("2026-11-20T17:59:59Z", 1_000_000),
            ("2026-11-20T18:00:00Z", 10_000_000),
            ("2026-11-21T12:00:00Z", 10_000_000),
        ] {
            assert_eq!(at(limit, moment), value, "{moment}");
        }
    }

    #[test]
    fn hours_past_midnight_belong_to_the_day_on_which_they_begin() {
        let limit = "none; fri 22:00-06:00 UTC 5";
        for (moment, value) in [
            ("2026-11-20T05:00:00Z", 0),
            ("2026-11-20T22:00:00Z", 5),
            ("2026-11-21T05:59:00Z", 5),
            ("2026-11-21T06:00:00Z", 0),
            ("2026-11-21T23:00:00Z", 0),
        ] {
            assert_eq!(at(limit, moment), value, "{moment}");
        }
    }

    /// Paris goes from UTC+1 to UTC+2 on 2026-03-29 at 02:00, and back on 2026-10-25 at 03:00.
    #[test]
    fn a_named_zone_knows_its_summer_time() {
        let limit = "none; 08:00-09:00 Europe/Paris 7";
        assert_eq!(at(limit, "2026-03-28T07:30:00Z"), 7);
        assert_eq!(at(limit, "2026-03-29T07:30:00Z"), 0);
        assert_eq!(at(limit, "2026-03-29T06:30:00Z"), 7);
        assert_eq!(at(limit, "2026-10-25T06:30:00Z"), 0);
        assert_eq!(at(limit, "2026-10-25T07:30:00Z"), 7);
        // The hour that comes twice is limited twice, the one that is left out not at all.
        let night = "none; 02:00-03:00 Europe/Paris 7";
        assert_eq!(at(night, "2026-10-25T00:30:00Z"), 7);
        assert_eq!(at(night, "2026-10-25T01:30:00Z"), 7);
        assert_eq!(at(night, "2026-03-29T00:59:59Z"), 0);
        assert_eq!(at(night, "2026-03-29T01:00:00Z"), 0);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        assert_eq!(at("1; sat UTC 2; 00:00-24:00 UTC 3", "2026-11-21T00:00:00Z"), 2);
        assert_eq!(at("1; sat UTC 2; 00:00-24:00 UTC 3", "2026-11-22T00:00:00Z"), 3);
    }

    #[test]
    fn written_schedules_can_be_parsed_again() {
        for text in [
            "none",
            "10000000",
            "none; mon,tue,wed,thu,fri 08:00-18:00 Europe/Paris 1000000",
            "5; sat,sun none; mon,tue,wed,thu,fri,sat,sun 22:00-06:00 UTC 3",
        ] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        assert_eq!(
            "64KiB/s; fri-mon 1:00-2:30 1k".parse::<Limit>().unwrap().to_string(),
            "65536; mon,fri,sat,sun 01:00-02:30 1000"
        );
    }

    #[test]
    fn an_unknown_time_zone_is_told_as_that() {
        let told = |text: &str| text.parse::<Limit>().unwrap_err().to_string();
        let zone = "\"Europe/Pariss\" is no time zone that this computer knows";
        assert!(told("none; 08:00-18:00 Europe/Pariss 1").starts_with(zone));
        assert!(told("none; 08:00_18:00 1").contains("is neither days"));
    }

    #[test]
    fn any_value_follows_the_clock_and_nothing_is_another_than_none() {
        let quota: Scheduled<Quantity> = "10k; mon-fri 08:00-18:00 UTC 0; sat,sun UTC none".parse().unwrap();
        let at = |moment: &str| quota.at(moment.parse::<Timestamp>().unwrap().as_second());
        // 2026-11-20 is a Friday.
        assert_eq!(at("2026-11-20T07:59:59Z"), Some(Quantity(10_000)));
        assert_eq!(at("2026-11-20T08:00:00Z"), Some(Quantity(0)));
        assert_eq!(at("2026-11-21T08:00:00Z"), None);
        assert_eq!(quota.to_string(), "10000; mon,tue,wed,thu,fri 08:00-18:00 UTC 0; sat,sun UTC none");
        assert_eq!(quota.to_string().parse::<Scheduled<Quantity>>().unwrap(), quota);
        for text in ["", "10k/s", "-1", "x", "1; 2", "1; mon"] {
            assert!(text.parse::<Scheduled<Quantity>>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn invalid_limits_are_reported() {
        for text in [
            "",
            "x",
            "10x",
            "-1",
            "1;2",
            "1;",
            ";1",
            "1; mon",
            "mon-fri 5",
            "1; mon-xyz 5",
            "1; 25:00-26:00 5",
            "1; 08:00-18:60 5",
            "1; mon tue 5",
            "1; Atlantis/Centre 5",
            "99999999999999999999",
            "1; +1:00-2:00 5",
        ] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.len() > 20, "{text:?}: {error}");
        }
    }
}
