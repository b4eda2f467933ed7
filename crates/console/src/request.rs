//! One request to the console: who asks, where to, and what they say.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, REFERER};
use http::request::Parts;
use http::{HeaderMap, Method};
use service::{Actor, Service};

use crate::form::{self, Form};
use crate::layout::{Flash, LayoutContext};
use crate::response::PageResponse;
use crate::session::{CSRF_HEADER, Visitor};
use crate::{Console, LetIn, layout};

/// Whose name is written down where there are no tokens.
const ANONYMOUS_ACTOR: &str = "console";

/// The header by which scripts say that a page is only brought up to date.
const LIVE_HEADER: &str = "x-live";

/// One request.
pub(crate) struct PageRequest<'c> {
    pub(crate) console: &'c Console,
    pub(crate) visitor: Visitor,
    /// Whether this is somebody who may see anything.
    pub(crate) is_let_in: bool,
    /// Its connection is enough: no token is needed from there.
    pub(crate) needs_no_token: bool,
    /// On whose behalf things are done.
    pub(crate) actor: Actor,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Its path and its query, as they were sent.
    pub(crate) asked_for: String,
    pub(crate) query: Form,
    pub(crate) form: Form,
    pub(crate) headers: HeaderMap,
    /// A token was shown with the request itself, which no other page can make a browser do.
    has_token: bool,
}

impl<'c> PageRequest<'c> {
    pub(crate) fn new(console: &'c Console, parts: &Parts, body: &Bytes, principal: Arc<str>) -> Self {
        let mut visitor = console.sessions.visitor(&parts.headers);
        let has_token = !principal.is_empty();
        if has_token {
            visitor.principal = Some(principal);
        }
        let is_form = parts
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
        let needs_no_token = parts.extensions.get::<LetIn>().is_some();
        let name = visitor.principal.clone().unwrap_or_else(|| Arc::from(ANONYMOUS_ACTOR));
        Self {
            console,
            is_let_in: needs_no_token || visitor.principal.is_some(),
            needs_no_token,
            visitor,
            actor: Actor { name },
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

    /// The parts of its path, read.
    pub(crate) fn segments(&self) -> Vec<String> {
        self.path.split('/').filter(|part| !part.is_empty()).map(form::segment).collect()
    }

    /// Whether a change was asked for by one of our pages, or by somebody with a token in hand.
    pub(crate) fn has_valid_csrf(&self) -> bool {
        let header = self.headers.get(CSRF_HEADER).and_then(|secret| secret.to_str().ok());
        self.has_token || self.visitor.has_valid_csrf(self.form.get("csrf").or(header))
    }

    /// What every form on a page has to bring along.
    pub(crate) fn csrf(&self) -> crate::html::Html {
        layout::csrf_field(&self.visitor.csrf)
    }

    /// Where we are, as the browser sees it.
    pub(crate) fn origin(&self) -> String {
        let host = self.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1:8808");
        let is_https = self.headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
        format!("{}://{host}", if is_https { "https" } else { "http" })
    }

    /// The page of ours that it was sent from, as far as the browser says.
    pub(crate) fn came_from(&self) -> String {
        let referer = self.headers.get(REFERER).and_then(|referer| referer.to_str().ok()).unwrap_or_default();
        referer.strip_prefix(&self.origin()).filter(|path| path.starts_with('/')).unwrap_or("/").to_owned()
    }

    /// Something was done: says so on the page that is shown next.
    pub(crate) fn done(&self, message: impl Into<String>, next: impl Into<String>) -> PageResponse {
        self.console.set_flash(&self.visitor.id, Flash { is_good: true, message: message.into() });
        PageResponse::Seen(next.into())
    }

    /// Something could not be done: says so on the page that is shown next.
    pub(crate) fn failed(&self, message: impl Into<String>, next: impl Into<String>) -> PageResponse {
        self.console.set_flash(&self.visitor.id, Flash { is_good: false, message: message.into() });
        PageResponse::Seen(next.into())
    }

    /// What the frame is to be told.
    pub(crate) fn layout_context(&self) -> LayoutContext<'_> {
        LayoutContext {
            csrf: &self.visitor.csrf,
            principal: self.visitor.principal.as_deref(),
            // A page that only brings itself up to date shows nothing new of its own.
            flash: if self.headers.contains_key(LIVE_HEADER) {
                None
            } else {
                self.console.take_flash(&self.visitor.id)
            },
            executions_stopped: self.service().executions_are_stopped(),
        }
    }
}
