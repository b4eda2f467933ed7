//! Certificates for the tests, made by openssl.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{printed, tool};

/// An authority, and a certificate for this machine with its key. They are replaced with `renew`.
pub(super) struct Certificates(TempDir);

impl Certificates {
    /// `None` if there is no openssl.
    pub(super) fn new() -> Option<Self> {
        let made = Self(TempDir::new().expect("a temporary folder can be made"));
        let authority = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout ca.key \
                         -out ca.pem -subj /CN=authority";
        made.openssl(authority)?;
        made.renew()?;
        Some(made)
    }

    /// Makes another certificate and key. Each file is replaced in one step, first the certificate.
    pub(super) fn renew(&self) -> Option<()> {
        fs::write(self.path("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1").expect("it is ours");
        self.openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout new.key -out request.pem -subj /CN=localhost",
        )?;
        self.openssl(
            "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -days 2 -extfile names -CAcreateserial -out new.pem",
        )?;
        for (new, old) in [("new.pem", "cert.pem"), ("new.key", "key.pem")] {
            fs::rename(self.path(new), self.path(old)).expect("it was made");
        }
        Some(())
    }

    pub(super) fn openssl(&self, words: &str) -> Option<String> {
        let mut openssl = tool("openssl")?;
        Some(printed(openssl.args(words.split_whitespace()).current_dir(self.0.path())))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.path("ca.pem")
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.path("cert.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.path("key.pem")
    }
}
