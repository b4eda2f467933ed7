//! Clients that are known by their certificate.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::{Launch, Serve, program, wait_until};

use super::certificates::Certificates;
use super::{serving, state, tool};

const CALL: &str = r#"{"name": "fake.echo", "arguments": {"text": "hi"}}"#;

/// The extensions of a client's certificate. Without any, openssl makes one of X.509 version 1, which is not supported.
const CLIENT: &str = "extendedKeyUsage=clientAuth";

/// The members that select a client certificate, and its key.
struct ClientCertificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificates {
    /// A certificate for a client, by the authority whose file begins with `authority`.
    fn client(&self, authority: &str, name: &str, subject: &str, extensions: &str) -> ClientCertificate {
        fs::write(self.path("extensions"), extensions).expect("it is ours");
        let request = format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj {subject}"
        );
        let sign = format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -days 2 -extfile extensions \
             -CAcreateserial -out {name}.pem"
        );
        self.openssl(&request).and_then(|_| self.openssl(&sign)).expect("openssl was there");
        ClientCertificate { certificate: self.path(&format!("{name}.pem")), key: self.path(&format!("{name}.key")) }
    }

    /// Another authority.
    fn add_authority(&self, name: &str) {
        let make = format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout {name}.key -out {name}.pem \
             -subj /CN={name}"
        );
        self.openssl(&make).expect("openssl was there");
    }
}

/// A service that accepts certificates of the authority `ca`, whose file is `clients.pem`.
fn service(certificates: &Certificates, adjust: impl FnOnce(Launch) -> Launch) -> Serve {
    let authorities = certificates.path("clients.pem");
    fs::copy(certificates.authority(), &authorities).expect("it was made");
    serving(certificates, |launch| adjust(launch.arg("--tls-client-ca").arg(authorities)))
}

/// A request over REST, by a client with or without a certificate.
fn asked(
    serve: &Serve,
    certificates: &Certificates,
    client: Option<&ClientCertificate>,
    path: &str,
    more: &[&str],
) -> Output {
    let mut curl = tool("curl").expect("openssl was there, too");
    curl.args(["--silent", "--show-error", "--write-out", "\n%{http_version} %{http_code}", "--cacert"]);
    curl.arg(certificates.authority());
    if let Some(client) = client {
        curl.arg("--cert").arg(&client.certificate).arg("--key").arg(&client.key);
    }
    let url = format!("https://{}{path}", serve.address());
    curl.args(more).arg(url).output().expect("curl can be started")
}

/// The version and the status of the response, and its body.
#[track_caller]
fn answered(output: &Output) -> (String, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let (body, report) = text.rsplit_once('\n').expect("the report is on a line of its own");
    (report.to_owned(), body.to_owned())
}

fn local_token(serve: &Serve) -> String {
    let token = fs::read_to_string(serve.folder().join("data/local.token")).expect("it was made");
    format!("Authorization: Bearer {}", token.trim())
}

