//! Embedding models of the user's choice: from a folder, and over HTTP with odd responses.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http_client::HttpRequest;
use testkit::{Launch, ModelReply, ModelRequestSeen, ModelServer, Puppet, Spec, program, wait_until};

use crate::rest::{Rest, expect};

#[path = "../crates/search/tests/behaviour/tiny_model.rs"]
#[expect(dead_code, reason = "the tests of the model itself need more of it")]
mod tiny_model;

use tiny_model::{Floats, TinyModel};

fn desk(tools: &[(&str, &str)]) -> Puppet {
    let schema = json!({"type": "object"});
    let definition = |(name, description): &(&str, &str)| {
        json!({"name": name, "description": description, "inputSchema": schema}).to_string()
    };
    Puppet::over_http(tools.iter().fold(Spec::legacy(), |spec, tool| spec.raw_tool(&definition(tool))).echoes())
}

fn register(rest: &Rest, puppet: &Puppet) {
    let config = json!({"url": format!("http://{}/mcp", puppet.address())});
    expect(
        201,
        &rest.post("/servers", &json!({"name": "desk", "transport_type": "http", "connection_config": config})),
    );
    rest.wait_for_status("desk", "connected");
}

fn whole(rest: &Rest, query: &str) -> Value {
    expect(200, &rest.serve.fetch(&HttpRequest::post("/api/v1/search", json!({"query": query}).to_string())))
}

/// Waits until this many of all tools in the index have no vector.
fn wait_for_lacking(rest: &Rest, tools: usize, lacking: usize) {
    wait_until(&format!("{lacking} of {tools} tools lack a vector"), || {
        let metadata = &whole(rest, "file")["metadata"];
        let is_so = metadata["total_tools_searched"] == tools && metadata["tools_without_vectors"] == lacking;
        (is_so && metadata["by_meaning"] == true).then_some(())
    });
}

fn made_since_the_start(rest: &Rest) -> u64 {
    let numbers = rest.serve.fetch(&HttpRequest::new("GET", "/metrics")).body;
    let line = numbers.lines().find_map(|line| line.strip_prefix("mcp_tools_embedded_total "));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number in\n{numbers}"))
}

fn write(model: &TinyModel, folder: &Path) {
    std::fs::create_dir_all(folder).expect("a temporary folder can be written");
    for (name, bytes) in model.files() {
        std::fs::write(folder.join(name), bytes).expect("a temporary folder can be written");
    }
}

#[test]
fn a_model_from_a_folder_makes_the_vectors_and_each_only_once() {
    let folder = TempDir::new().unwrap();
    let at = folder.path().join("tiny");
    write(&TinyModel::new(), &at);
    let with = |launch: Launch| launch.arg("--model-dir").arg(&at);
    let rest = Rest::start_as(with);
    let desk = desk(&[("read_file", "Read the files"), ("send_mail", "Send a message to all people")]);
    register(&rest, &desk);
    wait_for_lacking(&rest, 2, 0);
    assert_eq!(made_since_the_start(&rest), 2);

    let rest = rest.restarted_as(false, with);
    rest.wait_for_status("desk", "connected");
    wait_for_lacking(&rest, 2, 0);
    assert_eq!(made_since_the_start(&rest), 0, "they are kept");

    let mut other = TinyModel::new();
    other.tensors.get_mut("embeddings.LayerNorm.bias").unwrap().1[0] += 0.5;
    std::fs::write(at.join("model.safetensors"), other.weights(Floats::F16, "")).unwrap();
    let rest = rest.restarted_as(false, with);
    rest.wait_for_status("desk", "connected");
    wait_for_lacking(&rest, 2, 0);
    assert_eq!(made_since_the_start(&rest), 2, "vectors of another model are others, whatever its name");
}

#[test]
fn a_folder_that_is_no_model_is_refused_and_the_reason_named() {
    let folder = TempDir::new().unwrap();
    let serve = |more: &[&str]| {
        let launch =
            Launch::program(program("mcp-aggregator")).args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        let launch = launch.arg(folder.path().join("data")).arg("--model-dir").arg(folder.path().join("tiny"));
        let mut driver = launch.args(more.iter().copied()).start();
        let status = driver.wait_exit();
        (status.code(), driver.stderr_text())
    };
    let (code, said) = serve(&[]);
    assert!(code == Some(1) && said.contains("could not use the model in") && said.contains("No such file"), "{said}");
    write(&TinyModel::new(), &folder.path().join("tiny"));
    std::fs::remove_file(folder.path().join("tiny/model.safetensors")).unwrap();
    let (code, said) = serve(&[]);
    assert!(code == Some(1) && said.contains("it has no `model.safetensors`"), "{said}");
    assert!(said.contains("hint: --model-dir expects a sentence model"), "{said}");
    std::fs::write(folder.path().join("tiny/model.safetensors"), "PK").unwrap();
    let (_, said) = serve(&[]);
    assert!(said.contains("`model.safetensors` cannot be used: it has no readable header"), "{said}");
    let (code, said) = serve(&["--embeddings-url", "http://127.0.0.1:1/v1", "--embeddings-model", "m"]);
    assert!(code == Some(2) && said.contains("cannot be used with"), "{said}");
}

