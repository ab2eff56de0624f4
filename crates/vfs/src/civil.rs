//! Dates and times of day of the Gregorian calendar, UTC, years 1 to 9999.
//!
//! The conversions between days and dates are Howard Hinnant's (`chrono`-compatible low-level date algorithms, 2013): no
//! table, no loop, right for negative days.

const DAY: i64 = 86_400;
/// `0001-01-01 00:00:00` in seconds from 1970.
const FIRST: i64 = -62_135_596_800;
/// `9999-12-31 23:59:59` in seconds from 1970.
const LAST: i64 = 253_402_300_799;

/// A date and a time of day, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// 1 to 9999.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59; 60, a leap second, is taken from others and never made here.
    pub second: u8,
}

impl Civil {
    /// The date and time of a number of seconds since 1970, brought into the range of years 1 to 9999.
    pub fn from_seconds(seconds: i64) -> Self {
        let seconds = seconds.clamp(FIRST, LAST);
        let (year, month, day) = date_of(seconds.div_euclid(DAY));
        let of_day = seconds.rem_euclid(DAY) as u32;
        Self {
            year,
            month,
            day,
            hour: (of_day / 3600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
        }
    }

    /// Seconds since 1970; `None` where there is no such date or time. Second 60 is the first of the
    /// next minute.
    pub fn seconds(self) -> Option<i64> {
        let exists = (1..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        let of_day = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        exists.then(|| (days_of(self.year, self.month, self.day) * DAY + of_day).min(LAST))
    }
}

fn date_of(days: i64) -> (u16, u8, u8) {
    let days = days + 719_468; // from 0000-03-01
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097) as u32;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = i64::from(year_of_era) + era * 400 + i64::from(month <= 2);
    (year as u16, month as u8, day as u8)
}

fn days_of(year: u16, month: u8, day: u8) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = (i64::from(month) + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

fn days_in(year: u16, month: u8) -> u8 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_days_are_known_dates() {
        for (days, date) in
            [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (19_782, (2024, 2, 29)), (-1, (1969, 12, 31))]
        {
            assert_eq!(date_of(days), date);
            assert_eq!(days_of(date.0, date.1, date.2), days);
        }
    }

    proptest! {
        #[test]
        fn days_follow_one_another(day in FIRST / DAY..LAST / DAY) {
            let (today, tomorrow) = (date_of(day), date_of(day + 1));
            prop_assert!(today < tomorrow);
            prop_assert_eq!(days_of(today.0, today.1, today.2), day);
            prop_assert!(today.2 + 1 == tomorrow.2 || tomorrow.2 == 1 && today.2 == days_in(today.0, today.1));
        }
    }
}
