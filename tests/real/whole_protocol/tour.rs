//! A tour: the steps with which a client uses the whole protocol with each server.
//!
//! No step depends on what other clients do with the same server at the same time, so several tours can run
//! concurrently. Other steps use names with the label of the tour, or are in other tests. Calls are cancelled late: a
//! server request right after a cancellation may belong to the cancelled call, and we refuse it. But they are not the
//! last steps: a client that disconnects immediately may not have sent the cancellation.

use serde_json::{Value, json};

use crate::real::clients::Lifecycle;
use crate::real::http_servers::{HttpServer, TRANSPORTS};
use crate::real::parts::Parts;
use crate::real::sandbox::Sandbox;
use crate::real::servers::{self, Server};
use crate::real::steps::{
    call, call_with_progress, call_with_replies, cancelled_call, complete_prompt, complete_template, list, other_lists,
    prompt, read, with_logs,
};

/// The kind of a server, which determines the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Everything,
    Filesystem,
    Memory,
    Thinking,
    Git,
    Time,
    Fetch,
    FastMcp,
    Notes,
}

/// A server on the tour.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) key: &'static str,
    pub(super) lifecycle: Lifecycle,
    pub(super) kind: Kind,
    /// Its entry in the config of a client, or in ours.
    entry: Value,
}

/// All servers of the tour. Those over HTTP end on drop.
#[derive(Debug)]
pub(super) struct Tour {
    pub(super) stops: Vec<Stop>,
    _http_servers: Vec<HttpServer>,
}

impl Tour {
    /// All servers, each over all its transports and in all its revisions.
    pub(super) fn new(parts: &Parts, sandbox: &Sandbox) -> Self {
        let [everything_http, everything_sse, fm_http] = std::thread::scope(|scope| {
            let everything = TRANSPORTS.map(|transport| scope.spawn(move || HttpServer::everything(parts, transport)));
            let fm = scope.spawn(|| HttpServer::fastmcp(parts, sandbox));
            let [http, sse] = everything;
            [http, sse, fm].map(|server| server.join().expect("a real server starts"))
        });
        let local = |kind, lifecycle, server: &Server| Stop::new(server.key, kind, lifecycle, server.to_value());
        let stops = vec![
            local(Kind::Everything, Lifecycle::Legacy, &servers::everything(parts)),
            Stop::new("everything-http", Kind::Everything, Lifecycle::Legacy, everything_http.entry()),
            Stop::new("everything-sse", Kind::Everything, Lifecycle::Legacy, everything_sse.entry()),
            local(Kind::Filesystem, Lifecycle::Legacy, &servers::filesystem(parts, &sandbox.files())),
            local(Kind::Memory, Lifecycle::Legacy, &servers::memory(parts, &sandbox.path("memory.jsonl"))),
            local(Kind::Thinking, Lifecycle::Legacy, &servers::thinking(parts)),
            local(Kind::Git, Lifecycle::Modern, &servers::git(parts, &sandbox.repository())),
            local(Kind::Time, Lifecycle::Modern, &servers::time(parts)),
            local(Kind::Fetch, Lifecycle::Modern, &servers::fetch(parts)),
            local(Kind::FastMcp, Lifecycle::Legacy, &servers::fastmcp(parts, sandbox)),
            Stop::new("fm-http", Kind::FastMcp, Lifecycle::Modern, fm_http.entry()),
            local(Kind::Notes, Lifecycle::Modern, &servers::notes(parts, sandbox)),
            Stop::new("notes-legacy", Kind::Notes, Lifecycle::Legacy, servers::notes(parts, sandbox).to_value()),
        ];
        Self { stops, _http_servers: vec![everything_http, everything_sse, fm_http] }
    }

    /// The first of each kind.
    pub(super) fn without_repetition(&self) -> Vec<&Stop> {
        let mut distinct: Vec<&Stop> = Vec::new();
        for stop in &self.stops {
            if !distinct.iter().any(|other| other.is_like(stop)) {
                distinct.push(stop);
            }
        }
        distinct
    }

