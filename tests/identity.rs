//! Roles of static tokens, and identity providers that cannot be used. What a real provider issues is in `real::oauth`.

use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use testkit::http_client::HttpRequest;
use testkit::run::{Output, run_command};
use testkit::{Config, HttpServer, Launch, Script, Serve, fake, free_port, program, wait_until};

const REST: &str = "/api/v1/aggregator";

/// Runs `serve`, which must fail at start, in a folder with this config and a file `secret`.
#[track_caller]
fn refused(config: &str, arguments: &[&str]) -> Output {
    let folder = TempDir::with_prefix("identity-").expect("a temporary folder can be made");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("config.json"), config).expect("it can be written");
    std::fs::write(path("secret"), "hunter2\n").expect("it can be written");
    let mut command = Command::new(program("mcp-aggregator"));
    command.current_dir(folder.path()).args(["serve", "--config", "config.json", "--data-dir", "data"]);
    command.args(arguments).env_remove("MCP_AGGREGATOR_TOKEN").env("HOME", folder.path()).stdin(Stdio::null());
    let output = run_command(&mut command);
    assert!(!output.status.success() && !output.stderr.contains("hunter2"), "{arguments:?}: {output:?}");
    output
}

#[test]
fn an_identity_provider_that_cannot_be_used_is_an_error_that_names_it() {
    let empty = r#"{"mcpServers": {}}"#;
    let issuer = "https://id.example";
    for (arguments, part) in [
        (vec!["--listen", "0", "--oauth-issuer", "http://id.example"], "expected https"),
        (vec!["--oauth-issuer", "id.example"], "expected the address of an identity provider"),
        (vec!["--oauth-issuer", issuer, "--listen", "0.0.0.0:0"], "--public-url"),
        (vec!["--role-claim", "roles"], "--oauth-issuer"),
        (vec!["--oauth-client-id", "x"], "--oauth-issuer"),
        (vec!["--oauth-issuer", issuer, "--oauth-client-id", "x", "--oauth-client-secret-file", "none"], "none"),
        (vec!["--oauth-issuer", issuer, "--oauth-client-secret-file", "secret"], "--oauth-client-id"),
    ] {
        let output = refused(empty, &arguments);
        assert!(output.stderr.contains(part), "{arguments:?}: {}", output.stderr);
    }
    let misspelt = r#"{"mcpServers": {}, "auth": {"issuer": "https://id.example"}}"#;
    let output = refused(misspelt, &["--listen", "0"]);
    assert!(output.stderr.contains("config.json: `auth.issuer` is unknown"), "{}", output.stderr);

    // A web server, which publishes nothing of the kind.
    let website = HttpServer::start(Script::default());
    let output = refused(empty, &["--listen", "0", "--oauth-issuer", &website.origin()]);
    assert!(output.stderr.contains(&website.origin()) && output.stderr.contains("metadata"), "{}", output.stderr);
    assert!(output.stderr.contains("hint: "), "{}", output.stderr);
}

#[test]
fn a_service_starts_while_its_identity_provider_is_unreachable() {
    let issuer = format!("http://127.0.0.1:{}", free_port());
    let config = Config::new().server("fake", fake());
    let serve =
        Serve::start_as(&config, |launch| launch.args(["--oauth-issuer", &issuer]).env_remove("MCP_AGGREGATOR_TOKEN"));
    let health = serve.fetch(&HttpRequest::new("GET", "/health")).json();
    assert_eq!(
        (&health["status"], &health["message"]),
        (&json!("degraded"), &json!(format!("the identity provider {issuer} is unreachable")))
    );
    // A token that says it comes from there: {"alg":"ES256"}.{"iss":issuer,"sub":"ann","aud":…,"exp":…}.
    let encoded = |value: serde_json::Value| base64(value.to_string().as_bytes());
    let url = format!("http://{}", serve.address());
    let claims = json!({"iss": issuer, "sub": "ann", "aud": url, "exp": 4_000_000_000_u64});
    let token = format!("{}.{}.AAAA", encoded(json!({"alg": "ES256"})), encoded(claims));
    let request = HttpRequest::post("/mcp", "{}").header("Authorization", &format!("Bearer {token}"));
    let answer = serve.fetch(&request);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.headers["retry-after"], "6");
    // Commands on this machine have the local token.
    let mut command = Command::new(program("mcp-aggregator"));
    command.args(["call", "fake.echo", "--data-dir"]).arg(serve.folder().join("data"));
    command.env_remove("MCP_AGGREGATOR_TOKEN").stdin(Stdio::null());
    wait_until("a command is served", || run_command(&mut command).status.success().then_some(()));
    assert_eq!(serve.fetch(&HttpRequest::post("/mcp", "{}")).status, 401, "others are not");
}

