//! Clients that are known by their certificate: whose name is in it, and what they may do.

use std::fmt;
use std::sync::Arc;

use catalog::{Principal, Role};
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{ObjectIdentifier, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{Decode as _, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// How long a subject may be.
const MAX_SUBJECT_BYTES: usize = 512;
/// Longer names are cut.
const MAX_NAME_CHARS: usize = 80;

/// What clients with a certificate may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRules {
    /// Their role.
    pub role: Role,
    /// The profile that they are bound to.
    pub profile: Option<String>,
}

/// Why a certificate names nobody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoSubject {
    /// It cannot be read.
    Unreadable(String),
    /// It has neither a subject nor an alternative name.
    Missing,
    /// The subject has too many bytes, or control characters.
    Invalid,
}

impl fmt::Display for NoSubject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(out, "it cannot be read: {why}"),
            Self::Missing => out.write_str("it has neither a subject nor an alternative name"),
            Self::Invalid => write!(out, "its subject has control characters, or more than {MAX_SUBJECT_BYTES} bytes"),
        }
    }
}

impl CertificateRules {
    /// The client with this certificate, which is verified.
    pub(crate) fn principal(&self, certificate: &[u8]) -> Result<Arc<Principal>, NoSubject> {
        let Subject { id, name } = Subject::read(certificate)?;
        Ok(Principal::of_certificate(&id, &name, self.role, self.profile.as_deref()))
    }
}

/// Whom a certificate is for.
#[derive(Debug, PartialEq, Eq)]
struct Subject {
    /// The whole subject; where it is empty, the first alternative name.
    id: String,
    /// The common name, if there is one.
    name: String,
}

impl Subject {
    fn read(certificate: &[u8]) -> Result<Self, NoSubject> {
        let unreadable = |error: x509_cert::der::Error| NoSubject::Unreadable(error.to_string());
        let certificate = Certificate::from_der(certificate).map_err(unreadable)?.tbs_certificate;
        let subject = &certificate.subject;
        let (id, name) = if subject.is_empty() {
            let names = certificate.get::<SubjectAltName>().map_err(unreadable)?;
            let names = names.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
            let id = names.iter().find_map(alternative_name).ok_or(NoSubject::Missing)?;
            (id.clone(), id)
        } else {
            let id = subject.to_string();
            let mut attributes = subject.0.iter().rev().flat_map(|group| group.0.iter());
            let name = attributes.find(|attribute| attribute.oid == COMMON_NAME).and_then(text);
            (id.clone(), name.unwrap_or(id))
        };
        let is_valid = !id.is_empty() && id.len() <= MAX_SUBJECT_BYTES && !id.chars().any(char::is_control);
        let name: String = name.chars().filter(|sign| !sign.is_control()).take(MAX_NAME_CHARS).collect();
        if is_valid && !name.is_empty() { Ok(Self { id, name }) } else { Err(NoSubject::Invalid) }
    }
}

fn alternative_name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.to_string()),
        GeneralName::Rfc822Name(address) => Some(address.to_string()),
        GeneralName::DnsName(name) => Some(name.to_string()),
        _ => None,
    }
}

fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    let text = match value.tag() {
        Tag::Utf8String => Utf8StringRef::try_from(value).ok()?.as_str().to_owned(),
        Tag::PrintableString => PrintableStringRef::try_from(value).ok()?.as_str().to_owned(),
        Tag::TeletexString => TeletexStringRef::try_from(value).ok()?.as_str().to_owned(),
        _ => return None,
    };
    Some(text).filter(|text| !text.is_empty())
}
