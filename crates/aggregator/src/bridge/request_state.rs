//! The request state a modern client retries with: signed, for one principal, one request and a limited time.
//!
//! A `requestState` from a client is untrusted. The signature covers its content, the principal it was issued for and
//! the request it was issued for, so one that was forged, changed, stolen or used for another request is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use protocol::scan::members;
use protocol::{Params, text};
use sha2::{Digest, Sha256};

/// A new key with every start: request states of another process are invalid.
pub(crate) struct Sealer([u8; 32]);

/// The content of a request state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestState {
    /// Which parked call it is for.
    pub(crate) call: u64,
    /// The round of server requests it was issued for.
    pub(crate) round: u64,
    /// Until when it is valid, in seconds since 1970.
    pub(crate) until: u64,
}

/// What a request state is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) principal: String,
    /// The server the request was sent to. Two servers may have a tool of the same name, or later the same resource.
    pub(crate) server: usize,
    /// Digest of the request: its method and parameters, except what changes in a retry.
    pub(crate) digest: [u8; 32],
}

impl Sealer {
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system has random numbers");
        Self(key)
    }

    /// The request state as text.
    pub(crate) fn seal(&self, request_state: RequestState, binding: &Binding) -> String {
        let payload = payload(request_state);
        format!("{payload}.{}", STANDARD.encode(self.signature(&payload, binding).finalize().into_bytes()))
    }

    /// The content of the request state, if it is ours and matches the binding.
    pub(crate) fn open(&self, text: &str, binding: &Binding) -> Option<RequestState> {
        let (payload, signature) = text.rsplit_once('.')?;
        let signature = STANDARD.decode(signature).ok()?;
        self.signature(payload, binding).verify_slice(&signature).ok()?;
        let mut parts = payload.strip_prefix("v1.")?.split('.').map(str::parse);
        let request_state =
            RequestState { call: parts.next()?.ok()?, round: parts.next()?.ok()?, until: parts.next()?.ok()? };
        parts.next().is_none().then_some(request_state)
    }

    fn signature(&self, payload: &str, binding: &Binding) -> Hmac<Sha256> {
        let mut signature = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        let server = (binding.server as u64).to_be_bytes();
        for part in [payload.as_bytes(), binding.principal.as_bytes(), &server, &binding.digest] {
            signature.update(&(part.len() as u64).to_be_bytes());
            signature.update(part);
        }
        signature
    }
}

fn payload(RequestState { call, round, until }: RequestState) -> String {
    format!("v1.{call}.{round}.{until}")
}

/// Digest of a request: its method and parameters, except what changes in a retry. The order of members does not
/// matter, because a client may write them differently the second time.
pub(crate) fn digest(method: &str, line: &[u8], params: &Params) -> [u8; 32] {
    let mut parts = Vec::new();
    if let Some(params) = params.span {
        members(line, params, |key, value| {
            let name = text::decode(key.of(line)).unwrap_or_default();
            if !["_meta", "inputResponses", "requestState"].contains(&&*name) {
                parts.push((name.into_owned(), value.of(line)));
            }
        });
    }
    parts.sort_unstable();
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    };
    add(method.as_bytes());
    for (name, value) in parts {
        add(name.as_bytes());
        add(value);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Envelope;

    fn digest_of(line: &str) -> [u8; 32] {
        digest("tools/call", line.as_bytes(), &Envelope::scan(line.as_bytes()).unwrap().params)
    }

    #[test]
    fn a_request_state_is_valid_for_its_principal_and_request_only() {
        let sealer = Sealer::new();
        let request_state = RequestState { call: 7, round: 2, until: 99 };
        let binding = Binding { principal: "ann".into(), server: 0, digest: [1; 32] };
        let text = sealer.seal(request_state, &binding);
        assert_eq!(sealer.open(&text, &binding), Some(request_state));
        assert_eq!(sealer.open(&text, &Binding { principal: "bob".into(), ..binding }), None);
        assert_eq!(sealer.open(&text, &Binding { server: 1, ..binding.clone() }), None);
        assert_eq!(sealer.open(&text, &Binding { digest: [2; 32], ..binding.clone() }), None);
        assert_eq!(sealer.open(&text.replacen("v1.7", "v1.8", 1), &binding), None);
        assert_eq!(sealer.open(&format!("{text}A"), &binding), None);
        assert_eq!(sealer.open("", &binding), None);
        assert_eq!(Sealer::new().open(&text, &binding), None, "of another process");
    }

    #[test]
    fn a_request_state_has_one_spelling() {
        let sealer = Sealer::new();
        let binding = Binding { principal: "ann".into(), server: 0, digest: [1; 32] };
        let text = sealer.seal(RequestState { call: 7, round: 2, until: 99 }, &binding);
        let unpadded = text.strip_suffix('=').unwrap();
        assert_eq!(sealer.open(unpadded, &binding), None);
        assert_eq!(sealer.open(&format!("{text}="), &binding), None);
        assert_eq!(sealer.open(&format!("{text}\n"), &binding), None);
    }

    #[test]
    fn only_what_a_client_must_change_may_change() {
        let first =
            digest_of(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1}}}"#);
        let again = digest_of(
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"arguments":{"x":1},"name":"a","_meta":{},"requestState":"s","inputResponses":{}}}"#,
        );
        assert_eq!(first, again);
        let other =
            digest_of(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":2}}}"#);
        assert_ne!(first, other);
    }
}
