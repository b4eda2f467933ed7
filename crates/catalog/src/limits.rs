//! Limits of one definition: depth, size and number of parts before clients, or our own parsers, fail.
//!
//! A definition beyond a limit loses the member that exceeds it, or is omitted. The measurements are in
//! `docs/security.md`.

use protocol::scan::{Span, members};
use protocol::text::token_is;

use crate::item::Kind;
use crate::rules::{self, Need, Rule};

/// The nesting of objects and arrays, including the definition itself.
///
/// A list adds four levels around a definition. The strictest known parsers: .NET's `System.Text.Json` stops at 64
/// levels of a message, `serde_json` (the Rust SDK, and all our code that parses lists) at 128, the Python SDK at about
/// 200.
pub const MAX_DEPTH: usize = 56;

/// Members and elements, at all levels together. Compiling 20,000 properties takes the TypeScript SDK two seconds.
pub const MAX_VALUES: usize = 20_000;

/// References (`$ref` and its relatives). Compiling 2,000 to different definitions takes the TypeScript SDK 0.8 seconds.
pub const MAX_REFERENCES: usize = 2000;

/// Bytes. The largest definitions of real servers have a tenth of this.
pub const MAX_BYTES: usize = 1 << 20;

/// Bytes of the name of a tool or prompt. The specification recommends at most 128 characters.
pub const MAX_NAME_BYTES: usize = 1024;

/// Bytes of a URI or URI template; longer URIs are not matched with templates either.
pub const MAX_URI_BYTES: usize = 8192;

/// Bytes of a server's `capabilities`, and of its `serverInfo`: they are parsed again wherever they are needed.
pub const MAX_SERVER_INFO_BYTES: usize = 64 * 1024;

/// The size of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    depth: usize,
    values: usize,
    references: usize,
    bytes: usize,
}