/// The texts of a request, and a vector for each.
fn texts(asked: &ModelRequestSeen) -> Vec<String> {
    let input = asked.body["input"].as_array().expect("texts are a list");
    input.iter().map(|text| text.as_str().expect("a text is a text").to_owned()).collect()
}

fn vectors(asked: &ModelRequestSeen, length: usize) -> ModelReply {
    let vector = |text: &String| (0..length).map(|place| text.len() as f32 + (place % 3) as f32).collect();
    ModelReply::embeddings(&texts(asked).iter().map(vector).collect::<Vec<Vec<f32>>>())
}

fn by(server: &ModelServer) -> Rest {
    let url = server.openai_url();
    Rest::start_as(|launch| launch.args(["--embeddings-url", &url, "--embeddings-model", "m"]))
}

#[test]
fn a_text_that_the_model_refuses_costs_no_other_its_vector() {
    let server = ModelServer::start();
    server.answer_by(|asked| match texts(asked).iter().any(|text| text.contains("lorem")) {
        true => ModelReply::refused(400, "this text is not welcome"),
        false => vectors(asked, 8),
    });
    let rest = by(&server);
    let desk = desk(&[("read_file", "Read a file"), ("odd", "lorem ipsum"), ("send_mail", "Send a message")]);
    register(&rest, &desk);
    wait_for_lacking(&rest, 3, 1);
    let refused =
        || server.asked().iter().filter(|asked| texts(asked).iter().any(|text| text.contains("lorem"))).count();
    let tried = refused();
    assert!(tried <= 4, "together and alone, and not again: {tried}");
    let found = whole(&rest, "lorem");
    assert_eq!(found["tools"][0]["name"], "desk.odd", "it is found by words: {found}");
    let odd = expect(200, &rest.get("/servers/desk/tools"))[1].clone();
    assert_eq!(odd["state"], "unclassified", "{odd}");
}

#[test]
fn a_changed_vector_length_recomputes_all_vectors_a_limited_number_of_times() {
    let server = ModelServer::start();
    server.answer_by(|asked| vectors(asked, 8));
    let rest = by(&server);
    let desk = desk(&[("read_file", "Read a file"), ("send_mail", "Send a message")]);
    register(&rest, &desk);
    wait_for_lacking(&rest, 2, 0);
    server.answer_by(|asked| vectors(asked, 12));
    desk.change(|_| {
        let definition = |name: &str, description: &str| {
            json!({"name": name, "description": description, "inputSchema": {"type": "object"}}).to_string()
        };
        let spec = Spec::legacy().raw_tool(&definition("read_file", "Read a file"));
        spec.raw_tool(&definition("send_mail", "Send a message"))
            .raw_tool(&definition("list", "List the files"))
            .echoes()
    });
    expect(202, &rest.order("/servers/desk/tools/refresh"));
    wait_for_lacking(&rest, 3, 0);
    // Embeddings of this test's searches are requested as well, as often as it searches.
    let about_tools =
        server.asked().iter().filter(|asked| texts(asked).iter().any(|text| text.contains("Send a message"))).count();
    assert!(about_tools < 10, "{about_tools}");
    rest.serve.wait_for_stderr("the model returns vectors of another length");
}

#[test]
fn a_tool_without_a_vector_for_its_text_does_not_hold_up_the_others() {
    let server = ModelServer::start();
    server.answer_by(|asked| {
        let vector = |text: &String| vec![if text.contains("null") { 0.0 } else { text.len() as f32 }; 8];
        ModelReply::embeddings(&texts(asked).iter().map(vector).collect::<Vec<_>>())
    });
    let rest = by(&server);
    let desk = desk(&[("null", "null"), ("send_mail", "Send a message")]);
    register(&rest, &desk);
    wait_for_lacking(&rest, 2, 1);
}

