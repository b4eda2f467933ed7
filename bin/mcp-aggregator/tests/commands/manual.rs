//! Completions and manual pages, tried by the programs they are for.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::run::run_command;

use crate::{PROGRAM, expect};

/// Whether a program is installed. If not, that is said; what it would show is shown by others, too.
fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if !found {
        // Not by a macro, for those are silent in a test that passes.
        let said = std::io::stderr().write_all(format!("\nSKIPPED: {program} was not found\n").as_bytes());
        said.expect("there is a stderr");
    }
    found
}

/// The same for what `scripts/test` installs: where nothing may be skipped, it must be there.
pub(crate) fn needs(program: &str) -> bool {
    let found = has(program);
    assert!(found || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{program} was not found; install it");
    found
}

fn script(shell: &str) -> tempfile::NamedTempFile {
    let output = testkit::run(PROGRAM, ["completions", shell]);
    expect(&output, 0);
    assert_eq!(output.stderr, "");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(output.stdout.as_bytes()).unwrap();
    file
}

/// What bash would offer for these words, the last of which is being typed.
fn completed(script: &Path, words: &[&str]) -> Vec<String> {
    let typed = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let last = words.last().unwrap();
    let before = words[words.len() - 2];
    let text = fs::read_to_string(script).unwrap();
    let function = text.split("complete -F ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let code = format!(
        "source '{}'; COMP_WORDS=({typed}); COMP_CWORD={}; {function} mcp-aggregator '{last}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.len() - 1,
    );
    // The script asks the program for names, and finds it as a user's shell does.
    let folder = Path::new(PROGRAM).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &code]).stdin(Stdio::null()).env("PATH", path).env("HOME", folder.join("nobody"));
    let output = run_command(bash.env_remove("XDG_DATA_HOME"));
    expect(&output, 0);
    output.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_values() {
    if !has("bash") {
        return;
    }
    let script = script("bash");
    assert_eq!(completed(script.path(), &["mcp-aggregator", "sta"]), ["status"]);
    let options = completed(script.path(), &["mcp-aggregator", "serve", "--"]);
    for option in ["--config", "--listen", "--data-dir"] {
        assert!(options.iter().any(|offered| offered == option), "{options:?}");
    }
    assert_eq!(completed(script.path(), &["mcp-aggregator", "completions", "f"]), ["fish"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "serve", "--names", "s"]), ["safe"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "serve", "--surface", "g"]), ["grow"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "connect", "cu"]), ["cursor"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "calls", "al"]), ["allow"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "search", "x", "--strategy", "h"]), ["hierarchical"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "context", "--format", "g"]), ["gemini"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "import", "--from", "w"]), ["windsurf"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "connect", "--json", "vs"]), ["vscode"]);
    assert_eq!(completed(script.path(), &["mcp-aggregator", "man", "stat"]), ["status"]);
    let shown = completed(script.path(), &["mcp-aggregator", "help", "demo"]);
    assert_eq!(shown, ["demo"], "what is hidden is not offered");
}

#[test]
fn servers_tools_and_skills_are_offered_wherever_they_may_stand() {
    let mut demo = crate::demo::Demo::start();
    demo.ready();
    let offered = |words: &[&str]| {
        let words: Vec<&str> = ["names", "--"].iter().chain(words).copied().collect();
        let output = testkit::run(PROGRAM, &words);
        expect(&output, 0);
        output.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let url = demo.url.clone();
    for words in [
        &["show", "--url", &url, "--json", ""][..],
        &["tools", "off", "--url", &url, "--server", ""],
        &["search", "x", "--url", &url, "--server", "c"],
        &["ask", "--url", &url, "--server", ""],
    ] {
        assert_eq!(offered(words), ["calc", "notes"], "{words:?}");
    }
    let tools = offered(&["call", "--url", &url, ""]);
    assert!(tools.contains(&"calc.evaluate".to_owned()), "{tools:?}");
    assert_eq!(offered(&["tools", "off", "calc.now", "--url", &url, ""]), tools);
    assert!(offered(&["tools", "on", "--url", &url, ""]).is_empty(), "none is off");
    let skills = offered(&["search", "x", "--url", &url, "--skill", ""]);
    assert!(skills.contains(&"source-control".to_owned()), "{skills:?}");
    let second = testkit::run(PROGRAM, ["names", "--", "call", "--url", &url, "calc.now", ""]);
    expect(&second, 1);
    demo.stop();
}

#[test]
fn every_shell_completes_names_of_servers_and_tools() {
    for (shell, asks) in [
        ("bash", "mcp-aggregator names -- "),
        ("zsh", "mcp-aggregator names -- "),
        ("fish", "-r -f -a \"(__mcp_aggregator_names)\""),
    ] {
        let text = fs::read_to_string(script(shell).path()).unwrap();
        assert!(text.contains(asks), "{shell}:\n{text}");
    }
}

#[test]
fn the_scripts_of_other_shells_are_scripts_in_them() {
    for (shell, check) in [("zsh", "-n"), ("fish", "--no-execute")] {
        let script = script(shell);
        let text = fs::read_to_string(script.path()).unwrap();
        assert!(text.contains("mcp-aggregator") && text.contains("doctor"), "{shell}");
        if needs(shell) {
            expect(&testkit::run(shell, [check.as_ref(), script.path().as_os_str()]), 0);
        }
    }
}

/// A page as a reader sees it, after groff found nothing to complain about.
fn formatted(page: &Path) -> String {
    let groff = ["-man", "-Tutf8", "-Wbreak", "-rLL=100n", "-P-c", "-P-b", "-P-u"];
    let output = run_command(Command::new("groff").args(groff).arg(page).stdin(Stdio::null()));
    expect(&output, 0);
    assert_eq!(output.stderr, "", "{}", page.display());
    output.stdout
}

#[test]
fn every_verb_has_a_manual_page_in_which_examples_keep_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let output = testkit::run(PROGRAM, ["man".as_ref(), "--dir".as_ref(), folder.path().as_os_str()]);
    expect(&output, 0);
    for verb in super::help::VERBS {
        assert!(folder.path().join(format!("mcp-aggregator-{verb}.1")).is_file(), "{verb}");
    }
    let whole = fs::read_to_string(folder.path().join("mcp-aggregator.1")).unwrap();
    assert!(whole.contains("mcp\\-aggregator\\-serve(1)"), "{whole}");
    if !has("groff") {
        return;
    }
    for page in fs::read_dir(folder.path()).unwrap() {
        formatted(&page.unwrap().path());
    }
    let serve = formatted(&folder.path().join("mcp-aggregator-serve.1"));
    let example = "curl http://127.0.0.1:8808/health";
    assert!(serve.lines().any(|line| line.trim() == example), "{serve}");
}

#[test]
fn one_page_is_printed_for_a_pager() {
    let page = testkit::run(PROGRAM, ["man", "call"]);
    expect(&page, 0);
    assert!(page.stdout.contains(".TH ") && page.stdout.contains(".SH SYNOPSIS"), "{}", page.stdout);
    let unknown = testkit::run(PROGRAM, ["man", "frobnicate"]);
    expect(&unknown, 2);
    assert!(unknown.stderr.contains("there is no command `frobnicate`"), "{}", unknown.stderr);
}
