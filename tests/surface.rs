//! Tool search over REST, and by clients with the small surface.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::http_session::{Hello, HttpSession};
use testkit::{ClientSession, Config, Puppet, Serve, Spec, raw, wait_until};

use crate::relay::{at, config, serving};
use crate::rest::{Rest, expect, expect_error, expect_problems, names};

const OWN: [&str; 3] = ["search_tools", "describe_tool", "call_tool"];

fn tool(name: &str, description: &str) -> String {
    format!(
        r#"{{"name":"{name}","description":"{description}","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string"}},"n":{{"type":"integer"}}}},"required":["path"]}}}}"#
    )
}

fn files() -> Puppet {
    Puppet::new(
        Spec::legacy()
            .raw_tool(&tool("read_file", "Read the contents of a file from disk"))
            .raw_tool(&tool("delete_file", "Remove a file for ever"))
            .echoes(),
    )
}

fn mail() -> Puppet {
    Puppet::new(
        Spec::modern()
            .raw_tool(&tool("send_message", "Send an email to somebody"))
            .raw_tool(&tool("list_folders", "List the folders of a mailbox"))
            .echoes(),
    )
}

/// The text of one of our meta tools.
fn said(answer: &Value) -> (String, bool) {
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"));
    (text.to_owned(), result["isError"] == true)
}

pub(crate) fn call(client: &mut impl ClientSession, name: &str, arguments: &Value) -> Value {
    client.ask("tools/call", json!({"name": name, "arguments": arguments}))
}

/// The names in a search result, best first.
pub(crate) fn found(client: &mut impl ClientSession, arguments: &Value) -> Vec<String> {
    let (text, is_error) = said(&call(client, "search_tools", arguments));
    assert!(!is_error, "{text}");
    let lines = text.lines().skip(2).filter(|line| !line.starts_with(' '));
    lines.map(|line| line.split('(').next().unwrap_or_default().to_owned()).collect()
}

/// Searches until this is the first result: a newly discovered tool is not in the index immediately.
fn wait_until_found_first(client: &mut impl ClientSession, query: &str, tool: &str) {
    wait_until(&format!("`{query}` finds `{tool}`"), || {
        found(client, &json!({"query": query})).first().is_some_and(|first| first == tool).then_some(())
    });
}

#[test]
fn the_small_surface_is_three_tools_that_describe_the_hidden_ones() {
    let (files, mail) = (files(), mail());
    let serve = serving(&[("files", &files), ("mail", &mail)]);
    let mut legacy = serve.session("/mcp?surface=search");
    assert_eq!(legacy.ids("tools/list"), OWN);
    let mut modern = serve.modern("/mcp?surface=search");
    assert_eq!(modern.ids("tools/list"), OWN);
    let search = &legacy.list("tools/list", "tools")[0];
    let description = search["description"].as_str().unwrap();
    assert!(
        description.contains("4 tools of 2 servers") && description.contains("files (2), mail (2)"),
        "{description}"
    );
    assert_eq!(serve.session("/mcp").ids("tools/list").len(), 4, "others see everything");
}

#[test]
fn a_tool_is_found_by_purpose_and_called_by_legacy_and_modern_clients() {
    let (files, mail) = (files(), mail());
    let serve = serving(&[("files", &files), ("mail", &mail)]);
    let mut legacy = serve.session("/mcp?surface=search");
    let mut modern = serve.modern("/mcp?surface=search");
    wait_until_found_first(&mut legacy, "write an e-mail", "mail.send_message");
    wait_until_found_first(&mut modern, "show me what is in a document", "files.read_file");
    assert_eq!(found(&mut legacy, &json!({"query": "file", "server": "files", "limit": 1})).len(), 1);
    assert!(
        found(&mut legacy, &json!({"query": "file", "server": "mail"})).iter().all(|name| name.starts_with("mail."))
    );

    let (text, _) = said(&call(&mut legacy, "search_tools", &json!({"query": "read"})));
    assert!(text.contains("files.read_file(path: string, n?: integer)\n    Read the contents of a file"), "{text}");
    let (definition, _) = said(&call(&mut modern, "describe_tool", &json!({"name": "files.read_file"})));
    assert_eq!(definition, tool("files.read_file", "Read the contents of a file from disk"));

    for name in ["files.read_file", "mail.send_message"] {
        let arguments = json!({"name": name, "arguments": {"path": "a"}});
        assert_eq!(call(&mut legacy, "call_tool", &arguments)["result"]["structuredContent"]["path"], "a");
        assert_eq!(call(&mut modern, "call_tool", &arguments)["result"]["structuredContent"]["path"], "a");
    }
    assert_eq!(call(&mut legacy, "files.read_file", &json!({"path": "b"}))["result"]["structuredContent"]["path"], "b");
}

