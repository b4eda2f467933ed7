//! Profiles: what their clients see of all servers.
//!
//! Each profile has a view of its own, made from the view of everything and replaced together with it. It has the same
//! slots, and is a [`View`] like the other: whoever answers a client reads the view of that client
//! ([`Fleet::view_of`]), and hidden items need no check anywhere else.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use catalog::{Kind, Profile, ServerEntry, ServerState};

use super::{Fleet, LIFECYCLES, MAX_ATTEMPTS, NAMED_BY_READERS, View, lock};
use crate::client::Client;

/// The view of each profile, by its name.
pub(super) type ProfileViews = BTreeMap<Arc<str>, Arc<View>>;

/// What the change of a server has changed for the clients that see everything, and for those of each profile.
#[derive(Debug)]
pub(super) struct ChangedByServer {
    server: usize,
    of_all: Changed,
    of_profiles: HashMap<Arc<str>, Changed>,
}

/// The lists that have changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Changed {
    pub(super) kinds: Vec<Kind>,
    /// The server of the items was still starting before.
    pub(super) was_starting: bool,
}

impl ChangedByServer {
    /// What has changed for a client.
    pub(super) fn of(&self, client: &Client) -> Changed {
        if !client.scope().sees(self.server) {
            return Changed::default();
        }
        match client.profile() {
            None => self.of_all.clone(),
            Some(profile) => self.of_profiles.get(profile).cloned().unwrap_or_default(),
        }
    }
}

impl Changed {
    /// Only the list of tools.
    pub(super) fn tools() -> Self {
        Self { kinds: vec![Kind::Tool], was_starting: false }
    }

    /// The difference between two states of a server.
    fn between(was: &ServerEntry, is: &ServerEntry) -> Self {
        if was == is {
            return Self::default();
        }
        let is_renamed = was.name != is.name;
        let differs = |&kind: &Kind| {
            let is_other = |lifecycle| {
                was.offer.for_lifecycle(lifecycle).items(kind) != is.offer.for_lifecycle(lifecycle).items(kind)
            };
            let is_named_anew = is_renamed && kind.is_prefixed() && !is.offer.items(kind).is_empty();
            LIFECYCLES.into_iter().any(is_other) || is_named_anew
        };
        let mut kinds: Vec<Kind> = Kind::ALL.into_iter().filter(differs).collect();
        // One notification covers both resources and resource templates.
        if kinds.contains(&Kind::Resource) {
            kinds.retain(|&kind| kind != Kind::Template);
        }
        Self { kinds, was_starting: was.state == ServerState::Initializing }
    }

    fn add(&mut self, kind: Kind) {
        if !self.kinds.contains(&kind) {
            self.kinds.push(kind);
        }
    }
}

impl View {
    /// The view of a profile.
    pub fn profile(&self, name: &str) -> Option<&Arc<Self>> {
        self.profiles.get(name)
    }

    /// The profiles, in the order of their names.
    pub fn profiles(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.profiles.values().filter_map(|view| view.snapshot.profile())
    }

    /// Whether its clients see everything: then a server may get requests about what it does not list.
    pub fn is_whole(&self) -> bool {
        self.snapshot.profile().is_none()
    }

    /// What clients see of a profile that does not exist any more.
    fn of_nothing(&self) -> Arc<Self> {
        Arc::clone(self.nothing.get_or_init(|| self.narrowed(&Profile::of_nothing(), None, None)))
    }

