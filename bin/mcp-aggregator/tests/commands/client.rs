//! `client`: clients are added with the servers they have already, listed, and get their configs back.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::connect::User;
use crate::{PROGRAM, expect};

/// The entry of the only server in the config of `User::servers`.
fn served(user: &User) -> Value {
    let config: Value = serde_json::from_str(&fs::read_to_string(user.servers()).unwrap()).unwrap();
    config["mcpServers"]["one"].clone()
}

/// Cursor's config with a server of ours under another name, and one of its own.
fn cursor_config(user: &User) -> String {
    let mine = served(user).to_string();
    format!(
        "{{\n  // mine\n  \"mcpServers\": {{\n    \"mine\": {mine}, // keep\n    \"other\": {{ \"command\": \"other\" }}\n  }}\n}}\n"
    )
}

fn names(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let without_comments: String = text
        .lines()
        .map(|line| line.split(" // ").next().unwrap())
        .filter(|line| !line.trim().starts_with("//"))
        .collect();
    let read: Value = serde_json::from_str(&without_comments).unwrap_or_else(|error| panic!("{error} in {text}"));
    read["mcpServers"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn a_duplicate_server_of_a_client_is_reported_replaced_on_demand_and_restored() {
    let user = User::new();
    let before = cursor_config(&user);
    let file = user.write(".cursor/mcp.json", &before);
    let servers = user.servers();
    let add = ["client", "add", "cursor", "--stdio", "--config", &servers];

    let output = user.run(&[&add[..], &["--dry-run"]].concat());
    expect(&output, 0);
    assert!(output.stderr.contains("also has `mine`") && output.stderr.contains("--replace"), "{}", output.stderr);
    let output = user.run(&add);
    expect(&output, 0);
    assert!(output.stderr.contains("also has `mine`") && !output.stderr.contains("`other`"), "{}", output.stderr);
    assert_eq!(names(&file), ["mine", "other", "all"]);

    let replaced = user.run(&[&add[..], &["--replace", "--json"]].concat());
    expect(&replaced, 0);
    let report: Value = serde_json::from_str(&replaced.stdout).unwrap();
    assert_eq!((&report["changed"], &report["removed"]), (&json!(true), &json!(["mine"])), "{report}");
    assert_eq!(names(&file), ["other", "all"]);

    expect(&user.run(&["client", "add", "cursor", "--undo"]), 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn replaced_servers_are_restored_even_in_an_edited_file() {
    let user = User::new();
    let file = user.write(".cursor/mcp.json", &cursor_config(&user));
    let servers = user.servers();
    expect(&user.run(&["client", "add", "cursor", "--stdio", "--config", &servers, "--replace"]), 0);
    let changed = fs::read_to_string(&file).unwrap().replace("\"other\" }", "\"another\" }");
    fs::write(&file, changed).unwrap();
    expect(&user.run(&["client", "remove", "cursor"]), 0);
    let expected = cursor_config(&user).replace("\"other\" }", "\"another\" }");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected, "every other byte is where it was");
}

#[test]
fn what_a_config_does_not_serve_is_no_duplicate() {
    let user = User::new();
    let file = user.write(".cursor/mcp.json", &cursor_config(&user));
    let both = json!({"mcpServers": {"other": {"command": "else"}}, "servers": {"mine": served(&user)}});
    let servers = user.write("both.json", &both.to_string());
    let add = ["client", "add", "cursor", "--stdio", "--config", servers.to_str().unwrap(), "--replace"];
    expect(&user.run(&add), 0);
    assert_eq!(names(&file), ["mine", "other", "all"], "`servers` is not used, because there is `mcpServers`");
}

/// Cursor, connected with `--replace`: `mine` is gone from its file.
fn replaced(user: &User) -> (PathBuf, String) {
    let file = user.write(".cursor/mcp.json", &cursor_config(user));
    let servers = user.servers();
    expect(&user.run(&["client", "add", "cursor", "--stdio", "--config", &servers, "--replace"]), 0);
    assert_eq!(names(&file), ["other", "all"]);
    (file, servers)
}

fn rewrite(file: &Path, change: impl FnOnce(&mut Value)) {
    let text = fs::read_to_string(file).unwrap();
    let plain: String = text.lines().map(|line| line.split("//").next().unwrap()).collect();
    let mut read: Value = serde_json::from_str(&plain).unwrap();
    change(&mut read);
    fs::write(file, format!("{read:#}")).unwrap();
}

#[test]
fn what_was_replaced_is_not_lost_when_a_client_is_added_again_after_a_change() {
    for options in [&[][..], &["--replace"], &["--as", "second"]] {
        let user = User::new();
        let (file, servers) = replaced(&user);
        // Somebody takes us out by hand, and adds a server.
        rewrite(&file, |read| {
            read["mcpServers"].as_object_mut().unwrap().shift_remove("all");
            read["mcpServers"]["new"] = json!({"command": "new"});
        });
        let add = ["client", "add", "cursor", "--stdio", "--config", &servers];
        expect(&user.run(&[&add[..], options].concat()), 0);
        expect(&user.run(&["client", "remove", "cursor"]), 0);
        let read: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(read["mcpServers"]["mine"], served(&user), "{options:?}: {read}");
        assert_eq!(read["mcpServers"].as_object().unwrap().len(), 3, "{options:?}: {read}");
    }
}

#[test]
fn each_entry_of_ours_can_be_undone_though_the_file_was_changed_in_between() {
    let user = User::new();
    let (file, servers) = replaced(&user);
    rewrite(&file, |read| read["theme"] = json!("dark"));
    let add = ["client", "add", "cursor", "--stdio", "--config", &servers, "--as", "second"];
    expect(&user.run(&add), 0);
    rewrite(&file, |read| read["theme"] = json!("light"));
    expect(&user.run(&["client", "remove", "cursor", "--as", "second"]), 0);
    assert_eq!(names(&file), ["other", "all"]);
    expect(&user.run(&["client", "remove", "cursor"]), 0);
    let read: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let expected = json!({"mcpServers": {"mine": served(&user), "other": {"command": "other"}}, "theme": "light"});
    assert_eq!(read, expected);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn nothing_is_forgotten_while_the_file_of_a_client_cannot_be_read() {
    let user = User::new();
    let (file, servers) = replaced(&user);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen('{', "{ oops", 1)).unwrap();
    for arguments in
        [&["client", "remove", "cursor"][..], &["client", "add", "cursor", "--stdio", "--config", &servers]]
    {
        let refused = user.run(arguments);
        expect(&refused, 1);
        assert!(refused.stderr.contains("mcp.json") && refused.stderr.contains("not valid JSON"), "{}", refused.stderr);
    }
    fs::write(&file, &text).unwrap();
    expect(&user.run(&["client", "remove", "cursor"]), 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), cursor_config(&user));
}

#[test]
fn without_a_backup_only_our_entry_is_removed() {
    let user = User::new();
    let file = user.write(".cursor/mcp.json", "{\"theme\": \"dark\"}");
    let servers = user.servers();
    expect(&user.run(&["client", "add", "cursor", "--stdio", "--config", &servers]), 0);
    fs::remove_file(file.with_file_name("mcp.json.before-mcp-aggregator")).unwrap();
    expect(&user.run(&["client", "remove", "cursor"]), 0);
    let read: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(read, json!({"theme": "dark", "mcpServers": {}}));
}

#[test]
fn a_server_that_took_our_name_stays() {
    let user = User::new();
    let (file, _) = replaced(&user);
    rewrite(&file, |read| read["mcpServers"]["all"] = json!({"command": "another"}));
    let undone = user.run(&["client", "add", "cursor", "--undo"]);
    expect(&undone, 0);
    assert!(undone.stderr.contains("restored `mine`"), "{}", undone.stderr);
    assert_eq!(names(&file), ["other", "all", "mine"]);
}

#[test]
fn a_symbolic_link_stays_one_and_its_target_is_restored() {
    let user = User::new();
    let before = cursor_config(&user);
    let real = user.write("dotfiles/cursor.json", &before);
    let link = user.write(".cursor/placeholder", "").with_file_name("mcp.json");
    symlink(&real, &link).unwrap();
    let servers = user.servers();
    expect(&user.run(&["client", "add", "cursor", "--stdio", "--config", &servers, "--replace"]), 0);
    assert!(link.is_symlink());
    assert_eq!(names(&real), ["other", "all"]);
    expect(&user.run(&["client", "add", "cursor", "--undo"]), 0);
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), before);
}

