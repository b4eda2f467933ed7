//! Who follows which resource of which server.
//!
//! A server decides how often it reports changes, and clients how many URIs they follow. So nothing here compares all
//! subscriptions with each other: they are found by server and URI, and counted as they come and go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use upstream::UpstreamKey;

use super::Listener;
use crate::client::Client;
use crate::client_limits::SubscriptionCounts;

/// All subscriptions to resources.
#[derive(Default)]
pub(super) struct Followers {
    /// By run of a server and URI; no list is empty.
    by_server: BTreeMap<UpstreamKey, BTreeMap<String, Vec<Follower>>>,
    by_client: HashMap<u64, usize>,
    by_principal: HashMap<Arc<str>, usize>,
    count: usize,
}

/// A client that subscribed to one resource.
pub(super) struct Follower {
    pub(super) client: u64,
    pub(super) principal: Arc<str>,
    pub(super) delivery: Delivery,
}

pub(super) enum Delivery {
    Subscribed(Weak<Client>),
    Listening(Arc<Listener>),
}

/// Whom a change of a resource concerns, each once.
#[derive(Default)]
pub(super) struct Concerned {
    pub(super) clients: Vec<Arc<Client>>,
    pub(super) listeners: Vec<Arc<Listener>>,
}

impl Followers {
    /// Adds a subscription. Returns whether it is the first to that resource.
    pub(super) fn add(&mut self, server: &UpstreamKey, uri: &str, follower: Follower) -> bool {
        *self.by_client.entry(follower.client).or_default() += 1;
        *self.by_principal.entry(Arc::clone(&follower.principal)).or_default() += 1;
        self.count += 1;
        let of_server = self.by_server.entry(server.clone()).or_default();
        match of_server.get_mut(uri) {
            Some(followers) => {
                followers.push(follower);
                false
            }
            None => {
                of_server.insert(uri.to_owned(), vec![follower]);
                true
            }
        }
    }

    pub(super) fn has(&self, server: &UpstreamKey, uri: &str) -> bool {
        self.by_server.get(server).is_some_and(|of_server| of_server.contains_key(uri))
    }

