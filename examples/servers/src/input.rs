//! What a tool asks for. One table of fields is both the schema shown to the client and the check of what it sends.

use crate::tool::ToolError;
use serde_json::{Map, Number, Value, json};

/// One argument of a tool.
pub struct Field {
    /// Its key in `arguments`.
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
    /// Whether it may be left out.
    pub need: Need,
    /// Tells the model what to put there.
    pub description: &'static str,
}

/// What an argument may hold.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A string.
    Text,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// A list of numbers.
    Numbers,
    /// True or false.
    Flag,
}

/// Whether an argument may be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It must be there.
    Required,
    /// It may be missing or null.
    Optional,
}

impl Field {
    /// An argument that must be there.
    #[must_use]
    pub const fn required(name: &'static str, kind: Kind, description: &'static str) -> Self {
        Self { name, kind, need: Need::Required, description }
    }

    /// An argument that may be left out.
    #[must_use]
    pub const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Self {
        Self { name, kind, need: Need::Optional, description }
    }
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Integer => json!({"type": "integer"}),
            Self::Number => json!({"type": "number"}),
            Self::Numbers => json!({"type": "array", "items": {"type": "number"}}),
            Self::Flag => json!({"type": "boolean"}),
        }
    }

    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Integer => whole(value).is_some(),
            Self::Number => value.is_number(),
            Self::Numbers => value.as_array().is_some_and(|items| items.iter().all(Value::is_number)),
            Self::Flag => value.is_boolean(),
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::Numbers => "a list of numbers",
            Self::Flag => "true or false",
        }
    }
}

/// JSON Schema counts `3.0` as an integer, and some clients write it so.
fn whole(value: &Value) -> Option<i64> {
    const EXACT_IN_F64: f64 = 9_007_199_254_740_992.0;
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && float.abs() < EXACT_IN_F64).then_some(float as i64)
    })
}

/// The `inputSchema` of a tool that takes these fields.
pub(crate) fn schema(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let mut property = field.kind.schema();
        property["description"] = field.description.into();
        properties.insert(field.name.to_owned(), property);
        if field.need == Need::Required {
            required.push(field.name);
        }
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Arguments that fit the fields of the tool.
pub struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Tells everything that is wrong at once, so that the next try can be right.
    pub(crate) fn check(fields: &[Field], arguments: &'a Map<String, Value>) -> Result<Self, ToolError> {
        let mut problems = Vec::new();
        for field in fields {
            let Field { name, kind, .. } = field;
            match arguments.get(*name) {
                None | Some(Value::Null) if field.need == Need::Optional => {}
                None => problems.push(format!("`{name}` is missing: {}", field.description)),
                Some(value) if kind.accepts(value) => {}
                Some(_) => problems.push(format!("`{name}` must be {}", kind.in_words())),
            }
        }
        for name in arguments.keys() {
            if !fields.iter().any(|field| field.name == name) {
                problems.push(format!("`{name}` is not an argument of this tool"));
            }
        }
        if problems.is_empty() { Ok(Self(arguments)) } else { Err(ToolError::new(problems.join("\n"))) }
    }

    fn required<T>(name: &str, value: Option<T>) -> Result<T, ToolError> {
        value.ok_or_else(|| ToolError::new(format!("`{name}` is missing")))
    }

    /// A required string.
    pub fn text(&self, name: &str) -> Result<&'a str, ToolError> {
        Self::required(name, self.optional_text(name))
    }

    /// A string that may have been left out.
    #[must_use]
    pub fn optional_text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    /// A whole number that may have been left out.
    #[must_use]
    pub fn optional_integer(&self, name: &str) -> Option<i64> {
        whole(self.0.get(name)?)
    }

    /// A required number.
    pub fn number(&self, name: &str) -> Result<&'a Number, ToolError> {
        Self::required(name, self.0.get(name).and_then(Value::as_number))
    }

    /// A required list of numbers.
    pub fn numbers(&self, name: &str) -> Result<Vec<&'a Number>, ToolError> {
        let items = Self::required(name, self.0.get(name).and_then(Value::as_array))?;
        Ok(items.iter().filter_map(Value::as_number).collect())
    }

    /// True only if it was given as true.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        Field::required("title", Kind::Text, "Something."),
        Field::optional("days", Kind::Integer, "Something."),
        Field::optional("list", Kind::Numbers, "Something."),
        Field::optional("force", Kind::Flag, "Something."),
    ];

    fn problems(arguments: &Value) -> String {
        match Arguments::check(FIELDS, arguments.as_object().expect("an object")) {
            Ok(_) => String::new(),
            Err(error) => error.sentence().to_owned(),
        }
    }

    #[test]
    fn what_the_schema_allows_passes() {
        for arguments in [
            json!({"title": ""}),
            json!({"title": "x", "days": 3.0, "list": [1, 2.5], "force": true}),
            json!({"title": "x", "days": null}),
        ] {
            assert_eq!(problems(&arguments), "", "{arguments}");
        }
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let message = problems(&json!({"days": 1.5, "list": ["1"], "force": "yes", "titel": "x"}));
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(
            lines,
            [
                "`title` is missing: Something.",
                "`days` must be a whole number",
                "`list` must be a list of numbers",
                "`force` must be true or false",
                "`titel` is not an argument of this tool",
            ]
        );
        assert_eq!(problems(&json!({"title": null})), "`title` must be a string");
    }
}
