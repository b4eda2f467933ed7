//! Follows the start of the README like a new user: its commands, and then the page that the second one prints, up to
//! the first tool call in the playground.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::run::run_command;
use testkit::{Launch, Signal, program};

use super::chromium::DESK;
use super::with_browsers;

/// The commands of the README's first part, in order.
fn first_commands() -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md"));
    let readme = readme.expect("there is a README");
    let (_, part) = readme.split_once("## Three commands\n").expect("the README begins with three commands");
    let (part, _) = part.split_once("\n## ").expect("and goes on");
    let mut blocks = part.split("```sh\n").skip(1);
    std::iter::from_fn(|| blocks.next()?.split_once("\n```").map(|(command, _)| command.to_owned())).collect()
}

#[test]
fn a_newcomer_follows_the_readme_to_the_first_tool_in_the_playground() {
    let [first, second, third] = first_commands().try_into().expect("three commands");
    assert_eq!(third, "scripts/test");
    let programs = program("mcp-aggregator").parent().unwrap().to_owned();

    // The programs are already built, and may be in another folder.
    let (build, call) = first.split_once(" && ").expect("build, then call");
    assert_eq!(build, "cargo build --release");
    let mut shell = Command::new("sh");
    shell.args(["-c", &call.replace("target/release", &programs.display().to_string())]);
    shell.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    shell.env("MCP_EXAMPLES_BIN", &programs).env_remove("MCP_AGGREGATOR_TOKEN").stdin(Stdio::null());
    let answer = run_command(&mut shell);
    assert!(answer.status.success() && answer.stdout.contains("0.3"), "{}{}", answer.stdout, answer.stderr);

    assert_eq!(second, "target/release/mcp-aggregator demo");
    let home = TempDir::with_prefix("home-").unwrap();
    let launch = Launch::program(program("mcp-aggregator")).args(["demo", "--listen", "0"]);
    let mut demo =
        launch.env("HOME", home.path()).env("TMPDIR", home.path()).env_remove("MCP_AGGREGATOR_TOKEN").start();
    demo.wait_for_stderr("/api/docs");
    let said = demo.stderr_text();
    let page = said.lines().find_map(|line| line.strip_prefix("In a browser: ")).expect("it says where to look");
    with_browsers(async |driver| {
        let browser = driver.open(DESK).await;
        browser.goto(page).await;
        browser
            .wait("['calc', 'notes'].every((name) => document.querySelector('main').innerText.includes(name))")
            .await;
        browser.click("nav a[href='/playground']").await;
        browser.fill(".filters input[name=tool]", "calc.evaluate").await;
        browser.click(".filters button").await;
        browser.fill("#fields input, #fields textarea", "0.1 + 0.2").await;
        browser.click("#run").await;
        browser.wait("document.getElementById('outcome').innerText.includes('0.3')").await;
        assert_eq!(browser.log().await, Vec::<String>::new());
        browser.close().await;
    });
    demo.signal(Signal::INT);
    assert!(demo.wait_exit().success());
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing of it stays");
}
