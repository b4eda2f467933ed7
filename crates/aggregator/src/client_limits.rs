//! Limits on what one client, one identity and all clients together may make us store: client info, ids,
//! subscriptions.
//!
//! `serve --limit NAME=VALUE` changes a limit; the errors contain the same names.

use protocol::reply::{self, code};
use protocol::scan::member;
use protocol::{Params, RequestEnvelope, Span};

/// The limits of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// Bytes of what a client declares: `clientInfo`, `capabilities` and `protocolVersion`.
    pub info_bytes: usize,
    /// Bytes of a request id, a progress token or a cursor.
    pub id_bytes: usize,
    /// Bytes of a URI that is subscribed to.
    pub uri_bytes: usize,
    /// Subscriptions of one session.
    pub session_subscriptions: usize,
    /// Subscriptions of one identity: a token, or the local user.
    pub identity_subscriptions: usize,
    /// Subscriptions of all clients.
    pub subscriptions: usize,
    /// Bytes of the responses to one batch; later responses are replaced by errors. The last one may exceed it.
    pub batch_bytes: usize,
    /// Clients without a session that are remembered.
    pub sessionless_clients: usize,
    /// The same of one identity.
    pub identity_sessionless_clients: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            info_bytes: 64 << 10,
            id_bytes: 1 << 10,
            uri_bytes: 8 << 10,
            session_subscriptions: 1_000,
            identity_subscriptions: 5_000,
            subscriptions: 20_000,
            batch_bytes: 32 << 20,
            sessionless_clients: 1_000,
            identity_sessionless_clients: 500,
        }
    }
}

impl ClientLimits {
    /// The error response to a request whose id, progress token or cursor is too long.
    pub(crate) fn refusal(&self, line: &[u8], request: &RequestEnvelope) -> Option<Vec<u8>> {
        let &RequestEnvelope { id, ref params, .. } = request;
        let length = |span: Option<Span>| span.map_or(0, |span| span.end - span.start);
        if length(Some(id)).max(length(params.wanted_progress)).max(length(params.cursor)) <= self.id_bytes
            && length(params.meta) <= self.info_bytes
        {
            return None;
        }
        let named = [("id", Some(id)), ("progress token", params.wanted_progress), ("cursor", params.cursor)];
        let too_long = named.into_iter().find(|(_, span)| length(*span) > self.id_bytes);
        if let Some((what, span)) = too_long {
            let text = format!(
                "Invalid Request: the {what} has {} bytes; at most {} are accepted (limit `id-bytes`)",
                length(span),
                self.id_bytes
            );
            // An id that is too long is not repeated.
            let id = if what == "id" { b"null" } else { id.of(line) };
            return Some(reply::error(id, code::INVALID_REQUEST, &text, None));
        }
        let introduction = protocol::bridge::meta::read(line, params);
        let bytes = length(introduction.info) + length(introduction.capabilities);
        self.too_much_info(bytes).map(|text| reply::error(id.of(line), code::INVALID_PARAMS, &text, None))
    }

    /// Why an `initialize` with these parameters is refused.
    pub(crate) fn refusal_of_initialize(&self, line: &[u8], params: &Params) -> Option<String> {
        let whole = params.span?;
        if whole.end - whole.start <= self.info_bytes {
            return None;
        }
        let members = ["protocolVersion", "capabilities", "clientInfo"];
        let length = |name: &str| member(line, whole, name).map_or(0, |span| span.end - span.start);
        self.too_much_info(members.into_iter().map(length).sum())
    }

    fn too_much_info(&self, bytes: usize) -> Option<String> {
        (bytes > self.info_bytes).then(|| {
            format!(
                "Invalid params: name, version and capabilities of the client have {} kB; at most {} kB are accepted \
                 (limit `client-info-kb`)",
                bytes.div_ceil(1 << 10),
                self.info_bytes >> 10
            )
        })
    }

    /// Why these subscriptions are refused, given the number that exist.
    pub(crate) fn refusal_of_subscriptions(&self, known: SubscriptionCounts, more: &[&str]) -> Option<String> {
        if let Some(uri) = more.iter().find(|uri| uri.len() > self.uri_bytes) {
            let most = self.uri_bytes;
            return Some(format!("the URI has {} bytes; at most {most} are accepted (limit `uri-bytes`)", uri.len()));
        }
        let counts = [
            (known.session, self.session_subscriptions, "this session", "subscriptions-per-session"),
            (known.identity, self.identity_subscriptions, "this token or user", "subscriptions-per-token"),
            (known.all, self.subscriptions, "all clients together", "subscriptions"),
        ];
        let full = counts.into_iter().find(|(known, most, ..)| known + more.len() > *most);
        full.map(|(_, most, whose, limit)| format!("{whose} may have {most} subscriptions at most (limit `{limit}`)"))
    }
}

/// How many subscriptions there are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SubscriptionCounts {
    pub(crate) session: usize,
    pub(crate) identity: usize,
    pub(crate) all: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> Option<String> {
        let request = protocol::Envelope::scan(line.as_bytes()).unwrap().into_request().unwrap();
        let refusal = ClientLimits::default().refusal(line.as_bytes(), &request)?;
        Some(String::from_utf8(refusal).unwrap())
    }

    #[test]
    fn ids_and_tokens_of_requests_are_bounded() {
        let (short, long) = ("x".repeat(1000), "x".repeat(1023));
        assert_eq!(refused(&format!(r#"{{"jsonrpc":"2.0","id":"{short}","method":"ping"}}"#)), None);
        let error = refused(&format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"ping"}}"#)).unwrap();
        assert!(error.contains(r#""id":null"#) && error.contains("the id has 1025 bytes"), "{error}");
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":"{long}"}}}}}}"#
        );
        let error = refused(&call).unwrap();
        assert!(error.contains(r#""id":7"#) && error.contains("progress token"), "{error}");
        let list = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{"cursor":"{long}"}}}}"#);
        assert!(refused(&list).unwrap().contains("the cursor has"));
    }

    #[test]
    fn a_modern_client_may_send_much_but_not_as_client_info() {
        let much = "x".repeat(70_000);
        let call = |meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"t","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28",{meta}}}}}}}"#
            )
        };
        assert_eq!(refused(&call(&format!(r#""mine":"{much}""#))), None);
        let error = refused(&call(&format!(r#""io.modelcontextprotocol/clientInfo":{{"name":"{much}"}}"#))).unwrap();
        assert!(error.contains("have 69 kB; at most 64 kB"), "{error}");
    }

    #[test]
    fn subscriptions_are_counted_for_session_identity_and_all() {
        let limits = ClientLimits {
            session_subscriptions: 2,
            identity_subscriptions: 3,
            subscriptions: 4,
            ..ClientLimits::default()
        };
        let refused = |session, identity, all| {
            limits
                .refusal_of_subscriptions(SubscriptionCounts { session, identity, all }, &["r://1"])
                .unwrap_or_default()
        };
        assert_eq!(refused(1, 2, 3), "");
        assert!(refused(2, 2, 3).contains("this session may have 2"));
        assert!(refused(1, 3, 3).contains("subscriptions-per-token"));
        assert!(refused(1, 2, 4).contains("all clients together may have 4"));
        assert!(limits.refusal_of_subscriptions(SubscriptionCounts::default(), &[&"u".repeat(9000)]).is_some());
    }
}
