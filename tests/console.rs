//! The web console in a browser without scripts: every page and every action, over HTTP.
//!
//! - [`pages`]: requirements of every page; [`actions`]: the actions on them; [`sign_in`]: access and sessions
//! - [`hostile`]: text of servers stays text; [`documents`]: documents that run tools
//! - [`items`]: clients, prompts, resources, and times
//! - [`without_scripts`]: confirmations, results and document runs as pages
//! - [`usage`]: CPU and memory of servers, and their stderr; [`many`]: pages with very much to show

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

    /// A page, with any status.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Fetched {
        self.send(HttpRequest::new("GET", path))
    }

    /// A page with status 200.
    #[track_caller]
    pub(crate) fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    /// The CSRF token of the pages.
    pub(crate) fn csrf(&self) -> String {
        let page = self.get("/login").body;
        let page = if page.contains("name=\"csrf\"") { page } else { self.get("/settings").body };
        let from = page.split("name=\"csrf\" value=\"").nth(1).expect("a form has the secret");
        from.split('"').next().unwrap_or_default().to_owned()
    }

    /// Sends a form unchanged.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, fields: &[(&str, &str)]) -> Fetched {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let ask = HttpRequest::new("POST", path).header("Content-Type", "application/x-www-form-urlencoded");
        self.send(ask.body(body.join("&")))
    }

    /// Sends a form of one of our pages, and follows to the next page.
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

/// Registers a puppet server, and waits until it is connected.
#[track_caller]
pub(crate) fn add_puppet(rest: &Rest, name: &str, puppet: &Puppet) {
    let config = json!({"url": format!("http://{}/mcp", puppet.address())});
    let registration = json!({"name": name, "transport_type": "http", "connection_config": config});
    expect(201, &rest.post("/servers", &registration));
    rest.wait_for_status(name, "connected");
}
