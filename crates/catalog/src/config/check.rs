//! Checks the tree of a config file, and collects all problems.

mod container;
mod oauth;
mod options;
mod report;
mod texts;
mod transport;

use std::cell::RefCell;

use super::path::{JsonPath, quoted};
use super::tree::{self, Member, Node};
use super::{Accepted, Config, OF_VS_CODE, Problem, SERVER_KEYS, UnsetServer, UnsetVariables, Variable, Warning};
use crate::secrets::Secrets;
use crate::server::{ServerName, ServerSpec, Transport};
use report::{MissingVariable, Wanted, given_often};

type Lookup<'a> = &'a dyn Fn(&str) -> Variable;

/// Checks the whole config.
pub(super) fn config(
    root: &Node,
    accepted: Accepted,
    unset: UnsetVariables,
    lookup: Lookup<'_>,
) -> Result<Config, Vec<Problem>> {
    let mut check = Check {
        accepted,
        unset,
        lookup,
        filled_in: RefCell::default(),
        problems: Vec::new(),
        missing: Vec::new(),
        warnings: Vec::new(),
    };
    let config = check.root(root);
    let warnings = std::mem::take(&mut check.warnings);
    let problems = check.into_problems();
    if problems.is_empty() { Ok(Config { warnings, ..config }) } else { Err(problems) }
}

struct Check<'a> {
    accepted: Accepted,
    unset: UnsetVariables,
    lookup: Lookup<'a>,
    /// The variables of the current server, by name and value.
    filled_in: RefCell<Vec<(String, String)>>,
    problems: Vec<Problem>,
    /// In order of first use.
    missing: Vec<MissingVariable>,
    warnings: Vec<Warning>,
}

/// Whether variables in a text are replaced. Those of a disabled server may be unset.
#[derive(Clone, Copy, PartialEq)]
enum Variables {
    Fill,
    LeaveAlone,
}

/// The object of one server, or one in it.
struct Entry<'a> {
    path: JsonPath,
    members: &'a [Member],
    variables: Variables,
    /// The keys that may be read, where there is a list of them that others rely on.
    keys: Option<&'static [&'static str]>,
}

impl<'a> Entry<'a> {
    fn of_server(path: JsonPath, members: &'a [Member], variables: Variables) -> Self {
        Self { path, members, variables, keys: Some(&SERVER_KEYS) }
    }

    fn get(&self, key: &str) -> Option<&'a Node> {
        debug_assert!(self.keys.is_none_or(|keys| keys.contains(&key)), "`{key}` is not in SERVER_KEYS");
        tree::get(self.members, key)
    }
}

// A method that finds a problem records it and returns `None` or an empty placeholder. Placeholders never leave this
// folder: with a problem there is no config.
impl Check<'_> {
    fn root(&mut self, root: &Node) -> Config {
        let path = JsonPath::root();
        let Node::Object(members) = root else {
            self.wrong_kind(&path, root, Wanted::Object);
            return Config::default();
        };
        let found = self.accepted.keys().iter().find_map(|name| Some((*name, tree::get(members, name)?)));
        let Some((name, servers)) = found else {
            let path = path.member("mcpServers");
            self.problem_with_hint(&path, "is missing", missing_servers_hint(members));
            return Config::default();
        };
        // A merge of the configs of two clients has both.
        if name != OF_VS_CODE && tree::get(members, OF_VS_CODE).is_some() {
            self.warning(&path.member(OF_VS_CODE), format!("is not used, because `{name}` is present, too"));
        }
        let path = path.member(name);
        if let Some((_, count)) = tree::repeated(members).iter().find(|(key, _)| *key == name) {
            self.problem(&path, given_often(*count));
        }
        let Node::Object(servers) = servers else {
            self.wrong_kind(&path, servers, Wanted::Object);
            return Config::default();
        };
        self.servers(&path, servers)
    }

    fn servers(&mut self, path: &JsonPath, servers: &[Member]) -> Config {
        self.refuse_repeated_keys(path, servers);
        let mut config = Config::default();
        for (key, server) in servers {
            let path = path.member(key);
            let Ok(name) = ServerName::new(key) else {
                let hint = "the key names the server; its tools are prefixed with it";
                self.problem_with_hint(&path, "has an empty name", Some(hint));
                continue;
            };
            // No real name has one, and the hash in safe aliases relies on it.
            if key.contains('\0') {
                self.problem(&path, "has a NUL character in its name");
            }
            let Node::Object(members) = server else {
                self.wrong_kind(&path, server, Wanted::Object);
                continue;
            };
            self.refuse_repeated_keys(&path, members);
            if self.read_disabled(&path, members) {
                // Checked anyway, so that enabling it later does not fail.
                let variables = Variables::LeaveAlone;
                self.server(name.clone(), &Entry::of_server(path, members, variables));
                config.disabled.push(name);
                continue;
            }
            let entry = Entry::of_server(path, members, Variables::Fill);
            let missing_before = std::mem::take(&mut self.missing);
            let spec = self.server(name.clone(), &entry);
            let missing = std::mem::replace(&mut self.missing, missing_before);
            match self.unset {
                UnsetVariables::FailServer if !missing.is_empty() => {
                    let reasons: Vec<String> = missing.into_iter().map(MissingVariable::into_sentence).collect();
                    config.unset.push(UnsetServer { name, reason: reasons.join("; ") });
                }
                UnsetVariables::FailServer | UnsetVariables::RefuseFile => {
                    missing.into_iter().for_each(|variable| self.merge_missing(variable));
                    config.servers.extend(spec);
                }
            }
        }
        config
    }

    fn server(&mut self, name: ServerName, server: &Entry<'_>) -> Option<ServerSpec> {
        self.filled_in.take();
        let lifecycle = self.lifecycle(server);
        let [timeout, start_timeout] = ["timeout", "startTimeout"].map(|key| self.milliseconds(server, key));
        let sharing = self.sharing(server);
        let transport = self.transport(server)?;
        let variables = self.filled_in.take();
        let secrets = Secrets::of(&transport, variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let grant_key = grant_key(&name, &transport);
        Some(ServerSpec { name, transport, lifecycle, timeout, start_timeout, sharing, secrets, grant_key })
    }
}

/// Where the sign-in of a server of a file is stored. The address is part of it: another server of the same name in
/// another file has its own.
fn grant_key(name: &ServerName, transport: &Transport) -> Option<String> {
    match transport {
        Transport::Remote(remote) => Some(format!("{name} {}", remote.place())),
        Transport::Stdio(_) | Transport::Container(_) => None,
    }
}

/// What a file without `mcpServers` may mean.
fn missing_servers_hint(members: &[Member]) -> Option<String> {
    let is_server = |(_, value): &Member| tree::get(value.members(), "command").is_some();
    let near_miss = |(key, _): &&Member| {
        let letters: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
        letters.eq_ignore_ascii_case("mcpServers")
    };
    if let Some((key, _)) = members.iter().find(near_miss) {
        return Some(format!("rename {} to \"mcpServers\"", quoted(key)));
    }
    if tree::get(members, OF_VS_CODE).is_some() {
        return Some("\"servers\" is what VS Code calls it; rename it to \"mcpServers\"".to_owned());
    }
    if members.iter().any(is_server) {
        return Some("these look like servers; wrap them: {\"mcpServers\": { .. }}".to_owned());
    }
    None
}
