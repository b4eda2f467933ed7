//! Whose a URI is. Addresses stay as servers wrote them, so it takes a table to know.

use super::{Route, Scope, Snapshot, names};
use crate::item::Kind;
use crate::uri_template::{Budget, UriTemplate};

/// A resource or template that several servers offer. The first in configuration order is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The URI or URI template they share.
    pub uri: String,
    /// Which of the two it is.
    pub kind: Kind,
    /// The server it is listed from.
    pub owner: usize,
    /// A server that offers it in vain.
    pub hidden: usize,
}

impl Snapshot {
    /// The servers that may have `uri`, best first: those that list it, then those with a template that fits, each in
    /// configuration order. None if nobody claims it.
    pub fn owners_of_uri(&self, scope: Scope, uri: &str) -> Vec<usize> {
        let names = self.names(Kind::Resource);
        let hidden = names.shadowed.iter().copied().filter(|&route| *self.item(Kind::Resource, route).id == *uri);
        let listing = names.route(uri).into_iter().chain(hidden).map(|route| route.server);
        // The templates of a server are side by side. One server's cannot use up what there is for another's.
        let mut budget = (usize::MAX, Budget::new());
        let mut fits = |server: usize, template: &UriTemplate| {
            if budget.0 != server {
                budget = (server, Budget::new());
            }
            template.matches_within(uri, &mut budget.1)
        };
        let fitting =
            self.templates().iter().filter(|(server, template)| fits(*server, template)).map(|(server, _)| *server);
        let mut owners = Vec::new();
        for server in listing.chain(fitting) {
            if (scope == Scope::All || scope == Scope::One(server)) && !owners.contains(&server) {
                owners.push(server);
            }
        }
        owners
    }

    /// The running servers that have resources at all, in configuration order: whom to ask for a URI nobody claims.
    pub fn resource_servers(&self, scope: Scope) -> Vec<usize> {
        let having = self.running(scope).filter(|(_, server)| server.offer.has(Kind::Resource.capability()));
        having.map(|(index, _)| index).collect()
    }

    /// The server that offers exactly this template.
    pub fn template_owner(&self, scope: Scope, template: &str) -> Option<usize> {
        self.resolve(scope, Kind::Template, template).map(|route| route.server)
    }

    /// Resources and templates that several servers offer.
    pub fn collisions(&self) -> Vec<Collision> {
        let mut found = Vec::new();
        for kind in [Kind::Resource, Kind::Template] {
            found.extend(self.shadowed(kind).iter().filter_map(|&hidden| self.collision(kind, hidden)));
        }
        found
    }

    /// None if the server repeats itself, which hides nothing from anybody.
    fn collision(&self, kind: Kind, hidden: Route) -> Option<Collision> {
        let uri = &self.item(kind, hidden).id;
        let owner = self.names(kind).route(uri)?.server;
        (owner != hidden.server).then(|| Collision { uri: uri.to_string(), kind, owner, hidden: hidden.server })
    }

    fn templates(&self) -> &[(usize, UriTemplate)] {
        self.templates.get_or_init(|| {
            names::every(&self.servers, Kind::Template)
                .filter_map(|(route, _, item)| Some((route.server, UriTemplate::parse(&item.id)?)))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::Era;

    use super::super::tests::{capable, idle, snapshot, with};
    use super::super::{ServerEntry, ServerState};
    use super::*;

    fn server(name: &str, uris: &[&str], templates: &[&str]) -> ServerEntry {
        let resource = |uri: &&str| format!(r#"{{"uri":"{uri}","name":"n"}}"#);
        let template = |uri: &&str| format!(r#"{{"uriTemplate":"{uri}","name":"n"}}"#);
        let uris: Vec<_> = uris.iter().map(resource).collect();
        let templates: Vec<_> = templates.iter().map(template).collect();
        let idle = capable(idle(name, Era::Legacy), r#"{"resources":{}}"#);
        with(with(idle, Kind::Resource, &uris), Kind::Template, &templates)
    }

    #[test]
    fn a_uri_belongs_to_those_who_list_it_before_those_whose_template_fits() {
        let snapshot = snapshot(vec![
            server("t", &[], &["x://{id}", "x://{other}"]),
            server("a", &["x://1", "x://2"], &["{broken"]),
            server("b", &["x://2", "x://2"], &["x://{+rest}"]),
        ]);
        let owners = |uri| snapshot.owners_of_uri(Scope::All, uri);
        assert_eq!(owners("x://2"), [1, 2, 0]);
        assert_eq!(owners("x://1"), [1, 0, 2]);
        assert_eq!(owners("x://7"), [0, 2]);
        assert_eq!(owners("x://7/8"), [2]);
        assert!(owners("y://").is_empty());
        assert_eq!(snapshot.owners_of_uri(Scope::One(2), "x://2"), [2]);
        assert_eq!(snapshot.owners_of_uri(Scope::One(2), "x://1"), [2], "by its template");
        assert!(snapshot.owners_of_uri(Scope::One(1), "x://7").is_empty());
    }

    #[test]
    fn templates_that_take_long_to_match_cost_their_own_server_only() {
        let hostile = "{+a:32}".repeat(64);
        let many: Vec<String> = (0..50).map(|n| format!("{hostile}{n}")).collect();
        let mut templates: Vec<&str> = many.iter().map(String::as_str).collect();
        templates.push("x://{id}");
        let snapshot = snapshot(vec![server("hostile", &[], &templates), server("honest", &[], &["x://{+id}"])]);
        let uri = format!("x://{}", "y".repeat(8000));
        assert_eq!(snapshot.owners_of_uri(Scope::All, &uri), [1], "what could not be found out in time does not fit");
        assert_eq!(snapshot.owners_of_uri(Scope::All, "x://1"), [0, 1]);
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
    fn running_servers_with_resources_are_asked_for_what_nobody_claims() {
        let down = ServerEntry { state: ServerState::Stopped, ..server("d", &[], &[]) };
        let servers = vec![server("a", &[], &[]), idle("no", Era::Modern), down, server("b", &[], &[])];
        let snapshot = snapshot(servers);
        assert_eq!(snapshot.resource_servers(Scope::All), [0, 3]);
        assert_eq!(snapshot.resource_servers(Scope::One(3)), [3]);
        assert!(snapshot.resource_servers(Scope::One(1)).is_empty());
        assert!(snapshot.resource_servers(Scope::One(9)).is_empty());
    }

    #[test]
    fn what_several_servers_offer_is_reported() {
        let snapshot = snapshot(vec![
            server("a", &["x://1", "x://1"], &["x://{v}"]),
            server("b", &["x://2", "x://1"], &[]),
            server("c", &["x://1"], &["x://{v}"]),
        ]);
        let collision = |uri: &str, kind, hidden| Collision { uri: uri.to_owned(), kind, owner: 0, hidden };
        assert_eq!(
            snapshot.collisions(),
            [
                collision("x://1", Kind::Resource, 1),
                collision("x://1", Kind::Resource, 2),
                collision("x://{v}", Kind::Template, 2),
            ],
            "a server that repeats itself collides with nobody"
        );
    }
}
