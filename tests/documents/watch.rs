//! Runs a document again whenever it is saved.

use rustix::process::{Pid, Signal, kill_process};
use testkit::wait_until;

use super::{begin, block, read};
use crate::service_cli::Home;

#[test]
fn only_changed_blocks_run_again_and_our_own_write_is_no_change() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    let text = |second: &str| {
        [block("one", "echo", "text: first\n"), block("one", "echo", &format!("text: {second}\n"))].join("\n")
    };
    let notes = home.write("project/notes.md", &text("second"));
    let mut child = begin(&home, &["run", &notes, "--watch"], "watching ");
    let count = || super::run::executions(&serve, "?source=user-codeblock").len();
    wait_until("both blocks were run", || (count() == 2).then_some(()));
    let results = |text: &str| text.matches("<!-- mcp-result ").count();
    assert_eq!(results(&read(&notes)), 2);

    let saved = read(&notes).replacen("text: second", "text: changed", 1);
    home.write("project/notes.md", &saved);
    wait_until("the changed block was run", || {
        let now = read(&notes);
        (now.matches("changed").count() > 1 && results(&now) == 2).then_some(())
    });
    wait_until("it is in the account", || (count() == 3).then_some(()));
    let another = format!("{}\n{}", read(&notes), block("one", "size", ""));
    home.write("project/notes.md", &another);
    wait_until("the new block was run", || (results(&read(&notes)) == 3).then_some(()));
    wait_until("nothing else was", || (count() == 4).then_some(()));

    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "Ctrl-C is the way to end it");
    assert_eq!(count(), 4);
}
