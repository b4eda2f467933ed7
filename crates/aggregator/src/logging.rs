//! Where words go: stderr or a file, never stdout.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing::Level;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Errors and warnings only, or everything; to stderr, or appended to a file.
pub fn init(debug: bool, file: Option<&Path>) -> io::Result<()> {
    let writer = match file {
        Some(path) => BoxMakeWriter::new(Arc::new(File::options().create(true).append(true).open(path)?)),
        None => BoxMakeWriter::new(io::stderr),
    };
    let level = if debug { Level::DEBUG } else { Level::WARN };
    tracing_subscriber::fmt().with_max_level(level).with_writer(writer).with_ansi(false).with_target(false).init();
    Ok(())
}
