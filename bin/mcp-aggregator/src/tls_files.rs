//! The files of `--tls-cert`, `--tls-key` and `--tls-client-ca`: read at start, and again whenever they change.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catalog::Role;
use clap::Args;
use http_server::{CertificateRules, Tls, TlsError, TlsMaterial};
use service::Service;

use crate::cli::shared::role;
use crate::failure::Failure;

/// How often the files are compared with their last contents.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// TLS for clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct TlsArguments {
    /// Serve clients over TLS with this certificate: a PEM file, with intermediate certificates after it. The files are
    /// read again when they change
    #[arg(long, verbatim_doc_comment, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert: a PEM file, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Ask clients for a certificate, and accept those of the authorities in this PEM file: the subject is the client's
    /// name. Clients without one need a token
    #[arg(long, verbatim_doc_comment, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// The role of clients with a certificate: user, operator or admin
    #[arg(long, value_name = "ROLE", default_value_t = Role::User, requires = "tls_client_ca", value_parser = role(),
        hide_possible_values = true)]
    tls_client_role: Role,
}

/// The files that TLS needs.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_authorities: Option<PathBuf>,
}

/// The contents of the files. Not `Debug`, because they contain the key.
#[derive(PartialEq, Eq)]
pub(crate) struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

impl Contents {
    fn material(&self) -> TlsMaterial<'_> {
        TlsMaterial {
            certificates: &self.certificate,
            key: &self.key,
            client_authorities: self.client_authorities.as_deref(),
        }
    }
}

impl TlsArguments {
    /// Whether TLS is to be used.
    pub(crate) fn is_given(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// What clients with a certificate may do, if they are asked for one.
    pub(crate) fn client_certificates(&self, profile_of_role: &[(Role, String)]) -> Option<CertificateRules> {
        self.tls_client_ca.as_ref()?;
        let role = self.tls_client_role;
        let profile = profile_of_role.iter().find(|(of, _)| *of == role).map(|(_, profile)| profile.clone());
        Some(CertificateRules { role, profile })
    }

    /// The files, if TLS is to be used.
    pub(crate) fn files(self) -> Option<TlsFiles> {
        Some(TlsFiles { certificate: self.tls_cert?, key: self.tls_key?, client_authorities: self.tls_client_ca })
    }
}

impl TlsFiles {
    /// Reads the files. Their contents are returned for [`follow`](Self::follow).
    pub(crate) fn open(&self) -> Result<(Tls, Contents), Failure> {
        if is_open_to_all(&self.key) {
            tracing::warn!(file = %self.key.display(), "other users of this machine can read the private key; restrict it with `chmod 600`");
        }
        let contents = self.contents()?;
        let tls = Tls::read(contents.material()).map_err(|error| self.unusable(&error))?;
        Ok((tls, contents))
    }

    fn contents(&self) -> Result<Contents, Failure> {
        let read = |what: &str, option: &str, path: &Path| {
            fs::read(path).map_err(|error| {
                Failure::new(format!("could not read the {what} {} ({option}): {error}", path.display()))
            })
        };
        Ok(Contents {
            certificate: read("certificate", "--tls-cert", &self.certificate)?,
            key: read("private key", "--tls-key", &self.key)?,
            client_authorities: match &self.client_authorities {
                Some(file) => Some(read("client authorities", "--tls-client-ca", file)?),
                None => None,
            },
        })
    }

    fn unusable(&self, error: &TlsError) -> Failure {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let which = match (error, &self.client_authorities) {
            (TlsError::NoAuthority | TlsError::Authority(_) | TlsError::UnusableAuthority(_), Some(file)) => {
                format!("--tls-client-ca {}", file.display())
            }
            _ => format!("--tls-cert {certificate} and --tls-key {key}"),
        };
        Failure::new(format!("{which} cannot be used: {error}"))
    }

    /// Applies every change of the files since they had the contents `opened`: the service may have waited for its
    /// database meanwhile. While they cannot be used, the last valid ones remain in use; in between, a certificate may
    /// already be new and its key still old.
    pub(crate) async fn follow(self, tls: Arc<Tls>, opened: Contents, service: Arc<Service>) {
        let mut seen = Some(opened);
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let contents = match self.contents() {
                Ok(contents) if seen.as_ref() == Some(&contents) => continue,
                Ok(contents) => contents,
                Err(failure) => {
                    self.report(&service, &failure);
                    // Once they can be read again, the same contents end the problem as well.
                    seen = None;
                    continue;
                }
            };
            match tls.replace(contents.material()) {
                Ok(()) => {
                    service.note_certificate_error(None);
                    tracing::info!(certificate = %self.certificate.display(), "the certificate was replaced");
                }
                Err(error) => self.report(&service, &self.unusable(&error)),
            }
            seen = Some(contents);
        }
    }

    fn report(&self, service: &Service, failure: &Failure) {
        let error = format!("{}; the last valid certificate remains in use", failure.message);
        if service.certificate_error().as_ref() != Some(&error) {
            tracing::error!("{error}");
        }
        service.note_certificate_error(Some(error));
    }
}

fn is_open_to_all(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}
