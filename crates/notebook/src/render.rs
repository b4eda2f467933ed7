//! Renders a result as lines of the document.
//!
//! The output of a tool is untrusted text: it is put into fences and spans that it cannot close, or rendered as
//! Markdown only if that is self-contained.

mod assets;
mod content;
mod json;
mod markdown;

use crate::block::{Display, DisplayOptions, Format};
use crate::region::Note;
pub use assets::Attachment;
pub(crate) use content::{Content, Piece, parse_result};
use markdown::{escaped, fenced, html_escaped, is_contained, link_target, span, tame};

/// Longer texts become attachments.
const MAX_TEXT_RESULT_BYTES: usize = 256 * 1024;

const MAX_INLINE_CHARS: usize = 100;
const MAX_EXPANDED_LINES: usize = 40;
const MAX_EXPANDED_BYTES: usize = 8 * 1024;

/// How a result is rendered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style<'a> {
    /// What was run: `server.tool`.
    pub(crate) title: &'a str,
    pub(crate) display_options: DisplayOptions,
    /// The folder for attachments, as the document names it.
    pub(crate) folder: &'a str,
    /// Whether it was not called at all.
    pub(crate) is_refused: bool,
    /// Whether Markdown may be rendered.
    pub(crate) trusts_markdown: bool,
}

/// The lines of a result, and the files that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rendered {
    pub(crate) lines: Vec<String>,
    pub(crate) attachments: Vec<Attachment>,
}

/// The lines of a result between its marks.
pub(crate) fn rendered(content: &Content, note: &Note, style: &Style<'_>) -> Rendered {
    let mut attachments = Vec::new();
    let parts: Vec<Part> = content.pieces.iter().map(|piece| part(piece, style, &mut attachments)).collect();
    let display = if content.is_error { Display::Block } else { display(&parts, style.display_options.display) };
    let mut lines = joined(&parts, display);
    if lines.is_empty() {
        lines.push("*no content*".to_owned());
    }
    let note = note_line(note, style.is_refused);
    let lines = match (content.is_error, display) {
        (true, _) => failure(style, lines, note),
        (false, Display::Collapsed) => collapsed(style.title, lines, note),
        (false, _) => with_note(lines, note, &parts),
    };
    Rendered { lines, attachments }
}

/// One part of a result: as a block, and on one line if it fits.
struct Part {
    lines: Vec<String>,
    in_line: Option<String>,
    /// Whether the next part needs an empty line before it.
    is_open: bool,
    is_text: bool,
}

fn part(piece: &Piece, style: &Style<'_>, attachments: &mut Vec<Attachment>) -> Part {
    match piece {
        Piece::Text(text) => text_part(text, style.display_options.format, style, attachments),
        Piece::Json(json) => text_part(json, Some(Format::Json), style, attachments),
        Piece::Markdown(text) => {
            text_part(text, style.display_options.format.or(Some(Format::Markdown)), style, attachments)
        }
        Piece::Media { mime, bytes, name } => media_part(mime, bytes, name.as_deref(), style, attachments),
        Piece::Link { uri, name, description } => link_part(uri, name, description.as_deref()),
        Piece::Resource { uri, mime, text } => {
            let format = style.display_options.format.or(format_of(mime));
            let mut part = text_part(text, format, style, attachments);
            part.lines.insert(0, format!("{}:", span(&tame(uri).replace('\n', " "))));
            // The name is a paragraph; Markdown below it would become part of it.
            if part.is_open {
                part.lines.insert(1, String::new());
            }
            part.in_line = None;
            part
        }
    }
}

fn format_of(mime: &str) -> Option<Format> {
    let mime = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match mime.as_str() {
        "text/markdown" | "text/x-markdown" => Some(Format::Markdown),
        "application/json" | "text/json" => Some(Format::Json),
        it if it.ends_with("+json") => Some(Format::Json),
        "" | "text/plain" => None,
        _ => Some(Format::Text),
    }
}

fn text_part(text: &str, format: Option<Format>, style: &Style<'_>, attachments: &mut Vec<Attachment>) -> Part {
    let text = tame(text);
    let is_json = json::is_structure(&text) && format.is_none_or(|format| format == Format::Json);
    if text.len() > MAX_TEXT_RESULT_BYTES {
        let mime = if is_json { "application/json" } else { "text/plain" };
        return file_part(Attachment::new(text.into_bytes(), mime), style, attachments);
    }
    if is_json {
        let lines = fenced("json", &json::indented(&text));
        return Part { lines, in_line: None, is_open: false, is_text: true };
    }
    if format == Some(Format::Markdown) && style.trusts_markdown && is_contained(&text) {
        let lines: Vec<String> = text.trim_matches('\n').split('\n').map(str::to_owned).collect();
        return Part { lines, in_line: None, is_open: true, is_text: true };
    }
    let language = if format == Some(Format::Markdown) { "markdown" } else { "text" };
    let line = text.trim_end();
    let fits = !line.contains('\n') && !line.is_empty();
    Part { lines: fenced(language, &text), in_line: fits.then(|| span(line)), is_open: false, is_text: true }
}

