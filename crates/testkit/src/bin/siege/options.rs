//! What the command line asks for.

use std::time::Duration;

use anyhow::{Context, bail};

/// How long the siege lasts, what takes part, and what may not be exceeded.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) duration: Duration,
    /// Only these servers and attacks; all of them if empty.
    pub(crate) only: Vec<String>,
    /// The most memory that the service may ever occupy, in MB.
    pub(crate) most_memory_mb: u64,
    /// How much slower the neighbour's slowest calls may be than the same calls without the service.
    pub(crate) most_delay: Duration,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            duration: Duration::from_secs(600),
            only: Vec::new(),
            most_memory_mb: 1536,
            most_delay: Duration::from_millis(500),
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("`{flag}` needs a value"));
            match flag.as_str() {
                "--seconds" => options.duration = Duration::from_secs(value()?.parse()?),
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--most-memory-mb" => options.most_memory_mb = value()?.parse()?,
                "--most-delay-ms" => options.most_delay = Duration::from_millis(value()?.parse()?),
                _ => bail!("unknown option `{flag}`"),
            }
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// How long the neighbour is measured before the attacks begin.
    pub(crate) fn quiet_time(&self) -> Duration {
        (self.duration / 10).min(Duration::from_secs(20))
    }
}
