//! The actions on the pages.

use serde_json::json;
use testkit::{Config, program};

use super::Visitor;
use crate::rest::{Rest, expect};

#[test]
fn a_server_is_tried_added_changed_and_removed() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let command = program("fake-server").display().to_string();
    let new = [("name", "fake"), ("kind", "stdio"), ("command", command.as_str())];
    let with = |action| [("action", action)].into_iter().chain(new).collect::<Vec<_>>();
    let tried = visitor.submit("/add", &with("test"));
    assert!(tried.status == 200 && tried.body.contains("The test succeeded"), "{tried:?}");
    assert!(
        tried.body.contains("\necho: Gives the arguments back\n"),
        "its tools are shown, and what each does: {tried:?}"
    );
    assert_eq!(rest.get("/servers/fake").status, 404, "nothing is kept of a test");
    let wrong =
        visitor.submit("/add", &[("action", "save"), ("name", "fake"), ("kind", "stdio"), ("command", "/no/such")]);
    assert!(
        wrong.status == 422 && wrong.body.contains("value=\"/no/such\""),
        "what was written is still there: {wrong:?}"
    );
    let added = visitor.submit("/add", &with("save"));
    assert!(added.body.contains("Added fake."), "{added:?}");

    let broken = visitor
        .submit("/servers/fake/edit", &[("action", "save"), ("transport", "stdio"), ("config", "{\"command\":")]);
    assert!(broken.status == 422 && broken.body.contains("invalid JSON"), "{broken:?}");
    let failing = visitor.submit(
        "/servers/fake/edit",
        &[("action", "save"), ("transport", "stdio"), ("config", "{\"command\":\"/no/such\"}")],
    );
    assert!(failing.status == 422 && failing.body.contains("The test failed"), "{failing:?}");
    let config = json!({"command": command, "env": {"API_TOKEN": "hunter2-hunter2"}}).to_string();
    let saved = visitor.submit(
        "/servers/fake/edit",
        &[("action", "save"), ("transport", "stdio"), ("description", "mine"), ("config", &config)],
    );
    assert!(
        saved.body.contains("Saved.") && saved.body.contains("mine") && !saved.body.contains("hunter2"),
        "{saved:?}"
    );

    let config = json!({"command": command, "evn": {"A": "b"}}).to_string();
    let odd = [("action", "test"), ("transport", "stdio"), ("config", config.as_str())];
    let tried = visitor.submit("/servers/fake/edit", &odd);
    assert!(tried.body.contains("`evn` is unknown and is ignored."), "{tried:?}");

    for (action, expected) in [
        ("disconnect", "disconnected"),
        ("connect", "Connected."),
        ("test", "The test succeeded"),
        ("disable", "Disabled until"),
        ("enable", "Enabled. The server"),
    ] {
        let done = visitor.submit(&format!("/servers/fake/{action}"), &[]);
        assert!(done.body.contains(expected), "{action}: {done:?}");
    }
    assert!(visitor.submit("/servers/fake/remove", &[("sure", "yes")]).body.contains("Removed fake."));
    assert_eq!(visitor.get("/servers/fake").status, 404);
}

#[test]
fn the_config_of_a_client_is_pasted_tried_and_taken_over_and_nothing_typed_is_lost() {
    let rest = Rest::start();
    rest.register("here", &[]);
    let visitor = Visitor::new(&rest);
    let fake = program("fake-server");
    let entries = json!({"One": {"command": fake}, "two": {"command": "/no/such"}, "here": {"command": fake}, "junk": {"foo": 1}});
    let config = json!({ "mcpServers": entries }).to_string();
    let shown = visitor.submit("/add", &[("action", "paste"), ("pasted", &config)]);
    assert!(shown.body.contains("<strong>one</strong>") && shown.body.contains("<strong>two</strong>"), "{shown:?}");
    assert_eq!(shown.body.matches(" checked").count(), 2, "what was pasted is ticked, if it can be added: {shown:?}");
    assert!(shown.body.contains("A server with this name already exists."), "{shown:?}");

    let with = |action: &'static str, picks: &[&'static str]| {
        let fixed = [("action", action), ("from", "paste"), ("pasted", config.as_str())];
        visitor.submit("/add", &fixed.into_iter().chain(picks.iter().map(|pick| ("pick", *pick))).collect::<Vec<_>>())
    };
    let nothing = with("take", &[]);
    assert!(nothing.status == 422 && nothing.body.contains("Select at least one server."), "{nothing:?}");
    assert!(nothing.body.contains("<strong>one</strong>") && nothing.body.contains("/no/such"), "{nothing:?}");
    let tried = with("try", &["0", "3"]);
    assert!(tried.body.contains("The test succeeded") && tried.body.contains("echo"), "its tools are shown: {tried:?}");
    assert_eq!(rest.get("/servers/one").status, 404, "and nothing is kept yet");
    let taken = with("take", &["0", "1", "2", "3"]);
    assert!(taken.body.contains("added, with") && taken.body.contains("not added: The test failed"), "{taken:?}");
    assert_eq!(rest.get("/servers/one").status, 200);
    assert_eq!(visitor.submit("/add", &[("action", "paste"), ("pasted", "{{")]).status, 422);
    let entry = format!("\"github\": {},", json!({"command": fake}));
    let single = visitor.submit("/add", &[("action", "paste"), ("pasted", &entry)]);
    assert!(single.body.contains("<strong>github</strong>"), "one entry as READMEs print it: {single:?}");
}

