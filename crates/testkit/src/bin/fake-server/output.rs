//! Writes to the client, byte for byte.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Our stdout, unbuffered and shared by the threads that respond.
///
/// A disconnected client is not an error.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: Mutex<Option<File>>,
    junk: bool,
    result_first: bool,
}

impl Output {
    pub(crate) fn new(junk: bool, result_first: bool) -> io::Result<Self> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let output = Self { stdout: Mutex::new(Some(stdout)), junk, result_first };
        if junk {
            output.write(&[b"*** fake-server 1.0 ready ***\n"]);
        }
        Ok(output)
    }

    /// Writes the chunks one by one, without output of other threads in between.
    pub(crate) fn write(&self, chunks: &[&[u8]]) {
        let mut stdout = self.lock();
        let Some(file) = stdout.as_mut() else { return };
        for chunk in chunks {
            if file.write_all(chunk).is_err() {
                return;
            }
        }
    }

    pub(crate) fn line(&self, line: &[u8]) {
        self.write(&[&[line, b"\n"].concat()]);
    }

    pub(crate) fn result(&self, id: &str, result: &str) {
        self.answer(&self.response(id, "result", result));
    }

    pub(crate) fn error(&self, id: &str, error: &str) {
        self.answer(&self.response(id, "error", error));
    }

    /// Writes a whole response, which ends with its newline.
    fn answer(&self, response: &str) {
        if self.junk {
            self.write(&[b"[info] about to answer\n", response.as_bytes()]);
        } else {
            self.write(&[response.as_bytes()]);
        }
    }

    /// A response line with its newline, built in one allocation because it may be 50 MB long.
    pub(crate) fn response(&self, id: &str, key: &str, value: &str) -> String {
        if self.result_first {
            ["{\"", key, "\":", value, ",\"jsonrpc\":\"2.0\",\"id\":", id, "}\n"].concat()
        } else {
            ["{\"jsonrpc\":\"2.0\",\"id\":", id, ",\"", key, "\":", value, "}\n"].concat()
        }
    }

    pub(crate) fn notification(&self, method: &str, params: &str) {
        self.line(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#).as_bytes());
    }

    pub(crate) fn request(&self, id: &str, method: &str, params: &str) {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.line(line.as_bytes());
    }

    /// Closes stdout permanently while the process continues.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.lock().take();
        rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.stdout.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
