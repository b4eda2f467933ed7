//! Vectors in Qdrant: the same tools are found as without it, whether it is reachable or not; and its contents.
//!
//! Uses a stand-in with the real protocol, or the real one at `QDRANT_URL`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::serve::Fetched;
use testkit::{Config, Puppet, Qdrant, Serve, Spec, wait_until};

use crate::rest::{PREFIX, Rest, expect};

const TOOLS: &str = include_str!("../crates/search/tests/quality/mcp.tools.jsonl");
const REQUESTS: &str = include_str!("../crates/search/tests/quality/mcp.queries.jsonl");

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("the set is JSON")).collect()
}

/// A unique name for a collection.
fn collection() -> String {
    let moment = std::time::UNIX_EPOCH.elapsed().expect("it is later than 1970").as_nanos();
    format!("test-{}-{moment}", std::process::id())
}

fn whole(serve: &Serve, body: &Value) -> Value {
    expect(200, &serve.fetch(&HttpRequest::post("/api/v1/search", body.to_string())))
}

fn health(serve: &Serve) -> Value {
    expect(200, &serve.fetch(&HttpRequest::new("GET", &format!("{PREFIX}/health"))))
}

/// Waits until this many vectors are compared in Qdrant.
fn wait_for_points(serve: &Serve, count: usize) {
    wait_until(&format!("{count} vectors are in Qdrant"), || {
        let vectors = &health(serve)["checks"]["vectors"];
        (vectors["in_use"] == "qdrant" && vectors["points"] == count).then_some(())
    });
}

fn wait_for_vectors(serve: &Serve, tools: usize) {
    wait_until("all tools have vectors", || {
        let metadata = &whole(serve, &json!({"query": "x"}))["metadata"];
        (metadata["total_tools_searched"] == tools && metadata["tools_without_vectors"] == 0).then_some(())
    });
}

/// The servers of the data set that measures search quality.
fn servers() -> BTreeMap<String, Puppet> {
    let mut specs: BTreeMap<String, Spec> = BTreeMap::new();
    for tool in lines(TOOLS) {
        let schema = json!({"type": "object", "properties": tool["parameters"].as_object().expect("the answer has it").keys().map(|name| (name.clone(), json!({}))).collect::<serde_json::Map<_, _>>()});
        let definition =
            json!({"name": tool["name"], "description": tool["description"], "inputSchema": schema}).to_string();
        let spec = specs.remove(tool["server"].as_str().expect("the answer has it")).unwrap_or_else(Spec::legacy);
        specs.insert(tool["server"].as_str().expect("the answer has it").to_owned(), spec.raw_tool(&definition));
    }
    specs.into_iter().map(|(name, spec)| (name, Puppet::over_http(spec.echoes()))).collect()
}

/// The results, with their scores rounded to three digits.
fn found(whole: &Value) -> Vec<(String, i64)> {
    let score = |tool: &Value| (tool["score"].as_f64().expect("the answer has it") * 1000.0).round() as i64;
    let tools = whole["tools"].as_array().expect("the answer has it");
    tools.iter().map(|tool| (tool["name"].as_str().expect("the answer has it").to_owned(), score(tool))).collect()
}

/// Whether two searches have the same results in the same order, except for negligible differences in scores.
#[track_caller]
fn assert_alike(one: &Value, other: &Value) {
    let (ones, others) = (found(one), found(other));
    assert_eq!(ones.len(), others.len(), "{}", one["query"]);
    let last = ones.last().map_or(0, |(_, score)| *score);
    for ((name, score), (_, other_score)) in ones.iter().zip(&others) {
        assert!((score - other_score).abs() <= 1, "{}: {ones:?} {others:?}", one["query"]);
        // Results with equal scores may swap, and the last one may differ.
        let again = others.iter().find(|(other, _)| other == name);
        let is_alike = again.map_or(score - last <= 1, |(_, again)| (score - again).abs() <= 1);
        assert!(is_alike, "{name} for {}: {ones:?} {others:?}", one["query"]);
    }
}

