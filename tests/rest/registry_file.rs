//! The registry file is emptied, deleted or replaced: detected while the service runs, and refused at start.

use std::fs;

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::run::run_command;
use testkit::serve::Fetched;
use testkit::{Launch, program};

use super::{Rest, expect, expect_error, fake};

fn health(rest: &Rest) -> Fetched {
    rest.serve.fetch(&HttpRequest::new("GET", "/health"))
}

/// Both health reports, the command line, the console and a refused change report it.
fn assert_noticed(rest: &Rest, what: &str) {
    let reply = expect(503, &health(rest));
    assert_eq!(reply["status"], "failed", "{reply}");
    assert!(
        !reply["message"].as_str().expect("it says why").contains('/'),
        "everybody may ask, so no path is named: {reply}"
    );
    let reply = expect(200, &rest.get("/health"));
    assert_eq!((&reply["status"], &reply["checks"]["database"]["status"]), (&json!("degraded"), &json!("failed")));
    let message = reply["issues"][0]["message"].as_str().expect("it says why");
    assert!(message.contains(what) && message.contains("registry.db") && message.contains("restore"), "{message}");
    let refused = rest.post("/servers", &fake("late", &[]));
    expect_error(503, "DATABASE_UNAVAILABLE", &refused);
    assert!(refused.body.contains(what), "{}", refused.body);
    for page in ["/", "/system"] {
        let page = rest.serve.fetch(&HttpRequest::new("GET", page));
        assert!(page.body.contains(what), "{}", page.body);
    }
    for command in ["status", "doctor"] {
        let mut run = std::process::Command::new(program("mcp-aggregator"));
        run.args([command, "--url", &format!("http://{}", rest.serve.address())]);
        let output = run_command(run.env_remove("MCP_AGGREGATOR_TOKEN"));
        assert!(!output.status.success(), "{output:?}");
        let reply = format!("{}{}", output.stdout, output.stderr);
        assert!(reply.contains(what), "{command}: {reply}");
    }
}

#[test]
fn a_registry_file_that_is_moved_away_or_replaced_is_noticed_until_it_is_back() {
    let rest = Rest::start();
    rest.register("one", &[]);
    assert_eq!(expect(200, &health(&rest))["status"], "ok");
    let (file, aside) = (rest.registry(), rest.folder.path().join("aside.db"));
    fs::rename(&file, &aside).unwrap();
    assert_noticed(&rest, "was deleted or moved");
    fs::copy(&aside, &file).unwrap();
    assert_noticed(&rest, "was replaced by another file");
    // Calls still work.
    expect(200, &rest.call("one.echo", &json!({})));
    fs::rename(&aside, &file).unwrap();
    testkit::wait_until("all is well again", || (health(&rest).json()["status"] == "ok").then_some(()));
    expect(201, &rest.post("/servers", &fake("two", &[])));
}

#[test]
fn a_registry_file_that_is_emptied_is_noticed_and_the_next_start_refuses_it() {
    let mut rest = Rest::start();
    rest.register("one", &[]);
    fs::OpenOptions::new().write(true).open(rest.registry()).unwrap().set_len(0).unwrap();
    assert_noticed(&rest, "was emptied");
    rest.serve.signal(testkit::Signal::KILL);
    rest.serve.wait_exit();
    // As after a crash that left nothing: the write-ahead log is missing, too.
    for ending in ["-wal", "-shm"] {
        drop(fs::remove_file(format!("{}{ending}", rest.registry().display())));
    }
    fs::write(rest.registry(), "").unwrap();
    let mut start = Launch::program(program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(rest.folder.path().join("data"))
        .start();
    start.wait_for_stderr("is empty");
    assert!(!start.wait_exit().success());
    start.wait_for_stderr("remove the file");
    let stderr = start.stderr_text();
    assert!(stderr.contains(rest.registry().to_str().unwrap()) && stderr.contains("remove the file"), "{stderr}");
    assert_eq!(fs::metadata(rest.registry()).unwrap().len(), 0, "it is left as it was");
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE users (name TEXT)").unwrap();
    let mut start = Launch::program(program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path().join("data"))
        .arg("--database")
        .arg(&other)
        .start();
    start.wait_for_stderr("not a registry");
    assert!(!start.wait_exit().success());
    assert!(!folder.path().join("data/credential.key").exists(), "no key was made for it");
    let connection = rusqlite::Connection::open(&other).unwrap();
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
}
