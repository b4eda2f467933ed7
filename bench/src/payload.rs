//! The tools of the test server: their names say what they answer, so that both sides can build the same bytes.
//!
//! No payload contains the key `"id"`: the client may then look for the answer's id with a plain search.

use std::fmt::Write;

/// One tool of `bench-server`, read from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tool {
    /// `text_100`, `text_10k`, `text_1m`: one text of this many encoded bytes.
    Text(usize),
    /// `json_10k`, `json_1m`: structured content of about this many bytes, in many small keys.
    Json(usize),
    /// `hang`: never answers, and reads nothing more.
    Hang,
    /// `flood_stderr`: answers, then writes to stderr as fast as somebody reads it.
    FloodStderr,
}

/// The tools every `bench-server` lists before any generated one.
pub const BUILT_IN: [&str; 8] =
    ["text_100", "text_10k", "text_1m", "text_50m", "json_10k", "json_1m", "hang", "flood_stderr"];

/// Up to this size a request carries as many bytes as its answer; beyond it the arguments stay small.
const MAX_ECHOED: usize = 10_000;
const SMALL_ARGUMENT: usize = 20;

impl Tool {
    /// The tool of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.split_once('_') {
            Some(("text", size)) => Some(Self::Text(parse_size(size)?)),
            Some(("json", size)) => Some(Self::Json(parse_size(size)?)),
            Some(("flood", "stderr")) => Some(Self::FloodStderr),
            None if name == "hang" => Some(Self::Hang),
            _ => None,
        }
    }

    /// The bytes of the `result` member this tool answers with.
    pub fn result(self) -> String {
        match self {
            Self::Text(size) => text_result(&encoded_text(size)),
            Self::Json(size) => json_result(size),
            Self::Hang => text_result("never sent"),
            Self::FloodStderr => text_result("flooding"),
        }
    }

    /// The bytes of the `arguments` member a client sends to this tool.
    pub fn arguments(self) -> String {
        let size = match self {
            Self::Text(size) | Self::Json(size) if size <= MAX_ECHOED => size,
            _ => SMALL_ARGUMENT,
        };
        format!(r#"{{"text":"{}"}}"#, encoded_text(size))
    }
}

fn parse_size(text: &str) -> Option<usize> {
    let (digits, unit) = match text.strip_suffix('k') {
        Some(digits) => (digits, 1_000),
        None => match text.strip_suffix('m') {
            Some(digits) => (digits, 1_000_000),
            None => (text, 1),
        },
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// Text as tools really return it: lines, a few quotes, so that a scanner meets some escapes. Already JSON-encoded.
fn encoded_text(size: usize) -> String {
    const LINE: &str = r#"The tool answered \"yes\" after it had read the file and found 42 matches in it.\n"#;
    let mut text = LINE.repeat(size / LINE.len());
    text.extend(std::iter::repeat_n('x', size - text.len()));
    text
}

fn text_result(encoded: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{encoded}"}}]}}"#)
}

fn json_result(size: usize) -> String {
    let mut result = String::with_capacity(size + 200);
    result.push_str(r#"{"content":[{"type":"text","text":"see the rows"}],"structuredContent":{"rows":["#);
    for row in 0.. {
        if row > 0 {
            result.push(',');
        }
        write!(
            result,
            r#"{{"n":{row},"name":"row {row}","ok":{},"price":{}.25,"tags":["a","b"],"at":{{"x":1,"y":null}}}}"#,
            row % 2 == 0,
            row * 3
        )
        .expect("writing to a String cannot fail");
        if result.len() >= size {
            break;
        }
    }
    result.push_str("]}}");
    result
}

/// The `tools` array of a server with `total` tools: the built-in ones first, then generated ones.
pub fn definitions(total: usize) -> String {
    let generated = (BUILT_IN.len()..total).map(|index| format!("search_records_{index:05}"));
    let names = BUILT_IN.iter().map(ToString::to_string).chain(generated).take(total);
    let all: Vec<String> = names.map(|name| definition(&name)).collect();
    format!("[{}]", all.join(","))
}

/// A definition of the size and shape that published servers have: some 700 bytes, nested schema, annotations.
fn definition(name: &str) -> String {
    format!(
        concat!(
            r#"{{"name":"{name}","title":"Search records ({name})","description":"Searches the records of a project by "#,
            r#"free text, and returns the best matches with a short excerpt of each.\n\nUse it before you read a record. "#,
            r#"Results are \"best first\".","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string","#,
            r#""description":"What to look for"}},"limit":{{"type":"integer","minimum":1,"maximum":100,"default":10}},"#,
            r#""order":{{"type":"string","enum":["best","newest","oldest"]}},"filter":{{"type":"object","properties":{{"#,
            r#""author":{{"type":"string"}},"since":{{"type":"string","format":"date"}}}}}}}},"required":["text"]}},"#,
            r#""annotations":{{"readOnlyHint":true,"openWorldHint":false}}}}"#
        ),
        name = name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_describe_their_results() {
        assert_eq!(Tool::from_name("text_100"), Some(Tool::Text(100)));
        assert_eq!(Tool::from_name("text_10k"), Some(Tool::Text(10_000)));
        assert_eq!(Tool::from_name("json_1m"), Some(Tool::Json(1_000_000)));
        assert_eq!(Tool::from_name("hang"), Some(Tool::Hang));
        assert_eq!(Tool::from_name("text_"), None);
        assert_eq!(Tool::from_name("search_records_00009"), None);
        assert!(BUILT_IN.iter().all(|name| Tool::from_name(name).is_some()));
    }

    #[test]
    fn payloads_are_json_of_the_requested_size_without_an_id() {
        for tool in [Tool::Text(100), Tool::Text(10_000), Tool::Json(10_000)] {
            let (Tool::Text(size) | Tool::Json(size)) = tool else {
                continue;
            };
            let result = tool.result();
            serde_json::from_str::<serde_json::Value>(&result).unwrap();
            serde_json::from_str::<serde_json::Value>(&tool.arguments()).unwrap();
            assert!(result.len() >= size && result.len() < size + 200, "{}", result.len());
            assert!(!result.contains(r#""id""#));
        }
    }

    #[test]
    fn a_list_has_as_many_definitions_as_asked_for() {
        for total in [1, 8, 10, 1_000] {
            let list: Vec<serde_json::Value> = serde_json::from_str(&definitions(total)).unwrap();
            assert_eq!(list.len(), total);
        }
        assert_eq!(definitions(1_000).matches(r#""inputSchema""#).count(), 1_000);
    }
}
