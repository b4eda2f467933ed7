//! Who we are at an authorization server: configured, a metadata document, or registered dynamically (RFC 7591).

use catalog::{OAuthSettings, Secrets, TokenEndpointAuthMethod};
use serde_json::{Map, Value, json};

use crate::error::{FlowError, Step, excerpt};
use crate::fetch::{HttpRequest, HttpResponse, METADATA_TIMEOUT, Method, Redirects, Wanted};
use crate::flow::metadata::{ServerMetadata, object};
use crate::flow::token;
use crate::grant::{ClientIdentity, ClientSource, Grant, unix_now};
use crate::protected::Protected;
use crate::sign_in::OAuthOptions;

/// Who we are, or how to find out.
pub(crate) enum Identity {
    /// It is known.
    Known(ClientIdentity),
    /// Register with this request.
    Register(HttpRequest),
}

/// The identity for a sign-in: configured, else a metadata document, else the registration of the last sign-in, else
/// a new one. `last` is the last sign-in.
pub(crate) fn identity(
    protected: &Protected,
    options: &OAuthOptions,
    server: &ServerMetadata,
    redirect_uri: &str,
    last: Option<&Grant>,
) -> Result<Identity, FlowError> {
    let settings = &protected.settings;
    if let Some(id) = &settings.client_id {
        refuse_other_issuer(settings, server, last)?;
        return Ok(Identity::Known(configured(id, settings, server, Some(redirect_uri))));
    }
    let document = settings.client_metadata_url.as_ref().or(options.client_metadata_url.as_ref());
    if let Some(document) = document.filter(|_| server.has_client_metadata_documents) {
        return Ok(Identity::Known(ClientIdentity {
            id: document.clone(),
            secret: None,
            secret_expires_at: None,
            auth_method: settings.token_endpoint_auth_method.unwrap_or(TokenEndpointAuthMethod::None),
            source: ClientSource::MetadataDocument,
            redirect_uri: Some(redirect_uri.to_owned()),
        }));
    }
    let registered = last.filter(|last| last.authorization_server.issuer == server.issuer).map(|last| &last.client);
    if let Some(client) = registered.filter(|client| is_usable(client, redirect_uri)) {
        return Ok(Identity::Known(client.clone()));
    }
    let Some(endpoint) = &server.registration_endpoint else {
        let problem = format!("the authorization server {} registers no clients dynamically", server.issuer);
        return Err(FlowError::new(Step::Registration, problem).hint(own_client(protected, redirect_uri)));
    };
    Ok(Identity::Register(request(protected, options, server, endpoint, redirect_uri)))
}

/// The client that the user configured.
pub(crate) fn configured(
    id: &str,
    settings: &OAuthSettings,
    server: &ServerMetadata,
    redirect_uri: Option<&str>,
) -> ClientIdentity {
    let auth_method = settings.token_endpoint_auth_method.unwrap_or_else(|| {
        if settings.client_secret.is_some() {
            secret_method(server)
        } else if settings.private_key_file.is_some() {
            TokenEndpointAuthMethod::PrivateKeyJwt
        } else {
            TokenEndpointAuthMethod::None
        }
    });
    ClientIdentity {
        id: id.to_owned(),
        // It is in the settings, which may change.
        secret: None,
        secret_expires_at: None,
        auth_method,
        source: ClientSource::Configured,
        redirect_uri: redirect_uri.map(str::to_owned),
    }
}

/// A configured client belongs to the authorization server that it was used with first, unless the user says another:
/// its secret must not go wherever the server points.
pub(crate) fn refuse_other_issuer(
    settings: &OAuthSettings,
    server: &ServerMetadata,
    last: Option<&Grant>,
) -> Result<(), FlowError> {
    let last = last.filter(|last| {
        last.client.source == ClientSource::Configured
            && Some(&last.client.id) == settings.client_id.as_ref()
            && last.authorization_server.issuer != server.issuer
    });
    let Some(last) = last.filter(|_| settings.issuer.is_none()) else { return Ok(()) };
    let problem = format!(
        "the configured client was used at {}, but the server now names the authorization server {}",
        last.authorization_server.issuer, server.issuer
    );
    let hint = format!("if that is right, configure a client of {0} and set `oauth.issuer` to {0}", server.issuer);
    Err(FlowError::new(Step::Registration, problem).hint(hint))
}

/// Whether a registration can be used again. A changed redirect address needs a new one.
pub(crate) fn is_usable(client: &ClientIdentity, redirect_uri: &str) -> bool {
    client.source == ClientSource::Registered
        && client.redirect_uri.as_deref() == Some(redirect_uri)
        && client.secret_expires_at.is_none_or(|end| end > unix_now() + 60)
}

fn request(
    protected: &Protected,
    options: &OAuthOptions,
    server: &ServerMetadata,
    endpoint: &str,
    redirect_uri: &str,
) -> HttpRequest {
    let method = protected.settings.token_endpoint_auth_method.unwrap_or_else(|| registered_method(server));
    let body = json!({
        "client_name": options.client_name,
        "software_version": options.client_version,
        "redirect_uris": [redirect_uri],
        "application_type": if is_loopback(redirect_uri) { "native" } else { "web" },
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method.as_str(),
    });
    HttpRequest {
        method: Method::Post,
        url: endpoint.to_owned(),
        headers: vec![("accept", "application/json".into()), ("content-type", "application/json".into())],
        body: body.to_string().into(),
        redirects: Redirects::Return,
        network: protected.network,
        timeout: METADATA_TIMEOUT,
        wanted: Wanted::Whole,
    }
}