#[test]
fn the_subject_is_the_name_of_the_client_and_its_role_is_user() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = service(&certificates, |launch| launch);
    assert!(serve.stderr_text().contains("reachable by: anyone with a client certificate, and"));
    let ann = certificates.client("ca", "ann", "/O=Example/CN=ann@example.com", CLIENT);
    let bob = certificates.client("ca", "bob", "/", "subjectAltName=critical,URI:spiffe://example.com/bob");
    let call = ["-H", "Content-Type: application/json", "-d", CALL];
    for (client, version, name) in
        [(&ann, "--http1.1", "ann@example.com"), (&bob, "--http2", "spiffe://example.com/bob")]
    {
        let call = [&call[..], &[version]].concat();
        let (report, body) = answered(&asked(&serve, &certificates, Some(client), "/api/v1/aggregator/execute", &call));
        assert!(report.ends_with(" 200") && body.contains("hi"), "{report}: {body}");
        let own = asked(&serve, &certificates, Some(client), "/api/v1/aggregator/servers", &["-X", "DELETE", version]);
        assert!(!answered(&own).0.ends_with(" 204"), "a user changes no servers");
        let add = ["-H", "Content-Type: application/json", "-d", r#"{"name": "x", "command": "x"}"#, version];
        let (report, body) = answered(&asked(&serve, &certificates, Some(client), "/api/v1/aggregator/servers", &add));
        assert!(report.ends_with(" 403"), "{report}: {body}");
        // The console does not take a certificate for a person: browsers send it for whoever asks.
        let (report, _) = answered(&asked(&serve, &certificates, Some(client), "/", &[version]));
        assert!(report.ends_with(" 303") || report.ends_with(" 401"), "{report}");
        let token = local_token(&serve);
        wait_until(&format!("the call of {name} is recorded"), || {
            let executions =
                asked(&serve, &certificates, None, "/api/v1/aggregator/executions?tool_name=echo", &["-H", &token]);
            let executions: Value = serde_json::from_str(&answered(&executions).1).expect("it is JSON");
            let names = executions.as_array()?.iter().map(|execution| execution["caller"].clone());
            names.collect::<Vec<_>>().contains(&json!(name)).then_some(())
        });
    }
    // Without a certificate a request needs a token, and is told of both.
    let (report, body) = answered(&asked(&serve, &certificates, None, "/mcp", &["-d", "{}"]));
    assert!(report.ends_with(" 401") && body.contains("client certificate"), "{report}: {body}");
    // A wrong token is refused, whatever the connection has shown.
    let wrong = ["-H", "Authorization: Bearer wrong"];
    let (report, _) = answered(&asked(&serve, &certificates, Some(&ann), "/api/v1/aggregator/servers", &wrong));
    assert!(report.ends_with(" 401"), "{report}");
}

#[test]
fn certificates_of_others_and_expired_ones_end_the_handshake() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = service(&certificates, |launch| launch);
    certificates.add_authority("other");
    let foreign = certificates.client("other", "eve", "/CN=ann", CLIENT);
    assert!(!asked(&serve, &certificates, Some(&foreign), "/health", &[]).status.success());
    // A certificate that may only be used by servers.
    let server = certificates.client("ca", "server", "/CN=server", "extendedKeyUsage=serverAuth");
    assert!(!asked(&serve, &certificates, Some(&server), "/health", &[]).status.success());
    let expired = certificates.client("ca", "old", "/CN=old", CLIENT);
    let sign =
        "x509 -req -in old.csr -CA ca.pem -CAkey ca.key -extfile extensions -CAcreateserial -days -1 -out old.pem";
    certificates.openssl(sign).expect("openssl was there");
    assert!(!asked(&serve, &certificates, Some(&expired), "/health", &[]).status.success());
    // The log says why, once for each address and minute.
    serve.wait_for_stderr("rejected_certificate");
    assert!(serve.stderr_text().contains("UnknownIssuer"), "{}", serve.stderr_text());
}