    /// This view as clients of a profile see it. It follows the view `before`, from which only the server in slot
    /// `changed` differs, if one is named, and servers that were added. If it looks the same, nothing is made.
    fn narrowed(&self, profile: &Arc<Profile>, before: Option<&Arc<Self>>, changed: Option<usize>) -> Arc<Self> {
        let whole = &self.snapshot;
        let is_same_profile = |view: &&Arc<Self>| view.snapshot.profile().is_some_and(|of| Arc::ptr_eq(of, profile));
        let mut servers = before.filter(is_same_profile).map_or_else(Vec::new, |view| view.snapshot.servers().to_vec());
        let known = servers.len();
        if let Some(index) = changed.filter(|&index| index < known) {
            servers[index] = profile.narrowed(&whole.servers()[index]);
            let is_complete = known == whole.servers().len();
            if let Some(before) = before.filter(|before| is_complete && self.looks_like(before, &servers, index)) {
                return Arc::clone(before);
            }
        }
        servers.extend(whole.servers()[known..].iter().map(|server| profile.narrowed(server)));
        let connections = servers.iter().enumerate().map(|(index, server)| self.connection_of(server, index)).collect();
        let snapshot = whole.narrowed_to(profile, servers);
        let snapshot = snapshot.following(before.map_or(whole, |before| &before.snapshot));
        if snapshot.unnamed() > NAMED_BY_READERS {
            snapshot.make_names();
        }
        Arc::new(Self::new(snapshot, connections))
    }

    /// Whether `servers`, of which only one may be another, are those of the view `before`.
    fn looks_like(&self, before: &Self, servers: &[ServerEntry], index: usize) -> bool {
        let is_same_connection = match (&self.connection_of(&servers[index], index), &before.connections[index]) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same_connection && before.snapshot.servers()[index] == servers[index]
    }

    /// The connection to a server, if clients with this view of it see the server at all.
    fn connection_of(&self, narrowed: &ServerEntry, index: usize) -> Option<Arc<upstream::Connection>> {
        let is_visible = narrowed.state != ServerState::Removed;
        self.connections[index].as_ref().filter(|_| is_visible).cloned()
    }

    /// The same with the views of profiles that had views before. The server in slot `changed` is the only one that
    /// differs, if one is named.
    pub(super) fn with_profiles_of(mut self, before: &Self, changed: Option<usize>) -> Self {
        let followed = before.profiles.iter().filter_map(|(name, view)| {
            let profile = view.snapshot.profile()?;
            Some((Arc::clone(name), self.narrowed(profile, Some(view), changed)))
        });
        self.profiles = followed.collect();
        self
    }

    /// The same with other views of profiles.
    fn with_profiles(&self, profiles: ProfileViews) -> Self {
        Self {
            snapshot: Arc::clone(&self.snapshot),
            connections: self.connections.clone(),
            has_tasks: self.has_tasks.clone(),
            profiles,
            nothing: OnceLock::new(),
        }
    }

    /// What a client sees of this view.
    pub(super) fn seen_by(self: &Arc<Self>, client: &Client) -> Arc<Self> {
        self.seen_under(client.profile().map(|profile| &**profile))
    }

    fn seen_under(self: &Arc<Self>, profile: Option<&str>) -> Arc<Self> {
        match profile {
            None => Arc::clone(self),
            Some(profile) => self.profiles.get(profile).cloned().unwrap_or_else(|| self.of_nothing()),
        }
    }

    /// What the change of a server has changed in the lists of clients.
    pub(super) fn changed_by_server(&self, before: &Self, server: usize) -> ChangedByServer {
        let between = |before: &Self, now: &Self| {
            Changed::between(&before.snapshot.servers()[server], &now.snapshot.servers()[server])
        };
        let of_profiles = self.profiles.iter().filter_map(|(name, view)| {
            let before = before.profiles.get(name)?;
            Some((Arc::clone(name), between(before, view)))
        });
        ChangedByServer { server, of_all: between(before, self), of_profiles: of_profiles.collect() }
    }
}

impl Fleet {
    /// What clients of a profile see; everything without one. Of a profile that does not exist, nothing.
    pub fn view_for(&self, profile: Option<&str>) -> Arc<View> {
        self.views.borrow().seen_under(profile)
    }

    /// What a client sees.
    pub fn view_of(&self, client: &Client) -> Arc<View> {
        self.view_for(client.profile().map(|profile| &**profile))
    }

