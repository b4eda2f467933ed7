//! The rules of the protocol for definitions, as far as strict clients check them: they reject a whole list for one
//! invalid entry.

use crate::item::Kind;

/// A rule for a value.
#[derive(Debug)]
pub(crate) enum Rule {
    /// A string without lone surrogates.
    Text,
    /// The URI of a resource, with a scheme.
    Address,
    /// A date and time with its offset, such as `2026-07-28T12:00:00Z`.
    Moment,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole,
    /// A number from 0 to 1.
    Share,
    /// One of these words.
    Word(&'static [&'static str]),
    /// The `type` of an object schema. A list of types that contains `object` becomes that word.
    ObjectType,
    /// A schema. Legacy clients support only objects, so for them `true` and `false` become equivalent objects.
    Schema { booleans: bool },
    /// An object with any members.
    Anything,
    /// An object with rules for some of its members.
    Object(&'static [Member]),
    /// An object with the same rule for all members.
    Map(&'static Rule),
    /// A list with the same rule for all elements.
    List(&'static Rule),
    /// A schema that can be compiled, in addition to a rule: some clients compile every `outputSchema` of a list.
    Sound(&'static Rule),
}

/// A member of the protocol.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    pub(crate) rule: Rule,
}

/// What happens to an object without this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is valid.
    Optional,
    /// It is useless.
    Required,
    /// It gets this value, also in place of `null`.
    Or(&'static str),
    /// The same with the identifier of the entry.
    OrItsId,
}

/// The rule for definitions of a kind, for all clients.
pub(crate) fn of(kind: Kind) -> &'static Rule {
    match kind {
        Kind::Tool => &TOOL,
        Kind::Prompt => &PROMPT,
        Kind::Resource => &RESOURCE,
        Kind::Template => &TEMPLATE,
    }
}

/// The additional rule for tools for legacy clients. Modern ones accept any schema of a result.
pub(crate) const LEGACY_TOOL: Rule = Rule::Object(&[
    optional("inputSchema", Rule::Object(&[optional("properties", LEGACY_PROPERTIES)])),
    optional("outputSchema", Rule::Sound(&LEGACY_OUTPUT_SCHEMA)),
]);

const LEGACY_OUTPUT_SCHEMA: Rule =
    Rule::Object(&[required("type", Rule::Word(&["object"])), optional("properties", LEGACY_PROPERTIES)]);

const LEGACY_PROPERTIES: Rule = Rule::Map(&Rule::Schema { booleans: false });

const TOOL: Rule = Rule::Object(&[
    required("name", Rule::Text),
    // A tool without a schema of its arguments accepts anything.
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
    // Arguments are an object, whatever else the schema says.
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
