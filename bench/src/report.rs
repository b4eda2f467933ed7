//! What the run prints: Markdown tables to stdout, and at the end which promises were kept.

use std::io::Write;

use anyhow::Result;

use crate::statistics::show_ratio;

/// One Markdown table.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn to_markdown(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let mut lines: Vec<String> = self.rows.iter().map(|row| format!("| {} |", row.join(" | "))).collect();
        lines.insert(1, format!("|---|{}", "---:|".repeat(columns.saturating_sub(1))));
        lines.join("\n")
    }
}

/// What a promise of the design is measured in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Measure {
    Ratio(f64),
    Megabytes(f64),
    Milliseconds(f64),
}

impl Measure {
    fn number(self) -> f64 {
        let (Self::Ratio(number) | Self::Megabytes(number) | Self::Milliseconds(number)) = self;
        number
    }

    fn show(self) -> String {
        match self {
            Self::Ratio(ratio) => show_ratio(Some(ratio)),
            Self::Megabytes(size) => format!("{size:.1} MB"),
            Self::Milliseconds(time) => format!("{time:.1} ms"),
        }
    }
}

struct Promise {
    what: String,
    limit: Measure,
    /// `None` if this machine or this run could not tell.
    measured: Option<Measure>,
}

/// Collects promises while the sections print themselves.
#[derive(Default)]
pub(crate) struct Report {
    promises: Vec<Promise>,
}

impl Report {
    pub(crate) fn heading(&self, text: &str) -> Result<()> {
        say(&format!("\n### {text}\n"))
    }

    pub(crate) fn table(&self, table: &Table) -> Result<()> {
        say(&table.to_markdown())
    }

    /// A sentence under a table.
    pub(crate) fn note(&self, text: &str) -> Result<()> {
        say(&format!("\n{text}"))
    }

    pub(crate) fn promise(&mut self, what: impl Into<String>, limit: Measure, measured: Option<Measure>) {
        self.promises.push(Promise { what: what.into(), limit, measured });
    }

    pub(crate) fn print_promises(&self) -> Result<()> {
        if self.promises.is_empty() {
            return Ok(());
        }
        self.heading("Promises")?;
        let mut table = Table::new(["promise", "limit", "measured", ""]);
        for promise in &self.promises {
            table.row([
                promise.what.clone(),
                format!("≤ {}", promise.limit.show()),
                promise.measured.map_or_else(|| "–".to_owned(), Measure::show),
                verdict(promise).to_owned(),
            ]);
        }
        self.table(&table)
    }
}

fn verdict(promise: &Promise) -> &'static str {
    match promise.measured {
        None => "not measured",
        Some(measured) if measured.number() <= promise.limit.number() => "kept",
        Some(_) => "**missed**",
    }
}

/// Data goes to stdout at once, so that an interrupted run has shown what it had.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown_with_numbers_to_the_right() {
        let mut table = Table::new(["who", "p50", "p99"]);
        table.row(["us", "1", "2"].map(str::to_owned));
        assert_eq!(table.to_markdown(), "| who | p50 | p99 |\n|---|---:|---:|\n| us | 1 | 2 |");
    }

    #[test]
    fn a_promise_holds_up_to_its_limit() {
        let promise = |measured| Promise { what: String::new(), limit: Measure::Ratio(1.5), measured };
        assert_eq!(verdict(&promise(Some(Measure::Ratio(1.5)))), "kept");
        assert_eq!(verdict(&promise(Some(Measure::Ratio(1.51)))), "**missed**");
        assert_eq!(verdict(&promise(None)), "not measured");
    }
}
