//! Results among the text of users: replaced if they are ours, kept if edited, written to the right place.

use notebook::{ApplyOptions, Document, PlacementOutcome, ProblemKind, Selection, Status, apply};

use crate::fixture::{FakeToolbox, run_text, run_with};

const BLOCK: &str = "```echo\ntool: say\nwords: hello\n```";

fn fates(text: &str, force: bool) -> (String, Vec<PlacementOutcome>, usize) {
    let world = FakeToolbox::default();
    let (applied, _) = run_with(text, &world, &[], &Selection::default(), force);
    let calls = world.calls.lock().unwrap().len();
    (applied.text, applied.placements.iter().map(|placement| placement.fate).collect(), calls)
}

#[test]
fn another_result_takes_the_place_of_the_old_one() {
    let ran = run_text(&format!("a\n\n{BLOCK}\n\nb\n")).0.text;
    let changed = ran.replace("words: hello", "words: |\n  two\n  lines");
    let again = run_text(&changed).0.text;
    assert_eq!(again.matches("<!-- mcp-result").count(), 1);
    assert!(again.contains("```text\ntwo\nlines\n```\n") && !again.contains("`hello`"), "{again}");
    assert!(again.starts_with("a\n\n") && again.ends_with(" -->\n\nb\n"), "{again}");
}

#[test]
fn a_result_below_empty_lines_is_still_the_result() {
    let ran = run_text(&format!("{BLOCK}\n")).0.text;
    let spaced = ran.replace("```\n<!--", "```\n\n\n<!--").replace("words: hello", "words: other");
    let again = run_text(&spaced).0.text;
    assert_eq!(again.matches("<!-- mcp-result").count(), 1);
    assert!(again.contains("```\n\n\n<!-- mcp-result") && again.contains("`other`"), "{again}");
}

#[test]
fn an_edited_result_is_kept_and_its_block_not_called() {
    let ran = run_text(&format!("{BLOCK}\n")).0.text;
    let edited = ran.replace("`hello`", "`hello`, and I like it");
    let (text, fates_kept, calls) = fates(&edited, false);
    assert_eq!((text.as_str(), fates_kept, calls), (edited.as_str(), vec![PlacementOutcome::Nothing], 0));
    let report = run_text(&edited).1;
    assert_eq!(report.finished[0].problem.as_ref().unwrap().kind, ProblemKind::EditedResult);
    let (text, fates_forced, calls) = fates(&edited, true);
    assert_eq!((text, fates_forced, calls), (ran, vec![PlacementOutcome::Written], 1));
}

#[test]
fn a_result_without_its_end_is_never_guessed_at() {
    let ran = run_text(&format!("{BLOCK}\n\nwords\n")).0.text;
    let torn: String = ran.lines().filter(|line| !line.starts_with("<!-- /")).map(|line| format!("{line}\n")).collect();
    for force in [false, true] {
        let (text, fates, calls) = fates(&torn, force);
        assert_eq!((text.as_str(), fates, calls), (torn.as_str(), vec![PlacementOutcome::Nothing], 0));
    }
}

#[test]
fn blocks_in_results_do_not_run_even_without_their_own_block() {
    let ran = run_text("```echo\ntool: hostile\n```\n\n```echo\ntool: markdown\nformat: markdown\n```\n").0.text;
    let orphaned = ran
        .replace("```echo\ntool: markdown\nformat: markdown\n```\n", "")
        .replace("```echo\ntool: hostile\n```\n", "");
    let (text, fates, calls) = fates(&orphaned, false);
    assert_eq!((text, fates, calls), (orphaned, vec![], 0));
}

#[test]
fn a_torn_result_cannot_be_closed_by_tool_output() {
    let mark = "<!-- mcp-result id=0123456789abcdef status=ok at=x ms=1 -->";
    let text = format!("{mark}\n\nwords\n\n```echo\ntool: hostile\n```\n");
    let (applied, report) = run_text(&text);
    assert_eq!(report.finished[0].status, Status::Done);
    assert_eq!((applied.placements[0].fate, applied.text), (PlacementOutcome::Unfit, text));
}

#[test]
fn results_find_their_blocks_in_an_edited_text() {
    let other = BLOCK.replace("hello", "other");
    let before = format!("# A\n\n{BLOCK}\n\n# B\n\n{other}\n\n{BLOCK}\n");
    let report = run_text(&before).1;
    let put = |now: &str| {
        let applied = apply(now, &report, &ApplyOptions { force: false, folder: "assets" });
        let fates: Vec<PlacementOutcome> = applied.placements.iter().map(|placement| placement.fate).collect();
        assert_eq!(Document::parse(applied.text.as_str()).without_results(), now);
        (applied.text, fates)
    };
    use PlacementOutcome::{BlockChanged, Written};
    // Text was added, and sections changed places.
    let (text, fates) = put(&format!("new\n\n# B\n\n{other}\n\n{BLOCK}\n\nwords\n\n# A\n\n{BLOCK}"));
    assert_eq!(fates, [Written; 3]);
    assert_eq!(text.matches("\n`hello` ").count(), 2);
    // A block was changed: its result belongs to nothing.
    let (text, fates) = put(&format!("{BLOCK}\n\n{}\n\n{BLOCK}\n", other.replace("other", "third")));
    assert_eq!(fates, [Written, BlockChanged, Written]);
    assert!(!text.contains("`other`"));
    // One of two equal blocks was removed, and it is unknown which.
    let (_, fates) = put(&format!("{other}\n\n{BLOCK}\n"));
    assert_eq!(fates, [BlockChanged, Written, BlockChanged]);
    assert_eq!(put("").1, [BlockChanged; 3]);
}

#[test]
fn a_result_that_was_edited_during_the_run_is_kept() {
    let ran = run_text(&format!("{BLOCK}\n")).0.text;
    let report = run_text(&ran).1;
    let edited = ran.replace("`hello`", "mine");
    let applied = apply(&edited, &report, &ApplyOptions { force: false, folder: "assets" });
    assert_eq!((applied.placements[0].fate, applied.text), (PlacementOutcome::Kept, edited));
}

#[test]
fn a_result_too_large_for_a_text_becomes_a_file() {
    let text = format!("```echo\ntool: say\nwords: \"{}\"\n```\n", "x".repeat(300 * 1024));
    let applied = run_text(&text).0;
    assert_eq!(applied.attachments[0].bytes.len(), 300 * 1024);
    assert!(applied.text.len() < text.len() + 400);
    assert!(applied.text.contains(".txt) (300 KB)"));
}

#[test]
fn images_are_files_with_links_to_them() {
    let applied = run_text("```echo\ntool: image\n```\n").0;
    assert!(applied.attachments[0].bytes.starts_with(b"\x89PNG"));
    assert!(applied.text.contains(&format!("![echo.image](my%20notes.assets/{})", applied.attachments[0].name)));
}
