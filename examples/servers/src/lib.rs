//! An MCP server without a library: one loop over stdin, one `match` over the methods.
//!
//! # Layout
//! - this file: the messages. [`Server::serve`] is the loop, [`Server::answer`] one step of it
//! - [`tool`]: what a tool is, and what it answers
//! - [`input`]: what a tool asks for, told once for the schema and for the check
//! - [`calendar`]: dates, which both servers need
//! - [`notes`], [`calc`]: the two servers. The programs are in `src/bin`; `mcp-aggregator demo` has them built in

pub mod calc;
pub mod calendar;
pub mod input;
pub mod notes;
pub mod tool;

use serde_json::{Map, Value, json};
use std::io::{self, BufRead, Write};

pub use input::{Arguments, Field, Kind};
pub use tool::{Answer, Effect, Run, Tool, ToolError};

/// The protocol revisions we speak, oldest first. They do not differ in anything these servers use.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const NEWEST_REVISION: &str = REVISIONS[REVISIONS.len() - 1];

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// A set of tools with a name.
pub struct Server {
    /// What the server calls itself in `initialize`.
    pub name: &'static str,
    /// How a model should use the tools together.
    pub instructions: &'static str,
    /// In the order they are listed.
    pub tools: Vec<Tool>,
}

/// A request that cannot be carried out. A tool that ran and failed is a *result*, see [`ToolError`].
struct RpcError {
    code: i64,
    message: String,
}

impl Server {
    /// Answers on stdout what is asked on stdin, until stdin ends.
    pub fn serve(&self) -> io::Result<()> {
        self.serve_on(io::stdin().lock(), io::stdout().lock())
    }

    fn serve_on(&self, mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
        let mut line = Vec::new();
        // Bytes, not `lines()`: text that is not UTF-8 deserves an error, not the end of the server.
        while input.read_until(b'\n', &mut line)? > 0 {
            if !line.trim_ascii().is_empty()
                && let Some(answer) = self.answer(&line)
            {
                // JSON escapes line breaks inside strings, so one message is always one line.
                writeln!(output, "{answer}")?;
                output.flush()?;
            }
            line.clear();
        }
        Ok(())
    }

    /// The answer to one line, if it wants one.
    #[must_use]
    pub fn answer(&self, line: &[u8]) -> Option<Value> {
        match serde_json::from_slice(line) {
            // Revision 2025-03-26 lets clients send several messages at once.
            Ok(Value::Array(batch)) if !batch.is_empty() => {
                let answers: Vec<Value> = batch.iter().filter_map(|m| self.answer_one(m)).collect();
                (!answers.is_empty()).then_some(Value::Array(answers))
            }
            Ok(message) => self.answer_one(&message),
            Err(error) => {
                let message = format!("the line is not valid JSON: {error}");
                Some(error_message(&Value::Null, PARSE_ERROR, &message))
            }
        }
    }

    fn answer_one(&self, message: &Value) -> Option<Value> {
        let refuse = |why| Some(error_message(&Value::Null, INVALID_REQUEST, why));
        let Some(message) = message.as_object() else {
            return refuse("a message must be a JSON object");
        };
        if message.get("jsonrpc") != Some(&json!("2.0")) {
            return refuse("`jsonrpc` must be \"2.0\"");
        }
        let Some(method) = message.get("method") else {
            // We ask the client nothing, so an answer from it is a stray one.
            let is_answer = message.contains_key("result") || message.contains_key("error");
            return if is_answer { None } else { refuse("`method` is missing") };
        };
        let Some(method) = method.as_str() else {
            return refuse("`method` must be a string");
        };
        let id = match message.get("id") {
            Some(id) if id.is_string() || id.is_number() => id,
            Some(_) => return refuse("`id` must be a string or a number"),
            // A notification. None of them matters to us, and none may be answered.
            None => return None,
        };
        Some(match self.dispatch(method, message.get("params")) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => error_message(id, error.code, &error.message),
        })
    }

    fn dispatch(&self, method: &str, params: Option<&Value>) -> Result<Value, RpcError> {
        let nothing = Map::new();
        let params = match params {
            None => &nothing,
            Some(Value::Object(params)) => params,
            Some(_) => return Err(invalid_params("`params` must be an object")),
        };
        match method {
            "initialize" => Ok(self.introduce(params.get("protocolVersion"))),
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools: Vec<Value> = self.tools.iter().map(Tool::definition).collect();
                Ok(json!({"tools": tools}))
            }
            "tools/call" => self.call(params),
            _ => Err(RpcError { code: METHOD_NOT_FOUND, message: format!("Method not found: {method}") }),
        }
    }

    fn introduce(&self, wanted: Option<&Value>) -> Value {
        let known = wanted.and_then(Value::as_str).filter(|wanted| REVISIONS.contains(wanted));
        json!({
            "protocolVersion": known.unwrap_or(NEWEST_REVISION),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self.name, "version": env!("CARGO_PKG_VERSION")},
            "instructions": self.instructions,
        })
    }

    fn call(&self, params: &Map<String, Value>) -> Result<Value, RpcError> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err(invalid_params("`name` must say which tool to call"));
        };
        let Some(tool) = self.tools.iter().find(|tool| tool.name == name) else {
            return Err(invalid_params(&format!("Unknown tool: {name}")));
        };
        match params.get("arguments") {
            None => Ok(tool.call(&Map::new())),
            Some(Value::Object(arguments)) => Ok(tool.call(arguments)),
            Some(_) => Err(invalid_params("`arguments` must be an object")),
        }
    }
}

