//! The items of a puppet.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::raw;

/// What a puppet offers, and its automatic responses. Definitions are kept as they are written.
#[derive(Clone, Debug)]
pub struct Spec {
    pub(super) legacy: bool,
    pub(super) modern: bool,
    pub(super) tools: Vec<String>,
    pub(super) prompts: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) templates: Vec<String>,
    pub(super) capabilities: Option<String>,
    pub(super) instructions: Option<String>,
    pub(super) page_size: usize,
    /// `ttlMs` and `cacheScope` of modern lists.
    pub(super) hints: (u64, String),
    /// Fixed results by method.
    pub(super) results: BTreeMap<String, String>,
    /// Methods that the test answers itself.
    pub(super) left_to_test: BTreeSet<String>,
    pub(super) echoes: bool,
}

impl Spec {
    fn empty() -> Self {
        Self {
            legacy: false,
            modern: false,
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            capabilities: None,
            instructions: None,
            page_size: usize::MAX,
            hints: (0, "private".to_owned()),
            results: BTreeMap::new(),
            left_to_test: BTreeSet::new(),
            echoes: false,
        }
    }

    /// A server of the revisions up to 2025-11-25.
    pub fn legacy() -> Self {
        Self { legacy: true, ..Self::empty() }
    }

    /// A server of 2026-07-28, which refuses `initialize`.
    pub fn modern() -> Self {
        Self { modern: true, ..Self::empty() }
    }

    /// A server of both lifecycles.
    pub fn dual() -> Self {
        Self { legacy: true, modern: true, ..Self::empty() }
    }

    /// Offers a tool of this name.
    pub fn tool(self, name: &str) -> Self {
        self.raw_tool(&json!({"name": name, "inputSchema": {"type": "object"}}).to_string())
    }

    /// Offers a tool defined exactly so.
    pub fn raw_tool(mut self, definition: &str) -> Self {
        self.tools.push(definition.to_owned());
        self
    }

    /// Removes all tools.
    pub fn without_tools(mut self) -> Self {
        self.tools.clear();
        self
    }

    /// Offers a prompt of this name.
    pub fn prompt(self, name: &str) -> Self {
        self.raw_prompt(&json!({"name": name}).to_string())
    }

    /// Offers a prompt defined exactly so.
    pub fn raw_prompt(mut self, definition: &str) -> Self {
        self.prompts.push(definition.to_owned());
        self
    }

    /// Offers a resource at this URI.
    pub fn resource(self, uri: &str) -> Self {
        self.raw_resource(&json!({"uri": uri, "name": uri}).to_string())
    }

    /// Offers a resource defined exactly so.
    pub fn raw_resource(mut self, definition: &str) -> Self {
        self.resources.push(definition.to_owned());
        self
    }

    /// Offers a resource template.
    pub fn template(self, template: &str) -> Self {
        self.raw_template(&json!({"uriTemplate": template, "name": template}).to_string())
    }

    /// Offers a resource template defined exactly so.
    pub fn raw_template(mut self, definition: &str) -> Self {
        self.templates.push(definition.to_owned());
        self
    }

    /// Declares exactly these capabilities. By default: everything in the revision except tasks.
    pub fn capabilities(mut self, object: &str) -> Self {
        self.capabilities = Some(object.to_owned());
        self
    }

    /// Has these instructions.
    pub fn instructions(mut self, text: &str) -> Self {
        self.instructions = Some(text.to_owned());
        self
    }

    /// Lists in pages of this size, with its own cursors.
    pub fn pages_of(mut self, items: usize) -> Self {
        self.page_size = items.max(1);
        self
    }

    /// Adds caching hints to every modern list.
    pub fn hints(mut self, ttl_ms: u64, cache_scope: &str) -> Self {
        self.hints = (ttl_ms, cache_scope.to_owned());
        self
    }

    /// Answers every request of this method with this result.
    pub fn answers(mut self, method: &str, result: &str) -> Self {
        self.results.insert(method.to_owned(), result.to_owned());
        self
    }

    /// Answers every call with its arguments, in the caller's own bytes, as `structuredContent`.
    pub fn echoes(mut self) -> Self {
        self.echoes = true;
        self
    }

    /// Leaves requests with this method to the test, although the script could answer them.
    pub fn leaves(mut self, method: &str) -> Self {
        self.left_to_test.insert(method.to_owned());
        self
    }

    /// Lets the script answer this method again.
    pub fn leaves_no_more(mut self, method: &str) -> Self {
        self.left_to_test.remove(method);
        self
    }

    pub(super) fn capabilities_text(&self) -> String {
        const ALL: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}"#;
        self.capabilities.clone().unwrap_or_else(|| ALL.to_owned())
    }

    /// The instructions as a member to append to a result.
    pub(super) fn instructions_member(&self) -> String {
        self.instructions.as_deref().map_or_else(String::new, |text| format!(",\"instructions\":{}", raw::quote(text)))
    }
}
