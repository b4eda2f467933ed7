//! Services that sign in: over REST, and two on one database.

use serde_json::{Value, json};
use testkit::client_session::ClientSession;
use testkit::http_client::HttpRequest;
use testkit::modern::Myself;
use testkit::run::run;
use testkit::{Postgres, Signal, program, wait_until};

use super::home::{asks_to_sign_in, files_in};
use super::person::{Page, Person, Say};
use super::provider::{Provider, SERVER};
use crate::rest::{Begun, PREFIX, Rest, expect};

/// How many calls each of two services makes at once.
const AT_ONCE: usize = 25;

/// How often a service is killed in the middle of a refresh.
const KILLS: usize = 12;

/// Encrypts what services on one database share.
const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn registration(provider: &Provider) -> Value {
    json!({"name": SERVER, "transport_type": "http", "connection_config": {"url": provider.server}})
}

/// Starts a sign-in and opens its address.
#[track_caller]
fn sign_in(rest: &Rest, person: &mut Person, say: Say) -> Page {
    let attempt = expect(200, &rest.order("/servers/protected/login"));
    assert!(attempt["expires_at"].is_string(), "{attempt}");
    let address = attempt["authorization_url"].as_str().expect("an address").to_owned();
    assert_eq!(login_state(rest)["state"], "pending");
    person.open(&address, say)
}

#[track_caller]
fn login_state(rest: &Rest) -> Value {
    expect(200, &rest.get("/servers/protected/login"))
}

