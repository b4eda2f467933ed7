//! Whether a tool that may destroy something may be called: the user says so, now or beforehand.

use std::io::{self, IsTerminal, Write};
use std::thread;

use assistant::Permission;
use tokio::sync::{Mutex, oneshot};

use super::call_line;
use crate::output::say;

/// Who is asked.
pub(crate) struct Consent {
    is_given: bool,
    /// Two questions at once would be answered wrongly.
    turn: Mutex<()>,
}

impl Consent {
    /// `is_given`: the user has agreed to everything beforehand.
    pub(crate) fn new(is_given: bool) -> Self {
        Self { is_given, turn: Mutex::new(()) }
    }

    pub(crate) async fn ask(&self, tool: &str, arguments: &str) -> Permission {
        if self.is_given {
            return Permission::Given;
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            say(format_args!("not called: {tool} may destroy something, and there is no terminal to ask on"));
            say("hint: --yes allows such calls");
            return Permission::Refused(
                "not called: it may destroy something, and nobody is there to permit it".into(),
            );
        }
        let _turn = self.turn.lock().await;
        // In one piece, and without a line end: the answer is typed behind it. If it cannot be written, nobody answers.
        let question = format!("{} may destroy something. Call it? [y/N] ", call_line(tool, arguments));
        io::stderr().write_all(question.as_bytes()).ok();
        if typed_line().await.is_some_and(|line| is_yes(&line)) {
            return Permission::Given;
        }
        Permission::Refused("not called: the user does not want that".into())
    }
}

/// A line that the user types. A thread of its own reads it: Ctrl-C must not wait for it.
async fn typed_line() -> Option<String> {
    let (tell, heard) = oneshot::channel();
    thread::spawn(move || {
        let mut line = String::new();
        if io::stdin().read_line(&mut line).is_ok() {
            // Nobody listens any more if the program ends.
            tell.send(line).ok();
        }
    });
    heard.await.ok()
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        assert!(is_yes("y\n") && is_yes(" Yes \n"));
        assert!(!is_yes("\n") && !is_yes("n\n") && !is_yes("") && !is_yes("yes please\n"));
    }
}
