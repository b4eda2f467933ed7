//! The members of `_meta` with which every modern message states what legacy ones state once, in `initialize`.

use bytes::Bytes;

use crate::bridge::change::{Change, whole};
use crate::bridge::problem;
use crate::envelope::Params;
use crate::reply;
use crate::revision::SELF_CONTAINED_REVISION;
use crate::scan::{Span, member, members};

/// The revision of a request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The client's capabilities.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The client's name and version.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The lowest level of log messages that the client wants during the request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The server's name and version, on results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The `subscriptions/listen` request that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The task that a message belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// What a legacy client stated in `initialize`, for the modern requests made on its behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientMeta {
    /// Its capabilities, as JSON.
    pub capabilities: Bytes,
    /// Its name and version, as JSON.
    pub info: Option<Bytes>,
    /// The lowest level of log messages that it wants.
    pub log_level: Option<String>,
}

/// What a modern request states about its client, as spans into its line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RequestMeta {
    /// The revision.
    pub version: Option<Span>,
    /// The client's capabilities.
    pub capabilities: Option<Span>,
    /// The client's name and version.
    pub info: Option<Span>,
    /// The lowest level of log messages that it wants.
    pub log_level: Option<Span>,
}

/// What a request states about its client.
pub fn read(line: &[u8], params: &Params) -> RequestMeta {
    let Some(meta) = params.meta else { return RequestMeta::default() };
    let field = |name| member(line, meta, name);
    RequestMeta {
        version: params.version,
        capabilities: field(CLIENT_CAPABILITIES),
        info: field(CLIENT_INFO),
        log_level: field(LOG_LEVEL),
    }
}

/// A request for a modern server: with what the legacy client stated in `initialize`.
///
/// Positional parameters stay unchanged, because they cannot have `_meta`; no method of MCP uses them.
pub fn to_modern(line: &Bytes, params: &Params, client_meta: &ClientMeta) -> Bytes {
    let mut members = vec![
        (PROTOCOL_VERSION, reply::string(SELF_CONTAINED_REVISION)),
        (CLIENT_CAPABILITIES, client_meta.capabilities.to_vec()),
    ];
    if let Some(info) = &client_meta.info {
        members.push((CLIENT_INFO, info.to_vec()));
    }
    if let Some(level) = &client_meta.log_level {
        members.push((LOG_LEVEL, reply::string(level)));
    }
    add(line, params, members)
}

/// A message with these members in its `_meta`, which is added if there is none.
pub(crate) fn add(line: &Bytes, params: &Params, members: Vec<(&str, Vec<u8>)>) -> Bytes {
    let mut change = Change::new(line);
    if let Some(meta) = params.meta {
        for (name, value) in members {
            change.set_member(meta, name, &value);
        }
        return change.apply();
    }
    let meta = reply::object(members);
    match params.span {
        Some(span) if params.is_object => change.set_member(span, "_meta", &meta),
        Some(span) if span.of(line) != b"null" => {}
        _ => change.set_member(whole(line), "params", &reply::object([("_meta", meta)])),
    }
    change.apply()
}

/// A request or notification for a legacy server: without the members that only modern ones have.
pub fn to_legacy(line: &Bytes, params: &Params) -> Bytes {
    remove(line, params, &[PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL])
}

/// A message without these members of its `_meta`, and without `_meta` if that becomes empty.
pub(crate) fn remove(line: &Bytes, params: &Params, names: &[&str]) -> Bytes {
    let mut change = Change::new(line);
    let (Some(span), Some(meta)) = (params.span, params.meta) else { return line.clone() };
    let removed = names.iter().filter(|name| change.remove_member(meta, name)).count();
    let mut stays_one = false;
    members(line, meta, |key, _| {
        stays_one |= !names.iter().any(|name| crate::text::token_is(key.of(line), name));
    });
    if removed > 0 && !stays_one {
        change.remove_member(span, "_meta");
    }
    change.apply()
}

