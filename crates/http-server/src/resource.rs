//! The service as an OAuth 2.0 protected resource (RFC 9728): its metadata, its challenges, and whose tokens it accepts.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use catalog::Role;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use identity::{Verifier, scope_of};
use protocol::reply;

use crate::answer;
use crate::body::Body;
use crate::path::endpoint;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
const REALM: &str = "Bearer realm=\"mcp-aggregator\"";

/// Accepts the tokens of identity providers.
#[derive(Debug, Clone)]
pub struct ProtectedResource {
    verifier: Arc<Verifier>,
    /// What users call the service, without a slash at its end.
    origin: String,
    path: String,
}

impl ProtectedResource {
    /// `public_url` is what tokens are for, and what clients call the service.
    pub fn new(verifier: Arc<Verifier>, public_url: &str) -> Self {
        let url = public_url.trim_end_matches('/');
        let end_of_scheme = url.find("://").map_or(0, |at| at + 3);
        let end_of_origin = url[end_of_scheme..].find('/').map_or(url.len(), |at| at + end_of_scheme);
        let (origin, path) = url.split_at(end_of_origin);
        Self { verifier, origin: origin.to_owned(), path: path.to_owned() }
    }

    pub(crate) fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Whether a token for this audience is accepted at a path. A token for the whole service is accepted everywhere, one
    /// for an endpoint at that endpoint. REST and the console have no endpoint of their own: there, a token for `/mcp` is
    /// as good.
    pub(crate) fn is_audience(&self, path: &str, audience: &str) -> bool {
        let audience = audience.strip_suffix('/').unwrap_or(audience);
        let below = audience.strip_prefix(self.origin.as_str()).and_then(|rest| rest.strip_prefix(self.path.as_str()));
        match (below, endpoint(path)) {
            (None, _) => false,
            (Some(""), _) => true,
            (Some(below), Some(endpoint)) => below == endpoint,
            // The messages of HTTP+SSE are sent to one address, whichever their session began at.
            (Some(below), None) if matches!(path, "/message" | "/messages") => {
                endpoint(below) == Some(below) && below.starts_with("/sse")
            }
            (Some(below), None) => below == "/mcp",
        }
    }

    /// The metadata that is published at a path; `None` if it is another path.
    pub(crate) fn metadata(&self, path: &str) -> Option<Bytes> {
        let inserted = path.strip_prefix(WELL_KNOWN)?;
        // A proxy may have removed our own path.
        let below = inserted.strip_prefix(self.path.as_str()).unwrap_or(inserted);
        let endpoint = match below {
            "" | "/" => None,
            below => Some(endpoint(below)?),
        };
        let resource = format!("{}{}{}", self.origin, self.path, endpoint.unwrap_or_default());
        let issuers = self.verifier.issuers().map(reply::string);
        let mut members = vec![
            ("resource", reply::string(&resource)),
            ("authorization_servers", array(issuers)),
            ("bearer_methods_supported", array([reply::string("header")])),
        ];
        if self.verifier.has_role_scopes() {
            // What MCP needs; REST and the console, which need more, have no endpoint of their own.
            let roles = if endpoint.is_some() { &[Role::User][..] } else { &Role::ALL };
            members.push(("scopes_supported", array(roles.iter().map(|role| reply::string(&scope_of(*role))))));
        }
        Some(reply::object(members).into())
    }

    /// The challenge to a request for a path: what is wrong with its token, if it has one, and the scope that it needs.
    pub(crate) fn challenge(&self, path: &str, problem: Option<(&str, &str)>, needed: Role) -> String {
        let mut challenge = REALM.to_owned();
        if let Some((error, description)) = problem {
            write!(challenge, ", error=\"{error}\", error_description=\"{description}\"")
                .expect("a string takes everything");
        }
        let endpoint = endpoint(path).unwrap_or_default();
        write!(challenge, ", resource_metadata=\"{}{WELL_KNOWN}{}{endpoint}\"", self.origin, self.path)
            .expect("a string takes everything");
        if self.verifier.has_role_scopes() {
            write!(challenge, ", scope=\"{}\"", scope_of(needed)).expect("a string takes everything");
        }
        challenge
    }
}

/// The metadata that a request asks for, which needs no token.
pub(crate) fn answer(resource: Option<&ProtectedResource>, parts: &Parts) -> Option<Response<Body>> {
    let metadata = resource?.metadata(parts.uri.path())?;
    match parts.method {
        Method::GET | Method::HEAD => Some(answer::json(StatusCode::OK, Body::Whole(metadata))),
        // Before a browser asks with headers of its own.
        Method::OPTIONS => None,
        _ => Some(answer::not_allowed("GET")),
    }
}

