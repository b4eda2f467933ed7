//! What comes from the config file is kept in the registry as well, and follows the file.

use serde_json::json;
use testkit::{Config, Serve, wait_until};

use super::{Rest, expect_error, fake, names};

#[test]
fn what_the_config_file_says_is_changed_there_and_nowhere_else() {
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
    std::fs::write(&file, Config::new().text()).unwrap();
    wait_until("what the file no longer names is gone", || {
        (names(&rest.get("/servers").json()) == ["mine"]).then_some(())
    });
}
