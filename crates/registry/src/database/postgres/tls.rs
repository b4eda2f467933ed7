//! TLS for connections to PostgreSQL: `sslmode` and `sslrootcert` in the address, with the same meaning as in
//! PostgreSQL's own programs.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::Cause;

/// The TLS options of an address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Security {
    mode: Mode,
    root_certificate: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disable,
    /// TLS if the server supports it. The server is not verified, as without TLS.
    #[default]
    Prefer,
    /// TLS is required. It protects against eavesdropping, not against an impostor.
    Require,
    /// TLS with a verified certificate and host name.
    VerifyFull,
}

/// An unknown `sslmode`.
#[derive(Debug, thiserror::Error)]
#[error("unknown sslmode `{0}`; use disable, prefer, require or verify-full")]
pub(super) struct UnknownMode(String);

/// Removes the TLS options from an address; the library supports only some of them.
pub(super) fn split(url: &str) -> Result<(String, Security), UnknownMode> {
    let mut security = Security::default();
    let Some((place, query)) = url.split_once('?') else { return Ok((url.to_owned(), security)) };
    let mut rest = Vec::new();
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", mode)) => security.mode = parse(mode)?,
            Some(("sslrootcert", path)) => security.root_certificate = Some(percent_decoded(path)),
            _ => rest.push(parameter),
        }
    }
    // A given certificate is verified, as in PostgreSQL's own programs.
    if security.root_certificate.is_some() && security.mode == Mode::Require {
        security.mode = Mode::VerifyFull;
    }
    let url = if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
    Ok((url, security))
}

fn parse(mode: &str) -> Result<Mode, UnknownMode> {
    match mode {
        "disable" => Ok(Mode::Disable),
        "allow" | "prefer" => Ok(Mode::Prefer),
        "require" => Ok(Mode::Require),
        // Verifying the chain without the name would be weaker than what we support.
        "verify-ca" | "verify-full" => Ok(Mode::VerifyFull),
        other => Err(UnknownMode(other.to_owned())),
    }
}

fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl Security {
    pub(super) fn mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyFull => SslMode::Require,
        }
    }

    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, Cause> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let config = if self.mode == Mode::VerifyFull {
            builder.with_root_certificates(self.roots()?).with_no_client_auth()
        } else {
            let anybody = Arc::new(AcceptAnyCertificate { provider });
            builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, Cause> {
        let mut roots = RootCertStore::empty();
        match &self.root_certificate {
            Some(path) => {
                for certificate in CertificateDer::pem_file_iter(path)? {
                    roots.add(certificate?)?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() { Err("no root certificate was found; set one with sslrootcert".into()) } else { Ok(roots) }
    }
}

/// Accepts any certificate, and verifies only that the server has its key.
#[derive(Debug)]
struct AcceptAnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_tls_is_taken_out_of_the_address() {
        let (url, security) = split("postgres://h/d?a=b&sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem").unwrap();
        assert_eq!(url, "postgres://h/d?a=b");
        assert_eq!(security, Security { mode: Mode::VerifyFull, root_certificate: Some("/etc/ca.pem".to_owned()) });
        assert_eq!(split("postgres://h/d?sslmode=disable").unwrap().0, "postgres://h/d");
    }

    #[test]
    fn a_mode_that_is_not_known_is_refused_by_name() {
        assert!(split("postgres://h/d?sslmode=maybe").unwrap_err().to_string().contains("`maybe`"));
    }
}
