//! Tools in the format of each provider: the value of `tools` in a request.
//!
//! - here: the four formats; `object`: schemas with a plain object at the top, which all require; `gemini`: the subset
//!   of JSON Schema that Gemini supports

mod gemini;
mod object;

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::{SafeNames, Tool};

/// The longest description that OpenAI accepts.
const MAX_OPENAI_DESCRIPTION_LEN: usize = 1024;

/// How many schema values are copied for one tool, and for all tools of a list: references can expand a small schema to
/// a huge one.
const MAX_COPIED_OF_TOOL: usize = 100_000;
const MAX_COPIED_OF_LIST: usize = 1_000_000;

/// Tools in the format of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Forms<T> {
    /// The value of `tools` in a request.
    pub tools: T,
    /// The names of tools whose parameters are incomplete, because their schemas are too large.
    pub cut: Vec<String>,
}

/// The tools were not all converted in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("only {done} of {of} tools were converted in time")]
pub struct TooSlow {
    done: usize,
    of: usize,
}

/// The format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI's `/chat/completions` and compatible servers.
    OpenAi,
    /// OpenAI's `/responses`.
    OpenAiResponses,
    /// Anthropic's `/v1/messages`.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
}

/// An unknown format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format of tools; use openai, openai-responses, anthropic or gemini")]
pub struct UnknownFormat(String);

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini];

    /// The name of the format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// The value of `tools` in a request. Tools without a safe name are omitted.
    pub fn tools(self, tools: &[Tool], names: &SafeNames) -> Value {
        let each = tools.iter().filter_map(|tool| Some(self.tool(tool, names.safe(&tool.name)?)));
        self.listed(each.collect())
    }

    /// The same for an unfiltered list: all tools share one budget of copied values, and the work stops when `is_over`
    /// returns true, because its deadline passed or nobody waits for it.
    pub fn tools_until(
        self,
        tools: impl ExactSizeIterator<Item = Tool>,
        names: &SafeNames,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Forms<Value>, TooSlow> {
        let mut all = Vec::new();
        let cut = self.each_until(tools, names, is_over, |form| all.push(form))?;
        Ok(Forms { tools: self.listed(all), cut })
    }

    /// The same as JSON. Of a long list, only one tool at a time exists as a tree, which takes many times its bytes.
    pub fn json_until(
        self,
        tools: impl ExactSizeIterator<Item = Tool>,
        names: &SafeNames,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Forms<String>, TooSlow> {
        let mut all = String::new();
        let cut = self.each_until(tools, names, is_over, |form| {
            if !all.is_empty() {
                all.push(',');
            }
            all.push_str(&form.to_string());
        })?;
        let tools = match self {
            Self::Gemini if !all.is_empty() => format!(r#"[{{"functionDeclarations":[{all}]}}]"#),
            _ => format!("[{all}]"),
        };
        Ok(Forms { tools, cut })
    }

    /// Passes on one form after the other. Returns the names of those that are cut.
    fn each_until(
        self,
        tools: impl ExactSizeIterator<Item = Tool>,
        names: &SafeNames,
        is_over: &dyn Fn() -> bool,
        mut take: impl FnMut(Value),
    ) -> Result<Vec<String>, TooSlow> {
        let mut copies_left = MAX_COPIED_OF_LIST;
        let (mut cut, of) = (Vec::new(), tools.len());
        for (done, tool) in tools.enumerate() {
            if is_over() {
                return Err(TooSlow { done, of });
            }
            let Some(safe_name) = names.safe(&tool.name) else { continue };
            let (form, cost) = self.form(&tool, safe_name, copies_left.min(MAX_COPIED_OF_TOOL));
            copies_left -= cost.copied;
            take(form);
            if cost.is_cut {
                cut.push(tool.name);
            }
        }
        Ok(cut)
    }

    fn listed(self, all: Vec<Value>) -> Value {
        match self {
            Self::Gemini if all.is_empty() => json!([]),
            Self::Gemini => json!([{ "functionDeclarations": all }]),
            _ => Value::Array(all),
        }
    }

    /// One tool with its safe name; for Gemini, one of the `functionDeclarations`.
    pub fn tool(self, tool: &Tool, safe_name: &str) -> Value {
        self.form(tool, safe_name, MAX_COPIED_OF_TOOL).0
    }

    /// The same, with its cost. Only Gemini's format expands references; the others copy the server's schema.
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
            // Strict mode is the default there, and the schemas of most tools are not strict.
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
                // Gemini refuses an object without properties.
                if parameters.get("properties").is_some() {
                    declaration["parameters"] = parameters;
                }
                declaration
            }
        };
        (form, cost)
    }
}

/// The cost of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cost {
    /// How many values were copied.
    copied: usize,
    /// Whether a part was omitted because the schema is too large.
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
    fn a_tool_without_parameters_has_none_for_gemini_and_an_empty_object_for_others() {
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
        let forms = Format::Gemini.tools_until(tools.iter().cloned(), &names, &|| false).unwrap();
        assert_eq!(forms.tools[0]["functionDeclarations"].as_array().unwrap().len(), 201, "each is there");
        assert!(forms.cut.len() > 180 && !forms.cut.contains(&"small".to_owned()), "{}", forms.cut.len());
        assert!(forms.tools.to_string().len() < 20_000_000, "{} bytes", forms.tools.to_string().len());
        let others = Format::OpenAi.tools_until(tools.iter().cloned(), &names, &|| false).unwrap();
        assert!(others.cut.is_empty());
    }

    #[test]
    fn json_of_a_list_matches_its_parsed_form() {
        let (one, _) = weather();
        let several = vec![one[0].clone(), Tool::new("now", "", json!({"type": "object"}))];
        for tools in [Vec::new(), one, several] {
            let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()));
            for format in Format::ALL {
                let json = format.json_until(tools.iter().cloned(), &names, &|| false).unwrap();
                let read: Value = serde_json::from_str(&json.tools).unwrap();
                assert_eq!(read, format.tools(&tools, &names), "{format}");
            }
        }
    }

    #[test]
    fn a_conversion_ends_when_it_is_interrupted() {
        let (tools, names) = weather();
        for format in Format::ALL {
            let error = format.tools_until(tools.iter().cloned(), &names, &|| true).unwrap_err();
            assert_eq!(error.to_string(), "only 0 of 1 tools were converted in time");
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
    fn every_format_has_a_name_that_parses() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("chatty".parse::<Format>().unwrap_err().to_string().contains("openai-responses"));
    }
}
