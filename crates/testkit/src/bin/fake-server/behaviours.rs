//! The behaviour of each tool.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use testkit::raw;

use crate::flood_stderr;
use crate::grandchild::Grandchild;
use crate::hostile;
use crate::session::{OnCancel, Session};

/// A `tools/call` as it arrived, in the client's own bytes.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    id: &'a str,
    name: String,
    arguments: Option<&'a str>,
    meta: Option<&'a str>,
    line_bytes: usize,
}

impl<'a> Call<'a> {
    pub(crate) fn read(id: &'a str, params: &'a str, line_bytes: usize) -> Option<Self> {
        let params = raw::members(params.as_bytes())?;
        Some(Self {
            id,
            name: raw::text(params.get("name")?)?,
            arguments: params.get("arguments").copied(),
            meta: params.get("_meta").copied(),
            line_bytes,
        })
    }

    /// An argument as it was written.
    fn argument(&self, name: &str) -> Option<&'a str> {
        raw::at(self.arguments?.as_bytes(), &[name])
    }

    fn text(&self, name: &str) -> Option<String> {
        self.argument(name).and_then(raw::text)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.argument(name)?.parse().ok()
    }

    fn flag(&self, name: &str) -> bool {
        self.argument(name) == Some("true")
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(self.number("ms").unwrap_or(0))
    }
}

