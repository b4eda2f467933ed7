//! Disabled tools: their servers have them, but no client can list or call them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use catalog::{Item, Kind, Offer, ServerEntry};

use super::slots::{ServerSlot, is_large_for};

/// The disabled tools of one server.
#[derive(Debug, Default)]
pub(super) struct DisabledTools {
    off: BTreeSet<String>,
    /// The offer in the current view, if tools were removed from it.
    last: Option<FilteredOffer>,
}

/// What a server offers, and what remains of it without the disabled tools.
#[derive(Debug)]
pub(super) struct FilteredOffer {
    whole: Arc<Offer>,
    enabled_offer: Arc<Offer>,
}

impl ServerSlot {
    /// Disables exactly these tools.
    pub(super) fn set_disabled_tools(&self, tools: BTreeSet<String>) {
        self.disabled_tools.lock().unwrap_or_else(PoisonError::into_inner).off = tools;
    }

    /// Whether a server offers many items for so many views, those of disabled tools included.
    pub(super) fn is_large(&self, listed: &Offer, views: usize) -> bool {
        let disabled_tools = self.disabled_tools.lock().unwrap_or_else(PoisonError::into_inner);
        is_large_for(disabled_tools.last.as_ref().map_or(listed, |last| &last.whole), views)
    }

    /// Removes disabled tools from what a server offers. The result must be kept when the view is published.
    pub(super) fn remove_disabled(&self, server: &mut ServerEntry) -> Option<FilteredOffer> {
        let disabled_tools = self.disabled_tools.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = match &disabled_tools.last {
            Some(last) if Arc::ptr_eq(&last.enabled_offer, &server.offer) => Arc::clone(&last.whole),
            _ => Arc::clone(&server.offer),
        };
        server.offer = enabled_offer(&whole, &disabled_tools.off);
        // Without disabled tools nothing is kept: most servers have none.
        (!Arc::ptr_eq(&whole, &server.offer)).then(|| FilteredOffer { whole, enabled_offer: Arc::clone(&server.offer) })
    }

    /// Keeps the complete offer, for tools that are enabled again.
    pub(super) fn keep(&self, last: Option<FilteredOffer>) {
        self.disabled_tools.lock().unwrap_or_else(PoisonError::into_inner).last = last;
    }
}

fn enabled_offer(whole: &Arc<Offer>, off: &BTreeSet<String>) -> Arc<Offer> {
    let tools = whole.items(Kind::Tool);
    if off.is_empty() || !tools.iter().any(|tool| off.contains(&*tool.id)) {
        return Arc::clone(whole);
    }
    let mut enabled_offer = Offer::clone(whole);
    take_out(&mut enabled_offer, off);
    enabled_offer.modern = whole.modern.as_deref().map(|modern| {
        let mut modern = modern.clone();
        take_out(&mut modern, off);
        Arc::new(modern)
    });
    Arc::new(enabled_offer)
}

fn take_out(offer: &mut Offer, off: &BTreeSet<String>) {
    let tools = offer.items(Kind::Tool);
    let on: Vec<Item> = tools.iter().filter(|tool| !off.contains(&*tool.id)).cloned().collect();
    offer.set_items(Kind::Tool, on, offer.hints[Kind::Tool as usize]);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use catalog::Hints;
    use protocol::Lifecycle;

    use super::*;

    #[test]
    fn disabled_tools_are_removed_and_everything_else_stays() {
        let mut offer = Offer::new(Lifecycle::Session);
        let item = |name: &str| Item::read(Kind::Tool, Bytes::from(format!(r#"{{"name":"{name}"}}"#))).unwrap();
        offer.set_items(Kind::Tool, vec![item("a"), item("b"), item("c")], Hints::NONE);
        let whole = Arc::new(offer);
        let off = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let names = |offer: &Offer| offer.items(Kind::Tool).iter().map(|tool| tool.id.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&enabled_offer(&whole, &off(&["b", "x"]))), ["a", "c"]);
        assert!(Arc::ptr_eq(&enabled_offer(&whole, &off(&["x"])), &whole), "nothing is made where nothing is off");
    }
}
