//! Command line arguments.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::hostile_client::ATTACKS;
use crate::hostile_server::Kind;

/// The byte limits of the service in MB, which attacks can fill.
pub(crate) struct ByteBounds {
    /// `--limit received-mb`, `--limit unread-mb`.
    pub(crate) received: u64,
    pub(crate) unread: u64,
    /// The settings `all_undelivered_kb` and `all_catalogs_kb`.
    pub(crate) undelivered: u64,
    pub(crate) catalogs: u64,
}

pub(crate) const BYTE_BOUNDS: ByteBounds = ByteBounds { received: 192, unread: 192, undelivered: 192, catalogs: 128 };

/// A list is stored as its server wrote it, and serialized once for each kind of client: legacy and modern, with
/// canonical and with safe names. Names of items take memory as well.
const COPIES_OF_CATALOGS: u64 = 4;

/// The longest list that REST and the console describe, in MB, and how often it is in memory meanwhile: as it was read, as
/// it is described, and as it is sent. How many are described at once depends on the processors.
const LONGEST_LIST: u64 = 64;
const COPIES_OF_LISTS: u64 = 3;

fn lists_at_once() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors as u64 / 2).max(1)
}

/// Everything without a byte limit of its own, in MB: the program, its threads, the registry, the search index,
/// connections, and memory that the allocator keeps.
const EVERYTHING_ELSE: u64 = 448;

/// The duration of the siege, its participants, and its limits.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) duration: Duration,
    /// Only these servers and attacks; all of them if empty.
    pub(crate) only: Vec<String>,
    /// The most memory that the service may ever occupy, in MB.
    pub(crate) most_memory_mb: u64,
    /// How much slower the neighbour's slowest calls may be than the same calls directly.
    pub(crate) most_delay: Duration,
    /// Where the log of the service is written when the siege is over.
    pub(crate) log_file: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let ByteBounds { received, unread, undelivered, catalogs } = BYTE_BOUNDS;
        let mut options = Self {
            duration: Duration::from_secs(600),
            only: Vec::new(),
            most_memory_mb: received
                + unread
                + undelivered
                + COPIES_OF_CATALOGS * catalogs
                + COPIES_OF_LISTS * LONGEST_LIST * lists_at_once()
                + EVERYTHING_ELSE,
            most_delay: Duration::from_millis(500),
            log_file: None,
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("`{flag}` needs a value"));
            match flag.as_str() {
                "--seconds" => options.duration = Duration::from_secs(value()?.parse()?),
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--most-memory-mb" => options.most_memory_mb = value()?.parse()?,
                "--most-delay-ms" => options.most_delay = Duration::from_millis(value()?.parse()?),
                "--log-file" => options.log_file = Some(value()?.into()),
                _ => bail!("unknown option `{flag}`"),
            }
        }
        let names: Vec<&str> =
            Kind::ALL.iter().map(|kind| kind.name()).chain(ATTACKS.iter().map(|attack| attack.name)).collect();
        for name in &options.only {
            ensure!(names.contains(&name.as_str()), "nothing is called `{name}`; there are {}", names.join(", "));
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// How long the neighbour is measured before the attacks start.
    pub(crate) fn quiet_time(&self) -> Duration {
        (self.duration / 10).min(Duration::from_secs(20))
    }
}