#[test]
fn form_problems_are_displayed_at_their_fields_and_input_stays() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    let typed = [("timeout_ms", "4321"), ("retry_backoff_ms", "1000, x"), ("pinned_tools", "fake.echo")];
    let refused = visitor.submit("/settings", &typed);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body.contains("Delays between attempts: `x` is not a whole number"), "{refused:?}");
    assert!(refused.body.contains("value=\"1000, x\" aria-invalid=\"true\""), "{refused:?}");
    assert!(refused.body.contains("value=\"4321\"") && refused.body.contains("fake.echo"), "{refused:?}");
    let refused = visitor.submit("/settings", &[("timeout_ms", "0"), ("session_limit", "77")]);
    assert!(
        refused.body.contains("Timeout: 0; it must be from 1 to") && refused.body.contains("value=\"77\""),
        "{refused:?}"
    );

    let new = |name, kind, more| visitor.submit("/add", &[("action", "save"), ("name", name), ("kind", kind), more]);
    let taken = new("fake", "stdio", ("command", "/no/such"));
    assert!(taken.body.contains("Name: a server with this name already exists."), "before any test: {taken:?}");
    let empty = new("x", "http", ("url", ""));
    assert!(
        empty.body.contains("URL: enter the URL of the server") && empty.body.contains("aria-invalid"),
        "{empty:?}"
    );
    let named = new("9x", "stdio", ("command", "/no/such"));
    assert!(named.body.contains("value=\"9x\"") && named.body.contains("Name: "), "{named:?}");
    assert_eq!(named.body.matches("aria-invalid").count(), 1, "{named:?}");
}

#[test]
fn overwriting_somebody_elses_edit_is_reported() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let (one, other) = (Visitor::new(&rest), Visitor::new(&rest));
    let mark = |visitor: &Visitor<'_>| {
        let page = visitor.page("/servers/fake");
        let from = page.split("name=\"was\" value=\"").nth(1).expect("the form says what it was made from");
        from.split('"').next().unwrap_or_default().to_owned()
    };
    let (marked, also_marked) = (mark(&one), mark(&other));
    let config = json!({"command": program("fake-server")}).to_string();
    let save = |visitor: &Visitor<'_>, was: &str, description: &str| {
        let fixed = [("action", "save-untested"), ("transport", "stdio"), ("config", config.as_str())];
        let more = [("was", was), ("description", description)];
        visitor.submit("/servers/fake/edit", &fixed.into_iter().chain(more).collect::<Vec<_>>())
    };
    assert!(save(&one, &marked, "first").body.contains("Saved."));
    let late = save(&other, &also_marked, "second");
    assert!(late.status == 422 && late.body.contains("The server was changed since"), "{late:?}");
    assert!(late.body.contains("value=\"second\"") && late.body.contains("first"), "both are shown: {late:?}");
    assert!(save(&other, &mark(&other), "second").body.contains("Saved."));
}

#[test]
fn a_tool_that_is_disabled_is_neither_listed_nor_called_not_even_after_a_restart() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let before = rest.get("/state").json()["total_tools"].as_u64().expect("a number");
    let visitor = Visitor::new(&rest);
    let off = visitor.submit("/tools", &[("action", "off"), ("tool", "fake.echo"), ("back", "/tools")]);
    assert!(off.body.contains("Disabled: 1 tool."), "{off:?}");
    let is_off = |rest: &Rest| {
        let session = rest.serve.session("/mcp");
        let listed = rest.serve.fetch(&session.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)).body;
        assert!(listed.contains("hang"), "{listed}");
        assert!(!listed.contains("fake.echo") && !listed.contains("fake:echo"), "{listed}");
        assert_eq!(rest.get("/state").json()["total_tools"], before - 1);
        assert_ne!(rest.call("fake.echo", &json!({"text": "x"})).status, 200);
    };
    is_off(&rest);
    let rest = rest.restarted(false);
    rest.wait_for_status("fake", "connected");
    is_off(&rest);
    let visitor = Visitor::new(&rest);
    visitor.submit("/tools", &[("action", "on-all"), ("server", "fake")]);
    assert_eq!(rest.call("fake.echo", &json!({"text": "x"})).status, 200);
    assert!(visitor.page("/audit").contains("tool.disable"));
}