    /// Whether a client sees anything of a server.
    pub(crate) fn is_seen_by(&self, client: &Client, server: usize) -> bool {
        client.scope().sees(server)
            && (client.profile().is_none()
                || self.view_of(client).snapshot.servers()[server].state != ServerState::Removed)
    }

    /// Adds a profile, replaces the one of that name, or removes it. Clients whose lists have changed are notified.
    pub async fn set_profile(self: &Arc<Self>, name: &str, profile: Option<Arc<Profile>>) {
        let is_large = {
            let view = self.view();
            let items =
                |server: &ServerEntry| Kind::ALL.map(|kind| server.offer.items(kind).len()).iter().sum::<usize>();
            upstream::are_many(view.snapshot.servers().iter().map(items).sum())
        };
        let (fleet, name) = (Arc::clone(self), Arc::<str>::from(name));
        upstream::beside_calls(is_large, move || fleet.set_profile_here(&name, profile.as_ref())).await;
    }

    fn set_profile_here(&self, name: &Arc<str>, profile: Option<&Arc<Profile>>) {
        for attempt in 0.. {
            let permit = (attempt == MAX_ATTEMPTS).then(|| lock(&self.changing));
            let before = self.view();
            if before.profiles.get(name).and_then(|view| view.snapshot.profile()) == profile {
                return;
            }
            let mut profiles = before.profiles.clone();
            match profile {
                // The names of the profile before are reused, as far as they are the same.
                Some(profile) => {
                    let view = before.narrowed(profile, before.profiles.get(name), None);
                    profiles.insert(Arc::clone(name), view);
                }
                None => {
                    profiles.remove(name);
                }
            }
            let view = Arc::new(before.with_profiles(profiles));
            let permit = permit.unwrap_or_else(|| lock(&self.changing));
            if !Arc::ptr_eq(&before, &self.view()) {
                continue;
            }
            self.views.send_replace(Arc::clone(&view));
            drop(permit);
            return self.notify_of_profile(name, &before, &view);
        }
    }

    /// Notifies the clients of a profile of what its change has changed for them.
    fn notify_of_profile(&self, name: &str, before: &Arc<View>, now: &Arc<View>) {
        let (before, now) = (before.seen_under(Some(name)), now.seen_under(Some(name)));
        let surface = |view: &View| {
            let spec = view.snapshot.profile().map(|profile| profile.spec());
            spec.map(|spec| (spec.surface.clone(), spec.pinned.clone()))
        };
        let has_other_surface = surface(&before) != surface(&now);
        let servers = before.snapshot.servers().iter().zip(now.snapshot.servers());
        let changed: Vec<Changed> = servers.map(|(was, is)| Changed::between(was, is)).collect();
        self.notify_changed(|client| {
            let mut all = Changed::default();
            if client.profile().is_none_or(|profile| **profile != *name) {
                return all;
            }
            let seen = changed.iter().enumerate().filter(|(server, _)| client.scope().sees(*server));
            seen.flat_map(|(_, changed)| &changed.kinds).for_each(|&kind| all.add(kind));
            if has_other_surface {
                all.add(Kind::Tool);
            }
            all
        });
        self.settle_levels();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use catalog::{NameStyle, Principal, ProfileSpec, Scope};

    use super::super::tests::{fleet, name, offer};
    use super::*;
    use crate::client::ClientSetup;
    use crate::client_sink::{CatchUp, ClientSink, Message, Outbound};
    use crate::{NamePolicy, Surface};

    fn profile(servers: &[&str]) -> Arc<Profile> {
        let servers = Some(servers.iter().map(|&server| server.to_owned()).collect());
        Profile::new("dev", ProfileSpec { servers, ..ProfileSpec::default() })
    }

    fn tools(view: &View) -> usize {
        view.snapshot.listed(Kind::Tool, NameStyle::Canonical).count()
    }

    /// A sink that counts notifications.
    #[derive(Default)]
    struct Counter(Mutex<usize>);

    impl ClientSink for Counter {
        fn send(&self, _: Outbound, _: Message<'_>) {
            *lock(&self.0) += 1;
        }

        fn give_up(&self) {}

        fn flush(&self) {}

        fn catch_up(&self) -> Option<CatchUp<'_>> {
            None
        }

        fn is_full(&self) -> bool {
            false
        }

        fn is_gone(&self) -> bool {
            false
        }
    }

