//! Patterns that match nothing: most of them are misspelled.

use super::{Profile, ProfileProblem, full_name, patterns};
use crate::item::Kind;
use crate::snapshot::{ServerEntry, ServerState, Snapshot};

/// A pattern that matches nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// Where it is, what it says, and what to do.
    pub problem: ProfileProblem,
    /// Whether that is certain: everything that it could match is known.
    pub is_certain: bool,
}

impl Profile {
    /// The patterns that match nothing of what all servers offer.
    pub fn unmatched(&self, whole: &Snapshot) -> Vec<Unmatched> {
        let servers: Vec<&ServerEntry> =
            whole.servers().iter().filter(|server| server.state != ServerState::Removed).collect();
        let own: Vec<&ServerEntry> =
            servers.iter().copied().filter(|server| self.has_server(server.name.as_str())).collect();
        // What a server offers that is not connected is unknown.
        let are_known = own.iter().all(|server| server.state.offers());
        let mut unmatched = Vec::new();
        let mut check = |member: &str, written: &Option<Vec<String>>, is_certain: bool, names: &[String], why: &str| {
            for (index, pattern) in written.iter().flatten().enumerate() {
                if !names.iter().any(|name| patterns::matches(pattern, name)) {
                    let what = format!("`{pattern}` matches {why}");
                    let problem = ProfileProblem { member: vec![member.to_owned(), index.to_string()], what };
                    unmatched.push(Unmatched { problem, is_certain });
                }
            }
        };
        let names: Vec<String> = servers.iter().map(|server| server.name.to_string()).collect();
        check("servers", &self.spec.servers, true, &names, "no server; add the server first, or correct the name");
        let names_of = |kind: Kind| -> Vec<String> {
            let mut names = Vec::new();
            for server in &own {
                names.extend(server.offer.items(kind).iter().map(|item| full_name(server.name.as_str(), &item.id)));
            }
            names
        };
        let why = "no tool of the servers of the profile; correct it, or add its server to `servers`";
        check("tools", &self.spec.tools, are_known, &names_of(Kind::Tool), why);
        let why = "no prompt of the servers of the profile; correct it, or add its server to `servers`";
        check("prompts", &self.spec.prompts, are_known, &names_of(Kind::Prompt), why);
        let uris: Vec<String> = [Kind::Resource, Kind::Template]
            .into_iter()
            .flat_map(|kind| own.iter().flat_map(move |server| server.offer.items(kind).iter()))
            .map(|item| item.id.to_string())
            .collect();
        // Servers have resources that they do not list.
        let why = "no listed resource of the servers of the profile; it may match unlisted ones";
        check("resources", &self.spec.resources, false, &uris, why);
        let visible: Vec<String> = own
            .iter()
            .flat_map(|server| {
                let tools = server.offer.items(Kind::Tool).iter();
                tools
                    .filter(|tool| self.has_item(server.name.as_str(), Kind::Tool, tool))
                    .map(|tool| full_name(server.name.as_str(), &tool.id))
            })
            .collect();
        for (index, name) in self.spec.pinned.iter().flatten().enumerate() {
            if !visible.contains(name) {
                let what = format!("`{name}` is no tool of the profile; pin a tool that it has");
                let problem = ProfileProblem { member: vec!["pinned".to_owned(), index.to_string()], what };
                unmatched.push(Unmatched { problem, is_certain: are_known });
            }
        }
        unmatched
    }

    /// The servers that the profile names and that are not among `known`.
    pub fn unknown_servers(&self, known: &[&str]) -> Vec<ProfileProblem> {
        let written = self.spec.servers.iter().flatten().enumerate();
        let unknown = written.filter_map(|(index, pattern)| {
            let name = patterns::literal(pattern).filter(|name| !known.contains(name))?;
            let what = format!("`{name}` is no server of the config; correct the name, or add the server");
            Some(ProfileProblem { member: vec!["servers".to_owned(), index.to_string()], what })
        });
        unknown.collect()
    }
}