#[test]
fn calls_are_run_looked_at_cancelled_stopped_and_exported() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    let ran = visitor.submit("/playground", &[("tool", "fake.echo"), ("arguments", "{\"text\": \"hello there\"}")]);
    assert!(ran.body.contains("hello there") && ran.body.contains("on the server"), "{ran:?}");
    assert!(
        visitor.submit("/playground", &[("tool", "fake.echo"), ("arguments", "{")]).body.contains("not valid JSON")
    );
    let (id, mut hanging) = rest.begin_to_hang("fake");
    assert!(visitor.page(&format!("/executions/{id}")).contains("executing"));
    let cancelled = visitor.submit(&format!("/executions/{id}/cancel"), &[]);
    assert!(cancelled.body.contains("hang is cancelled."), "{cancelled:?}");
    assert_eq!(hanging.answer().status, 409);
    assert!(visitor.submit("/executions/stop", &[("sure", "yes")]).body.contains("All calls are stopped."));
    assert_eq!(rest.call("fake.echo", &json!({"text": "x"})).status, 409);
    visitor.submit("/executions/reset", &[]);
    let filtered = visitor.page("/executions?status=cancelled");
    assert!(filtered.contains(">hang<") && !filtered.contains(">echo<"), "{filtered}");
    assert!(visitor.page("/executions?to=2020-01-01T10:00").contains("No matching calls"));
    assert!(visitor.page("/executions?from=2020-01-01T10:00&tool=hang").contains(">hang<"));
    for odd in ["status=over", "source=nowhere", "from=yesterday"] {
        let refused = visitor.get(&format!("/executions?{odd}"));
        assert_eq!(refused.status, 422, "{odd} is not left out silently: {}", refused.body);
        assert!(refused.body.contains("invalid filter value"), "{}", refused.body);
        assert_eq!(visitor.get(&format!("/executions/export.csv?{odd}")).status, 422, "{odd}");
    }
    assert_eq!(visitor.get("/playground?tool=fake.echo&from=nothing").status, 404, "what it was given is not known");
    let part = visitor.page("/executions?tool=ech");
    assert!(part.contains("No matching calls") && part.contains("href=\"/executions?tool=echo\""), "{part}");
    let full = visitor.get("/executions?tool=fake.echo");
    assert_eq!((full.status, full.headers["location"].as_str()), (303, "/executions?server=fake&tool=echo"));
    assert!(part.contains("<option value=\"fake\">"), "servers can be chosen: {part}");
    let table = visitor.get("/executions/export.csv");
    assert!(
        table.headers["content-disposition"].contains("executions.csv") && table.body.lines().count() >= 3,
        "{table:?}"
    );
    assert!(visitor.get("/executions/export.json?tool=echo").json().as_array().is_some_and(|calls| !calls.is_empty()));
}

#[test]
fn settings_change_and_the_registry_is_exported_and_imported() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    let saved = visitor
        .submit("/settings", &[("timeout_ms", "1234"), ("retry_backoff_ms", "10, 20"), ("store_payloads", "on")]);
    assert!(saved.body.contains("Saved.") && saved.body.contains("value=\"1234\""), "{saved:?}");
    let settings = rest.get("/settings").json();
    assert_eq!((&settings["store_payloads"], &settings["retry_backoff_ms"]), (&json!(true), &json!([10, 20])));
    assert!(visitor.submit("/settings", &[("timeout_ms", "0")]).body.contains("Timeout: 0"), "what is wrong is told");
    let pinned = visitor.submit("/settings", &[("pinned_tools", "fake.echo\nfake.ecco"), ("retry_backoff_ms", "")]);
    assert!(pinned.body.contains("Pinned, but unknown to all servers: fake.ecco"), "{pinned:?}");
    assert_ne!(rest.get("/settings").json()["retry_backoff_ms"], json!([10, 20]), "nothing is the default");
    let exported = visitor.submit("/export", &[("secrets", "masked")]);
    assert_eq!(exported.json()["servers"][0]["name"], "fake", "{exported:?}");
    let other = Rest::start();
    let taken = Visitor::new(&other).submit("/import", &[("backup", &exported.body)]);
    assert!(taken.body.contains("1 new server: fake"), "{taken:?}");
    let again = Visitor::new(&other).submit("/import", &[("backup", &exported.body)]);
    assert!(again.body.contains("0 new servers") && again.body.contains("not changed: fake"), "{again:?}");
    for (pasted, why) in
        [("[1]", "not an exported registry"), ("{", "Invalid JSON"), ("{\"mcpServers\":{}}", "Add server")]
    {
        let refused = visitor.submit("/import", &[("backup", pasted)]);
        assert!(
            refused.status == 422 && refused.body.contains(why) && !refused.body.contains("expected struct"),
            "{refused:?}"
        );
        let kept = pasted.replace('"', "&quot;") + "</textarea>";
        assert!(refused.body.contains(&kept), "what was pasted is still there: {refused:?}");
    }
    assert!(visitor.page("/audit?action=registry.export").contains("registry.export"));
}