/// Sends a call; its answer is still to come.
fn begin(rest: &Rest) -> Begun {
    let mut connection = rest.serve.connect();
    connection.send(&HttpRequest::post(&format!("{PREFIX}/tools/call"), r#"{"name":"protected.whoami"}"#));
    Begun(connection)
}

#[track_caller]
fn whoami(rest: &Rest) -> String {
    name_in(&expect(200, &rest.call("protected.whoami", &json!({}))))
}

/// Who is signed in, in the answer to a call.
#[track_caller]
fn name_in(answer: &Value) -> String {
    let text = ["/result/content/0/text", "/content/0/text"].iter().find_map(|path| answer.pointer(path)?.as_str());
    text.unwrap_or_else(|| panic!("no text in {answer}")).to_owned()
}

#[test]
fn a_service_signs_in_over_rest_and_stays_signed_in() {
    let Some(provider) = Provider::start() else { return };
    let mut rest = Rest::start();
    expect(201, &rest.post("/servers", &registration(&provider)));
    rest.wait_for_status(SERVER, "sign_in_required");
    assert_eq!(login_state(&rest)["state"], "none");
    let mut session = rest.serve.session("/mcp");
    let answer = session.ask("tools/call", json!({"name": "protected.whoami", "arguments": {}}));
    assert!(asks_to_sign_in(&answer), "{answer}");

    let mut person = Person::new("ada");
    let page = sign_in(&rest, &mut person, Say::No);
    assert_eq!(page.url.path(), "/oauth/callback");
    wait_until("the refusal is known", || (login_state(&rest)["state"] == "failed").then_some(()));
    let page = sign_in(&rest, &mut person, Say::Yes);
    assert_eq!((page.status, page.url.path()), (200, "/oauth/callback"), "{page:?}");
    assert!(page.text.contains(SERVER), "{page:?}");
    rest.wait_for_status(SERVER, "connected");
    assert_eq!(login_state(&rest)["state"], "signed_in");
    assert_eq!(whoami(&rest), "ada");

    rest = rest.restarted(true);
    rest.wait_for_status(SERVER, "connected");
    expect(200, &rest.patch("/servers/protected", &json!({"name": "renamed"})));
    rest.wait_for_status("renamed", "connected");
    expect(200, &rest.patch("/servers/renamed", &json!({"name": SERVER})));
    rest.wait_for_status(SERVER, "connected");
    assert_eq!(whoami(&rest), "ada");
    assert_eq!(provider.journal("registered").len(), 1);

    expect(200, &rest.delete("/servers/protected/login"));
    rest.wait_for_status(SERVER, "sign_in_required");
    assert_eq!(provider.secrets(), Vec::<String>::new(), "the provider knows no token any more");
    assert_eq!(login_state(&rest)["state"], "none");
    provider.expect_no_reuse();
}

#[test]
fn a_client_that_can_be_asked_is_sent_to_the_sign_in_page_and_its_call_continues() {
    let Some(provider) = Provider::start() else { return };
    let rest = Rest::start();
    expect(201, &rest.post("/servers", &registration(&provider)));
    rest.wait_for_status(SERVER, "sign_in_required");
    let mut person = Person::new("ada");

    let mut legacy = rest.serve.interactive_session("/mcp");
    legacy.listen();
    let call = legacy.begin_call("protected.whoami", json!({}));
    let question = legacy.question("elicitation/create");
    assert_eq!(question["params"]["mode"], "url", "{question}");
    legacy.reply(&question, json!({"action": "accept"}));
    let page = person.open(question["params"]["url"].as_str().expect("an address"), Say::Yes);
    assert_eq!(page.status, 200, "{page:?}");
    assert_eq!(name_in(&legacy.answer_to(call)["result"]), "ada");

    expect(200, &rest.delete("/servers/protected/login"));
    rest.wait_for_status(SERVER, "sign_in_required");
    let mut modern = rest.serve.modern("/mcp");
    modern.myself = Myself::interactive();
    let params = json!({"name": "protected.whoami", "arguments": {}});
    let answer = modern.ask("tools/call", params.clone());
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    let (name, question) =
        answer["result"]["inputRequests"].as_object().and_then(|all| all.iter().next()).expect("one");
    let page = person.open(question["params"]["url"].as_str().expect("an address"), Say::Yes);
    assert_eq!(page.status, 200, "{page:?}");
    let mut again = params;
    again["inputResponses"] = json!({name: {"action": "accept"}});
    again["requestState"] = answer["result"]["requestState"].clone();
    assert_eq!(name_in(&modern.ask("tools/call", again)["result"]), "ada");
    provider.expect_no_reuse();
}

#[test]
fn tokens_are_not_in_the_registry_nor_in_logs_and_exports() {
    let Some(provider) = Provider::start() else { return };
    let rest = Rest::start_as(|launch| launch.arg("--debug"));
    expect(201, &rest.post("/servers", &registration(&provider)));
    rest.wait_for_status(SERVER, "sign_in_required");
    sign_in(&rest, &mut Person::new("ada"), Say::Yes);
    rest.wait_for_status(SERVER, "connected");
    assert_eq!(whoami(&rest), "ada");
    provider.forget_access_tokens();
    assert_eq!(whoami(&rest), "ada");

    let mut seen: Vec<(String, Vec<u8>)> = vec![("stderr".to_owned(), rest.serve.stderr_text().into_bytes())];
    for path in ["/servers", "/servers/protected", "/servers/protected/login", "/servers/protected/history", "/audit"] {
        seen.push((path.to_owned(), rest.get(path).body.into_bytes()));
    }
    let data = rest.folder.path().join("data");
    let export = run(program("mcp-aggregator"), ["export", "--data-dir", data.to_str().expect("a plain path")]);
    assert!(export.status.success() && export.stdout.contains(SERVER), "{export:?}");
    seen.push(("export".to_owned(), export.stdout.into_bytes()));
    seen.extend(files_in(&data).into_iter().map(|(path, bytes)| (path.display().to_string(), bytes)));
    let secrets = provider.secrets();
    assert!(secrets.len() >= 3, "{secrets:?}");
    for (place, bytes) in &seen {
        for secret in &secrets {
            let is_inside = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_inside, "a token is in {place}");
        }
    }
}

#[test]
fn a_redirect_that_belongs_to_no_attempt_changes_nothing() {
    let Some(provider) = Provider::start() else { return };
    let rest = Rest::start();
    expect(201, &rest.post("/servers", &registration(&provider)));
    rest.wait_for_status(SERVER, "sign_in_required");
    let attempt = expect(200, &rest.order("/servers/protected/login"));
    let address = attempt["authorization_url"].as_str().expect("an address").to_owned();
    for query in ["code=stolen&state=guessed", "code=stolen", "", "error=call+us&state=guessed"] {
        expect_refusal(&rest, query);
    }
    assert_eq!(provider.journal("token"), Vec::<Value>::new());
    assert_eq!(login_state(&rest)["state"], "pending", "what others sent has changed nothing");
    let page = Person::new("ada").open(&address, Say::Yes);
    assert_eq!(page.status, 200, "{page:?}");
    rest.wait_for_status(SERVER, "connected");
    // Its callback works once.
    expect_refusal(&rest, page.url.query().expect("a redirect has a query"));
    assert_eq!(whoami(&rest), "ada");
}

#[test]
fn a_redirect_of_another_issuer_is_not_accepted() {
    let Some(provider) = Provider::start() else { return };
    let rest = Rest::start();
    expect(201, &rest.post("/servers", &registration(&provider)));
    rest.wait_for_status(SERVER, "sign_in_required");
    for answer in ["code=stolen", "error=access_denied&error_description=%3Cb%3Ecall+us%3C%2Fb%3E"] {
        let attempt = expect(200, &rest.order("/servers/protected/login"));
        let url = url::Url::parse(attempt["authorization_url"].as_str().expect("an address")).expect("an address");
        let state = url.query_pairs().find(|(name, _)| name == "state").expect("there is a state").1.into_owned();
        expect_refusal(&rest, &format!("{answer}&state={state}&iss=https%3A%2F%2Fevil.example"));
        assert_ne!(login_state(&rest)["state"], "signed_in");
    }
    assert_eq!(provider.journal("token"), Vec::<Value>::new());
    sign_in(&rest, &mut Person::new("ada"), Say::Yes);
    rest.wait_for_status(SERVER, "connected");
}

/// The callback does not accept this query, and repeats nothing of it.
#[track_caller]
fn expect_refusal(rest: &Rest, query: &str) {
    let answer = rest.serve.fetch(&HttpRequest::new("GET", &format!("/oauth/callback?{query}")));
    assert!((400..500).contains(&answer.status), "{query}: {answer:?}");
    assert!(!answer.body.contains("stolen") && !answer.body.contains("call us"), "{answer:?}");
}

#[test]
fn two_services_on_one_database_refresh_once() {
    let Some(provider) = Provider::start() else { return };
    let Some(postgres) = Postgres::shared() else { return };
    let url = postgres.database("sign-ins");
    let start = || Rest::start_as(|launch| launch.args(["--database", &url]).env("MCP_CREDENTIAL_KEY", KEY));
    let first = start();
    expect(201, &first.post("/servers", &registration(&provider)));
    first.wait_for_status(SERVER, "sign_in_required");
    let second = start();
    second.wait_for_status(SERVER, "sign_in_required");
    let page = sign_in(&first, &mut Person::new("ada"), Say::Yes);
    assert_eq!(page.status, 200, "{page:?}");
    for rest in [&first, &second] {
        rest.wait_for_status(SERVER, "connected");
        assert_eq!(whoami(rest), "ada");
    }
    for round in 1..=5 {
        provider.forget_access_tokens();
        provider.set(&json!({"unauthorized_together": 2 * AT_ONCE}));
        let mut calls: Vec<Begun> = (0..AT_ONCE).flat_map(|_| [begin(&first), begin(&second)]).collect();
        for call in &mut calls {
            assert_eq!(name_in(&expect(200, &call.answer())), "ada");
        }
        assert_eq!(provider.refreshes().len(), round, "{:?}", provider.refreshes());
        provider.expect_no_reuse();
    }
    expect(200, &second.delete("/servers/protected/login"));
    for rest in [&first, &second] {
        rest.wait_for_status(SERVER, "sign_in_required");
    }
}

#[test]
fn a_service_killed_in_the_middle_of_refreshes_uses_no_refresh_token_twice() {
    let Some(provider) = Provider::start() else { return };
    let mut rest = Rest::start();
    expect(201, &rest.post("/servers", &registration(&provider)));
    rest.wait_for_status(SERVER, "sign_in_required");
    let mut person = Person::new("ada");
    sign_in(&rest, &mut person, Say::Yes);
    rest.wait_for_status(SERVER, "connected");
    for round in 0..KILLS {
        assert_eq!(whoami(&rest), "ada", "round {round}");
        let held = provider.journal("held").len();
        provider.set(&json!({"hold": if round % 2 == 0 { "before" } else { "after" }}));
        provider.forget_access_tokens();
        let _call = begin(&rest);
        provider.wait_for("held", held + 1);
        rest.serve.signal(Signal::KILL);
        provider.set(&json!({"hold": null}));
        rest = rest.restarted(true);
        // A refresh that was begun is not repeated.
        let server = rest.wait_for_status(SERVER, "sign_in_required");
        let why = server["error_message"].as_str().expect("it says why");
        assert!(why.contains("interrupted"), "{server}");
        provider.expect_no_reuse();
        sign_in(&rest, &mut person, Say::Yes);
        rest.wait_for_status(SERVER, "connected");
    }
}
