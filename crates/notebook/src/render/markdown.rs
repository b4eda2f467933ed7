//! Embeds untrusted text in Markdown so that it stays text.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Text with uniform newlines and without control characters.
pub(super) fn tame(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars()
        .map(|it| match it {
            '\n' | '\t' => it,
            '\u{7f}' => '\u{2421}',
            // Control characters have visible symbols.
            it if (it as u32) < 0x20 => char::from_u32(0x2400 + it as u32).unwrap_or(char::REPLACEMENT_CHARACTER),
            '\u{80}'..='\u{9f}' | '\u{feff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                char::REPLACEMENT_CHARACTER
            }
            it => it,
        })
        .collect()
}

/// A fenced block that its content cannot close.
pub(super) fn fenced(language: &str, text: &str) -> Vec<String> {
    let fence = "`".repeat((longest_run(text, '`') + 1).max(3));
    let text = text.strip_suffix('\n').unwrap_or(text);
    let opening = format!("{fence}{language}");
    std::iter::once(opening).chain(text.split('\n').map(str::to_owned)).chain([fence]).collect()
}

/// A line of text as a code span that its content cannot close.
pub(super) fn span(text: &str) -> String {
    let ticks = "`".repeat(longest_run(text, '`') + 1);
    let needs_room = text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) || text.is_empty();
    let room = if needs_room { " " } else { "" };
    format!("{ticks}{room}{text}{room}{ticks}")
}

/// Escapes text for Markdown.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in tame(text).chars() {
        match character {
            '\n' | '\t' => out.push(' '),
            it if it.is_ascii_punctuation() && !matches!(it, '.' | ',' | '-' | '/' | '\'' | '(' | ')' | ':') => {
                out.push('\\');
                out.push(it);
            }
            it => out.push(it),
        }
    }
    out.trim().to_owned()
}

/// Escapes text for HTML.
pub(super) fn html_escaped(text: &str) -> String {
    tame(text).replace('\n', " ").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The target of a link, if it is safe.
pub(super) fn link_target(uri: &str) -> Option<String> {
    let lower = uri.to_ascii_lowercase();
    if !(lower.starts_with("https://") || lower.starts_with("http://")) {
        return None;
    }
    let is_plain = |it: &char| !it.is_whitespace() && !it.is_control() && !matches!(it, '<' | '>' | '\\' | '"' | '`');
    uri.chars().all(|it| is_plain(&it)).then(|| format!("<{uri}>"))
}

/// Whether Markdown is self-contained: no fence stays open, nothing is defined for the rest of the document, and it
/// contains no HTML.
pub(super) fn is_contained(markdown: &str) -> bool {
    const AFTER: &str = "\n\n*after*\n<!-- after -->";
    let text = format!("{markdown}{AFTER}");
    let end = text.len() - "<!-- after -->".len();
    let parser = Parser::new_ext(&text, Options::empty());
    if parser.reference_definitions().iter().next().is_some() {
        return false;
    }
    let mut containers = 0usize;
    let mut ends_outside = false;
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Start(Tag::BlockQuote(_) | Tag::Item) => containers += 1,
            Event::End(TagEnd::BlockQuote(_) | TagEnd::Item) => containers -= 1,
            Event::Html(_) if range.start == end => ends_outside = containers == 0,
            Event::Html(_) | Event::InlineHtml(_) => return false,
            _ => {}
        }
    }
    ends_outside
}

pub(super) fn longest_run(text: &str, of: char) -> usize {
    let (mut longest, mut current) = (0, 0);
    for character in text.chars() {
        current = if character == of { current + 1 } else { 0 };
        longest = longest.max(current);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::{escaped, fenced, is_contained, link_target, span, tame};

    #[test]
    fn no_content_closes_its_own_fence() {
        assert_eq!(fenced("text", "a\nb\n"), ["```text", "a", "b", "```"]);
        assert_eq!(fenced("text", "```\nx\n````\n")[0], "`````text");
        assert_eq!(fenced("", ""), ["```", "", "```"]);
    }

    #[test]
    fn no_content_closes_its_own_span() {
        for (text, expected) in [("a", "`a`"), ("`", "`` ` ``"), ("a``b", "```a``b```"), (" a", "`  a `"), ("", "`  `")]
        {
            assert_eq!(span(text), expected);
        }
    }

    #[test]
    fn only_markdown_that_ends_where_it_ends_is_contained() {
        for markdown in
            ["# Title\n\n- a\n- b", "```rust\nfn main() {}\n```", "> quote", "a | b\n--|--\n1 | 2", "", "text"]
        {
            assert!(is_contained(markdown), "{markdown}");
        }
        for markdown in [
            "```\nopen",
            "<!-- open",
            "<div>",
            "a <b>c</b>",
            "[a]: https://example.com",
            "<script>",
            "- ~~~~\n  x\n\n<?php",
        ] {
            assert!(!is_contained(markdown), "{markdown}");
        }
    }

    #[test]
    fn control_characters_become_pictures() {
        assert_eq!(tame("a\r\nb\rc\u{1b}[31m\0"), "a\nb\nc␛[31m␀");
    }

    #[test]
    fn links_lead_to_the_web_or_nowhere() {
        assert!(link_target("https://example.com/a(b)?c=[d]").is_some());
        for uri in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://a b",
            "https://a>b",
            "data:text/html,x",
            "https://a\nb",
        ] {
            assert_eq!(link_target(uri), None, "{uri}");
        }
        assert_eq!(escaped("a*b[c]<d>\n"), "a\\*b\\[c\\]\\<d\\>");
    }
}
