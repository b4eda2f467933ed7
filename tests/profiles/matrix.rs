//! Every way to ask for a hidden item, under every transport and surface: the answer is that for an item that never
//! existed.

use serde_json::{Value, json};
use testkit::{ClientSession, Config, Launch, Puppet, Spec};

use super::{dev, git, service, spec, vault};
use crate::relay::introduce;

/// Hidden names, and names of the same kind that never existed.
pub(super) const TOOLS: [(&str, &str); 5] = [
    ("git.push", "git.nope"),
    ("git__push", "git__nope"),
    ("push", "nope"),
    ("vault.unlock", "nobody.unlock"),
    ("vault__unlock", "nobody__unlock"),
];
const PROMPTS: [(&str, &str); 2] = [("git.obliterate", "git.nope"), ("vault.treasure", "nobody.treasure")];
const URIS: [(&str, &str); 3] = [("keys://1", "nope://1"), ("docs://secret1", "nope://2"), ("vault://1", "nope://3")];
const TEMPLATES: [(&str, &str); 2] = [("keys://{id}", "nope://{id}"), ("vault://{id}", "nope://{id}")];

/// Nothing of this may appear anywhere.
const SECRETS: [&str; 8] = ["push", "obliterate", "secret1", "keys:", "vault", "unlock", "treasure", "leaked"];

/// The answer to a request, without its id and the name that was asked for.
#[track_caller]
fn answer(client: &mut impl ClientSession, method: &str, params: Value, name: &str) -> String {
    let mut answer = client.ask(method, params);
    answer.as_object_mut().expect("an answer is an object").remove("id");
    answer.to_string().replace(name, "NAME")
}

/// A hidden name is answered like one that never existed.
#[track_caller]
fn assert_absent(client: &mut impl ClientSession, method: &str, params: impl Fn(&str) -> Value, pair: (&str, &str)) {
    let (hidden, never) = pair;
    let of_hidden = answer(client, method, params(hidden), hidden);
    assert_eq!(of_hidden, answer(client, method, params(never), never), "{method} {hidden}");
    assert_clean(&of_hidden);
}

#[track_caller]
pub(super) fn assert_clean(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "`{secret}` in {text}");
    }
}

/// Everything that can be asked by name.
#[track_caller]
pub(super) fn assert_all_absent(client: &mut impl ClientSession, has_subscriptions: bool) {
    for pair in TOOLS {
        assert_absent(client, "tools/call", |name| json!({"name": name, "arguments": {}}), pair);
    }
    for pair in PROMPTS {
        assert_absent(client, "prompts/get", |name| json!({ "name": name }), pair);
        let completed =
            |name: &str| json!({"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": ""}});
        assert_absent(client, "completion/complete", completed, pair);
    }
    for pair in URIS {
        assert_absent(client, "resources/read", |uri| json!({ "uri": uri }), pair);
        if has_subscriptions {
            assert_absent(client, "resources/subscribe", |uri| json!({ "uri": uri }), pair);
        }
    }
    for pair in URIS.into_iter().chain(TEMPLATES) {
        let completed =
            |uri: &str| json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "id", "value": ""}});
        assert_absent(client, "completion/complete", completed, pair);
    }
}

/// All lists.
#[track_caller]
pub(super) fn assert_lists(client: &mut impl ClientSession, prefix: &str) {
    assert_eq!(client.ids("tools/list"), [format!("{prefix}log")]);
    assert_eq!(client.ids("prompts/list"), [format!("{prefix}review")]);
    assert_eq!(client.ids("resources/list"), ["docs://1"]);
    assert_eq!(client.ids("resources/templates/list"), ["docs://{page}"]);
}

