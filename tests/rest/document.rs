//! The OpenAPI document, and the page that shows it.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{ModelReply, ModelServer};

use super::{PREFIX, Rest, expect};

fn document(rest: &Rest) -> Value {
    expect(200, &rest.serve.fetch(&HttpRequest::new("GET", "/api/v1/openapi.json")))
}

#[test]
fn every_endpoint_is_in_the_document() {
    let rest = Rest::start();
    let document = document(&rest);
    let paths = document["paths"].as_object().unwrap();
    for (path, methods) in [
        ("/servers", "get,post"),
        ("/servers/test", "post"),
        ("/servers/{server}", "delete,get,patch"),
        ("/servers/{server}/connect", "post"),
        ("/servers/{server}/disconnect", "post"),
        ("/servers/{server}/enable", "post"),
        ("/servers/{server}/disable", "post"),
        ("/servers/{server}/test", "post"),
        ("/servers/{server}/tools", "get"),
        ("/servers/{server}/tools/refresh", "post"),
        ("/servers/{server}/health", "get"),
        ("/servers/{server}/history", "get"),
        ("/tools", "get"),
        ("/tools/call", "post"),
        ("/execute", "post"),
        ("/search", "post"),
        ("/skills", "get"),
        ("/skills/{skill}", "delete,get,put"),
        ("/skills/suggestions", "get"),
        ("/skills/suggestions/{skill}/accept", "post"),
        ("/skills/suggestions/{skill}/reject", "post"),
        ("/executions", "get"),
        ("/executions/{execution}", "delete,get"),
        ("/executions/stop", "post"),
        ("/executions/reset", "post"),
        ("/documents", "get"),
        ("/documents/text", "get"),
        ("/documents/map", "post"),
        ("/documents/run", "post"),
        ("/documents/context", "get,post"),
        ("/bindings", "get,post"),
        ("/assistant/tools", "get,post"),
        ("/assistant/ask", "post"),
        ("/state", "get"),
        ("/health", "get"),
        ("/events", "get"),
        ("/settings", "get,patch"),
        ("/audit", "get"),
        ("/export", "get"),
        ("/import", "post"),
    ] {
        let reply = paths.get(&format!("{PREFIX}{path}")).unwrap_or_else(|| panic!("{path} is not told"));
        let mut known: Vec<&str> = reply.as_object().unwrap().keys().map(String::as_str).collect();
        known.sort_unstable();
        assert_eq!(known.join(","), methods, "{path}");
    }
    assert!(paths.contains_key("/metrics"));
}

/// The members of `value` that `schema` does not describe.
fn untold(document: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(name) => document.pointer(name.trim_start_matches('#')).expect("a schema that is named is there"),
        None => schema,
    };
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        values.iter().for_each(|value| untold(document, items, value, place, found));
    }
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object()) else { return };
    for (name, value) in members {
        match properties.get(name) {
            Some(schema) => untold(document, schema, value, &format!("{place}.{name}"), found),
            None => found.push(format!("{place}.{name}")),
        }
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            found.push(format!("{place}.{name} is promised"));
        }
    }
}

#[test]
fn responses_have_exactly_the_members_of_the_openapi_document() {
    let rest = Rest::start();
    let document = document(&rest);
    rest.register("one", &["--tools", "1"]);
    let execution = expect(200, &rest.call("one.echo", &json!({})))["metadata"]["execution_id"].clone();
    rest.order("/servers/one/disconnect");
    rest.order("/servers/one/connect");
    let mut found = Vec::new();
    for (path, asked) in [
        ("/servers", "/servers?include_tools=true"),
        ("/servers/{server}", "/servers/one"),
        ("/servers/{server}/tools", "/servers/one/tools"),
        ("/servers/{server}/health", "/servers/one/health"),
        ("/servers/{server}/history", "/servers/one/history"),
        ("/tools", "/tools"),
        ("/skills", "/skills"),
        ("/skills/{skill}", "/skills/files"),
        ("/skills/suggestions", "/skills/suggestions"),
        ("/executions", "/executions"),
        ("/executions/{execution}", &format!("/executions/{}", execution.as_str().unwrap())),
        ("/documents/context", "/documents/context?path=a.md&line=1"),
        ("/assistant/tools", "/assistant/tools?format=openai"),
        ("/state", "/state"),
        ("/health", "/health"),
        ("/settings", "/settings"),
        ("/audit", "/audit"),
    ] {
        let schema = &document["paths"][format!("{PREFIX}{path}")]["get"]["responses"]["200"]["content"]["application/json"]
            ["schema"];
        assert!(schema.is_object(), "{path}");
        untold(&document, schema, &expect(200, &rest.get(asked)), path, &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_an_assistant_answers_is_as_the_document_promises() {
    let model = ModelServer::start();
    let rest = super::assistant::with_model(&model);
    model.say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "a"}"#)]));
    model.say(ModelReply::openai_text("So."));
    let reply = expect(200, &rest.post("/assistant/ask", &json!({"question": "Well?", "transcript": true})));
    let document = document(&rest);
    let schema = &document["paths"][format!("{PREFIX}/assistant/ask")]["post"]["responses"]["200"]["content"]["application/json"]
        ["schema"];
    let mut found = Vec::new();
    untold(&document, schema, &reply, "/assistant/ask", &mut found);
    found.retain(|place| !place.contains(".transcript."));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_page_needs_nothing_from_anywhere_else() {
    let rest = Rest::start();
    let page = rest.serve.fetch(&HttpRequest::new("GET", "/api/docs"));
    assert_eq!(page.status, 200);
    assert!(page.headers["content-type"].starts_with("text/html"));
    assert!(page.headers["content-security-policy"].contains("default-src 'none'"));
    assert!(page.body.contains("prefers-color-scheme: dark"));
    for elsewhere in ["http://", "https://", "//cdn", " src=", "@import"] {
        assert!(!page.body.contains(elsewhere), "{elsewhere}");
    }
}
