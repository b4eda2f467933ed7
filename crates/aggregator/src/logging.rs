//! Log output: to stderr or a file, never to stdout.
//!
//! Our own subscriber instead of `tracing-subscriber`'s: that keeps a registry of spans, which we do not use, and it
//! would add a hundredth to the memory of the tools-only program, which promises to use little.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::escape;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};

/// Errors and warnings only, or everything; to stderr, or appended to a file.
pub fn init(debug: bool, file: Option<&Path>) -> io::Result<()> {
    let level = if debug { Level::DEBUG } else { Level::WARN };
    let target = match file {
        Some(path) => Target::File(File::options().create(true).append(true).open(path)?),
        None => Target::Stderr,
    };
    set_global_default(Log { level, target }).map_err(io::Error::other)
}

/// One line for each event.
struct Log {
    level: Level,
    target: Target,
}

enum Target {
    File(File),
    Stderr,
}

impl Subscriber for Log {
    fn enabled(&self, what: &Metadata<'_>) -> bool {
        what.is_event() && *what.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = format!("{} {:>5}", Moment(SystemTime::now()), event.metadata().level());
        event.record(&mut EventText(&mut line));
        let mut line = contained(&line);
        line.push('\n');
        // If the log cannot be written, an error about that cannot be logged either.
        match &self.target {
            Target::File(file) => (&*file).write_all(line.as_bytes()).ok(),
            Target::Stderr => NonBlocking(io::stderr()).write_all(line.as_bytes()).ok(),
        };
    }

    // Spans are never enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Escapes a record for the log: it contains text of servers, which must neither control a terminal nor look like
/// another record. So all its lines but the first begin with a space.
pub fn contained(record: &str) -> String {
    let record = escape::multi_line(record);
    let mut lines = record.split('\n');
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |record, line| {
        let indent = if line.starts_with("  ") || line.is_empty() { "" } else { "  | " };
        record + "\n" + indent + line
    })
}

/// The message of an event, and its fields by name.
struct EventText<'l>(&'l mut String);

impl Visit for EventText<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("a string takes everything");
    }
}

/// A timestamp such as `2026-07-28T09:30:00.000001Z`.
struct Moment(SystemTime);

impl fmt::Display for Moment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A clock before 1970 is wrong anyway.
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let micros = since.subsec_micros();
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// The date so many days after 1970-01-01: years that begin in March have their leap day at the end, so that months and
/// years are counted by division.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // From 0000-03-01.
    let days = days + 719_468;
    let (lifecycle, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (lifecycle * 400 + year + u64::from(month <= 2), month, day - (153 * march_month + 2) / 5 + 1)
}

/// Writes only while the pipe accepts it. Some clients open our stderr and never read it; when that pipe is full, log
/// records are dropped rather than calls delayed.
struct NonBlocking<S>(S);

/// A pipe that is ready takes at least this much at once.
const PIPE_WRITE_BYTES: usize = 4096;

impl<S: Write + AsFd> Write for NonBlocking<S> {
    fn write(&mut self, words: &[u8]) -> io::Result<usize> {
        let mut ready = [PollFd::new(&self.0, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let takes_some = poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0);
        if !takes_some {
            return Ok(words.len());
        }
        self.0.write(&words[..words.len().min(PIPE_WRITE_BYTES)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_log_line_has_time_level_message_and_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log { level: Level::WARN, target: Target::File(File::create(&path).unwrap()) };
        tracing::subscriber::with_default(log, || {
            tracing::warn!(server = %"git", lines = 3, path = "a b", "could not {}", "listen");
            tracing::debug!("nobody asked");
        });
        let written = std::fs::read_to_string(&path).unwrap();
        let (moment, words) = written.split_once(' ').unwrap();
        assert_eq!(moment.len(), "2026-07-28T09:30:00.000001Z".len());
        assert_eq!(words, " WARN could not listen server=git lines=3 path=\"a b\"\n");
    }

    #[test]
    fn server_output_is_escaped_and_forges_no_log_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log { level: Level::WARN, target: Target::File(File::create(&path).unwrap()) };
        let said = "\u{1b}[2J\u{9b}1m\u{202e}x\r\n2026-07-28T09:30:00.000001Z ERROR all is lost\n  | ours";
        tracing::subscriber::with_default(log, || tracing::warn!(server = %said, "it says: {said}"));
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(!written.chars().any(|letter| escape::is_unseen(letter) && letter != '\n'), "{written:?}");
        let is_record = |line: &&str| line.starts_with("20");
        assert_eq!(written.lines().filter(is_record).count(), 1, "{written}");
        assert!(written.contains("\n  | 2026-07-28T09:30:00.000001Z ERROR"), "{written}");
        assert!(written.contains("\n  | ours"), "{written}");
    }

    #[test]
    fn times_are_written_as_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000001Z"),
            (951_782_400, "2000-02-29T00:00:00.000001Z"),
            (1_700_000_000, "2023-11-14T22:13:20.000001Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000001Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000001Z"),
        ] {
            let moment = UNIX_EPOCH + Duration::new(seconds, 1_000);
            assert_eq!(Moment(moment).to_string(), expected);
        }
    }

    #[test]
    fn unread_log_lines_are_dropped_and_block_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = NonBlocking(writer);
        log.write_all(b"first\n").unwrap();
        log.write_all(&vec![b'x'; 1 << 20]).unwrap();
        drop(log);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read.starts_with(b"first\nxxx"));
        assert!(read.len() < 1 << 20);
    }
}
