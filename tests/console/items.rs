//! Clients, prompts and resources, and times in the service's time zone.

use std::thread;

use serde_json::json;
use testkit::client_session::ClientSession;
use testkit::puppet::{Puppet, Spec};

use super::Visitor;
use crate::rest::{Rest, expect};

#[test]
fn connected_clients_are_on_a_page_of_their_own_and_executions_name_them() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    assert!(visitor.page("/clients").contains("No client is connected"));
    let mut session = rest.serve.session("/mcp");
    session.ask("tools/call", json!({"name": "fake.echo", "arguments": {"text": "hi"}}));
    let page = visitor.page("/clients");
    assert!(
        page.contains("<th scope=\"row\">mcp-inspector</th>") && page.contains("data-name=\"Calls\">1</td>"),
        "{page}"
    );
    let executions = expect(200, &rest.get("/executions"));
    assert_eq!(executions[0]["client"], "mcp-inspector");
    assert!(visitor.page("/executions").contains("mcp-inspector"));
    let id = executions[0]["id"].as_str().unwrap();
    assert!(visitor.page(&format!("/executions/{id}")).contains("<dt>Client</dt><dd>mcp-inspector</dd>"));
}

#[test]
fn prompts_are_filled_in_and_resources_are_read() {
    let prompt = r#"{"name":"review","description":"Review it","arguments":[{"name":"id","required":true}]}"#;
    let spec = Spec::legacy().raw_prompt(prompt).resource("notes://1").template("notes://{id}");
    let puppet = Puppet::over_http(spec);
    let rest = Rest::start();
    let config = json!({"url": format!("http://{}/mcp", puppet.address())});
    expect(
        201,
        &rest.post("/servers", &json!({"name": "desk", "transport_type": "http", "connection_config": config})),
    );
    rest.wait_for_status("desk", "connected");
    let visitor = Visitor::new(&rest);
    assert!(visitor.page("/prompts").contains("href=\"/prompts/get?name=desk.review\""));
    let form = visitor.page("/prompts/get?name=desk.review");
    assert!(form.contains("name=\"argument.id\"") && form.contains("required"), "{form}");
    let listed = visitor.page("/resources");
    assert!(listed.contains("/resources/read?uri=notes%3A%2F%2F1") && listed.contains("notes://{id}"), "{listed}");
    // The test responds for the server while pages are requested.
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let asked = puppet.expect("prompts/get");
            assert_eq!(asked.value()["params"], json!({"name": "review", "arguments": {"id": "12"}}));
            asked.answer(r#"{"messages":[{"role":"user","content":{"type":"text","text":"Look at <12>"}}]}"#);
            let asked = puppet.expect("resources/read");
            asked.answer(r#"{"contents":[{"uri":"notes://1","text":"buy\n<milk>"}]}"#);
            puppet.expect("resources/read").fail(r#"{"code":-32002,"message":"Resource not found"}"#);
        });
        let page = visitor.page("/prompts/get?name=desk.review&run=1&argument.id=12");
        assert!(page.contains("<h3>user</h3>") && page.contains("Look at &lt;12&gt;"), "{page}");
        let page = visitor.page("/resources/read?uri=notes%3A%2F%2F1&server=desk");
        assert!(page.contains("buy\n&lt;milk&gt;"), "{page}");
        let page = visitor.page("/resources/read?uri=notes%3A%2F%2F2&server=desk");
        assert!(page.contains("there is no resource `notes://2`"), "{page}");
        answering.join().unwrap();
    });
    assert_eq!(visitor.get("/prompts/get?name=desk.nothing").status, 404);
}

#[test]
fn times_are_on_the_service_s_own_clock_with_utc_for_scripts() {
    let rest = Rest::start_as(|launch| launch.env("TZ", "IST-5:30"));
    rest.register("fake", &[]);
    rest.call("fake.echo", &json!({"text": "hi"}));
    let visitor = Visitor::new(&rest);
    let call = &expect(200, &rest.get("/executions"))[0];
    let (id, utc) = (call["id"].as_str().unwrap(), call["submitted_at"].as_str().unwrap());
    let page = visitor.page(&format!("/executions/{id}"));
    let time = page.split(&format!("<time datetime=\"{utc}\"")).nth(1).unwrap_or_else(|| panic!("{utc} in {page}"));
    let (title, said) = time.split_once('>').unwrap();
    assert!(title.contains("+05:30"), "{title}");
    let minutes = |text: &str| text[11..13].parse::<u32>().unwrap() * 60 + text[14..16].parse::<u32>().unwrap();
    assert_eq!(minutes(said), (minutes(utc) + 330) % (24 * 60), "{said} for {utc}");
    // Filters use the same time zone.
    let local = |ahead: &str| format!("/executions?from={}", ahead.replace(':', "%3A"));
    let hour = format!("{}T{}", &said[..10], &said[11..16]);
    assert!(visitor.page(&local(&hour)).contains("fake"), "{hour}");
    assert!(visitor.page(&local("2100-01-01T00:00")).contains("No matching calls"));
}
