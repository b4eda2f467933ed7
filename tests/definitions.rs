//! Definitions that are too deep, too large or have too many references: the list stays usable, and the user learns
//! which server sent them.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{ClientSession, Config, Driver, Launch, Puppet, Serve, Spec};

use crate::relay::config;
use crate::rest::{PREFIX, expect};
use crate::service_cli::Home;

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// A schema with this nesting of objects.
pub(crate) fn nested(objects: usize) -> String {
    r#"{"type":"object","properties":{"a":"#.repeat(objects) + "{}" + &"}}".repeat(objects)
}

/// A schema with this many references.
pub(crate) fn referring(references: usize) -> String {
    let properties: Vec<_> = (0..references).map(|n| format!(r##""p{n}":{{"$ref":"#/$defs/a"}}"##)).collect();
    format!(r#"{{"type":"object","$defs":{{"a":{{}}}},"properties":{{{}}}}}"#, properties.join(","))
}

/// A schema that repeats a part this often.
pub(crate) fn repetitive(members: usize) -> String {
    format!(r#"{{"type":"object",{}}}"#, vec![r#""nullable":true"#; members].join(","))
}

pub(crate) fn with_input(name: &str, schema: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#)
}

pub(crate) fn with_output(name: &str, schema: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#)
}

/// A server with such tools, and a well-behaved one.
fn spec(tools: &[String]) -> Spec {
    tools.iter().fold(Spec::legacy().tool("good"), |spec, tool| spec.raw_tool(tool)).echoes()
}

/// The command line of a program with a config.
type Start = fn(&Config) -> Launch;

/// Both programs over stdio; their separators differ.
const PROGRAMS: [(Start, &str); 2] = [(Launch::aggregator, ":"), (Launch::service, ".")];

fn started(launch: Start, servers: &[(&str, &Puppet)]) -> Driver {
    let mut client = launch(&config(servers)).start();
    client.initialize();
    client
}

/// The maximum nesting of objects and arrays.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn a_deep_schema_breaks_no_clients_list() {
    for objects in [70, 110, 1000, 100_000] {
        let deep = nested(objects);
        let hostile = Puppet::new(spec(&[with_input("in", &deep), with_output("out", &deep)]));
        let honest = Puppet::new(Spec::legacy().tool("t"));
        for (launch, separator) in PROGRAMS {
            let mut client = started(launch, &[("hostile", &hostile), ("honest", &honest)]);
            let tools = client.list("tools/list", "tools");
            let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
            let expected =
                ["hostile.good", "hostile.in", "hostile.out", "honest.t"].map(|it| it.replace('.', separator));
            assert_eq!(names, expected, "{objects} levels");
            assert!(tools.iter().all(|tool| depth(tool) <= 56));
            assert_eq!((&tools[1]["inputSchema"], tools[2].get("outputSchema")), (&json!({"type": "object"}), None));
            client.wait_for_stderr("repaired 1 tool: `inputSchema` is nested deeper than 56 levels (in)");
            client.wait_for_stderr("repaired 1 tool: `outputSchema` is nested deeper than 56 levels (out)");
            client.wait_for_stderr("hostile");
        }
    }
}

#[test]
fn schemas_of_many_parts_are_read_in_time_and_so_are_their_changes() {
    let tools = [
        with_output("many", &referring(40_000)),
        with_output("referring", &referring(5000)),
        with_output("repetitive", &repetitive(40_000)),
        with_output("allowed", &referring(2000)),
        format!(r#"{{"name":"titles",{},"inputSchema":{{"type":"object"}}}}"#, vec![r#""title":5"#; 15_000].join(",")),
    ];
    for (launch, separator) in PROGRAMS {
        let hostile = Puppet::new(spec(&[]));
        let honest = Puppet::new(Spec::legacy().tool("t").echoes());
        let mut client = started(launch, &[("hostile", &hostile), ("honest", &honest)]);
        assert_eq!(client.ids("tools/list").len(), 2);
        client.take_all();
        hostile.change(|_| spec(&tools));
        hostile.notify(LIST_CHANGED, &json!({}));
        let call = client.start_call(&format!("honest{separator}t"), json!({"text": "meanwhile"}));
        client.response(call);
        client.notice(LIST_CHANGED);
        let listed = client.list("tools/list", "tools");
        let names: Vec<_> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let expected = ["good", "many", "referring", "repetitive", "allowed", "titles"];
        let expected: Vec<_> = expected.iter().map(|tool| format!("hostile{separator}{tool}")).collect();
        assert_eq!(names[..6], expected);
        let has_schema: Vec<_> = listed.iter().map(|tool| tool.get("outputSchema").is_some()).collect();
        assert_eq!(has_schema[..6], [false, false, false, false, true, false], "what is within the limits stays");
        client.wait_for_stderr("`outputSchema` has more than 2000 references (referring)");
        client.wait_for_stderr("`outputSchema` has more than 20000 members and elements (many, repetitive)");
    }
}

#[test]
fn neighbours_are_answered_while_a_huge_list_is_read_again_and_again() {
    let huge = with_output("many", &referring(20_000));
    for (launch, separator) in PROGRAMS {
        let hostile = Puppet::new(spec(&[]));
        let honest = Puppet::new(Spec::legacy().tool("t").echoes());
        let mut client = started(launch, &[("hostile", &hostile), ("honest", &honest)]);
        assert_eq!(client.ids("tools/list").len(), 2);
        client.take_all();
        let call_neighbour = |client: &mut Driver| {
            for number in 0..20 {
                let call = client.start_call(&format!("honest{separator}t"), json!({"text": format!("call {number}")}));
                client.response(call);
            }
        };
        hostile.change(|spec| spec.leaves("tools/list"));
        for _ in 0..5 {
            hostile.notify(LIST_CHANGED, &json!({}));
            let asked = hostile.expect("tools/list");
            let id = asked.id().expect("it is a request");
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{huge}]}}}}"#);
            // The list is not complete before they are answered, so none of them can wait for it.
            let (first, rest) = answer.split_at(answer.len() - 100);
            hostile.say_raw(first);
            call_neighbour(&mut client);
            assert_eq!(client.ids("tools/list").len(), 2, "the list of before holds");
            hostile.say_raw(&format!("{rest}\n"));
            call_neighbour(&mut client);
            client.notice(LIST_CHANGED);
            assert!(client.ids("tools/list").contains(&format!("hostile{separator}many")));
            // Back to the small list, so that the next change is a change.
            hostile.notify(LIST_CHANGED, &json!({}));
            hostile.expect("tools/list").answer(r#"{"tools":[{"name":"good","inputSchema":{"type":"object"}}]}"#);
            client.notice(LIST_CHANGED);
        }
    }
}