fn media_part(
    mime: &str,
    bytes: &[u8],
    name: Option<&str>,
    style: &Style<'_>,
    attachments: &mut Vec<Attachment>,
) -> Part {
    let attachment = Attachment::new(bytes.to_owned(), mime);
    if !mime.to_ascii_lowercase().starts_with("image/") {
        return file_part(attachment, style, attachments);
    }
    let alternative = escaped(name.unwrap_or(style.title));
    let lines = vec![format!("![{alternative}]({})", attachment.link(style.folder))];
    attachments.push(attachment);
    Part { lines, in_line: None, is_open: true, is_text: false }
}

fn file_part(attachment: Attachment, style: &Style<'_>, attachments: &mut Vec<Attachment>) -> Part {
    let size = size(attachment.bytes.len());
    let lines = vec![format!("[{}]({}) ({size})", attachment.name, attachment.link(style.folder))];
    attachments.push(attachment);
    Part { lines, in_line: None, is_open: true, is_text: false }
}

fn link_part(uri: &str, name: &str, description: Option<&str>) -> Part {
    let name = escaped(name);
    let link = match link_target(uri) {
        Some(target) => format!("[{name}]({target})"),
        None => format!("**{name}**: {}", span(&tame(uri).replace('\n', " "))),
    };
    let description = description.map(|words| format!(": {}", escaped(words))).unwrap_or_default();
    Part { lines: vec![format!("- {link}{description}")], in_line: None, is_open: true, is_text: false }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", bytes.div_ceil(1024)),
        _ => format!("{} MB", bytes.div_ceil(1_048_576)),
    }
}

fn display(parts: &[Part], wished: Option<Display>) -> Display {
    if let Some(wished) = wished {
        return wished;
    }
    if let [only] = parts
        && only.in_line.as_ref().is_some_and(|line| line.len() <= MAX_INLINE_CHARS)
    {
        return Display::Inline;
    }
    let texts = || parts.iter().filter(|part| part.is_text).flat_map(|part| &part.lines);
    let is_long = texts().count() > MAX_EXPANDED_LINES || texts().map(String::len).sum::<usize>() > MAX_EXPANDED_BYTES;
    if is_long { Display::Collapsed } else { Display::Block }
}

fn joined(parts: &[Part], display: Display) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        match &part.in_line {
            Some(line) if display == Display::Inline => lines.push(line.clone()),
            _ => lines.extend(part.lines.iter().cloned()),
        }
    }
    lines
}

fn note_line(note: &Note, is_refused: bool) -> String {
    if is_refused {
        return format!("*{}*", note.at);
    }
    let tokens = note.tokens.map(|tokens| format!(" · {tokens} tokens")).unwrap_or_default();
    format!("*{} ms · {}{tokens}*", note.took_ms, note.at)
}

fn with_note(mut lines: Vec<String>, note: String, parts: &[Part]) -> Vec<String> {
    let is_alone = parts.len() == 1 && lines.len() == 1 && parts[0].in_line.as_ref() == lines.first();
    if is_alone {
        lines[0].push(' ');
        lines[0].push_str(&note);
        return lines;
    }
    // After a fence a new paragraph needs no empty line; after anything else it does.
    if parts.last().is_none_or(|part| part.is_open || part.in_line.as_ref() == lines.last()) {
        lines.push(String::new());
    }
    lines.push(note);
    lines
}

fn failure(style: &Style<'_>, lines: Vec<String>, note: String) -> Vec<String> {
    let what = if style.is_refused { "was not run" } else { "failed" };
    let title = span(&tame(style.title).replace('\n', " "));
    let head = ["[!CAUTION]".to_owned(), format!("{title} {what}"), String::new()];
    let all = head.into_iter().chain(lines).chain([String::new(), note]);
    all.map(|line| format!("> {line}").trim_end().to_owned()).collect()
}

fn collapsed(title: &str, lines: Vec<String>, note: String) -> Vec<String> {
    let summary = format!("<details><summary>Result of <code>{}</code></summary>", html_escaped(title));
    let before = [summary, String::new()];
    let after = [String::new(), "</details>".to_owned(), String::new(), note];
    before.into_iter().chain(lines).chain(after).collect()
}
