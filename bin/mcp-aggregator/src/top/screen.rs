//! The terminal: uses the alternate screen, and restores everything in every case.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::net::unix::pipe::Receiver;

use super::view::Size;
use crate::colour::{self, Colour};

/// Switches to the alternate screen without a cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// The terminal in raw mode.
pub(crate) struct Screen {
    /// Our own file description, because non-blocking mode must not affect the shell. To the runtime it looks like a
    /// pipe: it only waits until the terminal is readable.
    terminal: Receiver,
    before: Termios,
    has_colours: bool,
}

impl Screen {
    /// Takes over the terminal.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        let terminal = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty")?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        let terminal = Receiver::from_owned_fd_unchecked(terminal.into())?;
        let has_colours = colour::is_wanted(io::stdout().is_terminal());
        // From here on, dropping this restores the terminal.
        let screen = Self { terminal, before, has_colours };
        screen.write(ENTER)?;
        Ok(screen)
    }

    pub(crate) fn size(&self) -> Size {
        let size = tcgetwinsize(&self.terminal).ok();
        let or = |number: Option<u16>, usual: usize| number.map(usize::from).filter(|&n| n > 0).unwrap_or(usual);
        Size { width: or(size.map(|size| size.ws_col), 80), height: or(size.map(|size| size.ws_row), 24) }
    }

    /// Draws over the old content, which avoids flicker.
    pub(crate) fn draw(&self, lines: &[(String, Option<Colour>)]) -> io::Result<()> {
        let line = |(text, colour): &(String, Option<Colour>)| match colour {
            Some(colour) if self.has_colours => colour.always(text),
            _ => text.clone(),
        };
        let lines: Vec<String> = lines.iter().map(|one| format!("{}\u{1b}[K", line(one))).collect();
        self.write(&format!("\u{1b}[H{}\u{1b}[J", lines.join("\r\n")))
    }

    /// The input, as soon as there is some.
    pub(crate) async fn typed(&self) -> io::Result<Vec<u8>> {
        loop {
            self.terminal.readable().await?;
            let mut bytes = [0; 64];
            match self.terminal.try_read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => return Ok(bytes[..length].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Written to stdout, which blocks: a slow terminal is waited for.
    fn write(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        self.write(LEAVE).ok();
        tcsetattr(&self.terminal, OptionalActions::Now, &self.before).ok();
    }
}
