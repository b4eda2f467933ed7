//! Clients with the small surface find sooner what they have used after a search.

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::{ClientSession, wait_until};

use crate::rest::{Rest, expect, names};
use crate::surface::{call, found};

/// Two servers have a tool for this, and neither is named.
const REQUEST: &str = "ping the gang: hand my arguments back to me";

/// The tools for [`REQUEST`], best first.
pub(crate) fn echoes(client: &mut impl ClientSession) -> Vec<String> {
    let mut found = found(client, &json!({"query": REQUEST}));
    found.retain(|name| name.ends_with(".echo"));
    found
}

pub(crate) fn wait_for_order(client: &mut impl ClientSession, expected: &[String]) {
    wait_until(&format!("{expected:?} are found in this order"), || (echoes(client) == expected).then_some(()));
}

/// The same over REST, which does not learn, as soon as all tools have vectors.
fn unlearned(rest: &Rest) -> [String; 2] {
    wait_until("all vectors are there", || {
        let ask = HttpRequest::post("/api/v1/search", json!({"query": REQUEST}).to_string());
        let found = rest.serve.fetch(&ask).json();
        let is_whole = found["metadata"]["tools_without_vectors"] == 0 && found["metadata"]["servers_searched"] == 2;
        let echoes = names(&found["tools"]).into_iter().filter(|name| name.ends_with(".echo")).map(str::to_owned);
        echoes.collect::<Vec<_>>().try_into().ok().filter(|_| is_whole)
    })
}

/// Waits until nothing is left of what was learned.
fn wait_until_unlearned(client: &mut impl ClientSession, rest: &Rest) -> [String; 2] {
    wait_until("the order is that of REST", || {
        let order = unlearned(rest);
        (echoes(client) == order).then_some(order)
    })
}

#[test]
fn what_a_client_calls_after_a_search_is_found_sooner_until_that_is_turned_off() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("two", &[]);
    let mut legacy = rest.serve.session("/mcp?surface=search");
    let [first, second] = wait_until_unlearned(&mut legacy, &rest);
    let answer = call(&mut legacy, "call_tool", &json!({"name": second, "arguments": {"x": 1}}));
    assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{answer}");
    let learned = [second, first];
    wait_for_order(&mut legacy, &learned);

    let rest = rest.restarted(false);
    unlearned(&rest);
    wait_for_order(&mut rest.serve.session("/mcp?surface=search"), &learned);

    expect(200, &rest.patch("/settings", &json!({"learn_from_use": false})));
    let mut modern = rest.serve.modern("/mcp?surface=search");
    let [_, second] = wait_until_unlearned(&mut modern, &rest);
    call(&mut modern, &second, &json!({"x": 1}));
    expect(200, &rest.patch("/settings", &json!({"learn_from_use": true})));
    let [first, second] = wait_until_unlearned(&mut modern, &rest);

    // A call by the tool's own name counts as well.
    call(&mut modern, &second, &json!({"x": 1}));
    wait_for_order(&mut modern, &[second, first]);
}
