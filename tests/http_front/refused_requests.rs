//! Refused requests: logged, counted, and limited if they guess tokens.

use std::fs;

use tempfile::TempDir;
use testkit::Serve;
use testkit::http_client::HttpRequest;
use testkit::serve::Fetched;

const STATE: &str = "/api/v1/aggregator/state";
const GOOD: &str = "a-token-of-decent-length";
const SHORT: &str = "short";

fn serving(folder: &TempDir) -> Serve {
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, format!("ann:{GOOD}\nben:{SHORT}\n")).expect("it is ours");
    Serve::in_folder(&folder.path().join("data"), |launch| {
        launch
            .env_remove("MCP_AGGREGATOR_TOKEN")
            .arg("--token-file")
            .arg(&tokens)
            .args(["--limit", "wrong-tokens-per-minute=5"])
    })
}

fn ask(serve: &Serve, path: &str, token: &str) -> Fetched {
    serve.fetch(&HttpRequest::new("GET", path).header("Authorization", &format!("Bearer {token}")))
}

/// The request of the sign-in form without the token, and the start of its body.
fn sign_in_form(serve: &Serve) -> (HttpRequest, String) {
    let door = serve.fetch(&HttpRequest::new("GET", "/login"));
    let cookie = door.headers["set-cookie"].split(';').next().expect("a cookie").to_owned();
    let (_, rest) = door.body.split_once(r#"name="csrf" value=""#).expect("a form has its secret");
    let csrf = rest.split('"').next().expect("it ends");
    let form = HttpRequest::new("POST", "/login").header("Content-Type", "application/x-www-form-urlencoded");
    (form.header("Cookie", &cookie), format!("csrf={csrf}&token="))
}

fn sign_in(serve: &Serve, token: &str) -> Fetched {
    let (form, body) = sign_in_form(serve);
    serve.fetch(&form.body(body + token))
}

#[test]
fn guesses_have_to_wait_and_a_good_token_gets_in_all_the_same() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder);
    assert_eq!(ask(&serve, STATE, SHORT).status, 200);
    for number in 0..5 {
        assert_eq!(ask(&serve, "/mcp", &format!("hidden-guess-{number}")).status, 401);
    }
    for path in ["/mcp", STATE] {
        let limited = ask(&serve, path, "hidden-guess");
        assert_eq!(limited.status, 429, "{limited:?}");
        let wait: u64 = limited.headers["retry-after"].parse().expect("a number of seconds");
        assert!((1..=61).contains(&wait), "{wait}");
    }
    assert_eq!(ask(&serve, STATE, "hidden-guess").json()["error_code"], "LIMIT_REACHED");
    assert_eq!(ask(&serve, STATE, GOOD).status, 200, "nobody else is shut out");
    assert_eq!(ask(&serve, STATE, SHORT).status, 429, "what can be guessed is not believed meanwhile");
    assert_eq!(serve.fetch(&HttpRequest::new("GET", STATE)).status, 401, "who guesses nothing is told what is missing");
    assert_eq!(sign_in(&serve, "hidden-guess").status, 429);
    assert_eq!(sign_in(&serve, SHORT).status, 429);

    let metrics = ask(&serve, "/metrics", GOOD).body;
    for line in [
        "mcp_authentication_failures_total{reason=\"wrong_token\"} 9",
        "mcp_authentication_failures_total{reason=\"missing_token\"} 1",
        "mcp_authentication_limited_total 4",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} is not in {metrics}");
    }
}

#[test]
fn a_flood_of_wrong_tokens_is_logged_in_one_line_without_the_tokens() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder);
    for number in 0..200 {
        ask(&serve, "/mcp?key=hidden-query", &format!("hidden-guess-{number}"));
    }
    assert_eq!(ask(&serve, "/mcp", GOOD).status, 400, "no session is named");
    serve.wait_for_stderr("refused a request: authentication failed");
    let log = serve.stderr_text();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("refused a request: authentication failed")).collect();
    let [line] = lines.as_slice() else { panic!("{log}") };
    for part in ["peer=127.0.0.1", "reason=\"wrong_token\"", "path=\"/mcp\""] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!log.contains("hidden"), "{log}");
}

