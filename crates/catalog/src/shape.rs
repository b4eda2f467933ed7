//! What the protocol says a definition looks like, as far as strict clients look: a whole list is refused for one entry
//! that is different.

use crate::item::Kind;

/// What a value must be.
#[derive(Debug)]
pub(crate) enum Shape {
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
    Map(&'static Shape),
    /// A list of things that are alike.
    List(&'static Shape),
    /// A schema that can be compiled, and more: some clients compile every `outputSchema` of a list.
    Sound(&'static Shape),
}

/// A member that the protocol knows.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    pub(crate) shape: Shape,
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
pub(crate) fn of(kind: Kind) -> &'static Shape {
    match kind {
        Kind::Tool => &TOOL,
        Kind::Prompt => &PROMPT,
        Kind::Resource => &RESOURCE,
        Kind::Template => &TEMPLATE,
    }
}

/// What a tool must be for legacy clients besides. Modern ones take any schema of a result.
pub(crate) const LEGACY_TOOL: Shape = Shape::Object(&[
    optional("inputSchema", Shape::Object(&[optional("properties", LEGACY_PROPERTIES)])),
    optional("outputSchema", Shape::Sound(&LEGACY_OUTPUT_SCHEMA)),
]);

const LEGACY_OUTPUT_SCHEMA: Shape =
    Shape::Object(&[required("type", Shape::Word(&["object"])), optional("properties", LEGACY_PROPERTIES)]);

const LEGACY_PROPERTIES: Shape = Shape::Map(&Shape::Schema { booleans: false });

const TOOL: Shape = Shape::Object(&[
    required("name", Shape::Text),
    // Who says nothing of what a tool takes forbids nothing.
    Member { name: "inputSchema", need: Need::Or(r#"{"type":"object"}"#), shape: INPUT_SCHEMA },
    optional("outputSchema", Shape::Object(&[optional("$schema", Shape::Text)])),
    optional("annotations", TOOL_ANNOTATIONS),
    optional("execution", EXECUTION),
    optional("title", Shape::Text),
    optional("description", Shape::Text),
    optional("icons", ICONS),
    optional("_meta", Shape::Anything),
]);

const INPUT_SCHEMA: Shape = Shape::Object(&[
    // Arguments are an object, whatever else is said of them.
    Member { name: "type", need: Need::Or(r#""object""#), shape: Shape::ObjectType },
    optional("properties", Shape::Map(&Shape::Schema { booleans: true })),
    optional("required", Shape::List(&Shape::Text)),
    optional("$schema", Shape::Text),
]);

const TOOL_ANNOTATIONS: Shape = Shape::Object(&[
    optional("title", Shape::Text),
    optional("readOnlyHint", Shape::Flag),
    optional("destructiveHint", Shape::Flag),
    optional("idempotentHint", Shape::Flag),
    optional("openWorldHint", Shape::Flag),
]);

const EXECUTION: Shape = Shape::Object(&[optional("taskSupport", Shape::Word(&["required", "optional", "forbidden"]))]);

const ICONS: Shape = Shape::List(&Shape::Object(&[
    required("src", Shape::Text),
    optional("mimeType", Shape::Text),
    optional("sizes", Shape::List(&Shape::Text)),
    optional("theme", Shape::Word(&["light", "dark"])),
]));

const PROMPT: Shape = Shape::Object(&[
    required("name", Shape::Text),
    optional("arguments", Shape::List(&PROMPT_ARGUMENT)),
    optional("title", Shape::Text),
    optional("description", Shape::Text),
    optional("icons", ICONS),
    optional("_meta", Shape::Anything),
]);

const PROMPT_ARGUMENT: Shape = Shape::Object(&[
    required("name", Shape::Text),
    optional("title", Shape::Text),
    optional("description", Shape::Text),
    optional("required", Shape::Flag),
]);

const RESOURCE: Shape = Shape::Object(&[
    required("uri", Shape::Address),
    Member { name: "name", need: Need::OrItsId, shape: Shape::Text },
    optional("size", Shape::Whole),
    optional("mimeType", Shape::Text),
    optional("annotations", ANNOTATIONS),
    optional("title", Shape::Text),
    optional("description", Shape::Text),
    optional("icons", ICONS),
    optional("_meta", Shape::Anything),
]);

const TEMPLATE: Shape = Shape::Object(&[
    required("uriTemplate", Shape::Text),
    Member { name: "name", need: Need::OrItsId, shape: Shape::Text },
    optional("mimeType", Shape::Text),
    optional("annotations", ANNOTATIONS),
    optional("title", Shape::Text),
    optional("description", Shape::Text),
    optional("icons", ICONS),
    optional("_meta", Shape::Anything),
]);

const ANNOTATIONS: Shape = Shape::Object(&[
    optional("audience", Shape::List(&Shape::Word(&["user", "assistant"]))),
    optional("priority", Shape::Share),
    optional("lastModified", Shape::Moment),
]);

const fn optional(name: &'static str, shape: Shape) -> Member {
    Member { name, need: Need::Optional, shape }
}

const fn required(name: &'static str, shape: Shape) -> Member {
    Member { name, need: Need::Required, shape }
}
