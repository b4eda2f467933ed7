//! Renders Markdown safely: text is escaped, HTML is shown as text, and links are restricted. Only the marks of our own
//! results are interpreted.

use std::collections::HashMap;

use pulldown_cmark::{Alignment, BlockQuoteKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::html::{Html, html};

/// What is added to a document, and how its links are resolved.
pub(super) struct DocumentParts<'a> {
    /// Next to headings, by line.
    pub(super) headings: HashMap<usize, Html>,
    /// Above blocks, by line.
    pub(super) fences: HashMap<usize, Html>,
    /// Resolves the address of a picture.
    pub(super) picture: &'a dyn Fn(&str) -> Option<String>,
    /// Resolves a relative link.
    pub(super) link: &'a dyn Fn(&str) -> Option<String>,
}

/// Renders a document.
pub(super) fn shown(text: &str, parts: &DocumentParts<'_>) -> Html {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let line_starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut writer =
        Writer { parts, out: Html::default(), depth: 0, open: Vec::new(), captured: None, ends: Vec::new() };
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let line = line_starts.partition_point(|start| *start <= range.start);
        writer.take(event, line);
    }
    writer.close_down_to(0);
    writer.out
}

/// Text that is collected instead of written.
enum Captured {
    Html(String),
    FrontMatter(String),
    Picture { target: String, alternative: String },
}

struct Writer<'a> {
    parts: &'a DocumentParts<'a>,
    out: Html,
    /// The number of enclosing parts.
    depth: usize,
    /// What marks opened: the depth, and the closing tag.
    open: Vec<(usize, &'static str)>,
    captured: Option<Captured>,
    /// The closing tags of open parts, where they depend on the start.
    ends: Vec<Html>,
}