#[test]
fn a_hidden_item_is_absent_at_the_address_of_a_profile() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let mut legacy = serve.session("/mcp/@dev");
    assert_lists(&mut legacy, "git.");
    assert_all_absent(&mut legacy, true);
    assert_eq!(legacy.ask("tools/call", json!({"name": "git.log"}))["result"]["isError"], Value::Null);
    assert_eq!(legacy.ask("resources/read", json!({"uri": "docs://7"}))["result"]["contents"][0]["text"], "leaked");

    let mut modern = serve.modern("/mcp/@dev");
    assert_lists(&mut modern, "git.");
    assert_all_absent(&mut modern, false);
    let mut sse = serve.sse("/sse/@dev");
    assert_lists(&mut sse, "git.");
    assert_all_absent(&mut sse, true);

    // Whoever is bound to no profile sees everything elsewhere.
    assert_eq!(serve.session("/mcp").ids("tools/list").len(), 3);
    assert_eq!(serve.session("/mcp/git").ids("tools/list"), ["log", "push"]);
    assert_eq!(git.count("tools/call"), 1, "no hidden call has reached a server");
    assert_eq!((vault.count("tools/call"), vault.count("resources/read"), vault.count("prompts/get")), (0, 0, 0));
}

#[test]
fn initialize_says_nothing_of_what_is_hidden() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let whole = serve.modern("/mcp").ask("server/discover", json!({})).to_string();
    assert!(whole.contains("Ask the vault.") && whole.contains("Never push."), "{whole}");
    assert_clean(&serve.modern("/mcp/@dev").ask("server/discover", json!({})).to_string());
}

#[test]
fn a_hidden_tool_is_absent_on_the_small_surface() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    for surface in ["search", "grow"] {
        let mut client = serve.session(&format!("/mcp/@dev?surface={surface}"));
        let list = client.ask("tools/list", json!({})).to_string();
        assert!(list.contains("1 tool of 1 server"), "{list}");
        assert_clean(&list);
        let mut call = |name: &str, arguments: Value| {
            client.ask("tools/call", json!({"name": name, "arguments": arguments})).to_string()
        };
        for query in ["push", "unlock the vault", "log"] {
            assert_clean(&call("search_tools", json!({ "query": query })).replace(&format!("\\\"{query}\\\""), ""));
        }
        let of_hidden = call("search_tools", json!({"query": "a", "server": "vault"})).replace("vault", "NAME");
        let of_nobody = call("search_tools", json!({"query": "a", "server": "nobody"})).replace("nobody", "NAME");
        assert_eq!(without_id(&of_hidden), without_id(&of_nobody));
        for (hidden, _) in TOOLS {
            for tool in ["describe_tool", "call_tool"] {
                let text = call(tool, json!({ "name": hidden }));
                assert!(text.contains(&format!("There is no tool `{hidden}`")), "{text}");
                assert_clean(&text.replace(hidden, ""));
            }
        }
    }
    assert_eq!((git.count("tools/call"), vault.count("tools/call")), (0, 0));
}

fn without_id(answer: &str) -> Value {
    let mut answer: Value = serde_json::from_str(answer).expect("an answer is JSON");
    answer.as_object_mut().expect("an answer is an object").remove("id");
    answer
}

#[test]
fn an_address_without_a_profile_of_that_name_lists_no_others() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    for path in ["/mcp/@nope", "/sse/@nope", "/mcp/%40nope"] {
        let method = if path.starts_with("/sse") { "GET" } else { "POST" };
        let answer = serve.fetch(&testkit::http_client::HttpRequest::new(method, path).header("Content-Length", "0"));
        assert_eq!(answer.status, 404, "{answer:?}");
        assert!(answer.body.contains("there is no profile `nope`") && !answer.body.contains("dev"), "{answer:?}");
    }
}

#[test]
fn stdio_serves_a_profile_of_its_config_and_starts_no_hidden_server() {
    for spec in [spec(Spec::legacy()), spec(Spec::modern())] {
        let (git, vault) = (Puppet::new(spec), vault());
        let config = Config::new().server("vault", vault.entry()).server("git", git.entry());
        let mut file: Value = serde_json::from_str(&config.text()).unwrap();
        file["profiles"] = json!({ "dev": dev() });
        let launch = |profile: &str| Launch::service(&Config::new().raw(file.to_string())).args(["--profile", profile]);
        let mut client = launch("dev").start();
        let welcome = introduce(&mut client, &json!({}));
        assert_clean(&welcome.to_string());
        assert_lists(&mut client, "git.");
        assert_all_absent(&mut client, true);
        assert_eq!(vault.runs().len(), 0);

        let mut unknown = launch("dve").start();
        assert_eq!(unknown.wait_exit().code(), Some(2));
        let stderr = unknown.stderr_text();
        assert!(stderr.contains("there is no profile `dve`") && stderr.contains("dev"), "{stderr}");
    }
}