#[test]
fn a_session_belongs_to_the_certificate_that_opened_it() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = service(&certificates, |launch| launch);
    let ann = certificates.client("ca", "ann", "/CN=ann", CLIENT);
    let bob = certificates.client("ca", "bob", "/CN=bob", CLIENT);
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "curl", "version": "1"}}});
    let headers =
        ["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream", "--include"];
    let hello = hello.to_string();
    let (_, opened) =
        answered(&asked(&serve, &certificates, Some(&ann), "/mcp", &[&headers[..], &["-d", &hello]].concat()));
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").trim();
    let session = format!("Mcp-Session-Id: {session}");
    let ping = [&headers[..], &["-H", &session, "-d", r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#]].concat();
    let renewed = certificates.client("ca", "renewed", "/CN=ann", CLIENT);
    for (client, status) in [(&ann, " 200"), (&renewed, " 200"), (&bob, " 404")] {
        let (report, body) = answered(&asked(&serve, &certificates, Some(client), "/mcp", &ping));
        assert!(report.ends_with(status), "{report}: {body}");
    }
}

#[test]
fn the_role_and_the_profile_of_certificates_are_configured() {
    let Some(certificates) = Certificates::new() else { return };
    let ann = certificates.client("ca", "ann", "/CN=ann", CLIENT);
    let operators = service(&certificates, |launch| launch.args(["--tls-client-role", "operator"]));
    let (report, _) = answered(&asked(
        &operators,
        &certificates,
        Some(&ann),
        "/api/v1/aggregator/servers/fake/tools/refresh",
        &["-X", "POST"],
    ));
    assert!(report.ends_with(" 202"), "{report}");
    let authorities = certificates.authority();
    let config = json!({
        "mcpServers": {"fake": {"command": program("fake-server")}},
        "profiles": {"quiet": {"tools": ["fake.nothing"]}},
        "auth": {"profiles": {"user": "quiet"}},
    });
    let config = testkit::Config::new().raw(config.to_string());
    let bound = Serve::start_as(&config, |launch| {
        let launch = launch.env_remove("MCP_AGGREGATOR_TOKEN").arg("--tls-cert").arg(certificates.certificate());
        launch.arg("--tls-key").arg(certificates.key()).arg("--tls-client-ca").arg(authorities)
    });
    let call = ["-H", "Content-Type: application/json", "-d", CALL];
    let (report, body) = answered(&asked(&bound, &certificates, Some(&ann), "/api/v1/aggregator/execute", &call));
    assert!(report.ends_with(" 404") && body.contains("TOOL_NOT_FOUND"), "{report}: {body}");
}

#[test]
fn authorities_are_replaced_while_the_service_runs() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = service(&certificates, |launch| launch);
    let data = serve.folder().join("data");
    certificates.add_authority("next");
    let next = certificates.client("next", "ann", "/CN=ann", CLIENT);
    let is_served = || {
        let output = asked(&serve, &certificates, Some(&next), "/api/v1/aggregator/tools", &[]);
        output.status.success() && answered(&output).0.ends_with(" 200")
    };
    assert!(!is_served());
    let file = certificates.path("clients.pem");
    fs::write(&file, "nothing").expect("it is ours");
    wait_until("the broken file is reported", || {
        let state = state(&data, &[]).to_string();
        (state.contains("--tls-client-ca") && state.contains("contains no certificate")).then_some(())
    });
    fs::copy(certificates.path("next.pem"), &file).expect("it is ours");
    wait_until("the next authority is accepted", || is_served().then_some(()));
    wait_until("all is well again", || (!state(&data, &[]).to_string().contains("--tls-client-ca")).then_some(()));
}

#[test]
fn files_of_authorities_that_cannot_be_used_are_named() {
    let Some(certificates) = Certificates::new() else { return };
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(program("mcp-aggregator"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).env_remove("MCP_AGGREGATOR_TOKEN");
        let output = command.output().expect("it can be started");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (certificate, key) = (certificates.certificate(), certificates.key());
    let (certificate, key) = (certificate.to_str().expect("our folders are UTF-8"), key.to_str().expect("it is, too"));
    let tls = ["--tls-cert", certificate, "--tls-key", key];
    let message = refused(&[&tls[..], &["--tls-client-ca", "/nonexistent/ca.pem"]].concat());
    assert!(
        message.contains("could not read the client authorities /nonexistent/ca.pem (--tls-client-ca)"),
        "{message}"
    );
    let message = refused(&[&tls[..], &["--tls-client-ca", key]].concat());
    assert!(message.contains("--tls-client-ca") && message.contains("contains no certificate"), "{message}");
    let message = refused(&["--tls-client-ca", certificate]);
    assert!(message.contains("--tls-cert"), "{message}");
    let message = refused(&[&tls[..], &["--tls-client-role", "operator"]].concat());
    assert!(message.contains("--tls-client-ca"), "{message}");
    let message = refused(&[&tls[..], &["--tls-client-ca", certificate, "--tls-client-role", "root"]].concat());
    assert!(message.contains("user, operator, admin"), "{message}");
}