impl Writer<'_> {
    fn put(&mut self, markup: &str) {
        self.out.0.push_str(markup);
    }

    fn take(&mut self, event: Event<'_>, line: usize) {
        match event {
            Event::Start(tag) => self.start(&tag, line),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text);
            }
            Event::Code(text) | Event::InlineHtml(text) => self.add(&html!("<code>{}</code>", &*text), &text),
            Event::Html(text) => match &mut self.captured {
                Some(Captured::Html(all)) => all.push_str(&text),
                _ => self.text(&text),
            },
            Event::SoftBreak => self.text("\n"),
            Event::HardBreak => self.put("<br>"),
            Event::Rule => self.put("<hr>"),
            Event::TaskListMarker(is_done) => {
                let sign = if is_done { "☑ " } else { "☐ " };
                self.put(sign);
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.add(&html!("{}", text), text);
    }

    /// Adds markup, or only its text while that is collected.
    fn add(&mut self, markup: &Html, words: &str) {
        match &mut self.captured {
            None => self.out.add(markup),
            Some(Captured::Html(all) | Captured::FrontMatter(all)) => all.push_str(words),
            Some(Captured::Picture { alternative, .. }) => alternative.push_str(words),
        }
    }

    fn start(&mut self, tag: &Tag<'_>, line: usize) {
        self.depth += 1;
        if self.captured.is_some() {
            return;
        }
        let (begin, end) = match tag {
            Tag::HtmlBlock => {
                self.captured = Some(Captured::Html(String::new()));
                return;
            }
            Tag::MetadataBlock(_) => {
                self.captured = Some(Captured::FrontMatter(String::new()));
                return;
            }
            Tag::Image { dest_url, .. } => {
                self.captured = Some(Captured::Picture { target: dest_url.to_string(), alternative: String::new() });
                return;
            }
            Tag::Heading { level, .. } => self.heading(*level, line),
            Tag::CodeBlock(_) => self.block(line),
            Tag::Link { dest_url, .. } => self.link(dest_url),
            other => plain(other),
        };
        self.out.add(&begin);
        self.ends.push(end);
    }

    fn heading(&self, level: HeadingLevel, line: usize) -> (Html, Html) {
        // The page has its own heading above all of them.
        let level = (level as usize + 1).min(6);
        let inset = self.parts.headings.get(&line).cloned().unwrap_or_default();
        let begin = html!(r#"<div class="section-head" id="line-{line}"><h{level}>"#, line = line, level = level);
        (begin, html!("</h{level}>{inset}</div>", level = level, inset = inset))
    }

    fn block(&self, line: usize) -> (Html, Html) {
        match self.parts.fences.get(&line) {
            Some(head) => {
                (html!(r#"<div class="cell">{}<pre tabindex="0">"#, head.clone()), Html("</pre></div>".to_owned()))
            }
            None => (Html(r#"<pre class="block" tabindex="0">"#.to_owned()), Html("</pre>".to_owned())),
        }
    }

    fn link(&self, target: &str) -> (Html, Html) {
        let is_elsewhere = ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme));
        let begin = if is_elsewhere {
            html!(r#"<a href="{}" rel="noopener noreferrer" target="_blank">"#, target)
        } else if let Some(to) = (self.parts.link)(target) {
            html!(r#"<a href="{}">"#, to)
        } else {
            return (html!(r#"<span title="{}">"#, target), Html("</span>".to_owned()));
        };
        (begin, Html("</a>".to_owned()))
    }

    fn end(&mut self, tag: TagEnd) {
        match (self.captured.take(), tag) {
            (None, _) => {
                self.close_down_to(self.depth);
                if let Some(end) = self.ends.pop() {
                    self.out.add(&end);
                }
                self.depth -= 1;
                return;
            }
            (Some(Captured::Html(text)), TagEnd::HtmlBlock) => self.mark(&text),
            (Some(Captured::FrontMatter(text)), TagEnd::MetadataBlock(_)) => {
                self.out.add(&html!(r#"<details><summary>Front matter</summary><pre>{}</pre></details>"#, text.trim()));
            }
            (Some(Captured::Picture { target, alternative }), TagEnd::Image) => self.picture(&target, &alternative),
            (captured, _) => self.captured = captured,
        }
        self.depth -= 1;
    }

    fn picture(&mut self, target: &str, alternative: &str) {
        let markup = match (self.parts.picture)(target) {
            Some(from) => html!(r#"<img src="{from}" alt="{alternative}">"#, from = from, alternative = alternative),
            // Nothing is ever loaded from elsewhere.
            None => html!(
                r#"<span class="tag">picture</span> {alternative} <code>{target}</code>"#,
                alternative = alternative,
                target = target
            ),
        };
        self.out.add(&markup);
    }

    /// HTML in a document: our marks are interpreted, comments are dropped, anything else is shown as text.
    fn mark(&mut self, text: &str) {
        let text = text.trim();
        if let Some(said) = text.strip_prefix("<!-- mcp-result ") {
            let tone = if said.contains(" status=error ") { "bad" } else { "ok" };
            self.put(&html!(r#"<div class="cell-result {}">"#, tone).0);
            self.open.push((self.depth, "</div>"));
        } else if text.starts_with("<!-- /mcp-result ") {
            self.close("</div>");
        } else if let Some(title) = folded_title(text) {
            self.put(&html!(r#"<details><summary>Result of <code>{}</code></summary>"#, title).0);
            self.open.push((self.depth, "</details>"));
        } else if text == "</details>" {
            self.close("</details>");
        } else if !(text.starts_with("<!--") && text.ends_with("-->")) {
            self.put(&html!(r#"<pre class="hint">{}</pre>"#, text).0);
        }
    }

    /// Closes what a mark opened, if it is open in the same part.
    fn close(&mut self, end: &'static str) {
        let Some(place) = self.open.iter().rposition(|open| *open == (self.depth, end)) else { return };
        for (_, end) in self.open.split_off(place).into_iter().rev() {
            self.put(end);
        }
    }

    /// Closes what was opened inside a part that ends.
    fn close_down_to(&mut self, depth: usize) {
        while let Some((_, end)) = self.open.pop_if(|(opened, _)| *opened > depth || depth == 0) {
            self.put(end);
        }
    }
}

/// The start and end tags of simple parts.
fn plain(tag: &Tag<'_>) -> (Html, Html) {
    let pair = |begin: &str, end: &str| (Html(begin.to_owned()), Html(end.to_owned()));
    match tag {
        Tag::Paragraph => pair("<p>", "</p>\n"),
        Tag::BlockQuote(Some(BlockQuoteKind::Caution | BlockQuoteKind::Warning)) => {
            pair(r#"<blockquote class="bad">"#, "</blockquote>")
        }
        Tag::BlockQuote(_) => pair("<blockquote>", "</blockquote>"),
        Tag::List(Some(first)) => (html!(r#"<ol start="{}">"#, *first), Html("</ol>".to_owned())),
        Tag::List(None) => pair("<ul>", "</ul>"),
        Tag::Item => pair("<li>", "</li>"),
        Tag::Table(columns) => {
            let is_numbers = !columns.is_empty() && columns.iter().all(|column| *column == Alignment::Right);
            let class = if is_numbers { " class=\"n\"" } else { "" };
            (
                Html(format!(r#"<div class="scroll" tabindex="0"><table{class}>"#)),
                Html("</tbody></table></div>".to_owned()),
            )
        }
        Tag::TableHead => pair("<thead><tr>", "</tr></thead><tbody>"),
        Tag::TableRow => pair("<tr>", "</tr>"),
        Tag::TableCell => pair("<td>", "</td>"),
        Tag::Emphasis => pair("<em>", "</em>"),
        Tag::Strong => pair("<strong>", "</strong>"),
        Tag::Strikethrough => pair("<s>", "</s>"),
        _ => pair("", ""),
    }
}

/// The title of a collapsed result, from our own marks.
fn folded_title(text: &str) -> Option<String> {
    let title = text.strip_prefix("<details><summary>Result of <code>")?.strip_suffix("</code></summary>")?;
    let signs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    Some(signs.into_iter().fold(title.to_owned(), |title, (written, sign)| title.replace(written, sign)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let parts = DocumentParts {
            headings: HashMap::from([(1, html!("<b>beside</b>"))]),
            fences: HashMap::from([(3, html!("<b>above</b>"))]),
            picture: &|target| target.starts_with("a.assets/").then(|| format!("/p?{target}")),
            link: &|target| target.ends_with(".md").then(|| format!("/d?{target}")),
        };
        shown(text, &parts).0
    }

    #[test]
    fn a_document_is_shown_with_its_blocks_results_and_pictures() {
        let page = read(
            "# Friday\n\n```calc\ntool: x\n```\n<!-- mcp-result id=0f8e9d0c1b2a3948 status=ok at=x ms=1 -->\n`4` *1 ms*\n\n![plot](a.assets/1.png)\n<!-- /mcp-result id=0f8e9d0c1b2a3948 -->\n\nafter [b](b.md)\n",
        );
        for part in [
            r#"<div class="section-head" id="line-1"><h2>Friday</h2><b>beside</b></div>"#,
            "<div class=\"cell\"><b>above</b><pre tabindex=\"0\">tool: x\n</pre></div>",
            r#"<div class="cell-result ok"><p><code>4</code> <em>1 ms</em></p>"#,
            r#"<img src="/p?a.assets/1.png" alt="plot">"#,
            "</div><p>after <a href=\"/d?b.md\">b</a></p>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn nothing_in_a_document_is_obeyed() {
        let page = read(
            "<script>alert(1)</script>\n\nx <img src=x onerror=alert(1)> [a](javascript:alert(1)) ![b](https://evil/x.png)\n\n<details><summary>Result of <code>&lt;img src=x&gt;</code></summary>\n\ntext\n\n```html\n<script>\n```\n\u{202e}",
        );
        for sign in ["<script", "<img", "href=\"javascript", "src=\"https", "\u{202e}"] {
            assert!(!page.contains(sign), "{sign} in {page}");
        }
        assert_eq!(page.matches("<details>").count(), page.matches("</details>").count(), "{page}");
    }

    #[test]
    fn an_unclosed_result_ends_with_its_section() {
        let page = read("- a\n  <!-- mcp-result id=0f8e9d0c1b2a3948 status=error at=x ms=1 -->\n  b\n\n# next\n");
        assert!(page.contains("cell-result bad"), "{page}");
        let (result, list) = (page.find("</div>").unwrap(), page.find("</li>").unwrap());
        assert!(result < list, "{page}");
    }
}
