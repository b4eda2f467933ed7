//! Limits of calls, and how many calls of the day count against them. Their meaning is defined by their users.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::database::{Mismatch, Row, Session, values};
use crate::error::Error;
use crate::{LimitKind, Store, Timestamp, Transaction};

/// How many limits there may be: all are held in memory.
const MAX_LIMITS: u64 = 1_000;

/// A number of calls per second, exact to a thousandth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallRate {
    thousandths: u64,
}

impl CallRate {
    /// The lowest and the highest rate.
    pub const RANGE: (f64, f64) = (0.001, 100_000.0);

    /// So many calls per second. None outside of the range, or if it has more than three decimals.
    pub fn per_second(calls: f64) -> Option<Self> {
        let (least, most) = Self::RANGE;
        let thousandths = (calls * 1000.0).round();
        let is_exact = (thousandths / 1000.0 - calls).abs() < 1e-9;
        // Within the range, every number of thousandths is represented exactly.
        ((least..=most).contains(&calls) && is_exact).then_some(Self { thousandths: thousandths as u64 })
    }

    /// The time between two calls. Rounded up, so that the rate is never exceeded.
    pub fn interval(self) -> Duration {
        Duration::from_nanos(1_000_000_000_000_u64.div_ceil(self.thousandths))
    }

    /// The number of calls in a second, rounded up.
    pub fn whole_calls(self) -> u32 {
        u32::try_from(self.thousandths.div_ceil(1000)).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for CallRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.thousandths % 1000 {
            0 => write!(f, "{}", self.thousandths / 1000),
            _ => write!(f, "{}", self.thousandths as f64 / 1000.0),
        }
    }
}

impl Serialize for CallRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.thousandths % 1000 {
            0 => serializer.serialize_u64(self.thousandths / 1000),
            _ => serializer.serialize_f64(self.thousandths as f64 / 1000.0),
        }
    }
}

impl<'de> Deserialize<'de> for CallRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let calls = f64::deserialize(deserializer)?;
        Self::per_second(calls).ok_or_else(|| serde::de::Error::custom(format!("{calls} is not a possible rate")))
    }
}

/// How many calls may be made. What is None is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallLimit {
    /// How many calls may begin per second.
    pub per_second: Option<CallRate>,
    /// How many of them may begin at once after a pause. Without it, as many as may begin in a second.
    pub burst: Option<u32>,
    /// How many calls may be in progress.
    pub concurrent: Option<u32>,
    /// How many calls may begin in a day, in UTC.
    pub per_day: Option<u64>,
}

impl fmt::Display for CallLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let burst = self.burst.map(|burst| format!(" (bursts of {burst})")).unwrap_or_default();
        let bounds = [
            self.per_second.map(|rate| format!("{} per second{burst}", several_calls(rate))),
            self.concurrent.map(|most| format!("{} at once", several_calls(most))),
            self.per_day.map(|most| format!("{} per day", several_calls(most))),
        ];
        f.write_str(&bounds.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// A number of calls for people.
pub fn several_calls(number: impl fmt::Display) -> String {
    let number = number.to_string();
    let word = if number == "1" { "call" } else { "calls" };
    format!("{number} {word}")
}

/// A stored limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRecord {
    /// What it limits.
    pub kind: LimitKind,
    /// The name of that, or `*` for each that has no limit of its own.
    pub name: String,
    /// The limit.
    #[serde(flatten)]
    pub limit: CallLimit,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// How many calls of a day count against the limit of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitCount {
    /// What it is.
    pub kind: LimitKind,
    /// Its name, never `*`.
    pub name: String,
    /// The day, as a number of days since 1970-01-01 in UTC.
    pub day: u64,
    /// How many calls.
    pub calls: u64,
}

impl Store {
    /// All limits, by kind and name.
    pub async fn limits(&self) -> Result<Vec<LimitRecord>, Error> {
        all(&mut self.read("read limits").await?).await
    }

