//! Opens the browser of the user.

use std::env;
use std::process::{Command, Stdio};

/// Programs that open an address in the browser of the user, where `BROWSER` names none.
const OPENERS: [&str; 3] = ["xdg-open", "open", "wslview"];

/// Opens an address in the browser. Returns whether a program was started for it; it may still fail.
pub(crate) fn open(address: &str) -> bool {
    // As the usual openers read it: alternatives, separated by colons.
    let configured = env::var("BROWSER").unwrap_or_default();
    let configured: Vec<&str> = configured.split(':').filter(|program| !program.is_empty()).collect();
    // Over SSH, a program that the user names may reach the browser in front of the person; the openers do not.
    let programs =
        if configured.is_empty() && has_display() && !is_over_ssh() { &OPENERS[..] } else { &configured[..] };
    programs.iter().any(|program| start(program, address))
}

/// Whether this is a session on another machine: its browser is not the one of the person.
pub(crate) fn is_over_ssh() -> bool {
    env::var_os("SSH_CONNECTION").is_some() || env::var_os("SSH_TTY").is_some()
}

/// Without one, the openers start a browser in the terminal.
fn has_display() -> bool {
    cfg!(target_os = "macos") || env::var_os("DISPLAY").is_some() || env::var_os("WAYLAND_DISPLAY").is_some()
}

/// Starts a program with the address as its last argument, or in the place of `%s`.
fn start(program: &str, address: &str) -> bool {
    let mut words = program.split_whitespace();
    let Some(name) = words.next() else { return false };
    let mut arguments: Vec<&str> = words.map(|word| if word == "%s" { address } else { word }).collect();
    if !arguments.contains(&address) {
        arguments.push(address);
    }
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            // It ends when it has told the browser, or when the browser is closed.
            std::thread::spawn(move || child.wait().ok());
            true
        }
        Err(error) => {
            tracing::debug!(program = name, %error, "failed to open the browser");
            false
        }
    }
}
