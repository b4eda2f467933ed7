//! Commands while no service runs, and how a service is found.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use testkit::{Serve, Signal, wait_until};

use super::{Home, fake, row};

#[test]
fn the_registry_is_changed_and_the_next_service_has_it() {
    let home = Home::new();
    home.add("one");
    home.add("two");
    home.ok(&["disable", "two"]);
    home.add("three");
    home.ok(&["remove", "three"]);
    let listed = home.ok(&["list"]);
    assert_eq!(row(&listed, "one")[1], "disconnected");
    assert_eq!(row(&listed, "two")[1], "disabled");
    assert!(!listed.contains("three"), "{listed}");
    assert!(home.fails(1, &["add", "one", "--", &fake()]).contains("already exists"));
    assert!(home.fails(1, &["add", "Not Good", "--", "x"]).contains("name: "));
    assert!(home.fails(1, &["remove", "three"]).contains("there is no server `three`"));

    let _serve = home.serve();
    wait_until("the server is connected", || (row(&home.ok(&["list"]), "one")[1] == "connected").then_some(()));
    assert_eq!(row(&home.ok(&["list"]), "two")[1], "disabled");
}

#[test]
fn read_only_commands_create_no_registry() {
    let home = Home::new();
    assert_eq!(home.ok(&["list"]), "");
    assert_eq!(home.json(&["tools", "--json"]), serde_json::json!([]));
    home.run(&["import", "--dry-run"]);
    for verb in [&["show", "a"][..], &["history", "a"], &["remove", "a"], &["enable", "a"], &["export"]] {
        let said = home.fails(1, verb);
        assert!(said.starts_with("error: there is no registry at ") && said.contains("hint: "), "{verb:?}: {said}");
    }
    assert!(!home.data().exists(), "nothing was made");
    let typo = home.path().join("typo");
    let said = home.fails(1, &["list", "--data-dir", typo.to_str().unwrap()]);
    assert!(said.contains("there is no registry at ") && !typo.exists(), "{said}");
}

#[test]
fn commands_that_need_a_service_print_how_to_start_one() {
    let home = Home::new();
    home.add("one");
    for verb in [&["connect", "one"][..], &["disconnect", "one"], &["test", "one"], &["status"], &["call", "one.echo"]]
    {
        let said = home.fails(1, verb);
        assert!(said.contains("no service is running") && said.contains("`mcp-aggregator serve`"), "{verb:?}: {said}");
    }
    let data = home.data();
    let said = home.fails(1, &["status", "--data-dir", data.to_str().unwrap()]);
    assert!(said.contains(&format!("`mcp-aggregator serve --data-dir {}`", data.display())), "{said}");
}

#[test]
fn a_service_writes_its_address_to_a_file_while_it_runs() {
    let home = Home::new();
    let mut serve = home.serve();
    let file = home.data().join("service.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&file).unwrap().contains(&serve.address().to_string()));
    // Another registry does not matter.
    let other = home.path().join("other.db");
    home.ok(&["add", "elsewhere", "--database", other.to_str().unwrap(), "--", &fake()]);
    assert_eq!(home.ok(&["list"]), "");
    serve.signal(Signal::TERM);
    assert!(serve.wait_exit().success());
    assert!(!file.exists());
}

#[test]
fn an_unusable_token_does_not_hide_a_running_service() {
    const TOKEN: (&str, &str) = ("MCP_AGGREGATOR_TOKEN", "tok-laptop-0123456789");
    let home = Home::new();
    home.add("notes");
    let _serve = Serve::in_folder(&home.data(), |launch| launch.env(TOKEN.0, TOKEN.1));
    let two_lines = [(TOKEN.0, "tok-laptop-0123456789\ntok-other-0123456789")];
    for verb in [&["remove", "notes"][..], &["add", "sneaky", "--", "x"], &["disable", "notes"], &["list"]] {
        let output = home.run_with(verb, &two_lines);
        assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
        assert!(output.stderr.contains("MCP_AGGREGATOR_TOKEN cannot be sent"), "{}", output.stderr);
    }
    let listed = home.run_with(&["list"], &[TOKEN]).stdout;
    assert!(row(&listed, "notes")[1] != "disabled" && !listed.contains("sneaky"), "{listed}");
}

#[test]
fn what_is_added_while_a_service_starts_is_not_lost() {
    for _ in 0..5 {
        let home = Home::new();
        // As a pasted script does: nobody waits for the service.
        let starting = thread::scope(|scope| {
            let starting = scope.spawn(|| home.serve());
            home.add("memory");
            starting.join().unwrap()
        });
        wait_until("the service has it", || (row(&home.ok(&["list"]), "memory")[1] == "connected").then_some(()));
        drop(starting);
    }
}

#[test]
fn a_service_without_its_file_still_protects_its_registry() {
    let home = Home::new();
    let _serve = home.serve();
    fs::remove_file(home.data().join("service.json")).unwrap();
    let said = home.fails(1, &["add", "sneaky", "--", "x"]);
    assert!(said.contains("uses the registry at") && said.contains("--url"), "{said}");
}

#[test]
fn a_service_that_was_killed_is_not_waited_for() {
    let home = Home::new();
    let mut serve = home.serve();
    home.add("one");
    serve.signal(Signal::KILL);
    serve.wait_exit();
    let output = home.run(&["list"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert_eq!(row(&output.stdout, "one")[1], "disconnected");
    assert!(output.stderr.contains("which no longer runs"), "{}", output.stderr);
    let said = home.fails(1, &["list", "--url", &format!("http://{}", serve.address())]);
    assert!(said.contains("could not reach the service"), "{said}");
}

#[test]
fn a_command_line_that_makes_no_sense_is_exit_status_2() {
    let home = Home::new();
    for arguments in [
        &["add"][..],
        &["add", "x"],
        &["add", "x", "http://y", "--", "z"],
        &["add", "x", "--env", "novalue", "--", "z"],
        &["add", "x", "http://y", "--transport", "stdio"],
        &["add", "x", "--transport", "sse", "--", "z"],
        &["add", "x", "--json", "["],
        &["add", "--json", r#"{"command": "x"}"#],
        &["list", "--url", "http://x", "--data-dir", "y"],
        &["history", "x", "--limit", "0"],
        &["call", "a.b", "not-a-pair"],
        &["import", "a", "--from", "b"],
        &["show"],
    ] {
        home.fails(2, arguments);
    }
}
