//! The address that the user opens, and the redirect back from it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use catalog::{OAuthSettings, ResourceParameter};
use sha2::{Digest as _, Sha256};
use url::{Url, form_urlencoded};

use crate::error::{FlowError, Step, excerpt};
use crate::flow::challenge::Challenge;
use crate::flow::discovery::{Evidence, Found};
use crate::flow::metadata::ServerMetadata;
use crate::protected::Protected;
use crate::secret::Secret;

/// The issuer of Google, which issues refresh tokens only if it is asked in its own way.
const GOOGLE: &str = "https://accounts.google.com";
const OFFLINE_ACCESS: &str = "offline_access";

/// What an authorization request asks for.
pub(crate) struct Authorization<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) redirect_uri: &'a str,
    pub(crate) scopes: &'a [String],
    pub(crate) resource: Option<&'a str>,
    pub(crate) state: &'a str,
    pub(crate) verifier: &'a Secret,
}

impl Authorization<'_> {
    /// The address of the authorization page.
    pub(crate) fn url(&self, server: &ServerMetadata) -> Result<String, FlowError> {
        let endpoint = server.authorization_endpoint.as_deref().ok_or_else(|| {
            FlowError::new(Step::Authorization, format!("{} has no authorization endpoint", server.issuer))
        })?;
        let mut url = Url::parse(endpoint)
            .map_err(|error| FlowError::new(Step::Authorization, error.to_string()).at(endpoint))?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.reveal()));
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", self.client_id)
            .append_pair("redirect_uri", self.redirect_uri)
            .append_pair("state", self.state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if !self.scopes.is_empty() {
            query.append_pair("scope", &self.scopes.join(" "));
        }
        if let Some(resource) = self.resource {
            query.append_pair("resource", resource);
        }
        // OpenID Connect ignores `offline_access` without consent.
        if server.issuer == GOOGLE {
            query.append_pair("access_type", "offline").append_pair("prompt", "consent");
        } else if self.scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
            query.append_pair("prompt", "consent");
        }
        drop(query);
        Ok(url.into())
    }
}

/// Refuses an authorization server that does not support PKCE with S256. One that says nothing is accepted only if the
/// user named it: some providers support it and do not say so.
pub(crate) fn require_pkce(found: &Found) -> Result<(), FlowError> {
    let server = &found.server;
    let problem = match (&server.code_challenge_methods_supported, found.evidence) {
        (Some(methods), _) if methods.iter().any(|method| method == "S256") => return Ok(()),
        (None, Evidence::Pinned | Evidence::Assumed) => return Ok(()),
        (Some(_), _) => format!("the authorization server {} does not support PKCE with S256", server.issuer),
        (None, Evidence::Published) => {
            let problem = format!("the authorization server {} does not say that it supports PKCE", server.issuer);
            let hint = format!("if you know that it does, set `oauth.issuer` to {}", server.issuer);
            return Err(FlowError::new(Step::Authorization, problem).hint(hint));
        }
    };
    Err(FlowError::new(Step::Authorization, problem).hint("a sign-in there would not be safe"))
}

/// The scopes to ask for: those configured, else those of the challenge, else those of the resource, and those that
/// were missing before. `offline_access` is added where the authorization server offers it.
pub(crate) fn scopes(settings: &OAuthSettings, challenge: &Challenge, found: &Found, before: &[String]) -> Vec<String> {
    let resource = || found.resource.as_ref().and_then(|resource| resource.scopes_supported.clone());
    let is_configured = settings.scopes.is_some();
    let wanted = settings.scopes.clone().or_else(|| challenge.scopes.clone()).or_else(resource).unwrap_or_default();
    let mut scopes = Vec::new();
    for scope in wanted.iter().chain(before) {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
    let offers_offline =
        found.server.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE_ACCESS) && !is_configured;
    if offers_offline && !scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
        scopes.push(OFFLINE_ACCESS.to_owned());
    }
    scopes
}

/// The `resource` parameter: exactly as the resource metadata spells it, else the URL of the server.
pub(crate) fn resource(protected: &Protected, found: &Found) -> Option<String> {
    match &protected.settings.resource {
        ResourceParameter::Exactly(resource) => Some(resource.clone()),
        ResourceParameter::Omitted => None,
        ResourceParameter::FromMetadata => {
            let said = found.resource.as_ref().map(|resource| resource.resource.clone());
            // A query may contain a key, and does not name a resource.
            Some(said.unwrap_or_else(|| protected.url.split('?').next().unwrap_or_default().to_owned()))
        }
    }
}

/// What a redirect to us contains.
#[derive(Default)]
pub(crate) struct Redirect {
    pub(crate) state: Option<String>,
    pub(crate) code: Option<Secret>,
    pub(crate) iss: Option<String>,
    error: Option<String>,
    description: Option<String>,
}

impl Redirect {
    /// Reads the query of a redirect; `None` if a parameter that matters is given twice.
    pub(crate) fn parse(query: &str) -> Option<Self> {
        let mut redirect = Self::default();
        let mut code = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let member = match &*name {
                "state" => &mut redirect.state,
                "code" => &mut code,
                "iss" => &mut redirect.iss,
                "error" => &mut redirect.error,
                "error_description" => &mut redirect.description,
                _ => continue,
            };
            if member.replace(value.into_owned()).is_some() {
                return None;
            }
        }
        redirect.code = code.filter(|code| !code.is_empty()).map(Secret::from);
        Some(redirect)
    }

    /// What is wrong with its `iss`. It is compared as it is, without normalising.
    pub(crate) fn problem_with_issuer(&self, issuer: &str, is_announced: bool) -> Option<String> {
        match &self.iss {
            Some(iss) if iss == issuer => None,
            Some(_) => Some(format!("it does not come from the authorization server {issuer}")),
            None if is_announced => Some(format!("it does not say that it comes from {issuer}, which announces to")),
            None => None,
        }
    }

    /// The error of the authorization server, escaped for people.
    pub(crate) fn error(&self) -> Option<String> {
        let error = excerpt(self.error.as_ref()?.as_bytes());
        let description = self.description.as_ref().map(|text| excerpt(text.as_bytes()));
        Some(match description.filter(|text| !text.is_empty()) {
            Some(description) => format!("{error} ({description})"),
            None => error,
        })
    }
}
