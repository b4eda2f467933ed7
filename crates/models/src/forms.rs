//! Tools as each provider wants them: what stands under `tools` in a request.
//!
//! - here: the four forms; `object`: schemas whose top is a plain object, which all want; `gemini`: the part of JSON
//!   Schema that Gemini takes

mod gemini;
mod object;

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::{SafeNames, Tool};

/// The most of a description that OpenAI takes.
const LONGEST_OPENAI_DESCRIPTION: usize = 1024;

/// Whose form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI's `/chat/completions`, and everybody who is compatible with it.
    OpenAi,
    /// OpenAI's `/responses`.
    OpenAiResponses,
    /// Anthropic's `/v1/messages`.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
}

/// A word that names no form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no format of tools; there are openai, openai-responses, anthropic and gemini")]
pub struct UnknownFormat(String);

impl Format {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini];

    /// As users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// What stands under `tools` in a request. A tool that has no safe name is left out.
    pub fn tools(self, tools: &[Tool], names: &SafeNames) -> Value {
        let each = tools.iter().filter_map(|tool| Some(self.tool(tool, names.safe(&tool.name)?)));
        let all: Vec<Value> = each.collect();
        match self {
            Self::Gemini if all.is_empty() => json!([]),
            Self::Gemini => json!([{ "functionDeclarations": all }]),
            _ => Value::Array(all),
        }
    }

    /// One tool under its safe name; for Gemini, one of the `functionDeclarations`.
    pub fn tool(self, tool: &Tool, safe_name: &str) -> Value {
        match self {
            Self::OpenAi => json!({
                "type": "function",
                "function": {
                    "name": safe_name,
                    "description": cut(&tool.description),
                    "parameters": object::plain(&tool.schema),
                },
            }),
            // Strict is the default there, and most tools' schemas are not strict.
            Self::OpenAiResponses => json!({
                "type": "function",
                "name": safe_name,
                "description": cut(&tool.description),
                "parameters": object::plain(&tool.schema),
                "strict": false,
            }),
            Self::Anthropic => json!({
                "name": safe_name,
                "description": tool.description,
                "input_schema": object::with_usual_names(object::plain(&tool.schema)),
            }),
            Self::Gemini => {
                let mut declaration = json!({ "name": safe_name, "description": tool.description });
                let parameters = gemini::schema(&tool.schema);
                // It refuses an object without properties.
                if parameters.get("properties").is_some() {
                    declaration["parameters"] = parameters;
                }
                declaration
            }
        }
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.as_str() == word).ok_or_else(|| UnknownFormat(word.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn cut(description: &str) -> String {
    if description.chars().count() <= LONGEST_OPENAI_DESCRIPTION {
        return description.to_owned();
    }
    description.chars().take(LONGEST_OPENAI_DESCRIPTION - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weather() -> (Vec<Tool>, SafeNames) {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        let tools = vec![Tool::new("sky:weather", "Tells the weather.", schema)];
        let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()));
        (tools, names)
    }

    #[test]
    fn each_provider_gets_its_own_form() {
        let (tools, names) = weather();
        let schema = tools[0].schema.clone();
        assert_eq!(
            Format::OpenAi.tools(&tools, &names),
            json!([{"type": "function", "function": {
                "name": "sky_weather", "description": "Tells the weather.", "parameters": schema}}])
        );
        assert_eq!(
            Format::OpenAiResponses.tools(&tools, &names),
            json!([{"type": "function", "name": "sky_weather", "description": "Tells the weather.",
                "parameters": schema, "strict": false}])
        );
        assert_eq!(
            Format::Anthropic.tools(&tools, &names),
            json!([{"name": "sky_weather", "description": "Tells the weather.", "input_schema": schema}])
        );
        assert_eq!(
            Format::Gemini.tools(&tools, &names),
            json!([{"functionDeclarations": [
                {"name": "sky_weather", "description": "Tells the weather.", "parameters": schema}]}])
        );
    }

    #[test]
    fn a_tool_without_parameters_has_none_at_gemini_and_an_empty_object_elsewhere() {
        for schema in [json!({}), json!({"type": "object"}), json!(true), json!(null), json!("nonsense")] {
            let tool = Tool::new("now", "", schema);
            assert_eq!(Format::Gemini.tool(&tool, "now"), json!({"name": "now", "description": ""}));
            let empty = json!({"type": "object", "properties": {}});
            assert_eq!(Format::OpenAi.tool(&tool, "now")["function"]["parameters"], empty);
            assert_eq!(Format::Anthropic.tool(&tool, "now")["input_schema"], empty);
        }
    }

    #[test]
    fn a_description_without_end_is_cut_where_the_provider_would_refuse_it() {
        let tool = Tool::new("a", "ä".repeat(3000), json!({}));
        let shown = Format::OpenAi.tool(&tool, "a")["function"]["description"].as_str().unwrap().to_owned();
        assert_eq!(shown.chars().count(), 1024);
        assert!(shown.ends_with('…'));
        assert_eq!(Format::Anthropic.tool(&tool, "a")["description"], tool.description);
    }

    #[test]
    fn every_form_has_a_word_that_leads_back_to_it() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("chatty".parse::<Format>().unwrap_err().to_string().contains("openai-responses"));
    }
}
