//! Certificates that are replaced while the service runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{Launch, Postgres, Signal, program, wait_until};

use super::certificates::Certificates;
use super::{printed, serving, state, tool};

/// The serial number of the certificate that clients see.
fn serial_of(port: u16) -> Option<String> {
    let mut connect = tool("openssl").expect("it was there");
    let address = format!("127.0.0.1:{port}");
    let seen = connect.args(["s_client", "-connect", &address]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let certificate = seen.expect("it can be started").stdout;
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    fs::write(file.path(), certificate).expect("it is ours");
    openssl_serial(file.path())
}

/// The serial number of the certificate in a file.
fn openssl_serial(file: &Path) -> Option<String> {
    let mut openssl = tool("openssl").expect("it was there");
    let read = openssl.args(["x509", "-noout", "-serial", "-in"]).arg(file).output().expect("it can be started");
    read.status.success().then(|| String::from_utf8_lossy(&read.stdout).into_owned())
}

#[test]
fn certificates_are_replaced_under_load_and_nothing_is_dropped() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = serving(&certificates, |launch| launch);
    let port = serve.address().port();
    if tool("h2load").is_none() {
        return;
    }
    let load = |clients: &'static str, requests: &'static str| {
        std::thread::spawn(move || {
            let mut h2load = Command::new("h2load");
            h2load.arg(format!("--clients={clients}")).arg(format!("--requests={requests}"));
            printed(h2load.arg(format!("https://localhost:{port}/health")))
        })
    };
    let before = serial_of(port).expect("it answers");
    // One client keeps its connections; the others connect again and again until the new certificate is seen.
    let lasting = load("4", "20000");
    certificates.renew().expect("openssl was there");
    wait_until("new connections see the new certificate", || {
        let report = load("10", "50").join().expect("it ends");
        assert!(report.contains("50 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
        serial_of(port).filter(|serial| *serial != before)
    });
    let report = lasting.join().expect("it ends");
    assert!(report.contains("20000 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
}

#[test]
fn while_the_files_cannot_be_used_the_last_certificate_remains_and_it_is_reported() {
    let Some(certificates) = Certificates::new() else { return };
    let serve = serving(&certificates, |launch| launch);
    let (port, data) = (serve.address().port(), serve.folder().join("data"));
    let before = serial_of(port).expect("it answers");
    let good = fs::read(certificates.certificate()).expect("it was made");
    fs::write(certificates.certificate(), "half a certif").expect("it is ours");
    let issue = wait_until("the broken certificate is reported", || {
        let state = state(&data, &[]).to_string();
        state.contains("certificate file contains no certificate").then_some(state)
    });
    assert!(issue.contains("the last valid certificate remains in use"), "{issue}");
    assert_eq!(serial_of(port), Some(before.clone()));
    fs::write(certificates.certificate(), good).expect("it is ours");
    wait_until("all is well again", || (!state(&data, &[]).to_string().contains("certificate file")).then_some(()));
    // A file that is away for a while and comes back as it was.
    let away = certificates.path("away.pem");
    fs::rename(certificates.certificate(), &away).expect("it is ours");
    let is_reported = || state(&data, &[]).to_string().contains("could not read the certificate");
    wait_until("the missing certificate is reported", || is_reported().then_some(()));
    fs::rename(&away, certificates.certificate()).expect("it is ours");
    wait_until("it is back, and that is the end of it", || (!is_reported()).then_some(()));
    assert_eq!(serial_of(port), Some(before));
}

#[test]
fn a_certificate_that_is_replaced_while_the_service_waits_for_its_database_is_used() {
    let Some(certificates) = Certificates::new() else { return };
    let Some(mut postgres) = Postgres::start() else { return };
    let url = postgres.database("tls");
    postgres.stop();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut service = Launch::program(program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--database", &url, "--data-dir"])
        .arg(folder.path().join("data"))
        .arg("--tls-cert")
        .arg(certificates.certificate())
        .arg("--tls-key")
        .arg(certificates.key())
        .env_remove("MCP_AGGREGATOR_TOKEN")
        .start();
    service.wait_for_stderr("attempt 1: ");
    certificates.renew().expect("openssl was there");
    postgres.start_again();
    service.wait_for_stderr("listening on https://");
    let text = service.stderr_text();
    let (_, rest) = text.split_once("listening on https://").expect("it is there");
    let (_, port) = rest.split_once(':').expect("it has a port");
    let port = port.split(|digit: char| !digit.is_ascii_digit()).next().expect("there is a first part");
    let port = port.parse().expect("it is a port");
    let seen = openssl_serial(&certificates.certificate()).expect("openssl was there");
    wait_until("the new certificate is used", || serial_of(port).filter(|serial| *serial == seen));
    service.signal(Signal::TERM);
    assert!(service.wait_exit().success());
}

#[test]
fn a_handshake_that_never_begins_does_not_delay_the_shutdown() {
    let Some(certificates) = Certificates::new() else { return };
    let mut serve = serving(&certificates, |launch| launch);
    let silent = serve.connect();
    assert!(serial_of(serve.address().port()).is_some(), "others are served meanwhile");
    serve.signal(Signal::TERM);
    assert_eq!(serve.wait_exit().code(), Some(0));
    assert!(!serve.stderr_text().contains("aborted requests"), "{}", serve.stderr_text());
    drop(silent);
}
