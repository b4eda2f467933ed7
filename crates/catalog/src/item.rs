//! Items of a server, exactly as it defined them: tools, prompts, resources, resource templates.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use protocol::Lifecycle;
use protocol::bridge::header_params::{self, HeaderParam, InvalidParams};
use protocol::scan::{self, Span};
use protocol::splice::{Edit, append_spliced, in_order};
use protocol::text;

use crate::limits::{self, Trimmed};
use crate::offer::Hints;
use crate::repair::{self, edited, repair_definition, without_halves, without_huge_numbers};
use crate::rules;

/// The four kinds of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A resource template.
    Template,
}

impl Kind {
    /// Every kind, in the order of arrays by kind.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Prompt, Self::Resource, Self::Template];

    /// The method that lists them.
    pub fn list_method(self) -> &'static str {
        match self {
            Self::Tool => "tools/list",
            Self::Prompt => "prompts/list",
            Self::Resource => "resources/list",
            Self::Template => "resources/templates/list",
        }
    }

    /// The member of a list that contains them.
    pub fn array_key(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Prompt => "prompts",
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
        }
    }

    /// The member of a definition that identifies it.
    pub fn id_key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }

    /// The capability a server announces if it has any.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Prompt => "prompts",
            Self::Resource | Self::Template => "resources",
        }
    }

    /// The notification that the list changed.
    pub fn changed(self) -> &'static str {
        match self {
            Self::Tool => "notifications/tools/list_changed",
            Self::Prompt => "notifications/prompts/list_changed",
            Self::Resource | Self::Template => "notifications/resources/list_changed",
        }
    }

    /// Its name in messages.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "resource template",
        }
    }

    /// Whether its items get a prefix that distinguishes them from those of other servers. Resources keep their URIs,
    /// because URIs also occur in results, which are not rewritten.
    pub fn is_prefixed(self) -> bool {
        matches!(self, Self::Tool | Self::Prompt)
    }
}

/// One item: the bytes of its definition, and the position of its identifying member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The name, URI or URI template as text.
    pub id: Arc<str>,
    /// The whole definition, as the server sent it except for repairs.
    pub definition: Bytes,
    id_span: Span,
    /// Edits of the definition for legacy clients.
    for_legacy: Arc<[repair::Edit]>,
    /// The arguments of a tool that calls over HTTP repeat in headers; `None` if it has no annotations, as nearly all.
    header_params: Option<Arc<HeaderParams>>,
}

/// What was found about the header parameters of a tool with annotations.
type HeaderParams = Result<Vec<HeaderParam>, InvalidParams>;

/// One page of a server's list. Its items are read one at a time, because they may take many times the memory of the
/// page: whoever reads them can stop at a limit.
#[derive(Debug)]
pub struct Page {
    kind: Kind,
    line: Bytes,
    array: Span,
    /// The number of entries, usable or not.
    pub entries: usize,
    /// The cursor of the next page, including quotes. `""` is a cursor like any other.
    pub next_cursor: Option<Bytes>,
    /// The caching hints of the page, if the server sends them.
    pub hints: Option<Hints>,
}

impl Item {
    /// Parses a definition; `None` if nothing usable identifies it.
    pub fn read(kind: Kind, definition: Bytes) -> Option<Self> {
        let whole = Span { start: 0, end: definition.len() };
        let id_span = scan::member(&definition, whole, kind.id_key())?;
        let id: Arc<str> = text::decode(id_span.of(&definition))?.into();
        if id.is_empty() {
            return None;
        }
        let mut item = Self { id, definition, id_span, for_legacy: Arc::default(), header_params: None };
        // A definition beyond the limits is trimmed first, and parsed again then.
        if kind == Kind::Tool && limits::fits(&item.definition) {
            let repair = repair_definition(&item.definition, id_span, &rules::LEGACY_TOOL).unwrap_or_default();
            if !repair.edits.is_empty() {
                item.for_legacy = repair.edits.into();
            }
            let header_params = header_params::of_tool(&item.definition);
            let has_annotations = header_params.as_ref().map_or(true, |params| !params.is_empty());
            item.header_params = has_annotations.then(|| Arc::new(header_params));
        }
        Some(item)
    }

    /// The arguments that calls of this tool over HTTP repeat in headers; the error describes an invalid annotation.
    pub fn header_params(&self) -> Result<&[HeaderParam], &InvalidParams> {
        match self.header_params.as_deref() {
            None => Ok(&[]),
            Some(Ok(params)) => Ok(params),
            Some(Err(why)) => Err(why),
        }
    }

    /// The memory it takes beside its definition and a fixed size, in bytes: what was derived from the definition may be
    /// several times as large.
    pub fn derived_bytes(&self) -> usize {
        let edits: usize = self.for_legacy.iter().map(|(_, with)| size_of::<repair::Edit>() + owned_bytes(with)).sum();
        let params = self.header_params().map_or(0, |params| params.iter().map(HeaderParam::size).sum());
        edits + params
    }