#[test]
fn with_qdrant_and_without_it_the_same_ten_tools_are_found() {
    let Some(mut qdrant) = Qdrant::start() else { return };
    let (collection, servers) = (collection(), servers());
    let config = servers.iter().fold(Config::new(), |config, (name, puppet)| config.server(name, puppet.entry()));
    let embedded = Serve::start(&config);
    let shared = Serve::start_as(&config, |launch| launch.args(["--vectors", &qdrant.address(&collection)]));
    let count = lines(TOOLS).len();
    wait_for_vectors(&embedded, count);
    wait_for_points(&shared, count);
    for request in lines(REQUESTS) {
        for more in [json!({}), json!({"server_filter": ["github", "git", "slack"]})] {
            let mut body = json!({"query": request["query"], "limit": 10});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let one = whole(&embedded, &body);
            // While Qdrant takes too long on a busy machine, vectors are compared here.
            let has_found = |answer: &Value| answer["tools"].as_array().is_some_and(|tools| !tools.is_empty());
            let other = wait_until("Qdrant compares the vectors", || {
                let answer = whole(&shared, &body);
                (answer["metadata"]["vectors"] == "qdrant" || !has_found(&answer)).then_some(answer)
            });
            assert_alike(&one, &other);
            assert!(one["metadata"]["vectors"] == "embedded" || !has_found(&one), "{one}");
        }
    }
    let several = json!({"query": "Look at the weather in Paris. Then send an email about it. Then create an issue."});
    assert_alike(&whole(&embedded, &several), &whole(&shared, &several));
    assert_eq!(qdrant.points(&collection).len(), count);
}

fn tool(name: &str, description: &str) -> String {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}}).to_string()
}

fn desk() -> Puppet {
    Puppet::over_http(
        Spec::legacy()
            .raw_tool(&tool("read_file", "Read the contents of a file on disk"))
            .raw_tool(&tool("list_directory", "List the files and folders in a directory"))
            .raw_tool(&tool("send_email", "Send an email message to somebody"))
            .raw_tool(&tool("foo", "Frobnicates the bar"))
            .echoes(),
    )
}

fn register(rest: &Rest, name: &str, puppet: &Puppet) {
    let config = json!({"url": format!("http://{}/mcp", puppet.address())});
    expect(201, &rest.post("/servers", &json!({"name": name, "transport_type": "http", "connection_config": config})));
    rest.wait_for_status(name, "connected");
}

fn put(rest: &Rest, path: &str, body: &Value) -> Fetched {
    let ask = HttpRequest::new("PUT", &format!("{PREFIX}{path}")).header("Content-Type", "application/json");
    rest.serve.fetch(&ask.body(body.to_string()))
}

/// Waits until the points satisfy this, and returns them by the names of their tools.
#[track_caller]
fn wait_for(
    qdrant: &mut Qdrant,
    collection: &str,
    what: &str,
    are: impl Fn(&BTreeMap<String, Value>) -> bool,
) -> BTreeMap<String, Value> {
    wait_until(what, || {
        let points = qdrant.points(collection).into_iter();
        let named = points.map(|(id, mut payload)| {
            let name = format!("{}.{}", payload["source_server_name"].as_str()?, payload["original_name"].as_str()?);
            payload["id"] = json!(id);
            Some((name, payload))
        });
        named.collect::<Option<BTreeMap<_, _>>>().filter(&are)
    })
}

#[test]
fn without_qdrant_searches_go_on_and_when_it_is_back_it_is_filled_and_used_again() {
    let Some(mut qdrant) = Qdrant::start_own() else { return };
    let (collection, desk) = (collection(), desk());
    let rest = Rest::start_as(|launch| launch.args(["--vectors", &qdrant.address(&collection)]));
    register(&rest, "desk", &desk);
    wait_for_points(&rest.serve, 4);
    let classified =
        |points: &BTreeMap<String, Value>| points.values().filter(|point| point["is_classified"] == true).count() == 3;
    wait_for(&mut qdrant, &collection, "skills are there", classified);
    let bodies = [
        json!({"query": "show me a document"}),
        json!({"query": "show me a document", "skill_filter": ["files"]}),
        json!({"query": "show me a document", "strategy": "hierarchical"}),
    ];
    let ask_all = || bodies.each_ref().map(|body| whole(&rest.serve, body));
    let before = ask_all();
    assert!(before.iter().all(|answer| answer["metadata"]["vectors"] == "qdrant"), "{before:?}");
    assert_eq!(found(&before[1]).len(), 2, "{}", before[1]);
    assert_eq!(before[2]["metadata"]["strategy"], "hierarchical");

    qdrant.kill();
    let without = ask_all();
    for (one, other) in before.iter().zip(&without) {
        assert_alike(one, other);
        assert_eq!(other["metadata"]["vectors"], "embedded", "{other}");
    }
    let ailing = health(&rest.serve);
    assert_eq!((&ailing["status"], &ailing["checks"]["vectors"]["status"]), (&json!("degraded"), &json!("failed")));
    assert_eq!(ailing["issues"][0]["component"], "vectors", "{ailing}");
    // Changes in the meantime are there afterwards.
    expect(204, &rest.delete("/servers/desk"));
    register(&rest, "table", &desk);
    wait_for_vectors(&rest.serve, 4);

    qdrant.start_again();
    wait_for_points(&rest.serve, 4);
    let names = wait_for(&mut qdrant, &collection, "it is filled again", |points| points.len() == 4);
    assert!(names.keys().all(|name| name.starts_with("table.")), "{names:?}");
    assert_eq!(whole(&rest.serve, &bodies[0])["metadata"]["vectors"], "qdrant");
    assert_eq!(health(&rest.serve)["status"], "healthy");
}

