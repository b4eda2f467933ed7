//! Admission: Host, Origin and tokens, each alone.

use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::NamedTempFile;
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::run::run_command;
use testkit::{ClientSession, Config, HttpSession, ModernHttp, Output, Puppet, Serve, Spec, SseClient, program};

use super::{PING, assert_echoes, initialize};
use crate::relay::{config, serving};

fn puppet() -> Puppet {
    Puppet::new(Spec::legacy().tool("t").echoes())
}

fn token_file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(file.path(), text).expect("it can be written");
    file
}

/// Every endpoint.
fn all_ways() -> [HttpRequest; 6] {
    [
        HttpRequest::post("/mcp", initialize("2025-11-25")),
        HttpRequest::post("/mcp/s", initialize("2025-11-25")),
        HttpRequest::stream("/mcp"),
        HttpRequest::new("DELETE", "/mcp"),
        HttpRequest::stream("/sse"),
        HttpRequest::post("/message?sessionId=x", PING),
    ]
}

#[test]
fn a_foreign_origin_is_refused_whatever_the_host() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    for ask in all_ways() {
        for origin in [
            "http://evil.example",
            "https://localhost.evil.example",
            "null",
            "http://127.0.0.1.evil.example",
            "file://",
        ] {
            assert_eq!(serve.fetch(&ask.clone().header("Origin", origin)).status, 403, "{origin} {ask:?}");
        }
    }
    let port = serve.address().port();
    for origin in [format!("http://127.0.0.1:{port}"), "http://localhost:3000".to_owned(), "http://[::1]:1".to_owned()]
    {
        let ask = HttpRequest::post("/mcp", initialize("2025-11-25")).header("Origin", &origin);
        assert_eq!(serve.fetch(&ask).status, 200, "{origin}");
    }
}

#[test]
fn a_foreign_host_is_refused_without_any_origin() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    for ask in all_ways() {
        for host in ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "169.254.169.254"] {
            assert_eq!(serve.fetch(&ask.clone().header("Host", host)).status, 403, "{host} {ask:?}");
        }
    }
    for host in ["localhost", "localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:80"] {
        let ask = HttpRequest::post("/mcp", initialize("2025-11-25")).header("Host", host);
        assert_eq!(serve.fetch(&ask).status, 200, "{host}");
    }
}

#[test]
fn hosts_and_origins_can_be_allowed() {
    let puppet = puppet();
    let serve = Serve::start_as(&config(&[("s", &puppet)]), |launch| {
        launch.args(["--allow-host", "mcp.example", "--allow-origin", "https://app.example"])
    });
    let ask = HttpRequest::post("/mcp", initialize("2025-11-25"));
    assert_eq!(serve.fetch(&ask.clone().header("Host", "mcp.example")).status, 200);
    let from_app = serve.fetch(&ask.clone().header("Origin", "https://app.example"));
    assert_eq!(from_app.status, 200);
    assert_eq!(from_app.headers.get("access-control-allow-origin").map(String::as_str), Some("https://app.example"));
    assert_eq!(serve.fetch(&ask.clone().header("Host", "other.example")).status, 403);
    assert_eq!(serve.fetch(&ask.header("Origin", "http://app.example")).status, 403);

    let preflight = |origin: &str| {
        let ask = HttpRequest::new("OPTIONS", "/mcp").header("Origin", origin);
        serve.fetch(&ask.header("Access-Control-Request-Method", "POST"))
    };
    let allowed = preflight("https://app.example");
    assert!(allowed.status == 204 || allowed.status == 200, "{allowed:?}");
    assert!(allowed.headers.contains_key("access-control-allow-methods"), "{allowed:?}");
    let refused = preflight("https://evil.example");
    assert_eq!(refused.status, 403);
    assert!(!refused.headers.contains_key("access-control-allow-origin"), "{refused:?}");
}

