//! `connect` with the name of a client: its config is changed, shown, and given back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::run::run_command;
use testkit::{Config, Output, fake};

use crate::serve::serve;
use crate::{PROGRAM, Run, expect};

const CURSOR: &str =
    "{\n  // my servers\n  \"mcpServers\": {\n    \"git\": { \"command\": \"git-server\" }, // keep\n  }\n}\n";

pub(crate) struct User {
    home: TempDir,
}

impl User {
    pub(crate) fn new() -> Self {
        Self { home: TempDir::with_prefix("home-").unwrap() }
    }

    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, &[])
    }

    fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        self.run_program(Path::new(PROGRAM), arguments, environment)
    }

    /// The same under another path.
    pub(crate) fn run_program(&self, program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(program);
        for variable in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "MCP_AGGREGATOR_TOKEN", "MCP_CREDENTIAL_KEY"] {
            command.env_remove(variable);
        }
        run_command(
            command
                .args(arguments)
                .env("HOME", self.home.path())
                .envs(environment.iter().copied())
                .current_dir(self.home.path())
                .stdin(Stdio::null()),
        )
    }

    /// A config for `--stdio`.
    pub(crate) fn servers(&self) -> String {
        let path = self.write("servers.json", &Config::new().server("one", fake()).text());
        path.to_str().unwrap().to_owned()
    }
}

fn beside(path: &Path) -> usize {
    fs::read_dir(path.parent().unwrap()).unwrap().count()
}

#[test]
fn a_client_is_added_once_and_its_file_is_restored_unchanged() {
    let user = User::new();
    let file = user.write(".cursor/mcp.json", CURSOR);
    let servers = user.servers();
    let connect = ["connect", "cursor", "--stdio", "--config", &servers];

    let shown = user.run(&[&connect[..], &["--dry-run"]].concat());
    expect(&shown, 0);
    assert!(shown.stdout.contains("+    \"all\": {"), "{}", shown.stdout);
    assert_eq!(fs::read_to_string(&file).unwrap(), CURSOR);

    expect(&user.run(&connect), 0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("// my servers") && text.contains("\"git\": { \"command\": \"git-server\" }, // keep"),
        "{text}"
    );
    assert!(text.contains(&format!("\"{servers}\"")) && text.contains("\"stdio\""), "{text}");
    let again = user.run(&connect);
    expect(&again, 0);
    assert!(again.stderr.contains("is already connected"), "{}", again.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    expect(&user.run(&["connect", "cursor", "--undo"]), 0);
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), beside(&file)), (CURSOR, 1));
    expect(&user.run(&["connect", "cursor", "--undo"]), 1);
}

#[test]
fn what_the_client_has_changed_since_stays_when_we_go() {
    let user = User::new();
    let servers = user.servers();
    expect(&user.run(&["connect", "claude-code", "--stdio", "--config", &servers]), 0);
    let file = user.file(".claude.json");
    let text = fs::read_to_string(&file).unwrap();
    let changed = text.replacen('{', "{\n  \"theme\": \"dark\",", 1);
    fs::write(&file, changed).unwrap();
    let output = user.run(&["connect", "claude-code", "--undo"]);
    expect(&output, 0);
    assert!(output.stderr.contains("was edited"), "{}", output.stderr);
    let left: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(left, json!({"theme": "dark", "mcpServers": {}}));
}

#[test]
fn a_project_has_its_own_file_and_a_created_one_is_removed_by_undo() {
    let user = User::new();
    let servers = user.servers();
    let connect = ["connect", "vscode", "--project", "--stdio", "--config", &servers, "--json"];
    let output = user.run(&connect);
    expect(&output, 0);
    let reply: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&reply["changed"], &reply["backup"]), (&json!(true), &Value::Null));
    let file = user.file(".vscode/mcp.json");
    let written: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written["servers"]["all"]["type"], "stdio");
    expect(&user.run(&["connect", "vscode", "--project", "--undo"]), 0);
    assert!(!file.exists() && !file.parent().unwrap().exists(), "nothing of ours is left");
}

#[test]
fn each_entry_is_removed_separately_and_reported_correctly() {
    let user = User::new();
    let servers = user.servers();
    let connect = ["connect", "cursor", "--stdio", "--config", &servers];
    expect(&user.run(&connect), 0);
    let output = user.run(&[&connect[..], &["--as", "second"]].concat());
    expect(&output, 0);
    assert!(!output.stderr.contains("the backup"), "there was no file: {}", output.stderr);
    assert!(output.stderr.contains("client add cursor --as 'second' --undo"), "{}", output.stderr);
    expect(&user.run(&["connect", "cursor", "--undo", "--as", "third"]), 1);
    expect(&user.run(&["connect", "cursor", "--undo", "--as", "second"]), 0);
    let file = user.file(".cursor/mcp.json");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"all\"") && !text.contains("second"), "{text}");
    expect(&user.run(&["connect", "cursor", "--undo"]), 0);
    assert!(!file.exists());
    expect(&user.run(&[&connect[..], &["--as", ""]].concat()), 2);
}

