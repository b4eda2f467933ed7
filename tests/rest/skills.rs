//! Skills: tools get them in the background, can be searched by them, and an administrator can change them.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{ClientSession as _, Postgres, Puppet, Spec, wait_until};

use super::{PREFIX, Rest, expect, expect_error, expect_problems, names};

fn tool(name: &str, description: &str) -> String {
    let schema = r#"{"type":"object","properties":{"path":{"type":"string"}}}"#;
    format!(r#"{{"name":"{name}","description":"{description}","inputSchema":{schema}}}"#)
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
    let body = json!({"name": name, "transport_type": "http", "connection_config": config});
    expect(201, &rest.post("/servers", &body));
    rest.wait_for_status(name, "connected");
}

/// A metric.
fn number(rest: &Rest, name: &str) -> u64 {
    let numbers = rest.serve.fetch(&HttpRequest::new("GET", "/metrics")).body;
    let line = numbers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{numbers}"))
}

fn wait_for_classified(rest: &Rest, count: u64) {
    wait_until(&format!("{count} tools were classified"), || {
        (number(rest, "mcp_tools_classified_total") >= count).then_some(())
    });
}

/// Waits until a tool has this best skill, or none.
fn wait_for_skill(rest: &Rest, tool: &str, skill: &Value) -> Value {
    wait_until(&format!("`{tool}` has the skill {skill}"), || {
        let tools = rest.get("/tools").json();
        let found = tools.as_array()?.iter().find(|known| known["name"] == tool)?;
        (found["primary_skill_id"] == *skill).then(|| found.clone())
    })
}

fn put(rest: &Rest, id: &str, body: &Value) -> testkit::serve::Fetched {
    let ask = HttpRequest::new("PUT", &format!("{PREFIX}/skills/{id}")).header("Content-Type", "application/json");
    rest.serve.fetch(&ask.body(body.to_string()))
}

fn whole(rest: &Rest, body: &Value) -> Value {
    expect(200, &rest.serve.fetch(&HttpRequest::post("/api/v1/search", body.to_string())))
}

#[test]
fn tools_are_classified_and_what_fits_nowhere_is_found_all_the_same() {
    let (rest, desk) = (Rest::start(), desk());
    register(&rest, "desk", &desk);
    wait_for_classified(&rest, 4);
    let reading = wait_for_skill(&rest, "desk.read_file", &json!("files"));
    assert_eq!((&reading["is_classified"], &reading["skill_ids"][0]), (&json!(true), &json!("files")));
    let of_desk = expect(200, &rest.get("/servers/desk/tools"));
    let odd = &of_desk[3];
    assert_eq!((&odd["is_classified"], &odd["skill_ids"]), (&json!(false), &json!([])), "{odd}");
    let found = expect(200, &rest.post("/search", &json!({"query": "frobnicate", "strategy": "hierarchical"})));
    assert_eq!(found[0]["name"], "desk.foo", "{found}");
    let state = expect(200, &rest.get("/state"));
    assert_eq!((&state["classified_tools"], &state["unclassified_tools"]), (&json!(3), &json!(1)), "{state}");
    assert_eq!(expect(200, &rest.get("/health"))["classified_tools"], 3);

    // The name, which stays, counts as well: the description has to say clearly that it is something else now.
    let description =
        "Send an email to somebody. Writes an email message with recipients, a subject and a body, and sends it";
    desk.change(|_| Spec::legacy().raw_tool(&tool("read_file", description)).echoes());
    expect(202, &rest.order("/servers/desk/tools/refresh"));
    wait_for_skill(&rest, "desk.read_file", &json!("email"));
}

#[test]
fn a_search_uses_skills_where_they_match_and_reports_it() {
    let (rest, desk) = (Rest::start(), desk());
    register(&rest, "desk", &desk);
    wait_for_classified(&rest, 4);
    let by_skills = json!({"query": "list the files in a folder", "strategy": "hierarchical"});
    let found = whole(&rest, &by_skills);
    assert_eq!(found["metadata"]["strategy"], "hierarchical", "{found}");
    assert_eq!(found["matched_skills"][0]["id"], "files", "{found}");
    assert_eq!(found["matched_skills"][0]["name"], "Files and folders", "{found}");
    assert_eq!(found["tools"][0]["name"], "desk.list_directory", "{found}");
    assert_eq!(found["tools"][0]["primary_skill_id"], "files", "{found}");

    let direct = whole(&rest, &json!({"query": "list the files in a folder"}));
    assert_eq!((&direct["metadata"]["strategy"], &direct["matched_skills"]), (&json!("direct"), &json!([])));
    let unreachable = whole(&rest, &json!({"query": "list files", "strategy": "HIERARCHICAL", "skill_threshold": 1}));
    assert_eq!(unreachable["metadata"]["strategy"], "direct", "{unreachable}");
    assert!(!names(&unreachable["tools"]).is_empty());

    for skill in ["files", "files AND folders"] {
        let filtered = whole(&rest, &json!({"query": "read files and list folders", "skill_filter": [skill]}));
        let mut found = names(&filtered["tools"]);
        found.sort_unstable();
        assert_eq!(found, ["desk.list_directory", "desk.read_file"], "{filtered}");
    }
    let unknown = json!({"query": "x", "skill_filter": ["files", "nope"]});
    assert_eq!(expect_error(404, "SKILL_NOT_FOUND", &rest.post("/search", &unknown))["skill"], "nope");
    assert_eq!(
        expect_problems(&rest.post("/search", &json!({"query": "x", "strategy": "luck"})))[0].0,
        "body.strategy"
    );

    let mut client = rest.serve.session("/mcp?surface=search");
    let description = client.list("tools/list", "tools")[0]["description"].as_str().unwrap().to_owned();
    assert!(description.contains("They are good for: Files and folders (2)"), "{description}");
}

#[test]
fn skills_are_made_changed_disabled_and_taken_back() {
    let (rest, desk) = (Rest::start(), desk());
    register(&rest, "desk", &desk);
    wait_for_skill(&rest, "desk.read_file", &json!("files"));
    let shown = wait_until("tools are counted", || {
        let shown = expect(200, &rest.get("/skills/files"));
        (shown["primary_tool_count"] == 2).then_some(shown)
    });
    assert_eq!((&shown["origin"], &shown["is_changed"]), (&json!("builtin"), &json!(false)));
    let all = expect(200, &rest.get("/skills"));
    assert!(all.as_array().unwrap().len() >= 20 && all.as_array().unwrap().contains(&shown));

    let frobnication = json!({
        "name": "Frobnication",
        "description": "Frobnicates bars",
        "examples": ["frobnicate the bar", "foo: frobnicates the bar"],
    });
    expect(201, &put(&rest, "frobnication", &frobnication));
    let made = wait_for_skill(&rest, "desk.foo", &json!("frobnication"));
    assert_eq!(made["is_classified"], true);
    assert_eq!(expect(200, &put(&rest, "files", &json!({"enabled": false})))["is_changed"], true);
    wait_until("no tool is for files", || {
        let tools = rest.get("/tools").json();
        tools.as_array()?.iter().all(|tool| tool["primary_skill_id"] != "files").then_some(())
    });
    expect_error(404, "SKILL_NOT_FOUND", &rest.post("/search", &json!({"query": "x", "skill_filter": ["files"]})));
    assert_eq!(expect(200, &rest.get("/skills/files"))["enabled"], false);

    let rest = rest.restarted(false);
    rest.wait_for_status("desk", "connected");
    assert_eq!(expect(200, &rest.get("/skills/files"))["enabled"], false, "it is kept");
    expect(204, &rest.delete("/skills/files"));
    expect(204, &rest.delete("/skills/files"));
    wait_for_skill(&rest, "desk.read_file", &json!("files"));
    assert_eq!(expect(200, &rest.get("/skills/files"))["is_changed"], false);
    expect(204, &rest.delete("/skills/frobnication"));
    expect_error(404, "SKILL_NOT_FOUND", &rest.get("/skills/frobnication"));
    expect_error(404, "SKILL_NOT_FOUND", &rest.delete("/skills/frobnication"));
    wait_for_skill(&rest, "desk.foo", &Value::Null);

    let noted = wait_until("all is noted", || {
        let noted = rest.get("/audit?target=files").json();
        (noted.as_array()?.len() == 2).then_some(noted)
    });
    assert_eq!((&noted[0]["action"], &noted[1]["action"]), (&json!("skill.delete"), &json!("skill.put")));
    for (id, body, place) in [
        ("new", json!({"name": "x"}), "body.description"),
        ("New", json!({"name": "x", "description": "x"}), "path.skill"),
        ("files", json!({"name": " "}), "body.name"),
        ("files", json!({"examples": [""]}), "body.examples"),
        ("files", json!({"colour": "red"}), "body.colour"),
    ] {
        assert_eq!(expect_problems(&put(&rest, id, &body))[0].0, place, "{body}");
    }
}

fn nothing_is_done_twice(rest: Rest) {
    let desk = desk();
    register(&rest, "desk", &desk);
    wait_for_classified(&rest, 4);
    assert_eq!(number(&rest, "mcp_tools_embedded_total"), 4);
    let before = expect(200, &rest.get("/tools"));
    let rest = rest.restarted(true);
    rest.wait_for_status("desk", "connected");
    // A new tool shows that everything before it was processed.
    desk.change(|spec| spec.raw_tool(&tool("delete_file", "Delete a file from the disk")));
    expect(202, &rest.order("/servers/desk/tools/refresh"));
    wait_for_skill(&rest, "desk.delete_file", &json!("files"));
    wait_for_classified(&rest, 1);
    let numbers = ["mcp_tools_embedded_total", "mcp_tools_classified_total"].map(|name| number(&rest, name));
    assert_eq!(numbers, [1, 1], "only the new one");
    let after = expect(200, &rest.get("/tools"));
    let skills = |tools: &Value, at: usize| tools[at]["skill_ids"].clone();
    assert!((0..4).all(|at| skills(&before, at) == skills(&after, at)), "{before}\n{after}");
}

#[test]
fn a_restart_embeds_and_classifies_nothing_twice() {
    nothing_is_done_twice(Rest::start());
}

#[test]
fn the_same_with_postgresql() {
    let Some(postgres) = Postgres::shared() else { return };
    nothing_is_done_twice(Rest::on_database(&postgres.database("skills")));
}

#[test]
fn a_file_brings_skills_along() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("skills.json");
    let skills = json!([{"id": "frobnication", "name": "Frobnication", "description": "Frobnicates bars"}]);
    std::fs::write(&file, skills.to_string()).unwrap();
    let rest = Rest::start_as(|launch| launch.args(["--skills", file.to_str().unwrap()]));
    let shown = expect(200, &rest.get("/skills/frobnication"));
    assert_eq!((&shown["origin"], &shown["is_changed"]), (&json!("file"), &json!(false)));
    expect(200, &put(&rest, "frobnication", &json!({"enabled": false})));
    expect(204, &rest.delete("/skills/frobnication"));
    assert_eq!(expect(200, &rest.get("/skills/frobnication")), shown);
}

