//! A schema compiled to nodes that refer to each other by number.

use std::collections::HashMap;

use serde_json::{Number, Value};

use crate::equality::ValueHasher;
use crate::format::Format;

/// The number of a node.
pub(crate) type NodeId = usize;

/// The number of a resource: a schema with a base URI of its own.
pub(crate) type ResourceId = usize;

/// Which rules a schema follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Draft {
    Draft4,
    Draft7,
    Draft201909,
    Draft202012,
}

impl Draft {
    /// The draft that a `$schema` names.
    pub(crate) fn named(uri: &str) -> Option<Self> {
        let uri = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://"))?;
        match uri.trim_end_matches('#') {
            "json-schema.org/draft-04/schema" => Some(Self::Draft4),
            "json-schema.org/draft-06/schema" | "json-schema.org/draft-07/schema" => Some(Self::Draft7),
            "json-schema.org/draft/2019-09/schema" => Some(Self::Draft201909),
            "json-schema.org/draft/2020-12/schema" | "json-schema.org/schema" => Some(Self::Draft202012),
            _ => None,
        }
    }
}

/// A compiled schema.
pub(crate) struct Program<'s> {
    pub(crate) nodes: Vec<Node<'s>>,
    pub(crate) resources: Vec<Resource>,
    /// The patterns of the schema, as they are written.
    pub(crate) patterns: Vec<&'s str>,
    /// Whether any keyword asks which members or items were evaluated.
    pub(crate) needs_marks: bool,
    pub(crate) hasher: ValueHasher,
}

/// A schema inside the schema.
pub(crate) struct Node<'s> {
    pub(crate) schema: &'s Value,
    pub(crate) resource: ResourceId,
    pub(crate) keywords: Vec<Keyword<'s>>,
}

/// A schema with a base URI of its own.
pub(crate) struct Resource {
    pub(crate) base: String,
    pub(crate) draft: Draft,
    pub(crate) root: NodeId,
    pub(crate) anchors: HashMap<String, NodeId>,
    pub(crate) dynamic_anchors: HashMap<String, NodeId>,
    /// `$recursiveAnchor` of draft 2019-09.
    pub(crate) is_recursive: bool,
}

/// One rule. Rules that look at what others found come last.
pub(crate) enum Keyword<'s> {
    /// The schema `false`.
    Never,
    Types(Vec<Type>),
    Enum {
        options: &'s [Value],
        hashes: HashMap<u64, Vec<usize>>,
    },
    Const(&'s Value),
    Minimum(&'s Number),
    ExclusiveMinimum(&'s Number),
    Maximum(&'s Number),
    ExclusiveMaximum(&'s Number),
    MultipleOf(&'s Number),
    MinLength(u64),
    MaxLength(u64),
    Pattern(usize),
    Format(Format, &'s str),
    MinItems(u64),
    MaxItems(u64),
    UniqueItems,
    Items {
        first: Vec<NodeId>,
        rest: Option<NodeId>,
    },
    Contains {
        node: NodeId,
        min: u64,
        max: Option<u64>,
        marks: bool,
    },
    MinProperties(u64),
    MaxProperties(u64),
    Required(Vec<&'s str>),
    PropertyNames(NodeId),
    Members(Members<'s>),
    DependentRequired(Vec<(&'s str, Vec<&'s str>)>),
    DependentSchemas(Vec<(&'s str, NodeId)>),
    AllOf(Vec<NodeId>),
    AnyOf(Vec<NodeId>),
    OneOf(Vec<NodeId>),
    Not(NodeId),
    If {
        condition: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
    Reference(NodeId),
    /// The target of `$dynamicRef` that is found without looking at the dynamic scope, and the anchor to look for there.
    DynamicReference {
        target: NodeId,
        anchor: Option<String>,
    },
    RecursiveReference(NodeId),
    /// A reference that leads nowhere.
    Unresolved(&'s str),
    UnevaluatedProperties(NodeId),
    UnevaluatedItems(NodeId),
}

/// `properties`, `patternProperties` and `additionalProperties`, which depend on each other.
pub(crate) struct Members<'s> {
    pub(crate) named: HashMap<&'s str, NodeId>,
    pub(crate) patterns: Vec<(usize, NodeId)>,
    pub(crate) additional: Option<NodeId>,
}

/// A type of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Null,
    Boolean,
    Number,
    Integer,
    String,
    Array,
    Object,
}

impl Type {
    const ALL: [Self; 7] =
        [Self::Null, Self::Boolean, Self::Number, Self::Integer, Self::String, Self::Array, Self::Object];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}
