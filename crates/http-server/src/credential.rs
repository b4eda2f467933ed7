//! What a request is authenticated by: a static token, the identity of a person, or a client certificate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use catalog::Principal;
use identity::Verified;

use crate::tokens::TokenCredential;

/// What a request is authenticated by. Two are equal if one may continue what the other began: a token with the same
/// secret, or the same identity, whatever its token is now. `Debug` shows the name only.
#[derive(Clone)]
pub(crate) enum Credential {
    /// A static token.
    Token(TokenCredential),
    /// A token of an identity provider.
    Identity(Arc<Verified>),
    /// A person that signed in to the fallback service, which ends what belongs to the sign-in.
    Person(Arc<Principal>),
    /// The certificate of the client's connection.
    Certificate(Arc<Principal>),
}

impl Credential {
    /// Who it is.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        match self {
            Self::Token(token) => token.principal(),
            Self::Identity(verified) => verified.principal(),
            Self::Person(principal) | Self::Certificate(principal) => principal,
        }
    }

    /// Whether it comes from an identity provider, so that another token of it may do more.
    pub(crate) fn is_identity(&self) -> bool {
        matches!(self, Self::Identity(_))
    }

    /// For how long streams may be opened with it. Static tokens are valid until they are replaced.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        match self {
            Self::Identity(verified) => Some(verified.remaining()),
            Self::Token(_) | Self::Person(_) | Self::Certificate(_) => None,
        }
    }
}

impl From<TokenCredential> for Credential {
    fn from(token: TokenCredential) -> Self {
        Self::Token(token)
    }
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token(one), Self::Token(other)) => one == other,
            (Self::Token(_), _) | (_, Self::Token(_)) => false,
            // Who is bound to another profile now does not continue what he began.
            (one, other) => {
                one.principal() == other.principal() && one.principal().profile() == other.principal().profile()
            }
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Credential").field(self.principal().name()).finish()
    }
}