    /// The few servers that cover most of the protocol.
    pub(super) fn highlights(&self) -> Vec<&Stop> {
        self.stops.iter().filter(|stop| ["everything", "fm", "notes"].contains(&stop.key)).collect()
    }
}

impl Stop {
    fn new(key: &'static str, kind: Kind, lifecycle: Lifecycle, entry: Value) -> Self {
        Self { key, lifecycle, kind, entry }
    }

    /// It in our config.
    pub(super) fn behind_us(&self) -> Value {
        let mut entry = self.entry.clone();
        entry["era"] = if self.lifecycle == Lifecycle::Modern { "modern".into() } else { "legacy".into() };
        entry
    }

    /// Whether both must give the same answers: the same server, in the same kind of revision.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.kind, self.lifecycle) == (other.kind, other.lifecycle)
    }

    /// It in the config of a client on the tour of this label.
    pub(super) fn direct(&self, label: &str, sandbox: &Sandbox) -> Value {
        let mut entry = self.entry.clone();
        if self.kind == Kind::Memory {
            // Two processes cannot share a memory.
            entry["env"]["MEMORY_FILE_PATH"] = json!(sandbox.path(&format!("{label}.jsonl")));
        }
        entry
    }

    /// The name of its tool or prompt through us.
    pub(super) fn prefix(&self) -> String {
        format!("{}.", self.key)
    }

    /// Tools that must be present for the list to be complete: some appear only after the handshake.
    pub(super) fn awaited_tools(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Everything => &["get-roots-list", "trigger-elicitation-request", "trigger-sampling-request"],
            _ => &[""],
        }
    }

    /// Whether it records the label of a cancelled call.
    pub(super) fn notes_cancellations(&self) -> bool {
        matches!(self.kind, Kind::FastMcp | Kind::Notes)
    }

    /// All there is to list, then all there is to do.
    pub(super) fn lists_and_steps(&self, label: &str, sandbox: &Sandbox) -> Vec<Value> {
        let lists = std::iter::once(list(self.awaited_tools())).chain(other_lists());
        lists.chain(self.steps(label, sandbox)).collect()
    }

    /// All there is to do.
    pub(super) fn steps(&self, label: &str, sandbox: &Sandbox) -> Vec<Value> {
        match self.kind {
            Kind::Everything => everything(),
            Kind::Filesystem => filesystem(label, sandbox),
            Kind::Memory => memory(label),
            Kind::Thinking => thinking(),
            Kind::Git => git(sandbox),
            Kind::Time => time(),
            Kind::Fetch => fetch(),
            Kind::FastMcp => fastmcp(label),
            Kind::Notes => notes(label),
        }
    }
}

fn accept(content: &Value) -> Value {
    json!({"action": "accept", "content": content})
}

fn decline() -> Value {
    json!({"action": "decline"})
}

fn thought(text: &str) -> Value {
    json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "none"})
}

fn everything() -> Vec<Value> {
    let link = json!({"url": "https://example.com/", "elicitationId": "mine"});
    vec![
        call("echo", &json!({"message": "quotes \" and \\, ü, 漢字 and 🙂"})),
        call("echo", &json!({"message": 5})),
        call("get-structured-content", &json!({"location": "Chicago"})),
        call("get-annotated-message", &json!({"messageType": "error", "includeImage": true})),
        call("get-resource-links", &json!({"count": 2})),
        read("demo://resource/static/document/features.md"),
        prompt("simple-prompt", &json!({})),
        prompt("args-prompt", &json!({"city": "Berlin"})),
        complete_prompt("completable-prompt", ("department", "E"), &json!({})),
        complete_prompt("completable-prompt", ("name", "A"), &json!({"department": "Engineering"})),
        complete_template("demo://resource/dynamic/text/{resourceId}", ("resourceId", "1")),
        call_with_progress("trigger-long-running-operation", &json!({"duration": 0.1, "steps": 2})),
        call("get-roots-list", &json!({})),
        call_with_replies("trigger-elicitation-request", &json!({}), &[accept(&json!({"name": "Ada"}))]),
        call_with_replies("trigger-elicitation-request", &json!({}), &[decline()]),
        call_with_replies("trigger-url-elicitation", &link, &[json!({"action": "accept"})]),
        call_with_replies("trigger-sampling-request", &json!({"prompt": "six times seven?"}), &[thought("42")]),
        cancelled_call("trigger-long-running-operation", &json!({"duration": 20, "steps": 1000}), 2),
        call("echo", &json!({"message": "still here"})),
    ]
}

