//! What a server requires, asked without a token.

use crate::error::{FlowError, Step};
use crate::fetch::{HttpRequest, METADATA_TIMEOUT, Method, Redirects, Wanted};
use crate::flow::challenge::Challenge;
use crate::protected::Protected;
use crate::shared::Shared;

/// What a client asks first, and what it asks then. Only whether the server refuses it matters.
const TOOLS_LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"mcp-aggregator","version":"0"}}}"#;

impl Shared {
    /// What the server requires: what it said last, whichever request it refused, else what it says now. Also whether it
    /// refuses us.
    pub(crate) async fn challenge(&self, protected: &Protected) -> Result<(Challenge, bool), FlowError> {
        if let Some(challenge) = self.last_challenge(protected) {
            return Ok((challenge, true));
        }
        // A server may answer `initialize` and refuse only what comes then.
        for body in [INITIALIZE, TOOLS_LIST] {
            let response = self.send(Step::Challenge, probe(protected, body)).await?;
            if response.status == 401 {
                return Ok((Challenge::parse(&response.www_authenticate), true));
            }
        }
        Ok((Challenge::default(), false))
    }
}

/// A request without a token, to see whether the server refuses it.
fn probe(protected: &Protected, body: &'static str) -> HttpRequest {
    HttpRequest {
        method: Method::Post,
        url: protected.url.clone(),
        headers: vec![
            ("accept", "application/json, text/event-stream".into()),
            ("content-type", "application/json".into()),
        ],
        body: body.into(),
        // What another address requires is no concern of ours.
        redirects: Redirects::Return,
        network: protected.network,
        timeout: METADATA_TIMEOUT,
        wanted: Wanted::Head,
    }
}