pub(crate) fn run(session: &Arc<Session>, call: &Call<'_>) {
    let output = &session.output;
    let id = call.id;
    let done = text_result("done");
    match call.name.as_str() {
        "echo" => output.result(id, &echo(call)),
        "raw" => output.result(id, &call.text("result").unwrap_or_default()),
        "raw_error" => output.error(id, &call.text("error").unwrap_or_default()),
        "raw_line" => output.line(&raw_line(call)),
        "blob" => {
            let text = "x".repeat(call.number("bytes").unwrap_or(0) as usize);
            output.result(id, &text_result(&text));
        }
        "size" => output.result(id, &value_result("bytes", &call.line_bytes.to_string())),
        "sleep" => sleep(session, call),
        "hang" => session.keep_open(id, OnCancel::Forget),
        "late_after_cancel" => session.keep_open(id, OnCancel::AnswerAnyway),
        "progress" => progress(session, call),
        "crash" => crash(call),
        "reply_then_exit" => {
            output.result(id, &done);
            process::exit(call.number("code").unwrap_or(0) as i32);
        }
        "change_tools" => {
            let names = call.argument("names").and_then(|names| serde_json::from_str::<Vec<String>>(names).ok());
            session.definitions().replace_generated(&names.unwrap_or_default());
            output.notification("notifications/tools/list_changed", "{}");
            output.result(id, &done);
        }
        "twice" => {
            output.result(id, &done);
            output.result(id, &text_result("done again"));
        }
        "wrong_id" => {
            output.result("424242", &text_result("nobody asked"));
            output.result("\"x\"", &text_result("nobody asked"));
            output.result(id, &done);
        }
        "null_id" => {
            output.error("null", r#"{"code":-32700,"message":"Parse error"}"#);
            output.result(id, &done);
        }
        "junk_then_answer" => {
            output.line(b"just a word from a forgotten print");
            output.line(b"");
            output.line(br#"{"half":"#);
            output.result(id, &done);
        }
        "split_answer" => {
            let response = output.response(id, "result", &done).into_bytes();
            let third = response.len() / 3;
            output.write(&[&response[..third], &response[third..2 * third], &response[2 * third..]]);
        }
        "stderr" => {
            flood_stderr(call.number("bytes").unwrap_or(0) as usize);
            output.result(id, &done);
        }
        "grandchild" => grandchild(session, call),
        "pid" => output.result(id, &value_result("pid", &process::id().to_string())),
        "env" => {
            let value = call.text("name").and_then(std::env::var_os);
            let value = value.map_or(Value::Null, |value| value.to_string_lossy().into());
            output.result(id, &value_result("value", &value.to_string()));
        }
        "args" => {
            let arguments: Value = std::env::args().skip(1).collect();
            output.result(id, &value_result("args", &arguments.to_string()));
        }
        "cwd" => {
            let folder = std::env::current_dir().unwrap_or_default();
            output.result(id, &value_result("cwd", &raw::quote(&folder.to_string_lossy())));
        }
        "logs" => {
            output.notification("notifications/message", r#"{"level":"info","logger":"fake","data":"a log message"}"#);
            output.result(id, &done);
        }
        "pending" => output.result(id, &value_result("ids", &format!("[{}]", session.open_ids().join(",")))),
        "most_open" => output.result(id, &value_result("count", &session.most_open().to_string())),
        name if session.options.hostile.tools && hostile_call(session, call, name) => {}
        name if session.definitions().contains(name) => output.result(id, &echo(call)),
        name => {
            let message = raw::quote(&format!("Unknown tool: {name}"));
            let data = raw::quote(name);
            output.error(id, &format!(r#"{{"code":-32602,"message":{message},"data":{{"tool":{data}}}}}"#));
        }
    }
}

/// Runs a tool of [`hostile`]. Returns whether it is one.
fn hostile_call(session: &Session, call: &Call<'_>, name: &str) -> bool {
    let token = call.meta.and_then(|meta| raw::at(meta.as_bytes(), &["progressToken"]));
    let bytes = call.number("bytes").unwrap_or(0) as usize;
    hostile::call(session, call.id, name, token, bytes, call.number("times").unwrap_or(1))
}

pub(crate) fn text_result(text: &str) -> String {
    [r#"{"content":[{"type":"text","text":"#, &raw::quote(text), "}]}"].concat()
}

/// A result with `{"<key>":<json>}`, both as text and structured.
fn value_result(key: &str, json: &str) -> String {
    let text = raw::quote(json);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{{"{key}":{json}}}}}"#)
}

/// The arguments and `_meta` in the client's own bytes, if they were sent.
fn echo(call: &Call<'_>) -> String {
    let text = call.argument("text").filter(|text| text.starts_with('"')).unwrap_or("\"echo\"");
    let mut parts = vec![r#"{"content":[{"type":"text","text":"#, text, "}]"];
    if let Some(arguments) = call.arguments {
        parts.extend([r#","structuredContent":"#, arguments]);
    }
    if let Some(meta) = call.meta {
        parts.extend([r#","_meta":"#, meta]);
    }
    parts.push("}");
    parts.concat()
}

/// The line to write: `line` as text, or `hex` for arbitrary bytes.
fn raw_line(call: &Call<'_>) -> Vec<u8> {
    let template = match call.text("hex") {
        Some(hex) => from_hex(&hex),
        None => call.text("line").unwrap_or_default().into_bytes(),
    };
    let mut line = Vec::with_capacity(template.len());
    let mut rest = template.as_slice();
    while let Some(&first) = rest.first() {
        if let Some(after) = rest.strip_prefix(b"{id}") {
            line.extend_from_slice(call.id.as_bytes());
            rest = after;
        } else {
            line.push(first);
            rest = &rest[1..];
        }
    }
    line
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn sleep(session: &Arc<Session>, call: &Call<'_>) {
    session.keep_open(call.id, OnCancel::Forget);
    let (session, id, pause) = (Arc::clone(session), call.id.to_owned(), call.pause());
    std::thread::spawn(move || {
        std::thread::sleep(pause);
        session.answer_open(&id, &text_result("slept"));
    });
}

fn progress(session: &Arc<Session>, call: &Call<'_>) {
    session.keep_open(call.id, OnCancel::Forget);
    let token = call.meta.and_then(|meta| raw::at(meta.as_bytes(), &["progressToken"])).map(str::to_owned);
    let (session, id, pause) = (Arc::clone(session), call.id.to_owned(), call.pause());
    let steps = call.number("steps").unwrap_or(1);
    std::thread::spawn(move || {
        let report = |token: &str, step: u64| {
            let params =
                format!(r#"{{"progressToken":{token},"progress":{step},"total":{steps},"message":"step {step}"}}"#);
            session.output.notification("notifications/progress", &params);
        };
        if let Some(token) = token {
            report("999999", 0);
            for step in 1..=steps {
                report(&token, step);
                std::thread::sleep(pause);
            }
        }
        session.answer_open(&id, &text_result("progressed"));
    });
}

fn crash(call: &Call<'_>) -> ! {
    let signal = call.number("signal").and_then(|number| Signal::from_named_raw(number as i32));
    if let Some(signal) = signal {
        // Twice: the first SIGSEGV or SIGBUS only removes the handler of Rust's stack overflow check.
        for _ in 0..2 {
            kill_process(getpid(), signal).expect("a process may signal itself");
        }
        // The signal may take a moment to arrive; an ignored one ends us all the same.
        std::thread::sleep(Duration::from_millis(500));
    }
    process::exit(call.number("code").unwrap_or(1) as i32);
}

fn grandchild(session: &Session, call: &Call<'_>) {
    let grandchild = Grandchild {
        setsid: call.flag("setsid"),
        ignore_term: call.flag("ignore_term"),
        undumpable: call.flag("undumpable"),
        inherit_stdio: call.flag("inherit"),
    };
    match grandchild.start() {
        Ok(pid) => session.output.result(call.id, &value_result("pid", &pid.to_string())),
        Err(error) => {
            let message = raw::quote(&format!("{error:#}"));
            session.output.error(call.id, &format!(r#"{{"code":-32603,"message":{message}}}"#));
        }
    }
}