#[test]
fn everything_that_reads_definitions_copes_with_those_beyond_the_limits() {
    let home = Home::new();
    let tools = [
        with_input("deep", &nested(70)),
        with_input("deepest", &nested(100_000)),
        with_input("large", &repetitive(40_000)),
        with_input("number", r#"{"type":"object","properties":{"n":{"type":"number","maximum":1e400}}}"#),
        with_output("out", &nested(110)),
    ];
    let hostile = Puppet::new(spec(&tools));
    let file = home.write("mcp.json", &config(&[("hostile", &hostile)]).text());
    let serve = home.serve_as(|launch| launch.args(["--config", &file]));
    assert_eq!(serve.session("/mcp").ids("tools/list").len(), 6);
    let get = |serve: &Serve, path: &str| serve.fetch(&HttpRequest::new("GET", &format!("{PREFIX}{path}")));
    testkit::wait_until("the registry has its tools", || {
        let tools = expect(200, &get(&serve, "/tools"));
        (tools.as_array().map(Vec::len) == Some(6)).then_some(())
    });
    for format in ["", "?format=openai", "?format=openai-responses", "?format=anthropic", "?format=gemini"] {
        let answer = expect(200, &get(&serve, &format!("/assistant/tools{format}")));
        assert_eq!(answer["tools"].as_array().map(Vec::len), Some(6), "{format}");
    }
    let document = json!({"text": "# A\n\n<!-- mcp: hostile -->\n", "line": 3}).to_string();
    let context = HttpRequest::new("POST", &format!("{PREFIX}/documents/context"))
        .header("Content-Type", "application/json")
        .body(&document);
    assert_eq!(expect(200, &serve.fetch(&context))["tools"].as_array().map(Vec::len), Some(6));
    for page in ["/tools", "/tools/hostile/deep", "/tools/hostile/number", "/playground?tool=hostile.large"] {
        let shown = serve.fetch(&HttpRequest::new("GET", page));
        assert_eq!(shown.status, 200, "{page}");
    }
    for listed in [home.ok(&["tools"]), home.ok(&["tools", "--config", &file])] {
        assert!(tools.len() < listed.lines().count() && listed.contains("deepest"), "{listed}");
    }
    let doctor = home.run(&["doctor"]);
    assert!(!format!("{}{}", doctor.stdout, doctor.stderr).contains("no JSON"), "{} {}", doctor.stdout, doctor.stderr);
    let shown = home.ok(&["show", "hostile"]);
    assert!(shown.contains("`inputSchema` is nested deeper than 56 levels (deep, deepest)"), "{shown}");
}
