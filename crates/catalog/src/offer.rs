//! What one server offers: its self-description, and its items of every kind.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use protocol::Lifecycle;
use protocol::scan::{Span, member};
use protocol::text;

use crate::item::{Item, Kind};
use crate::uri_template::Templates;

/// Caching hints of a list. Modern servers send them; legacy servers do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// For how many milliseconds it may be cached.
    pub ttl_ms: u64,
    /// Whether it is for this client only, and must not be shared.
    pub is_private: bool,
}

impl Hints {
    /// The hints for an unknown list: do not cache, do not share.
    pub const NONE: Self = Self { ttl_ms: 0, is_private: true };

    /// The hints of a `result`; `None` if it has none. A missing or invalid hint means the cautious value.
    pub fn read(line: &[u8], result: Span) -> Option<Self> {
        let ttl = member(line, result, "ttlMs");
        let scope = member(line, result, "cacheScope");
        if ttl.is_none() && scope.is_none() {
            return None;
        }
        let is_public = scope.is_some_and(|scope| text::token_is(scope.of(line), "public"));
        Some(Self { ttl_ms: ttl.map_or(0, |ttl| milliseconds(ttl.of(line))), is_private: !is_public })
    }

    /// The hints of a combination: the shorter time, and private if either is.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { ttl_ms: self.ttl_ms.min(other.ttl_ms), is_private: self.is_private || other.is_private }
    }
}

/// The largest integer that every JSON parser represents exactly.
const LARGEST_SAFE: f64 = 9_007_199_254_740_991.0;

/// A number token as whole milliseconds; 0 if it is negative or not a number.
fn milliseconds(token: &[u8]) -> u64 {
    let number = std::str::from_utf8(token).ok().and_then(|token| token.parse::<f64>().ok());
    // The cast truncates the fraction.
    number.unwrap_or(0.0).clamp(0.0, LARGEST_SAFE) as u64
}

fn have_same_ids(own: &[Item], others: &[Item]) -> bool {
    let are_in_order = || own.iter().zip(others).all(|(one, other)| one.id == other.id);
    let are_known = || {
        let ids: HashSet<&str> = others.iter().map(|item| &*item.id).collect();
        own.iter().all(|item| ids.contains(&*item.id))
    };
    own.len() == others.len() && (are_in_order() || are_known())
}

/// `others` in the order of `own`; `None` if they do not have the same ids.
fn in_order_of(own: &[Item], others: &[Item]) -> Option<Vec<Item>> {
    if own.len() != others.len() {
        return None;
    }
    // Most servers list in the same order after both handshakes.
    if own.iter().zip(others).all(|(one, other)| one.id == other.id) {
        return Some(others.to_vec());
    }
    let by_id: HashMap<&str, &Item> = others.iter().map(|item| (&*item.id, item)).collect();
    own.iter().map(|item| by_id.get(&*item.id).copied().cloned()).collect()
}

fn weight(items: &[Item]) -> usize {
    items.iter().map(|item| item.definition.len()).sum()
}

/// Everything one server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The lifecycle of our connection to it.
    pub lifecycle: Lifecycle,
    /// Its capabilities: the JSON object as the server sent it, `{}` if there was none.
    pub capabilities: Bytes,
    /// Its instructions for models.
    pub instructions: Option<Arc<str>>,
    /// Its `serverInfo`: the JSON object as the server sent it, `{}` if there was none.
    pub info: Bytes,
    /// The caching hints of its lists, in the order of [`Kind::ALL`].
    pub hints: [Hints; 4],
    /// The same server after its modern handshake, if both handshakes were made: the same items in the same order.
    pub modern: Option<Arc<Self>>,
    items: [Arc<[Item]>; 4],
    /// The size of its definitions in bytes, by kind.
    weights: [usize; 4],
    /// Its resource templates, compiled.
    templates: Arc<Templates>,
    /// What was repaired or omitted, as text, by kind.
    notices: [Arc<[String]>; 4],
}

impl Offer {
    /// An empty offer.
    pub fn new(lifecycle: Lifecycle) -> Self {
        let empty = Bytes::from_static(b"{}");
        Self {
            lifecycle,
            capabilities: empty.clone(),
            instructions: None,
            info: empty,
            hints: [Hints::NONE; 4],
            modern: None,
            items: Default::default(),
            weights: [0; 4],
            templates: Arc::default(),
            notices: Default::default(),
        }
    }

    /// What it offers to clients of `lifecycle`.
    pub fn for_lifecycle(&self, lifecycle: Lifecycle) -> &Self {
        match &self.modern {
            Some(modern) if lifecycle == Lifecycle::SelfContained => modern,
            _ => self,
        }
    }