#[test]
fn this_service_is_not_offered_to_itself() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let address = rest.serve.address();
    let entries = json!({"all": {"url": format!("http://{address}/mcp")}, "bridge": {"command": "npx", "args": ["mcp-remote", format!("http://localhost:{}/mcp", address.port())]}});
    let config = json!({ "mcpServers": entries }).to_string();
    let shown = visitor.submit("/add", &[("action", "paste"), ("pasted", &config)]);
    assert_eq!(shown.body.matches("it is this service itself").count(), 2, "{shown:?}");
    let picked = [("action", "take"), ("from", "paste"), ("pasted", &config), ("pick", "0"), ("pick", "1")];
    assert_eq!(visitor.submit("/add", &picked).status, 422, "not even if somebody insists");
    assert_eq!(rest.get("/servers").json(), json!([]));
}

#[test]
fn form_values_are_displayed_unchanged() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    let odd = "\u{645}\u{6cc}\u{200c}\u{62e} \u{1f468}\u{200d}\u{1f469} \u{202e}turned";
    let page = visitor.submit("/add", &[("action", "test"), ("name", "x"), ("description", odd), ("kind", "http")]);
    let value = odd.replace('\u{202e}', "&#8238;");
    assert!(page.body.contains(&format!("value=\"{value}\"")), "{page:?}");
    expect(200, &rest.patch("/servers/fake", &json!({ "description": odd })));
    assert!(visitor.page("/servers/fake").contains(&format!("value=\"{value}\"")));
    let stale = visitor.get("/servers/fake/edit");
    assert_eq!((stale.status, stale.headers["location"].as_str()), (303, "/servers/fake"));
}

#[test]
fn saving_settings_changes_only_edited_ones() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let now = rest.get("/settings").json();
    expect(200, &rest.patch("/settings", &json!({"session_limit": 77})));
    let old = now["session_limit"].to_string();
    let saved =
        visitor.submit("/settings", &[("was", &now.to_string()), ("session_limit", &old), ("timeout_ms", "4321")]);
    assert!(saved.body.contains("Saved."), "{saved:?}");
    let after = rest.get("/settings").json();
    assert_eq!((&after["session_limit"], &after["timeout_ms"]), (&json!(77), &json!(4321)));
}

#[test]
fn a_server_without_its_secrets_is_not_started() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let config = json!({"command": program("fake-server"), "env": {"API_TOKEN": "hunter2-hunter2"}});
    let server = json!({"name": "fake", "transport_type": "stdio", "connection_config": config});
    expect(201, &rest.post("/servers", &server));
    let exported = visitor.submit("/export", &[("secrets", "masked")]).body;
    let other = Rest::start();
    let visitor = Visitor::new(&other);
    assert!(visitor.submit("/import", &[("backup", &exported)]).body.contains("1 new server"));
    assert!(visitor.page("/servers/fake").contains("its secrets are missing"));
    assert!(visitor.page("/").contains("was imported without its secrets"), "it is told where everybody looks");
    for action in ["enable", "test", "connect"] {
        let done = visitor.submit(&format!("/servers/fake/{action}"), &[]);
        assert!(done.body.contains("its secrets are missing"), "{action}: {done:?}");
        assert!(!done.body.contains("Enabled. The server"), "{done:?}");
        assert_ne!(other.get("/servers/fake").json()["status"], "connected", "{action}");
    }
}

#[test]
fn a_tools_page_has_the_names_that_clients_see() {
    let rest = Rest::start_as(|launch| launch.args(["--separator", ":"]));
    rest.register("fake", &[]);
    let page = Visitor::new(&rest).page("/tools/fake/echo");
    for name in ["<code>fake.echo</code>", "<code>fake:echo</code>", "<code>fake__echo</code>"] {
        assert!(page.contains(name), "{name} in {page}");
    }
}

