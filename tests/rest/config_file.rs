//! Servers of the config file are in the registry, too, and follow the file.

use serde_json::json;
use testkit::{Config, Serve, wait_until};

use super::{Rest, expect, expect_error, fake, names};

#[test]
fn servers_of_the_config_file_are_changed_only_there() {
    let serve = Serve::start(&Config::new().server("given", testkit::fake()));
    let rest = Rest { serve, folder: tempfile::tempdir().unwrap(), database: None };
    let given = rest.wait_for_status("given", "connected");
    assert_eq!(given["origin"], "config");
    expect_error(409, "SERVER_READ_ONLY", &rest.patch("/servers/given", &json!({"name": "mine"})));
    expect_error(409, "SERVER_READ_ONLY", &rest.delete("/servers/given"));
    expect_error(409, "SERVER_ALREADY_EXISTS", &rest.post("/servers", &fake("given", &[])));
    rest.register("mine", &[]);

    let file = rest.serve.folder().join("config.json");
    let two = Config::new().server("given", testkit::fake()).server("more", testkit::fake());
    std::fs::write(&file, two.text()).unwrap();
    rest.wait_for_status("more", "connected");
    let changed = Config::new().server("given", testkit::fake().arg("--tools").arg("3"));
    std::fs::write(&file, changed.server("more", testkit::fake()).text()).unwrap();
    let audited = || {
        let rows = expect(200, &rest.get("/audit"));
        let rows = rows.as_array().unwrap().iter().rev().filter(|row| row["who"] == "config file");
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        rows.map(|row| format!("{} {}", text(&row["action"]), text(&row["target"]))).collect::<Vec<_>>()
    };
    wait_until("the change is in the audit log", || {
        audited().contains(&"server.update given".to_owned()).then_some(())
    });
    std::fs::write(&file, Config::new().text()).unwrap();
    wait_until("what the file no longer names is gone", || {
        (names(&rest.get("/servers").json()) == ["mine"]).then_some(())
    });
    let expected = [
        "server.register given",
        "server.register more",
        "server.remove given",
        "server.remove more",
        "server.update given",
    ];
    let mut done = audited();
    done.sort_unstable();
    assert_eq!(done, expected);
}

#[test]
fn a_warning_is_logged_once_however_often_the_file_is_read() {
    let serve = Serve::start(&Config::new().raw(with_both_keys(&["given"])));
    let mut rest = Rest { serve, folder: tempfile::tempdir().unwrap(), database: None };
    let file = rest.serve.folder().join("config.json");
    rest.wait_for_status("given", "connected");
    // Reading it again when it changes is what every other reading does, too.
    for servers in [&["given", "more"][..], &["given", "more", "most"]] {
        std::fs::write(&file, with_both_keys(servers)).unwrap();
        rest.wait_for_status(servers.last().unwrap(), "connected");
    }
    rest.serve.signal(testkit::Signal::TERM);
    rest.serve.wait_exit();
    let said = rest.serve.stderr_text();
    assert_eq!(said.matches("$.servers is not used").count(), 1, "{said}");
}

/// A config with a key that is not used.
fn with_both_keys(servers: &[&str]) -> String {
    let config = servers.iter().fold(Config::new(), |config, name| config.server(name, testkit::fake()));
    config.text().replacen('{', "{\"servers\": {}, ", 1)
}

#[test]
fn an_entry_that_failed_too_often_is_tried_again_when_it_is_mended() {
    let rest = Rest { serve: Serve::start(&Config::new()), folder: tempfile::tempdir().unwrap(), database: None };
    expect(200, &rest.patch("/settings", &json!({"retry_backoff_ms": [1, 1, 1]})));
    let file = rest.serve.folder().join("config.json");
    let broken = testkit::fake().arg("--fail-at").arg("initialize");
    std::fs::write(&file, Config::new().server("s", broken).text()).unwrap();
    let off = rest.wait_for_status("s", "disabled");
    assert_eq!(off["auto_disabled"], true);
    std::fs::write(&file, Config::new().server("s", testkit::fake()).text()).unwrap();
    let mended = rest.wait_for_status("s", "connected");
    assert_eq!((&mended["enabled"], &mended["auto_disabled"]), (&json!(true), &json!(false)));
}

#[test]
fn an_invalid_or_missing_config_file_is_reported_and_the_last_valid_one_stays() {
    let serve = Serve::start(&Config::new().server("given", testkit::fake()));
    let rest = Rest { serve, folder: tempfile::tempdir().unwrap(), database: None };
    rest.wait_for_status("given", "connected");
    let file = rest.serve.folder().join("config.json");
    let whole = std::fs::read(&file).unwrap();
    let wait_for_issue = |words: &str| {
        wait_until(words, || {
            let health = expect(200, &rest.get("/health"));
            let issues = health["issues"].as_array().unwrap();
            let reported =
                issues.iter().any(|issue| issue["component"] == "config" && issue.to_string().contains(words));
            (reported && health["status"] == "degraded").then_some(())
        });
    };
    std::fs::write(&file, "{").unwrap();
    wait_for_issue("is not valid");
    std::fs::remove_file(&file).unwrap();
    wait_for_issue("does not exist any more");
    rest.wait_for_status("given", "connected");
    std::fs::write(&file, whole).unwrap();
    wait_until("all is well", || (expect(200, &rest.get("/health"))["status"] == "healthy").then_some(()));
}

#[test]
fn an_entry_whose_name_is_registered_is_reported_in_lists_and_health() {
    let rest = Rest { serve: Serve::start(&Config::new()), folder: tempfile::tempdir().unwrap(), database: None };
    rest.register("mine", &[]);
    let file = rest.serve.folder().join("config.json");
    let config_issue = || {
        let health = expect(200, &rest.get("/health"));
        let issues = health["issues"].as_array().unwrap();
        issues.iter().find(|issue| issue["component"] == "config").map(ToString::to_string)
    };
    assert_eq!(config_issue(), None);
    std::fs::write(&file, Config::new().server("mine", testkit::fake()).text()).unwrap();
    let reported = wait_until("it is told", config_issue);
    assert!(reported.contains("`mine`") && reported.contains("registered"), "{reported}");
    std::fs::write(&file, Config::new().text()).unwrap();
    wait_until("it is not told any more", || config_issue().is_none().then_some(()));
}
