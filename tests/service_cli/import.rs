//! The servers of other programs.

use serde_json::{Value, json};

use super::{Home, fake, row};

/// A folder with configs of several programs.
fn crowded() -> Home {
    let home = Home::new();
    let entry = json!({"command": fake(), "env": {"KEY": "hunter2"}});
    let desktop = json!({"mcpServers": {"files": entry, "us": {"command": "mcp-aggregator", "args": ["stdio"]}}});
    home.write(".config/Claude/claude_desktop_config.json", &desktop.to_string());
    let code = json!({"numStartups": 5, "mcpServers": {"files": entry},
        "projects": {"/projects/a": {"mcpServers": {"My Tools": {"type": "stdio", "command": fake()}}}}});
    home.write(".claude.json", &code.to_string());
    home.write("project/.mcp.json", &json!({"mcpServers": {"of-project": {"command": fake()}}}).to_string());
    home.write(
        ".cursor/mcp.json",
        &json!({"mcpServers": {"files": {"command": fake(), "args": ["--only-generated"]}}}).to_string(),
    );
    let vscode = format!(
        r#"{{ // with comments
            "inputs": [],
            "servers": {{"asks": {{"command": "{}", "args": ["${{input:api-key}}"], /* and */ "disabled": true}},}},
        }}"#,
        fake()
    );
    home.write(".config/Code/User/mcp.json", &vscode);
    home.write(
        ".codeium/windsurf/mcp_config.json",
        &json!({"mcpServers": {"web": {"serverUrl": "http://127.0.0.1:9/sse", "disabled": true}}}).to_string(),
    );
    home
}

fn names(servers: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        servers.as_array().into_iter().flatten().filter_map(|server| server["name"].as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_other_programs_know_is_shown_and_then_added_once() {
    let home = crowded();
    let output = home.run(&["import", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    let shown = &output.stdout;
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(row(shown, "files")[1], "new");
    assert_eq!(row(shown, "files-2")[1], "new");
    assert!(shown.contains("renamed from `My Tools`"), "{shown}");
    assert!(shown.contains("why: it refers to mcp-aggregator"), "{shown}");
    assert!(shown.contains("note: the service needs `api-key` in $API_KEY"), "{shown}");
    assert!(output.stderr.contains("6 would be added, 2 not"), "{}", output.stderr);
    assert_eq!(home.json(&["list", "--json"]), json!([]));

    home.ok(&["import"]);
    let servers = home.json(&["list", "--json"]);
    assert_eq!(names(&servers), ["asks", "files", "files-2", "my-tools", "of-project", "web"]);
    let web = home.json(&["show", "web", "--json"]);
    assert_eq!((&web["transport_type"], &web["enabled"]), (&json!("sse"), &json!(false)));
    assert_eq!(home.json(&["show", "asks", "--json"])["connection_config"]["args"], json!(["${API_KEY}"]));

    let again = home.run(&["import"]);
    assert_eq!(again.status.code(), Some(0));
    assert!(again.stderr.contains("0 added"), "{}", again.stderr);
    assert_eq!(home.json(&["list", "--json"]), servers);
}

#[test]
fn a_running_service_connects_what_one_program_knows() {
    let home = crowded();
    let _serve = home.serve();
    home.ok(&["import", "--from", "cursor", "--from", "claude-desktop"]);
    let servers = home.json(&["list", "--json"]);
    assert_eq!(names(&servers), ["files", "files-2"]);
    assert_eq!(home.ok(&["call", "files-2.env", "name=KEY"]), "\"hunter2\"\n");
}

#[test]
fn a_file_can_be_named_and_what_is_there_is_never_overwritten() {
    let home = Home::new();
    home.add("kept");
    let before = home.json(&["show", "kept", "--json"]);
    let file = home.write("mine.json", r#"{"mcpServers": {"kept": {"command": "other"}, "bad": {"args": []}}}"#);
    let output = home.run(&["import", &file, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let result: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&result[0]["result"], &result[1]["result"]), (&json!("exists"), &json!("failed")));
    assert_eq!(home.json(&["show", "kept", "--json"]), before);

    for (text, said) in [("{", "is not valid JSON"), (r#"{"other": 1}"#, "there are no servers in")] {
        let file = home.write("broken.json", text);
        assert!(home.fails(1, &["import", &file]).contains(said), "{text}");
    }
    assert!(home.fails(1, &["import", "/nonexistent.json"]).contains("could not read /nonexistent.json"));
    let nothing = home.fails(1, &["import"]);
    assert!(nothing.contains("looked for") && nothing.contains(".cursor/mcp.json"), "{nothing}");
}
