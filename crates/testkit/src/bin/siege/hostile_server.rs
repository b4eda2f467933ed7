//! Servers over stdio that list, log, request and respond too much or wrongly.
//!
//! Each counts its actions: one byte in a file with its name for every action. A siege in which a server did nothing
//! proves nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::hostile_lists;

/// The first argument of a hostile server; its kind and the folder of counts follow.
pub(crate) const FLAG: &str = "--hostile-server";

/// How often a server changes its list.
const CHANGE_INTERVAL: Duration = Duration::from_secs(5);

/// The kinds of misbehaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every page of its list of tools has a next one.
    EndlessPages,
    /// The same for resources, with many small items.
    EndlessResources,
    /// An output schema with 20,000 references, changed again and again.
    References,
    /// A schema with 40,000 members of the same name.
    RepeatedMembers,
    /// A schema that is nested 20,000 levels deep.
    DeepSchema,
    /// A schema whose check takes 2^45 steps.
    DoublingSchema,
    /// 100,000 tools with long names: more than one server may list.
    ManyTools,
    /// 50,000 tools, which is within the limits, changed repeatedly.
    LargeList,
    /// Thousands of URI templates that take long to match.
    Templates,
    /// A tool whose header annotations have paths of gigabytes.
    HeaderPaths,
    /// A tool with as many header annotations as are allowed, for calls with large arguments.
    HeaderParams,
    /// Schemas whose edits for legacy clients take several times their size.
    Edits,
    /// 50,000 resources and a single one in turns.
    Shrinking,
    /// Thousands of resources that another server has as well.
    SharedUris,
    /// The other one.
    SharedUrisAgain,
    /// One of these resources, and none, in turns.
    OneSharedUri,
    /// Log messages of 100 MB for all clients.
    HugeLogs,
    /// Log messages of 3 MB, which is within the limits, endlessly.
    ManyLogs,
    /// Instructions of 30 MB.
    HugeInstructions,
    /// Progress messages of 2 and 30 MB for every call.
    HugeProgress,
    /// Results of 40 MB.
    HugeResults,
    /// A thousand server requests of 100 kB in every call.
    Questions,
    /// Announces list changes endlessly.
    Restless,
    /// Announces resource changes endlessly.
    Updates,
    /// Floods its stderr.
    Stderr,
    /// Answers no call.
    Silent,
    /// Ends in the middle of every call.
    Crash,
    /// Sends invalid lines, and responses with unknown ids.
    Garbage,
}

