//! Schemas as JSON Schema 2020-12, for OpenAPI 3.1.

use serde_json::{Map, Value, json};

use super::{Kind, Member, Schema};

impl Schema {
    /// The schema as JSON.
    pub(crate) fn shown(&self) -> Value {
        let mut shown = self.kind.shown();
        if self.is_nullable {
            shown = or_null(shown);
        }
        for (name, value) in [
            ("description", self.about.map(Value::from)),
            ("default", self.default.clone()),
            ("examples", self.example.clone().map(|example| json!([example]))),
        ] {
            if let Some(value) = value {
                shown.insert(name.to_owned(), value);
            }
        }
        Value::Object(shown)
    }
}

impl Kind {
    fn shown(&self) -> Map<String, Value> {
        let shown = match self {
            Self::Anything => json!({}),
            Self::Text { pattern, longest, format } => {
                let mut shown = json!({"type": "string"});
                if let Some(pattern) = pattern {
                    shown["pattern"] = pattern.pattern.into();
                }
                if let Some(format) = format {
                    shown["format"] = (*format).into();
                }
                if let Some(longest) = longest {
                    shown["maxLength"] = (*longest).into();
                }
                shown
            }
            Self::Enum(words) => json!({"type": "string", "enum": words}),
            Self::Integer { least, most: i64::MAX } => json!({"type": "integer", "minimum": least}),
            Self::Integer { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Number => json!({"type": "number"}),
            Self::Share => json!({"type": "number", "minimum": 0, "maximum": 1}),
            Self::Truth => json!({"type": "boolean"}),
            Self::AnyObject { documented, at_least_one_of } => {
                let mut shown = object(documented);
                if !at_least_one_of.is_empty() {
                    shown["anyOf"] = choices(at_least_one_of);
                }
                shown
            }
            Self::Object { members, either_of, is_open } => {
                let mut shown = object(members);
                if !either_of.is_empty() {
                    shown["oneOf"] = choices(either_of);
                }
                if !is_open {
                    shown["additionalProperties"] = false.into();
                }
                shown
            }
            Self::List { of, least: 0 } => json!({"type": "array", "items": of.shown()}),
            Self::List { of, least } => json!({"type": "array", "items": of.shown(), "minItems": least}),
            Self::Either(schemas) => json!({"anyOf": schemas.iter().map(Schema::shown).collect::<Vec<_>>()}),
            Self::Named(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
        };
        match shown {
            Value::Object(shown) => shown,
            _ => unreachable!("every kind is shown as an object"),
        }
    }
}

fn object(members: &[Member]) -> Value {
    let mut shown = json!({"type": "object"});
    if !members.is_empty() {
        let properties: Map<String, Value> =
            members.iter().map(|member| (member.name.to_owned(), member.schema.shown())).collect();
        shown["properties"] = Value::Object(properties);
    }
    let required: Vec<_> = members.iter().filter(|member| member.is_required).map(|member| member.name).collect();
    if !required.is_empty() {
        shown["required"] = required.into();
    }
    shown
}

fn choices(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"required": [name]})).collect()
}

/// Also allows null.
fn or_null(mut shown: Map<String, Value>) -> Map<String, Value> {
    if let Some(kind) = shown.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
    } else if !shown.is_empty() {
        let either = json!([Value::Object(std::mem::take(&mut shown)), {"type": "null"}]);
        shown.insert("anyOf".to_owned(), either);
    }
    if let Some(Value::Array(words)) = shown.get_mut("enum") {
        words.push(Value::Null);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_shown_as_it_is_checked() {
        let schema = Schema::object()
            .with("count", Schema::integer(1, 9).by_default(3))
            .with_optional("word", Schema::one_of(["a"]).or_null().about("Which."))
            .with_optional("other", Schema::named("Other").or_null());
        let expected = json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
                "word": {"type": ["string", "null"], "enum": ["a", null], "description": "Which."},
                "other": {"anyOf": [{"$ref": "#/components/schemas/Other"}, {"type": "null"}]}
            },
            "required": ["count"]
        });
        assert_eq!(schema.shown(), expected);
    }
}