fn array(items: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<Vec<u8>> = items.into_iter().collect();
    [&b"["[..], &items.join(&b","[..]), b"]"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use identity::ClaimRules;

    fn resource(public_url: &str, role_claim: Option<&str>) -> ProtectedResource {
        #[derive(Debug)]
        struct Never;
        impl oauth::Fetch for Never {
            fn fetch(
                &self,
                _: oauth::HttpRequest,
            ) -> std::pin::Pin<Box<dyn Future<Output = Result<oauth::HttpResponse, oauth::FetchError>> + Send + '_>>
            {
                panic!("nothing is fetched")
            }
        }
        let rules = ClaimRules { role_claim: role_claim.map(str::to_owned), ..ClaimRules::default() };
        let issuer = identity::IssuerSettings { issuer: "https://id.example/team".to_owned(), client: None };
        let fetch = Arc::new(Never) as Arc<dyn oauth::Fetch>;
        ProtectedResource::new(Arc::new(Verifier::new(vec![issuer], rules, &fetch)), public_url)
    }

    fn metadata(resource: &ProtectedResource, path: &str) -> Option<String> {
        resource.metadata(path).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn every_endpoint_has_its_metadata() {
        let resource = resource("https://mcp.example/", None);
        for (path, named) in [
            ("/.well-known/oauth-protected-resource/mcp", "https://mcp.example/mcp"),
            ("/.well-known/oauth-protected-resource/mcp/", "https://mcp.example/mcp"),
            ("/.well-known/oauth-protected-resource/mcp/git", "https://mcp.example/mcp/git"),
            ("/.well-known/oauth-protected-resource/mcp/@dev", "https://mcp.example/mcp/@dev"),
            ("/.well-known/oauth-protected-resource/sse", "https://mcp.example/sse"),
        ] {
            let expected = format!(
                r#"{{"resource":"{named}","authorization_servers":["https://id.example/team"],"bearer_methods_supported":["header"],"scopes_supported":["mcp:user"]}}"#
            );
            assert_eq!(metadata(&resource, path).unwrap(), expected);
        }
        let root = metadata(&resource, "/.well-known/oauth-protected-resource").unwrap();
        assert!(root.starts_with(r#"{"resource":"https://mcp.example","#) && root.contains("mcp:admin"), "{root}");
        for other in ["/.well-known/oauth-protected-resourcex", "/.well-known/oauth-protected-resource/api", "/mcp"] {
            assert_eq!(metadata(&resource, other), None, "{other}");
        }
    }

    #[test]
    fn a_service_below_a_path_keeps_it() {
        let resource = resource("https://x.example/tools", Some("roles"));
        for path in ["/.well-known/oauth-protected-resource/tools/mcp", "/.well-known/oauth-protected-resource/mcp"] {
            let found = metadata(&resource, path).unwrap();
            assert!(found.starts_with(r#"{"resource":"https://x.example/tools/mcp","#), "{found}");
            assert!(!found.contains("scopes_supported"), "roles come from a claim: {found}");
        }
        assert_eq!(
            resource.challenge("/mcp/git", None, Role::User),
            "Bearer realm=\"mcp-aggregator\", \
             resource_metadata=\"https://x.example/.well-known/oauth-protected-resource/tools/mcp/git\""
        );
    }

    #[test]
    fn a_challenge_names_the_metadata_and_the_scope() {
        let resource = resource("https://mcp.example", None);
        assert_eq!(
            resource.challenge("/mcp", Some(("invalid_token", "the token has expired")), Role::User),
            "Bearer realm=\"mcp-aggregator\", error=\"invalid_token\", error_description=\"the token has expired\", \
             resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource/mcp\", scope=\"mcp:user\""
        );
        let challenge = resource.challenge("/mcp/a\"b", None, Role::Admin);
        assert!(challenge.ends_with("oauth-protected-resource\", scope=\"mcp:admin\""), "{challenge}");
    }

    #[test]
    fn a_token_is_for_the_service_or_for_one_endpoint() {
        let resource = resource("https://mcp.example", None);
        let is = |path: &str, audience: &str| resource.is_audience(path, audience);
        for path in ["/mcp", "/mcp/git", "/sse", "/message", "/api/v1/aggregator/tools", "/"] {
            assert!(is(path, "https://mcp.example") && is(path, "https://mcp.example/"), "{path}");
            for other in ["https://mcp.example.evil", "http://mcp.example", "https://mcp", "", "https://mcp.examplemcp"]
            {
                assert!(!is(path, other), "{path} {other}");
            }
        }
        assert!(is("/mcp", "https://mcp.example/mcp") && is("/mcp/", "https://mcp.example/mcp/"));
        assert!(is("/mcp/git", "https://mcp.example/mcp/git"));
        assert!(!is("/mcp", "https://mcp.example/mcp/git") && !is("/mcp/git", "https://mcp.example/mcp"));
        assert!(!is("/mcp/git", "https://mcp.example/mcp/gitlab"));
        assert!(is("/api/v1/aggregator/tools", "https://mcp.example/mcp"));
        assert!(!is("/api/v1/aggregator/tools", "https://mcp.example/mcp/git"));
        assert!(is("/message", "https://mcp.example/sse/git") && !is("/message", "https://mcp.example/mcp"));
    }
}
