//! `server/discover` and caching hints: what a modern client learns about all servers together.

use serde_json::{Value, json};
use testkit::{ClientSession, Puppet, Spec, wait_until};

use super::modern_over_stdio;
use crate::relay::serving;

fn discovered(client: &mut dyn ClientSession) -> Value {
    let answer = client.ask("server/discover", json!({}));
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

#[test]
fn discovery_covers_all_servers_or_one() {
    let tasks = r#"{"tools":{},"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}"#;
    let old = Puppet::new(Spec::legacy().tool("t").instructions("old ways").capabilities(tasks));
    let extension = r#"{"tools":{},"resources":{"subscribe":true},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{"n":1.0}}}"#;
    let new =
        Puppet::new(Spec::modern().tool("t").instructions("new ways").capabilities(extension).hints(9000, "public"));
    let serve = serving(&[("old", &old), ("new", &new)]);
    let all = discovered(&mut serve.modern("/mcp"));
    assert_eq!(all["resultType"], "complete");
    let versions = all["supportedVersions"].as_array().expect("versions");
    assert!(versions.contains(&json!("2026-07-28")), "{all}");
    assert_eq!(all["instructions"], "## old\n\nold ways\n\n## new\n\nnew ways");
    assert!(all["capabilities"]["tools"].is_object(), "{all}");
    assert_eq!(all["capabilities"]["resources"]["subscribe"], true, "{all}");
    assert!(all["capabilities"].get("tasks").is_none(), "core tasks belong to the other lifecycle: {all}");
    assert!(all["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{all}");
    assert!(all["ttlMs"].is_u64() && all["cacheScope"].is_string(), "{all}");
    assert!(all["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string(), "{all}");

    let one = discovered(&mut serve.modern("/mcp/new"));
    assert_eq!(one["instructions"], "new ways");
    assert_eq!(one["capabilities"]["extensions"]["x/y"], json!({"n": 1.0}));

    let legacy = serve.session("/mcp").welcome["result"]["capabilities"].clone();
    assert!(legacy.get("extensions").is_none(), "an extension belongs to the other lifecycle: {legacy}");
    assert!(legacy["tasks"].is_object(), "{legacy}");
}

#[test]
fn caching_hints_are_the_most_careful_of_all() {
    let page = |spec_a: Spec, spec_b: Spec| {
        let (a, b) = (Puppet::new(spec_a.tool("t")), Puppet::new(spec_b.tool("t")));
        let serve = serving(&[("a", &a), ("b", &b)]);
        let mut client = serve.modern("/mcp");
        let page = client.ask("tools/list", json!({}))["result"].clone();
        (page["ttlMs"].clone(), page["cacheScope"].clone())
    };
    let modern = |ttl, scope: &str| Spec::modern().hints(ttl, scope);
    assert_eq!(page(modern(5000, "public"), modern(1000, "public")), (json!(1000), json!("public")));
    assert_eq!(page(modern(5000, "public"), modern(7000, "private")), (json!(5000), json!("private")));
    assert_eq!(page(modern(5000, "public"), Spec::legacy()), (json!(0), json!("private")));
}

#[test]
fn discovery_over_stdio_waits_for_servers_that_start() {
    // It waits three seconds, which may be too short on a busy machine.
    wait_until("a server starts within three seconds", || {
        let puppet = Puppet::new(Spec::legacy().tool("t").prompt("p").instructions("be kind"));
        let mut client = modern_over_stdio(&[("s", &puppet)]);
        let all = discovered(&mut client);
        assert_eq!(all.get("instructions")?, "## s\n\nbe kind");
        assert!(all["capabilities"]["prompts"].is_object(), "{all}");
        Some(())
    });
}

#[test]
fn lists_do_not_depend_on_the_client_or_on_earlier_requests() {
    let old = Puppet::new(Spec::legacy().tool("t").prompt("p").echoes());
    let new = Puppet::new(Spec::modern().tool("t").echoes());
    let serve = serving(&[("old", &old), ("new", &new)]);
    let first = serve.modern("/mcp").ask_raw("tools/list", json!({}));
    let mut busy = serve.modern("/mcp").interactive();
    busy.ask("tools/call", json!({"name": "old.t", "arguments": {}}));
    let later = busy.ask_raw("tools/list", json!({}));
    let result = |line: &[u8]| crate::relay::at(line, &["result"]).to_owned();
    assert_eq!(result(&first), result(&later));
}
