//! Limits of one definition: how deep, how long and how rich in parts it may be before clients, or our own readers, fail.
//!
//! A definition beyond a limit loses the member that exceeds it, or is left out. The numbers that were measured are in
//! `docs/security.md`.

use protocol::scan::{Span, members};
use protocol::text::token_is;

use crate::item::Kind;
use crate::rules::{self, Need, Rule};

/// Objects and arrays within each other, the definition itself included.
///
/// A list adds four levels around a definition. The strictest readers known: .NET's `System.Text.Json` stops at 64 levels
/// of a message, `serde_json` (the Rust SDK, and everything of ours that reads lists) at 128, the Python SDK at about 200.
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

/// Bytes of a server's `capabilities`, and of its `serverInfo`: each of ours that needs them reads them again.
pub const MAX_SERVER_INFO_BYTES: usize = 64 * 1024;

/// How large a value is.
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

    /// What is too much about it: ``"is nested deeper than 56 levels"``.
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

/// The index after the string that begins at `start`.
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
    // Most strings begin with neither `$` nor an escape.
    matches!(token.get(1), Some(b'$' | b'\\'))
        && ["$ref", "$dynamicRef", "$recursiveRef"].iter().any(|word| token_is(token, word))
}

/// Whether a definition is within every limit.
pub(crate) fn fits(definition: &[u8]) -> bool {
    Extent::of(definition, Span { start: 0, end: definition.len() }).excess().is_none()
}

/// What is too much about a server's `capabilities` or `serverInfo`.
pub fn excess_of_server_info(value: &[u8]) -> Option<String> {
    if value.len() > MAX_SERVER_INFO_BYTES {
        return Some(format!("is larger than {MAX_SERVER_INFO_BYTES} bytes"));
    }
    Extent::of(value, Span { start: 0, end: value.len() }).excess()
}

/// A definition without what exceeds a limit, and what that was.
#[derive(Debug)]
pub(crate) struct Trimmed {
    pub(crate) definition: Vec<u8>,
    /// Each reason once; there are only a few, whatever the number of members.
    pub(crate) flaws: Vec<String>,
}

/// Takes out of a definition what exceeds a limit: nothing for nearly all. An error says what is too much, if the
/// definition is of no use without it.
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
    fn a_definition_at_the_limit_is_read_by_our_own_readers_with_room_for_what_is_around_it() {
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
    fn a_name_has_a_limit_of_its_own() {
        let long = "n".repeat(MAX_NAME_BYTES + 1);
        assert!(trim(Kind::Tool, br#"{"name":"a"}"#, &long).unwrap_err().contains("`name` is longer"));
        assert!(trim(Kind::Resource, br#"{"uri":"a:b"}"#, &long).unwrap().is_none());
    }
}
