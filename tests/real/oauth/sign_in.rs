//! `login` and `logout`, what is stored, what is asked for, and machines.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::{Driver, wait_until};

use super::home::{HINT, Home, asks_to_sign_in};
use super::person::{Person, Say};
use super::provider::Provider;
use crate::fixture::text_of;

/// Calls a tool that must answer with a text.
#[track_caller]
pub(super) fn text(client: &mut Driver, tool: &str, arguments: Value) -> String {
    let answer = client.call(&format!("protected.{tool}"), arguments);
    assert!(answer["result"]["isError"] != true && answer["error"].is_null(), "{answer}\n{}", client.stderr_text());
    text_of(&answer).to_owned()
}

#[test]
fn a_person_signs_in_once_and_every_command_uses_it() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    let before = home.run(&["call", "protected.whoami"]);
    assert!(!before.status.success() && before.stderr.contains(HINT), "{before:?}");

    let login = home.login(&mut Person::new("ada"));
    for tool in ["whoami", "write"] {
        assert!(login.text.contains(tool), "{}", login.text);
    }
    let mut client = home.stdio();
    assert_eq!(client.tool_names(), ["protected.whoami", "protected.write"]);
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    let call = home.run(&["call", "protected.whoami"]);
    assert_eq!((call.stdout.trim(), call.status.code()), ("ada", Some(0)), "{call:?}");

    let registered = provider.journal("registered");
    assert_eq!(registered.len(), 1, "{registered:?}");
    assert_eq!(registered[0]["type"], "native");
    let tokens = provider.journal("token");
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert_eq!((&tokens[0]["resource"], &tokens[0]["status"]), (&json!(provider.server), &json!(200)));
    provider.expect_no_reuse();
}

#[test]
fn a_client_that_runs_already_takes_up_a_sign_in_of_another_process() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    let mut client = home.stdio();
    let answer = client.call("protected.whoami", json!({}));
    assert!(asks_to_sign_in(&answer), "{answer}");
    home.login(&mut Person::new("ada"));
    // A client that uses the tool again is served, and one that only listens is told of the tools.
    wait_until("the sign-in is taken up", || {
        client.tool_names().contains(&"protected.whoami".to_owned()).then_some(())
    });
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
}

#[test]
fn tokens_are_sealed_in_a_private_file_and_printed_nowhere() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    let login = home.login(&mut Person::new("ada"));
    let mut client = home.launch(&["stdio", "--debug"]).start();
    client.initialize();
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    provider.forget_access_tokens();
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    client.close_stdin();
    client.wait_exit();

    let secrets = provider.secrets();
    // Those that were rotated out are known too.
    assert!(secrets.len() >= 3, "{secrets:?}");
    let printed = format!("{}{}", login.text, client.stderr_text());
    let stored = home.stored();
    assert!(!stored.is_empty());
    for secret in &secrets {
        assert!(!printed.contains(secret), "a token is printed");
        for (path, bytes) in &stored {
            let is_inside = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_inside, "a token is in {}", path.display());
        }
    }
    let (path, _) = stored.iter().find(|(path, _)| path.ends_with("sign-ins.json")).expect("it has its file");
    let mode = std::fs::metadata(path).expect("the file is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_person_who_refuses_is_not_signed_in() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    let mut person = Person::new("ada");
    let login = home.login_as(&mut person, Say::No);
    assert!(!login.succeeded, "{login:?}");
    assert!(login.text.contains("access_denied"), "{}", login.text);
    assert_eq!(provider.journal("token"), Vec::<Value>::new());
    let call = home.run(&["call", "protected.whoami"]);
    assert!(!call.status.success() && call.stderr.contains(HINT), "{call:?}");
    home.login(&mut person);
    assert_eq!(home.run(&["call", "protected.whoami"]).stdout.trim(), "ada");
}

#[test]
fn logout_revokes_and_forgets() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    home.login(&mut Person::new("ada"));
    let mut client = home.stdio();
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    let logout = home.run(&["logout", "protected"]);
    assert!(logout.status.success(), "{logout:?}");
    assert_eq!(provider.secrets(), Vec::<String>::new(), "the provider knows no token any more");
    let answer = client.call("protected.whoami", json!({}));
    assert!(asks_to_sign_in(&answer), "{answer}");
    let call = home.run(&["call", "protected.whoami"]);
    assert!(!call.status.success() && call.stderr.contains(HINT), "{call:?}");
    assert_eq!(provider.refreshes(), Vec::<Value>::new(), "a token that was revoked is not refreshed");
}

#[test]
fn a_tool_that_needs_more_asks_for_a_sign_in_and_the_server_stays_connected() {
    let Some(provider) = Provider::start() else { return };
    provider.set(&json!({"write_scope": "notes:write"}));
    let home = Home::with(&provider.entry());
    let mut person = Person::new("ada");
    home.login(&mut person);
    let mut client = home.stdio();
    let answer = client.call("protected.write", json!({"text": "one"}));
    assert!(asks_to_sign_in(&answer), "{answer}");
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    home.login(&mut person);
    assert_eq!(text(&mut client, "write", json!({"text": "two"})), "wrote two");
    let asked = provider.journal("authorized");
    let last = asked.last().and_then(|request| request["scope"].as_str()).expect("a scope was asked for");
    assert!(["notes:read", "notes:write"].iter().all(|scope| last.split(' ').any(|asked| asked == *scope)), "{last}");
    provider.expect_no_reuse();
}

#[test]
fn a_machine_signs_in_by_itself() {
    let Some(provider) = Provider::start() else { return };
    let mut entry = provider.entry();
    entry["oauth"] = json!({
        "grant": "client_credentials",
        "client_id": "machine",
        "client_secret": "machine: secret/with+signs%",
    });
    let home = Home::with(&entry);
    let mut client = home.stdio();
    assert_eq!(text(&mut client, "whoami", json!({})), "machine");
    provider.forget_access_tokens();
    assert_eq!(text(&mut client, "whoami", json!({})), "machine");
    let tokens = provider.journal("token");
    assert_eq!(tokens.len(), 2, "{tokens:?}");
    assert!(tokens.iter().all(|token| token["grant"] == "client_credentials" && token["status"] == 200), "{tokens:?}");
    assert_eq!(provider.journal("registered"), Vec::<Value>::new());
}
