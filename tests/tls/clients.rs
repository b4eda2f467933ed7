//! What clients get: MCP, REST and the console over TLS, by HTTP/1.1 and HTTP/2; and what commands do meanwhile.

use std::process::Command;

use serde_json::Value;
use testkit::{Config, Serve, fake, program};

use super::certificates::Certificates;
use super::{printed, serving, tool};

const MODERN_LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
const MODERN_HEADERS: [&str; 8] = [
    "-H",
    "Content-Type: application/json",
    "-H",
    "Accept: application/json, text/event-stream",
    "-H",
    "MCP-Protocol-Version: 2026-07-28",
    "-H",
    "Mcp-Method: tools/list",
];

/// The HTTP version and the status that curl reports, and the body.
fn fetched(curl: &mut Command) -> (String, String) {
    let all = printed(curl.args(["--silent", "--show-error", "--write-out", "\n%{http_version} %{http_code}"]));
    let (body, report) = all.rsplit_once('\n').expect("the report is on a line of its own");
    (report.to_owned(), body.to_owned())
}

#[test]
fn clients_get_the_same_by_http1_and_http2() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = serving(&certificates, |launch| launch);
    for (version, reported) in [("--http1.1", "1.1 200"), ("--http2", "2 200")] {
        let fetch = |path: &str, more: &[&str]| {
            let mut curl = tool("curl").expect("openssl was there, too");
            let url = format!("https://{}{path}", serve.address());
            fetched(curl.arg(version).arg("--cacert").arg(certificates.authority()).arg(url).args(more))
        };
        let (report, health) = fetch("/health", &[]);
        assert_eq!(report, reported);
        assert!(health.contains(r#""status":"ok""#), "{health}");
        let (report, listed) = fetch("/mcp", &[&MODERN_HEADERS[..], &["-d", MODERN_LIST]].concat());
        assert_eq!(report, reported, "{listed}");
        assert!(listed.contains("fake.echo") || listed.contains("fake__echo"), "{listed}");
        let (report, page) = fetch("/", &["-H", "Accept: text/html"]);
        assert_eq!((report.as_str(), page.contains("<html")), (reported, true), "{page}");
        let (report, servers) = fetch("/api/v1/aggregator/servers", &[]);
        assert_eq!(report, reported);
        assert_eq!(serde_json::from_str::<Value>(&servers).expect("it is JSON")[0]["name"], "fake");
    }
    // Others cannot read along, and what is not TLS gets nothing.
    let plain =
        tool("curl").expect("it was there").args(["--silent", &format!("http://{}/health", serve.address())]).output();
    assert!(!plain.expect("it can be started").status.success());
}

#[test]
fn foreign_hosts_are_refused_by_http2_as_well() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = serving(&certificates, |launch| launch.args(["--allow-host", "mcp.example.com"]));
    let port = serve.address().port();
    let status = |host: &str| {
        let mut curl = tool("curl").expect("openssl was there, too");
        curl.args(["--http2", "--insecure", "--resolve", &format!("{host}:{port}:127.0.0.1")]);
        fetched(curl.arg(format!("https://{host}:{port}/health"))).0
    };
    assert_eq!(status("mcp.example.com"), "2 200");
    assert_eq!(status("evil.example.com"), "2 403");
}

#[test]
fn without_tls_http2_is_spoken_to_who_begins_with_it() {
    let serve = Serve::start(&Config::new().server("fake", fake()));
    let url = format!("http://{}/health", serve.address());
    let Some(mut curl) = tool("curl") else { return };
    assert_eq!(fetched(curl.args(["--http2-prior-knowledge", &url])).0, "2 200");
    let mut curl = tool("curl").expect("it was there");
    assert_eq!(fetched(curl.args(["--http1.1", &url])).0, "1.1 200");
    // Asking to change over is declined, as HTTP allows.
    let mut curl = tool("curl").expect("it was there");
    assert_eq!(fetched(curl.args(["--http2", &url])).0, "1.1 200");
}

#[test]
fn many_calls_share_one_http2_connection() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = serving(&certificates, |launch| launch);
    let Some(mut h2load) = tool("h2load") else { return };
    let body = certificates.path("call.json");
    std::fs::write(&body, MODERN_LIST).expect("it is ours");
    for pair in MODERN_HEADERS.chunks(2) {
        h2load.args(pair);
    }
    h2load.args(["--requests=3000", "--clients=1", "--max-concurrent-streams=64"]).arg("--data").arg(body);
    let report = printed(h2load.arg(format!("https://localhost:{}/mcp", serve.address().port())));
    assert!(report.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
    assert!(report.contains("status codes: 3000 2xx"), "{report}");
}

#[test]
fn old_versions_and_weak_ciphers_are_not_offered() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = serving(&certificates, |launch| launch);
    let Some(mut sslscan) = tool("sslscan") else { return };
    let report = printed(sslscan.args(["--no-colour", &format!("127.0.0.1:{}", serve.address().port())]));
    for version in ["SSLv2", "SSLv3", "TLSv1.0", "TLSv1.1"] {
        let line = report.lines().find(|line| line.starts_with(version)).expect("each version is listed");
        assert!(line.ends_with("disabled"), "{line}");
    }
    for version in ["TLSv1.2", "TLSv1.3"] {
        let line = report.lines().find(|line| line.starts_with(version)).expect("each version is listed");
        assert!(line.ends_with("enabled"), "{line}");
    }
    let ciphers: Vec<_> =
        report.lines().filter(|line| line.starts_with("Preferred") || line.starts_with("Accepted")).collect();
    assert!(!ciphers.is_empty(), "{report}");
    let is_strong = |line: &&str| line.contains("GCM") || line.contains("CHACHA20");
    assert!(ciphers.iter().all(is_strong), "{ciphers:#?}");
    assert!(
        !report.contains("vulnerable to heartbleed") || report.contains("not vulnerable to heartbleed"),
        "{report}"
    );
}

#[test]
fn commands_need_no_certificate_and_clients_get_the_public_url() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = serving(&certificates, |launch| launch.args(["--public-url", "https://mcp.example.com"]));
    let data = serve.folder().join("data");
    let run = |words: &[&str]| {
        let mut command = Command::new(program("mcp-aggregator"));
        command.args(words).arg("--data-dir").arg(&data).env("HOME", serve.folder());
        printed(command.env_remove("MCP_AGGREGATOR_TOKEN").env_remove("XDG_CONFIG_HOME"))
    };
    assert!(run(&["list"]).contains("fake"));
    assert!(run(&["call", "fake.echo", "text=hello"]).contains("hello"));
    run(&["client", "add", "claude-code"]);
    let written = std::fs::read_to_string(serve.folder().join(".claude.json")).expect("it was written");
    assert!(written.contains("https://mcp.example.com/mcp"), "{written}");
    let listed: Value = serde_json::from_str(&run(&["client", "list", "--json"])).expect("it is JSON");
    let code = listed.as_array().and_then(|all| all.iter().find(|client| client["client"] == "claude-code"));
    assert_eq!(code.expect("it is listed")["connected"], true);
}