#[test]
fn whatever_happened_in_between_nothing_of_ours_stays_after_undo() {
    let user = User::new();
    let file = user.write(".cursor/mcp.json", CURSOR);
    let servers = user.servers();
    let connect = |config: &str| expect(&user.run(&["connect", "cursor", "--stdio", "--config", config]), 0);
    connect(&servers);
    let edited = fs::read_to_string(&file).unwrap().replace("git-server", "other-server");
    fs::write(&file, edited).unwrap();
    let others = user.write("others.json", r#"{"mcpServers": {}}"#);
    connect(others.to_str().unwrap());
    expect(&user.run(&["connect", "cursor", "--undo"]), 0);
    let left = fs::read_to_string(&file).unwrap();
    assert!(left.contains("other-server") && left.contains("// my servers") && !left.contains("\"all\""), "{left}");
    fs::write(&file, CURSOR).unwrap();
    // Somebody else takes us out.
    connect(&servers);
    fs::write(&file, CURSOR).unwrap();
    let output = user.run(&["connect", "cursor", "--undo"]);
    expect(&output, 0);
    assert!(output.stderr.contains("any more"), "{}", output.stderr);
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), beside(&file)), (CURSOR, 1));
}

#[test]
fn no_secret_is_shown_and_none_is_written_into_what_is_shared() {
    const TOKEN: &str = "tok-laptop-0123456789";
    let user = User::new();
    let before = r#"{"mcpServers": {"gh": {"command": "gh", "env": {"GITHUB_TOKEN": "ghp_SECRET"}}}}"#;
    let file = user.write(".cursor/mcp.json", before);
    let config = user.write("empty.json", r#"{"mcpServers": {}}"#);
    let run = Run::new("serve", &config).env("MCP_AGGREGATOR_TOKEN", TOKEN);
    let served = serve(run);
    let url = format!("http://{}", served.address);
    let with_token = [("MCP_AGGREGATOR_TOKEN", TOKEN)];
    let connect = ["connect", "cursor", "--url", &url];
    for arguments in [&["--dry-run"][..], &["--dry-run", "--json"], &[], &["--undo", "--dry-run"]] {
        let output = user.run_with(&[&connect[..], arguments].concat(), &with_token);
        expect(&output, 0);
        assert!(!output.stdout.contains(TOKEN) && !output.stdout.contains("ghp_SECRET"), "{}", output.stdout);
    }
    assert!(fs::read_to_string(&file).unwrap().contains(TOKEN), "the user's own file has it");
    for (client, path, reference) in [
        ("claude-code", ".mcp.json", "Bearer ${MCP_AGGREGATOR_TOKEN}"),
        ("vscode", ".vscode/mcp.json", "Bearer ${env:MCP_AGGREGATOR_TOKEN}"),
    ] {
        let output = user.run_with(&["connect", client, "--project", "--url", &url], &with_token);
        expect(&output, 0);
        assert!(output.stderr.contains("hint: export the variable"), "{}", output.stderr);
        let text = fs::read_to_string(user.file(path)).unwrap();
        assert!(text.contains(reference) && !text.contains(TOKEN), "{text}");
    }
    served.stop();
}

#[test]
fn what_is_not_ours_is_never_overwritten_and_what_makes_no_sense_is_reported() {
    let user = User::new();
    let servers = user.servers();
    let file = user.write(".cursor/mcp.json", r#"{"mcpServers": {"all": {"command": "another"}}}"#);
    let before = fs::read_to_string(&file).unwrap();
    for (arguments, code, needed) in [
        (&["connect", "cursor", "--stdio", "--config", &servers][..], 1, "--as NAME"),
        (&["connect", "cursor", "--stdio", "--config", file.to_str().unwrap()], 2, "would start itself"),
        (
            &["connect", "claude-desktop", "--project", "--stdio", "--config", &servers],
            2,
            "no config files for projects",
        ),
        (&["connect", "emacs", "--dry-run"], 2, "claude-desktop, claude-code, cursor, vscode"),
        (&["connect", "cursor"], 1, "--stdio --config FILE"),
    ] {
        let output = user.run(arguments);
        expect(&output, code);
        assert!(output.stderr.contains(needed), "{arguments:?}: {}", output.stderr);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    expect(&user.run(&["connect", "cursor", "--stdio", "--config", &servers, "--as", "mine"]), 0);
    assert!(fs::read_to_string(&file).unwrap().contains("another"));
}
