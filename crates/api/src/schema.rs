//! What JSON may look like: one description that requests are checked by and that the OpenAPI document shows.
//!
//! - [`Schema`] (here) and how one is made
//! - `check`: what is wrong with a value; `show`: the same as JSON Schema

mod check;
mod json_schema;

pub(crate) use check::problem;
use serde_json::Value;

/// What a value may be.
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
        shape: Option<Shape>,
        longest: Option<usize>,
        format: Option<&'static str>,
    },
    /// One of some words, in any case.
    Word(Vec<&'static str>),
    Integer {
        least: i64,
        most: i64,
    },
    Number,
    /// A number from 0 to 1.
    Share,
    Truth,
    /// An object that somebody else looks into; what is known of its members is told and not checked.
    AnyObject {
        told: Vec<Member>,
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
    /// Any of these.
    Either(Vec<Schema>),
    /// One that has a name of its own in the document.
    Named(&'static str),
}

/// A pattern that texts must fit, and the code that knows whether they do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) pattern: &'static str,
    pub(crate) fits: fn(&str) -> bool,
    /// What would be right, for people.
    pub(crate) says: &'static str,
}

/// Not every database keeps a NUL.
const WITHOUT_NUL: Shape =
    Shape { pattern: "^[^\\u0000]*$", fits: |text| !text.contains('\0'), says: "a text must not contain NUL" };

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

    /// Any JSON at all.
    pub(crate) fn anything() -> Self {
        Self::of(Kind::Anything)
    }

    /// A text.
    pub(crate) fn text() -> Self {
        Self::of(Kind::Text { shape: None, longest: None, format: None })
    }

    /// A text that can be kept, or looked for among what is kept.
    pub(crate) fn kept_text() -> Self {
        Self::of(Kind::Text { shape: Some(WITHOUT_NUL), longest: None, format: None })
    }

    /// A text in a format that has a name, such as `uuid` or `date-time`.
    pub(crate) fn formatted(format: &'static str) -> Self {
        Self::of(Kind::Text { shape: None, longest: None, format: Some(format) })
    }

    /// A text of a shape.
    pub(crate) fn shaped(shape: Shape, longest: usize) -> Self {
        Self::of(Kind::Text { shape: Some(shape), longest: Some(longest), format: None })
    }

    /// One of some words.
    pub(crate) fn word(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self::of(Kind::Word(words.into_iter().collect()))
    }

    /// A whole number within limits.
    pub(crate) fn integer(least: i64, most: i64) -> Self {
        Self::of(Kind::Integer { least, most })
    }

    /// How many there are of something.
    pub(crate) fn count() -> Self {
        Self::integer(0, i64::MAX)
    }

    /// A number.
    pub(crate) fn number() -> Self {
        Self::of(Kind::Number)
    }

    /// A number from 0 to 1.
    pub(crate) fn share() -> Self {
        Self::of(Kind::Share)
    }

    /// True or false.
    pub(crate) fn truth() -> Self {
        Self::of(Kind::Truth)
    }

    /// An object with any members.
    pub(crate) fn any_object() -> Self {
        Self::of(Kind::AnyObject { told: Vec::new(), at_least_one_of: Vec::new() })
    }

    /// An object; its members are added by [`Schema::with`] and [`Schema::with_optional`]. Others are ignored.
    pub(crate) fn object() -> Self {
        Self::of(Kind::Object { members: Vec::new(), either_of: Vec::new(), is_open: true })
    }

    /// A list.
    pub(crate) fn list(of: Self) -> Self {
        Self::of(Kind::List { of: Box::new(of), least: 0 })
    }

    /// A list with something in it.
    pub(crate) fn not_empty(mut self) -> Self {
        if let Kind::List { least, .. } = &mut self.kind {
            *least = 1;
        }
        self
    }

    /// Any of these.
    pub(crate) fn either(these: impl IntoIterator<Item = Self>) -> Self {
        Self::of(Kind::Either(these.into_iter().collect()))
    }

    /// One that has a name of its own in the document.
    pub(crate) fn named(name: &'static str) -> Self {
        Self::of(Kind::Named(name))
    }

    /// The object must have this member.
    pub(crate) fn with(self, name: &'static str, schema: Self) -> Self {
        self.member(Member { name, schema, is_required: true })
    }

    /// The object may have this member.
    pub(crate) fn with_optional(self, name: &'static str, schema: Self) -> Self {
        self.member(Member { name, schema, is_required: false })
    }

    fn member(mut self, member: Member) -> Self {
        if let Kind::Object { members, .. } | Kind::AnyObject { told: members, .. } = &mut self.kind {
            members.push(member);
        }
        self
    }

    /// The object must have one of these members.
    pub(crate) fn with_either(mut self, names: &[&'static str]) -> Self {
        if let Kind::Object { either_of: choices, .. } | Kind::AnyObject { at_least_one_of: choices, .. } =
            &mut self.kind
        {
            choices.extend(names);
        }
        self
    }

    /// The object may have no other members.
    pub(crate) fn and_no_more(mut self) -> Self {
        if let Kind::Object { is_open, .. } = &mut self.kind {
            *is_open = false;
        }
        self
    }

    /// At most so many characters.
    pub(crate) fn at_most(mut self, characters: usize) -> Self {
        if let Kind::Text { longest, .. } = &mut self.kind {
            *longest = Some(characters);
        }
        self
    }

    /// It may be null.
    pub(crate) fn or_null(mut self) -> Self {
        self.is_nullable = true;
        self
    }

    /// What it means.
    pub(crate) fn about(mut self, about: &'static str) -> Self {
        self.about = Some(about);
        self
    }

    /// What it is if it is not given.
    pub(crate) fn by_default(mut self, default: impl Into<Value>) -> Self {
        self.default = Some(default.into());
        self
    }

    /// What it could be.
    pub(crate) fn such_as(mut self, example: impl Into<Value>) -> Self {
        self.example = Some(example.into());
        self
    }

    /// Whether it is a whole number.
    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.kind, Kind::Integer { .. })
    }

    /// Whether it is true or false.
    pub(crate) fn is_truth(&self) -> bool {
        matches!(self.kind, Kind::Truth)
    }

    /// The members an object is known to have.
    #[cfg(test)]
    pub(crate) fn member_names(&self) -> Vec<&'static str> {
        match &self.kind {
            Kind::Object { members, .. } => members.iter().map(|member| member.name).collect(),
            _ => Vec::new(),
        }
    }
}
