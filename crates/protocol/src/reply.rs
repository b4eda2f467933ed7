//! The messages that we create: results, errors, requests and notifications, each as a line with its newline.

use crate::text;

/// The JSON-RPC error codes that we use.
pub mod code {
    /// The line is not JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// The line is JSON, but not a JSON-RPC message.
    pub const INVALID_REQUEST: i32 = -32600;
    /// No such method, or (as specified for this program) no such tool.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// The method exists, but its parameters are invalid.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The call failed.
    pub const INTERNAL_ERROR: i32 = -32603;
    /// No such resource; legacy only, modern revisions use [`INVALID_PARAMS`].
    pub const RESOURCE_NOT_FOUND: i32 = -32002;
    /// The user must visit a URL first; legacy only.
    pub(crate) const URL_ELICITATION_REQUIRED: i32 = -32042;
    /// The headers do not match the body; modern only.
    pub const HEADER_MISMATCH: i32 = -32020;
    /// The client lacks required capabilities; modern only.
    pub const MISSING_CAPABILITY: i32 = -32021;
    /// The revision is not supported; modern only.
    pub const UNSUPPORTED_VERSION: i32 = -32022;
}

/// A success response; `id` and `result` are JSON.
pub fn result(id: &[u8], result: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(id.len() + result.len() + 40);
    line.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    line.extend_from_slice(id);
    line.extend_from_slice(b",\"result\":");
    line.extend_from_slice(result);
    line.extend_from_slice(b"}\n");
    line
}

/// An error response; `id` (`null` if unknown) and `data` are JSON.
pub fn error(id: &[u8], code: i32, message: &str, data: Option<&[u8]>) -> Vec<u8> {
    let mut line = Vec::with_capacity(id.len() + message.len() + 80);
    line.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    line.extend_from_slice(id);
    line.extend_from_slice(format!(",\"error\":{{\"code\":{code},\"message\":").as_bytes());
    text::encode(message, &mut line);
    if let Some(data) = data {
        line.extend_from_slice(b",\"data\":");
        line.extend_from_slice(data);
    }
    line.extend_from_slice(b"}}\n");
    line
}

/// A request with one of our ids; `params` is JSON.
pub fn request(id: u64, method: &str, params: Option<&[u8]>) -> Vec<u8> {
    message(Some(id), method, params)
}

/// A notification; `params` is JSON.
pub fn notification(method: &str, params: Option<&[u8]>) -> Vec<u8> {
    message(None, method, params)
}

fn message(id: Option<u64>, method: &str, params: Option<&[u8]>) -> Vec<u8> {
    let mut line = b"{\"jsonrpc\":\"2.0\"".to_vec();
    if let Some(id) = id {
        line.extend_from_slice(format!(",\"id\":{id}").as_bytes());
    }
    line.extend_from_slice(b",\"method\":");
    text::encode(method, &mut line);
    if let Some(params) = params {
        line.extend_from_slice(b",\"params\":");
        line.extend_from_slice(params);
    }
    line.extend_from_slice(b"}\n");
    line
}

/// A JSON object from names and JSON values, for small objects.
pub fn object<'m>(members: impl IntoIterator<Item = (&'m str, Vec<u8>)>) -> Vec<u8> {
    let mut object = vec![b'{'];
    for (index, (name, value)) in members.into_iter().enumerate() {
        if index > 0 {
            object.push(b',');
        }
        text::encode(name, &mut object);
        object.push(b':');
        object.extend_from_slice(&value);
    }
    object.push(b'}');
    object
}

/// `text` as a JSON string.
pub fn string(text: &str) -> Vec<u8> {
    let mut token = Vec::with_capacity(text.len() + 2);
    text::encode(text, &mut token);
    token
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, Kind};

    #[test]
    fn every_message_we_write_is_one_valid_line() {
        let data = object([("server", string("a\"b\n")), ("n", b"1".to_vec())]);
        for line in [
            result(b"\"x\"", b"{}"),
            error(b"1", code::INTERNAL_ERROR, "it \"broke\"\n", Some(&data)),
            error(b"null", code::PARSE_ERROR, "?", None),
            request(7, "tools/list", Some(b"{\"cursor\":\"\"}")),
            notification("notifications/initialized", None),
        ] {
            let text = line.strip_suffix(b"\n").unwrap();
            assert!(!text.contains(&b'\n'));
            Envelope::scan(text).unwrap();
        }
    }

    #[test]
    fn a_request_carries_our_id() {
        let line = request(42, "ping", None);
        let Kind::Request { id, .. } = Envelope::scan(&line).unwrap().kind else { panic!() };
        assert_eq!(id.of(&line), b"42");
    }
}
