//! Clients with the small surface find sooner what they have used after a search.

use serde_json::{Value, json};
use testkit::{ClientSession, wait_until};

use crate::rest::{Rest, expect, names};
use crate::surface::{call, found};

/// Two servers have a tool for this, and neither is named.
const REQUEST: &str = "ping the gang: hand my arguments back to me";

/// The tools for [`REQUEST`], best first.
fn echoes(client: &mut impl ClientSession) -> Vec<String> {
    let mut found = found(client, &json!({"query": REQUEST}));
    found.retain(|name| name.ends_with(".echo"));
    found
}

fn wait_for_order(client: &mut impl ClientSession, expected: &[String]) {
    wait_until(&format!("{expected:?} are found in this order"), || (echoes(client) == expected).then_some(()));
}

/// What a search over REST finds, as soon as all vectors are there.
fn over_rest(rest: &Rest) -> Value {
    wait_until("all vectors are there", || {
        let found = expect(200, &rest.post("/search", &json!({"query": REQUEST})));
        let missing = expect_whole(rest);
        (missing && names(&found).len() >= 2).then_some(found)
    })
}

fn expect_whole(rest: &Rest) -> bool {
    let ask = testkit::http_client::HttpRequest::post("/api/v1/search", json!({"query": REQUEST}).to_string());
    let metadata = &rest.serve.fetch(&ask).json()["metadata"];
    metadata["tools_without_vectors"] == 0 && metadata["servers_searched"] == 2
}

#[test]
fn what_a_client_calls_after_a_search_is_found_sooner_until_that_is_turned_off() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("two", &[]);
    let before = over_rest(&rest);
    let mut legacy = rest.serve.session("/mcp?surface=search");
    let order = echoes(&mut legacy);
    let [first, second] = order.as_slice() else { panic!("both are found: {order:?}") };
    let learned = [second.clone(), first.clone()];

    let answer = call(&mut legacy, "call_tool", &json!({"name": second, "arguments": {"x": 1}}));
    assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{answer}");
    wait_for_order(&mut legacy, &learned);
    assert_eq!(names(&over_rest(&rest)), names(&before), "only clients with the small surface learn");

    let rest = rest.restarted(false);
    over_rest(&rest);
    wait_for_order(&mut rest.serve.session("/mcp?surface=search"), &learned);

    expect(200, &rest.patch("/settings", &json!({"learn_from_use": false})));
    let mut modern = rest.serve.modern("/mcp?surface=search");
    assert_eq!(echoes(&mut modern), order, "it takes effect at once");
    call(&mut modern, second, &json!({"x": 1}));
    expect(200, &rest.patch("/settings", &json!({"learn_from_use": true})));
    wait_for_order(&mut modern, &order);

    // A call by the tool's own name counts as well.
    assert_eq!(echoes(&mut modern), order, "nothing is left of what was counted");
    call(&mut modern, second, &json!({"x": 1}));
    wait_for_order(&mut modern, &learned);
}
