//! Which server has a URI. URIs stay as servers sent them, so that needs a table.

use super::{Route, Scope, Snapshot};
use crate::item::Kind;
use crate::uri_template::{Budget, STEPS_PER_REQUEST, STEPS_PER_URI};

/// A resource or template of several servers. The first one in the order of the config is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The URI or URI template they share.
    pub uri: String,
    /// Which of the two it is.
    pub kind: Kind,
    /// The server it is listed from.
    pub owner: usize,
    /// A server whose item is hidden.
    pub hidden: usize,
}

/// The budget of one request for matching its URIs with templates: equal shares for all servers with templates, so that
/// no server uses up the share of another.
#[derive(Debug)]
pub struct UriBudget(Vec<Budget>);

impl Snapshot {
    /// The budget of a request with this many URIs.
    pub fn uri_budget(&self, uris: usize) -> UriBudget {
        let with_templates = self.servers.iter().filter(|server| !server.offer.templates().is_empty()).count();
        let steps = STEPS_PER_URI.saturating_mul(uris).min(STEPS_PER_REQUEST);
        UriBudget(vec![Budget::new(steps / with_templates.max(1)); self.servers.len()])
    }

    /// The servers that may have `uri`, best first: those that list it, then those with a matching template, each in
    /// the order of the config. Empty if there is none. The budget must be one of this snapshot.
    pub fn owners_of_uri(&self, scope: Scope, uri: &str, budget: &mut UriBudget) -> Vec<usize> {
        if !self.has_uri(uri) {
            return Vec::new();
        }
        let names = self.names(Kind::Resource);
        let listing = names.route(uri).map(|route| route.server).into_iter().chain(names.hidden_servers(uri));
        let mut owners: Vec<usize> = Vec::new();
        for server in listing.filter(|&server| scope.sees(server)) {
            if !owners.contains(&server) {
                owners.push(server);
            }
        }
        for ((index, server), budget) in self.servers.iter().enumerate().zip(&mut budget.0) {
            if scope.sees(index) && !owners.contains(&index) && server.offer.templates().match_any(uri, budget) {
                owners.push(index);
            }
        }
        owners
    }

    /// The running servers with resources, in the order of the config: candidates for a URI that none lists.
    pub fn resource_servers(&self, scope: Scope, uri: &str) -> Vec<usize> {
        if !self.has_uri(uri) {
            return Vec::new();
        }
        let having = self.running(scope).filter(|(_, server)| server.offer.has(Kind::Resource.capability()));
        having.map(|(index, _)| index).collect()
    }

    /// The server with exactly this template.
    pub fn template_owner(&self, scope: Scope, template: &str) -> Option<usize> {
        self.resolve(scope, Kind::Template, template).map(|route| route.server)
    }

    /// Resources or templates of several servers.
    pub fn collisions(&self, kind: Kind) -> impl Iterator<Item = Collision> {
        self.shadowed(kind).iter().filter_map(move |&hidden| self.collision(kind, hidden))
    }

    /// None if the server lists the item twice itself, which hides nothing.
    fn collision(&self, kind: Kind, hidden: Route) -> Option<Collision> {
        let uri = &self.item(kind, hidden).id;
        let owner = self.names(kind).route(uri)?.server;
        (owner != hidden.server).then(|| Collision { uri: uri.to_string(), kind, owner, hidden: hidden.server })
    }
}

#[cfg(test)]
mod tests {
    use protocol::Lifecycle;

    use super::super::tests::{capable, idle, snapshot, with};
    use super::super::{ServerEntry, ServerState};
    use super::*;

