//! The map of a document: its sections and their servers.

use testkit::{Config, fake};

use super::block;
use crate::service_cli::Home;

#[test]
fn a_map_has_the_server_of_every_section_with_the_reason() {
    let home = Home::new();
    let config = Config::new().server("one", fake()).server("two", fake()).text();
    home.write("project/mcp.json", &config);
    let text = format!(
        "---\nmcp:\n  - heading: Last\n    server: one\n---\n# Top\n\n{}\n## Bound\n<!-- mcp: two -->\n\n### Child\n\n{}\n{}\n# Last\n",
        block("mcp", "echo", ""),
        block("one", "echo", ""),
        block("mcp", "echo", ""),
    );
    home.write("project/notes.md", &text);
    let map = home.ok(&["doc", "map", "notes.md", "--config", "mcp.json"]);
    let line = |what: &str| {
        let line = map.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no `{what}` in\n{map}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("# Top"), "6 # Top one not bound: the first enabled server");
    assert!(line("block 1").ends_with("block 1: mcp one"), "{map}");
    assert!(line("## Bound").contains(" two a comment binds"), "{map}");
    assert!(line("### Child").contains(" two inherited from"), "{map}");
    assert!(line("block 2").contains("refused: inherited from") && line("block 2").ends_with("to `two`"), "{map}");
    assert!(line("block 3").ends_with("block 3: mcp two"), "{map}");
    assert!(line("# Last").contains(" one front matter binds"), "{map}");
    let json = home.json(&["doc", "map", "notes.md", "--config", "mcp.json", "--json"]);
    let servers: Vec<_> =
        json["sections"].as_array().unwrap().iter().map(|it| it["server"].as_str().unwrap()).collect();
    assert_eq!(servers, ["one", "one", "two", "two", "one"], "{json:#}");

    // A run uses the servers that the map shows.
    let said = home.fails(1, &["run", "notes.md", "--config", "mcp.json", "--dry-run"]);
    assert!(said.contains("only tools of `two` may run here"), "{said}");
    assert!(said.contains("two.echo: ready"), "{said}");
}

#[test]
fn a_map_needs_no_service() {
    let home = Home::new();
    home.add("one");
    home.write("project/notes.md", "# Notes\n");
    assert!(home.ok(&["doc", "map", "notes.md"]).contains("# Notes  one"));
    assert!(home.fails(1, &["run", "notes.md"]).contains("no service is running"));
    assert!(home.fails(1, &["doc", "map", "none.md"]).contains("failed to read `none.md`"));
}
