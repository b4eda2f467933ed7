//! Values of statements and rows, the same for both databases. Types that one of them lacks (UUIDs, times, booleans)
//! are stored in another form, and read in either.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::{RawJson, ShortStr, Timestamp};

/// A value in a statement or in a row.
pub(crate) type Value = Parameter<'static>;

/// A value that may be borrowed.
#[derive(Clone, PartialEq)]
pub(crate) enum Parameter<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Text(Cow<'v, str>),
    /// A word of an enum.
    Word(&'static str),
    /// JSON as text.
    Json(Cow<'v, str>),
    Uuid(Uuid),
    Time(Timestamp),
    Bytes(Vec<u8>),
}

/// A stored value that does not have the expected type.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("column `{column}` has no {wanted}")]
    Value { column: &'static str, wanted: &'static str },
    #[error("sealed with another key")]
    OtherKey,
    #[error("the sealed config cannot be opened: {0}")]
    Seal(&'static str),
}

macro_rules! into_value {
    ($($from:ty => |$it:ident| $value:expr),+ $(,)?) => {
        $(impl From<$from> for Value {
            fn from($it: $from) -> Self {
                $value
            }
        })+
    };
}

into_value! {
    bool => |it| Self::Bool(it),
    i64 => |it| Self::Int(it),
    u32 => |it| Self::Int(it.into()),
    u64 => |it| Self::Int(i64::try_from(it).unwrap_or(i64::MAX)),
    &str => |it| Self::Text(without_nul(it).into_owned().into()),
    String => |it| if has_nul(&it) { Self::from(&*it) } else { Self::Text(it.into()) },
    &String => |it| Self::from(&**it),
    Timestamp => |it| Self::Time(it),
    Duration => |it| Self::Int(i64::try_from(it.as_micros()).unwrap_or(i64::MAX)),
    &RawJson => |it| Self::Json(it.get().to_owned().into()),
    &serde_json::Value => |it| Self::Json(json_without_nul(it).into()),
    Vec<u8> => |it| Self::Bytes(it),
    crate::ServerId => |it| Self::Uuid(it.0),
    crate::ExecutionId => |it| Self::Uuid(it.0),
    crate::ToolId => |it| Self::Int(it.0),
    crate::BindingId => |it| Self::Int(it.0),
    crate::Transport => |it| Self::Word(it.stored()),
    crate::Status => |it| Self::Word(it.stored()),
    crate::Deployment => |it| Self::Word(it.stored()),
    crate::Origin => |it| Self::Word(it.stored()),
    crate::EventKind => |it| Self::Word(it.stored()),
    crate::ExecutionStatus => |it| Self::Word(it.stored()),
    crate::Source => |it| Self::Word(it.stored()),
    crate::SectionKind => |it| Self::Word(it.stored()),
    crate::LimitKind => |it| Self::Word(it.stored()),
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'v> Parameter<'v> {
    /// A borrowed string, or null.
    pub(crate) fn text(text: Option<&'v str>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(without_nul(text)))
    }

    /// Borrowed JSON, or null.
    pub(crate) fn json(json: Option<&'v RawJson>) -> Self {
        json.map_or(Self::Null, |json| Self::Json(json.get().into()))
    }
}

/// Removes NULs, which PostgreSQL does not accept in text. Error messages may contain them. Both databases are treated
/// the same.
fn without_nul(text: &str) -> Cow<'_, str> {
    if has_nul(text) { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

fn has_nul(text: &str) -> bool {
    text.as_bytes().contains(&0)
}

fn json_without_nul(value: &serde_json::Value) -> String {
    let text = value.to_string();
    if !text.contains("\\u0000") {
        return text;
    }
    clean(value).to_string()
}

fn clean(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value::{Array, Object, String};
    match value {
        String(text) => String(without_nul(text).into_owned()),
        Array(items) => Array(items.iter().map(clean).collect()),
        Object(members) => {
            Object(members.iter().map(|(key, value)| (without_nul(key).into_owned(), clean(value))).collect())
        }
        other => other.clone(),
    }
}

/// A type that can be read from a column.
pub(crate) trait FromValue: Sized {
    /// The expected type, for errors.
    const WANTED: &'static str;

    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($to:ty, $wanted:literal { $($pattern:pat => $value:expr),+ $(,)? })+) => {
        $(impl FromValue for $to {
            const WANTED: &'static str = $wanted;

            fn from_value(value: Value) -> Option<Self> {
                match value {
                    $($pattern => $value,)+
                    _ => None,
                }
            }
        })+
    };
}

from_value! {
    bool, "yes or no" { Value::Bool(it) => Some(it), Value::Int(it) => Some(it != 0) }
    i64, "number" { Value::Int(it) => Some(it) }
    u64, "number" { Value::Int(it) => it.try_into().ok() }
    u32, "number" { Value::Int(it) => it.try_into().ok() }
    String, "text" { Value::Text(it) | Value::Json(it) => Some(it.into_owned()) }
    ShortStr, "text" { Value::Text(it) => Some(Self::from(&*it)) }
    Arc<str>, "text" { Value::Text(it) => Some(it.into()) }
    Uuid, "UUID" { Value::Uuid(it) => Some(it), Value::Text(it) => it.parse().ok() }
    Timestamp, "time" { Value::Time(it) => Some(it), Value::Int(it) => Some(Self::from_micros(it)) }
    Duration, "span of time" { Value::Int(it) => it.try_into().ok().map(Self::from_micros) }
    RawJson, "JSON" { Value::Json(it) | Value::Text(it) => Self::parse(it.into_owned()).ok() }
    serde_json::Value, "JSON" { Value::Json(it) | Value::Text(it) => serde_json::from_str(&it).ok() }
    Vec<u8>, "bytes" { Value::Bytes(it) => Some(it) }
    crate::ServerId, "UUID" { it @ (Value::Uuid(_) | Value::Text(_)) => Uuid::from_value(it).map(Self) }
    crate::ExecutionId, "UUID" { it @ (Value::Uuid(_) | Value::Text(_)) => Uuid::from_value(it).map(Self) }
    crate::ToolId, "number" { Value::Int(it) => Some(Self(it)) }
    crate::BindingId, "number" { Value::Int(it) => Some(Self(it)) }
    crate::Transport, "transport" { Value::Text(it) => it.parse().ok() }
    crate::Status, "status" { Value::Text(it) => it.parse().ok() }
    crate::Deployment, "deployment type" { Value::Text(it) => it.parse().ok() }
    crate::Origin, "origin" { Value::Text(it) => it.parse().ok() }
    crate::EventKind, "event type" { Value::Text(it) => it.parse().ok() }
    crate::ExecutionStatus, "execution status" { Value::Text(it) => it.parse().ok() }
    crate::Source, "source" { Value::Text(it) => it.parse().ok() }
    crate::SectionKind, "section type" { Value::Text(it) => it.parse().ok() }
    crate::LimitKind, "kind of limit" { Value::Text(it) => it.parse().ok() }
}

/// Taken as it is, to be written back to the same database.
impl FromValue for Value {
    const WANTED: &'static str = "value";

    fn from_value(value: Value) -> Option<Self> {
        Some(value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const WANTED: &'static str = T::WANTED;

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// A row of a result.
pub(crate) struct Row {
    columns: std::sync::Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    pub(super) fn new(columns: std::sync::Arc<[String]>, values: Vec<Value>) -> Self {
        Self { columns, values }
    }

    /// The length of its texts and bytes.
    pub(crate) fn len(&self) -> usize {
        let len = |value: &Value| match value {
            Value::Text(text) | Value::Json(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        self.values.iter().map(len).sum()
    }

    /// Takes a value out of the row; it can be taken only once.
    pub(crate) fn take<T: FromValue>(&mut self, column: &'static str) -> Result<T, Mismatch> {
        let found = self.columns.iter().position(|name| name == column);
        let value = found.map(|at| std::mem::replace(&mut self.values[at], Value::Null));
        value.and_then(T::from_value).ok_or(Mismatch::Value { column, wanted: T::WANTED })
    }
}

/// The parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::database::Value::from($value)),*] };
}
pub(crate) use values;