/// The error object for an invalid modern request, as JSON. See [`problem::check_modern`].
pub fn problem(line: &[u8], params: &Params) -> Option<Vec<u8>> {
    problem::check_modern(line, params).err().map(|problem| problem.object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;

    fn client_meta() -> ClientMeta {
        ClientMeta {
            capabilities: Bytes::from_static(b"{\"roots\":{}}"),
            info: Some(Bytes::from_static(b"{\"name\":\"c\",\"version\":\"1\"}")),
            log_level: Some("info".to_owned()),
        }
    }

    const MEMBERS: &str = concat!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{"roots":{}},"#,
        r#""io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"#,
        r#""io.modelcontextprotocol/logLevel":"info""#
    );

    fn modern(line: &str) -> String {
        let line = Bytes::copy_from_slice(line.as_bytes());
        let envelope = Envelope::scan(&line).unwrap();
        String::from_utf8(to_modern(&line, &envelope.params, &client_meta()).to_vec()).unwrap()
    }

    fn legacy(line: &str) -> String {
        let line = Bytes::copy_from_slice(line.as_bytes());
        let envelope = Envelope::scan(&line).unwrap();
        String::from_utf8(to_legacy(&line, &envelope.params).to_vec()).unwrap()
    }

    #[test]
    fn the_client_meta_is_added_wherever_params_allow_it() {
        let start = r#"{"jsonrpc":"2.0","id":1,"method":"m""#;
        assert_eq!(modern(&format!("{start}}}")), format!(r#"{start},"params":{{"_meta":{{{MEMBERS}}}}}}}"#));
        assert_eq!(
            modern(&format!(r#"{start},"params":null}}"#)),
            format!(r#"{start},"params":{{"_meta":{{{MEMBERS}}}}}}}"#)
        );
        assert_eq!(
            modern(&format!(r#"{start},"params":{{"name": 1.0}} }}"#)),
            format!(r#"{start},"params":{{"name": 1.0,"_meta":{{{MEMBERS}}}}} }}"#)
        );
        assert_eq!(
            modern(&format!(r#"{start},"params":{{"_meta":{{"progressToken":1 }},"a":1}}}}"#)),
            format!(r#"{start},"params":{{"_meta":{{"progressToken":1,{MEMBERS} }},"a":1}}}}"#)
        );
        assert_eq!(
            modern(&format!(r#"{start},"params":{{"_meta":null}}}}"#)),
            format!(r#"{start},"params":{{"_meta":{{{MEMBERS}}}}}}}"#)
        );
        let positional = format!(r#"{start},"params":[1]}}"#);
        assert_eq!(modern(&positional), positional);
    }

    #[test]
    fn a_client_meta_that_is_there_is_replaced() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientInfo":1}}}"#;
        assert_eq!(
            modern(line),
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/logLevel":"info"}}}"#
        );
    }

    #[test]
    fn the_client_meta_is_removed_and_nothing_else() {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"a/b": 1.0,{MEMBERS},"progressToken":"t"}},"x":[1, 2]}}}}"#
        );
        assert_eq!(
            legacy(&line),
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"a/b": 1.0,"progressToken":"t"},"x":[1, 2]}}"#
        );
    }

    #[test]
    fn a_meta_that_held_only_the_client_meta_is_removed_with_it() {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"x":1,"_meta":{{{MEMBERS}}}}}}}"#);
        assert_eq!(legacy(&line), r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":1}}"#);
        let empty = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{}}}"#;
        assert_eq!(legacy(empty), empty, "an empty one that was the client's own stays");
        let none = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        assert_eq!(legacy(none), none);
    }

    #[test]
    fn the_meta_of_a_modern_request_is_found() {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{{MEMBERS}}}}}}}"#);
        let line = line.as_bytes();
        let meta = read(line, &Envelope::scan(line).unwrap().params);
        let text = |span: Option<Span>| std::str::from_utf8(span.unwrap().of(line)).unwrap();
        assert_eq!(text(meta.version), "\"2026-07-28\"");
        assert_eq!(text(meta.capabilities), "{\"roots\":{}}");
        assert_eq!(text(meta.info), "{\"name\":\"c\",\"version\":\"1\"}");
        assert_eq!(text(meta.log_level), "\"info\"");
        assert_eq!(problem(line, &Envelope::scan(line).unwrap().params), None);
        assert_eq!(read(b"{}", &Params::default()), RequestMeta::default());
    }
}
