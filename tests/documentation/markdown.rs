//! Parses a Markdown page as far as the tests need it: links, anchors, code blocks and inline code.

use std::collections::BTreeSet;

/// The parsed page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Relative links and images.
    pub(crate) links: Vec<String>,
    /// The anchors of its headings.
    pub(crate) anchors: BTreeSet<String>,
    /// Fenced blocks: language and text.
    pub(crate) blocks: Vec<(String, String)>,
    /// Inline code.
    pub(crate) code: Vec<String>,
}

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut prose = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let bare = line.trim_start();
            let ticks = bare.chars().take_while(|letter| *letter == '`').count();
            if ticks >= 3 && !bare[ticks..].contains('`') {
                let fence = "`".repeat(ticks);
                let inside = lines.by_ref().take_while(|line| !line.trim().starts_with(&fence));
                let text = inside.map(|line| line.to_owned() + "\n").collect();
                page.blocks.push((bare[ticks..].trim().to_owned(), text));
                prose.push('\n');
                continue;
            }
            if let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) {
                page.add_anchor(title.trim());
            }
            prose.push_str(line);
            prose.push('\n');
        }
        let without_code = page.take_code(&prose);
        page.links = links(&without_code);
        page
    }

    /// The anchor that repository hosts generate for a heading.
    fn add_anchor(&mut self, title: &str) {
        let kept = title.to_lowercase().replace(' ', "-");
        let anchor: String = kept.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect();
        let taken = self.anchors.contains(&anchor);
        assert!(!taken, "two headings have the anchor {anchor}; give them different titles");
        self.anchors.insert(anchor);
    }

    /// Collects inline code, and returns the text without it. Lines break inside code as inside any other text.
    fn take_code(&mut self, prose: &str) -> String {
        let mut left = String::new();
        for paragraph in prose.split("\n\n") {
            let mut rest = paragraph;
            while let Some(start) = rest.find('`') {
                let ticks = rest[start..].chars().take_while(|letter| *letter == '`').count();
                let fence = "`".repeat(ticks);
                let Some(length) = rest[start + ticks..].find(&fence) else { break };
                left.push_str(&rest[..start]);
                let code = rest[start + ticks..start + ticks + length].split_whitespace().collect::<Vec<_>>().join(" ");
                self.code.push(code);
                rest = &rest[start + ticks + length + ticks..];
            }
            left.push_str(rest);
            left.push_str("\n\n");
        }
        left
    }
}

/// The targets of links and images, without absolute URLs.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(|target| target.trim().to_owned()).collect()
}

#[test]
fn a_page_has_links_anchors_blocks_and_code() {
    let page = Page::parse(
        "# What it *is*: `x`\n\nSee [a](b.md#c), [d](https://e) and `[no](link)`; `two\nlines`.\n\n````markdown\n```sh\n# no heading\n```\n````\n",
    );
    assert_eq!(page.links, ["b.md#c"]);
    assert_eq!(page.anchors, BTreeSet::from(["what-it-is-x".to_owned()]));
    assert_eq!(page.code, ["x", "[no](link)", "two lines"]);
    assert_eq!(page.blocks, [("markdown".to_owned(), "```sh\n# no heading\n```\n".to_owned())]);
}
