//! Dates of the Gregorian calendar, years 1 to 9999, and the text of a moment. Time zones are left to the caller.

use std::fmt;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: i64 = 86_400;

/// A day that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    /// None if there is no such day.
    #[must_use]
    pub fn new(year: i64, month: i64, day: i64) -> Option<Self> {
        let exists =
            (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
        exists.then_some(Self { year, month, day })
    }

    /// Reads `2024-02-29`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let well_formed = bytes.len() == 10
            && bytes.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !well_formed {
            return None;
        }
        let number = |range: Range<usize>| text.get(range)?.parse().ok();
        Self::new(number(0..4)?, number(5..7)?, number(8..10)?)
    }

    /// Days since 1970-01-01.
    #[must_use]
    pub fn day_number(self) -> i64 {
        // Count years from March, so that the leap day is the last day of a year.
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let month_from_march = (self.month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        // 719468 days lie between 0000-03-01 and 1970-01-01.
        365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
    }

    /// The inverse of [`Date::day_number`]. None outside the years 1 to 9999.
    #[must_use]
    pub fn from_day_number(number: i64) -> Option<Self> {
        const DAYS_IN_400_YEARS: i64 = 146_097;
        let days = number.checked_add(719_468)?;
        let era = days.div_euclid(DAYS_IN_400_YEARS);
        let day_of_era = days.rem_euclid(DAYS_IN_400_YEARS);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Self::new(year, month, day)
    }

    /// The same day so many months later; the last day of the month where there is no such day.
    #[must_use]
    pub fn plus_months(self, months: i64) -> Option<Self> {
        let count = (self.year * 12 + self.month - 1).checked_add(months)?;
        let (year, month) = (count.div_euclid(12), count.rem_euclid(12) + 1);
        Self::new(year, month, self.day.min(days_in_month(year, month)))
    }

    /// So many days later.
    #[must_use]
    pub fn plus_days(self, days: i64) -> Option<Self> {
        Self::from_day_number(self.day_number().checked_add(days)?)
    }

    /// 0 is Monday.
    fn weekday_number(self) -> i64 {
        // 1970-01-01 was a Thursday.
        (self.day_number() + 3).rem_euclid(7)
    }

    /// Its English name.
    #[must_use]
    pub fn weekday(self) -> &'static str {
        match self.weekday_number() {
            0 => "Monday",
            1 => "Tuesday",
            2 => "Wednesday",
            3 => "Thursday",
            4 => "Friday",
            5 => "Saturday",
            _ => "Sunday",
        }
    }

    /// How many days from Monday to Friday lie from this day on and before the other; negative if the other is earlier.
    #[must_use]
    pub fn workdays_until(self, other: Self) -> i64 {
        // Workdays from a Monday long ago up to the date itself; the difference is what lies between.
        let workdays_before = |date: Self| {
            let days = date.day_number() + 3;
            days.div_euclid(7) * 5 + days.rem_euclid(7).min(5)
        };
        workdays_before(other) - workdays_before(self)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Whole seconds since 1970 began; 0 for anything earlier.
#[must_use]
pub fn unix_seconds(moment: SystemTime) -> i64 {
    moment.duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}

/// The day and the time of day at so many seconds since 1970 began.
#[must_use]
pub fn day_and_time(unix_seconds: i64) -> Option<(Date, String)> {
    let date = Date::from_day_number(unix_seconds.div_euclid(SECONDS_PER_DAY))?;
    let second = unix_seconds.rem_euclid(SECONDS_PER_DAY);
    let time = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    Some((date, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> Date {
        Date::parse(text).expect("a date")
    }

    #[test]
    fn every_day_number_round_trips() {
        let (first, last) = (date("0001-01-01"), date("9999-12-31"));
        let mut expected = first;
        for number in first.day_number()..=last.day_number() {
            let day = Date::from_day_number(number).expect("in range");
            assert_eq!(day.day_number(), number);
            assert_eq!(day, expected);
            expected = Date::new(day.year, day.month, day.day + 1)
                .or_else(|| Date::new(day.year, day.month + 1, 1))
                .or_else(|| Date::new(day.year + 1, 1, 1))
                .unwrap_or(first);
        }
        assert_eq!(Date::from_day_number(last.day_number() + 1), None);
        assert_eq!(Date::from_day_number(i64::MAX), None);
        assert_eq!(Date::from_day_number(i64::MIN), None);
    }

    #[test]
    fn only_days_that_exist_are_read() {
        assert_eq!(date("2024-02-29").to_string(), "2024-02-29");
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-01-00",
            "0000-01-01",
            "2024-1-1",
            "24-01-01",
            "2024/01/01",
            "+024-01-01",
            "",
            "2024-01-0é",
            "tomorrow",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }

    #[test]
    fn weekdays_are_known() {
        assert_eq!(date("1970-01-01").weekday(), "Thursday");
        assert_eq!(date("2000-01-01").weekday(), "Saturday");
        assert_eq!(date("1815-12-10").weekday(), "Sunday");
    }

    #[test]
    fn months_end_where_the_month_ends() {
        let end = date("2024-01-31");
        assert_eq!(end.plus_months(1), Some(date("2024-02-29")));
        assert_eq!(end.plus_months(13), Some(date("2025-02-28")));
        assert_eq!(end.plus_months(-2), Some(date("2023-11-30")));
        assert_eq!(end.plus_months(i64::MAX), None);
        assert_eq!(end.plus_days(i64::MAX), None);
    }

    #[test]
    fn workdays_leave_out_the_weekend() {
        let monday = date("2024-01-01");
        assert_eq!(monday.workdays_until(date("2024-01-08")), 5);
        assert_eq!(monday.workdays_until(date("2024-01-05")), 4);
        assert_eq!(date("2024-01-06").workdays_until(date("2024-01-08")), 0);
        assert_eq!(date("2024-01-08").workdays_until(monday), -5);
    }

    #[test]
    fn a_moment_has_a_day_and_a_time() {
        let at = |seconds| day_and_time(seconds).map(|(day, time)| format!("{day} {time}"));
        assert_eq!(at(0).as_deref(), Some("1970-01-01 00:00:00"));
        assert_eq!(at(-1).as_deref(), Some("1969-12-31 23:59:59"));
        assert_eq!(at(1_709_210_096).as_deref(), Some("2024-02-29 12:34:56"));
    }
}
