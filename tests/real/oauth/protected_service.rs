//! A service that accepts the identities of a real provider (`identity.mjs`: npm `oidc-provider`).
//!
//! - [`tokens`]: what is accepted and what is not; [`odd_tokens`]: the same with another provider
//! - [`clients`], [`people`]: who signs in; [`roles`]: what each may do

mod clients;
mod odd_tokens;
mod people;
mod roles;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http_client::{Connection, HttpRequest};
use testkit::serve::Fetched;
use testkit::{Driver, Launch, Serve, fake, free_port, program, wait_until};

use crate::real::parts::{Part, Parts};
use crate::real::sandbox::Sandbox;

/// A token of the token file, for an admin.
const STATIC_TOKEN: &str = "0123456789abcdef0123456789abcdef";
const REST: &str = "/api/v1/aggregator";

/// A provider, and a service that accepts its tokens and has one server, `fake`.
pub(crate) struct Protected {
    pub(crate) serve: Serve,
    folder: TempDir,
    _provider: Driver,
    sandbox: Sandbox,
    parts: Parts,
    pub(crate) issuer: String,
    control: SocketAddr,
    /// What the service is called.
    pub(crate) url: String,
}

impl Protected {
    /// Starts both; nothing, said loudly, without the packages.
    #[track_caller]
    fn start() -> Option<Self> {
        Self::start_with(json!({}), |launch| launch)
    }

    /// The same with other settings of the provider, and options of the service.
    #[track_caller]
    pub(crate) fn start_with(mut settings: Value, adjust: impl FnOnce(Launch) -> Launch) -> Option<Self> {
        let parts = Parts::with(&[Part::Npm])?;
        let sandbox = Sandbox::new();
        let script = sandbox.node_script(&parts, "identity.mjs", include_str!("../identity.mjs"));
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let url = format!("http://{}:{port}", settings["host"].as_str().unwrap_or("127.0.0.1"));
        settings["public_url"] = json!(url);
        let mut provider = Launch::program(parts.node()).arg(script).env("SETTINGS", settings.to_string()).start();
        let line = String::from_utf8(provider.next_line()).expect("it prints text");
        let addresses = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        let addresses: Value = serde_json::from_str(addresses).expect("the addresses are JSON");
        let text = |name: &str| addresses[name].as_str().expect("an address is a text").to_owned();
        let (issuer, control) = (text("issuer"), text("control"));

        let folder = TempDir::with_prefix("identity-").expect("a temporary folder can be made");
        let path = |name: &str| folder.path().join(name);
        let config = testkit::Config::new().server("fake", fake()).text();
        std::fs::write(path("config.json"), config).expect("a temporary folder can be written");
        std::fs::write(path("tokens"), format!("static:{STATIC_TOKEN}\n")).expect("it can be written");
        std::fs::write(path("secret"), "service: secret/with+signs%\n").expect("it can be written");
        let launch = Launch::program(program("mcp-aggregator"))
            .args(["serve", "--listen", &listen, "--public-url", &url, "--oauth-issuer", &issuer, "--config"])
            .arg(path("config.json"))
            .arg("--data-dir")
            .arg(path("data"))
            .arg("--token-file")
            .arg(path("tokens"))
            .args(["--oauth-client-id", "mcp-aggregator", "--oauth-client-secret-file"])
            .arg(path("secret"))
            .env_remove("MCP_AGGREGATOR_TOKEN");
        let serve = Serve::of(adjust(launch));
        let control = control.strip_prefix("http://").and_then(|address| address.parse().ok()).expect("an address");
        let protected = Self { serve, folder, _provider: provider, sandbox, parts, issuer, control, url };
        wait_until("the server is connected", || {
            let state = protected.with_token(STATIC_TOKEN, &HttpRequest::new("GET", &format!("{REST}/state"))).json();
            (state["connected_servers"] == 1).then_some(())
        });
        Some(protected)
    }

    /// Node, about to be started.
    fn node(&self) -> Launch {
        Launch::program(self.parts.node())
    }

    /// A script that can use the packages.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        self.sandbox.node_script(&self.parts, name, text)
    }

    /// A token that the provider would issue, or would not; see `mint` in `identity.mjs`.
    #[track_caller]
    fn mint(&self, wanted: &Value) -> String {
        self.ask("/mint", wanted).as_str().expect("a token is a text").to_owned()
    }

    /// A token for the whole service, with these claims.
    #[track_caller]
    fn token(&self, claims: &Value) -> String {
        self.mint(&json!({"claims": claims}))
    }

    #[track_caller]
    fn ask(&self, path: &str, body: &Value) -> Value {
        Connection::open(self.control).ask(&HttpRequest::post(path, body.to_string())).json()
    }

    /// How often a path of the provider was requested.
    #[track_caller]
    fn requests(&self, path: &str) -> usize {
        let journal = self.ask("/journal", &Value::Null);
        let entries = journal.as_array().expect("a journal is a list");
        entries.iter().filter(|entry| entry["event"] == "request" && entry["path"] == path).count()
    }

    /// Waits until so many tokens were issued for a kind of grant.
    #[track_caller]
    fn wait_for_tokens(&self, grant: &str, count: usize) {
        wait_until(&format!("{count} times {grant}"), || {
            let journal = self.ask("/journal", &Value::Null);
            let entries = journal.as_array().expect("a journal is a list");
            (entries.iter().filter(|entry| entry["grant"] == grant).count() >= count).then_some(())
        });
    }

    /// Sends a request with a token.
    #[track_caller]
    fn with_token(&self, token: &str, request: &HttpRequest) -> Fetched {
        self.serve.fetch(&request.clone().header("Authorization", &format!("Bearer {token}")))
    }

    /// The status and the challenge of an `initialize`, or of a request without a token.
    #[track_caller]
    fn enter(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let mut request = HttpRequest::post(path, INITIALIZE);
        if let Some(token) = token {
            request = request.header("Authorization", &format!("Bearer {token}"));
        }
        let answer = self.serve.fetch(&request);
        (answer.status, answer.headers.get("www-authenticate").cloned().unwrap_or_default())
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
