//! Profiles: named views of what all servers offer, for some clients.
//!
//! A profile hides by leaving out: [`Profile::narrowed`] makes, from what a server offers, what clients of the profile
//! see of it. Lists, lookups, errors and counts follow from the snapshot of that, so none of them has a check of its own.
//!
//! - here: a profile in effect, and what it leaves of a server
//! - `spec`: a profile as it is written, and what is wrong with it
//! - `patterns`: which names a list of patterns admits
//! - `unmatched`: patterns that match nothing

mod patterns;
mod spec;
#[cfg(test)]
mod tests;
mod unmatched;

pub use patterns::{MAX_PATTERN_BYTES, MAX_PATTERNS, Patterns};
pub use spec::{
    MAX_PROFILE_NAME_BYTES, MAX_PROFILES, MEMBERS, ProfileProblem, ProfileSpec, SURFACES, ToolClass, is_profile_name,
    profiles_of_config,
};
pub use unmatched::Unmatched;

use std::collections::HashSet;
use std::sync::Arc;

use protocol::Lifecycle;
use protocol::scan::{Span, member};

use crate::item::{Item, Kind};
use crate::offer::Offer;
use crate::snapshot::{ServerEntry, ServerState};

/// A profile in effect.
#[derive(Debug)]
pub struct Profile {
    name: Arc<str>,
    spec: ProfileSpec,
    servers: Option<Patterns>,
    tools: Option<Patterns>,
    prompts: Option<Patterns>,
    resources: Option<Patterns>,
    /// What remains of a server that it hides. One for all, so that comparisons can skip it.
    nothing: Arc<Offer>,
}

impl Profile {
    /// The profile of that name.
    pub fn new(name: &str, spec: ProfileSpec) -> Arc<Self> {
        let patterns = |written: &Option<Vec<String>>| written.as_deref().map(Patterns::new);
        Arc::new(Self {
            name: Arc::from(name),
            servers: patterns(&spec.servers),
            tools: patterns(&spec.tools),
            prompts: patterns(&spec.prompts),
            resources: patterns(&spec.resources),
            nothing: Arc::new(Offer::new(Lifecycle::Session)),
            spec,
        })
    }

