//! Profiles in the config file, over REST, and on the command line.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{ClientSession as _, Config, Serve, wait_until};

use super::{dev, get, git, put, service, vault};
use crate::relay::serving;
use crate::rest::{PREFIX, expect, expect_error, expect_problems};

#[test]
fn a_profile_is_set_shown_listed_replaced_and_removed() {
    let (git, vault) = (git(), vault());
    let serve = serving(&[("vault", &vault), ("git", &git)]);
    let set = expect(201, &put(&serve, "dev", &dev()));
    let sees = json!({"servers": 1, "tools": 1, "prompts": 1, "resources": 1, "resource_templates": 1});
    assert_eq!((&set["sees"], &set["origin"], &set["warnings"]), (&sees, &json!("registered"), &json!([])), "{set}");
    assert_eq!(set["tools"], json!(["git.*", "!git.push"]));
    assert_eq!(expect(200, &get(&serve, "/profiles/dev")), set);
    assert_eq!(expect(200, &get(&serve, "/profiles")), json!([set]));
    let replaced = expect(200, &put(&serve, "dev", &json!({"classes": ["read_only"]})));
    assert_eq!((&replaced["servers"], &replaced["sees"]["tools"]), (&Value::Null, &json!(0)), "{replaced}");
    let remove = || serve.fetch(&HttpRequest::new("DELETE", &format!("{PREFIX}/profiles/dev")));
    assert_eq!(remove().status, 204);
    expect_error(404, "PROFILE_NOT_FOUND", &remove());
    expect_error(404, "PROFILE_NOT_FOUND", &get(&serve, "/profiles/dev"));
    let audit = expect(200, &get(&serve, "/audit?target=dev"));
    let actions: Vec<&str> = audit.as_array().unwrap().iter().filter_map(|row| row["action"].as_str()).collect();
    assert_eq!(actions, ["profile.remove", "profile.set", "profile.set"]);
}

#[test]
fn what_is_wrong_with_a_profile_is_named() {
    let (git, vault) = (git(), vault());
    let serve = serving(&[("vault", &vault), ("git", &git)]);
    let problem = |spec: Value| expect_problems(&put(&serve, "dev", &spec))[0].0.clone();
    assert_eq!(problem(json!({"tool": ["git.*"]})), "body.tool");
    assert_eq!(problem(json!({"tools": ["git.*", "!!x"]})), "body.tools.1");
    assert_eq!(problem(json!({"classes": ["readonly"]})), "body.classes.0");
    assert_eq!(problem(json!({"surface": "all"})), "body.surface");
    assert_eq!(problem(json!({"servers": ["gti"]})), "body.servers.0", "it matches nothing");
    assert_eq!(problem(json!({"tools": ["git.*", "!git.pusj"]})), "body.tools.1");
    assert_eq!(problem(json!({"servers": ["git"], "tools": ["vault.*"]})), "body.tools.0");
    assert_eq!(problem(json!({"tools": ["!git.push"], "pinned": ["git.push"]})), "body.pinned.0");
    assert_eq!(expect_problems(&put(&serve, "a%20b", &json!({})))[0].0, "path.profile");
    // What a resource pattern matches may not be listed.
    let set = expect(201, &put(&serve, "dev", &json!({"resources": ["more://*"]})));
    assert_eq!(set["warnings"].as_array().map(Vec::len), Some(1), "{set}");
}

#[test]
fn profiles_of_the_config_file_are_read_only_and_followed() {
    let git = git();
    let config = Config::new().server("git", git.entry());
    let mut file: Value = serde_json::from_str(&config.text()).unwrap();
    file["profiles"] = json!({"dev": {"tools": ["git.log"]}});
    let serve = Serve::start(&Config::new().raw(file.to_string()));
    let mut client = serve.session("/mcp/@dev");
    client.listen();
    client.wait_for_item("tools/list", "git.log", true);
    expect_error(409, "PROFILE_READ_ONLY", &put(&serve, "dev", &json!({})));
    let remove = serve.fetch(&HttpRequest::new("DELETE", &format!("{PREFIX}/profiles/dev")));
    expect_error(409, "PROFILE_READ_ONLY", &remove);
    assert_eq!(expect(200, &get(&serve, "/profiles/dev"))["origin"], "config");

    file["profiles"]["dev"]["tools"] = json!(["git.push"]);
    std::fs::write(serve.folder().join("config.json"), file.to_string()).unwrap();
    client.wait_for_item("tools/list", "git.push", true);
    assert_eq!(client.ids("tools/list"), ["git.push"]);
}

#[test]
fn profiles_survive_a_restart_and_an_export() {
    let (git, vault) = (git(), vault());
    let serve = service(&git, &vault);
    let exported = expect(200, &get(&serve, "/export"));
    assert_eq!(exported["profiles"], json!({ "dev": dev() }));
    let other = serving(&[("git", &git)]);
    let import = HttpRequest::post(&format!("{PREFIX}/import"), exported.to_string());
    assert_eq!(expect(200, &other.fetch(&import))["profiles"], 1);
    wait_until("the imported profile is in effect", || (get(&other, "/profiles/dev").status == 200).then_some(()));
    assert_eq!(other.session("/mcp/@dev").ids("tools/list"), ["git.log"]);
}
