//! A change of a profile or of a server reaches the clients of the profile whose lists change, and only them.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{ClientSession as _, Spec};

use super::{dev, git, put, service, vault};
use crate::rest::PREFIX;

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

#[test]
fn clients_of_a_profile_hear_of_what_changes_for_them() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let mut client = serve.session("/mcp/@dev");
    client.listen();
    assert_eq!(client.ids("tools/list"), ["git.log"]);

    // A hidden server changes, and a hidden tool: the client hears of neither, but of what comes after them.
    vault.change(|spec| spec.tool("open"));
    vault.notify(TOOLS_CHANGED, &json!({}));
    let mut whole = serve.session("/mcp");
    whole.listen();
    whole.wait_for_item("tools/list", "vault.open", true);
    let mut wider = dev();
    wider["tools"] = json!(["git.*"]);
    assert_eq!(put(&serve, "dev", &wider).status, 200);
    client.notice(TOOLS_CHANGED);
    assert_eq!(client.ids("tools/list"), ["git.log", "git.push"]);

    git.change(|spec: Spec| spec.tool("show"));
    git.notify(TOOLS_CHANGED, &json!({}));
    client.wait_for_item("tools/list", "git.show", true);
}

#[test]
fn a_removed_profile_shows_nothing_and_its_address_is_gone() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let mut client = serve.sse("/sse/@dev");
    assert_eq!(client.ids("tools/list"), ["git.log"]);
    let removed = serve.fetch(&HttpRequest::new("DELETE", &format!("{PREFIX}/profiles/dev")));
    assert_eq!(removed.status, 204);
    client.notice(TOOLS_CHANGED);
    assert_eq!(client.ids("tools/list"), [""; 0]);
    let refused = client.ask("tools/call", json!({"name": "git.log", "arguments": {}}));
    assert_eq!(refused["error"]["data"]["reason"], "unknown_server", "{refused}");
    let gone = serve.fetch(&HttpRequest::new("GET", "/sse/@dev").header("Accept", "text/event-stream"));
    assert_eq!(gone.status, 404, "{gone:?}");
}

#[test]
fn the_surface_of_a_profile_is_that_of_its_clients() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let mut client = serve.session("/mcp/@dev");
    client.listen();
    assert_eq!(client.ids("tools/list"), ["git.log"]);
    let mut small = dev();
    small["surface"] = json!("search");
    small["pinned"] = json!(["git.log"]);
    assert_eq!(put(&serve, "dev", &small).status, 200);
    client.notice(TOOLS_CHANGED);
    let names = ["search_tools", "describe_tool", "call_tool", "git.log"];
    assert_eq!(client.ids("tools/list"), names);
    assert_eq!(serve.session("/mcp/@dev?surface=full").ids("tools/list"), names, "the profile decides");
    let called =
        client.ask("tools/call", json!({"name": "call_tool", "arguments": {"name": "git.log", "arguments": {}}}));
    assert_eq!(called["error"], Value::Null, "{called}");
}