    /// The profile that hides everything: what clients see of a profile that does not exist any more.
    pub fn of_nothing() -> Arc<Self> {
        Self::new("", ProfileSpec { servers: Some(Vec::new()), ..ProfileSpec::default() })
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How it is written.
    pub fn spec(&self) -> &ProfileSpec {
        &self.spec
    }

    /// Whether it has this server.
    pub fn has_server(&self, name: &str) -> bool {
        self.servers.as_ref().is_none_or(|servers| servers.admits(name))
    }

    /// Whether its clients may use this URI, of a listed resource or not.
    pub fn has_uri(&self, uri: &str) -> bool {
        self.resources.as_ref().is_none_or(|resources| resources.admits(uri))
    }

    /// What its clients see of a server. If that is everything, the offer keeps its allocation.
    pub fn narrowed(&self, entry: &ServerEntry) -> ServerEntry {
        if entry.state == ServerState::Removed || !self.has_server(entry.name.as_str()) {
            return ServerEntry {
                name: entry.name.clone(),
                state: ServerState::Removed,
                offer: Arc::clone(&self.nothing),
            };
        }
        ServerEntry { offer: self.narrowed_offer(entry), ..entry.clone() }
    }

    fn narrowed_offer(&self, entry: &ServerEntry) -> Arc<Offer> {
        let whole = &entry.offer;
        let mut narrowed: Option<Offer> = None;
        let mut hidden_names: Vec<Arc<str>> = Vec::new();
        for kind in Kind::ALL {
            let visible = self.visible(entry, kind);
            if visible.iter().all(|is_visible| *is_visible) {
                continue;
            }
            let items = whole.items(kind).iter().zip(&visible);
            hidden_names.extend(items.filter(|(_, is_visible)| !**is_visible).map(|(item, _)| Arc::clone(&item.id)));
            let narrowed = narrowed.get_or_insert_with(|| Offer::clone(whole));
            retain(narrowed, kind, &visible);
            narrowed.modern = narrowed.modern.take().map(|modern| {
                let mut modern = Offer::clone(&modern);
                retain(&mut modern, kind, &visible);
                Arc::new(modern)
            });
        }
        let Some(mut narrowed) = narrowed else { return Arc::clone(whole) };
        // Instructions are one text. It goes as a whole if it names what is hidden.
        narrowed.instructions = narrowed.instructions.filter(|text| !names_one_of(text, &hidden_names));
        narrowed.modern = narrowed.modern.map(|modern| {
            let mut modern = Offer::clone(&modern);
            modern.instructions = modern.instructions.filter(|text| !names_one_of(text, &hidden_names));
            Arc::new(modern)
        });
        Arc::new(narrowed)
    }

    /// Which of the items of a server it has, in their order.
    fn visible(&self, entry: &ServerEntry, kind: Kind) -> Vec<bool> {
        let items = entry.offer.items(kind);
        let modern = entry.offer.for_lifecycle(Lifecycle::SelfContained).items(kind);
        if Arc::ptr_eq(items, modern) {
            return items.iter().map(|item| self.has_item(entry.name.as_str(), kind, item)).collect();
        }
        // Both definitions of an item must be what the profile admits.
        let pairs = items.iter().zip(modern.iter());
        let has = |item: &Item| self.has_item(entry.name.as_str(), kind, item);
        let mut visible: Vec<bool> = pairs.map(|(item, modern)| has(item) && has(modern)).collect();
        visible.resize(items.len(), false);
        visible
    }

    /// Whether it has this item of one of its servers.
    pub fn has_item(&self, server: &str, kind: Kind, item: &Item) -> bool {
        let is_named = |patterns: &Option<Patterns>| {
            patterns.as_ref().is_none_or(|patterns| patterns.admits(&full_name(server, &item.id)))
        };
        match kind {
            Kind::Tool => self.has_tool(server, &item.id, &item.definition),
            Kind::Prompt => is_named(&self.prompts),
            // A template is admitted as it is written. Whether a URI that is made of it may be read is another question.
            Kind::Resource | Kind::Template => self.has_uri(&item.id),
        }
    }

    /// Whether it has this tool, if it has its server.
    pub fn has_tool(&self, server: &str, tool: &str, definition: &[u8]) -> bool {
        let is_named = |tools: &Patterns| tools.admits(&full_name(server, tool));
        self.tools.as_ref().is_none_or(is_named) && self.has_class(definition)
    }

    fn has_class(&self, definition: &[u8]) -> bool {
        let Some(classes) = &self.spec.classes else { return true };
        let whole = Span { start: 0, end: definition.len() };
        let annotations = member(definition, whole, "annotations").filter(|span| definition[span.start] == b'{');
        let hint = |name: &str| Some(member(definition, annotations?, name)?.of(definition));
        let is_read_only = hint("readOnlyHint") == Some(b"true");
        // Without the hint, a tool that writes counts as destructive.
        let is_harmless = is_read_only || hint("destructiveHint") == Some(b"false");
        classes.iter().any(|class| match class {
            ToolClass::ReadOnly => is_read_only,
            ToolClass::NonDestructive => is_harmless,
        })
    }
}

/// Two profiles are equal if they are called and written the same.
impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.spec == other.spec
    }
}

impl Eq for Profile {}

/// The name that patterns match, whatever separator the names of tools have in lists.
fn full_name(server: &str, item: &str) -> String {
    format!("{server}.{item}")
}

/// Removes the other items of one kind.
fn retain(offer: &mut Offer, kind: Kind, visible: &[bool]) {
    let kept = offer.items(kind).iter().zip(visible).filter(|(_, is_visible)| **is_visible);
    let kept: Vec<Item> = kept.map(|(item, _)| item.clone()).collect();
    offer.set_items(kind, kept, offer.hints[kind as usize]);
    // They name items.
    offer.set_notices(kind, Vec::new());
}

/// Whether a text contains one of these names as a whole word.
fn names_one_of(text: &str, names: &[Arc<str>]) -> bool {
    let is_of_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-');
    let words: HashSet<&str> = text.split(|char| !is_of_name(char)).collect();
    names.iter().any(|name| match name.chars().all(is_of_name) {
        true => words.contains(&**name),
        false => text.contains(&**name),
    })
}