    /// Removes from the definition what would make clients reject the whole list, and returns what was wrong:
    /// ``"`annotations.readOnlyHint` is not true or false"``. Returns no item if it is useless without that.
    pub fn repaired(self, kind: Kind) -> (Option<Self>, Vec<String>) {
        if let Err(excess @ InvalidParams::TooMuch(_)) = self.header_params() {
            // Without the headers a server that needs them would refuse every call.
            return (None, vec![excess.to_string()]);
        }
        match limits::trim(kind, &self.definition, &self.id) {
            Ok(None) => {}
            Ok(Some(Trimmed { definition, mut flaws })) => {
                let (item, more) =
                    Self::read(kind, definition.into()).map_or((None, Vec::new()), |it| it.repaired(kind));
                flaws.extend(more);
                return (item, flaws);
            }
            Err(flaw) => return (None, vec![flaw]),
        }
        let readable = [
            (without_halves(&self.definition), "a `\\u` escape is half a character"),
            (without_huge_numbers(&self.definition), "a number in a schema is out of range"),
        ];
        for (whole, flaw) in readable {
            if let Some(whole) = whole {
                let (item, mut flaws) =
                    Self::read(kind, whole.into()).map_or((None, Vec::new()), |it| it.repaired(kind));
                flaws.push(flaw.to_owned());
                return (item, flaws);
            }
        }
        match repair_definition(&self.definition, self.id_span, rules::of(kind)) {
            Ok(repair) if repair.edits.is_empty() => (Some(self), repair.flaws),
            Ok(repair) => {
                let definition = edited(&self.definition, &repair.edits);
                (Self::read(kind, definition.into()), repair.flaws)
            }
            Err(flaw) => (None, vec![flaw]),
        }
    }

    /// The identifying token as the server spelled it, including quotes: what a call must contain.
    pub fn id_token(&self) -> Bytes {
        self.definition.slice(self.id_span.start..self.id_span.end)
    }

    /// The same without quotes.
    pub fn id_inner(&self) -> &[u8] {
        self.inner_span().of(&self.definition)
    }

    /// Appends the definition for clients of `lifecycle`, renamed if there is an `inner`.
    pub(crate) fn write_for(&self, lifecycle: Lifecycle, inner: Option<&[u8]>, out: &mut Vec<u8>) {
        let rename = inner.map(|with| Edit { span: self.inner_span(), with });
        let changes = if lifecycle == Lifecycle::Session { &*self.for_legacy } else { &[] };
        let changes = changes.iter().map(|(span, with)| Edit { span: *span, with });
        let mut edits: Vec<_> = rename.into_iter().chain(changes).collect();
        append_spliced(&self.definition, in_order(&mut edits), out);
    }

    fn inner_span(&self) -> Span {
        Span { start: self.id_span.start + 1, end: self.id_span.end - 1 }
    }
}

#[expect(clippy::ptr_arg, reason = "borrowed bytes are part of the program and take no memory")]
fn owned_bytes(text: &Cow<'static, [u8]>) -> usize {
    match text {
        Cow::Borrowed(_) => 0,
        Cow::Owned(text) => text.capacity(),
    }
}

impl Page {
    /// Finds the parts of the `result` of a list; `None` if it has no array of that kind.
    pub fn read(kind: Kind, line: &Bytes, result: Span) -> Option<Self> {
        let array = scan::member(line, result, kind.array_key())?;
        let entries = scan::count_elements(line, array)?;
        let next_cursor = scan::member(line, result, "nextCursor")
            .filter(|cursor| line[cursor.start] == b'"')
            .map(|cursor| line.slice(cursor.start..cursor.end));
        Some(Self { kind, line: line.clone(), array, entries, next_cursor, hints: Hints::read(line, result) })
    }

