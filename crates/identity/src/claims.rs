//! What a verified token, or the answer of an introspection, says.

use std::sync::Arc;
use std::time::Duration;

use catalog::{Principal, Role};
use serde_json::{Map, Value};

use crate::rejection::Rejection;
use crate::verifier::now;

/// By how many seconds the clocks of an issuer and ours may differ.
pub(crate) const LEEWAY: u64 = 30;
/// How long a subject, and a profile, may be.
const MAX_ID_BYTES: usize = 512;
/// Longer names of people are cut.
const MAX_NAME_CHARS: usize = 80;
/// Further audiences are not read.
const MAX_AUDIENCES: usize = 32;
/// The prefix of our scopes: `mcp:user`, `mcp:operator`, `mcp:admin`.
const SCOPE_PREFIX: &str = "mcp:";

/// What claims mean here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimRules {
    /// The claim with roles, instead of scopes.
    pub role_claim: Option<String>,
    /// The claim with the profile that an identity is bound to.
    pub profile_claim: Option<String>,
    /// The profile that the identities of a role are bound to, unless a claim names another.
    pub profile_of_role: Vec<(Role, String)>,
}

/// A token that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    principal: Arc<Principal>,
    audiences: Vec<String>,
    expires_at: u64,
}

/// The scope that gives a role.
pub fn scope_of(role: Role) -> String {
    format!("{SCOPE_PREFIX}{role}")
}

impl Verified {
    /// Whose token it is.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// For how long it is accepted.
    pub fn remaining(&self) -> Duration {
        Duration::from_secs(self.expires_at.saturating_add(LEEWAY).saturating_sub(now()))
    }

    /// Whether it is accepted at this time.
    pub(crate) fn is_current(&self, now: u64) -> bool {
        now < self.expires_at.saturating_add(LEEWAY)
    }

    /// Whether it is for one of these audiences.
    pub(crate) fn is_for(&self, is_accepted: impl Fn(&str) -> bool) -> bool {
        self.audiences.iter().any(|audience| is_accepted(audience))
    }

    /// Reads claims whose issuer is known.
    pub(crate) fn read(
        claims: &Map<String, Value>,
        issuer: &str,
        rules: &ClaimRules,
        now: u64,
    ) -> Result<Self, Rejection> {
        let expires_at = check_times(claims, now)?;
        let principal = rules.principal(claims, issuer)?;
        Ok(Self { principal, audiences: audiences(claims.get("aud")), expires_at })
    }
}

/// When claims expire, if they are valid now.
pub(crate) fn check_times(claims: &Map<String, Value>, now: u64) -> Result<u64, Rejection> {
    let expires_at = seconds(claims.get("exp")).ok_or(Rejection::Expired)?;
    if let Some(begins) = claims.get("nbf") {
        let begins = seconds(Some(begins)).ok_or(Rejection::Malformed)?;
        if begins > now.saturating_add(LEEWAY) {
            return Err(Rejection::NotYetValid);
        }
    }
    if now < expires_at.saturating_add(LEEWAY) { Ok(expires_at) } else { Err(Rejection::Expired) }
}

impl ClaimRules {
    fn principal(&self, claims: &Map<String, Value>, issuer: &str) -> Result<Arc<Principal>, Rejection> {
        let subject = text(claims, "sub").filter(|subject| is_id(subject)).ok_or(Rejection::Subject)?;
        let role = self.role(claims);
        let claimed = match self.profile_claim.as_deref().and_then(|name| find(claims, name)) {
            Some(value) => Some(profile(value)?),
            None => None,
        };
        let of_role = || self.profile_of_role.iter().find(|(of, _)| *of == role).map(|(_, profile)| profile.as_str());
        Ok(Principal::of_identity(issuer, subject, &name(claims, subject), role, claimed.or_else(of_role)))
    }

    /// The highest role that the token gives. With a claim for roles, scopes give none: clients choose the scopes that
    /// they ask for.
    fn role(&self, claims: &Map<String, Value>) -> Role {
        let words: Vec<&str> = match &self.role_claim {
            Some(name) => find(claims, name).map(words).unwrap_or_default(),
            None => ["scope", "scp"].iter().filter_map(|name| claims.get(*name)).flat_map(words).collect(),
        };
        let role = |word: &str| match (word.strip_prefix(SCOPE_PREFIX), &self.role_claim) {
            (Some(name), _) => Role::named(name),
            (None, Some(_)) => Role::named(word),
            (None, None) => None,
        };
        words.into_iter().filter_map(role).max().unwrap_or(Role::User)
    }
}

/// A claim by its name; one inside another by its path, as in `realm_access.roles`.
fn find<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    let found = claims.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        find(claims.get(first)?.as_object()?, rest)
    });
    found.filter(|value| !value.is_null())
}

/// A string with words, or an array of them.
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.split(' ').filter(|word| !word.is_empty()).collect(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A claim that cannot be read must not mean "no profile", which would show everything.
fn profile(value: &Value) -> Result<&str, Rejection> {
    let named = match value {
        Value::Array(items) if items.len() == 1 => items[0].as_str(),
        other => other.as_str(),
    };
    named.filter(|name| is_id(name)).ok_or(Rejection::Profile)
}

fn audiences(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => {
            all.iter().filter_map(Value::as_str).take(MAX_AUDIENCES).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// A name for people, which identifies nobody.
fn name(claims: &Map<String, Value>, subject: &str) -> String {
    let shown = |text: &str| -> String {
        text.chars().filter(|character| !character.is_control()).take(MAX_NAME_CHARS).collect()
    };
    let names = ["preferred_username", "email", "username", "name"].iter().filter_map(|name| text(claims, name));
    names.map(shown).find(|name| !name.is_empty()).unwrap_or_else(|| shown(subject))
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_ID_BYTES && !text.chars().any(char::is_control)
}

fn text<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c str> {
    claims.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// A time in seconds. Some issuers write fractions.
fn seconds(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| {
        let seconds = value.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
        // A float is cut, and one that is too large is the largest time.
        Some(seconds as u64)
    })
}