#[test]
fn pages_of_other_ports_of_this_machine_may_use_mcp_and_nothing_else() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let port = serve.address().port();
    let own = format!("http://127.0.0.1:{port}");
    let private = [
        ("GET", "/api/v1/aggregator/servers"),
        ("POST", "/api/v1/aggregator/servers"),
        ("GET", "/api/v1/aggregator/export"),
        ("GET", "/metrics"),
        ("GET", "/"),
        ("GET", "/settings"),
        ("POST", "/export"),
        ("GET", "/assets/console.css"),
    ];
    for other in
        ["http://localhost:3000", "http://127.0.0.1:3000", &format!("http://localhost:{port}"), "https://[::1]:1"]
    {
        let preflight = |path: &str| {
            let ask = HttpRequest::new("OPTIONS", path).header("Origin", other);
            serve.fetch(&ask.header("Access-Control-Request-Method", "POST"))
        };
        for (method, path) in private {
            for answer in [serve.fetch(&HttpRequest::new(method, path).header("Origin", other)), preflight(path)] {
                assert_eq!(answer.status, 403, "{other} {method} {path}: {answer:?}");
                let granted = answer.headers.keys().find(|name| name.starts_with("access-control"));
                assert_eq!(granted, None, "{other} {method} {path}");
            }
        }
        assert_eq!(preflight("/mcp").status, 204);
        let mcp = serve.fetch(&HttpRequest::post("/mcp", initialize("2025-11-25")).header("Origin", other));
        assert_eq!((mcp.status, mcp.headers["access-control-allow-origin"].as_str()), (200, other));
    }
    // Browsers send no Origin for images, scripts and frames, but other headers.
    for (method, path) in private {
        for site in ["same-site", "cross-site"] {
            let answer = serve.fetch(&HttpRequest::new(method, path).header("Sec-Fetch-Site", site));
            assert_eq!(answer.status, 403, "{site} {method} {path}: {answer:?}");
        }
    }
    let link = HttpRequest::new("GET", "/").header("Sec-Fetch-Site", "cross-site").header("Sec-Fetch-Mode", "navigate");
    assert_eq!(serve.fetch(&link.header("Sec-Fetch-Dest", "document")).status, 200, "somebody follows a link");
    for path in ["/", "/api/v1/aggregator/servers"] {
        let ask = HttpRequest::new("GET", path).header("Origin", &own).header("Sec-Fetch-Site", "same-origin");
        let answer = serve.fetch(&ask);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "our own pages need no permission");
    }
}

#[test]
fn with_tokens_requests_without_one_are_refused() {
    let puppet = puppet();
    let tokens = token_file("# who may\nann:secret-of-ann\n\nben:secret-of-ben:user\n");
    let serve = Serve::start_as(&config(&[("s", &puppet)]), |launch| {
        launch.arg("--token-file").arg(tokens.path()).args(["--limit", "wrong-tokens-per-minute=1000"])
    });
    for ask in all_ways() {
        for credentials in [
            None,
            Some("Bearer"),
            Some("Bearer wrong"),
            Some("Bearer secret-of-an"),
            Some("Bearer secret-of-annn"),
            Some("Bearer ann:secret-of-ann"),
            Some("Basic secret-of-ann"),
            Some("secret-of-ann"),
        ] {
            let ask = credentials.iter().fold(ask.clone(), |ask, value| ask.header("Authorization", value));
            let answer = serve.fetch(&ask);
            assert_eq!(answer.status, 401, "{credentials:?} {ask:?}");
            let challenge = answer.headers.get("www-authenticate").map(String::as_str).unwrap_or_default();
            assert!(challenge.starts_with("Bearer"), "{answer:?}");
        }
    }
    for token in ["secret-of-ann", "secret-of-ben"] {
        let hello = Hello::default().with_token(token);
        assert_echoes(&mut HttpSession::introduce(serve.address(), "/mcp", &hello), "s.t");
        assert_echoes(&mut SseClient::introduce(serve.address(), "/sse", &hello), "s.t");
        assert_echoes(&mut ModernHttp::new(serve.address(), "/mcp").with_token(token), "s.t");
    }
    // The scheme is case-insensitive.
    let ask = HttpRequest::post("/mcp", initialize("2025-11-25")).header("Authorization", "bearer secret-of-ann");
    assert_eq!(serve.fetch(&ask).status, 200);
    let health = serve.fetch(&HttpRequest::new("GET", "/health"));
    assert_eq!(health.status, 200);
}

#[test]
fn a_session_is_bound_to_the_token_it_was_opened_with() {
    let puppet = puppet();
    let tokens = token_file("ann:secret-of-ann\nben:secret-of-ben\n");
    let serve = Serve::start_as(&config(&[("s", &puppet)]), |launch| launch.arg("--token-file").arg(tokens.path()));
    let mut ann = HttpSession::introduce(serve.address(), "/mcp", &Hello::default().with_token("secret-of-ann"));
    let as_ben = |ask: HttpRequest| ask.header("Authorization", "Bearer secret-of-ben");
    for ask in [ann.post(PING), ann.get(), ann.dressed(HttpRequest::new("DELETE", "/mcp"))] {
        assert_eq!(serve.fetch(&as_ben(ask)).status, 404);
    }
    assert_echoes(&mut ann, "s.t");
    let older = SseClient::introduce(serve.address(), "/sse", &Hello::default().with_token("secret-of-ann"));
    assert_eq!(serve.fetch(&as_ben(HttpRequest::post(&older.endpoint, PING))).status, 404);
}

