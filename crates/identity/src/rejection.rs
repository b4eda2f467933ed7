//! Why a token is not accepted.

/// Why a token of an identity provider is not accepted. Contains nothing of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It is neither a token of this service nor one that an identity provider could be asked about.
    #[error("unknown token")]
    Unknown,
    /// It is a JWT that cannot be read.
    #[error("the token is malformed")]
    Malformed,
    /// Its `alg` is `none`, symmetric, or unknown.
    #[error("the token is signed with an algorithm that is not allowed")]
    Algorithm,
    /// Its `typ` is that of another kind of JWT, or it has critical extensions.
    #[error("the token is not an access token")]
    Type,
    /// Its `iss` is not configured.
    #[error("the token has another issuer")]
    Issuer,
    /// The issuer has no such key.
    #[error("the token is signed with a key that its issuer does not have")]
    Key,
    /// The signature does not fit.
    #[error("the signature of the token is not valid")]
    Signature,
    /// Its `exp` is over, or it has none.
    #[error("the token has expired")]
    Expired,
    /// Its `nbf` lies in the future.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Its `aud` is something else.
    #[error("the token is for another audience")]
    Audience,
    /// It has no usable `sub`.
    #[error("the token has no usable subject")]
    Subject,
    /// The claim that binds a profile is no name of a profile.
    #[error("the claim with the profile is not a name")]
    Profile,
    /// The issuer says that it is not active.
    #[error("the token is not active")]
    Inactive,
    /// The issuer cannot be asked now.
    #[error("the identity provider is unreachable; try again")]
    Unavailable,
}

impl Rejection {
    /// Whether whoever sent it may have guessed a token: a signature cannot be guessed, and an issuer that is
    /// unreachable says nothing.
    pub fn may_be_guess(self) -> bool {
        matches!(self, Self::Unknown | Self::Inactive)
    }
}
