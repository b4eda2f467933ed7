//! A message that a puppet received, and the ways to respond.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use serde_json::Value;

use super::stage::Stage;
use crate::driver::shown;
use crate::{raw, wait_until};

/// A message that was left to the test.
#[derive(Clone, Debug)]
pub struct Received {
    line: Vec<u8>,
    id: Option<String>,
    method: Option<String>,
    route: ResponseRoute,
}

/// Where messages about it are sent.
#[derive(Clone, Debug)]
pub(super) enum ResponseRoute {
    /// On the stdout of the run it arrived in.
    Stdout { stage: Arc<Stage>, run_index: usize },
    /// On the response to its HTTP request.
    Answer { to: Sender<Reply>, headers: Arc<BTreeMap<String, String>>, request_outcome: Arc<RequestOutcome> },
}

/// An instruction for the thread of an HTTP request.
#[derive(Debug)]
pub(super) enum Reply {
    /// A message before the response.
    Message(String),
    /// The response; nothing follows.
    Answer(String),
    /// A response with its own status.
    Status(u16, String),
    /// No response: the connection breaks.
    Break,
}

/// Whether the client of an HTTP request disconnected.
#[derive(Debug, Default)]
pub(super) struct RequestOutcome {
    pub(super) abandoned: std::sync::atomic::AtomicBool,
}

impl Received {
    pub(super) fn new(line: Vec<u8>, route: ResponseRoute) -> Self {
        let members = raw::members(&line).unwrap_or_default();
        let id = members.get("id").map(|id| (*id).to_owned());
        let method = members.get("method").and_then(|method| raw::text(method));
        drop(members);
        Self { line, id, method, route }
    }

    /// The line as it came.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The whole message.
    #[track_caller]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.line).unwrap_or_else(|error| panic!("{error} in {}", shown(&self.line)))
    }

    /// The id as it was written.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The method.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Whether it has this method.
    pub fn is(&self, method: &str) -> bool {
        self.method() == Some(method)
    }

    /// Whether it is a request.
    pub fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    /// A value under `params`, as it was written.
    pub fn param(&self, path: &[&str]) -> Option<&str> {
        raw::at(&self.line, &[&["params"], path].concat())
    }

    /// A text under `params`.
    pub fn text_param(&self, path: &[&str]) -> Option<String> {
        self.param(path).and_then(raw::text)
    }

    /// The progress token as it was written.
    #[track_caller]
    pub fn progress_token(&self) -> &str {
        self.param(&["_meta", "progressToken"]).expect("the request asks for progress")
    }

    /// An HTTP header it came with, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        match &self.route {
            ResponseRoute::Answer { headers, .. } => headers.get(name).map(String::as_str),
            ResponseRoute::Stdout { .. } => None,
        }
    }

    /// Whether the client closed the HTTP request.
    pub fn is_abandoned(&self) -> bool {
        match &self.route {
            ResponseRoute::Answer { request_outcome, .. } => {
                request_outcome.abandoned.load(std::sync::atomic::Ordering::SeqCst)
            }
            ResponseRoute::Stdout { .. } => false,
        }
    }

    /// Waits until the client closes the HTTP request.
    #[track_caller]
    pub fn wait_abandoned(&self) {
        wait_until("the client gives the request up", || self.is_abandoned().then_some(()));
    }

    /// Answers with this result, byte for byte.
    #[track_caller]
    pub fn answer(&self, result: &str) {
        self.finish(&self.message("result", result));
    }

    /// Answers with this error object, byte for byte.
    #[track_caller]
    pub fn fail(&self, error: &str) {
        self.finish(&self.message("error", error));
    }

    /// Sends the answer as a whole line.
    #[track_caller]
    pub fn finish(&self, line: &str) {
        match &self.route {
            ResponseRoute::Stdout { stage, run_index } => stage.write_in(*run_index, &format!("{line}\n")),
            // The thread has ended if the client disconnected, which the test will notice.
            ResponseRoute::Answer { to, .. } => to.send(Reply::Answer(line.to_owned())).unwrap_or_default(),
        }
    }

    /// Answers an HTTP request with this status and body.
    pub fn finish_with_status(&self, status: u16, body: &str) {
        if let ResponseRoute::Answer { to, .. } = &self.route {
            to.send(Reply::Status(status, body.to_owned())).unwrap_or_default();
        }
    }

    /// Breaks the connection of an HTTP request instead of answering.
    pub fn break_off(&self) {
        if let ResponseRoute::Answer { to, .. } = &self.route {
            to.send(Reply::Break).unwrap_or_default();
        }
    }

    /// Sends a line before the response, on the stream of this request.
    #[track_caller]
    pub fn aside(&self, line: &str) {
        match &self.route {
            ResponseRoute::Stdout { stage, run_index } => stage.write_in(*run_index, &format!("{line}\n")),
            ResponseRoute::Answer { to, .. } => to.send(Reply::Message(line.to_owned())).unwrap_or_default(),
        }
    }

    /// Sends progress; `rest` is what follows the token, such as `"progress":1`.
    #[track_caller]
    pub fn progress(&self, rest: &str) {
        let token = self.progress_token();
        let params = format!(r#"{{"progressToken":{token},{rest}}}"#);
        self.aside(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#));
    }

    /// Sends a server request during this request.
    #[track_caller]
    pub fn ask(&self, id: &str, method: &str, params: &str) {
        self.aside(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
    }

    fn message(&self, key: &str, value: &str) -> String {
        let id = self.id.as_deref().expect("a notification cannot be answered");
        format!(r#"{{"jsonrpc":"2.0","id":{id},"{key}":{value}}}"#)
    }
}
