//! One request to the console: actor, path, and form.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, REFERER};
use http::request::Parts;
use http::{HeaderMap, Method};
use registry::{Actor, Principal, Role};
use service::Service;

use crate::form::{self, Form};
use crate::layout::{Flash, LayoutContext};
use crate::response::PageResponse;
use crate::session::{CSRF_HEADER, Visitor};
use crate::{AuthenticatedByConnection, Console, layout, roles};

/// The actor in the audit log if there are no tokens.
const ANONYMOUS_ACTOR: &str = "console";

/// The header of requests that only update a page.
const LIVE_HEADER: &str = "x-live";

/// One request.
pub(crate) struct PageRequest<'c> {
    pub(crate) console: &'c Console,
    pub(crate) visitor: Visitor,
    /// Whether the user is authorized.
    pub(crate) is_let_in: bool,
    /// Whether the connection suffices without a token.
    pub(crate) needs_no_token: bool,
    /// The actor.
    pub(crate) actor: Actor,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Its path and query, as sent.
    pub(crate) asked_for: String,
    pub(crate) query: Form,
    pub(crate) form: Form,
    pub(crate) headers: HeaderMap,
    /// Whether the request itself carries a token, which no other site can make a browser do.
    has_token: bool,
}

impl<'c> PageRequest<'c> {
    pub(crate) fn new(console: &'c Console, parts: &Parts, body: &Bytes, principal: Arc<Principal>) -> Self {
        let mut visitor = console.sessions.visitor(&parts.headers);
        let has_token = !principal.is_local();
        if has_token {
            visitor.principal = Some(principal);
        }
        let is_form = parts
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
        let needs_no_token = parts.extensions.get::<AuthenticatedByConnection>().is_some();
        let actor = match &visitor.principal {
            Some(principal) => Actor::new(principal, ANONYMOUS_ACTOR),
            None => Actor::new(&Principal::local(), ANONYMOUS_ACTOR),
        };
        Self {
            console,
            is_let_in: needs_no_token || visitor.principal.is_some(),
            needs_no_token,
            visitor,
            actor,
            method: if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() },
            path: parts.uri.path().to_owned(),
            asked_for: parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            query: Form::read(parts.uri.query().unwrap_or_default().as_bytes()),
            form: if is_form { Form::read(body) } else { Form::default() },
            headers: parts.headers.clone(),
            has_token,
        }
    }

    /// The service.
    pub(crate) fn service(&self) -> &'c Arc<Service> {
        &self.console.service
    }

    /// What the user may do.
    pub(crate) fn role(&self) -> Role {
        self.actor.principal.role()
    }

    /// Whether the user may send a request: what shows a link or a form asks this first.
    pub(crate) fn may(&self, method: &Method, path: &str) -> bool {
        self.role() >= roles::required(method, path)
    }

    /// The decoded segments of its path.
    pub(crate) fn segments(&self) -> Vec<String> {
        self.path.split('/').filter(|part| !part.is_empty()).map(form::segment).collect()
    }

    /// Whether a change comes from a page of the console, or carries a token.
    pub(crate) fn has_valid_csrf(&self) -> bool {
        let header = self.headers.get(CSRF_HEADER).and_then(|secret| secret.to_str().ok());
        self.has_token || self.visitor.has_valid_csrf(self.form.get("csrf").or(header))
    }

    /// The hidden field that every form must have.
    pub(crate) fn csrf(&self) -> crate::html::Html {
        layout::csrf_field(&self.visitor.csrf)
    }

    /// The origin of the service, as the browser sees it.
    pub(crate) fn origin(&self) -> String {
        let host = self.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1:8808");
        let is_https = self.headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
        format!("{}://{host}", if is_https { "https" } else { "http" })
    }

    /// The page of the console that sent it, as far as the browser reports it.
    pub(crate) fn came_from(&self) -> String {
        let referer = self.headers.get(REFERER).and_then(|referer| referer.to_str().ok()).unwrap_or_default();
        referer.strip_prefix(&self.origin()).filter(|path| path.starts_with('/')).unwrap_or("/").to_owned()
    }

    /// Reports success on the next page.
    pub(crate) fn done(&self, message: impl Into<String>, next: impl Into<String>) -> PageResponse {
        self.console.set_flash(&self.visitor.id, Flash { is_good: true, message: message.into() });
        PageResponse::Seen(next.into())
    }

    /// Reports a failure on the next page.
    pub(crate) fn failed(&self, message: impl Into<String>, next: impl Into<String>) -> PageResponse {
        self.console.set_flash(&self.visitor.id, Flash { is_good: false, message: message.into() });
        PageResponse::Seen(next.into())
    }

    /// The context for the layout.
    pub(crate) fn layout_context(&self) -> LayoutContext<'_> {
        LayoutContext {
            csrf: &self.visitor.csrf,
            principal: self.visitor.principal.as_deref(),
            role: self.role(),
            // A live update does not consume messages.
            flash: if self.headers.contains_key(LIVE_HEADER) {
                None
            } else {
                self.console.take_flash(&self.visitor.id)
            },
            executions_stopped: self.service().executions_are_stopped(),
        }
    }
}