    /// Adds the offer of the modern handshake of the same server, with its items in our order. Fails with the kind
    /// whose items differ.
    pub fn with_modern(mut self, modern: &Self) -> Result<Self, Kind> {
        let mut modern = Self { modern: None, ..modern.clone() };
        for kind in Kind::ALL {
            let own = self.items(kind);
            let in_order = in_order_of(own, modern.items(kind)).ok_or(kind)?;
            // Most definitions are identical, and are stored once.
            modern.weights[kind as usize] = weight(&in_order);
            modern.items[kind as usize] = if *in_order == **own { Arc::clone(own) } else { in_order.into() };
        }
        self.modern = Some(Arc::new(modern));
        Ok(self)
    }

    /// Whether [`with_modern`](Self::with_modern) would succeed.
    pub fn has_same_items(&self, modern: &Self) -> bool {
        Kind::ALL.into_iter().all(|kind| have_same_ids(self.items(kind), modern.items(kind)))
    }

    /// Its items of one kind, in the server's order.
    pub fn items(&self, kind: Kind) -> &Arc<[Item]> {
        &self.items[kind as usize]
    }

    /// Replaces its items of one kind. Equal items keep their allocation, so that comparisons of two offers can skip
    /// them.
    pub fn set_items(&mut self, kind: Kind, items: Vec<Item>, hints: Hints) {
        self.hints[kind as usize] = hints;
        if *self.items[kind as usize] == *items {
            return;
        }
        if kind == Kind::Template {
            self.templates = Arc::new(Templates::compile(&items));
        }
        self.weights[kind as usize] = weight(&items);
        self.items[kind as usize] = items.into();
    }

    /// The size of the definitions of one kind in bytes.
    pub fn weight(&self, kind: Kind) -> usize {
        self.weights[kind as usize]
    }

    /// Its resource templates, for matching URIs.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// What was repaired or omitted among its items of one kind.
    pub fn notices(&self, kind: Kind) -> &[String] {
        &self.notices[kind as usize]
    }

    /// Sets what was repaired or omitted among its items of one kind.
    pub fn set_notices(&mut self, kind: Kind, notices: Vec<String>) {
        self.notices[kind as usize] = notices.into();
    }

    /// Whether it announces a capability.
    pub fn has(&self, capability: &str) -> bool {
        self.has_at(&[capability])
    }

    /// Whether it announces a part of a capability, such as `subscribe` of `resources`.
    pub fn has_within(&self, capability: &str, part: &str) -> bool {
        self.has_at(&[capability, part])
    }

