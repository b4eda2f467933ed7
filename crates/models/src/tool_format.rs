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
const MAX_OPENAI_DESCRIPTION_LEN: usize = 1024;

/// How many values of schemas are copied for one tool, and for all tools of a list: references may make a small schema
/// stand for a huge one.
const MOST_COPIED_OF_TOOL: usize = 100_000;
const MOST_COPIED_OF_LIST: usize = 1_000_000;

/// Tools in the form of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Forms {
    /// What stands under `tools` in a request.
    pub tools: Value,
    /// The names of those whose parameters are not all told, because their schemas are too large.
    pub cut: Vec<String>,
}

/// The tools were not all put into a form in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{done} of {of} tools were put into the form in time")]
pub struct TooSlow {
    done: usize,
    of: usize,
}

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
        self.listed(each.collect())
    }

    /// The same for tools that nobody has chosen among: all share one budget of copied values, and the work ends when
    /// `is_over` says so: its deadline passed, or nobody waits for it.
    pub fn tools_until(self, tools: &[Tool], names: &SafeNames, is_over: &dyn Fn() -> bool) -> Result<Forms, TooSlow> {
        let mut copies_left = MOST_COPIED_OF_LIST;
        let (mut all, mut cut) = (Vec::new(), Vec::new());
        for tool in tools {
            if is_over() {
                return Err(TooSlow { done: all.len(), of: tools.len() });
            }
            let Some(safe_name) = names.safe(&tool.name) else { continue };
            let (form, cost) = self.form(tool, safe_name, copies_left.min(MOST_COPIED_OF_TOOL));
            copies_left -= cost.copied;
            if cost.is_cut {
                cut.push(tool.name.clone());
            }
            all.push(form);
        }
        Ok(Forms { tools: self.listed(all), cut })
    }

    fn listed(self, all: Vec<Value>) -> Value {
        match self {
            Self::Gemini if all.is_empty() => json!([]),
            Self::Gemini => json!([{ "functionDeclarations": all }]),
            _ => Value::Array(all),
        }
    }

    /// One tool under its safe name; for Gemini, one of the `functionDeclarations`.
    pub fn tool(self, tool: &Tool, safe_name: &str) -> Value {
        self.form(tool, safe_name, MOST_COPIED_OF_TOOL).0
    }

    /// The same, and what it cost. Only Gemini's form follows references; what the others copy is what the server wrote.
    fn form(self, tool: &Tool, safe_name: &str, most_copied: usize) -> (Value, Cost) {
        let mut cost = Cost::default();
        let form = match self {
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
                let parameters;
                (parameters, cost) = gemini::schema(&tool.schema, most_copied);
                // It refuses an object without properties.
                if parameters.get("properties").is_some() {
                    declaration["parameters"] = parameters;
                }
                declaration
            }
        };
        (form, cost)
    }
}

/// What a form took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cost {
    /// How many values were copied for it.
    copied: usize,
    /// Whether something was left out because there was too much of it.
    is_cut: bool,
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
    if description.chars().count() <= MAX_OPENAI_DESCRIPTION_LEN {
        return description.to_owned();
    }
    description.chars().take(MAX_OPENAI_DESCRIPTION_LEN - 1).chain(['…']).collect()
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
        let listed = |format: Format| format.tools(&tools, &names);
        assert_eq!(
            listed(Format::OpenAi),
            json!([{"type": "function", "function": {
                "name": "sky_weather", "description": "Tells the weather.", "parameters": schema}}])
        );
        assert_eq!(
            listed(Format::OpenAiResponses),
            json!([{"type": "function", "name": "sky_weather", "description": "Tells the weather.",
                "parameters": schema, "strict": false}])
        );
        assert_eq!(
            listed(Format::Anthropic),
            json!([{"name": "sky_weather", "description": "Tells the weather.", "input_schema": schema}])
        );
        assert_eq!(
            listed(Format::Gemini),
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
    fn all_tools_of_a_list_share_one_budget() {
        let many: serde_json::Map<String, Value> =
            (0..100).map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/large"}))).collect();
        let names: Vec<Value> = (0..1000).map(|n| format!("r{n}").into()).collect();
        let large = json!({"type": "object", "properties": many, "$defs": {"large": {"enum": names}}});
        let mut tools: Vec<Tool> = (0..200).map(|n| Tool::new(format!("t{n:03}"), "", large.clone())).collect();
        tools.insert(0, Tool::new("small", "", json!({"properties": {"a": {"type": "string"}}})));
        let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()));
        let forms = Format::Gemini.tools_until(&tools, &names, &|| false).unwrap();
        assert_eq!(forms.tools[0]["functionDeclarations"].as_array().unwrap().len(), 201, "each is there");
        assert!(forms.cut.len() > 180 && !forms.cut.contains(&"small".to_owned()), "{}", forms.cut.len());
        assert!(forms.tools.to_string().len() < 20_000_000, "{} bytes", forms.tools.to_string().len());
        let others = Format::OpenAi.tools_until(&tools, &names, &|| false).unwrap();
        assert!(others.cut.is_empty());
    }

    #[test]
    fn a_list_that_nobody_waits_for_ends() {
        let (tools, names) = weather();
        for format in Format::ALL {
            let error = format.tools_until(&tools, &names, &|| true).unwrap_err();
            assert_eq!(error.to_string(), "0 of 1 tools were put into the form in time");
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
