//! Whether a tool that may destroy something may be called: the user says so, now or beforehand.

use std::io::{self, IsTerminal, Write};
use std::thread;

use assistant::Permission;
use serde_json::Value;
use tokio::sync::{Mutex, oneshot};

use super::call_line;
use crate::output::print_message;
use crate::progress;
use crate::table::{cut, printable};

/// So much of each argument is shown.
const ARGUMENT_WIDTH: usize = 300;

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
            print_message(format_args!("not called: {tool} may destroy something, and there is no terminal to ask on"));
            print_message("hint: --yes allows such calls");
            return Permission::Refused(
                "not called: it may destroy something, and nobody is there to permit it".into(),
            );
        }
        let _turn = self.turn.lock().await;
        // What was typed before the question was there is no answer to it. Where it cannot be thrown away, it is the
        // terminal that is odd.
        rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush).ok();
        // In one piece, and without a line end: the answer is typed behind it. If it cannot be written, nobody answers.
        let question = format!("{} may destroy something. Call it? [y/N] ", described(tool, arguments));
        progress::hush(true);
        io::stderr().write_all(question.as_bytes()).ok();
        let typed = typed_line().await;
        progress::hush(false);
        if typed.is_some_and(|line| is_yes(&line)) {
            return Permission::Given;
        }
        Permission::Refused("not called: the user does not want that".into())
    }
}

/// A call with all its arguments, each on a line of its own: one that is long must not hide the others.
fn described(tool: &str, arguments: &str) -> String {
    let Ok(Value::Object(members)) = serde_json::from_str(arguments) else { return call_line(tool, arguments) };
    let member = |(name, value): (&String, &Value)| {
        let whole = printable(&value.to_string());
        let shown = cut(&whole, ARGUMENT_WIDTH);
        let more = whole.chars().count().saturating_sub(ARGUMENT_WIDTH);
        let more = if more == 0 { String::new() } else { format!(" ({more} characters more)") };
        format!("  {}: {shown}{more}\n", printable(name))
    };
    let members: String = members.iter().map(member).collect();
    format!("{}\n{members}{}", printable(tool), printable(tool))
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
    fn no_argument_hides_another() {
        let arguments = serde_json::json!({"content": "A".repeat(3000), "path": "/etc/\u{202e}passwd"}).to_string();
        let shown = described("fs.write", &arguments);
        assert!(shown.contains("characters more)\n  path: \"/etc/⟨U+202E⟩passwd\"\n"), "{shown}");
        assert!(shown.len() < 500 && shown.ends_with("\nfs.write"), "{shown}");
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        assert!(is_yes("y\n") && is_yes(" Yes \n"));
        assert!(!is_yes("\n") && !is_yes("n\n") && !is_yes("") && !is_yes("yes please\n"));
    }
}
