//! Tokens that a provider (`mock_provider.mjs`: npm `oauth2-mock-server`) issues when it is asked for odd ones.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::{Config, Driver, HttpSession, Launch, Serve, fake, free_port, program, wait_until};

use super::INITIALIZE;
use crate::learning::{echoes, wait_for_order};
use crate::real::parts::{Part, Parts};
use crate::real::sandbox::Sandbox;
use crate::surface::call;

/// The provider, and a service that accepts its tokens and has two servers.
struct Odd {
    provider: Driver,
    serve: Serve,
    _sandbox: Sandbox,
}

impl Odd {
    #[track_caller]
    fn start() -> Option<Self> {
        let parts = Parts::with(&[Part::Npm, Part::Identity])?;
        let sandbox = Sandbox::new();
        let listen = format!("127.0.0.1:{}", free_port());
        let url = format!("http://{listen}");
        let script = sandbox.script("mock_provider.mjs", include_str!("../../mock_provider.mjs"));
        let package = parts.identity_file("oauth2-mock-server/dist/index.mjs");
        let mut provider = Launch::program(parts.node()).arg(script).arg(package).arg(&url).start();
        let issuer = String::from_utf8(provider.next_line()).expect("it prints text");
        let launch = Launch::program(program("mcp-aggregator"))
            .args(["serve", "--listen", &listen, "--public-url", &url, "--oauth-issuer", issuer.trim(), "--data-dir"])
            .arg(sandbox.path("data"))
            .arg("--config")
            .arg(sandbox.script("servers.json", &Config::new().server("one", fake()).server("two", fake()).text()))
            .env_remove("MCP_AGGREGATOR_TOKEN");
        let serve = Serve::of(launch);
        Some(Self { provider, serve, _sandbox: sandbox })
    }

    /// What the provider prints for a line.
    #[track_caller]
    fn issue(&mut self, wanted: &Value) -> String {
        self.provider.send_raw(format!("{wanted}\n").as_bytes());
        String::from_utf8(self.provider.next_line()).expect("it prints text").trim().to_owned()
    }

    /// The status and the challenge of a request with a token.
    #[track_caller]
    fn enter(&self, token: &str) -> (u16, String) {
        let request = HttpRequest::post("/mcp", INITIALIZE).header("Authorization", &format!("Bearer {token}"));
        let answer = self.serve.fetch(&request);
        (answer.status, answer.headers.get("www-authenticate").cloned().unwrap_or_default())
    }
}

#[test]
fn only_tokens_that_are_in_order_are_accepted() {
    let Some(mut odd) = Odd::start() else { return };
    let good = odd.issue(&json!({}));
    assert_eq!(odd.enter(&good).0, 200);
    let long_ago = 1_000_000_000;
    for (name, wanted) in [
        ("expired", json!({"ttl": -3600})),
        ("expired long ago", json!({"claims": {"exp": long_ago, "nbf": long_ago - 1}})),
        ("without an expiry", json!({"claims": {"exp": null}})),
        ("not valid yet", json!({"claims": {"nbf": 4_000_000_000_u64}})),
        ("for somebody else", json!({"claims": {"aud": "https://other.example"}})),
        ("for nobody", json!({"claims": {"aud": null}})),
        ("of another issuer", json!({"claims": {"iss": "https://other.example"}})),
        ("of no issuer", json!({"claims": {"iss": null}})),
        ("about nobody", json!({"claims": {"sub": null}})),
        ("with an expiry in words", json!({"claims": {"exp": "tomorrow"}})),
        ("with an unknown key", json!({"header": {"kid": "unknown"}})),
    ] {
        let token = odd.issue(&wanted);
        let (status, challenge) = odd.enter(&token);
        assert_eq!(status, 401, "a token {name}");
        assert!(challenge.starts_with("Bearer ") && challenge.contains("invalid_token"), "{name}: {challenge}");
    }
    // The signature of another token, and a payload of somebody's own.
    let [header, payload, signature]: [&str; 3] = good.split('.').collect::<Vec<_>>().try_into().expect("three parts");
    let other = odd.issue(&json!({"claims": {"sub": "eve", "scope": "mcp:admin"}}));
    let others: Vec<&str> = other.split('.').collect();
    assert_eq!(odd.enter(&format!("{header}.{}.{signature}", others[1])).0, 401);
    assert_eq!(odd.enter(&format!("{header}.{payload}.{}", others[2])).0, 401);
    assert_eq!(odd.enter(&good).0, 200, "the others have changed nothing");
}

#[test]
fn keys_that_a_provider_adds_are_found_without_a_restart() {
    let Some(mut odd) = Odd::start() else { return };
    let first = odd.issue(&json!({}));
    assert_eq!(odd.enter(&first).0, 200);
    let added = odd.issue(&json!({"generate": "ES256"}));
    let token = odd.issue(&json!({"kid": added, "claims": {"sub": "bob"}}));
    assert_eq!(odd.enter(&token).0, 200);
    assert_eq!(odd.enter(&first).0, 200, "the first key is still there");
}

#[test]
fn people_with_one_name_learn_apart() {
    let Some(mut odd) = Odd::start() else { return };
    let [first, second] =
        ["1", "2"].map(|subject| odd.issue(&json!({"claims": {"sub": subject, "preferred_username": "ann"}})));
    wait_until("all vectors are there", || {
        let ask = HttpRequest::post("/api/v1/search", json!({"query": "echo"}).to_string());
        let found = odd.serve.fetch(&ask.header("Authorization", &format!("Bearer {first}"))).json();
        let metadata = &found["metadata"];
        (metadata["tools_without_vectors"] == 0 && metadata["servers_searched"] == 2).then_some(())
    });
    let [mut first, mut second] = [first, second].map(|token| {
        HttpSession::introduce(odd.serve.address(), "/mcp?surface=search", &Hello::default().with_token(&token))
    });
    let order = echoes(&mut first);
    assert_eq!((order.len(), &echoes(&mut second)), (2, &order));
    let use_tool = |client: &mut HttpSession, tool: &str| {
        let answer = call(client, "call_tool", &json!({"name": tool, "arguments": {"x": 1}}));
        assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{answer}");
    };
    let reversed = [order[1].clone(), order[0].clone()];
    use_tool(&mut first, &order[1]);
    wait_for_order(&mut first, &reversed);
    // Own uses count more than those of others: were both the same person, their uses would cancel each other out.
    use_tool(&mut second, &order[0]);
    wait_for_order(&mut second, &order);
    wait_for_order(&mut first, &reversed);
}
