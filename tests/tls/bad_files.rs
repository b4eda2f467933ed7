//! Files that cannot be used: each is an error at start that names the file and the fix.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::program;

use super::certificates::Certificates;

/// What `serve` says with these files. It must fail at once.
fn refused(certificate: &Path, key: Option<&Path>) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(program("mcp-aggregator"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path().join("data"));
    command.arg("--tls-cert").arg(certificate);
    if let Some(key) = key {
        command.arg("--tls-key").arg(key);
    }
    let output = command.env_remove("MCP_AGGREGATOR_TOKEN").output().expect("it can be started");
    assert!(!output.status.success());
    assert!(!folder.path().join("data").exists(), "nothing was created");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn unusable_files_are_named_with_what_is_wrong() {
    let Some(certificates) = Certificates::new() else { return };
    let (certificate, key) = (certificates.certificate(), certificates.key());
    let missing = certificates.path("missing.pem");
    let message = refused(&missing, Some(&key));
    assert!(message.contains("could not read the certificate") && message.contains("missing.pem"), "{message}");
    let message = refused(&certificate, Some(&missing));
    assert!(message.contains("could not read the private key") && message.contains("--tls-key"), "{message}");
    let message = refused(&certificate, Some(&certificates.path("ca.key")));
    assert!(message.contains("the key does not belong to the first certificate"), "{message}");
    let message = refused(&key, Some(&key));
    assert!(message.contains("contains no certificate") && message.contains("BEGIN CERTIFICATE"), "{message}");
    let message = refused(&certificate, Some(&certificate));
    assert!(message.contains("no usable private key"), "{message}");
    certificates.openssl("pkcs8 -topk8 -in key.pem -out locked.pem -passout pass:secret").expect("openssl was there");
    let message = refused(&certificate, Some(&certificates.path("locked.pem")));
    assert!(message.contains("not encrypted"), "{message}");
    let broken = certificates.path("broken.pem");
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").expect("it is ours");
    let message = refused(&broken, Some(&key));
    assert!(message.contains("broken.pem") && message.contains("not valid PEM"), "{message}");
    let message = refused(&certificate, None);
    assert!(message.contains("--tls-key"), "{message}");
}