impl Kind {
    pub(crate) const ALL: [Self; 28] = [
        Self::EndlessPages,
        Self::EndlessResources,
        Self::References,
        Self::RepeatedMembers,
        Self::DeepSchema,
        Self::DoublingSchema,
        Self::ManyTools,
        Self::LargeList,
        Self::Templates,
        Self::HeaderPaths,
        Self::HeaderParams,
        Self::Edits,
        Self::Shrinking,
        Self::SharedUris,
        Self::SharedUrisAgain,
        Self::OneSharedUri,
        Self::HugeLogs,
        Self::ManyLogs,
        Self::HugeInstructions,
        Self::HugeProgress,
        Self::HugeResults,
        Self::Questions,
        Self::Restless,
        Self::Updates,
        Self::Stderr,
        Self::Silent,
        Self::Crash,
        Self::Garbage,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EndlessPages => "endless-pages",
            Self::EndlessResources => "endless-resources",
            Self::References => "references",
            Self::RepeatedMembers => "repeated-members",
            Self::DeepSchema => "deep-schema",
            Self::DoublingSchema => "doubling-schema",
            Self::ManyTools => "many-tools",
            Self::LargeList => "large-list",
            Self::Templates => "templates",
            Self::HeaderPaths => "header-paths",
            Self::HeaderParams => "header-params",
            Self::Edits => "edits",
            Self::Shrinking => "shrinking",
            Self::SharedUris => "shared-uris",
            Self::SharedUrisAgain => "shared-uris-again",
            Self::OneSharedUri => "one-shared-uri",
            Self::HugeLogs => "huge-logs",
            Self::ManyLogs => "many-logs",
            Self::HugeInstructions => "huge-instructions",
            Self::HugeProgress => "huge-progress",
            Self::HugeResults => "huge-results",
            Self::Questions => "questions",
            Self::Restless => "restless",
            Self::Updates => "updates",
            Self::Stderr => "stderr",
            Self::Silent => "silent",
            Self::Crash => "crash",
            Self::Garbage => "garbage",
        }
    }

    /// The text in the service's log that shows that this server reached its limit. Servers without one stay within the
    /// limits; their counts are the proof.
    pub(crate) fn bound_in_log(self) -> Option<&'static str> {
        Some(match self {
            Self::EndlessPages | Self::EndlessResources | Self::ManyTools | Self::Edits => "server_catalog_kb",
            Self::References => "has more than 2000 references",
            Self::RepeatedMembers => "has more than 20000 members and elements",
            Self::DeepSchema => "nested deeper than 56 levels",
            Self::Templates => "are listed but not matched against URIs",
            Self::HeaderPaths => "x-mcp-header annotations",
            Self::SharedUris | Self::SharedUrisAgain | Self::OneSharedUri => "listed by two servers",
            // A line of that length is not even read to its end.
            Self::HugeLogs => "it is more than 32 MB, which is the limit",
            Self::HugeProgress => "server_notification_kb",
            Self::HugeInstructions => "server_handshake_kb",
            _ => return None,
        })
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Serves until stdin ends.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [name, operations] = arguments else {
        anyhow::bail!("which hostile server, and where does it count its operations?")
    };
    let kind = Kind::from_name(name).with_context(|| format!("there is no hostile server `{name}`"))?;
    let operations = OpenOptions::new().create(true).append(true).open(Path::new(operations).join(name))?;
    let server = Server { kind, output: Arc::new(Mutex::new(io::stdout())), operations: Arc::new(operations) };
    let mut version = 0_u64;
    for line in io::stdin().lock().lines() {
        let line = line.context("failed to read stdin")?;
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(method) = message["method"].as_str() else { continue };
        let id = message["id"].clone();
        match method {
            "initialize" => server.welcome(&id, &message["params"]["protocolVersion"]),
            "notifications/initialized" => server.begin(),
            "server/discover" => server.refuse(&id),
            "tools/list" => {
                version += 1;
                server.answer(&id, &server.list(version));
            }
            "resources/list" => {
                version += 1;
                server.answer(&id, &server.resources(version));
            }
            "resources/templates/list" => server.answer(&id, &server.templates()),
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
    operations: Arc<File>,
}

impl Server {
    fn write(&self, line: &str) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let written = output.write_all(line.as_bytes()).and_then(|()| output.write_all(b"\n"));
        if written.and_then(|()| output.flush()).is_err() {
            // The reader is gone.
            std::process::exit(0);
        }
    }

    /// Counts one action. If that fails, the siege fails because the count is missing.
    fn count(&self) {
        (&*self.operations).write_all(b".").ok();
    }

    fn answer(&self, id: &Value, result: &str) {
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    fn refuse(&self, id: &Value) {
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no such method"}}}}"#));
    }

    fn notify(&self, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn welcome(&self, id: &Value, revision: &Value) {
        let mut capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
        let has_resources = matches!(
            self.kind,
            Kind::EndlessResources
                | Kind::Templates
                | Kind::Updates
                | Kind::Shrinking
                | Kind::SharedUris
                | Kind::SharedUrisAgain
                | Kind::OneSharedUri
        );
        if has_resources {
            capabilities["resources"] = json!({"subscribe": true, "listChanged": true});
        }
        let mut welcome = json!({
            "protocolVersion": revision,
            "capabilities": capabilities,
            "serverInfo": {"name": self.kind.name(), "version": "1"},
        });
        if self.kind == Kind::HugeInstructions {
            welcome["instructions"] = "i".repeat(30 << 20).into();
            self.count();
        }
        self.answer(id, &welcome.to_string());
    }

    /// What it does by itself.
    fn begin(&self) {
        let list_changed = |server: &Self| server.notify("notifications/tools/list_changed", &json!({}));
        let resources_changed = |server: &Self| server.notify("notifications/resources/list_changed", &json!({}));
        match self.kind {
            Kind::References | Kind::RepeatedMembers | Kind::ManyTools | Kind::LargeList | Kind::HeaderPaths => {
                self.repeat(CHANGE_INTERVAL, list_changed);
            }
            Kind::Shrinking => self.repeat(CHANGE_INTERVAL, resources_changed),
            Kind::OneSharedUri => self.repeat(CHANGE_INTERVAL / 50, resources_changed),
            Kind::Restless => self.repeat(Duration::from_millis(1), move |server| {
                list_changed(server);
                server.count();
            }),
            Kind::HugeLogs => self.repeat(CHANGE_INTERVAL * 4, |server| {
                server.notify("notifications/message", &json!({"level": "error", "data": "l".repeat(100 << 20)}));
                server.count();
            }),
            Kind::ManyLogs => self.repeat(Duration::from_millis(500), |server| {
                server.notify("notifications/message", &json!({"level": "error", "data": "l".repeat(3 << 20)}));
                server.count();
            }),
            Kind::Updates => self.repeat(Duration::from_millis(1), |server| {
                server.notify("notifications/resources/updated", &json!({"uri": "u://1/and/more"}));
                server.count();
            }),
            Kind::Stderr => self.repeat(Duration::from_millis(20), |server| {
                // It is meant to be faster than its reader.
                io::stderr().write_all("\u{1b}[2Jstderr \u{9b}31m".repeat(4_000).as_bytes()).ok();
                server.count();
            }),
            Kind::Garbage => self.repeat(Duration::from_millis(20), |server| {
                server.write("\u{0}{]");
                server.write(r#"{"jsonrpc":"2.0","id":99999999999999999999,"result":{}}"#);
                server.write(&format!(r#"{{"jsonrpc":"2.0","id":"{}","result":{{}}}}"#, "9".repeat(100_000)));
                server.count();
            }),
            _ => {}
        }
    }

    fn repeat(&self, pause: Duration, act: impl Fn(&Self) + Send + 'static) {
        let server = self.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(pause);
                act(&server);
            }
        });
    }

    /// The answer to the `version`th `tools/list`.
    fn list(&self, version: u64) -> String {
        let object = r#"{"type":"object"}"#;
        let tool = |schema: &str| format!(r#"{{"name":"t","description":"version {version}","inputSchema":{schema}}}"#);
        let many = |count: u32, name: &str| {
            // Only the first tool differs each time, so that the vectors of the others are computed once.
            let description = |index| if index == 0 { version } else { 0 };
            let tool = |index| {
                let description = description(index);
                format!(r#"{{"name":"{name}{index}","description":"{description}","inputSchema":{object}}}"#)
            };
            (0..count).map(tool).collect::<Vec<_>>().join(",")
        };
        let tools = match self.kind {
            Kind::EndlessPages => {
                let filler = "x".repeat(1 << 20);
                let page = format!(r#"{{"name":"t{version}","description":"{filler}","inputSchema":{object}}}"#);
                self.count();
                return format!(r#"{{"tools":[{page}],"nextCursor":"{version}"}}"#);
            }
            Kind::References => {
                // Too many of everything, and too many references alone.
                let count = if version.is_multiple_of(2) { 3_000 } else { 20_000 };
                let members: Vec<String> =
                    (0..count).map(|index| format!(r##""m{index}":{{"$ref":"#/$defs/d{index}"}}"##)).collect();
                let definitions: Vec<String> =
                    (0..count).map(|index| format!(r#""d{index}":{{"type":"string"}}"#)).collect();
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
            Kind::HeaderPaths => hostile_lists::tools_with_header_paths(version),
            Kind::HeaderParams => hostile_lists::tool_with_header_params(),
            Kind::Edits => hostile_lists::tools_with_edits(),
            Kind::ManyTools => many(100_000, &"n".repeat(200)),
            Kind::LargeList => many(50_000, "tool_with_a_name_of_ordinary_length_"),
            _ => return format!(r#"{{"tools":[{}]}}"#, tool(object)),
        };
        self.count();
        format!(r#"{{"tools":[{tools}]}}"#)
    }

    fn resources(&self, version: u64) -> String {
        match self.kind {
            Kind::EndlessResources => {
                let resource = |index: u32| format!(r#"{{"uri":"e://{version}/{index}","name":"n"}}"#);
                let page: Vec<String> = (0..1_000).map(resource).collect();
                self.count();
                format!(r#"{{"resources":[{}],"nextCursor":"{version}"}}"#, page.join(","))
            }
            Kind::Shrinking => {
                self.count();
                hostile_lists::resources("w", if version.is_multiple_of(2) { 1 } else { 50_000 })
            }
            Kind::SharedUris | Kind::SharedUrisAgain => {
                self.count();
                hostile_lists::resources("s", hostile_lists::SHARED_URIS)
            }
            Kind::OneSharedUri => {
                self.count();
                hostile_lists::resources("s", u32::from(!version.is_multiple_of(2)))
            }
            _ => r#"{"resources":[]}"#.to_owned(),
        }
    }

    fn templates(&self) -> String {
        match self.kind {
            Kind::Templates => {
                let expression = "{+a:32}".repeat(64);
                let template = |index: u32| format!(r#"{{"uriTemplate":"{expression}{index}","name":"n"}}"#);
                let templates: Vec<String> = (0..7_000).map(template).collect();
                self.count();
                format!(r#"{{"resourceTemplates":[{}]}}"#, templates.join(","))
            }
            Kind::Updates => r#"{"resourceTemplates":[{"uriTemplate":"u://{+id}","name":"n"}]}"#.to_owned(),
            _ => r#"{"resourceTemplates":[]}"#.to_owned(),
        }
    }

    fn call(&self, id: &Value, params: &Value) {
        match self.kind {
            Kind::Silent => return self.count(),
            Kind::Crash => {
                self.count();
                std::process::exit(1);
            }
            Kind::HugeProgress => {
                let token = &params["_meta"]["progressToken"];
                for (step, megabytes) in [2, 2, 30, 2, 2].into_iter().enumerate() {
                    let message = "p".repeat(megabytes << 20);
                    self.notify(
                        "notifications/progress",
                        &json!({"progressToken": token, "progress": step, "message": message}),
                    );
                }
                self.count();
            }
            Kind::HugeResults => {
                self.count();
                let text = "r".repeat(40 << 20);
                return self.answer(id, &format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#));
            }
            Kind::Questions => {
                let message = "q".repeat(100 << 10);
                for number in 0..1_000 {
                    self.write(
                        &json!({
                            "jsonrpc": "2.0", "id": format!("{id}-{number}"), "method": "elicitation/create",
                            "params": {"message": message, "requestedSchema": {"type": "object", "properties": {}}},
                        })
                        .to_string(),
                    );
                }
                self.count();
            }
            Kind::DoublingSchema | Kind::HeaderParams => self.count(),
            _ => {}
        }
        self.answer(id, r#"{"content":[]}"#);
    }
}

/// A schema of `levels` definitions, each of which contains the previous one twice.
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
