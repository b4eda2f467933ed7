//! Schemas of JSON values. The same schema checks requests and appears in the OpenAPI document.
//!
//! - [`Schema`] (here): builders
//! - `check`: validates a value; `json_schema`: renders JSON Schema

mod check;
mod json_schema;

pub(crate) use check::problem;
use serde_json::Value;

/// A schema.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    kind: Kind,
    is_nullable: bool,
    about: Option<&'static str>,
    default: Option<Value>,
    example: Option<Value>,
}

#[derive(Debug, Clone)]
enum Kind {
    Anything,
    Text {
        pattern: Option<TextPattern>,
        longest: Option<usize>,
        format: Option<&'static str>,
    },
    /// One of these words, in any case.
    Enum(Vec<&'static str>),
    Integer {
        least: i64,
        most: i64,
    },
    Number,
    /// A number from 0 to 1.
    Share,
    Truth,
    /// An object that is checked elsewhere; the known members are documented but not checked.
    AnyObject {
        documented: Vec<Member>,
        at_least_one_of: Vec<&'static str>,
    },
    Object {
        members: Vec<Member>,
        either_of: Vec<&'static str>,
        is_open: bool,
    },
    List {
        of: Box<Schema>,
        least: usize,
    },
    Either(Vec<Schema>),
    /// A schema with a name in the OpenAPI document.
    Named(&'static str),
}

/// A pattern for strings, and the function that checks it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextPattern {
    pub(crate) pattern: &'static str,
    pub(crate) fits: fn(&str) -> bool,
    /// The message for people.
    pub(crate) message: &'static str,
}

/// Not every database can store a NUL.
const WITHOUT_NUL: TextPattern = TextPattern {
    pattern: "^[^\\u0000]*$",
    fits: |text| !text.contains('\0'),
    message: "the text must not contain NUL",
};

/// A member of an object.
#[derive(Debug, Clone)]
struct Member {
    name: &'static str,
    schema: Schema,
    is_required: bool,
}

impl Schema {
    fn of(kind: Kind) -> Self {
        Self { kind, is_nullable: false, about: None, default: None, example: None }
    }

    pub(crate) fn anything() -> Self {
        Self::of(Kind::Anything)
    }

    pub(crate) fn text() -> Self {
        Self::of(Kind::Text { pattern: None, longest: None, format: None })
    }

    /// A string that can be stored, or compared with stored ones.
    pub(crate) fn storable_text() -> Self {
        Self::of(Kind::Text { pattern: Some(WITHOUT_NUL), longest: None, format: None })
    }

    /// A string with a named format, such as `uuid` or `date-time`.
    pub(crate) fn formatted(format: &'static str) -> Self {
        Self::of(Kind::Text { pattern: None, longest: None, format: Some(format) })
    }

    /// A string with a pattern and a maximum length.
    pub(crate) fn matching(pattern: TextPattern, longest: usize) -> Self {
        Self::of(Kind::Text { pattern: Some(pattern), longest: Some(longest), format: None })
    }

    pub(crate) fn one_of(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self::of(Kind::Enum(words.into_iter().collect()))
    }

    /// An integer in a range.
    pub(crate) fn integer(least: i64, most: i64) -> Self {
        Self::of(Kind::Integer { least, most })
    }

    /// A count.
    pub(crate) fn count() -> Self {
        Self::integer(0, i64::MAX)
    }

    pub(crate) fn number() -> Self {
        Self::of(Kind::Number)
    }

    /// A number from 0 to 1.
    pub(crate) fn share() -> Self {
        Self::of(Kind::Share)
    }

    pub(crate) fn truth() -> Self {
        Self::of(Kind::Truth)
    }

    pub(crate) fn any_object() -> Self {
        Self::of(Kind::AnyObject { documented: Vec::new(), at_least_one_of: Vec::new() })
    }

    /// An object; [`Schema::with`] and [`Schema::with_optional`] add members. Others are ignored.
    pub(crate) fn object() -> Self {
        Self::of(Kind::Object { members: Vec::new(), either_of: Vec::new(), is_open: true })
    }

    pub(crate) fn list(of: Self) -> Self {
        Self::of(Kind::List { of: Box::new(of), least: 0 })
    }

    /// The list must not be empty.
    pub(crate) fn not_empty(mut self) -> Self {
        if let Kind::List { least, .. } = &mut self.kind {
            *least = 1;
        }
        self
    }

    pub(crate) fn either(these: impl IntoIterator<Item = Self>) -> Self {
        Self::of(Kind::Either(these.into_iter().collect()))
    }

    /// A reference to a schema with a name in the OpenAPI document.
    pub(crate) fn named(name: &'static str) -> Self {
        Self::of(Kind::Named(name))
    }

    /// Adds a required member.
    pub(crate) fn with(self, name: &'static str, schema: Self) -> Self {
        self.member(Member { name, schema, is_required: true })
    }

    /// Adds an optional member.
    pub(crate) fn with_optional(self, name: &'static str, schema: Self) -> Self {
        self.member(Member { name, schema, is_required: false })
    }

    fn member(mut self, member: Member) -> Self {
        if let Kind::Object { members, .. } | Kind::AnyObject { documented: members, .. } = &mut self.kind {
            members.push(member);
        }
        self
    }

    /// Requires one of these members.
    pub(crate) fn with_either(mut self, names: &[&'static str]) -> Self {
        if let Kind::Object { either_of: choices, .. } | Kind::AnyObject { at_least_one_of: choices, .. } =
            &mut self.kind
        {
            choices.extend(names);
        }
        self
    }

    /// Refuses other members.
    pub(crate) fn and_no_more(mut self) -> Self {
        if let Kind::Object { is_open, .. } = &mut self.kind {
            *is_open = false;
        }
        self
    }

    /// Limits the length in characters.
    pub(crate) fn at_most(mut self, characters: usize) -> Self {
        if let Kind::Text { longest, .. } = &mut self.kind {
            *longest = Some(characters);
        }
        self
    }

    /// Allows null.
    pub(crate) fn or_null(mut self) -> Self {
        self.is_nullable = true;
        self
    }

    /// Sets the description.
    pub(crate) fn about(mut self, about: &'static str) -> Self {
        self.about = Some(about);
        self
    }

    /// Sets the default.
    pub(crate) fn by_default(mut self, default: impl Into<Value>) -> Self {
        self.default = Some(default.into());
        self
    }

    /// Sets an example.
    pub(crate) fn such_as(mut self, example: impl Into<Value>) -> Self {
        self.example = Some(example.into());
        self
    }

    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.kind, Kind::Integer { .. })
    }

    pub(crate) fn is_truth(&self) -> bool {
        matches!(self.kind, Kind::Truth)
    }

    /// The names of an object's known members.
    #[cfg(test)]
    pub(crate) fn member_names(&self) -> Vec<&'static str> {
        match &self.kind {
            Kind::Object { members, .. } => members.iter().map(|member| member.name).collect(),
            _ => Vec::new(),
        }
    }
}
