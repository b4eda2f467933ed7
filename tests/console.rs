//! The web console as a browser without scripts sees it: every page and every deed, over HTTP.
//!
//! - [`pages`]: what every page must be; [`deeds`]: what can be done on them; [`door`]: who may
//! - [`hostile`]: what servers say stays text; [`documents`]: documents that run tools
//! - [`items`]: clients, prompts, resources, and times
//! - [`scriptless`]: what scripts would do, done by pages
//! - [`usage`]: what servers use, and what they say on the side; [`many`]: pages with very much to show

mod actions;
pub(crate) mod documents;
pub(crate) mod hostile;
mod items;
mod many;
mod pages;
mod sign_in;
pub(crate) mod usage;
mod without_scripts;

use std::cell::RefCell;

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::puppet::Puppet;
use testkit::serve::Fetched;

use crate::rest::{Rest, expect};

/// A browser that keeps its cookie, fills in forms and follows redirects.
pub(crate) struct Visitor<'r> {
    rest: &'r Rest,
    cookie: RefCell<Option<String>>,
}

impl<'r> Visitor<'r> {
    pub(crate) fn new(rest: &'r Rest) -> Self {
        Self { rest, cookie: RefCell::default() }
    }

    fn send(&self, ask: HttpRequest) -> Fetched {
        let ask = match &*self.cookie.borrow() {
            Some(cookie) => ask.header("Cookie", cookie),
            None => ask,
        };
        let answer = self.rest.serve.fetch(&ask);
        if let Some(set) = answer.headers.get("set-cookie") {
            assert!(set.contains("; HttpOnly; SameSite=Strict"), "{set}");
            *self.cookie.borrow_mut() = set.split(';').next().map(str::to_owned);
        }
        answer
    }

    /// A page, wherever it is.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Fetched {
        self.send(HttpRequest::new("GET", path))
    }

    /// A page that is there.
    #[track_caller]
    pub(crate) fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    /// The secret that pages bring along.
    pub(crate) fn csrf(&self) -> String {
        let page = self.get("/login").body;
        let page = if page.contains("name=\"csrf\"") { page } else { self.get("/settings").body };
        let from = page.split("name=\"csrf\" value=\"").nth(1).expect("a form has the secret");
        from.split('"').next().unwrap_or_default().to_owned()
    }

    /// Sends a form as it is.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, fields: &[(&str, &str)]) -> Fetched {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let ask = HttpRequest::new("POST", path).header("Content-Type", "application/x-www-form-urlencoded");
        self.send(ask.body(body.join("&")))
    }

    /// Sends a form of one of our pages, and looks at the page that follows.
    #[track_caller]
    pub(crate) fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Fetched {
        let csrf = self.csrf();
        let mut all = vec![("csrf", csrf.as_str())];
        all.extend_from_slice(fields);
        let answer = self.post(path, &all);
        match answer.headers.get("location") {
            Some(next) if answer.status == 303 => self.get(next),
            _ => answer,
        }
    }
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Registers a directed server and waits until it is connected.
#[track_caller]
pub(crate) fn add_puppet(rest: &Rest, name: &str, puppet: &Puppet) {
    let config = json!({"url": format!("http://{}/mcp", puppet.address())});
    let registration = json!({"name": name, "transport_type": "http", "connection_config": config});
    expect(201, &rest.post("/servers", &registration));
    rest.wait_for_status(name, "connected");
}
