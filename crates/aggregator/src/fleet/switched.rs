//! Tools that somebody switched off: their servers have them, but nobody sees or calls them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use catalog::{Item, Kind, Offer, ServerEntry};

use super::places::Place;

/// What is switched off of one server.
#[derive(Debug, Default)]
pub(super) struct Switched {
    off: BTreeSet<String>,
    /// What is in the current view, if anything was taken out of it.
    last: Option<Sifted>,
}

/// What a server offers, and what is left of it without what is switched off.
#[derive(Debug)]
pub(super) struct Sifted {
    whole: Arc<Offer>,
    sifted: Arc<Offer>,
}

impl Place {
    /// These tools are off from now on, and all others are on.
    pub(super) fn switch_off(&self, tools: BTreeSet<String>) {
        self.switched.lock().unwrap_or_else(PoisonError::into_inner).off = tools;
    }

    /// Takes out of what a server offers what is switched off. The result is to be kept when others can see that.
    pub(super) fn sift(&self, server: &mut ServerEntry) -> Option<Sifted> {
        let switched = self.switched.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = match &switched.last {
            Some(last) if Arc::ptr_eq(&last.sifted, &server.offer) => Arc::clone(&last.whole),
            _ => Arc::clone(&server.offer),
        };
        server.offer = sifted(&whole, &switched.off);
        // Where nothing is switched off, nothing is kept: most places never are.
        (!Arc::ptr_eq(&whole, &server.offer)).then(|| Sifted { whole, sifted: Arc::clone(&server.offer) })
    }

    /// Keeps the whole of what a server offers, for what is switched on again.
    pub(super) fn keep(&self, last: Option<Sifted>) {
        self.switched.lock().unwrap_or_else(PoisonError::into_inner).last = last;
    }
}

fn sifted(whole: &Arc<Offer>, off: &BTreeSet<String>) -> Arc<Offer> {
    let tools = whole.items(Kind::Tool);
    if off.is_empty() || !tools.iter().any(|tool| off.contains(&*tool.id)) {
        return Arc::clone(whole);
    }
    let mut sifted = Offer::clone(whole);
    take_out(&mut sifted, off);
    sifted.modern = whole.modern.as_deref().map(|modern| {
        let mut modern = modern.clone();
        take_out(&mut modern, off);
        Arc::new(modern)
    });
    Arc::new(sifted)
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
    use protocol::Era;

    use super::*;

    #[test]
    fn what_is_off_is_left_out_and_everything_else_stays() {
        let mut offer = Offer::new(Era::Legacy);
        let item = |name: &str| Item::read(Kind::Tool, Bytes::from(format!(r#"{{"name":"{name}"}}"#))).unwrap();
        offer.set_items(Kind::Tool, vec![item("a"), item("b"), item("c")], Hints::NONE);
        let whole = Arc::new(offer);
        let off = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let names = |offer: &Offer| offer.items(Kind::Tool).iter().map(|tool| tool.id.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&sifted(&whole, &off(&["b", "x"]))), ["a", "c"]);
        assert!(Arc::ptr_eq(&sifted(&whole, &off(&["x"])), &whole), "nothing is made where nothing is off");
    }
}
