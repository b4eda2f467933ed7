//! A point in time as both databases can keep it: whole microseconds, UTC.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// Microseconds since 1970, written as RFC 3339 in UTC.
///
/// PostgreSQL stores microseconds, so a finer type would lose precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Timestamp(i64);

/// A text that is not a time.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a time such as 2026-07-28T12:00:00Z")]
pub struct InvalidTimestamp {
    text: String,
}

/// The years 1 to 9999: the range of both databases and of RFC 3339.
const EARLIEST: i64 = -62_135_596_800_000_000;
const LATEST: i64 = 253_402_207_200_000_000;

impl Timestamp {
    /// The current time.
    pub fn now() -> Self {
        let now = SystemTime::now();
        match now.duration_since(UNIX_EPOCH) {
            Ok(since) => Self::from_micros(i64::try_from(since.as_micros()).unwrap_or(LATEST)),
            Err(before) => Self::from_micros(-i64::try_from(before.duration().as_micros()).unwrap_or(-EARLIEST)),
        }
    }

    /// A time as microseconds since 1970, limited to the years 1 to 9999.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(EARLIEST, LATEST))
    }

    /// Microseconds since 1970.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// A time before this one, as for "older than thirty days".
    #[must_use]
    pub fn earlier_by(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros(span)))
    }

    /// A time after this one.
    #[must_use]
    pub fn later_by(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(span)))
    }

    /// The time in the local time zone (`TZ`, else the system's), in a format of `strftime`.
    pub fn local(self, format: &str) -> String {
        self.in_zone(format, TimeZone::system())
    }

    fn in_zone(self, format: &str, zone: TimeZone) -> String {
        let moment = jiff::Timestamp::from_microsecond(self.0).expect("kept within what can be written");
        moment.to_zoned(zone).strftime(format).to_string()
    }

    /// A local time without a time zone, as browsers send it (`2026-07-28T14:00`).
    pub fn from_local(text: &str) -> Option<Self> {
        Self::from_zone(text, &TimeZone::system())
    }

    fn from_zone(text: &str, zone: &TimeZone) -> Option<Self> {
        let moment: DateTime = text.trim().parse().ok()?;
        let moment = zone.to_ambiguous_timestamp(moment).compatible().ok()?;
        Some(Self::from_micros(moment.as_microsecond()))
    }

    /// The time since `earlier`; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_microsecond(self.0).expect("kept within what can be written");
        write!(f, "{moment:.6}")
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let moment: jiff::Timestamp = text.trim().parse().map_err(|_| InvalidTimestamp { text: text.to_owned() })?;
        Ok(Self::from_micros(moment.as_microsecond()))
    }
}

impl From<Timestamp> for String {
    fn from(moment: Timestamp) -> Self {
        moment.to_string()
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InvalidTimestamp;

    fn try_from(text: String) -> Result<Self, InvalidTimestamp> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_written_in_utc_and_read_back_unchanged() {
        let moment = Timestamp::from_micros(1_785_240_000_000_001);
        assert_eq!(moment.to_string(), "2026-07-28T12:00:00.000001Z");
        assert_eq!("2026-07-28T14:00:00.000001+02:00".parse::<Timestamp>().unwrap(), moment);
    }

    #[test]
    fn a_moment_is_written_and_read_in_a_time_zone() {
        let moment = Timestamp::from_micros(1_785_240_000_000_001);
        let zone = || TimeZone::posix("IST-5:30").unwrap();
        assert_eq!(moment.in_zone("%Y-%m-%d %H:%M:%S %:z", zone()), "2026-07-28 17:30:00 +05:30");
        let noon: Timestamp = "2026-07-28T12:00:00Z".parse().unwrap();
        for text in ["2026-07-28T17:30", "2026-07-28T17:30:00"] {
            assert_eq!(Timestamp::from_zone(text, &zone()), Some(noon), "{text}");
        }
        assert_eq!(Timestamp::from_zone("", &zone()), None);
    }

    #[test]
    fn the_ends_of_time_can_be_written() {
        for micros in [i64::MIN, EARLIEST, LATEST, i64::MAX] {
            let moment = Timestamp::from_micros(micros);
            assert_eq!(moment.to_string().parse::<Timestamp>().unwrap(), moment);
        }
    }

    #[test]
    fn what_is_no_time_is_refused_by_name() {
        let error = "yesterday".parse::<Timestamp>().unwrap_err();
        assert!(error.to_string().contains("`yesterday`"), "{error}");
    }
}