#[test]
fn a_search_has_thresholds_from_zero_to_one_and_null_means_default() {
    let (rest, desk) = (Rest::start(), desk());
    register(&rest, "desk", &desk);
    for (name, value) in [("threshold", json!(2)), ("threshold", json!(-0.5)), ("skill_threshold", json!(9))] {
        let mut body = json!({"query": "read a file"});
        body[name] = value;
        assert_eq!(expect_problems(&rest.post("/search", &body))[0].0, format!("body.{name}"));
    }
    let said = json!({"query": "read_file", "limit": null, "server_filter": null, "skill_filter": null, "strategy": null,
        "threshold": null, "skill_threshold": null, "include_schemas": null, "include_external": null});
    wait_until("the tools are in the index", || {
        let found = expect(200, &rest.post("/search", &said));
        (found[0]["name"] == "desk.read_file" && found[0]["score"].as_f64()? >= 0.9).then_some(())
    });
    assert_eq!(expect(200, &rest.post("/search", &json!({"query": "!!!???"}))), json!([]));
}

#[test]
fn what_most_tools_of_a_server_are_for_counts_for_the_others() {
    let tools = [
        ("git_diff", "Shows differences between branches or commits"),
        ("git_commit", "Records changes to the repository"),
        ("git_create_branch", "Creates a new branch from an optional base branch"),
        ("git_checkout", "Switches branches"),
        ("git_branch", "List Git branches"),
        ("git_show", "Shows the contents of a commit"),
        ("git_log", "Shows the commit logs"),
        ("git_status", "Shows the working tree status"),
    ];
    let spec = tools.iter().fold(Spec::legacy(), |spec, (name, text)| spec.raw_tool(&tool(name, text)));
    let (rest, puppet) = (Rest::start(), Puppet::over_http(spec.echoes()));
    register(&rest, "git", &puppet);
    wait_for_classified(&rest, tools.len() as u64);
    for (name, _) in tools {
        wait_for_skill(&rest, &format!("git.{name}"), &json!("source-control"));
    }
    let found = whole(&rest, &json!({"query": "what did I commit last?", "skill_filter": ["source-control"]}));
    assert!(names(&found["tools"]).contains(&"git.git_log"), "{found}");
}