    /// Whether there is an object or `true` at the end of `path`. Both announce a capability.
    pub fn has_at(&self, path: &[&str]) -> bool {
        let json = &self.capabilities;
        let whole = Span { start: 0, end: json.len() };
        let found = path.iter().try_fold(whole, |object, name| member(json, object, name));
        found.is_some_and(|value| value.of(json).starts_with(b"{") || value.of(json) == b"true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(capabilities: &'static str) -> Offer {
        Offer { capabilities: Bytes::from_static(capabilities.as_bytes()), ..Offer::new(Lifecycle::Session) }
    }

    fn hints(text: &str) -> Option<Hints> {
        Hints::read(text.as_bytes(), Span { start: 0, end: text.len() })
    }

    #[test]
    fn a_capability_is_an_object_or_true() {
        let offer = with(r#"{"a":{},"b":true,"c":false,"d":null,"e":1,"\u0066":{}}"#);
        let found: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].into_iter().filter(|name| offer.has(name)).collect();
        assert_eq!(found, ["a", "b", "f"]);
    }

    #[test]
    fn a_part_of_a_capability_is_found_within_it() {
        let offer = with(
            r#" {"resources":{"subscribe":true,"listChanged":false},"tasks":{"list":{},"requests":{"tools":{"call":{}}}}} "#,
        );
        assert!(offer.has_within("resources", "subscribe") && offer.has_within("tasks", "list"));
        assert!(!offer.has_within("resources", "listChanged") && !offer.has_within("tools", "list"));
        assert!(offer.has_at(&["tasks", "requests", "tools", "call"]) && !offer.has_at(&["tasks", "requests", "x"]));
    }

    fn offering(lifecycle: Lifecycle, tools: &[&'static str]) -> Offer {
        let mut offer = Offer::new(lifecycle);
        let item = |tool: &&'static str| Item::read(Kind::Tool, Bytes::from_static(tool.as_bytes())).unwrap();
        offer.set_items(Kind::Tool, tools.iter().map(item).collect(), Hints::NONE);
        offer
    }

    #[test]
    fn two_handshakes_of_one_server_have_the_same_items_in_the_same_order() {
        let (a, b, newer_b) = (r#"{"name":"a"}"#, r#"{"name":"b"}"#, r#"{"name":"b","title":"B"}"#);
        let both = offering(Lifecycle::Session, &[a, b])
            .with_modern(&offering(Lifecycle::SelfContained, &[newer_b, a]))
            .unwrap();
        let names = |lifecycle| {
            both.for_lifecycle(lifecycle).items(Kind::Tool).iter().map(|item| item.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            (names(Lifecycle::Session), names(Lifecycle::SelfContained)),
            (vec!["a".into(), "b".into()], vec!["a".into(), "b".into()])
        );
        assert_eq!(both.for_lifecycle(Lifecycle::SelfContained).items(Kind::Tool)[1].definition, newer_b.as_bytes());
        assert_eq!(
            (both.lifecycle, both.for_lifecycle(Lifecycle::SelfContained).lifecycle),
            (Lifecycle::Session, Lifecycle::SelfContained)
        );

        let same =
            offering(Lifecycle::Session, &[a, b]).with_modern(&offering(Lifecycle::SelfContained, &[a, b])).unwrap();
        assert!(
            Arc::ptr_eq(same.items(Kind::Tool), same.for_lifecycle(Lifecycle::SelfContained).items(Kind::Tool)),
            "kept once"
        );
    }

    #[test]
    fn handshakes_that_show_other_items_do_not_go_together() {
        let (a, b) = (r#"{"name":"a"}"#, r#"{"name":"b"}"#);
        for (legacy, modern) in [(&[a, b][..], &[a][..]), (&[a], &[a, b]), (&[a], &[b])] {
            let (legacy, modern) = (offering(Lifecycle::Session, legacy), offering(Lifecycle::SelfContained, modern));
            assert!(!legacy.has_same_items(&modern));
            assert_eq!(legacy.with_modern(&modern).unwrap_err(), Kind::Tool);
        }
        let (one, other) = (offering(Lifecycle::Session, &[a, b]), offering(Lifecycle::SelfContained, &[b, a]));
        assert!(one.has_same_items(&other) && one.has_same_items(&one));
    }

    #[test]
    fn an_empty_offer_has_nothing() {
        let offer = Offer::new(Lifecycle::SelfContained);
        assert!(!offer.has("tools"));
        assert!(Kind::ALL.into_iter().all(|kind| offer.items(kind).is_empty()));
        assert_eq!(offer.hints, [Hints::NONE; 4]);
    }

    #[test]
    fn items_and_hints_are_kept_by_kind() {
        let mut offer = Offer::new(Lifecycle::SelfContained);
        let prompt = Item::read(Kind::Prompt, Bytes::from_static(br#"{"name":"p"}"#)).unwrap();
        let public = Hints { ttl_ms: 9, is_private: false };
        offer.set_items(Kind::Prompt, vec![prompt], public);
        assert_eq!(Kind::ALL.map(|kind| offer.items(kind).len()), [0, 1, 0, 0]);
        assert_eq!(offer.hints, [Hints::NONE, public, Hints::NONE, Hints::NONE]);
    }

    #[test]
    fn hints_are_cautious_where_a_server_is_vague() {
        assert_eq!(hints(r#"{"tools":[]}"#), None);
        assert_eq!(hints("5"), None);
        for (text, ttl_ms, is_private) in [
            (r#"{"ttlMs":60000,"cacheScope":"public"}"#, 60_000, false),
            (r#"{"ttlMs":1.5e3,"cacheScope":"private"}"#, 1500, true),
            (r#"{"ttlMs":1e400,"cacheScope":"pub\u006cic"}"#, (1 << 53) - 1, false),
            (r#"{"ttlMs":-1}"#, 0, true),
            (r#"{"ttlMs":"60000","cacheScope":"everybody"}"#, 0, true),
            (r#"{"ttlMs":null,"cacheScope":"public"}"#, 0, false),
        ] {
            assert_eq!(hints(text), Some(Hints { ttl_ms, is_private }), "{text}");
        }
    }

    #[test]
    fn hints_of_two_parts_are_the_stricter_ones() {
        let (long, short) = (Hints { ttl_ms: 9, is_private: false }, Hints { ttl_ms: 5, is_private: false });
        assert_eq!(long.and(short), short);
        assert_eq!(long.and(Hints::NONE), Hints::NONE);
    }
}