#[test]
fn a_role_that_is_bound_to_an_unknown_profile_is_reported_at_start() {
    let issuer = format!("http://127.0.0.1:{}", free_port());
    let profiles = json!({"readers": {"classes": ["read_only"]}});
    let auth = json!({"issuers": [issuer], "profiles": {"user": "reeders", "operator": "readers"}});
    let config = Config::new().raw(json!({"mcpServers": {}, "profiles": profiles, "auth": auth}).to_string());
    let serve = Serve::start_as(&config, |launch| launch.env_remove("MCP_AGGREGATOR_TOKEN"));
    serve.wait_for_stderr("binds a role to a profile that does not exist");
    let text = serve.stderr_text();
    assert!(text.contains("profile=reeders") && !text.contains("profile=readers"), "{text}");
}

/// Without padding, in the alphabet of URLs.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number = group.iter().enumerate().fold(0, |sum, (at, byte)| sum | u32::from(*byte) << (16 - 8 * at));
        for digit in 0..=group.len() {
            text.push(char::from(ALPHABET[(number >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}

#[test]
fn static_tokens_have_roles() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    let secret = |letter: &str| letter.repeat(32);
    let lines = format!("ann:{}\nolga:{}:operator\nbob:{}:user\n", secret("a"), secret("o"), secret("b"));
    std::fs::write(tokens.path(), lines).unwrap();
    let adjust = |launch: Launch| launch.arg("--token-file").arg(tokens.path()).env_remove("MCP_AGGREGATOR_TOKEN");
    let serve = Serve::start_as(&Config::new().server("fake", fake()), adjust);
    let status = |letter: &str, path: &str| {
        let request = HttpRequest::new("GET", path).header("Authorization", &format!("Bearer {}", secret(letter)));
        serve.fetch(&request).status
    };
    for (path, expected) in [
        ("/tools", [200, 200, 200]),
        ("/servers", [200, 200, 403]),
        ("/export?secrets=true", [200, 403, 403]),
        ("/audit", [200, 403, 403]),
    ] {
        assert_eq!(["a", "o", "b"].map(|letter| status(letter, &format!("{REST}{path}"))), expected, "{path}");
    }
    for (path, expected) in [("/", [200, 200, 303]), ("/tools", [200; 3]), ("/settings", [200, 403, 403])] {
        assert_eq!(["a", "o", "b"].map(|letter| status(letter, path)), expected, "{path}");
    }
    let whole = HttpRequest::new("GET", REST).header("Authorization", &format!("Bearer {}:operator", secret("o")));
    assert_eq!(serve.fetch(&whole).status, 401);
    serve.wait_for_stderr("a client sends a token together with its role");
    assert!(serve.stderr_text().contains("3 tokens (1 admin, 1 operator, 1 user)"), "{}", serve.stderr_text());
    // A token that contains a colon meant something else before.
    std::fs::write(tokens.path(), "ann:hunter2:more\n").unwrap();
    let old = refused(r#"{"mcpServers": {}}"#, &["--token-file", tokens.path().to_str().unwrap()]);
    assert!(old.stderr.contains("line 1: ") && old.stderr.contains("cannot contain `:`"), "{}", old.stderr);
}