    /// The followed resources of a run of a server.
    pub(super) fn of_server(&self, server: &UpstreamKey) -> impl Iterator<Item = &str> {
        self.by_server.get(server).into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    /// Removes those subscriptions to one resource that are meant.
    pub(super) fn remove(&mut self, server: &UpstreamKey, uri: &str, is_meant: impl Fn(&Follower) -> bool) {
        let Some(of_server) = self.by_server.get_mut(server) else { return };
        let Some(followers) = of_server.get_mut(uri) else { return };
        let ended: Vec<Follower> = followers.extract_if(.., |follower| is_meant(follower)).collect();
        if followers.is_empty() {
            of_server.remove(uri);
        }
        if of_server.is_empty() {
            self.by_server.remove(server);
        }
        ended.iter().for_each(|follower| self.forget(follower));
    }

    /// Removes all subscriptions that are meant. Returns their servers and URIs.
    pub(super) fn remove_all(&mut self, is_meant: impl Fn(&Follower) -> bool) -> Vec<(UpstreamKey, String)> {
        let mut ended = Vec::new();
        for (server, of_server) in &mut self.by_server {
            of_server.retain(|uri, followers| {
                for follower in followers.extract_if(.., |follower| is_meant(follower)) {
                    ended.push(((server.clone(), uri.clone()), follower));
                }
                !followers.is_empty()
            });
        }
        self.by_server.retain(|_, of_server| !of_server.is_empty());
        ended.iter().for_each(|(_, follower)| self.forget(follower));
        ended.into_iter().map(|(resource, _)| resource).collect()
    }

    /// Whom a change of `uri` concerns: a notification may name a sub-resource of the followed one.
    pub(super) fn concerned(&self, server: &UpstreamKey, uri: &str) -> Concerned {
        let mut concerned = Concerned::default();
        let (mut clients, mut listeners) = (HashSet::new(), HashSet::new());
        let Some(of_server) = self.by_server.get(server) else { return concerned };
        for follower in prefixes_of(of_server, uri).into_iter().flatten() {
            match &follower.delivery {
                Delivery::Subscribed(client) if clients.insert(follower.client) => {
                    concerned.clients.extend(client.upgrade());
                }
                Delivery::Listening(listener) if listeners.insert(Arc::as_ptr(listener)) => {
                    concerned.listeners.push(Arc::clone(listener));
                }
                _ => {}
            }
        }
        concerned
    }

    /// The number of subscriptions: of this client, of its identity, and of all.
    pub(super) fn counts(&self, client: &Client) -> SubscriptionCounts {
        SubscriptionCounts {
            session: self.by_client.get(&client.number()).copied().unwrap_or_default(),
            identity: self.by_principal.get(client.principal().id()).copied().unwrap_or_default(),
            all: self.count,
        }
    }

    fn forget(&mut self, follower: &Follower) {
        decrease(&mut self.by_client, &follower.client);
        decrease(&mut self.by_principal, &follower.principal);
        self.count -= 1;
    }
}

fn decrease<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The values of all keys that `uri` starts with, the longest first.
fn prefixes_of<'m, V>(map: &'m BTreeMap<String, V>, uri: &str) -> Vec<&'m V> {
    let mut found = Vec::new();
    let mut end = Bound::Included(uri);
    while let Some((key, value)) = map.range::<str, _>((Bound::Unbounded, end)).next_back() {
        let mut common = key.bytes().zip(uri.bytes()).take_while(|(one, other)| one == other).count();
        if common == key.len() {
            found.push(value);
            end = Bound::Excluded(key);
        } else {
            // Prefixes of `uri` that are longer than this come after `key`, so there are none.
            while !uri.is_char_boundary(common) {
                common -= 1;
            }
            end = Bound::Included(&uri[..common]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use catalog::Scope;
    use protocol::bridge::listen::Filter;

    use super::*;
    use crate::NamePolicy;
    use crate::client::ClientSetup;
    use crate::client_sink::NullSink;
    use crate::responder::Responder;
    use crate::surface::Surface;

    fn server(index: usize) -> UpstreamKey {
        UpstreamKey::of_all(index)
    }

    fn client(principal: &str) -> Arc<Client> {
        Client::new(ClientSetup {
            sink: Arc::new(NullSink),
            names: NamePolicy::Canonical,
            scope: Scope::All,
            principal: catalog::Principal::of_token(principal, catalog::Role::Admin, None),
            is_alone: false,
            surface: Surface::Full,
            profile: None,
        })
    }

    fn subscribed(client: &Arc<Client>) -> Follower {
        let delivery = Delivery::Subscribed(Arc::downgrade(client));
        Follower { client: client.number(), principal: Arc::clone(client.principal().id()), delivery }
    }

    fn listening(client: &Arc<Client>) -> Follower {
        let listener = Listener {
            client: Arc::clone(client),
            to: Responder::to(client, Arc::new(NullSink)),
            id: Bytes::from_static(b"1"),
            filter: Filter::default(),
            is_acknowledged: std::sync::Mutex::new(true),
        };
        Follower { delivery: Delivery::Listening(Arc::new(listener)), ..subscribed(client) }
    }

    #[test]
    fn subscriptions_are_found_by_server_and_uri_and_counted() {
        let (one, other) = (client("p"), client("p"));
        let mut followers = Followers::default();
        assert!(followers.add(&server(0), "u://1", subscribed(&one)));
        assert!(!followers.add(&server(0), "u://1", subscribed(&other)));
        assert!(followers.add(&server(1), "u://1", subscribed(&one)));
        assert!(followers.add(&server(0), "u://2", subscribed(&one)));
        let counts = |followers: &Followers| {
            let SubscriptionCounts { session, identity, all } = followers.counts(&one);
            (session, identity, all)
        };
        assert_eq!(counts(&followers), (3, 4, 4));
        assert_eq!(followers.of_server(&server(0)).collect::<Vec<_>>(), ["u://1", "u://2"]);
        followers.remove(&server(0), "u://1", |follower| follower.client == one.number());
        assert!(followers.has(&server(0), "u://1"));
        followers.remove(&server(0), "u://1", |follower| follower.client == other.number());
        assert!(!followers.has(&server(0), "u://1") && followers.has(&server(1), "u://1"));
        assert_eq!(counts(&followers), (2, 2, 2));
        let ended = followers.remove_all(|follower| follower.client == one.number());
        assert_eq!(ended, [(server(0), "u://2".to_owned()), (server(1), "u://1".to_owned())]);
        assert_eq!(counts(&followers), (0, 0, 0));
        assert!(followers.by_server.is_empty() && followers.by_client.is_empty() && followers.by_principal.is_empty());
    }

    #[test]
    fn a_change_concerns_each_follower_of_the_resource_or_of_one_above_it_once() {
        let clients = ["a", "b", "c"].map(client);
        let mut followers = Followers::default();
        for uri in ["", "é", "u://", "u://1/é", "u://1/and", "u://1/and/more", "u://1/and/most", "u://2"] {
            followers.add(&server(0), uri, subscribed(&clients[0]));
            followers.add(&server(0), uri, listening(&clients[1]));
        }
        followers.add(&server(1), "u://1/and", subscribed(&clients[2]));
        let concerned = |uri: &str| {
            let concerned = followers.concerned(&server(0), uri);
            (concerned.clients.len(), concerned.listeners.len())
        };
        assert_eq!(concerned("u://1/and/more"), (1, 4), "each listener follows one of them");
        assert_eq!(concerned("u://1/è"), (1, 2));
        assert_eq!(concerned("v://"), (1, 1));
        let keys: BTreeMap<String, usize> = (0..64)
            .map(|number: usize| {
                let key: String = (0..6).map(|bit| if number >> bit & 1 == 0 { 'a' } else { 'ä' }).collect();
                (key[..key.char_indices().nth(number % 6).map_or(0, |(at, _)| at)].to_owned(), number)
            })
            .collect();
        for number in 0..64 {
            let uri: String = (0..6).map(|bit| if number >> bit & 1 == 0 { 'a' } else { 'ä' }).collect();
            let mut expected: Vec<usize> =
                keys.iter().filter(|(key, _)| uri.starts_with(key.as_str())).map(|(_, value)| *value).collect();
            expected.reverse();
            assert_eq!(prefixes_of(&keys, &uri).into_iter().copied().collect::<Vec<_>>(), expected, "{uri}");
        }
    }

    /// The shortest of several times.
    fn shortest(mut measure: impl FnMut() -> Duration) -> Duration {
        (0..5).map(|_| measure()).min().unwrap_or_default()
    }

    #[test]
    fn many_followers_cost_as_much_as_their_number() {
        let client = client("p");
        let time = |count: usize| {
            let mut followers = Followers::default();
            for number in 0..count {
                followers.add(&server(0), "u://", listening(&client));
                followers.add(&server(0), &format!("u://{number}"), subscribed(&client));
            }
            shortest(|| {
                let begun = Instant::now();
                assert_eq!(followers.concerned(&server(0), "u://7/and/more").listeners.len(), count);
                assert!((0..count).all(|number| followers.has(&server(0), &format!("u://{number}"))));
                begun.elapsed()
            })
        };
        // Comparing each with each would take 64 times as long.
        let ratios: Vec<f64> = (0..5)
            .map(|_| time(8_000).as_secs_f64() / time(1_000).as_secs_f64())
            .take_while(|&ratio| ratio > 32.0)
            .collect();
        assert!(ratios.len() < 5, "eight times as many followers took so many times as long: {ratios:?}");
    }
}