fn invalid_params(message: &str) -> RpcError {
    RpcError { code: INVALID_PARAMS, message: message.to_owned() }
}

fn error_message(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeter() -> Server {
        Server {
            name: "greeter",
            instructions: "Greets.",
            tools: vec![Tool {
                name: "greet",
                description: "Greets someone.",
                effect: Effect::Reads,
                input: vec![Field::required("who", Kind::Text, "Whom to greet.")],
                run: Box::new(|arguments| {
                    let who = arguments.text("who")?;
                    if who == "nobody" {
                        return Err(ToolError::new("there is nobody to greet"));
                    }
                    Ok(Answer { text: format!("Hello,\n{who}"), data: json!({"greeted": who}) })
                }),
            }],
        }
    }

    fn ask(message: &Value) -> Value {
        let line = message.to_string();
        greeter().answer(line.as_bytes()).expect("an answer")
    }

    fn request(method: &str, params: &Value) -> Value {
        ask(&json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params}))
    }

    #[test]
    fn known_revisions_are_echoed_and_others_get_the_newest() {
        for revision in REVISIONS {
            let answer = request("initialize", &json!({"protocolVersion": revision}));
            assert_eq!(answer["result"]["protocolVersion"], revision);
        }
        for other in [json!("1999-01-01"), json!("2026-07-28"), json!(7), json!(null)] {
            let answer = request("initialize", &json!({"protocolVersion": other}));
            assert_eq!(answer["result"]["protocolVersion"], NEWEST_REVISION);
        }
    }

    #[test]
    fn an_answer_carries_the_id_of_its_question() {
        for id in [json!(0), json!(-7), json!("x"), json!("")] {
            let answer = ask(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
            assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "result": {}}));
        }
    }

    #[test]
    fn tools_are_listed_with_their_schema() {
        let answer = request("tools/list", &json!({}));
        let tool = &answer["result"]["tools"][0];
        assert_eq!(tool["name"], "greet");
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["inputSchema"]["required"], json!(["who"]));
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
    }

    #[test]
    fn a_call_answers_with_text_and_data() {
        let answer = request("tools/call", &json!({"name": "greet", "arguments": {"who": "Ada"}}));
        let result = &answer["result"];
        assert_eq!(result["content"][0]["text"], "Hello,\nAda");
        assert_eq!(result["structuredContent"], json!({"greeted": "Ada"}));
        assert_eq!(result["isError"], false);
    }

    #[test]
    fn a_failing_tool_and_bad_arguments_are_results_the_model_can_read() {
        for (arguments, sentence) in [
            (json!({"who": "nobody"}), "there is nobody to greet"),
            (json!({"who": 3}), "`who` must be a string"),
            (json!({}), "`who` is missing"),
        ] {
            let answer = request("tools/call", &json!({"name": "greet", "arguments": arguments}));
            let result = &answer["result"];
            assert_eq!(result["isError"], true, "{answer}");
            let text = result["content"][0]["text"].as_str().expect("a text");
            assert!(text.contains(sentence), "{text}");
        }
    }

    #[test]
    fn invalid_requests_get_specific_errors() {
        for (method, params, code) in [
            ("nonsense", json!({}), METHOD_NOT_FOUND),
            ("server/discover", json!({}), METHOD_NOT_FOUND),
            ("tools/call", json!({"name": "nonsense"}), INVALID_PARAMS),
            ("tools/call", json!({}), INVALID_PARAMS),
            ("tools/call", json!({"name": "greet", "arguments": []}), INVALID_PARAMS),
            ("ping", json!([]), INVALID_PARAMS),
        ] {
            let answer = request(method, &params);
            assert_eq!(answer["error"]["code"], code, "{answer}");
            assert_eq!(answer["id"], "a");
        }
    }

    #[test]
    fn lines_that_are_no_request_get_an_error_without_an_id() {
        for (line, code) in [
            (&b"{"[..], PARSE_ERROR),
            (b"\xff", PARSE_ERROR),
            (b"{} {}", PARSE_ERROR),
            (b"7", INVALID_REQUEST),
            (b"[]", INVALID_REQUEST),
            (b"{}", INVALID_REQUEST),
            (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, INVALID_REQUEST),
            (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, INVALID_REQUEST),
            (br#"{"jsonrpc":"2.0","id":1,"method":1}"#, INVALID_REQUEST),
        ] {
            let answer = greeter().answer(line).expect("an answer");
            assert_eq!(answer["error"]["code"], code, "{answer}");
            assert_eq!(answer["id"], Value::Null);
        }
    }

    #[test]
    fn notifications_and_stray_answers_are_not_answered() {
        for line in [
            &br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#[..],
            br#"{"jsonrpc":"2.0","method":"nonsense"}"#,
            br#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            br#"[{"jsonrpc":"2.0","method":"nonsense"}]"#,
        ] {
            assert_eq!(greeter().answer(line), None);
        }
    }

    #[test]
    fn the_loop_writes_one_line_per_answer_and_ends_with_its_input() {
        let input = b"\n{\r\n[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}";
        let mut output = Vec::new();
        greeter().serve_on(&input[..], &mut output).expect("served");
        let lines: Vec<Value> =
            output.split_inclusive(|&b| b == b'\n').map(|line| serde_json::from_slice(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["error"]["code"], PARSE_ERROR);
        assert_eq!(lines[1][0]["id"], 1);
        assert_eq!(lines[2]["id"], 2);
    }
}
