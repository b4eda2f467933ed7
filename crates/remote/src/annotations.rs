//! The headers of modern requests, including the arguments that tools require to be repeated there.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{Item, Kind, Offer, ServerName};
use hyper::header::{HeaderName, HeaderValue};
use protocol::bridge::header_params;
use protocol::bridge::headers;
use protocol::{Envelope, Kind as MessageKind, revision, text};
use tokio::sync::watch;
use tokio::time::timeout;
use upstream::Connection;

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// How long a server may take to list its tools again, when a call is waiting for that.
const RELIST_TIMEOUT: Duration = Duration::from_secs(15);

/// How many tools with a logged warning are remembered.
const MAX_WARNED_TOOLS: usize = 1000;

/// The header parameters of one server's tools.
#[derive(Debug, Default)]
pub(crate) struct Annotations {
    learned: Mutex<Learned>,
    /// Counts how often the tools were listed.
    times: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Learned {
    /// The tools that have some.
    annotated: HashMap<Arc<str>, Item>,
    /// Tools whose omission was logged.
    warned: HashSet<String>,
}

impl Annotations {
    /// Learns the header parameters of the listed tools. Tools with invalid ones are left out.
    pub(crate) fn learn(&self, server: &ServerName, offer: &mut Offer) {
        let mut annotated = HashMap::new();
        let mut wrong = HashMap::new();
        for tool in offer.items(Kind::Tool).iter() {
            match tool.header_params() {
                Ok([]) => {}
                Ok(_) => drop(annotated.insert(Arc::clone(&tool.id), tool.clone())),
                Err(problem) => drop(wrong.insert(Arc::clone(&tool.id), problem.to_string())),
            }
        }
        let mut learned = self.lock();
        learned.annotated = annotated;
        for (tool, problem) in &wrong {
            if learned.warned.len() < MAX_WARNED_TOOLS && learned.warned.insert(tool.to_string()) {
                tracing::warn!(%server, %tool, %problem, "dropped a tool that cannot be called over HTTP");
            }
        }
        drop(learned);
        if !wrong.is_empty() {
            let kept = offer.items(Kind::Tool).iter().filter(|tool| !wrong.contains_key(&tool.id)).cloned().collect();
            let hints = offer.hints[Kind::Tool as usize];
            offer.set_items(Kind::Tool, kept, hints);
        }
        self.times.send_modify(|times| *times += 1);
    }

    /// Lists the tools again, and waits until that is done.
    pub(crate) async fn relearn(&self, connection: &Connection) {
        let mut times = self.times.subscribe();
        times.mark_unchanged();
        connection.note_change(&[Kind::Tool]);
        if timeout(RELIST_TIMEOUT, times.changed()).await.is_err() {
            tracing::debug!(server = %connection.server(), "the tools were not listed again in time");
        }
    }

    /// The headers of a modern request or notification.
    pub(crate) fn headers(&self, line: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
        let Ok(envelope) = Envelope::scan(line) else { return Vec::new() };
        let (MessageKind::Request { method, .. } | MessageKind::Notification { method }) = envelope.kind else {
            return Vec::new();
        };
        let method = text::decode(method.of(line)).unwrap_or_default();
        let version = envelope.params.version.and_then(|version| text::decode(version.of(line)));
        let version = match version.as_deref() {
            None | Some(revision::SELF_CONTAINED_REVISION) => {
                HeaderValue::from_static(revision::SELF_CONTAINED_REVISION)
            }
            Some(other) => value(&headers::encode(other)),
        };
        let mut headers = vec![(PROTOCOL_VERSION, version), (METHOD, value(&headers::encode(&method)))];
        let Some(name) = headers::name_of(&method, line, &envelope.params) else { return headers };
        if method == "tools/call"
            && let Some(wanted) = self.annotated(&name)
        {
            let wanted = wanted.header_params().unwrap_or_default();
            let repeated = header_params::values(line, &envelope.params, wanted).into_iter();
            headers.extend(repeated.filter_map(|(name, text)| Some((name.parse().ok()?, value(&text)))));
        }
        headers.push((NAME, value(&headers::encode(&name))));
        headers
    }

    fn annotated(&self, tool: &str) -> Option<Item> {
        self.lock().annotated.get(tool).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn value(encoded: &str) -> HeaderValue {
    HeaderValue::from_str(encoded).expect("what is encoded for a header can stand in one")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use catalog::{Hints, Item};
    use protocol::Lifecycle;

    use super::*;

    const REGION: &str = r#"{"name":"geo é","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}"#;
    const WRONG: &str =
        r#"{"name":"bad","inputSchema":{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}}"#;
    const PLAIN: &str = r#"{"name":"plain"}"#;

    fn web() -> ServerName {
        ServerName::new("web").unwrap()
    }

    fn offer(definitions: &[&'static str]) -> Offer {
        let read =
            |definition: &&'static str| Item::read(Kind::Tool, Bytes::from_static(definition.as_bytes())).unwrap();
        let mut offer = Offer::new(Lifecycle::SelfContained);
        offer.set_items(Kind::Tool, definitions.iter().map(read).collect(), Hints { ttl_ms: 7, is_private: false });
        offer
    }

    fn headers(annotations: &Annotations, line: &str) -> Vec<String> {
        let headers = annotations.headers(line.as_bytes());
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn a_call_repeats_annotated_arguments_in_headers() {
        let annotations = Annotations::default();
        annotations.learn(&web(), &mut offer(&[REGION, PLAIN]));
        let call = |name: &str| {
            let params = format!(r#"{{"name":"{name}","arguments":{{"r":"us\nwest"}}}}"#);
            headers(&annotations, &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#))
        };
        assert_eq!(
            call(r"geo \u00e9"),
            [
                "mcp-protocol-version: 2026-07-28",
                "mcp-method: tools/call",
                "mcp-param-region: =?base64?dXMKd2VzdA==?=",
                "mcp-name: =?base64?Z2VvIMOp?="
            ]
        );
        assert_eq!(call("plain"), ["mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: plain"]);
    }

    #[test]
    fn the_version_is_the_one_in_the_body() {
        let params = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}}"#;
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{params}}}"#);
        assert_eq!(
            headers(&Annotations::default(), &line),
            ["mcp-protocol-version: 2027-01-01", "mcp-method: tools/list"]
        );
    }

    #[test]
    fn tools_with_invalid_annotations_are_omitted_and_the_others_stay() {
        let annotations = Annotations::default();
        let mut offered = offer(&[REGION, WRONG, PLAIN]);
        annotations.learn(&web(), &mut offered);
        assert_eq!(offered, offer(&[REGION, PLAIN]));
        let mut later = offer(&[PLAIN]);
        annotations.learn(&web(), &mut later);
        assert!(annotations.lock().annotated.is_empty(), "what is gone wants nothing");
        assert_eq!(*annotations.times.borrow(), 2);
    }
}
