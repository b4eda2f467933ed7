//! What the protocol says a definition looks like, as far as strict clients look: a whole list is refused for one entry
//! that is different.

use crate::item::Kind;

/// What a value must be.
#[derive(Debug)]
pub(crate) enum Rule {
    /// A string that is text: no lone surrogates.
    Text,
    /// The address of a resource: a URI, so there is a scheme.
    Address,
    /// A date and time with its offset, as in `2026-07-28T12:00:00Z`.
    Moment,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole,
    /// A number from 0 to 1.
    Share,
    /// One of these words.
    Word(&'static [&'static str]),
    /// The `type` of a schema of an object. A list of types among which `object` is becomes that word.
    ObjectType,
    /// A schema. Legacy clients know objects only, so for them `true` and `false` become the objects that say the same.
    Schema { booleans: bool },
    /// An object of any members.
    Anything,
    /// An object, and what some of its members must be.
    Object(&'static [Member]),
    /// An object whose members are all alike, whatever their names.
    Map(&'static Rule),
    /// A list of things that are alike.
    List(&'static Rule),
    /// A schema that can be compiled, and more: some clients compile every `outputSchema` of a list.
    Sound(&'static Rule),
}

/// A member that the protocol knows.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    pub(crate) rule: Rule,
}

/// What becomes of an object without this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is as good.
    Optional,
    /// It is of no use.
    Required,
    /// It gets this one, and so it does instead of `null`.
    Or(&'static str),
    /// The same with what identifies the entry.
    OrItsId,
}

/// What a definition of that kind must be for everybody.
pub(crate) fn of(kind: Kind) -> &'static Rule {
    match kind {
        Kind::Tool => &TOOL,
        Kind::Prompt => &PROMPT,
        Kind::Resource => &RESOURCE,
        Kind::Template => &TEMPLATE,
    }
}

/// What a tool must be for legacy clients besides. Modern ones take any schema of a result.
pub(crate) const LEGACY_TOOL: Rule = Rule::Object(&[
    optional("inputSchema", Rule::Object(&[optional("properties", LEGACY_PROPERTIES)])),
    optional("outputSchema", Rule::Sound(&LEGACY_OUTPUT_SCHEMA)),
]);

const LEGACY_OUTPUT_SCHEMA: Rule =
    Rule::Object(&[required("type", Rule::Word(&["object"])), optional("properties", LEGACY_PROPERTIES)]);

const LEGACY_PROPERTIES: Rule = Rule::Map(&Rule::Schema { booleans: false });

const TOOL: Rule = Rule::Object(&[
    required("name", Rule::Text),
    // Who says nothing of what a tool takes forbids nothing.
    Member { name: "inputSchema", need: Need::Or(r#"{"type":"object"}"#), rule: INPUT_SCHEMA },
    optional("outputSchema", Rule::Object(&[optional("$schema", Rule::Text)])),
    optional("annotations", TOOL_ANNOTATIONS),
    optional("execution", EXECUTION),
    optional("title", Rule::Text),
    optional("description", Rule::Text),
    optional("icons", ICONS),
    optional("_meta", Rule::Anything),
]);

const INPUT_SCHEMA: Rule = Rule::Object(&[
    // Arguments are an object, whatever else is said of them.
    Member { name: "type", need: Need::Or(r#""object""#), rule: Rule::ObjectType },
    optional("properties", Rule::Map(&Rule::Schema { booleans: true })),
    optional("required", Rule::List(&Rule::Text)),
    optional("$schema", Rule::Text),
]);

const TOOL_ANNOTATIONS: Rule = Rule::Object(&[
    optional("title", Rule::Text),
    optional("readOnlyHint", Rule::Flag),
    optional("destructiveHint", Rule::Flag),
    optional("idempotentHint", Rule::Flag),
    optional("openWorldHint", Rule::Flag),
]);

const EXECUTION: Rule = Rule::Object(&[optional("taskSupport", Rule::Word(&["required", "optional", "forbidden"]))]);

const ICONS: Rule = Rule::List(&Rule::Object(&[
    required("src", Rule::Text),
    optional("mimeType", Rule::Text),
    optional("sizes", Rule::List(&Rule::Text)),
    optional("theme", Rule::Word(&["light", "dark"])),
]));

const PROMPT: Rule = Rule::Object(&[
    required("name", Rule::Text),
    optional("arguments", Rule::List(&PROMPT_ARGUMENT)),
    optional("title", Rule::Text),
    optional("description", Rule::Text),
    optional("icons", ICONS),
    optional("_meta", Rule::Anything),
]);

const PROMPT_ARGUMENT: Rule = Rule::Object(&[
    required("name", Rule::Text),
    optional("title", Rule::Text),
    optional("description", Rule::Text),
    optional("required", Rule::Flag),
]);

const RESOURCE: Rule = Rule::Object(&[
    required("uri", Rule::Address),
    Member { name: "name", need: Need::OrItsId, rule: Rule::Text },
    optional("size", Rule::Whole),
    optional("mimeType", Rule::Text),
    optional("annotations", ANNOTATIONS),
    optional("title", Rule::Text),
    optional("description", Rule::Text),
    optional("icons", ICONS),
    optional("_meta", Rule::Anything),
]);

const TEMPLATE: Rule = Rule::Object(&[
    required("uriTemplate", Rule::Text),
    Member { name: "name", need: Need::OrItsId, rule: Rule::Text },
    optional("mimeType", Rule::Text),
    optional("annotations", ANNOTATIONS),
    optional("title", Rule::Text),
    optional("description", Rule::Text),
    optional("icons", ICONS),
    optional("_meta", Rule::Anything),
]);

const ANNOTATIONS: Rule = Rule::Object(&[
    optional("audience", Rule::List(&Rule::Word(&["user", "assistant"]))),
    optional("priority", Rule::Share),
    optional("lastModified", Rule::Moment),
]);

const fn optional(name: &'static str, rule: Rule) -> Member {
    Member { name, need: Need::Optional, rule }
}

const fn required(name: &'static str, rule: Rule) -> Member {
    Member { name, need: Need::Required, rule }
}
