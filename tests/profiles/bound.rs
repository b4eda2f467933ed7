//! A token that is bound to a profile sees and uses only that, at every address, over MCP, REST and the console.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::http_session::{Hello, HttpSession};
use testkit::serve::Fetched;
use testkit::sse_client::SseClient;
use testkit::{ClientSession as _, Config, Puppet, Serve, wait_until};

use super::matrix::{TOOLS, assert_all_absent, assert_clean, assert_lists};
use super::{dev, git, vault};
use crate::rest::PREFIX;

const BOUND: &str = "a-token-that-is-bound-to-dev";
const LOST: &str = "a-token-that-is-bound-to-nothing";
const FREE: &str = "a-token-that-is-bound-to-no-profile";

/// A service with both servers, the profiles `dev` and `ops`, and a token for each way to be bound. The roles are those
/// of administrators: a profile binds them, too.
#[track_caller]
fn service(git: &Puppet, vault: &Puppet) -> Serve {
    let config = Config::new().server("vault", vault.entry()).server("git", git.entry());
    let mut file: Value = serde_json::from_str(&config.text()).expect("it was made as JSON");
    file["profiles"] = json!({ "dev": dev(), "ops": {} });
    let tokens = tempfile::NamedTempFile::new().expect("there is room for a file");
    let lines = format!("free:{FREE}:admin\nci:{BOUND}:admin:dev\nlost:{LOST}:admin:gone\n");
    std::fs::write(tokens.path(), lines).expect("it is ours");
    let serve = Serve::start_as(&Config::new().raw(file.to_string()), |launch| {
        launch.arg("--token-file").arg(tokens.path()).env_remove("MCP_AGGREGATOR_TOKEN")
    });
    wait_until("all servers are connected", || {
        let state = rest(&serve, FREE, "GET", "/state", None).json();
        (state["connected_servers"] == 2).then_some(())
    });
    serve
}

#[track_caller]
fn rest(serve: &Serve, token: &str, method: &str, path: &str, body: Option<&Value>) -> Fetched {
    let ask = HttpRequest::new(method, &format!("{PREFIX}{path}")).header("Authorization", &format!("Bearer {token}"));
    serve.fetch(&match body {
        Some(body) => ask.header("Content-Type", "application/json").body(body.to_string()),
        None => ask,
    })
}

fn hello(token: &str) -> Hello {
    Hello::default().with_token(token)
}

#[test]
fn a_bound_token_sees_its_profile_at_every_address() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    for path in ["/mcp", "/mcp/@dev"] {
        let mut legacy = HttpSession::introduce(serve.address(), path, &hello(BOUND));
        assert_lists(&mut legacy, "git.");
        assert_all_absent(&mut legacy, true);
        let mut modern = serve.modern(path).with_token(BOUND);
        assert_lists(&mut modern, "git.");
        assert_all_absent(&mut modern, false);
    }
    let mut alone = HttpSession::introduce(serve.address(), "/mcp/git", &hello(BOUND));
    assert_lists(&mut alone, "");
    assert_all_absent(&mut alone, true);
    let mut sse = SseClient::introduce(serve.address(), "/sse", &hello(BOUND));
    assert_lists(&mut sse, "git.");
    assert_all_absent(&mut sse, true);
    assert_eq!((git.count("tools/call"), vault.count("tools/call")), (0, 0));
    let mut free = HttpSession::introduce(serve.address(), "/mcp", &hello(FREE));
    assert_eq!(free.ids("tools/list").len(), 3);
}

#[test]
fn a_bound_token_finds_no_other_server_and_no_other_profile() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let at = |name: &str| {
        let ask = HttpRequest::post(&format!("/mcp/{name}"), "{}").header("Authorization", &format!("Bearer {BOUND}"));
        let answer = serve.fetch(&ask);
        (answer.status, answer.body.replace(name.trim_start_matches('@'), "NAME"))
    };
    assert_eq!(at("vault").0, 404);
    assert_eq!(at("vault"), at("nobody"));
    assert_eq!(at("@ops").0, 404);
    assert_eq!(at("@ops"), at("@nope"));
}

