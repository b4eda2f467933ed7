//! Another CommonMark parser finds the same fenced blocks.

use comrak::nodes::NodeValue;
use comrak::{Arena, Options, parse_document};
use notebook::Document;
use proptest::prelude::*;

const LINES: &[&str] = &[
    "",
    "",
    "words",
    "    indented",
    "# One",
    "---",
    "===",
    "> quote",
    "> ```a",
    "> x",
    "- item",
    "- ```b",
    "  ```",
    "  x",
    "```",
    "````",
    "~~~",
    "~~~~~ c d",
    "```text",
    "   ```",
    "    ```",
    "```no`info",
    "<!--",
    "-->",
    "<div>",
    "</div>",
    "1. one",
    "   ```e",
    "> - ```f",
    ">   y",
    ">   ```",
    "🦀",
    "<?php",
    "?>",
    "\\```",
    "~~~ `t`",
];

/// A fenced block: its first line, its language, its content, and whether it is closed.
type Found = (usize, String, String, bool);

fn ours(text: &str) -> Vec<Found> {
    let fence = |fence: &notebook::Fence| {
        (fence.first_line, fence.language().to_owned(), tidy(&fence.content), fence.is_closed())
    };
    Document::parse(text).fences().iter().map(fence).collect()
}

fn theirs(text: &str) -> Vec<Found> {
    let arena = Arena::new();
    let mut found = Vec::new();
    for node in parse_document(&arena, text, &Options::default()).descendants() {
        let node = node.data.borrow();
        let NodeValue::CodeBlock(code) = &node.value else { continue };
        if code.fenced {
            let language = code.info.split_whitespace().next().unwrap_or_default().to_owned();
            found.push((node.sourcepos.start.line, language, tidy(&code.literal), code.closed));
        }
    }
    found
}

fn tidy(content: &str) -> String {
    content.trim_end_matches('\n').to_owned()
}

proptest! {
    #![proptest_config(crate::fixture::many_cases())]

    #[test]
    fn what_is_a_fenced_block_is_not_a_matter_of_taste(lines in prop::collection::vec(prop::sample::select(LINES), 0..12)) {
        // A leading rule is front matter to us.
        let text = format!("words\n\n{}", lines.join("\n"));
        prop_assert_eq!(ours(&text), theirs(&text), "{}", text);
    }
}
