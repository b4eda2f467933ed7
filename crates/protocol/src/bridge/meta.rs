//! The members of `_meta` with which modern messages tell what an `initialize` would have told.

use bytes::Bytes;

use crate::bridge::change::{Change, whole};
use crate::bridge::problem;
use crate::envelope::{Envelope, Params};
use crate::reply;
use crate::revision::SELF_CONTAINED_REVISION;
use crate::scan::{Span, member, members};

/// The revision a request speaks.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client offers to the server.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who the client is.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on log messages are wanted while the request runs.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who the server is, on results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Which `subscriptions/listen` a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Which task a message belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// What a legacy client told once, for the modern requests made on its behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientMeta {
    /// What the client offers, as JSON.
    pub capabilities: Bytes,
    /// Who it is, as JSON.
    pub info: Option<Bytes>,
    /// From which level on it wants log messages.
    pub log_level: Option<String>,
}

/// What a modern request tells about its client, as spans into its line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RequestMeta {
    /// The revision it speaks.
    pub version: Option<Span>,
    /// What the client offers.
    pub capabilities: Option<Span>,
    /// Who the client is.
    pub info: Option<Span>,
    /// From which level on it wants log messages.
    pub log_level: Option<Span>,
}

/// What a request says about its client.
pub fn read(line: &[u8], params: &Params) -> RequestMeta {
    let Some(meta) = params.meta else { return RequestMeta::default() };
    let told = |name| member(line, meta, name);
    RequestMeta {
        version: params.version,
        capabilities: told(CLIENT_CAPABILITIES),
        info: told(CLIENT_INFO),
        log_level: told(LOG_LEVEL),
    }
}

/// A request as a modern server wants it: with the introduction that a legacy client made once.
///
/// Positional parameters are left alone, because they have no place for it; no method of MCP has any.
pub fn to_modern(line: &Bytes, envelope: &Envelope, client_meta: &ClientMeta) -> Bytes {
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
    add(line, &envelope.params, members)
}

/// A message with these members in its `_meta`, which is made where there is none.
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

/// A request as a legacy server wants it: without what only modern ones carry.
pub fn to_legacy(line: &Bytes, envelope: &Envelope) -> Bytes {
    remove(line, &envelope.params, &[PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL])
}

/// A message without these members of its `_meta`, and without `_meta` if nothing is left in it.
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

/// What is wrong with a request that claims to be modern: an error object as JSON. See [`problem::check_modern`].
pub fn problem(line: &[u8], params: &Params) -> Option<Vec<u8>> {
    problem::check_modern(line, params).err().map(|problem| problem.object())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        String::from_utf8(to_modern(&line, &envelope, &client_meta()).to_vec()).unwrap()
    }

    fn legacy(line: &str) -> String {
        let line = Bytes::copy_from_slice(line.as_bytes());
        let envelope = Envelope::scan(&line).unwrap();
        String::from_utf8(to_legacy(&line, &envelope).to_vec()).unwrap()
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
        let told = read(line, &Envelope::scan(line).unwrap().params);
        let text = |span: Option<Span>| std::str::from_utf8(span.unwrap().of(line)).unwrap();
        assert_eq!(text(told.version), "\"2026-07-28\"");
        assert_eq!(text(told.capabilities), "{\"roots\":{}}");
        assert_eq!(text(told.info), "{\"name\":\"c\",\"version\":\"1\"}");
        assert_eq!(text(told.log_level), "\"info\"");
        assert_eq!(problem(line, &Envelope::scan(line).unwrap().params), None);
        assert_eq!(read(b"{}", &Params::default()), RequestMeta::default());
    }
}
