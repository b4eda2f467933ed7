//! The tools of one server, exactly as it defined them.

use bytes::Bytes;
use protocol::scan::{self, Span};
use protocol::text;

/// One tool: the bytes of its definition and where its name stands in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The name as text.
    pub name: String,
    /// The whole definition, as the server wrote it.
    pub definition: Bytes,
    name_span: Span,
}

/// One page of a server's `tools/list`.
#[derive(Debug)]
pub struct Page {
    /// The usable tools, in the server's order.
    pub tools: Vec<Tool>,
    /// The token to ask for the next page with, quotes included. `""` is a cursor like any other.
    pub next_cursor: Option<Bytes>,
    /// How many entries were no usable tool: not an object, or without a name that is text.
    pub unusable: usize,
}

impl Tool {
    /// Reads a definition; `None` if it has no usable name.
    pub fn read(definition: Bytes) -> Option<Self> {
        let whole = Span { start: 0, end: definition.len() };
        let name_span = scan::member(&definition, whole, "name")?;
        let name = text::decode(name_span.of(&definition))?.into_owned();
        (!name.is_empty()).then_some(Self { name, definition, name_span })
    }

    /// The name token as the server spelled it, quotes included: what a call must carry.
    pub fn name_token(&self) -> Bytes {
        self.definition.slice(self.name_span.start..self.name_span.end)
    }

    /// Appends the definition with `name_inner` (JSON text without quotes) as its name and all else unchanged.
    pub fn write_renamed(&self, name_inner: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.definition[..=self.name_span.start]);
        out.extend_from_slice(name_inner);
        out.extend_from_slice(&self.definition[self.name_span.end - 1..]);
    }

    /// The name as it stands between its quotes.
    pub fn name_inner(&self) -> &[u8] {
        &self.definition[self.name_span.start + 1..self.name_span.end - 1]
    }
}

impl Page {
    /// Reads the `result` of a `tools/list` answer; `None` if it has no array `tools`.
    pub fn read(line: &Bytes, result: Span) -> Option<Self> {
        let array = scan::member(line, result, "tools")?;
        let entries = scan::elements(line, array)?;
        let count = entries.len();
        let tools: Vec<_> =
            entries.into_iter().filter_map(|entry| Tool::read(line.slice(entry.start..entry.end))).collect();
        let next_cursor = scan::member(line, result, "nextCursor")
            .filter(|cursor| line[cursor.start] == b'"')
            .map(|cursor| line.slice(cursor.start..cursor.end));
        Some(Self { unusable: count - tools.len(), tools, next_cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &'static str) -> Option<Page> {
        let line = Bytes::from_static(text.as_bytes());
        Page::read(&line, Span { start: 0, end: line.len() })
    }

    #[test]
    fn a_definition_keeps_every_byte_but_its_name() {
        let definition = r#"{ "description":"\u0041 1e2", "name" : "a\u0062" ,"x":{"name":"inner"},"n":1.0}"#;
        let tool = Tool::read(Bytes::from_static(definition.as_bytes())).unwrap();
        assert_eq!(tool.name, "ab");
        assert_eq!(tool.name_token(), r#""a\u0062""#);
        let mut renamed = b"srv:".to_vec();
        renamed.extend_from_slice(tool.name_inner());
        let mut out = Vec::new();
        tool.write_renamed(&renamed, &mut out);
        assert_eq!(out, definition.replace(r"a\u0062", r"srv:a\u0062").as_bytes());
    }

    #[test]
    fn a_page_is_read_with_its_cursor() {
        let page = page(r#"{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":""}"#).unwrap();
        assert_eq!(page.tools.len(), 2);
        assert_eq!(page.next_cursor.unwrap(), "\"\"", "an empty cursor is a cursor");
    }

    #[test]
    fn what_is_no_tool_is_counted_and_passed_over() {
        let page = page(r#"{"tools":[1,{},{"name":5},{"name":""},{"name":"\ud800"},{"name":"ok"}],"nextCursor":null}"#);
        let page = page.unwrap();
        assert_eq!((page.tools.len(), page.unusable), (1, 5));
        assert_eq!(page.next_cursor, None);
    }

    #[test]
    fn a_result_without_tools_is_no_page() {
        assert!(page(r#"{"tools":{}}"#).is_none());
        assert!(page(r#"{}"#).is_none());
        assert!(page("5").is_none());
    }
}
