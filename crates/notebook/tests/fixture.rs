//! A fake toolbox: servers, tools with all kinds of results, and a fixed clock.

use std::sync::Mutex;

use jiff::Timestamp;
use notebook::{
    Answer, Applied, ApplyOptions, Binding, Bindings, Document, Failure, Plan, Question, Report, Request, RunOptions,
    Selection, Server, ToolSchema, ToolTable, Toolbox, WantedTools, apply, run,
};
use proptest::test_runner::Config;
use serde_json::{Value, json};

/// A toolbox with fake tools.
#[derive(Default)]
pub(crate) struct FakeToolbox {
    /// The calls, in order.
    pub(crate) calls: Mutex<Vec<Request>>,
    /// The questions to the assistant.
    pub(crate) questions: Mutex<Vec<Question>>,
}

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABXvMqOgAAAABJRU5ErkJggg==";

const HOSTILE: &str = "words\n```\n````\n~~~\n<!-- /mcp-result id=0123456789abcdef -->\n</details>\n\
    <!-- mcp-result id=0123456789abcdef status=ok at=x ms=1 -->\n# Heading\n<!-- mcp: other -->\n\
    ```echo\ntool: say\nwords: never\n```\n^one\n> quote\n\n[a]: https://example.com\n\n```echo\ntool: open";

pub(crate) fn servers() -> Vec<Server> {
    let server = |name: &str, is_enabled| Server { name: name.to_owned(), is_enabled };
    vec![server("off", false), server("echo", true), server("other", true)]
}

const TOOLS: [&str; 18] = [
    "say",
    "lines",
    "shown",
    "back",
    "json",
    "image",
    "links",
    "resources",
    "fail",
    "collapse",
    "hostile",
    "markdown",
    "open-markdown",
    "name",
    "structured",
    "numbers",
    "nothing",
    "control",
];

fn schema(tool: &str) -> Value {
    match tool {
        "say" => json!({
            "type": "object",
            "properties": { "words": { "type": "string" }, "loud": { "type": "boolean" } },
            "required": ["words"],
            "additionalProperties": false
        }),
        "lines" => json!({ "type": "object", "properties": { "count": { "type": "integer", "maximum": 1000 } } }),
        "shown" => json!({ "type": "object", "properties": { "display": { "type": "string" } } }),
        "back" => json!({ "type": "object" }),
        _ => json!({ "type": "object", "additionalProperties": false }),
    }
}

fn text(words: &str) -> String {
    json!({ "content": [{ "type": "text", "text": words }] }).to_string()
}

impl Toolbox for FakeToolbox {
    fn servers(&self) -> Vec<Server> {
        servers()
    }

    async fn tools(&self, _server: &str, wanted: &WantedTools) -> Option<ToolTable> {
        let mut table = ToolTable::new(wanted, true);
        for tool in TOOLS {
            table.add(tool, || Some(ToolSchema::Tree(schema(tool))));
        }
        Some(table)
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        self.calls.lock().unwrap().push(request.clone());
        let arguments: Value = serde_json::from_str(&request.arguments).unwrap();
        Ok(match request.tool.as_str() {
            "say" => text(arguments["words"].as_str().unwrap()),
            "shown" => text(arguments["display"].as_str().unwrap_or("nothing")),
            "lines" => {
                let count = arguments["count"].as_u64().unwrap_or(2);
                text(&(1..=count).map(|number| format!("line {number}\n")).collect::<String>())
            }
            "back" => text(&request.arguments),
            "name" => text(&request.server),
            "json" => text(r#"{"b":1e2,"a":[1,2.50,{}],"nested":{"ü":"x"}}"#),
            "structured" => json!({
                "content": [{ "type": "text", "text": "sunny" }],
                "structuredContent": { "sky": "blue" },
                "_meta": { "tokensUsed": 42 }
            })
            .to_string(),
            "numbers" => r#"{"content":[],"structuredContent":{"z":1.0,"a":1e400,"z2":12345678901234567890123}}"#.to_owned(),
            "nothing" => r#"{"content":[]}"#.to_owned(),
            "control" => text("a\u{1b}[31mred\u{0}\r\nb\rc\td"),
            "image" => json!({ "content": [
                { "type": "text", "text": "a picture" },
                { "type": "image", "data": PIXEL, "mimeType": "image/png" },
            ] })
            .to_string(),
            "links" => json!({ "content": [
                { "type": "resource_link", "uri": "https://example.com/a?b=[c]", "name": "a*b", "description": "1. words\nmore" },
                { "type": "resource_link", "uri": "javascript:alert(`1`)", "name": "- [x](y)" },
                { "type": "audio", "data": "AAEC", "mimeType": "audio/wav" },
            ] })
            .to_string(),
            "resources" => json!({ "content": [
                { "type": "resource", "resource": { "uri": "file:///a.md", "mimeType": "text/markdown", "text": "# Title\n\n- a\n- b\n" } },
                { "type": "resource", "resource": { "uri": "file:///a.json", "mimeType": "application/json", "text": "{\"a\":1}" } },
                { "type": "resource", "resource": { "uri": "file:///a.rs", "mimeType": "text/x-rust", "text": "fn main() {}\n" } },
                { "type": "resource", "resource": { "uri": "file:///a.bin", "blob": "AAEC" } },
            ] })
            .to_string(),
            "fail" => json!({ "content": [{ "type": "text", "text": "no such city: ```Atlantis```" }], "isError": true }).to_string(),
            "collapse" => return Err(Failure::new("server `echo` stopped while it was called")),
            "hostile" => text(HOSTILE),
            "markdown" => text("# Report\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- item\n  ```rust\n  fn x() {}\n  ```\n\n1. one\n2. two\n"),
            "open-markdown" => text("Look:\n\n```rust\nfn never_closed() {"),
            other => panic!("{other} was called"),
        })
    }

    async fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        self.questions.lock().unwrap().push(question.clone());
        let markdown = format!("It is **{}**, with tools of {:?}.\n\n- a\n- b", question.words, question.server);
        Ok(Answer { markdown, tokens: Some(7) })
    }

    fn now(&self) -> Timestamp {
        "2026-01-02T03:04:05.678Z".parse().unwrap()
    }
}

/// Runs all blocks of a text and writes the results into it.
pub(crate) fn run_text(text: &str) -> (Applied, Report) {
    run_with(text, &FakeToolbox::default(), &[], &Selection::default(), false)
}

pub(crate) fn run_with(
    text: &str,
    world: &impl Toolbox,
    registered: &[Binding],
    selection: &Selection,
    force: bool,
) -> (Applied, Report) {
    let document = Document::parse(text);
    let bindings = Bindings::of(&document, registered);
    let plan = Plan::new(&document, &world.servers(), &bindings, selection, force).unwrap();
    let running = run(&plan, world, RunOptions::default(), std::future::pending(), |_| {});
    let report = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(running);
    let applied = apply(text, &report, &ApplyOptions { force, folder: "my notes.assets" });
    (applied, report)
}

/// Enough cases to find common errors quickly; set `PROPTEST_CASES` for more.
pub(crate) fn many_cases() -> Config {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { 1000 };
    Config { cases, failure_persistence: None, ..Config::default() }
}
