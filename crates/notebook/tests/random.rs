//! Random documents: whatever they contain, a run changes nothing but results.

use notebook::{Document, PlacementOutcome};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::fixture::run_text;

/// Lines of random documents. Containers and line endings are added.
const LINES: &[&str] = &[
    "",
    "",
    "",
    "words",
    "  words",
    "    indented",
    "\twords",
    "# One",
    "## Two ^id",
    "###### Six",
    "#nothing",
    "===",
    "---",
    "***",
    "> quote",
    ">",
    "- item",
    "* item",
    "12) item",
    "- ",
    "-",
    "+\titem",
    "    - deep",
    "```",
    "````",
    "~~~",
    "~~~~~",
    "```text",
    "   ```",
    "  ~~~",
    "    ```",
    "\t```",
    "```echo",
    "```mcp",
    "~~~echo",
    "```echo display=collapsed",
    "tool: say",
    "words: hello",
    "tool: hostile",
    "tool: lines",
    "count: 3",
    "tool: markdown",
    "tool: image",
    "format: markdown",
    "tool: fail",
    "<!-- mcp: echo -->",
    "<!-- mcp: other no-inherit -->",
    "<!--",
    "-->",
    "<div>",
    "</div>",
    "<details>",
    "<?php",
    "?>",
    "<![CDATA[",
    "]]>",
    "<script>",
    "</script>",
    "^one",
    "words ^two",
    "[a]: https://example.com",
    "| a | b |",
    "|---|---|",
    "`` ` ``",
    "\\",
    "&amp;",
    "🦀 ünï",
    "<!-- mcp-result id=fedcba9876543210 status=ok at=x ms=1 -->",
    "<!-- /mcp-result id=fedcba9876543210 -->",
    "\u{feff}",
    "\u{a0}",
    "a\rb",
    "...",
    "mcp: echo",
];

/// Whole blocks, so that many documents have something to run.
const BLOCKS: &[&str] = &[
    "```echo\ntool: say\nwords: hello\n```",
    "~~~~mcp\ntool: hostile\n~~~~",
    "  ```echo\n  tool: markdown\n  format: markdown\n  ```",
    "```echo\ntool: lines\ncount: 50\n```",
    "````echo\ntool: fail\n````",
    "```echo\ntool: image\ndisplay: collapsed\n```",
    "```assistant\nwhy?\n```",
    "```echo\ntool: nonsense: [\n```",
];

const PREFIXES: &[&str] =
    &["", "", "", "", "> ", ">", "- ", "  ", "   ", "1. ", "> > ", "- > ", "> - ", "\t", " ", "-\t", ">\t"];

fn part() -> impl Strategy<Value = String> {
    let line = prop::sample::select(LINES).prop_map(str::to_owned);
    let block = (prop::sample::select(PREFIXES), prop::sample::select(BLOCKS)).prop_map(|(prefix, block)| {
        let under: String = prefix.chars().map(|it| if matches!(it, '>' | '\t') { it } else { ' ' }).collect();
        let lines = block.lines().enumerate();
        lines
            .map(|(place, line)| format!("{}{line}", if place == 0 { prefix } else { &under }))
            .collect::<Vec<_>>()
            .join("\n")
    });
    let prefixed = (prop::sample::select(PREFIXES), prop::sample::select(LINES))
        .prop_map(|(prefix, line)| format!("{prefix}{line}"));
    prop_oneof![3 => line, 2 => block, 2 => prefixed]
}

fn document() -> impl Strategy<Value = String> {
    let newline = prop_oneof![8 => Just("\n"), 1 => Just("\r\n")];
    (
        vec((part(), newline), 0..25),
        any::<bool>(),
        prop_oneof![6 => Just(""), 1 => Just("---\nmcp: echo\n---\n"), 1 => Just("\u{feff}")],
    )
        .prop_map(|(parts, ends, start)| {
            let mut text = start.to_owned();
            for (part, newline) in parts {
                text.push_str(&part.replace('\n', newline));
                text.push_str(newline);
            }
            if !ends {
                text.truncate(text.trim_end_matches(['\r', '\n']).len());
            }
            text
        })
}

/// Found by `a_second_run_changes_nothing`: the error above a conflict named its line, which the error itself moved.
#[test]
fn an_error_about_a_binding_below_it_stays_the_same_in_a_second_run() {
    let text = "```assistant\nwhy?\n```\n# One\n<!-- mcp: other no-inherit -->\n<!-- mcp: echo -->";
    let (once, report) = run_text(text);
    assert!(once.text.contains("`# One` is already bound to `other`"), "{}", once.text);
    assert_eq!(report.remarks.iter().map(|remark| remark.line).collect::<Vec<_>>(), [6], "the line is told beside it");
    assert_eq!(run_text(&once.text).0.text, once.text);
}

proptest! {
    #![proptest_config(crate::fixture::many_cases())]

    #[test]
    fn everything_outside_of_results_stays_byte_for_byte(text in document()) {
        let before = Document::parse(text.as_str());
        let (applied, _) = run_text(&text);
        let after = Document::parse(applied.text.as_str());
        prop_assert_eq!(after.without_results(), before.without_results());
        prop_assert_eq!(after.headings().len(), before.headings().len());
        let unfit = applied.placements.iter().filter(|placement| placement.fate == PlacementOutcome::Unfit).count();
        prop_assert_eq!(unfit, 0, "{:?}", applied.placements);
    }

    #[test]
    fn a_second_run_changes_nothing(text in document()) {
        let once = run_text(&text).0.text;
        let twice = run_text(&once).0.text;
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn no_text_is_too_odd(text in "\\PC*") {
        let (applied, _) = run_text(&text);
        prop_assert_eq!(Document::parse(applied.text.as_str()).without_results(), Document::parse(text).without_results());
    }
}
