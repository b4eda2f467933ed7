//! A complete list of a server, on its way into the server's offer.

use catalog::{Hints, Item, Kind, Offer, ServerName};

use crate::list_reader::MAX_PARSED_IN_PLACE;
use crate::server::{MAX_REPORTED_IN_PLACE, compute_beside_calls};

/// One of a server's lists, complete.
pub(crate) struct Listing {
    pub(crate) items: Vec<Item>,
    pub(crate) hints: Hints,
    pub(crate) notices: Vec<String>,
}

impl Listing {
    /// Logs the findings of the list unless they are known already, and adds the list to the offer.
    pub(crate) async fn put_into(self, offer: &mut Offer, kind: Kind, server: &ServerName) {
        for notice in self.notices.iter().filter(|notice| !offer.notices(kind).contains(notice)) {
            tracing::warn!(%server, "clients would reject the whole list because of items of this server; {notice}");
        }
        let Self { items, hints, mut notices } = self;
        // All items are compared with those before, and templates are compiled.
        let is_large = is_large(&items) || is_large(offer.items(kind));
        let mut next = offer.clone();
        let set_items = move || {
            next.set_items(kind, items, hints);
            next
        };
        match compute_beside_calls(is_large, set_items).await {
            Some(next) => *offer = next,
            // The program is stopping.
            None => return,
        }
        if kind == Kind::Template
            && let left_out @ 1.. = offer.templates().left_out()
        {
            let notice = format!(
                "{left_out} resource templates are listed but not matched against URIs: the others use up the limit of \
                 the server"
            );
            if !offer.notices(kind).contains(&notice) {
                tracing::warn!(%server, "{notice}");
            }
            notices.push(notice);
        }
        offer.set_notices(kind, notices);
    }
}

/// Whether comparing items, and compiling their templates, takes long.
fn is_large(items: &[Item]) -> bool {
    items.len() > MAX_REPORTED_IN_PLACE
        || items.iter().map(|item| item.definition.len()).sum::<usize>() > MAX_PARSED_IN_PLACE
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use bytes::Bytes;
    use protocol::Lifecycle;

    use super::*;

    fn listing(count: usize, variable: &str) -> Listing {
        let template = |number: usize| {
            let definition = format!(r#"{{"uriTemplate":"t{number}://{{{variable}}}","name":"n"}}"#);
            Item::read(Kind::Template, Bytes::from(definition)).unwrap()
        };
        Listing { items: (0..count).map(template).collect(), hints: Hints::NONE, notices: vec!["a notice".to_owned()] }
    }

    #[test]
    fn a_large_list_is_compared_and_compiled_beside_calls() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let server = ServerName::new("s").unwrap();
            let mut offer = Offer::new(Lifecycle::Session);
            let long = "v".repeat(MAX_PARSED_IN_PLACE);
            // A short list of long items is large as well, and so is the list that a short one replaces.
            for (count, variable, is_large) in
                [(3, "v", false), (600, "v", true), (1, "v", true), (2, "v", false), (1, long.as_str(), true)]
            {
                let (go_on, wait) = std::sync::mpsc::channel::<()>();
                let occupied = tokio::task::spawn_blocking(move || wait.recv());
                {
                    let listing = listing(count, variable);
                    let mut putting = std::pin::pin!(listing.put_into(&mut offer, Kind::Template, &server));
                    let first = std::future::poll_fn(|context| Poll::Ready(putting.as_mut().poll(context))).await;
                    assert_eq!(first.is_pending(), is_large, "{count} items");
                    go_on.send(()).unwrap();
                    if first.is_pending() {
                        putting.await;
                    }
                }
                occupied.await.unwrap().unwrap();
                assert_eq!((offer.items(Kind::Template).len(), offer.notices(Kind::Template).len()), (count, 1));
            }
        });
    }
}
