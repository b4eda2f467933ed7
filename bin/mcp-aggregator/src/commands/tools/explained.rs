//! Describes a tool: what it does, its arguments, and how to call it.

use serde_json::Value;

use crate::command_hint;
use crate::server_view;
use crate::table::{printable, wrapped};

/// A tool to describe.
pub(super) struct Explained<'t> {
    /// Its full name.
    pub(super) name: &'t str,
    pub(super) description: &'t str,
    pub(super) schema: &'t Value,
    /// Whether it is disabled.
    pub(super) is_off: bool,
}

impl Explained<'_> {
    /// The description in lines; `call` is the command that calls it, up to its name.
    pub(super) fn lines(&self, call: &str) -> Vec<String> {
        let mut lines = vec![printable(self.name)];
        for line in self.description.trim().lines() {
            lines.extend(wrapped(printable(line).trim_end(), server_view::NOTE));
        }
        if self.is_off {
            lines.push(format!("  It is disabled; `mcp-aggregator tools on {}` enables it.", printable(self.name)));
        }
        lines.push(String::new());
        let parameters = self.parameters();
        if parameters.is_empty() {
            lines.push("It has no parameters.".to_owned());
        } else {
            let rows = parameters.iter().map(|it| [it.name.clone(), it.kind.clone(), it.need(), it.words.clone()]);
            lines.extend(server_view::wrapping_table(["PARAMETER", "TYPE", "", "WHAT"], rows.collect()));
        }
        let needed = parameters.iter().filter(|it| it.is_required).map(|it| format!(" {}", it.example));
        lines.push(String::new());
        lines.push(format!("{call} {}{}", command_hint::quoted(&printable(self.name)), needed.collect::<String>()));
        lines
    }

    fn parameters(&self) -> Vec<Parameter> {
        let required: Vec<&str> =
            self.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = self.schema["properties"].as_object().into_iter().flatten();
        let parameter =
            |(name, described): (&String, &Value)| Parameter::of(name, described, required.contains(&name.as_str()));
        let (needed, others): (Vec<Parameter>, Vec<Parameter>) =
            properties.map(parameter).partition(|parameter| parameter.is_required);
        needed.into_iter().chain(others).collect()
    }
}

struct Parameter {
    name: String,
    kind: String,
    is_required: bool,
    default: Option<String>,
    words: String,
    /// An argument as it is written on a command line.
    example: String,
}

impl Parameter {
    fn of(name: &str, described: &Value, is_required: bool) -> Self {
        let kind = kind(described);
        let name = printable(name);
        let example = match kind.as_str() {
            "integer" | "number" => format!("{name}=1"),
            "boolean" => format!("{name}=true"),
            "array" => format!("{name}:=[]"),
            "object" => format!("{name}:={{}}"),
            _ => format!("{name}={}", first_word(described).unwrap_or_else(|| "TEXT".to_owned())),
        };
        let words = described["description"].as_str().unwrap_or_default();
        let words = words.split_whitespace().map(printable).collect::<Vec<_>>().join(" ");
        let default = described.get("default").map(|default| printable(&default.to_string()));
        Self { name, kind, is_required, default, words, example: command_hint::quoted(&example) }
    }

    fn need(&self) -> String {
        match (&self.default, self.is_required) {
            (_, true) => "required".to_owned(),
            (Some(default), false) => format!("[default: {default}]"),
            (None, false) => String::new(),
        }
    }
}

/// The first of its possible values.
fn first_word(described: &Value) -> Option<String> {
    described["enum"].get(0)?.as_str().map(printable)
}

/// Its type, in a word or two.
fn kind(described: &Value) -> String {
    if let Some(words) = described["enum"].as_array() {
        let words = words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned));
        return printable(&words.collect::<Vec<_>>().join("|"));
    }
    match &described["type"] {
        Value::String(kind) => printable(kind),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            printable(&kinds.collect::<Vec<_>>().join("|"))
        }
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tool_is_reported_with_what_it_takes_and_a_command_to_paste() {
        let schema = json!({"properties": {
            "depth": {"type": "integer", "default": 3, "description": "How deep"},
            "path": {"type": "string", "description": "Which\nfile"},
            "mode": {"enum": ["fast", "slow"]},
            "tags": {"type": ["array", "null"]},
        }, "required": ["path", "mode", "tags"]});
        let tool = Explained { name: "files.read", description: "Reads.\nA lot.", schema: &schema, is_off: false };
        assert_eq!(
            tool.lines("mcp-aggregator call"),
            [
                "files.read",
                "  Reads.",
                "  A lot.",
                "",
                "PARAMETER  TYPE                     WHAT",
                "path       string     required      Which file",
                "mode       fast|slow  required",
                "tags       array      required",
                "depth      integer    [default: 3]  How deep",
                "",
                "mcp-aggregator call files.read path=TEXT mode=fast 'tags:=[]'",
            ]
        );
        let none = Explained { name: "a.b", description: "", schema: &Value::Null, is_off: true };
        assert_eq!(none.lines("x").last().map(String::as_str), Some("x a.b"));
        assert!(none.lines("x")[1].contains("tools on a.b"));
    }
}