#[test]
fn the_playground_accepts_either_name_of_a_tool_and_suggests_others() {
    let rest = Rest::start();
    rest.register("fake", &["--tools", "3"]);
    let visitor = Visitor::new(&rest);
    assert!(visitor.page("/playground?tool=fake__echo").contains(r#"data-name="fake.echo""#));
    let missing = visitor.page("/playground?tool=fake.ech");
    assert!(missing.contains("has no tool with this name"), "{missing}");
    assert!(missing.contains("/playground?tool=fake.echo"), "{missing}");
    assert!(visitor.page("/playground?tool=fake").contains("/playground?tool=fake.echo"));
    assert!(visitor.page("/playground?tool=nobody.echo").contains("/playground?tool=fake.echo"), "found by its words");
    assert!(visitor.page("/playground/tools?part=ECH").contains(r#"<option value="fake.echo">"#));

    visitor.submit("/servers/fake/disable", &[]);
    rest.wait_for_status("fake", "disabled");
    assert!(visitor.page("/playground?tool=fake.ech").contains("is disabled"));
    let back = visitor.submit("/servers/fake/enable", &[("back", "/playground?tool=fake.echo")]);
    assert!(back.body.contains(r#"data-name="fake.echo""#), "who tries a tool goes on with that");
    rest.wait_for_status("fake", "connected");
    let elsewhere = visitor.submit("/servers/fake/refresh", &[("back", "//example.org")]);
    assert!(elsewhere.body.contains("Calls and events"), "nobody is sent elsewhere: {}", elsewhere.body);
}

#[test]
fn a_server_of_the_config_file_is_enabled_and_disabled_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    std::fs::write(&config, Config::new().server("given", testkit::fake()).text()).unwrap();
    let rest = Rest::start_as(|launch| launch.arg("--config").arg(&config));
    rest.wait_for_status("given", "connected");
    let visitor = Visitor::new(&rest);
    let page = visitor.page("/servers/given");
    assert!(page.contains("/servers/given/disable") && !page.contains("/servers/given/remove"), "{page}");
    let disabled = visitor.submit("/servers/given/disable", &[]);
    assert!(disabled.body.contains("Disabled until"), "{disabled:?}");
    assert_eq!(rest.wait_for_status("given", "disabled")["origin"], "config");
    assert!(visitor.page("/servers/given").contains("/servers/given/enable"));
    visitor.submit("/servers/given/enable", &[]);
    rest.wait_for_status("given", "connected");
}

#[test]
fn the_playground_lists_tools_and_finds_them_by_a_part_of_their_names() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    assert!(visitor.page("/playground").contains("No connected server has a tool"));
    rest.register("fake", &["--tools", "120"]);
    let link = |tool: &str| format!(r#"<a href="/playground?tool=fake.{tool}">fake.{tool}</a>"#);
    let links = |page: &str| page.matches(r#"<a href="/playground?tool=fake."#).count();
    let page = visitor.page("/playground");
    assert!(page.contains("Choose a tool") && page.contains("Only the first 100 are listed"), "{page}");
    assert_eq!(links(&page), 100);
    let found = visitor.page("/playground?tool=TOOL_11");
    assert!(found.contains("Tools with <code>TOOL_11</code> in their names"), "{found}");
    assert!(found.contains(&link("tool_11")) && found.contains(&link("tool_117")) && !found.contains(&link("tool_12")));
    assert!(!found.contains("There is no tool"), "{found}");
    let words = visitor.page("/playground?tool=fake+_117");
    assert_eq!((links(&words), words.contains(&link("tool_117"))), (1, true), "{words}");
    assert!(visitor.page("/playground?tool=nothing-like-it").contains("There is no tool"));
}

#[test]
fn a_client_file_that_cannot_be_read_is_listed_with_why() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".cursor")).unwrap();
    let file = home.path().join(".cursor/mcp.json");
    std::fs::write(&file, r#"{"mcpServers": {"one": {"command": "one"}}"#).unwrap();
    let rest = Rest::start_as(|launch| launch.env("HOME", home.path()));
    let visitor = Visitor::new(&rest);
    let page = visitor.page("/add");
    assert!(page.contains(file.to_str().unwrap()) && page.contains("The file is not valid JSON"), "{page}");
    std::fs::write(&file, r#"{"mcpServers": {"one": {"command": "one"}}}"#).unwrap();
    let page = visitor.page("/add");
    assert!(page.contains("<strong>one</strong>") && !page.contains("The file is not valid JSON"), "{page}");
}