#[test]
fn what_is_in_qdrant_follows_servers_and_skills() {
    let Some(mut qdrant) = Qdrant::start() else { return };
    let (collection, desk) = (collection(), desk());
    let start = |launch: testkit::Launch| launch.args(["--vectors", &qdrant.address(&collection)]);
    let rest = Rest::start_as(start);
    register(&rest, "desk", &desk);
    let has_skill = |points: &BTreeMap<String, Value>, skill: &str| {
        points.get("desk.read_file").is_some_and(|point| point["primary_skill_id"] == skill)
    };
    let points = wait_for(&mut qdrant, &collection, "all is told", |points| {
        points.len() == 4 && has_skill(points, "files") && points["desk.send_email"]["is_classified"] == true
    });
    let server = expect(200, &rest.get("/servers/desk"));
    let reading = &points["desk.read_file"];
    assert_eq!(reading["source_server_id"], server["id"], "{reading}");
    assert_eq!((&reading["is_external"], &reading["is_classified"]), (&json!(true), &json!(true)), "{reading}");
    assert_eq!(reading["skill_ids"][0], "files", "{reading}");
    assert!(reading["text_hash"].is_string(), "{reading}");
    assert_eq!(points["desk.foo"]["primary_skill_id"], Value::Null);

    // Disconnected: stored, but not found.
    rest.order("/servers/desk/disconnect");
    rest.wait_for_status("desk", "disconnected");
    assert_eq!(whole(&rest.serve, &json!({"query": "file"}))["tools"], json!([]));
    assert_eq!(qdrant.points(&collection).len(), 4);
    rest.order("/servers/desk/connect");
    rest.wait_for_status("desk", "connected");

    // A disabled skill changes the metadata of vectors.
    expect(200, &put(&rest, "/skills/files", &json!({"enabled": false})));
    let after = wait_for(&mut qdrant, &collection, "no tool is for files", |points| !has_skill(points, "files"));
    assert_eq!(after["desk.read_file"]["id"], reading["id"], "the point stays");

    // Renamed or changed: the same points with other texts.
    expect(200, &rest.patch("/servers/desk", &json!({"name": "table"})));
    wait_for(&mut qdrant, &collection, "the new name is there", |points| points.contains_key("table.read_file"));
    desk.change(|_| Spec::legacy().raw_tool(&tool("read_file", "Play a song")).echoes());
    expect(202, &rest.order("/servers/table/tools/refresh"));
    let changed = wait_for(&mut qdrant, &collection, "the others are gone", |points| {
        points.len() == 1 && points.values().all(|point| point["text_hash"] != reading["text_hash"])
    });
    assert_eq!(changed["table.read_file"]["id"], reading["id"]);

    expect(204, &rest.delete("/servers/table"));
    wait_for(&mut qdrant, &collection, "nothing is left", BTreeMap::is_empty);
}

#[test]
fn an_address_that_makes_no_sense_is_refused_before_anything_is_started() {
    let mut driver = testkit::Launch::program(testkit::program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--vectors", "http://localhost:6333"])
        .start();
    assert_eq!(driver.wait_exit().code(), Some(1));
    assert!(driver.stderr_text().contains("use the one for gRPC, usually 6334"), "{}", driver.stderr_text());
}