#[test]
fn a_bound_token_gets_only_its_profile_over_rest() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let ask = |method: &str, path: &str, body: Option<Value>| rest(&serve, BOUND, method, path, body.as_ref());
    let get = |path: &str| ask("GET", path, None);
    for call in ["git.log", "git.push", "vault.unlock"] {
        let called = rest(&serve, FREE, "POST", "/execute", Some(&json!({"name": call, "arguments": {}})));
        assert_eq!(called.status, 200, "{called:?}");
    }
    for (path, count) in [
        ("/servers", 1),
        ("/tools", 1),
        ("/servers/git/tools", 1),
        ("/prompts", 1),
        ("/resources", 1),
        ("/executions", 1),
    ] {
        let answer = get(path);
        assert_eq!((answer.status, answer.json().as_array().map(Vec::len)), (200, Some(count)), "{answer:?}");
        assert_clean(&answer.body);
    }
    for path in
        ["/resources/templates", "/tools?limit=10", "/servers?include_tools=true", "/servers/git", "/tools/git.log"]
    {
        let answer = get(path);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_clean(&answer.body);
    }
    let line = json!({"text": "", "line": 1});
    for (path, body) in [
        ("/search", json!({"query": "push or unlock", "limit": 50})),
        ("/assistant/tools", line.clone()),
        ("/documents/context", line),
    ] {
        let answer = ask("POST", path, Some(body));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let body = if path == "/search" { answer.body } else { answer.json().to_string() };
        assert_clean(&body);
    }

    // A hidden name is answered like one that never existed.
    let same = |method: &str, path: &dyn Fn(&str) -> (String, Option<Value>), hidden: &str, never: &str| {
        let answered = |name: &str| {
            let (path, body) = path(name);
            let answer = ask(method, &path, body);
            (answer.status, answer.body.replace(name, "NAME"))
        };
        assert_eq!(answered(hidden), answered(never), "{method} {hidden}");
        assert!(answered(hidden).0 >= 400);
    };
    for (hidden, never) in TOOLS {
        same("POST", &|name| ("/execute".to_owned(), Some(json!({ "name": name }))), hidden, never);
        same("GET", &|name| (format!("/tools/{name}"), None), hidden, never);
    }
    same("POST", &|name| ("/execute".to_owned(), Some(json!({"name": "log", "server_id": name}))), "vault", "nobody");
    same("POST", &|uri| ("/resources/read".to_owned(), Some(json!({ "uri": uri }))), "vault://1", "nobody://1");
    same("POST", &|name| ("/prompts/get".to_owned(), Some(json!({ "name": name }))), "vault.treasure", "nobody.x");
    for path in ["/servers/NAME", "/servers/NAME/tools", "/prompts?server_id=NAME", "/resources?server_id=NAME"] {
        same("GET", &|name| (path.replace("NAME", name), None), "vault", "nobody");
    }

    // What shows more than a profile is refused.
    for path in [
        "/profiles",
        "/profiles/dev",
        "/events",
        "/settings",
        "/state",
        "/health",
        "/audit",
        "/clients",
        "/export",
        "/skills",
    ] {
        let answer = get(path);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert_clean(&answer.body);
    }
    assert_eq!(ask("PUT", "/profiles/dev", Some(json!({}))).status, 403);
    assert_eq!(ask("POST", "/servers/git/disable", None).status, 403);
    for path in ["/", "/tools", "/metrics"] {
        let answer = serve.fetch(&HttpRequest::new("GET", path).header("Authorization", &format!("Bearer {BOUND}")));
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert_clean(&answer.body);
    }
}

#[test]
fn a_token_that_is_bound_to_no_existing_profile_is_refused_everywhere() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    serve.wait_for_stderr("a token is bound to a profile that does not exist");
    for path in ["/mcp", "/mcp/git", "/mcp/@dev"] {
        let ask = HttpRequest::post(path, "{}").header("Authorization", &format!("Bearer {LOST}"));
        let answer = serve.fetch(&ask);
        assert!(answer.status == 403 && answer.body.contains("`gone`, which does not exist"), "{answer:?}");
    }
    let answer = rest(&serve, LOST, "GET", "/tools", None);
    assert!(answer.status == 403 && answer.body.contains("`gone`, which does not exist"), "{answer:?}");
}
