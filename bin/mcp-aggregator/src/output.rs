//! Data goes to stdout, messages to stderr.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::escape;
use serde_json::Value;

use crate::colour::{self, Colour, with_coloured_beginnings};
use crate::failure::Failure;
use crate::{command_hint, progress};

/// Whether anything was written to stdout.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Writes `data` to stdout. A reader that closed the pipe (`| head`) is not a failure.
pub(crate) fn print(data: &[u8]) -> Result<(), Failure> {
    HAS_PRINTED.store(true, Ordering::Relaxed);
    let mut stdout = io::stdout().lock();
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("could not write to stdout: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes `data` to stdout as [`print`] does. Returns whether the reader is still there.
pub(crate) fn print_while_read(data: &[u8]) -> Result<bool, Failure> {
    HAS_PRINTED.store(true, Ordering::Relaxed);
    let mut stdout = io::stdout().lock();
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("could not write to stdout: {error}"))),
    }
}

/// Whether anything was written to stdout.
pub(crate) fn has_printed() -> bool {
    HAS_PRINTED.load(Ordering::Relaxed)
}

/// Writes a message to stderr, with complete commands in it.
pub(crate) fn print_message(words: impl Display) {
    // Stderr is not buffered: one write, so that other lines cannot come in between. If it fails, nobody can read the
    // message.
    let words = command_hint::completed(&escape::multi_line(&words.to_string()));
    let words = with_coloured_beginnings(&words, Colour::paint_words);
    io::stderr().write_all(format!("{}{words}\n", progress::clear_line()).as_bytes()).ok();
}

/// Writes a value to stdout as indented JSON. Control characters are written as escapes.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(escape::json(&format!("{value:#}\n")).as_bytes())
}

/// Writes lines to stdout with control characters escaped, except our own colours.
pub(crate) fn print_lines(lines: &[String]) -> Result<(), Failure> {
    let line = |line: &String| format!("{}\n", colour::between(line, |text| escape::multi_line(text).into_owned()));
    print(lines.iter().map(line).collect::<String>().as_bytes())
}