fn filesystem(label: &str, sandbox: &Sandbox) -> Vec<Value> {
    let folder = sandbox.files().join(label);
    let note = folder.join("note.txt");
    vec![
        call("create_directory", &json!({"path": folder})),
        call("write_file", &json!({"path": note, "content": "a line\n"})),
        call("read_text_file", &json!({"path": note})),
        call("list_directory", &json!({"path": folder})),
        call("read_text_file", &json!({"path": "/etc/passwd"})),
    ]
}

fn memory(label: &str) -> Vec<Value> {
    let entity = json!({"name": label, "entityType": "tour", "observations": ["was here"]});
    vec![
        call("create_entities", &json!({"entities": [entity]})),
        call("open_nodes", &json!({"names": [label]})),
        call("delete_entities", &json!({"entityNames": [label]})),
    ]
}

fn thinking() -> Vec<Value> {
    let first = json!({"thought": "hm", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": true});
    vec![call("sequentialthinking", &first), call("sequentialthinking", &json!({"thought": "hm"}))]
}

fn git(sandbox: &Sandbox) -> Vec<Value> {
    let arguments = json!({"repo_path": sandbox.path("repository")});
    vec![call("git_status", &arguments), call("git_log", &arguments), call("git_status", &json!({}))]
}

fn time() -> Vec<Value> {
    let at = |zone: &str| json!({"source_timezone": zone, "time": "12:30", "target_timezone": "Asia/Tokyo"});
    vec![call("convert_time", &at("UTC")), call("convert_time", &at("Nowhere"))]
}

fn fetch() -> Vec<Value> {
    let arguments = json!({"url": "http://127.0.0.1:9/"});
    // A tool and a prompt with the same name; both refuse to fetch from this machine.
    vec![call("fetch", &arguments), prompt("fetch", &arguments)]
}

fn fastmcp(label: &str) -> Vec<Value> {
    vec![
        call("add", &json!({"a": 2, "b": 3})),
        call("add", &json!({"a": "two"})),
        call("fail", &json!({})),
        call_with_progress("count", &json!({"to": 3})),
        with_logs(1, call("say", &json!({"text": "a word"}))),
        call_with_replies("introduce", &json!({}), &[accept(&json!({"name": "Ada", "age": 36}))]),
        call_with_replies("introduce", &json!({}), &[decline()]),
        read("fm://motto"),
        read("fm://greeting/Ada"),
        prompt("describe", &json!({"thing": "a tour"})),
        cancelled_call("count_for_ever", &json!({"label": label}), 2),
        call("add", &json!({"a": 1, "b": 1})),
    ]
}

fn notes(label: &str) -> Vec<Value> {
    let numbers = [accept(&json!({"colour": "red"})), accept(&json!({"number": 3}))];
    vec![
        call_with_progress("count", &json!({"to": 3})),
        with_logs(1, call("say", &json!({"text": "a word"}))),
        call_with_replies("ask", &json!({}), &numbers),
        call_with_replies("ask", &json!({}), &[decline()]),
        call_with_replies("think", &json!({}), &[thought("42")]),
        read("note://one"),
        read("note://another"),
        prompt("review", &json!({"language": "rust"})),
        complete_prompt("review", ("language", "ru"), &json!({})),
        complete_template("note://{name}", ("name", "on")),
        cancelled_call("count-for-ever", &json!({"label": label}), 2),
        call("count", &json!({"to": 1})),
    ]
}
