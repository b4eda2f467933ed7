//! Percentiles, and how numbers are written in the tables.

use std::time::Duration;

/// Measured times of one kind.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        Some(Summary {
            count: sorted.len(),
            p50: nearest_rank(&sorted, 50)?,
            p99: nearest_rank(&sorted, 99)?,
            max: *sorted.last()?,
        })
    }
}

/// What the tables show of a set of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

/// The smallest sample that at least `percent` of all samples do not exceed.
fn nearest_rank(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// How much more than `base`, in microseconds; negative when noise was larger than the difference.
pub(crate) fn added_micros(with: Duration, base: Duration) -> f64 {
    micros(with) - micros(base)
}

/// The time as a number of microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// `over / under`, unless that would say nothing.
pub(crate) fn ratio(over: f64, under: f64) -> Option<f64> {
    (under > 0.0).then(|| over / under)
}

/// Three telling digits and a fitting unit: `6.7 µs`, `1.25 ms`.
pub(crate) fn show_micros(micros: f64) -> String {
    if micros.abs() >= 1e6 {
        format!("{:.2} s", micros / 1e6)
    } else if micros.abs() >= 1e5 {
        format!("{:.0} ms", micros / 1e3)
    } else if micros.abs() >= 1e3 {
        format!("{:.2} ms", micros / 1e3)
    } else if micros.abs() >= 100.0 {
        format!("{micros:.0} µs")
    } else {
        format!("{micros:.1} µs")
    }
}

pub(crate) fn show_time(time: Duration) -> String {
    show_micros(micros(time))
}

pub(crate) fn show_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}×"))
}

pub(crate) fn show_bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(micros: impl IntoIterator<Item = u64>) -> Samples {
        Samples(micros.into_iter().map(Duration::from_micros).collect())
    }

    #[test]
    fn percentiles_are_samples_that_were_really_measured() {
        let summary = samples((1..=200).rev()).summary().unwrap();
        assert_eq!(summary.count, 200);
        assert_eq!(summary.p50, Duration::from_micros(100));
        assert_eq!(summary.p99, Duration::from_micros(198));
        assert_eq!(summary.max, Duration::from_micros(200));
    }

    #[test]
    fn few_samples_have_percentiles_too_and_none_have_not() {
        let one = samples([7]).summary().unwrap();
        assert_eq!((one.p50, one.p99), (one.max, one.max));
        assert_eq!(samples([3, 1]).summary().unwrap().p50, Duration::from_micros(1));
        assert_eq!(samples([]).summary(), None);
    }

    #[test]
    fn a_ratio_against_nothing_is_no_ratio() {
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
        assert_eq!(ratio(3.0, 0.0), None);
        assert_eq!(ratio(3.0, -1.0), None);
    }

    #[test]
    fn times_and_sizes_have_fitting_units() {
        assert_eq!(show_micros(6.74), "6.7 µs");
        assert_eq!(show_micros(1250.0), "1.25 ms");
        assert_eq!(show_micros(-3.0), "-3.0 µs");
        assert_eq!(show_bytes(713), "713 B");
        assert_eq!(show_bytes(50_000_000), "50.0 MB");
        assert_eq!(show_ratio(None), "–");
    }
}
