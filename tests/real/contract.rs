//! Schemathesis reads the OpenAPI document, and sends everything it allows and much that it does not: every response
//! must match the document, and nothing may crash.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::{Serve, program};

use super::parts::{Part, Parts};

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
const SECONDS: &str = "60";

#[test]
fn responses_match_the_openapi_document_whatever_is_sent() {
    let Some(parts) = Parts::with(&[Part::Contract]) else { return };
    let folder = tempfile::tempdir().unwrap();
    // Generated names of programs must not exist by chance.
    let nothing = folder.path().join("no-programs");
    fs::create_dir(&nothing).unwrap();
    let serve = Serve::in_folder(&folder.path().join("data"), |launch| {
        launch.env("PATH", &nothing).env("MCP_AGGREGATOR_START_TIMEOUT", "5")
    });
    let config = json!({"command": program("fake-server"), "args": ["--only-generated", "--tools", "3"]});
    let server = json!({"name": "one", "transport_type": "stdio", "connection_config": config});
    assert_eq!(serve.fetch(&HttpRequest::post("/api/v1/aggregator/servers", server.to_string())).status, 201);

    let run = Command::new(parts.contract_python())
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/real/contract.toml"))
        .args(["run", &format!("http://{}/api/v1/openapi.json", serve.address())])
        // This endpoint is an endless stream.
        .args(["--exclude-path", "/api/v1/aggregator/events"])
        // One worker: in Python 3.11 two threads that parse at the same time break each other (python/cpython#106905).
        .args(["--checks", CHECKS, "--max-time", SECONDS, "--request-timeout", "30", "--workers", "1"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{reported}\n{}", serve.stderr_text());
    assert_eq!(serve.fetch(&HttpRequest::new("GET", "/health")).status, 200, "it is still there");
}