    /// The counts of a day.
    pub async fn limit_counts(&self, day: u64) -> Result<Vec<LimitCount>, Error> {
        let mut session = self.read("read the calls of the day").await?;
        let sql = "SELECT kind, name, day, calls FROM mcp.limit_counts WHERE day = $1";
        let count = |row: &mut Row| {
            let (kind, name) = (row.take("kind")?, row.take("name")?);
            Ok(LimitCount { kind, name, day: row.take("day")?, calls: row.take("calls")? })
        };
        session.all(sql, values![day], count).await
    }

    /// Stores counts in place of earlier ones, all or none.
    pub async fn put_limit_counts(&self, counts: &[LimitCount]) -> Result<(), Error> {
        let mut session = self.write_lightly("store the calls of the day").await?;
        let sql = "INSERT INTO mcp.limit_counts (kind, name, day, calls) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (kind, name) DO UPDATE SET day = excluded.day, calls = excluded.calls";
        let each = counts.iter().map(|it| values![it.kind, &it.name, it.day, it.calls]);
        session.execute_each(sql, each.collect()).await?;
        session.commit().await
    }

    /// Deletes the counts of earlier days.
    pub async fn prune_limit_counts(&self, today: u64) -> Result<(), Error> {
        let mut session = self.write_lightly("delete the calls of earlier days").await?;
        session.execute("DELETE FROM mcp.limit_counts WHERE day < $1", values![today]).await?;
        session.commit().await
    }
}

impl Transaction {
    /// Stores a limit in place of an earlier one. Calls that were counted still count.
    pub async fn put_limit(&mut self, kind: LimitKind, name: &str, limit: CallLimit) -> Result<LimitRecord, Error> {
        put(&mut self.session, kind, name, limit).await
    }

    /// Deletes a limit, and what was counted against it.
    pub async fn delete_limit(&mut self, kind: LimitKind, name: &str) -> Result<(), Error> {
        let sql = "DELETE FROM mcp.call_limits WHERE kind = $1 AND name = $2";
        if self.session.execute(sql, values![kind, name]).await? == 0 {
            return Err(Error::NotFound { what: "limit", key: format!("{kind} {name}") });
        }
        // The counts of everything that has no limit any more.
        let sql = "DELETE FROM mcp.limit_counts WHERE kind = $1 AND NOT EXISTS (SELECT 1 FROM mcp.call_limits AS l \
            WHERE l.kind = limit_counts.kind AND l.name IN (limit_counts.name, '*'))";
        self.session.execute(sql, values![kind]).await.map(drop)
    }
}

pub(crate) async fn all(session: &mut Session) -> Result<Vec<LimitRecord>, Error> {
    let sql = "SELECT kind, name, per_second, burst, concurrent, per_day, updated_at FROM mcp.call_limits \
        ORDER BY kind, name";
    session.all(sql, values![], from_row).await
}

pub(crate) async fn put(
    session: &mut Session,
    kind: LimitKind,
    name: &str,
    limit: CallLimit,
) -> Result<LimitRecord, Error> {
    let others = "SELECT count(*) AS n FROM mcp.call_limits WHERE NOT (kind = $1 AND name = $2)";
    let count: Option<u64> = session.first(others, values![kind, name], |row| row.take("n")).await?;
    if count.is_some_and(|count| count >= MAX_LIMITS) {
        let what = format!("there are {MAX_LIMITS} limits, which is the maximum; remove some first");
        return Err(Error::Invalid { what });
    }
    let now = Timestamp::now();
    let sql = "INSERT INTO mcp.call_limits (kind, name, per_second, burst, concurrent, per_day, updated_at) \
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (kind, name) DO UPDATE SET per_second = excluded.per_second, \
        burst = excluded.burst, concurrent = excluded.concurrent, per_day = excluded.per_day, \
        updated_at = excluded.updated_at";
    let CallLimit { per_second, burst, concurrent, per_day } = limit;
    let rate = per_second.map(|rate| rate.thousandths);
    session.execute(sql, values![kind, name, rate, burst, concurrent, per_day, now]).await?;
    Ok(LimitRecord { kind, name: name.to_owned(), limit, updated_at: now })
}