#[test]
fn an_unreachable_model_is_reported_to_operators() {
    let server = ModelServer::start();
    server.answer_by(|_| ModelReply::refused(401, "that key is not known"));
    let rest = by(&server);
    let desk = desk(&[("commit_changes", "Records changes to the repository"), ("send_mail", "Send a message")]);
    register(&rest, &desk);
    let issue = |health: &Value| {
        let issues = health["issues"].as_array().expect("a list").iter();
        issues.clone().find(|issue| issue["component"] == "embeddings").cloned()
    };
    let (health, issue_text) = wait_until("the model is told to be away", || {
        let health = expect(200, &rest.get("/health"));
        issue(&health).map(|issue_text| (health, issue_text))
    });
    assert_eq!((&health["status"], &health["checks"]["embeddings"]["status"]), (&json!("degraded"), &json!("failed")));
    assert_eq!(health["checks"]["vectors"]["in_use"], "table");
    assert!(issue_text["message"].as_str().unwrap().contains("that key is not known"), "{issue_text}");
    let page = rest.serve.fetch(&HttpRequest::new("GET", "/system").header("Accept", "text/html"));
    assert!(page.body.contains("search compares words and the word table only"), "{page:?}");
    // In the meantime, valid requests succeed.
    let found = whole(&rest, "commit changes");
    assert_eq!(
        (&found["metadata"]["by_meaning"], &found["tools"][0]["name"]),
        (&json!(false), &json!("desk.commit_changes"))
    );
    assert!(found["tools"][0]["score"].as_f64().unwrap() > 0.25, "{found}");

    server.answer_by(|asked| vectors(asked, 8));
    wait_until("all is well again", || {
        let health = expect(200, &rest.get("/health"));
        (issue(&health).is_none() && health["status"] == "healthy").then_some(())
    });
}

/// Changes what the registry of a service has of each tool's vector.
fn rewrite_vectors(rest: &Rest, change: &str) {
    let database = rusqlite::Connection::open(rest.registry()).expect("the registry is a file");
    database.busy_timeout(testkit::DEADLINE).expect("a timeout can be set");
    let changed = database.execute(&format!("UPDATE tools SET {change} WHERE embedding IS NOT NULL"), []);
    assert_eq!(changed.expect("nobody writes for long"), 2);
}

#[test]
fn vectors_of_an_earlier_version_of_the_program_are_used_until_new_ones_are_made() {
    let server = ModelServer::start();
    server.answer_by(|asked| vectors(asked, 8));
    let rest = by(&server);
    let desk = desk(&[("read_file", "Read a file"), ("send_mail", "Send a message")]);
    register(&rest, &desk);
    wait_for_lacking(&rest, 2, 0);
    // Earlier versions stored no hash after the numbers.
    rewrite_vectors(&rest, "embedding = substr(embedding, 1, 32)");
    // Requests are embedded, tools are not.
    server.answer_by(|asked| match texts(asked).iter().any(|text| text.contains("desk")) {
        true => ModelReply::refused(400, "not yet"),
        false => vectors(asked, 8),
    });
    let url = server.openai_url();
    let rest = rest.restarted_as(false, |launch| launch.args(["--embeddings-url", &url, "--embeddings-model", "m"]));
    rest.wait_for_status("desk", "connected");
    wait_for_lacking(&rest, 2, 2);
    let found = whole(&rest, "zzz");
    // All vectors of this model point to nearly the same direction, which those of the table do not.
    let near = |tool: &Value| tool["why"]["vector_score"].as_f64().is_some_and(|near| near > 0.9);
    let tools = found["tools"].as_array().expect("a list");
    assert!(tools.len() == 2 && tools.iter().all(near), "{found}");
}

#[test]
fn vectors_of_the_earlier_built_in_model_are_replaced_while_tools_are_found() {
    let rest = Rest::start();
    let desk = desk(&[("read_file", "Read a file"), ("send_mail", "Send a message")]);
    register(&rest, &desk);
    wait_for_lacking(&rest, 2, 0);
    rewrite_vectors(&rest, "embedding = substr(embedding, 1, 1536), embedding_model = 'paraphrase-minilm-l3-v2/q4'");
    let rest = rest.restarted(false);
    rest.wait_for_status("desk", "connected");
    wait_until("tools are found by meaning", || {
        let found = whole(&rest, "transmit a letter");
        (found["tools"][0]["name"] == "desk.send_mail" && found["metadata"]["by_meaning"] == true).then_some(())
    });
    wait_for_lacking(&rest, 2, 0);
    assert_eq!(made_since_the_start(&rest), 2, "the vectors of the model of today are made");
    let rest = rest.restarted(false);
    rest.wait_for_status("desk", "connected");
    wait_for_lacking(&rest, 2, 0);
    assert_eq!(made_since_the_start(&rest), 0, "and are stored");
}
