//! The identity provider and the MCP server it protects; see `oauth.mjs`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::http_client::{Connection, HttpRequest};
use testkit::{Driver, Launch, wait_until};

use crate::real::parts::{Part, Parts};
use crate::real::sandbox::Sandbox;

/// The name of the server in our configs.
pub(crate) const SERVER: &str = "protected";

/// Both, in a process that ends when this is dropped.
pub(crate) struct Provider {
    _process: Driver,
    _sandbox: Sandbox,
    /// The URL of the protected server.
    pub(crate) server: String,
    control: SocketAddr,
}

impl Provider {
    /// Starts them; nothing, said loudly, without the packages.
    #[track_caller]
    pub(crate) fn start() -> Option<Self> {
        let parts = Parts::with(&[Part::Npm])?;
        let sandbox = Sandbox::new();
        let script = sandbox.node_script(&parts, "oauth.mjs", include_str!("../oauth.mjs"));
        let mut process = Launch::program(parts.node()).arg(script).start();
        let line = String::from_utf8(process.next_line()).expect("it prints text");
        let addresses = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        let addresses: Value = serde_json::from_str(addresses).expect("the addresses are JSON");
        let text = |name: &str| addresses[name].as_str().expect("an address is a text").to_owned();
        let control = text("control");
        let control = control.strip_prefix("http://").and_then(|address| address.parse().ok());
        Some(Self {
            _process: process,
            _sandbox: sandbox,
            server: text("server"),
            control: control.expect("an address"),
        })
    }

    /// The server in a config, with nothing but its URL.
    pub(crate) fn entry(&self) -> Value {
        json!({"url": self.server})
    }

    /// Changes its settings.
    #[track_caller]
    pub(crate) fn set(&self, settings: &Value) {
        self.ask(&HttpRequest::post("/settings", settings.to_string()));
    }

    /// Makes every access token invalid that it issued so far.
    #[track_caller]
    pub(crate) fn forget_access_tokens(&self) {
        self.ask(&HttpRequest::post("/forget", r#"["AccessToken","ClientCredentials"]"#));
    }

    /// Makes every refresh token and what was allowed unknown, as after a revocation by an administrator.
    #[track_caller]
    pub(crate) fn forget_sign_ins(&self) {
        self.ask(&HttpRequest::post("/forget", r#"["AccessToken","RefreshToken","Grant"]"#));
    }

    /// What happened so far of one kind, oldest first.
    #[track_caller]
    pub(crate) fn journal(&self, event: &str) -> Vec<Value> {
        let Value::Array(journal) = self.ask(&HttpRequest::new("GET", "/journal")) else {
            panic!("a journal is a list")
        };
        journal.into_iter().filter(|entry| entry["event"] == event).collect()
    }

    /// The token requests with a refresh token that were answered, oldest first.
    #[track_caller]
    pub(crate) fn refreshes(&self) -> Vec<Value> {
        let mut tokens = self.journal("token");
        tokens.retain(|token| token["grant"] == "refresh_token");
        tokens
    }

    /// Waits until so much of one kind has happened.
    #[track_caller]
    pub(crate) fn wait_for(&self, event: &str, count: usize) -> Vec<Value> {
        wait_until(&format!("{count} times `{event}`"), || {
            Some(self.journal(event)).filter(|found| found.len() >= count)
        })
    }

    /// Waits until so many refreshes were carried out.
    #[track_caller]
    pub(crate) fn wait_for_refreshes(&self, count: usize) {
        wait_until(&format!("{count} refreshes"), || (self.refreshes().len() >= count).then_some(()));
    }

    /// Every token and code that it knows.
    #[track_caller]
    pub(crate) fn secrets(&self) -> Vec<String> {
        let Value::Array(secrets) = self.ask(&HttpRequest::new("GET", "/secrets")) else {
            panic!("a list is expected")
        };
        secrets.into_iter().map(|secret| secret.as_str().expect("a token is a text").to_owned()).collect()
    }

    /// Nobody used a refresh token twice, and the provider and the server had no error of their own.
    #[track_caller]
    pub(crate) fn expect_no_reuse(&self) {
        assert_eq!(self.journal("reuse"), Vec::<Value>::new());
        assert_eq!(self.journal("server_error"), Vec::<Value>::new());
    }

    #[track_caller]
    fn ask(&self, request: &HttpRequest) -> Value {
        Connection::open(self.control).ask(request).json()
    }
}