#[test]
fn connect_with_the_name_of_a_client_works_and_suggests_client_add() {
    let user = User::new();
    let servers = user.servers();
    let connected = user.run(&["connect", "cursor", "--stdio", "--config", &servers]);
    expect(&connected, 0);
    assert!(
        connected.stderr.contains("`mcp-aggregator client add cursor` is the preferred command"),
        "{}",
        connected.stderr
    );
    assert_eq!(names(&user.file(".cursor/mcp.json")), ["all"]);
    let undone = user.run(&["connect", "cursor", "--undo"]);
    expect(&undone, 0);
    assert!(undone.stderr.contains("`mcp-aggregator client remove cursor`"), "{}", undone.stderr);
    let unknown = user.run(&["client", "add", "emacs"]);
    expect(&unknown, 2);
    assert!(unknown.stderr.contains("claude-desktop, claude-code, cursor, vscode"), "{}", unknown.stderr);
}

#[test]
fn clients_are_listed_with_whether_they_use_us() {
    let user = User::new();
    let servers = user.servers();
    user.write(".cursor/mcp.json", &cursor_config(&user));
    expect(&user.run(&["client", "add", "cursor", "--stdio", "--config", &servers]), 0);
    let listed = user.run(&["client", "list", "--json"]);
    expect(&listed, 0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let of = |word: &str| {
        let all = listed.as_array().unwrap();
        all.iter().find(|client| client["client"] == word && client["scope"] == "user").unwrap().clone()
    };
    let cursor = of("cursor");
    assert_eq!((&cursor["connected"], &cursor["entries"]), (&json!(true), &json!(["all"])), "{cursor}");
    assert_eq!(cursor["servers"], json!(["mine", "other"]));
    let desktop = of("claude-desktop");
    assert_eq!((&desktop["exists"], &desktop["connected"]), (&json!(false), &json!(false)), "{desktop}");
    user.write(".vscode/mcp.json", "{ oops");
    let listed = user.run(&["client", "list"]);
    expect(&listed, 0);
    assert!(listed.stdout.lines().any(|line| line.starts_with("vscode") && line.contains("cannot be read")));
    assert!(listed.stderr.contains("warning: could not read") && listed.stderr.contains("mcp.json"));
    let table = listed.stdout;
    assert!(table.lines().any(|line| line.starts_with("cursor") && line.contains("connected as `all`")), "{table}");
}

#[test]
fn a_client_config_gets_the_link_that_was_started_and_not_its_target() {
    let user = User::new();
    let servers = user.servers();
    let link = user.write("bin/placeholder", "").with_file_name("mcp-aggregator");
    symlink(PROGRAM, &link).unwrap();
    let add = ["client", "add", "cursor", "--stdio", "--config", &servers];
    let command = || {
        let text = fs::read_to_string(user.file(".cursor/mcp.json")).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        read["mcpServers"]["all"]["command"].as_str().unwrap().to_owned()
    };
    expect(&user.run_program(&link, &add, &[]), 0);
    assert_eq!(command(), link.to_str().unwrap());
    expect(&user.run(&["client", "remove", "cursor"]), 0);
    // A shell finds it in PATH, and passes on the bare name.
    let shell = [
        "-c",
        "PATH=\"$1\" exec -a mcp-aggregator \"$1/mcp-aggregator\" client add cursor --stdio --config \"$2\"",
        "sh",
    ];
    let folder = link.parent().unwrap().to_str().unwrap();
    expect(&user.run_program(Path::new("bash"), &[&shell[..], &[folder, &servers]].concat(), &[]), 0);
    assert_eq!(command(), link.to_str().unwrap());
}