/// Renames the limits of a renamed server and of its tools, and what was counted against them. Those that the new name
/// had are replaced: no server had it.
pub(crate) async fn rename_server(session: &mut Session, before: &str, after: &str) -> Result<(), Error> {
    let renamed = |kind: LimitKind, name: &str| match kind {
        LimitKind::Server => (name == before).then(|| after.to_owned()),
        LimitKind::Tool => {
            let tool = name.strip_prefix(before)?.strip_prefix('.')?;
            Some(format!("{after}.{tool}"))
        }
        LimitKind::Identity | LimitKind::Profile => None,
    };
    for table in ["mcp.call_limits", "mcp.limit_counts"] {
        let sql = format!("SELECT kind, name FROM {table}");
        let row = |row: &mut Row| Ok((row.take::<LimitKind>("kind")?, row.take::<String>("name")?));
        let known = session.all(&sql, values![], row).await?;
        let changes = known.iter().filter_map(|(kind, name)| Some((*kind, name, renamed(*kind, name)?)));
        let changes: Vec<_> = changes.collect();
        let replaced = changes.iter().map(|(kind, _, new)| values![*kind, new]).collect();
        session.execute_each(&format!("DELETE FROM {table} WHERE kind = $1 AND name = $2"), replaced).await?;
        let each = changes.iter().map(|(kind, name, new)| values![*kind, *name, new]).collect();
        session.execute_each(&format!("UPDATE {table} SET name = $3 WHERE kind = $1 AND name = $2"), each).await?;
    }
    Ok(())
}

fn from_row(row: &mut Row) -> Result<LimitRecord, Mismatch> {
    let rate = row.take::<Option<u64>>("per_second")?.filter(|&thousandths| thousandths > 0);
    Ok(LimitRecord {
        kind: row.take("kind")?,
        name: row.take("name")?,
        limit: CallLimit {
            per_second: rate.map(|thousandths| CallRate { thousandths }),
            burst: row.take("burst")?,
            concurrent: row.take("concurrent")?,
            per_day: row.take("per_day")?,
        },
        updated_at: row.take("updated_at")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rate_is_exact_to_a_thousandth_and_written_as_it_was_given() {
        for (calls, nanos, written) in [
            (5.0, 200_000_000, "5"),
            (0.001, 1_000_000_000_000, "0.001"),
            (0.5, 2_000_000_000, "0.5"),
            (3.0, 333_333_334, "3"),
            (100_000.0, 10_000, "100000"),
            (2.675, 373_831_776, "2.675"),
        ] {
            let rate = CallRate::per_second(calls).unwrap();
            assert_eq!(rate.interval(), Duration::from_nanos(nanos));
            assert_eq!(rate.to_string(), written);
            assert_eq!(json!(rate).to_string(), written);
            assert_eq!(serde_json::from_value::<CallRate>(json!(rate)).unwrap(), rate);
        }
        let rate = CallRate::per_second(0.5);
        let limit = CallLimit { per_second: rate, burst: Some(3), concurrent: Some(1), per_day: Some(20) };
        assert_eq!(limit.to_string(), "0.5 calls per second (bursts of 3), 1 call at once, 20 calls per day");
        for limit in [limit, CallLimit::default()] {
            assert_eq!(serde_json::from_value::<CallLimit>(json!(limit)).unwrap(), limit);
        }
        for calls in [0.0, -1.0, 0.0005, 0.0015, 100_001.0, f64::NAN, f64::INFINITY] {
            assert_eq!(CallRate::per_second(calls), None, "{calls}");
        }
    }
}
