//! The user's consent to destructive calls: on the terminal, or given in advance.

use std::io::{self, IsTerminal, Write};
use std::thread;

use assistant::Permission;
use serde_json::Value;
use tokio::sync::{Mutex, oneshot};

use super::call_line;
use crate::output::print_message;
use crate::progress;
use crate::table::{cut, printable};

/// How much of each argument is displayed.
const ARGUMENT_WIDTH: usize = 300;

/// Asks the user.
pub(crate) struct Consent {
    is_given: bool,
    /// Questions are asked one at a time, otherwise an answer could be for the wrong one.
    turn: Mutex<()>,
}

impl Consent {
    /// `is_given`: the user agreed to everything in advance.
    pub(crate) fn new(is_given: bool) -> Self {
        Self { is_given, turn: Mutex::new(()) }
    }

    pub(crate) async fn ask(&self, tool: &str, arguments: &str) -> Permission {
        if self.is_given {
            return Permission::Given;
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            print_message(format_args!("not called: {tool} may be destructive, and there is no terminal to ask on"));
            print_message("hint: --yes allows such calls");
            return Permission::Refused("not called: it may be destructive, and there is no user to confirm it".into());
        }
        let _turn = self.turn.lock().await;
        // Discards input that was typed before the question. If that fails, the terminal is unusual, and the question
        // is asked anyway.
        rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush).ok();
        // Written at once and without a line end, because the answer is typed after it. If it cannot be written, nobody
        // can answer.
        let question = format!("{} may be destructive. Call it? [y/N] ", described(tool, arguments));
        progress::pause_progress(true);
        io::stderr().write_all(question.as_bytes()).ok();
        let typed = typed_line().await;
        progress::pause_progress(false);
        if typed.is_some_and(|line| is_yes(&line)) {
            return Permission::Given;
        }
        Permission::Refused("not called: the user declined".into())
    }
}

/// A call with all its arguments, each on its own line: a long one must not hide the others.
fn described(tool: &str, arguments: &str) -> String {
    let Ok(Value::Object(members)) = serde_json::from_str(arguments) else { return call_line(tool, arguments) };
    let member = |(name, value): (&String, &Value)| {
        let whole = printable(&value.to_string());
        let shown = cut(&whole, ARGUMENT_WIDTH);
        let more = whole.chars().count().saturating_sub(ARGUMENT_WIDTH);
        let more = if more == 0 { String::new() } else { format!(" ({more} more characters)") };
        format!("  {}: {shown}{more}\n", printable(name))
    };
    let members: String = members.iter().map(member).collect();
    format!("{}\n{members}{}", printable(tool), printable(tool))
}

/// Reads a line from the user. A separate thread reads, so that Ctrl-C need not wait for it.
async fn typed_line() -> Option<String> {
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || {
        let mut line = String::new();
        if io::stdin().read_line(&mut line).is_ok() {
            // If the program is exiting, nobody receives the answer.
            sender.send(line).ok();
        }
    });
    receiver.await.ok()
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_hides_another() {
        let arguments = serde_json::json!({"content": "A".repeat(3000), "path": "/etc/\u{202e}passwd"}).to_string();
        let shown = described("fs.write", &arguments);
        assert!(shown.contains("more characters)\n  path: \"/etc/⟨U+202E⟩passwd\"\n"), "{shown}");
        assert!(shown.len() < 500 && shown.ends_with("\nfs.write"), "{shown}");
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        assert!(is_yes("y\n") && is_yes(" Yes \n"));
        assert!(!is_yes("\n") && !is_yes("n\n") && !is_yes("") && !is_yes("yes please\n"));
    }
}
