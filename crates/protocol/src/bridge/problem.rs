//! Checks modern requests, and creates the error response for an invalid one.

use std::fmt;

use crate::bridge::{change::is_object, meta};
use crate::envelope::Params;
use crate::reply::{self, code};
use crate::revision::{Revision, SELF_CONTAINED_REVISION};
use crate::text;

/// Why a modern request is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// This member of `_meta` is missing.
    MissingMeta(&'static str),
    /// The request has no revision in `_meta`, and there was no `initialize` before it.
    NoHandshake,
    /// This member of `_meta` has the wrong type.
    InvalidMeta(&'static str),
    /// The revision is not supported, at least not without `initialize`.
    UnsupportedVersion {
        /// The revision in the request.
        requested: String,
    },
    /// The client lacks required capabilities.
    MissingCapability {
        /// The required capabilities, as a JSON object.
        required: Vec<u8>,
    },
    /// The headers do not match the body.
    HeaderMismatch(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingMeta(name) => write!(out, "`_meta` lacks `{name}`"),
            Self::NoHandshake => write!(
                out,
                "`_meta` lacks `{}`; a client of {} or an older revision must send `initialize` first",
                meta::PROTOCOL_VERSION,
                Revision::NEWEST_WITH_SESSIONS.as_str()
            ),
            Self::InvalidMeta(name) => write!(out, "`{name}` in `_meta` has the wrong type"),
            Self::UnsupportedVersion { requested } => write!(out, "protocol version `{requested}` is not supported"),
            Self::MissingCapability { .. } => out.write_str("the client does not offer a capability this needs"),
            Self::HeaderMismatch(reason) => out.write_str(reason),
        }
    }
}

impl Problem {
    /// The JSON-RPC error code.
    pub fn code(&self) -> i32 {
        match self {
            Self::MissingMeta(_) | Self::InvalidMeta(_) | Self::NoHandshake => code::INVALID_PARAMS,
            Self::UnsupportedVersion { .. } => code::UNSUPPORTED_VERSION,
            Self::MissingCapability { .. } => code::MISSING_CAPABILITY,
            Self::HeaderMismatch(_) => code::HEADER_MISMATCH,
        }
    }

    /// The error response to the request with that id, as a line.
    pub fn answer(&self, id: &[u8]) -> Vec<u8> {
        reply::error(id, self.code(), &self.to_string(), self.data().as_deref())
    }

    /// The error object alone.
    pub fn object(&self) -> Vec<u8> {
        let code = self.code().to_string().into_bytes();
        let mut members = vec![("code", code), ("message", reply::string(&self.to_string()))];
        members.extend(self.data().map(|data| ("data", data)));
        reply::object(members)
    }

    fn data(&self) -> Option<Vec<u8>> {
        match self {
            Self::UnsupportedVersion { requested } => {
                let supported: Vec<_> = Revision::supported().map(reply::string).collect();
                let supported = [b"[".as_slice(), &supported.join(&b','), b"]"].concat();
                Some(reply::object([("supported", supported), ("requested", reply::string(requested))]))
            }
            Self::MissingCapability { required } => Some(reply::object([("requiredCapabilities", required.clone())])),
            Self::MissingMeta(_) | Self::InvalidMeta(_) | Self::NoHandshake | Self::HeaderMismatch(_) => None,
        }
    }
}

/// Checks what every modern request must state: a supported revision, and the client's capabilities.
pub fn check_modern(line: &[u8], params: &Params) -> Result<(), Problem> {
    let client_meta = meta::read(line, params);
    let version = client_meta.version.ok_or(Problem::MissingMeta(meta::PROTOCOL_VERSION))?;
    let version = text::decode(version.of(line)).ok_or(Problem::InvalidMeta(meta::PROTOCOL_VERSION))?;
    if version != SELF_CONTAINED_REVISION {
        return Err(Problem::UnsupportedVersion { requested: version.into_owned() });
    }
    let capabilities = client_meta.capabilities.ok_or(Problem::MissingMeta(meta::CLIENT_CAPABILITIES))?;
    if !is_object(line, capabilities) {
        return Err(Problem::InvalidMeta(meta::CLIENT_CAPABILITIES));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Envelope;

    fn checked(meta: &str) -> Result<(), Problem> {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{meta}}}}}"#);
        check_modern(line.as_bytes(), &Envelope::scan(line.as_bytes()).unwrap().params)
    }

    #[test]
    fn a_request_with_all_required_metadata_is_valid() {
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        assert_eq!(checked(meta), Ok(()));
    }

    #[test]
    fn a_request_that_does_not_gets_an_error_that_names_what_is_missing() {
        let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        let capabilities = r#""io.modelcontextprotocol/clientCapabilities""#;
        let missing = |name| Err(Problem::MissingMeta(name));
        let invalid = |name| Err(Problem::InvalidMeta(name));
        assert_eq!(checked("null"), missing(meta::PROTOCOL_VERSION));
        assert_eq!(checked("{}"), missing(meta::PROTOCOL_VERSION));
        assert_eq!(checked(&format!("{{{capabilities}:{{}}}}")), missing(meta::PROTOCOL_VERSION));
        assert_eq!(checked(&format!("{{{version}}}")), missing(meta::CLIENT_CAPABILITIES));
        assert_eq!(checked(&format!("{{{version},{capabilities}:[]}}")), invalid(meta::CLIENT_CAPABILITIES));
        assert_eq!(checked(r#"{"io.modelcontextprotocol/protocolVersion":1}"#), invalid(meta::PROTOCOL_VERSION));
        assert_eq!(check_modern(b"{}", &Params::default()), missing(meta::PROTOCOL_VERSION));
    }

    #[test]
    fn another_revision_is_answered_with_those_we_speak() {
        let problem = checked(r#"{"io.modelcontextprotocol/protocolVersion":"v999"}"#).unwrap_err();
        assert_eq!(
            String::from_utf8(problem.answer(b"\"x\"")).unwrap(),
            concat!(
                r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32022,"message":"protocol version `v999` is not supported","#,
                r#""data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"v999"}}}"#,
                "\n"
            )
        );
        let legacy = checked(r#"{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}"#);
        assert!(matches!(legacy, Err(Problem::UnsupportedVersion { .. })), "that one begins with `initialize`");
    }

    #[test]
    fn every_problem_has_its_code() {
        let answers = [
            (Problem::MissingMeta("a"), r#"{"code":-32602,"message":"`_meta` lacks `a`"}"#),
            (Problem::InvalidMeta("a"), r#"{"code":-32602,"message":"`a` in `_meta` has the wrong type"}"#),
            (
                Problem::NoHandshake,
                r#"{"code":-32602,"message":"`_meta` lacks `io.modelcontextprotocol/protocolVersion`; a client of 2025-11-25 or an older revision must send `initialize` first"}"#,
            ),
            (Problem::HeaderMismatch("no".into()), r#"{"code":-32020,"message":"no"}"#),
            (
                Problem::MissingCapability { required: b"{\"sampling\":{}}".to_vec() },
                r#"{"code":-32021,"message":"the client does not offer a capability this needs","data":{"requiredCapabilities":{"sampling":{}}}}"#,
            ),
        ];
        for (problem, object) in answers {
            assert_eq!(String::from_utf8(problem.object()).unwrap(), object);
            let answer = String::from_utf8(problem.answer(b"1")).unwrap();
            assert_eq!(answer, format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{object}}}\n"));
        }
    }
}
