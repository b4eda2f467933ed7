//! One connection: received messages, and the responses of each method.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use testkit::raw;

use crate::behaviours::{self, Call};
use crate::definitions::Definitions;
use crate::options::{Options, Phase};
use crate::output::Output;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) options: Options,
    pub(crate) output: Output,
    definitions: Mutex<Definitions>,
    open: Mutex<Vec<OpenRequest>>,
    /// The current and the maximum number of open calls.
    most_open: AtomicUsize,
    journal: Option<File>,
}

/// A call without a response so far.
#[derive(Debug)]
struct OpenRequest {
    /// The id as the client wrote it.
    id: String,
    on_cancel: OnCancel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCancel {
    /// A cancelled call gets no response, as the protocol requires.
    Forget,
    AnswerAnyway,
}

impl Session {
    pub(crate) fn new(options: Options) -> anyhow::Result<Self> {
        let journal = match &options.journal {
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                Some(file.with_context(|| format!("could not open {}", path.display()))?)
            }
            None => None,
        };
        Ok(Self {
            output: Output::new(options.junk, options.result_first)?,
            definitions: Mutex::new(Definitions::new(&options)?),
            open: Mutex::default(),
            most_open: AtomicUsize::new(0),
            journal,
            options,
        })
    }

    /// Handles one line with its newline.
    pub(crate) fn receive(self: &Arc<Self>, line: &[u8]) {
        if let Some(mut journal) = self.journal.as_ref() {
            journal.write_all(line).expect("the journal of a test can be written");
        }
        let Some(message) = raw::members(line) else {
            self.output.error("null", r#"{"code":-32700,"message":"Parse error"}"#);
            return;
        };
        let Some(method) = message.get("method").and_then(|method| raw::text(method)) else {
            return; // An answer to one of our own requests: the journal has it.
        };
        let params = message.get("params").copied().unwrap_or("{}");
        match message.get("id") {
            Some(id) => self.request(id, &method, params, line),
            None => self.notification(&method, params),
        }
    }

    fn request(self: &Arc<Self>, id: &str, method: &str, params: &str, line: &[u8]) {
        match method {
            "initialize" => self.at_phase(Phase::Initialize, id, || self.initialize(id, params)),
            _ if self.options.hostile.page(method, params).map(|page| self.output.result(id, &page)).is_some() => {}
            "tools/list" => self.at_phase(Phase::List, id, || self.list(id, params)),
            "prompts/list" if self.options.hostile.is_talkative() => self.output.result(id, r#"{"prompts":[]}"#),
            "resources/list" if self.options.hostile.is_talkative() => self.output.result(id, r#"{"resources":[]}"#),
            "resources/templates/list" if self.options.hostile.is_talkative() => {
                self.output.result(id, r#"{"resourceTemplates":[]}"#);
            }
            "logging/setLevel" if self.options.hostile.is_talkative() => self.output.result(id, "{}"),
            "tools/call" => {
                let line_bytes = line.strip_suffix(b"\n").unwrap_or(line).len();
                match Call::read(id, params, line_bytes) {
                    Some(call) => behaviours::run(self, &call),
                    None => self.output.error(id, r#"{"code":-32602,"message":"A call needs a name"}"#),
                }
            }
            "ping" => self.output.result(id, "{}"),
            _ => self.output.error(id, r#"{"code":-32601,"message":"Method not found"}"#),
        }
    }

    fn notification(self: &Arc<Self>, method: &str, params: &str) {
        match method {
            "notifications/initialized" => {
                self.initialized();
                self.options.hostile.begin(self);
            }
            "notifications/cancelled" => {
                if let Some(id) = raw::at(params.as_bytes(), &["requestId"]) {
                    self.cancel(id);
                }
            }
            _ => {}
        }
    }

    /// Does what the flags define for this phase, or else `answer`.
    fn at_phase(&self, phase: Phase, id: &str, answer: impl FnOnce()) {
        let options = &self.options;
        if options.fail_at == Some(phase) {
            fail(phase);
        } else if options.hang_at == Some(phase) {
            // Nothing is written, ever.
        } else if options.error_at == Some(phase) {
            self.output.error(id, r#"{"code":-32603,"message":"fake-server refuses","data":{"why":"asked to"}}"#);
        } else if options.garbage_at == Some(phase) {
            self.output.line(b"this is not JSON");
        } else {
            answer();
        }
    }

    fn initialize(&self, id: &str, params: &str) {
        let version = match &self.options.version {
            Some(version) => raw::quote(version),
            None => raw::at(params.as_bytes(), &["protocolVersion"]).unwrap_or("\"2025-11-25\"").to_owned(),
        };
        let hostile = &self.options.hostile;
        let padding = "x".repeat(hostile.info_bytes);
        let name = raw::quote(&format!("{}{padding}", self.options.name));
        let capabilities = match hostile.is_talkative() {
            true => hostile.capabilities(),
            false => r#"{"tools":{"listChanged":true}}"#.to_owned(),
        };
        let instructions = hostile.instructions();
        self.output.result(
            id,
            &format!(
                r#"{{"protocolVersion":{version},"capabilities":{capabilities},"serverInfo":{{"name":{name},"version":"1.0.0{padding}"}}{instructions}}}"#
            ),
        );
    }

    fn initialized(&self) {
        if self.options.fail_at == Some(Phase::Initialized) {
            fail(Phase::Initialized);
        }
        if self.options.close_stdout_after_init {
            self.output.close().expect("stdout can be replaced by /dev/null");
        }
        if self.options.asks {
            let sampling = r#"{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}],"maxTokens":10}"#;
            self.output.request("\"ask-roots\"", "roots/list", "{}");
            self.output.request("7", "sampling/createMessage", sampling);
            self.output.request("\"ask-ping\"", "ping", "{}");
        }
    }

    fn list(&self, id: &str, params: &str) {
        let cursor = raw::at(params.as_bytes(), &["cursor"]).and_then(raw::text);
        match self.definitions().page(cursor.as_deref(), &self.options) {
            Some(page) => self.output.result(id, &page),
            None => self.output.error(id, r#"{"code":-32602,"message":"Unknown cursor"}"#),
        }
        if self.options.restless {
            self.output.notification("notifications/tools/list_changed", "{}");
        }
        if self.options.close_stdout_after_list {
            self.output.close().expect("stdout can be replaced by /dev/null");
        }
    }

    pub(crate) fn definitions(&self) -> MutexGuard<'_, Definitions> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, Vec<OpenRequest>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a call that will be answered later, if at all.
    pub(crate) fn keep_open(&self, id: &str, on_cancel: OnCancel) {
        let mut open = self.open();
        open.push(OpenRequest { id: id.to_owned(), on_cancel });
        self.most_open.fetch_max(open.len(), Ordering::Relaxed);
    }

    /// The maximum number of calls open at once.
    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(Ordering::Relaxed)
    }

    /// Answers an open call, unless it was cancelled.
    pub(crate) fn answer_open(&self, id: &str, result: &str) {
        if self.take_open(id).is_some() {
            self.output.result(id, result);
        }
    }

    pub(crate) fn open_ids(&self) -> Vec<String> {
        self.open().iter().map(|request| request.id.clone()).collect()
    }

    fn take_open(&self, id: &str) -> Option<OpenRequest> {
        let mut open = self.open();
        let position = open.iter().position(|request| request.id == id)?;
        Some(open.remove(position))
    }

    fn cancel(&self, id: &str) {
        if self.take_open(id).is_some_and(|request| request.on_cancel == OnCancel::AnswerAnyway) {
            self.output.result(id, &behaviours::text_result("answered although cancelled"));
        }
    }
}

/// Ends the process like a server that crashes.
pub(crate) fn fail(phase: Phase) -> ! {
    eprintln!("fake-server: something is missing");
    eprintln!("fake-server: giving up at {phase:?}");
    std::process::exit(3);
}
