//! TLS for clients: the certificate and its key, which can be replaced while connections continue.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::{Accept, TlsAcceptor};

use crate::http2;
use crate::socket::ClientSocket;

/// The name of HTTP/1.1 in a handshake.
const HTTP1: &[u8] = b"http/1.1";

/// Why a certificate and its key cannot be used. Never contains the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// There is no certificate.
    #[error("the certificate file contains no certificate: expected PEM with `BEGIN CERTIFICATE`")]
    NoCertificate,
    /// A certificate is unreadable.
    #[error("the certificate file is not valid PEM: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    /// The key is unreadable, or there is none.
    #[error("the key file contains no usable private key: expected PEM with `BEGIN PRIVATE KEY`, not encrypted")]
    Key,
    /// The key is of another certificate.
    #[error("the key does not belong to the first certificate of the certificate file")]
    OtherKey,
    /// There is no authority.
    #[error("the file of authorities contains no certificate: expected PEM with `BEGIN CERTIFICATE`")]
    NoAuthority,
    /// An authority is unreadable.
    #[error("the file of authorities is not valid PEM: {0}")]
    Authority(rustls::pki_types::pem::Error),
    /// An authority is no certificate that could verify others.
    #[error("a certificate in the file of authorities cannot be used: {0}")]
    UnusableAuthority(String),
    /// Something else is wrong with them.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// The contents of PEM files.
#[derive(Clone, Copy)]
pub struct TlsMaterial<'m> {
    /// The certificate of the service, and intermediate certificates after it.
    pub certificates: &'m [u8],
    /// Its private key.
    pub key: &'m [u8],
    /// The authorities that certify clients. Without them, clients are not asked for a certificate.
    pub client_authorities: Option<&'m [u8]>,
}

/// The certificate that clients see, and how connections are encrypted with it.
pub struct Tls(RwLock<Arc<ServerConfig>>);

impl Tls {
    /// Encrypts with the contents of PEM files.
    pub fn read(material: TlsMaterial<'_>) -> Result<Self, TlsError> {
        config(material).map(|config| Self(RwLock::new(Arc::new(config))))
    }

    /// Replaces everything for new connections; connections that exist continue.
    pub fn replace(&self, material: TlsMaterial<'_>) -> Result<(), TlsError> {
        let config = Arc::new(config(material)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The handshake with a client that is not offered HTTP/2.
    pub(crate) fn accept_http1(&self, stream: ClientSocket) -> Accept<ClientSocket> {
        let mut config = ServerConfig::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        config.alpn_protocols = vec![HTTP1.to_vec()];
        TlsAcceptor::from(Arc::new(config)).accept(stream)
    }

    /// The handshake with a client.
    pub(crate) fn accept(&self, stream: ClientSocket) -> Accept<ClientSocket> {
        let config = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(config).accept(stream)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tls(..)")
    }
}

fn config(material: TlsMaterial<'_>) -> Result<ServerConfig, TlsError> {
    let chain = certificates(material.certificates).map_err(TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(material.key).map_err(|_| TlsError::Key)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Unusable)?;
    let builder = match material.client_authorities {
        Some(authorities) => builder.with_client_cert_verifier(client_verifier(authorities)?),
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::OtherKey,
        error => TlsError::Unusable(error),
    })?;
    config.alpn_protocols = vec![http2::ALPN.to_vec(), HTTP1.to_vec()];
    Ok(config)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

/// Asks clients for a certificate of one of these authorities. Those without one are served if something else, such as
/// a token, authenticates their requests.
fn client_verifier(authorities: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let authorities = certificates(authorities).map_err(TlsError::Authority)?;
    if authorities.is_empty() {
        return Err(TlsError::NoAuthority);
    }
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| TlsError::UnusableAuthority(error.to_string()))?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
    verifier.build().map_err(|error| TlsError::UnusableAuthority(error.to_string()))
}
