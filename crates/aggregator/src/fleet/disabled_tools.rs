//! Tools that somebody switched off: their servers have them, but nobody sees or calls them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use catalog::{Item, Kind, Offer, ServerEntry};

use super::slots::ServerSlot;

/// What is switched off of one server.
#[derive(Debug, Default)]
pub(super) struct DisabledTools {
    off: BTreeSet<String>,
    /// What is in the current view, if anything was taken out of it.
    last: Option<Sifted>,
}

/// What a server offers, and what is left of it without what is switched off.
#[derive(Debug)]
pub(super) struct Sifted {
    whole: Arc<Offer>,
    enabled_offer: Arc<Offer>,
}

impl ServerSlot {
    /// These tools are off from now on, and all others are on.
    pub(super) fn set_disabled_tools(&self, tools: BTreeSet<String>) {
        self.disabled_tools.lock().unwrap_or_else(PoisonError::into_inner).off = tools;
    }

    /// Takes out of what a server offers what is switched off. The result is to be kept when others can see that.
    pub(super) fn remove_disabled(&self, server: &mut ServerEntry) -> Option<Sifted> {
        let disabled_tools = self.disabled_tools.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = match &disabled_tools.last {
            Some(last) if Arc::ptr_eq(&last.enabled_offer, &server.offer) => Arc::clone(&last.whole),
            _ => Arc::clone(&server.offer),
        };
        server.offer = enabled_offer(&whole, &disabled_tools.off);
        // Where nothing is switched off, nothing is kept: most places never are.
        (!Arc::ptr_eq(&whole, &server.offer)).then(|| Sifted { whole, enabled_offer: Arc::clone(&server.offer) })
    }

    /// Keeps the whole of what a server offers, for what is switched on again.
    pub(super) fn keep(&self, last: Option<Sifted>) {
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
