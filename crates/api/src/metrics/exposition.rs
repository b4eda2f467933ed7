//! The text format of Prometheus: metric families with help, type and labels.

use std::fmt::Write;

use executions::metrics::{BOUNDS, HistogramReading};

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
    /// The current metric family.
    family: &'static str,
}

impl Exposition {
    /// Starts a gauge.
    pub(super) fn gauge(&mut self, family: &'static str, help: &str) {
        self.begin(family, help, "gauge");
    }

    /// Starts a counter.
    pub(super) fn counter(&mut self, family: &'static str, help: &str) {
        self.begin(family, help, "counter");
    }

    /// Starts a histogram.
    pub(super) fn histogram(&mut self, family: &'static str, help: &str) {
        self.begin(family, help, "histogram");
    }

    fn begin(&mut self, family: &'static str, help: &str, kind: &str) {
        self.family = family;
        self.line(format_args!("# HELP {family} {help}"));
        self.line(format_args!("# TYPE {family} {kind}"));
    }

    /// Adds one sample to the family.
    pub(super) fn number(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let family = self.family;
        self.line(format_args!("{family}{suffix}{labels} {value}"));
    }

    /// Adds the buckets of one server, in seconds.
    pub(super) fn distribution(&mut self, server: &str, reading: &HistogramReading) {
        let mut so_far = 0;
        for (bound, count) in BOUNDS.iter().zip(reading.buckets) {
            so_far += count;
            let bound = (*bound as f64 / 1e6).to_string();
            self.number("_bucket", &[("server", server), ("le", &bound)], so_far as f64);
        }
        let count = reading.count() as f64;
        self.number("_bucket", &[("server", server), ("le", "+Inf")], count);
        self.number("_sum", &[("server", server)], reading.sum.as_secs_f64());
        self.number("_count", &[("server", server)], count);
    }

    /// Returns the text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes everything");
    }
}

/// A label value, escaped for quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_written_as_prometheus_reads_them() {
        let mut out = Exposition::default();
        out.counter("calls_total", "Calls.");
        out.number("", &[("server", "a\"b\\c\nd"), ("outcome", "error")], 3.0);
        out.gauge("up", "Up.");
        out.number("", &[], 1.5);
        let expected = "# HELP calls_total Calls.\n# TYPE calls_total counter\n\
            calls_total{server=\"a\\\"b\\\\c\\nd\",outcome=\"error\"} 3\n# HELP up Up.\n# TYPE up gauge\nup 1.5\n";
        assert_eq!(out.finish(), expected);
    }

    #[test]
    fn buckets_add_up() {
        let mut buckets = [0; BOUNDS.len() + 1];
        (buckets[0], buckets[2], buckets[BOUNDS.len()]) = (2, 1, 4);
        let mut out = Exposition::default();
        out.histogram("took_seconds", "Took.");
        out.distribution("a", &HistogramReading { buckets, sum: Duration::from_millis(1500) });
        let text = out.finish();
        for line in [
            "took_seconds_bucket{server=\"a\",le=\"0.00001\"} 2",
            "took_seconds_bucket{server=\"a\",le=\"0.000025\"} 2",
            "took_seconds_bucket{server=\"a\",le=\"0.00005\"} 3",
            "took_seconds_bucket{server=\"a\",le=\"60\"} 3",
            "took_seconds_bucket{server=\"a\",le=\"+Inf\"} 7",
            "took_seconds_sum{server=\"a\"} 1.5",
            "took_seconds_count{server=\"a\"} 7",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
        }
    }
}