#[test]
fn wrong_tokens_at_the_sign_in_of_the_console_count_as_well() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, format!("ann:{GOOD}\n")).expect("it is ours");
    let serve = Serve::in_folder(&folder.path().join("data"), |launch| {
        launch
            .env_remove("MCP_AGGREGATOR_TOKEN")
            .arg("--token-file")
            .arg(&tokens)
            .args(["--limit", "wrong-tokens-per-minute=2"])
    });
    let statuses: Vec<u16> = (0..3).map(|_| sign_in(&serve, "hidden-guess").status).collect();
    assert_eq!(statuses, [401, 401, 429]);
    assert_eq!(sign_in(&serve, GOOD).status, 303, "all tokens are good ones");
    serve.wait_for_stderr("path=\"/login\"");
}

#[test]
fn a_wrong_token_is_refused_and_counts_at_the_pages_of_the_console_as_well() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder);
    for path in ["/", "/login", "/tools", "/assets/console.css", "/api/docs"] {
        assert_eq!(ask(&serve, path, "hidden-guess").status, 401, "{path}");
    }
    for path in ["/", "/login", STATE] {
        assert_eq!(ask(&serve, path, "hidden-guess").status, 429, "{path}");
        assert_eq!(ask(&serve, path, SHORT).status, 429, "{path}: what can be guessed is not believed");
    }
    assert_eq!(ask(&serve, "/tools", GOOD).status, 200);
    assert_eq!(serve.fetch(&HttpRequest::new("GET", "/login")).status, 200, "who shows none may sign in");
    let for_a_proxy = HttpRequest::new("GET", "/login").header("Authorization", "Basic YW5uOnNlY3JldA==");
    assert_eq!(serve.fetch(&for_a_proxy).status, 200, "a password for a proxy is no token");
}

#[test]
fn a_signed_in_user_cannot_guess_other_tokens_at_the_sign_in_page() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder);
    let (form, body) = sign_in_form(&serve);
    let form = form.header("Authorization", &format!("Bearer {GOOD}"));
    let guess = |token: &str| serve.fetch(&form.clone().body(format!("{body}{token}"))).status;
    let statuses: Vec<u16> = (0..6).map(|_| guess("hidden-guess")).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
    assert_eq!(guess(SHORT), 429);
}

#[test]
fn a_guess_that_waits_for_its_last_byte_counts_when_it_is_whole() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder);
    let (form, body) = sign_in_form(&serve);
    let mut waiting = serve.connect();
    let request = form.clone().body(format!("{body}{SHORT}")).to_bytes(serve.address());
    let (all_but_one, last) = request.split_at(request.len() - 1);
    waiting.write(all_but_one).expect("the service reads");
    let statuses: Vec<u16> =
        (0..6).map(|_| serve.fetch(&form.clone().body(format!("{body}hidden-guess"))).status).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
    waiting.write(last).expect("the service reads");
    assert_eq!(waiting.answer().status, 429);
}

#[test]
fn unauthenticated_clients_may_send_little_and_signed_in_ones_much() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder);
    let large = "x".repeat(65 << 10);
    let refused = sign_in(&serve, &large);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(refused.body.contains("at most 64 kB without a token"), "{refused:?}");
    let inside = sign_in(&serve, GOOD);
    assert_eq!(inside.status, 303);
    let cookie = inside.headers["set-cookie"].split(';').next().expect("a cookie").to_owned();
    let form = HttpRequest::new("POST", "/import").header("Content-Type", "application/x-www-form-urlencoded");
    // It is read to its end, and then refused because it has no valid CSRF token.
    assert_eq!(serve.fetch(&form.header("Cookie", &cookie).body(format!("csrf=wrong&x={large}"))).status, 403);
}