/// The environment variables with credentials of our own.
const KEYS: [&str; 8] = [
    "MCP_CLASSIFIER_API_KEY",
    "MCP_EMBEDDINGS_API_KEY",
    "QDRANT_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "PGPASSWORD",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
];

#[test]
fn a_token_reaches_no_server_and_no_log() {
    let (local, web) = (puppet(), Puppet::over_http(Spec::legacy().tool("t").echoes()));
    let modern = Puppet::over_http(Spec::modern().tool("t").echoes());
    let serve = Serve::start_as(&config(&[("s", &local), ("web", &web), ("modern", &modern)]), |launch| {
        let key = "ab".repeat(32);
        let launch = launch.env("MCP_AGGREGATOR_TOKEN", "the-one-secret").env("MCP_CREDENTIAL_KEY", key);
        KEYS.iter().fold(launch, |launch, name| launch.env(name, "the-one-secret, too")).arg("--debug")
    });
    let mut client = HttpSession::introduce(serve.address(), "/mcp", &Hello::default().with_token("the-one-secret"));
    for tool in ["s.t", "web.t", "modern.t"] {
        assert_echoes(&mut client, tool);
    }
    web.change(|spec| spec.leaves("tools/call"));
    modern.change(|spec| spec.leaves("tools/call"));
    for (tool, puppet) in [("web.t", &web), ("modern.t", &modern)] {
        client.begin_call(tool, json!({}));
        assert_eq!(puppet.expect("tools/call").header("authorization"), None);
    }
    let life = local.wait_for_instance(1);
    assert!(!life.env.values().any(|value| value.contains("the-one-secret")), "{:?}", life.env.keys());
    assert!(!life.env.contains_key("MCP_CREDENTIAL_KEY"), "nor does what opens the registry");
    assert_eq!(KEYS.iter().find(|&&key| life.env.contains_key(key)), None, "nor what opens models");
    for puppet in [&local, &web, &modern] {
        let said = puppet.journal().concat();
        assert!(!String::from_utf8_lossy(&said).contains("the-one-secret"));
    }
    serve.fetch(&HttpRequest::post("/mcp", PING).header("Authorization", "Bearer a-wrong-secret"));
    serve.wait_for_stderr("refused a request: authentication failed");
    let log = serve.stderr_text();
    assert!(!log.contains("the-one-secret") && !log.contains("a-wrong-secret"), "{log}");
}

#[test]
fn a_server_that_names_such_a_variable_gets_it() {
    let local = puppet();
    let file = Config::new().server("s", local.entry().env("PGPASSWORD", "${PGPASSWORD}"));
    let _serve = Serve::start_as(&file, |launch| launch.env("PGPASSWORD", "wanted"));
    assert_eq!(local.wait_for_instance(1).env["PGPASSWORD"], "wanted");
}

#[track_caller]
fn refused_start(arguments: &[&str]) -> Output {
    let puppet = puppet();
    let file = config(&[("s", &puppet)]).write();
    let mut command = Command::new(program("mcp-aggregator"));
    command.args(["serve", "--config"]).arg(file.path()).args(arguments).stdin(Stdio::null());
    command.arg("--data-dir").arg(file.folder().join("data"));
    let output = run_command(command.env_remove("MCP_AGGREGATOR_TOKEN"));
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(puppet.runs().len(), 0, "no server was started");
    output
}

#[test]
fn the_world_is_not_listened_to_without_tokens() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let output = refused_start(&["--listen", address]);
        assert!(output.stderr.contains("--token-file"), "{}", output.stderr);
    }
}

#[test]
fn a_token_file_that_is_wrong_is_reported_by_its_line_and_never_by_its_secret() {
    for (text, line) in [
        ("ann:good\nhidden-secret\n", "2"),
        ("\nann:\n", "2"),
        (":hidden-secret\n", "1"),
        ("a:x\na:hidden-secret", "2"),
    ] {
        let file = token_file(text);
        let path = file.path().to_string_lossy().into_owned();
        let output = refused_start(&["--listen", "127.0.0.1:0", "--token-file", &path]);
        assert!(output.stderr.contains(line), "{text:?}: {}", output.stderr);
        assert!(!output.stderr.contains("hidden-secret"), "{}", output.stderr);
    }
    let empty = token_file("# nobody\n");
    let path = empty.path().to_string_lossy().into_owned();
    refused_start(&["--listen", "127.0.0.1:0", "--token-file", &path]);
    refused_start(&["--listen", "127.0.0.1:0", "--token-file", "/nowhere/at/all"]);
}