impl Extent {
    /// Measures the value at `span`, which is valid JSON, in one pass.
    pub(crate) fn of(text: &[u8], span: Span) -> Self {
        let text = span.of(text);
        let mut extent = Self { depth: 0, values: 1, references: 0, bytes: text.len() };
        let (mut depth, mut at) = (0_usize, 0);
        while let Some(byte) = text.get(at) {
            match byte {
                b'{' | b'[' => {
                    depth += 1;
                    extent.depth = extent.depth.max(depth);
                    extent.values += 1;
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b',' => extent.values += 1,
                b'"' => {
                    let end = end_of_string(text, at);
                    extent.references += usize::from(is_reference(&text[at..end]));
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        extent
    }

    /// The limit it exceeds: ``"is nested deeper than 56 levels"``.
    pub(crate) fn excess(&self) -> Option<String> {
        if self.depth > MAX_DEPTH {
            Some(format!("is nested deeper than {MAX_DEPTH} levels"))
        } else if self.values > MAX_VALUES {
            Some(format!("has more than {MAX_VALUES} members and elements"))
        } else if self.references > MAX_REFERENCES {
            Some(format!("has more than {MAX_REFERENCES} references"))
        } else if self.bytes > MAX_BYTES {
            Some(format!("is larger than {MAX_BYTES} bytes"))
        } else {
            None
        }
    }
}

/// The index after the string that starts at `start`.
pub(crate) fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn is_reference(token: &[u8]) -> bool {
    // Most strings start with neither `$` nor an escape.
    matches!(token.get(1), Some(b'$' | b'\\'))
        && ["$ref", "$dynamicRef", "$recursiveRef"].iter().any(|word| token_is(token, word))
}

/// Whether a definition is within every limit.
pub(crate) fn fits(definition: &[u8]) -> bool {
    Extent::of(definition, Span { start: 0, end: definition.len() }).excess().is_none()
}

/// The limit that a server's `capabilities` or `serverInfo` exceeds.
pub fn excess_of_server_info(value: &[u8]) -> Option<String> {
    if value.len() > MAX_SERVER_INFO_BYTES {
        return Some(format!("is larger than {MAX_SERVER_INFO_BYTES} bytes"));
    }
    Extent::of(value, Span { start: 0, end: value.len() }).excess()
}

/// A definition without what exceeds a limit, and the reasons.
#[derive(Debug)]
pub(crate) struct Trimmed {
    pub(crate) definition: Vec<u8>,
    /// Each reason once; there are only a few, whatever the number of members.
    pub(crate) flaws: Vec<String>,
}

/// Removes from a definition what exceeds a limit, which is nothing in nearly all cases. Fails if the definition is
/// useless without it.
pub(crate) fn trim(kind: Kind, definition: &[u8], id: &str) -> Result<Option<Trimmed>, String> {
    let longest = if kind.is_prefixed() { MAX_NAME_BYTES } else { MAX_URI_BYTES };
    if id.len() > longest {
        return Err(format!("`{}` is longer than {longest} bytes", kind.id_key()));
    }
    if fits(definition) {
        return Ok(None);
    }
    let Rule::Object(known) = rules::of(kind) else { return Ok(None) };
    let mut trimmed = Trimmed { definition: vec![b'{'], flaws: Vec::new() };
    let mut refused = None;
    members(definition, Span { start: 0, end: definition.len() }, |key, value| {
        let extent = Extent::of(definition, value);
        let whole = Span { start: key.start, end: value.end };
        let excess = Extent { bytes: whole.of(definition).len(), depth: extent.depth + 1, ..extent }.excess();
        let Some(excess) = excess else { return trimmed.push(&[whole.of(definition)]) };
        let member = known.iter().find(|member| token_is(key.of(definition), member.name));
        let flaw = match member {
            Some(member) => format!("`{}` {excess}", member.name),
            None => format!("a member that the protocol does not know {excess}"),
        };
        match member.map_or(Need::Optional, |member| member.need) {
            Need::Optional => {}
            Need::Or(substitute) => trimmed.push(&[key.of(definition), b":", substitute.as_bytes()]),
            Need::Required | Need::OrItsId => refused = Some(flaw.clone()),
        }
        trimmed.note(flaw);
    });
    trimmed.definition.push(b'}');
    // Each member may be within the limits, but not all of them together.
    let rest = Extent::of(&trimmed.definition, Span { start: 0, end: trimmed.definition.len() });
    match refused.or_else(|| rest.excess().map(|excess| format!("the definition {excess}"))) {
        Some(flaw) => Err(flaw),
        None => Ok(Some(trimmed)),
    }
}

impl Trimmed {
    fn push(&mut self, member: &[&[u8]]) {
        if self.definition.len() > 1 {
            self.definition.push(b',');
        }
        member.iter().for_each(|piece| self.definition.extend_from_slice(piece));
    }

    fn note(&mut self, flaw: String) {
        if !self.flaws.contains(&flaw) {
            self.flaws.push(flaw);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(text: &str) -> Extent {
        Extent::of(text.as_bytes(), Span { start: 0, end: text.len() })
    }

    #[test]
    fn brackets_and_commas_in_strings_do_not_count() {
        let one = extent(r#"{"a":"[[,,{\"[\\"}"#);
        assert_eq!((one.depth, one.values, one.references), (1, 2, 0));
        let two = extent(r#"[ {"$ref":"x","\u0024ref":1}, [[]], "$dynamicRef" ]"#);
        assert_eq!((two.depth, two.references), (3, 3));
        assert_eq!(two.values, 1 + 4 + 3, "itself, the containers, and one for each comma");
    }

    #[test]
    fn what_is_within_the_limits_is_not_touched() {
        let deep = |levels: usize| {
            let inner = levels - 2;
            format!(r#"{{"name":"a","inputSchema":{{"x":{}{}}}}}"#, "[".repeat(inner), "]".repeat(inner))
        };
        assert!(trim(Kind::Tool, deep(MAX_DEPTH).as_bytes(), "a").unwrap().is_none());
        assert!(trim(Kind::Tool, deep(MAX_DEPTH + 1).as_bytes(), "a").unwrap().is_some());
    }

    #[test]
    fn a_definition_at_the_limit_is_parsed_by_our_parsers_even_inside_a_list() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let reads = |levels: usize| serde_json::from_str::<serde_json::Value>(&nested(levels)).is_ok();
        assert!(reads(127) && !reads(128), "as documented in docs/security.md");
        assert!(reads(MAX_DEPTH + 40), "a list adds 4 levels, an answer of REST about 6");
    }

    #[test]
    fn a_definition_of_too_many_small_members_is_left_out() {
        let many = vec![r#""title":"x""#; MAX_VALUES].join(",");
        let refused = trim(Kind::Tool, format!(r#"{{"name":"a",{many}}}"#).as_bytes(), "a");
        assert_eq!(refused.unwrap_err(), "the definition has more than 20000 members and elements");
    }

    #[test]
    fn what_a_server_says_of_itself_has_limits_of_its_own() {
        let text = |bytes: usize| format!(r#"{{"name":"{}"}}"#, "x".repeat(bytes - r#"{"name":""}"#.len()));
        assert_eq!(excess_of_server_info(text(MAX_SERVER_INFO_BYTES).as_bytes()), None);
        let excess = excess_of_server_info(text(MAX_SERVER_INFO_BYTES + 1).as_bytes());
        assert_eq!(excess.as_deref(), Some("is larger than 65536 bytes"));
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
        assert_eq!(excess_of_server_info(deep.as_bytes()).as_deref(), Some("is nested deeper than 56 levels"));
    }

    #[test]
    fn a_name_has_a_limit_of_its_own() {
        let long = "n".repeat(MAX_NAME_BYTES + 1);
        assert!(trim(Kind::Tool, br#"{"name":"a"}"#, &long).unwrap_err().contains("`name` is longer"));
        assert!(trim(Kind::Resource, br#"{"uri":"a:b"}"#, &long).unwrap().is_none());
    }
}