/// Reads the answer to a registration.
pub(crate) fn registered(
    protected: &Protected,
    server: &ServerMetadata,
    redirect_uri: &str,
    response: &HttpResponse,
) -> Result<ClientIdentity, FlowError> {
    let endpoint = server.registration_endpoint.as_deref().unwrap_or_default();
    let members = object(&response.body);
    if !response.is_success() {
        let mut error = FlowError::response(Step::Registration, endpoint, response);
        match members.as_ref().and_then(error_text) {
            Some(code) => error.problem = format!("HTTP {}: {code}", response.status),
            None if members.as_ref().is_some_and(has_credentials) => {
                error.problem = format!("HTTP {}", response.status);
            }
            None => {}
        }
        return Err(error.hint(own_client(protected, redirect_uri)));
    }
    let fail = |problem: &str| FlowError::new(Step::Registration, problem).at(endpoint);
    // It may contain a secret, so nothing of it is shown.
    let members = members.ok_or_else(|| fail(&token::unreadable(response)))?;
    let id = members.get("client_id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| fail("the answer has no `client_id`"))?;
    let secret = members.get("client_secret").and_then(Value::as_str).filter(|secret| !secret.is_empty());
    let said = members.get("token_endpoint_auth_method").and_then(Value::as_str);
    let said = said.and_then(TokenEndpointAuthMethod::parse);
    let auth_method = match (protected.settings.token_endpoint_auth_method, said, secret) {
        (Some(configured), ..) => configured,
        (None, Some(said), _) => said,
        (None, None, Some(_)) => secret_method(server),
        (None, None, None) => TokenEndpointAuthMethod::None,
    };
    let expires = members.get("client_secret_expires_at").and_then(Value::as_u64).filter(|&end| end != 0);
    Ok(ClientIdentity {
        id: id.to_owned(),
        secret: secret.map(Into::into),
        secret_expires_at: expires,
        auth_method,
        source: ClientSource::Registered,
        redirect_uri: Some(redirect_uri.to_owned()),
    })
}

/// `error: error_description` of an error response, without the credentials that it contains.
pub(crate) fn error_text(members: &Map<String, Value>) -> Option<String> {
    let hidden = Secrets::default().with(credentials(members));
    let text = |key: &str| members.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let shown = |text: &str| excerpt(hidden.hide(text).as_bytes());
    match (text("error"), text("error_description")) {
        (Some(error), Some(description)) => Some(format!("{} ({})", shown(error), shown(description))),
        (Some(text), None) | (None, Some(text)) => Some(shown(text)),
        (None, None) => None,
    }
}

/// Whether an answer contains credentials that were issued to us.
pub(crate) fn has_credentials(members: &Map<String, Value>) -> bool {
    !credentials(members).is_empty()
}

fn credentials(members: &Map<String, Value>) -> Vec<&str> {
    let is_secret = |key: &str| key.ends_with("token") || key.ends_with("secret");
    let mut found = Vec::new();
    for (key, value) in members {
        match value {
            Value::String(text) if is_secret(key) => found.push(text.as_str()),
            Value::Object(members) => found.extend(credentials(members)),
            _ => {}
        }
    }
    found
}

/// The method to register with: the simplest one that the server offers.
fn registered_method(server: &ServerMetadata) -> TokenEndpointAuthMethod {
    use TokenEndpointAuthMethod::{ClientSecretBasic, ClientSecretPost, None as Public};
    let Some(offered) = &server.token_endpoint_auth_methods_supported else { return Public };
    let is_offered = |method: &TokenEndpointAuthMethod| offered.iter().any(|offered| offered == method.as_str());
    [Public, ClientSecretBasic, ClientSecretPost].into_iter().find(is_offered).unwrap_or(Public)
}

/// The method for a client with a secret. Without metadata, basic is what every server supports.
fn secret_method(server: &ServerMetadata) -> TokenEndpointAuthMethod {
    use TokenEndpointAuthMethod::{ClientSecretBasic, ClientSecretPost};
    let offered = server.token_endpoint_auth_methods_supported.as_deref().unwrap_or_default();
    let has = |method: TokenEndpointAuthMethod| offered.iter().any(|offered| offered == method.as_str());
    if has(ClientSecretPost) && !has(ClientSecretBasic) { ClientSecretPost } else { ClientSecretBasic }
}

/// What a user can do where no client can be registered dynamically.
fn own_client(protected: &Protected, redirect_uri: &str) -> String {
    format!(
        "register a client there yourself, with the redirect address {redirect_uri}, and put its id (and its secret, \
         if it has one) into `oauth.client_id` and `oauth.client_secret` of `{}`; or put a token into its `headers`",
        protected.server
    )
}

/// Whether a redirect address is on the user's own machine.
pub(crate) fn is_loopback(redirect_uri: &str) -> bool {
    let Ok(url) = url::Url::parse(redirect_uri) else { return false };
    match url.host() {
        Some(url::Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}