    /// Reads the items, in the server's order. `None` is an unusable entry: not an object, or without a name or URI that
    /// is a string.
    pub fn items(&self) -> impl Iterator<Item = Option<Item>> {
        let entries = scan::elements(&self.line, self.array).into_iter().flatten();
        entries.map(|entry| Item::read(self.kind, self.line.slice(entry.start..entry.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(kind: Kind, text: &'static str) -> Option<Page> {
        let line = Bytes::from_static(text.as_bytes());
        Page::read(kind, &line, Span { start: 0, end: line.len() })
    }

    fn page(text: &'static str) -> Option<Page> {
        page_of(Kind::Tool, text)
    }

    #[test]
    fn a_definition_keeps_every_byte_but_its_name() {
        let definition = r#"{ "description":"\u0041 1e2", "name" : "a\u0062" ,"x":{"name":"inner"},"n":1.0}"#;
        let tool = Item::read(Kind::Tool, Bytes::from_static(definition.as_bytes())).unwrap();
        assert_eq!(&*tool.id, "ab");
        assert_eq!(tool.id_token(), r#""a\u0062""#);
        let mut renamed = b"srv:".to_vec();
        renamed.extend_from_slice(tool.id_inner());
        let mut out = Vec::new();
        tool.write_for(Lifecycle::Session, Some(&renamed), &mut out);
        assert_eq!(out, definition.replace(r"a\u0062", r"srv:a\u0062").as_bytes());
    }

    #[test]
    fn each_kind_is_identified_by_its_own_member() {
        let definition = Bytes::from_static(br#"{"name":"n","uri":"u:\/\/x","uriTemplate":"u://{x}"}"#);
        let id = |kind| Item::read(kind, definition.clone()).unwrap().id.to_string();
        assert_eq!(Kind::ALL.map(id), ["n", "n", "u://x", "u://{x}"]);
        assert!(Item::read(Kind::Resource, Bytes::from_static(br#"{"name":"n"}"#)).is_none());
    }

    #[test]
    fn each_kind_is_read_from_its_own_array() {
        let text = r#"{"tools":[{"name":"t"}],"prompts":[],"resources":[{"uri":"a"},{"uri":"b"},{"name":"c"}],
            "resourceTemplates":[{"uriTemplate":"a{b}"}]}"#;
        let counts = Kind::ALL.map(|kind| {
            let page = page_of(kind, text).unwrap();
            (page.items().flatten().count(), page.entries)
        });
        assert_eq!(counts, [(1, 1), (0, 0), (2, 3), (1, 1)]);
    }

    #[test]
    fn a_page_is_read_with_its_cursor() {
        let page = page(r#"{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":""}"#).unwrap();
        assert_eq!(page.items().flatten().count(), 2);
        assert_eq!(page.next_cursor.unwrap(), "\"\"", "an empty cursor is a cursor");
        assert_eq!(page.hints, None);
    }

    #[test]
    fn a_modern_page_is_read_with_its_hints() {
        let page = page(r#"{"tools":[],"resultType":"complete","ttlMs":5,"cacheScope":"public"}"#).unwrap();
        assert_eq!(page.hints, Some(Hints { ttl_ms: 5, is_private: false }));
    }

    fn tool(definition: String) -> Item {
        Item::read(Kind::Tool, Bytes::from(definition)).unwrap()
    }

    #[test]
    fn what_is_derived_from_a_definition_is_counted() {
        assert_eq!(tool(r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned()).derived_bytes(), 0);
        let count = 10_000;
        let edited = r#""":true,"#.repeat(count);
        let schema = format!(r#"{{"type":"object","properties":{{{edited}"a":{{}}}}}}"#);
        let tool_with_edits = tool(format!(r#"{{"name":"t","inputSchema":{schema}}}"#));
        let derived = tool_with_edits.derived_bytes();
        assert_eq!(derived, count * size_of::<repair::Edit>());
        assert!(derived > 4 * tool_with_edits.definition.len(), "{derived} bytes are derived");
        let leaves: Vec<_> = (0..50).map(|n| format!(r#""l{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#)).collect();
        let outer = "n".repeat(1000);
        let schema =
            format!(r#"{{"type":"object","properties":{{"{outer}":{{"properties":{{{}}}}}}}}}"#, leaves.join(","));
        let annotated = tool(format!(r#"{{"name":"t","inputSchema":{schema}}}"#));
        assert_eq!(annotated.header_params().unwrap().len(), 50);
        assert!(annotated.derived_bytes() > 50 * 1000);
    }

    #[test]
    fn a_tool_with_too_many_headers_is_omitted_and_one_with_an_invalid_annotation_is_not() {
        let with = |properties: &str| {
            tool(format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{{properties}}}}}}}"#))
        };
        let many: Vec<_> = (0..101).map(|n| format!(r#""l{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#)).collect();
        let (left, flaws) = with(&many.join(",")).repaired(Kind::Tool);
        assert_eq!((left, flaws), (None, vec!["`inputSchema` has more than 100 x-mcp-header annotations".to_owned()]));
        let invalid = with(r#""n":{"type":"number","x-mcp-header":"N"}"#);
        let (left, flaws) = invalid.clone().repaired(Kind::Tool);
        assert_eq!((left.as_ref(), flaws), (Some(&invalid), vec![]), "it can be called where there are no headers");
        assert!(invalid.header_params().is_err());
    }

    #[test]
    fn what_is_no_tool_is_counted_and_passed_over() {
        let page = page(r#"{"tools":[1,{},{"name":5},{"name":""},{"name":"\ud800"},{"name":"ok"}],"nextCursor":null}"#);
        let page = page.unwrap();
        assert_eq!((page.items().flatten().count(), page.entries), (1, 6));
        assert_eq!(page.next_cursor, None);
    }

    #[test]
    fn a_result_without_tools_is_no_page() {
        assert!(page(r#"{"tools":{}}"#).is_none());
        assert!(page(r#"{}"#).is_none());
        assert!(page("5").is_none());
    }
}
