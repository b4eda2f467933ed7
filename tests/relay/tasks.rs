//! Tasks of 2025-11-25: calls that outlive their request, with an id that belongs to the client.

use serde_json::{Value, json};
use testkit::{ClientSession, Driver, Puppet, Spec, raw};

use super::{code_of, connected, serving};

const CAPABILITIES: &str = r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#;

fn spec() -> Spec {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}"#;
    Spec::legacy().capabilities(CAPABILITIES).raw_tool(tool)
}

fn task(id: &str, status: &str) -> String {
    format!(
        r#"{{"taskId":"{id}","status":"{status}","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":60000, "pollInterval":5e3}}"#
    )
}

/// Starts a task-augmented call of this tool, to which its server gives the id `server_id`; returns the client's id.
#[track_caller]
fn begin_task(client: &mut dyn ClientSession, puppet: &Puppet, tool: &str, server_id: &str) -> String {
    let id = client.begin("tools/call", json!({"name": tool, "arguments": {}, "task": {"ttl": 60000}}));
    let call = puppet.expect("tools/call");
    assert_eq!(call.param(&["task"]), Some(r#"{"ttl":60000}"#));
    call.answer(&format!(r#"{{"task":{}}}"#, task(server_id, "working")));
    let answer = client.answer_to(id);
    assert_eq!(answer["result"]["task"]["status"], "working", "{answer}");
    answer["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("no task in {answer}")).to_owned()
}

/// Requests a task; the server must receive its own id.
#[track_caller]
fn about(
    client: &mut dyn ClientSession,
    puppet: &Puppet,
    method: &str,
    task_id: &str,
    server_id: &str,
    result: &str,
) -> Value {
    let id = client.begin(method, json!({"taskId": task_id}));
    let request = puppet.expect(method);
    assert_eq!(request.text_param(&["taskId"]).as_deref(), Some(server_id), "{method}");
    request.answer(result);
    client.answer_to(id)
}

#[test]
fn a_task_is_followed_from_its_call_to_its_result() {
    let puppet = Puppet::new(spec());
    let mut client = connected(&[("s", &puppet)]);
    let mine = begin_task(&mut client, &puppet, "s.t", "t-1");

    let got = about(&mut client, &puppet, "tasks/get", &mine, "t-1", &task("t-1", "working"));
    assert_eq!(got["result"]["taskId"], mine.as_str(), "{got}");
    assert_eq!(got["result"]["status"], "working");

    let status = task("t-1", "completed");
    puppet.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{status}}}"#));
    let reported = client.notice("notifications/tasks/status");
    assert_eq!((&reported["params"]["taskId"], &reported["params"]["status"]), (&json!(mine), &json!("completed")));

    let result = r#"{"content":[{"type":"text","text":"done \u0041","n":1.0}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}}"#;
    let id = client.begin("tasks/result", json!({"taskId": mine}));
    puppet.expect("tasks/result").answer(result);
    let line = client.line_to(&id.to_string());
    assert_eq!(raw::at(&line, &["result", "content"]), Some(r#"[{"type":"text","text":"done \u0041","n":1.0}]"#));
    let related = ["result", "_meta", "io.modelcontextprotocol/related-task", "taskId"];
    assert_eq!(raw::at(&line, &related).and_then(raw::text), Some(mine.clone()));

    let cancelled = about(&mut client, &puppet, "tasks/cancel", &mine, "t-1", &task("t-1", "cancelled"));
    assert_eq!(cancelled["result"]["taskId"], mine.as_str());
}

#[test]
fn tasks_of_two_servers_with_the_same_id_are_distinguished() {
    let (first, second) = (Puppet::new(spec()), Puppet::new(spec()));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    let of_first = begin_task(&mut client, &first, "first.t", "same");
    let of_second = begin_task(&mut client, &second, "second.t", "same");
    assert_ne!(of_first, of_second);
    about(&mut client, &second, "tasks/get", &of_second, "same", &task("same", "working"));
    about(&mut client, &first, "tasks/get", &of_first, "same", &task("same", "working"));

    let list = |client: &mut Driver| {
        let id = client.begin("tasks/list", json!({}));
        for puppet in [&first, &second] {
            puppet.expect("tasks/list").answer(&format!(r#"{{"tasks":[{}]}}"#, task("same", "working")));
        }
        client.answer_to(id)
    };
    let listed = list(&mut client);
    let ids: Vec<&str> = listed["result"]["tasks"]
        .as_array()
        .unwrap_or_else(|| panic!("no tasks in {listed}"))
        .iter()
        .filter_map(|task| task["taskId"].as_str())
        .collect();
    assert!(ids.contains(&of_first.as_str()) && ids.contains(&of_second.as_str()), "{ids:?}");
}

#[test]
fn an_unknown_task_is_an_invalid_parameter() {
    let puppet = Puppet::new(spec());
    let mut client = connected(&[("s", &puppet)]);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(code_of(&client.ask(method, json!({"taskId": "nothing"}))), -32602, "{method}");
    }
}

#[test]
fn the_tasks_of_one_client_are_not_those_of_another() {
    let puppet = Puppet::new(spec());
    let serve = serving(&[("s", &puppet)]);
    let [mut mine, mut other] = [(); 2].map(|()| serve.session("/mcp"));
    let task_id = begin_task(&mut mine, &puppet, "s.t", "t-1");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(code_of(&other.ask(method, json!({"taskId": task_id}))), -32602, "{method}");
        assert_eq!(puppet.count(method), 0, "{method}");
    }
    // The server may get the request or not; tasks of other clients are not returned.
    puppet.change(|spec| spec.answers("tasks/list", &format!(r#"{{"tasks":[{}]}}"#, task("t-1", "working"))));
    let listed = other.ask("tasks/list", json!({}));
    assert_eq!(listed["result"]["tasks"], json!([]), "{listed}");
    about(&mut mine, &puppet, "tasks/get", &task_id, "t-1", &task("t-1", "working"));
}

#[test]
fn the_tasks_of_a_session_that_ends_are_cancelled_where_the_server_lets_us() {
    let lets_us = Puppet::new(spec());
    let does_not = Puppet::new(spec().capabilities(&CAPABILITIES.replace(r#""cancel":{},"#, "")));
    let serve = serving(&[("yes", &lets_us), ("no", &does_not)]);
    let [mut mine, mut other] = [(); 2].map(|()| serve.session("/mcp"));
    begin_task(&mut mine, &lets_us, "yes.t", "t-1");
    begin_task(&mut mine, &does_not, "no.t", "t-2");
    let kept = begin_task(&mut other, &lets_us, "yes.t", "t-3");
    mine.delete();
    let cancelled = lets_us.expect("tasks/cancel");
    assert_eq!(cancelled.text_param(&["taskId"]).as_deref(), Some("t-1"));
    cancelled.answer(&task("t-1", "cancelled"));
    about(&mut other, &lets_us, "tasks/get", &kept, "t-3", &task("t-3", "working"));
    assert_eq!((lets_us.count("tasks/cancel"), does_not.count("tasks/cancel")), (1, 0));
}
