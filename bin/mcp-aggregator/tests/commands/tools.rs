//! `tools`.

use std::fs;

use testkit::{Config, fake};

use crate::{Run, expect, failing, json, one, run};

#[test]
fn tools_are_listed_in_order_with_the_first_line_of_their_description() {
    let definitions = one();
    let file = definitions.folder().join("tools");
    let long = "x".repeat(200);
    let lines = [
        r#"{"name":"read","description":"\n  Reads a file.\nSecond line."}"#.to_owned(),
        format!(r#"{{"name":"a_longer_name","description":"{long}"}}"#),
        r#"{"name":"bare\u001b[2J"}"#.to_owned(),
    ];
    fs::write(&file, lines.join("\n")).unwrap();
    let server = fake().args(["--only-generated", "--tool-file", file.to_str().unwrap()]);
    let other = fake().args(["--only-generated", "--tools", "1"]);
    let config = Config::new().server("z", server).server("a", other).server("bad", failing()).write();

    let output = run("tools", &config, &[]);
    expect(&output, 0);
    let shown: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(shown[0], "z.read           Reads a file.");
    assert_eq!(shown[1], format!("z.a_longer_name  {long}"), "nothing is cut in a pipe");
    assert_eq!(shown[2], "z.bare␛[2J", "a server cannot steer the terminal");
    assert!(shown[3].starts_with("a.tool_0 "));
    assert_eq!(shown.len(), 4);
    let narrow = Run::new("tools", config.path()).env("COLUMNS", "100").output();
    let cut = narrow.stdout.lines().nth(1).unwrap().to_owned();
    assert!(cut.ends_with('…') && cut.chars().count() == 100, "{cut}");
    assert!(output.stderr.ends_with("4 tools from 2 servers; 1 server failed: bad\n"), "{}", output.stderr);
    assert!(output.stderr.contains("error: server `bad` failed during initialization"), "{}", output.stderr);
    assert!(output.stderr.contains("no database here"));

    let output = Run::new("tools", config.path()).env("COLUMNS", "60").output();
    assert_eq!(output.stdout.lines().nth(1).unwrap().chars().count(), 60);
}

#[test]
fn json_is_what_the_servers_wrote_but_for_the_name() {
    let definitions = one();
    let file = definitions.folder().join("tools");
    fs::write(&file, "{ \"inputSchema\":{\"type\":\"object\"},\"x\":1e2 , \"name\":\"\\u0061b\" }\n{\"inputSchema\":{\"type\":\"object\"},\"name\":\"c\"}").unwrap();
    let config =
        Config::new().server("s", fake().args(["--only-generated", "--tool-file", file.to_str().unwrap()])).write();
    let output = run("tools", &config, &["--json"]);
    expect(&output, 0);
    let expected = "[{ \"inputSchema\":{\"type\":\"object\"},\"x\":1e2 , \"name\":\"s.\\u0061b\" },\n{\"inputSchema\":{\"type\":\"object\"},\"name\":\"s.c\"}]\n";
    assert_eq!(output.stdout, expected);
    assert_eq!(output.stderr, "2 tools from 1 server\n");
}

#[test]
fn names_and_separator_are_the_users_choice() {
    let config = Config::new().server("my server", fake().args(["--only-generated", "--tools", "1"])).write();
    for (arguments, expected) in [
        (&[][..], "my server.tool_0"),
        (&["--separator", "::"], "my server::tool_0"),
        (&["--names", "canonical"], "my server.tool_0"),
    ] {
        assert!(run("tools", &config, arguments).stdout.starts_with(expected), "{arguments:?}");
    }
    let tools = json(&run("tools", &config, &["--names", "safe", "--json"]));
    let name = tools[0]["name"].as_str().unwrap();
    assert!(name.starts_with("my_server__tool_0"), "{name}");
}

#[test]
fn a_list_of_many_pages_is_complete() {
    let config = Config::new().server("s", fake().args(["--only-generated", "--tools", "2500"])).write();
    let output = run("tools", &config, &["--json"]);
    assert_eq!(json(&output).as_array().unwrap().len(), 2500);
    assert_eq!(output.stderr, "2500 tools from 1 server\n");
}

#[test]
fn nothing_but_failures_is_a_failure_and_nothing_at_all_is_not() {
    let output = run("tools", &Config::new().server("bad", failing()).write(), &[]);
    expect(&output, 1);
    assert_eq!(output.stdout, "");
    assert!(output.stderr.ends_with("error: 0 tools from 0 servers; 1 server failed: bad\n"), "{}", output.stderr);

    let output = run("tools", &Config::new().write(), &["--json"]);
    expect(&output, 0);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("[]\n", "0 tools from 0 servers\n"));
}