    fn server(name: &str, uris: &[&str], templates: &[&str]) -> ServerEntry {
        let resource = |uri: &&str| format!(r#"{{"uri":"{uri}","name":"n"}}"#);
        let template = |uri: &&str| format!(r#"{{"uriTemplate":"{uri}","name":"n"}}"#);
        let uris: Vec<_> = uris.iter().map(resource).collect();
        let templates: Vec<_> = templates.iter().map(template).collect();
        let idle = capable(idle(name, Lifecycle::Session), r#"{"resources":{}}"#);
        with(with(idle, Kind::Resource, &uris), Kind::Template, &templates)
    }

    #[test]
    fn a_uri_belongs_to_servers_that_list_it_before_those_with_a_matching_template() {
        let snapshot = snapshot(vec![
            server("t", &[], &["x://{id}", "x://{other}"]),
            server("a", &["x://1", "x://2"], &["{broken"]),
            server("b", &["x://2", "x://2"], &["x://{+rest}"]),
        ]);
        let owners_in = |scope, uri| snapshot.owners_of_uri(scope, uri, &mut snapshot.uri_budget(1));
        let owners = |uri| owners_in(Scope::All, uri);
        assert_eq!(owners("x://2"), [1, 2, 0]);
        assert_eq!(owners("x://1"), [1, 0, 2]);
        assert_eq!(owners("x://7"), [0, 2]);
        assert_eq!(owners("x://7/8"), [2]);
        assert!(owners("y://").is_empty());
        assert_eq!(owners_in(Scope::One(2), "x://2"), [2]);
        assert_eq!(owners_in(Scope::One(2), "x://1"), [2], "by its template");
        assert!(owners_in(Scope::One(1), "x://7").is_empty());
    }

    /// A server with templates that take long to match, and one more that is quickly matched.
    fn hostile() -> ServerEntry {
        let many: Vec<String> = (0..5).map(|n| format!("{}{n}", "{+a:32}".repeat(16))).collect();
        let mut templates: Vec<&str> = many.iter().map(String::as_str).collect();
        templates.push("x://{id}");
        server("hostile", &[], &templates)
    }

    #[test]
    fn templates_that_take_long_to_match_cost_their_own_server_only() {
        let snapshot = snapshot(vec![hostile(), server("honest", &[], &["x://{+id}"])]);
        let owners = |uri: &str| snapshot.owners_of_uri(Scope::All, uri, &mut snapshot.uri_budget(1));
        let uri = format!("x://{}", "y".repeat(8000));
        assert_eq!(owners(&uri), [1], "what could not be found out in time does not fit");
        assert_eq!(owners("x://1"), [0, 1]);
    }

    #[test]
    fn all_uris_of_a_request_share_one_budget() {
        let snapshot = snapshot(vec![hostile(), server("honest", &[], &["x://{+id}"])]);
        let mut budget = snapshot.uri_budget(1000);
        let uri = format!("x://{}", "y".repeat(8000));
        for _ in 0..1000 {
            snapshot.owners_of_uri(Scope::All, &uri, &mut budget);
        }
        let short = snapshot.owners_of_uri(Scope::All, "x://1", &mut budget);
        assert_eq!(short, [0; 0], "nothing is left, for either server");
        let mut budget = snapshot.uri_budget(1000);
        for index in 0..1000 {
            assert_eq!(snapshot.owners_of_uri(Scope::One(1), &format!("x://{index}"), &mut budget), [1]);
        }
    }

    #[test]
    fn templates_of_a_server_have_a_bound() {
        let many: Vec<String> = (0..7000).map(|n| format!("{}{n}", "{+a:32}".repeat(64))).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let hostile = server("hostile", &[], &many);
        let left_out = hostile.offer.templates().left_out();
        assert!(left_out > 6900, "{left_out} of 7000 are left out");
        let ordinary: Vec<String> = (0..1000).map(|n| format!("file:///folder/{n}/{{path}}{{?query,page}}")).collect();
        let ordinary: Vec<&str> = ordinary.iter().map(String::as_str).collect();
        assert_eq!(server("ordinary", &[], &ordinary).offer.templates().left_out(), 0);
    }

    #[test]
    fn a_template_belongs_to_the_first_who_offers_it() {
        let snapshot = snapshot(vec![server("a", &[], &["x://{a}"]), server("b", &[], &["x://{b}", "x://{a}"])]);
        let owner = |scope, template| snapshot.template_owner(scope, template);
        assert_eq!(owner(Scope::All, "x://{a}"), Some(0));
        assert_eq!(owner(Scope::All, "x://{b}"), Some(1));
        assert_eq!(owner(Scope::All, "x://1"), None);
        assert_eq!(owner(Scope::One(1), "x://{a}"), Some(1));
        assert_eq!(owner(Scope::One(0), "x://{b}"), None);
    }

    #[test]
    fn running_servers_with_resources_are_candidates_for_unknown_uris() {
        let down = ServerEntry { state: ServerState::Stopped, ..server("d", &[], &[]) };
        let servers = vec![server("a", &[], &[]), idle("no", Lifecycle::SelfContained), down, server("b", &[], &[])];
        let snapshot = snapshot(servers);
        assert_eq!(snapshot.resource_servers(Scope::All, "x://1"), [0, 3]);
        assert_eq!(snapshot.resource_servers(Scope::One(3), "x://1"), [3]);
        assert!(snapshot.resource_servers(Scope::One(1), "x://1").is_empty());
        assert!(snapshot.resource_servers(Scope::One(9), "x://1").is_empty());
    }

    #[test]
    fn what_several_servers_offer_is_reported() {
        let snapshot = snapshot(vec![
            server("a", &["x://1", "x://1"], &["x://{v}"]),
            server("b", &["x://2", "x://1"], &[]),
            server("c", &["x://1"], &["x://{v}"]),
        ]);
        let collision = |uri: &str, kind, hidden| Collision { uri: uri.to_owned(), kind, owner: 0, hidden };
        let collisions = [Kind::Resource, Kind::Template].into_iter().flat_map(|kind| snapshot.collisions(kind));
        assert_eq!(
            collisions.collect::<Vec<_>>(),
            [
                collision("x://1", Kind::Resource, 1),
                collision("x://1", Kind::Resource, 2),
                collision("x://{v}", Kind::Template, 2),
            ],
            "a server that repeats itself collides with nobody"
        );
    }

    #[test]
    fn hidden_items_stay_the_same_allocation_while_a_change_touches_none() {
        let two = [server("a", &["x://1"], &[]), server("b", &["x://1"], &[])];
        let servers = |other: &str| two.iter().cloned().chain([server("c", &[other], &[])]).collect();
        let before = snapshot(servers("x://2"));
        before.make_names();
        let same = snapshot(servers("x://3")).following(&before);
        assert!(std::sync::Arc::ptr_eq(before.shadowed(Kind::Resource), same.shadowed(Kind::Resource)));
        let other = snapshot(servers("x://1")).following(&before);
        assert_eq!((same.contested(), same.shadowed(Kind::Resource).len()), (1, 1));
        assert_eq!((other.contested(), other.shadowed(Kind::Resource).len()), (1, 2));
    }
}
