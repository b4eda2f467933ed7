//! The outline of a document: sections, the server of each and why, and blocks with buttons that run them.

use std::collections::HashMap;

use notebook::{Addressee, Outline, OutlineBlock, OutlineSection};

use crate::html::{Html, html};
use crate::pages::overview::clip;

/// How many sections and blocks, and how many remarks, are shown next to a document.
const MAX_ENTRIES: usize = 3_000;
const MAX_REMARKS: usize = 100;

/// The numbers of all blocks, as buttons send them.
pub(super) fn all_blocks(outline: &Outline) -> String {
    numbers(&outline.sections)
}

fn numbers(sections: &[OutlineSection]) -> String {
    let numbers = sections.iter().flat_map(|section| &section.blocks).map(|block| block.number.to_string());
    numbers.collect::<Vec<_>>().join(" ")
}

/// The blocks of a section and of those inside it.
fn blocks_below(outline: &Outline, place: usize) -> String {
    let level = outline.sections[place].level;
    let inside = outline.sections[place + 1..].iter().take_while(|next| level > 0 && next.level > level).count();
    numbers(&outline.sections[place..=place + inside])
}

/// What the user may do with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Run,
    Read,
}

/// The column next to a document.
pub(super) fn column(outline: &Outline, access: Access) -> Html {
    let remarks: Html = outline
        .remarks
        .iter()
        .take(MAX_REMARKS)
        .map(|remark| html!(r#"<p class="flash warn">Line {line}: {what}</p>"#, line = remark.line, what = remark.what))
        .collect();
    let mut left = MAX_ENTRIES;
    let shown = outline.sections.iter().take_while(|section| {
        let entries = 1 + section.blocks.len();
        let fits = entries <= left;
        left = left.saturating_sub(entries);
        fits
    });
    let shown: Vec<Html> = shown.map(|shown| section(shown, access)).collect();
    let more = outline.sections.len() - shown.len();
    let more = (more > 0).then(|| html!(r#"<p class="hint">{} further sections are not shown here.</p>"#, more));
    let items: Html = shown.into_iter().collect();
    html!(
        r#"{remarks}<details class="fold" open><summary><h2>Outline</h2></summary><ol class="outline">{items}</ol>{more}</details>"#,
        remarks = remarks,
        items = items,
        more = more
    )
}

fn section(section: &OutlineSection, access: Access) -> Html {
    let heading = if section.level == 0 { "Before the first heading" } else { section.heading.as_str() };
    if section.level == 0 && section.blocks.is_empty() {
        return Html::default();
    }
    let blocks: Html = section
        .blocks
        .iter()
        .map(|block| {
            html!(
                r##"<li><a href="#block-{number}"><span class="muted">{number}</span> {title}</a> {problem}<span data-state="{number}"></span>{run}</li>"##,
                run = run_button(access, "outline", block.number),
                number = block.number,
                title = clip(&block.title, 80),
                problem = badge(block),
            )
        })
        .collect();
    let (server, why) = server_and_why(section);
    html!(
        r##"<li class="level-{level}"><a class="heading" href="#line-{line}">{heading}</a><span class="sub"><span class="tag">{server}</span> <span>{why}</span></span><ol>{blocks}</ol></li>"##,
        level = section.level,
        line = section.line,
        heading = clip(heading, 80),
        server = server,
        why = why,
        blocks = blocks,
    )
}

/// The server of a section, and why. Assistants in an unbound section may use all servers.
fn server_and_why(section: &OutlineSection) -> (&str, String) {
    let is_free = |block: &OutlineBlock| block.addressee == Addressee::Assistant && block.bound.is_none();
    match &section.server {
        Some(first) if section.blocks.iter().any(is_free) => {
            ("all servers", format!("not bound; `mcp` blocks use `{first}`, the first enabled server"))
        }
        Some(server) => (server, section.why()),
        None => ("no server", section.why()),
    }
}

fn badge(block: &OutlineBlock) -> Option<Html> {
    match (&block.problem, &block.not_checked) {
        (Some(_), _) => Some(html!(r#"<span class="badge bad foreseen"><i></i>cannot run</span>"#)),
        (None, Some(_)) => Some(html!(r#"<span class="badge warn foreseen"><i></i>not checked</span>"#)),
        (None, None) => None,
    }
}

/// Who runs a block.
fn who<'a>(block: &'a OutlineBlock, section: &'a OutlineSection) -> &'a str {
    match block.addressee {
        Addressee::Assistant => "assistant",
        _ => block.server(section).unwrap_or("no server"),
    }
}

/// Why a block cannot run, if known.
fn obstacle(block: &OutlineBlock) -> Option<Html> {
    if let (None, Some(why)) = (&block.problem, &block.not_checked) {
        return Some(html!(r#"<p class="obstacle">The parameters were not checked: {}</p>"#, why));
    }
    let faults = &block.problem.as_ref()?.faults;
    // Pages show no line numbers; lines of the block can be counted.
    let said = faults.iter().map(|fault| match fault.line.checked_sub(block.line) {
        Some(0) | None => fault.what.clone(),
        Some(line) => format!("line {line} of the block: {}", fault.what),
    });
    Some(html!(r#"<p class="obstacle">This block cannot run: {}</p>"#, said.collect::<Vec<_>>().join("; ")))
}

/// Why it is that server.
fn why(block: &OutlineBlock, section: &OutlineSection) -> String {
    match (&block.addressee, &block.bound) {
        (Addressee::Server(_), Some(bound)) => format!("named by the block; {bound}"),
        (Addressee::Server(_), None) => "named by the block".to_owned(),
        (Addressee::AnyServer, Some(bound)) => bound.to_string(),
        (Addressee::AnyServer, None) => section.why(),
        (Addressee::Assistant, Some(bound)) => {
            format!("a model answers, with the tools of `{}`: {bound}", bound.binding.server)
        }
        (Addressee::Assistant, None) => "a model answers, with the tools of all enabled servers: not bound".to_owned(),
    }
}

/// The lines of headings, by their anchors: `#what-to-do`, or `#what-to-do-1` for the second of that name.
pub(super) fn anchors(outline: &Outline) -> HashMap<String, usize> {
    let mut anchors = HashMap::new();
    // The next number to try for each name: many headings may have the same.
    let mut next: HashMap<String, usize> = HashMap::new();
    for section in outline.sections.iter().filter(|section| section.level > 0) {
        let name = anchor(&section.heading);
        let number = next.entry(name.clone()).or_default();
        let free = loop {
            let tried = if *number == 0 { name.clone() } else { format!("{name}-{number}") };
            *number += 1;
            if !anchors.contains_key(&tried) {
                break tried;
            }
        };
        anchors.insert(free, section.line);
    }
    anchors
}

/// The anchor of a heading: lowercase, no punctuation, hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|sign| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|sign| if sign == ' ' { '-' } else { sign }).collect()
}

/// What is shown next to headings, by line.
pub(super) fn headings(outline: &Outline, access: Access) -> HashMap<usize, Html> {
    let sections = outline.sections.iter().enumerate().filter(|(_, section)| section.level > 0);
    sections
        .map(|(place, section)| {
            let below = blocks_below(outline, place);
            let run = (!below.is_empty() && access == Access::Run).then(|| {
                html!(
                    r#"<button class="quiet small" id="section-run-{line}" data-run="{below}" form="runner" name="blocks" value="{below:#}" aria-label="Run section {heading}">Run section</button>"#,
                    line = section.line,
                    below = below,
                    heading = clip(&section.heading, 80),
                )
            });
            let bound = section.bound.as_ref().map(|bound| {
                html!(r#"<span class="tag" title="{why}">{server}</span>"#, why = bound.to_string(), server = bound.binding.server)
            });
            (section.line, html!("{}{}", bound, run))
        })
        .collect()
}

/// The button that runs a block, next to a part of the page.
fn run_button(access: Access, part: &str, number: usize) -> Option<Html> {
    (access == Access::Run).then(|| {
        html!(
            r#"
<button class="quiet small" id="{part}-run-{number}" data-run="{number}" form="runner" name="blocks" value="{number:#}" aria-label="Run block {number}">Run</button>"#,
            part = part,
            number = number,
        )
    })
}

/// What is shown above blocks, by line.
pub(super) fn fences(outline: &Outline, access: Access) -> HashMap<usize, Html> {
    let blocks = outline.sections.iter().flat_map(|section| section.blocks.iter().map(move |block| (section, block)));
    blocks
        .map(|(section, block)| {
            let head = html!(
                r#"<div class="cell-head" id="block-{number}"><span class="muted">{number}</span><strong>{who}</strong><span class="hint">{why}</span><span data-state="{number}"></span>{run}</div>{obstacle}<p class="obstacle" data-why="{number}" hidden></p>"#,
                run = run_button(access, "block", block.number),
                number = block.number,
                who = who(block, section),
                why = why(block, section),
                obstacle = obstacle(block),
            );
            (block.line, head)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use notebook::{Bindings, Document, Server, outline};

    use super::*;

    #[test]
    fn a_section_runs_its_blocks_and_those_of_the_sections_inside_it() {
        let block = "```calc\ntool: x\n```\n";
        let text = format!("{block}# A\n{block}## B\n<!-- mcp: calc -->\n```mcp\ntool: y\n```\n# C\n{block}");
        let document = Document::parse(text);
        let servers = [Server { name: "calc".to_owned(), is_enabled: true }];
        let outline = outline(&document, &servers, &Bindings::of(&document, &[]));
        assert_eq!(all_blocks(&outline), "1 2 3 4");
        assert_eq!(blocks_below(&outline, 0), "1", "what stands before the first heading is a part of its own");
        assert_eq!(blocks_below(&outline, 1), "2 3");
        assert_eq!(blocks_below(&outline, 2), "3");
        let shown = column(&outline, Access::Run).0;
        assert!(shown.contains("binds"), "{shown}");
        assert_eq!(fences(&outline, Access::Run).len(), 4);
    }

    #[test]
    fn an_assistant_that_may_use_all_servers_is_labelled_so() {
        let ask = "```assistant\nWell?\n```\n";
        let document = Document::parse(format!("# Free\n{ask}# Bound\n<!-- mcp: second -->\n\n{ask}"));
        let servers = ["first", "second"].map(|name| Server { name: name.to_owned(), is_enabled: true });
        let outline = outline(&document, &servers, &Bindings::of(&document, &[]));
        let blocks = fences(&outline, Access::Run);
        let (free, bound) = (&blocks[&2].0, &blocks[&8].0);
        assert!(free.contains("all enabled servers") && !free.contains("first"), "{free}");
        assert!(bound.contains("with the tools of `second`"), "{bound}");
        let column = column(&outline, Access::Run).0;
        assert!(column.contains(r#"<span class="tag">all servers</span>"#), "{column}");
        assert!(column.contains(r#"<span class="tag">second</span>"#) && !column.contains(">first<"), "{column}");
    }
}
