//! TLS for clients: the certificate and its key, which can be replaced while connections continue.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
    /// Something else is wrong with them.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// The certificate that clients see, and how connections are encrypted with it.
pub struct Tls(RwLock<Arc<ServerConfig>>);

impl Tls {
    /// Encrypts with the certificates (our own first) and the key of two PEM files.
    pub fn read(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        config(certificates, key).map(|config| Self(RwLock::new(Arc::new(config))))
    }

    /// Replaces certificate and key for new connections; connections that exist continue.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let config = Arc::new(config(certificates, key)?);
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

fn config(certificates: &[u8], key: &[u8]) -> Result<ServerConfig, TlsError> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(certificates).collect::<Result<_, _>>().map_err(TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Unusable)?;
    let config = builder.with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::OtherKey,
        error => TlsError::Unusable(error),
    })?;
    config.alpn_protocols = vec![http2::ALPN.to_vec(), HTTP1.to_vec()];
    Ok(config)
}