    fn client(fleet: &Arc<Fleet>, profile: Option<&str>) -> (Arc<Client>, Arc<Counter>) {
        let counter = Arc::new(Counter::default());
        let client = Client::new(ClientSetup {
            sink: Arc::clone(&counter) as Arc<dyn ClientSink>,
            names: NamePolicy::Canonical,
            scope: Scope::All,
            profile: profile.map(Arc::from),
            principal: Principal::local(),
            is_alone: false,
            surface: Surface::Full,
        });
        fleet.add_client(&client);
        client.listed(Kind::Tool);
        (client, counter)
    }

    #[tokio::test]
    async fn a_change_replaces_only_the_views_of_those_who_see_it() {
        let fleet = fleet();
        fleet.register(name("a"), ServerState::Running, offer(3));
        fleet.register(name("b"), ServerState::Running, offer(5));
        fleet.set_profile("dev", Some(profile(&["a"]))).await;
        let before = fleet.view_for(Some("dev"));
        assert_eq!((tools(&before), tools(&fleet.view())), (3, 8));
        assert!(Arc::ptr_eq(&before.snapshot.servers()[0].offer, &fleet.view().snapshot.servers()[0].offer));

        fleet.set_state(1, ServerState::Running, Some(offer(7))).await;
        assert_eq!(tools(&fleet.view()), 10);
        assert!(Arc::ptr_eq(&before, &fleet.view_for(Some("dev"))), "nothing is made for what cannot be seen");
        fleet.set_state(0, ServerState::Running, Some(offer(4))).await;
        assert_eq!((tools(&fleet.view_for(Some("dev"))), tools(&before)), (4, 3));
        fleet.register(name("c"), ServerState::Running, offer(1));
        assert_eq!(fleet.view_for(Some("dev")).snapshot.servers().len(), 3);

        let whole = fleet.view();
        fleet.set_profile("dev", Some(profile(&["a"]))).await;
        assert!(Arc::ptr_eq(&whole, &fleet.view()), "the same profile again changes nothing");
        fleet.set_profile("dev", None).await;
        assert_eq!(tools(&fleet.view_for(Some("dev"))), 0, "a profile that does not exist shows nothing");
        assert!(Arc::ptr_eq(&whole.snapshot, &fleet.view().snapshot), "lists that are written stay");
    }

    #[tokio::test]
    async fn clients_are_notified_if_their_list_has_changed() {
        let fleet = fleet();
        fleet.register(name("a"), ServerState::Running, offer(3));
        fleet.register(name("b"), ServerState::Running, offer(5));
        fleet.set_profile("dev", Some(profile(&["a"]))).await;
        let ((_bound, of_profile), (_free, of_all)) = (client(&fleet, Some("dev")), client(&fleet, None));
        let counts = || (*lock(&of_profile.0), *lock(&of_all.0));
        fleet.set_state(1, ServerState::Running, Some(offer(6))).await;
        assert_eq!(counts(), (0, 1));
        fleet.set_state(0, ServerState::Running, Some(offer(4))).await;
        assert_eq!(counts(), (1, 2));
        fleet.set_profile("dev", Some(profile(&["a", "b"]))).await;
        assert_eq!(counts(), (2, 2));
        fleet.set_profile("dev", Some(profile(&["*"]))).await;
        assert_eq!(counts(), (2, 2), "the same is visible");
        fleet.set_profile("dev", None).await;
        assert_eq!(counts(), (3, 2));
    }

    #[test]
    fn the_surfaces_of_profiles_are_those_of_clients() {
        assert!(catalog::profile::SURFACES.iter().all(|surface| surface.parse::<Surface>().is_ok()));
    }
}
