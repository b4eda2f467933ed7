//! Servers over stdio that list, log and answer what no server should.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

/// The first argument of this program when it is to be a hostile server.
pub(crate) const FLAG: &str = "--hostile-server";

/// How often a server that changes its list does so.
const CHANGE_INTERVAL: Duration = Duration::from_secs(5);

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every page of its list has another one behind it.
    EndlessPages,
    /// An output schema with 20,000 references, changed again and again.
    References,
    /// A schema with 40,000 members of the same name.
    RepeatedMembers,
    /// A schema that is nested 20,000 levels deep.
    DeepSchema,
    /// A schema whose check takes 2^45 steps.
    DoublingSchema,
    /// 100,000 tools with long names.
    ManyTools,
    /// Log messages of 20 MB for everybody.
    HugeLogs,
    /// Instructions of 30 MB.
    HugeInstructions,
    /// Progress messages of 2 MB for every call.
    HugeProgress,
    /// Says without end that its lists have changed.
    Restless,
    /// Floods its stderr.
    Stderr,
    /// Answers no call.
    Silent,
    /// Ends in the middle of every call.
    Crash,
    /// Answers with lines that are no JSON-RPC, and with ids that nobody asked for.
    Garbage,
}

impl Kind {
    pub(crate) const ALL: [Self; 14] = [
        Self::EndlessPages,
        Self::References,
        Self::RepeatedMembers,
        Self::DeepSchema,
        Self::DoublingSchema,
        Self::ManyTools,
        Self::HugeLogs,
        Self::HugeInstructions,
        Self::HugeProgress,
        Self::Restless,
        Self::Stderr,
        Self::Silent,
        Self::Crash,
        Self::Garbage,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EndlessPages => "endless-pages",
            Self::References => "references",
            Self::RepeatedMembers => "repeated-members",
            Self::DeepSchema => "deep-schema",
            Self::DoublingSchema => "doubling-schema",
            Self::ManyTools => "many-tools",
            Self::HugeLogs => "huge-logs",
            Self::HugeInstructions => "huge-instructions",
            Self::HugeProgress => "huge-progress",
            Self::Restless => "restless",
            Self::Stderr => "stderr",
            Self::Silent => "silent",
            Self::Crash => "crash",
            Self::Garbage => "garbage",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Serves until stdin ends.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let name = arguments.first().context("which hostile server?")?;
    let kind = Kind::from_name(name).with_context(|| format!("there is no hostile server `{name}`"))?;
    let server = Server { kind, output: Arc::new(Mutex::new(io::stdout())) };
    let mut version = 0_u64;
    for line in io::stdin().lock().lines() {
        let line = line.context("failed to read stdin")?;
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(method) = message["method"].as_str() else { continue };
        let id = message["id"].clone();
        match method {
            "initialize" => server.answer(&id, &server.welcome(&message["params"]["protocolVersion"]).to_string()),
            "notifications/initialized" => server.begin(),
            "tools/list" => {
                version += 1;
                server.answer(&id, &server.list(version));
            }
            "tools/call" => server.call(&id, &message["params"]),
            _ if !id.is_null() => server.answer(&id, "{}"),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Server {
    kind: Kind,
    output: Arc<Mutex<io::Stdout>>,
}

impl Server {
    fn write(&self, line: &str) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let written = output.write_all(line.as_bytes()).and_then(|()| output.write_all(b"\n"));
        if written.and_then(|()| output.flush()).is_err() {
            // Nobody reads any more.
            std::process::exit(0);
        }
    }

    fn answer(&self, id: &Value, result: &str) {
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    fn notify(&self, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn welcome(&self, revision: &Value) -> Value {
        let mut welcome = json!({
            "protocolVersion": revision,
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": self.kind.name(), "version": "1"},
        });
        if self.kind == Kind::HugeInstructions {
            welcome["instructions"] = "i".repeat(30 << 20).into();
        }
        welcome
    }

    /// What it does without having been asked.
    fn begin(&self) {
        let server = self.clone();
        match self.kind {
            Kind::References | Kind::RepeatedMembers | Kind::ManyTools => server.repeat(CHANGE_INTERVAL, |server| {
                server.notify("notifications/tools/list_changed", &json!({}));
            }),
            Kind::Restless => server.repeat(Duration::from_millis(1), |server| {
                server.notify("notifications/tools/list_changed", &json!({}));
            }),
            Kind::HugeLogs => server.repeat(CHANGE_INTERVAL, |server| {
                server.notify("notifications/message", &json!({"level": "error", "data": "l".repeat(20 << 20)}));
            }),
            Kind::Stderr => server.repeat(Duration::from_millis(20), |_| {
                // A reader that is slower than this is the point.
                io::stderr().write_all("\u{1b}[2Jstderr \u{9b}31m".repeat(4_000).as_bytes()).ok();
            }),
            Kind::Garbage => server.repeat(Duration::from_millis(20), |server| {
                server.write("\u{0}{]");
                server.write(r#"{"jsonrpc":"2.0","id":99999999999999999999,"result":{}}"#);
                server.write(&format!(r#"{{"jsonrpc":"2.0","id":"{}","result":{{}}}}"#, "9".repeat(100_000)));
            }),
            _ => {}
        }
    }

    fn repeat(self, pause: Duration, act: impl Fn(&Self) + Send + 'static) {
        thread::spawn(move || {
            loop {
                thread::sleep(pause);
                act(&self);
            }
        });
    }

    /// The answer to the `version`th `tools/list`.
    fn list(&self, version: u64) -> String {
        let object = r#"{"type":"object"}"#;
        let tool = |schema: &str| format!(r#"{{"name":"t","description":"version {version}","inputSchema":{schema}}}"#);
        let tools = match self.kind {
            Kind::EndlessPages => {
                let filler = "x".repeat(1 << 20);
                let page = format!(r#"{{"name":"t{version}","description":"{filler}","inputSchema":{object}}}"#);
                return format!(r#"{{"tools":[{page}],"nextCursor":"{version}"}}"#);
            }
            Kind::References => {
                let members: Vec<String> =
                    (0..20_000).map(|index| format!(r##""m{index}":{{"$ref":"#/$defs/d{index}"}}"##)).collect();
                let definitions: Vec<String> =
                    (0..20_000).map(|index| format!(r#""d{index}":{{"type":"string"}}"#)).collect();
                format!(
                    r#"{{"name":"t","description":"version {version}","inputSchema":{object},"outputSchema":{{"type":"object","properties":{{{}}},"$defs":{{{}}}}}}}"#,
                    members.join(","),
                    definitions.join(",")
                )
            }
            Kind::RepeatedMembers => {
                tool(&format!(r#"{{"type":"object",{}"title":"t"}}"#, r#""description":"d","#.repeat(40_000)))
            }
            Kind::DeepSchema => {
                let deep = format!(
                    r#"{}{object}{}"#,
                    r#"{"type":"object","properties":{"a":"#.repeat(20_000),
                    "}}".repeat(20_000)
                );
                tool(&deep)
            }
            Kind::DoublingSchema => tool(&doubling_schema(45)),
            Kind::ManyTools => {
                let name = "n".repeat(200);
                let tools: Vec<String> = (0..100_000)
                    .map(|index| {
                        format!(r#"{{"name":"{name}{index}","description":"{version}","inputSchema":{object}}}"#)
                    })
                    .collect();
                tools.join(",")
            }
            _ => tool(object),
        };
        format!(r#"{{"tools":[{tools}]}}"#)
    }

    fn call(&self, id: &Value, params: &Value) {
        match self.kind {
            Kind::Silent => {}
            Kind::Crash => std::process::exit(1),
            Kind::HugeProgress => {
                let token = &params["_meta"]["progressToken"];
                for step in 0..20 {
                    let message = "p".repeat(2 << 20);
                    self.notify(
                        "notifications/progress",
                        &json!({"progressToken": token, "progress": step, "message": message}),
                    );
                }
                self.answer(id, r#"{"content":[]}"#);
            }
            _ => self.answer(id, r#"{"content":[]}"#),
        }
    }
}

/// A schema of `levels` definitions, each of which is the previous one twice.
fn doubling_schema(levels: u32) -> String {
    let mut definitions = vec![r#""d0":{"type":"string"}"#.to_owned()];
    for level in 1..=levels {
        let previous = level - 1;
        definitions.push(format!(
            r##""d{level}":{{"allOf":[{{"$ref":"#/$defs/d{previous}"}},{{"$ref":"#/$defs/d{previous}"}}]}}"##
        ));
    }
    format!(
        r##"{{"type":"object","properties":{{"c":{{"$ref":"#/$defs/d{levels}"}}}},"$defs":{{{}}}}}"##,
        definitions.join(",")
    )
}