#[test]
fn arguments_and_result_of_a_call_are_the_same_bytes_as_without_the_detour() {
    let files = files();
    let serve = serving(&[("files", &files)]);
    let mut client = serve.session("/mcp?surface=search");
    let arguments = r#"{ "path" : "\u00e9 ü", "n":1.0,"x":[1E+2, {}],"y":12345678901234567890 }"#;
    let straight = format!(r#"{{"name":"files.read_file","arguments":{arguments},"_meta":{{"k":1.0}}}}"#);
    let detour = format!(
        r#"{{"name":"call_tool","arguments":{{"arguments":{arguments}, "name":"files.read\u005ffile"}},"_meta":{{"k":1.0}}}}"#
    );
    let lines = [straight, detour].map(|params| {
        let id = client.fresh_id();
        client.send_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#));
        at(&client.line_to(&id.to_string()), &["result"]).to_owned()
    });
    assert_eq!(lines[0], lines[1]);
    let received = files.lines_of("tools/call");
    let is_untouched = |line: &Vec<u8>| raw::at(line, &["params", "arguments"]) == Some(arguments);
    assert!(received.len() == 2 && received.iter().all(is_untouched), "{received:?}");
    assert!(received.iter().all(|line| raw::at(line, &["params", "_meta", "k"]) == Some("1.0")));
}

#[test]
fn what_makes_no_sense_is_reported_to_the_model_so_that_it_can_do_better() {
    let files = files();
    let serve = serving(&[("files", &files)]);
    let mut client = serve.session("/mcp?surface=search");
    wait_until_found_first(&mut client, "delete", "files.delete_file");
    for (name, arguments, words) in [
        ("call_tool", json!({"name": "files.delete"}), "Did you mean `files.delete_file`"),
        ("call_tool", json!({"name": "call_tool"}), "There is no tool `call_tool`"),
        ("call_tool", json!({}), "needs `name`"),
        ("call_tool", json!({"name": "files.read_file", "arguments": [1]}), "must be an object"),
        ("describe_tool", json!({"name": "nope"}), "There is no tool `nope`"),
        ("describe_tool", json!({}), "needs `name`"),
        ("search_tools", json!({"query": " "}), "needs `query`"),
        ("search_tools", json!({"query": "x", "server": "nope"}), "no server `nope`"),
    ] {
        let (text, is_error) = said(&call(&mut client, name, &arguments));
        assert!(is_error && text.contains(words), "{name}: {text}");
    }
    assert_eq!(files.count("tools/call"), 0);
    let written = json!({"name": "files.read_file", "arguments": r#"{"path":"as a text"}"#});
    assert_eq!(call(&mut client, "call_tool", &written)["result"]["structuredContent"]["path"], "as a text");
}

#[test]
fn clients_with_the_full_surface_do_not_see_the_search_tools() {
    let files = files();
    let serve = serving(&[("files", &files)]);
    let answer = call(&mut serve.session("/mcp"), "search_tools", &json!({"query": "read"}));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[test]
fn one_server_alone_can_be_searched_under_its_own_names() {
    let (files, mail) = (files(), mail());
    let serve = serving(&[("files", &files), ("mail", &mail)]);
    let mut client = serve.session("/mcp/files?surface=search");
    assert_eq!(client.ids("tools/list"), OWN);
    wait_until_found_first(&mut client, "look at a file", "read_file");
    assert!(found(&mut client, &json!({"query": "send an email"})).iter().all(|name| !name.contains("send")));
    let answer = call(&mut client, "call_tool", &json!({"name": "read_file", "arguments": {"path": "p"}}));
    assert_eq!(answer["result"]["structuredContent"]["path"], "p");
}

#[test]
fn what_is_listed_is_what_is_called_whatever_a_server_alone_calls_its_tools() {
    let spec = Spec::legacy().raw_tool(&tool("call_tool", "Ring somebody up")).raw_tool(&tool("other", "Does nothing"));
    let phone = Puppet::new(spec.echoes());
    let mail = mail();
    let serve = serving(&[("phone", &phone), ("mail", &mail)]);
    let mut client = serve.session("/mcp/phone?surface=search");
    let description = client.list("tools/list", "tools")[0]["description"].as_str().unwrap().to_owned();
    assert!(description.contains("2 tools of 1 server can be used here"), "{description}");
    assert!(!description.contains("mail"), "only this server is told of: {description}");
    let other = call(&mut client, "call_tool", &json!({"name": "other", "arguments": {"path": "p"}}));
    assert_eq!(other["result"]["structuredContent"], json!({"path": "p"}), "{other}");
    let theirs = call(&mut client, "call_tool", &json!({"name": "call_tool", "arguments": {"path": "q"}}));
    assert_eq!(theirs["result"]["structuredContent"], json!({"path": "q"}), "{theirs}");
    let full = call(&mut serve.session("/mcp/phone"), "call_tool", &json!({"name": "other"}));
    assert_eq!(full["result"]["structuredContent"], json!({"name": "other"}), "{full}");
}

#[test]
fn a_huge_definition_and_what_hardly_fits_do_not_fill_a_context() {
    let huge = tool("huge", &format!("Read a file {}", "and more ".repeat(40_000)));
    let puppet = Puppet::new(Spec::legacy().raw_tool(&huge).raw_tool(&tool("send", "Send an email to somebody")));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.session("/mcp?surface=search");
    let (text, is_error) = said(&call(&mut client, "describe_tool", &json!({"name": "s.huge"})));
    assert!(!is_error && text.len() < 33_000 && text.contains("cut here"), "{} bytes", text.len());
    wait_until_found_first(&mut client, "send an email", "s.send");
    wait_until("what does not fit is left out", || {
        (found(&mut client, &json!({"query": "send an email to somebody", "limit": "5"})) == ["s.send"]).then_some(())
    });
    let (text, _) = said(&call(&mut client, "search_tools", &json!({"query": "xylophone zzzqqq"})));
    assert!(text.contains("none of which fits well") || text.starts_with("None of the"), "{text}");
}

#[test]
fn auto_is_full_until_it_is_more_than_the_client_copes_with() {
    let many = |count: usize| {
        Puppet::new((0..count).fold(Spec::legacy(), |spec, number| spec.tool(&format!("tool_{number}"))))
    };
    let (few, lots) = (many(50), many(101));
    for (puppet, client, is_small) in [
        (&few, "cursor-vscode", true),
        (&few, "some agent", false),
        (&lots, "some agent", true),
        (&lots, "Visual Studio Code", false),
    ] {
        let serve = Serve::start_as(&config(&[("s", puppet)]), |launch| launch.args(["--surface", "auto"]));
        let hello = Hello { name: client.to_owned(), ..Hello::default() };
        let mut session = HttpSession::introduce(serve.address(), "/mcp", &hello);
        let listed = session.ids("tools/list");
        assert_eq!(listed.first().is_some_and(|first| first == OWN[0]), is_small, "{client}: {} tools", listed.len());
        assert_eq!(serve.session("/mcp?surface=full").ids("tools/list").first().map(String::as_str), Some("s.tool_0"));
    }
}

#[test]
fn what_is_pinned_is_listed_beside_our_tools() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let pinned = json!({"pinned_tools": ["one.echo", "one.nowhere", "one.echo"]});
    expect(200, &rest.patch("/settings", &pinned));
    let mut client = rest.serve.session("/mcp?surface=search");
    assert_eq!(client.ids("tools/list"), [OWN[0], OWN[1], OWN[2], "one.echo"]);
    client.listen();
    expect(200, &rest.patch("/settings", &json!({"pinned_tools": []})));
    client.notice("notifications/tools/list_changed");
    assert_eq!(client.ids("tools/list"), OWN);
    let problems = expect_problems(&rest.patch("/settings", &json!({"pinned_tools": "one.echo"})));
    assert_eq!(problems[0].0, "body.pinned_tools");
}

#[test]
fn what_was_found_is_on_the_list_from_then_on_where_that_is_wanted() {
    let (files, mail) = (files(), mail());
    let serve = serving(&[("files", &files), ("mail", &mail)]);
    let mut client = serve.session("/mcp?surface=grow");
    assert_eq!(client.ids("tools/list"), OWN);
    wait_until_found_first(&mut client, "write an e-mail", "mail.send_message");
    found(&mut client, &json!({"query": "read a file", "limit": 1}));
    let listed = client.ids("tools/list");
    assert_eq!(listed[..4], [OWN[0], OWN[1], OWN[2], "files.read_file"], "{listed:?}");
    assert!(listed.contains(&"mail.send_message".to_owned()), "{listed:?}");
    let answer = call(&mut client, "files.read_file", &json!({"path": "b"}));
    assert_eq!(answer["result"]["structuredContent"]["path"], "b");
    // Other clients have their own list.
    assert_eq!(serve.session("/mcp?surface=grow").ids("tools/list"), OWN);
    let mut still = serve.session("/mcp?surface=search");
    found(&mut still, &json!({"query": "read a file"}));
    assert_eq!(still.ids("tools/list"), OWN);
}

#[test]
fn an_unknown_surface_is_refused() {
    let serve = Serve::start(&Config::new());
    let refused = serve.fetch(&HttpRequest::post("/mcp?surface=tiny", "{}"));
    assert_eq!(refused.status, 400);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("use `full`, `search`, `grow` or `auto`"), "{message}");
}

fn search(rest: &Rest, body: &Value) -> Value {
    expect(200, &rest.post("/search", body))
}

#[test]
fn a_server_is_searched_while_it_can_be_called() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("two", &["--tools", "1"]);
    let echo = json!({"query": "echo", "limit": 50});
    let has = |server: &str, is_there: bool| {
        wait_until(&format!("`{server}` is searched: {is_there}"), || {
            let found = search(&rest, &echo);
            (names(&found).iter().any(|name| name.starts_with(&format!("{server}."))) == is_there).then_some(found)
        })
    };
    has("one", true);
    let all = has("two", true);
    let best = &all[0];
    assert_eq!(best["original_name"], "echo", "{best}");
    assert_eq!(best["why"]["matched_words"], json!(["echo"]));
    assert!(best["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{best}");
    let servers: Vec<&Value> = all.as_array().unwrap().iter().map(|tool| &tool["source_server"]["name"]).collect();
    assert!(servers.contains(&&json!("one")) && servers.contains(&&json!("two")));

    rest.order("/servers/two/disconnect");
    has("two", false);
    rest.order("/servers/two/connect");
    has("two", true);
    expect(200, &rest.patch("/servers/two", &json!({"name": "other"})));
    has("two", false);
    has("other", true);
    rest.delete("/servers/other");
    has("other", false);
    has("one", true);
}

#[test]
fn a_search_over_rest_has_filters_and_metadata() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("two", &["--tools", "1"]);
    let whole = wait_until("all vectors are there", || {
        let ask = HttpRequest::post(
            "/api/v1/search",
            json!({"query": "hand my arguments back to me", "include_schemas": true}).to_string(),
        );
        let whole = expect(200, &rest.serve.fetch(&ask));
        let metadata = &whole["metadata"];
        (metadata["tools_without_vectors"] == 0 && metadata["servers_searched"] == 2).then_some(whole)
    });
    assert_eq!(
        (&whole["query"], &whole["metadata"]["by_meaning"]),
        (&json!("hand my arguments back to me"), &json!(true))
    );
    assert_eq!(whole["tools"][0]["original_name"], "echo", "{whole}");
    assert!(whole["tools"][0]["input_schema"].is_object(), "{whole}");

    let of_two = search(&rest, &json!({"query": "echo", "server_filter": ["two"], "limit": 50}));
    assert!(!names(&of_two).is_empty() && names(&of_two).iter().all(|name| name.starts_with("two.")));
    assert_eq!(names(&search(&rest, &json!({"query": "echo", "limit": 1}))).len(), 1);
    assert_eq!(search(&rest, &json!({"query": "echo it", "threshold": 1})), json!([]));
    expect_error(404, "SERVER_NOT_FOUND", &rest.post("/search", &json!({"query": "x", "server_filter": ["nope"]})));
    assert_eq!(expect_problems(&rest.post("/search", &json!({"query": " ", "limit": 0}))).len(), 2);
}

#[test]
fn a_request_in_another_language_is_told_that_the_model_reads_english() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let note = |query: &str| {
        let ask = HttpRequest::post("/api/v1/search", json!({"query": query}).to_string());
        expect(200, &rest.serve.fetch(&ask))["metadata"]["note"].clone()
    };
    assert!(note("отправь письмо Анне").as_str().is_some_and(|note| note.contains("reads English")));
    assert_eq!(note("send a letter to Anna"), Value::Null);
    let mut client = rest.serve.session("/mcp?surface=search");
    let mut text = |query: &str| said(&call(&mut client, "search_tools", &json!({"query": query}))).0;
    assert!(text("отправь письмо Анне").contains("The built-in model reads English"));
    assert!(!text("send a letter to Anna").contains("reads English"));
}
