//! From the tree of a config file to its servers, noting every problem on the way.

use super::path::{JsonPath, is_identifier, quoted};
use super::tree::{self, Member, Node};
use super::{Accepted, Config, Problem, ProblemKind};
use crate::expand::{Template, TemplateError};
use crate::server::{Dialect, Filled, Program, Remote, ServerName, ServerSpec, Transport};
use std::collections::HashSet;

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Keys under which clients write the address of a server they do not start themselves.
const ADDRESS_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];

/// Checks the whole config.
pub(super) fn config(root: &Node, accepted: Accepted, lookup: Lookup<'_>) -> Result<Config, Vec<Problem>> {
    let mut check = Check { accepted, lookup, problems: Vec::new(), missing: Vec::new() };
    let config = check.root(root);
    let problems = check.into_problems();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

struct Check<'a> {
    accepted: Accepted,
    lookup: Lookup<'a>,
    problems: Vec<Problem>,
    /// In order of first use.
    missing: Vec<MissingVariable>,
}

struct MissingVariable {
    name: String,
    used_at: Vec<String>,
}

/// Whether a text gets its variables filled in. Those of a disabled server may well be unset.
#[derive(Clone, Copy, PartialEq)]
enum Variables {
    Fill,
    LeaveAlone,
}

/// What should have stood in a place.
#[derive(Clone, Copy)]
enum Wanted {
    Object,
    Text,
    Texts,
    NamedTexts,
    Flag,
}

/// The object of one server.
struct Entry<'a> {
    path: JsonPath,
    members: &'a [Member],
    variables: Variables,
}

impl<'a> Entry<'a> {
    fn get(&self, key: &str) -> Option<&'a Node> {
        tree::get(self.members, key)
    }
}

// A method that finds a problem notes it and returns `None` or an empty stand-in. Stand-ins never leave
// this file: with a problem noted there is no config.
impl Check<'_> {
    fn root(&mut self, root: &Node) -> Config {
        let path = JsonPath::root();
        let Node::Object(members) = root else {
            self.wrong_kind(&path, root, Wanted::Object);
            return Config::default();
        };
        let names: &[&str] = match self.accepted {
            Accepted::StdioOnly => &["mcpServers"],
            Accepted::All => &["mcpServers", "servers"],
        };
        let found = names.iter().find_map(|name| Some((*name, tree::get(members, name)?)));
        let Some((name, servers)) = found else {
            let path = path.member("mcpServers");
            self.problem_with_hint(&path, "is missing", missing_servers_hint(members));
            return Config::default();
        };
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
            if self.is_disabled(&path, members) {
                // Checked all the same, so that enabling it later brings no surprise.
                let variables = Variables::LeaveAlone;
                self.server(name.clone(), &Entry { path, members, variables });
                config.disabled.push(name);
                continue;
            }
            let variables = Variables::Fill;
            config.servers.extend(self.server(name, &Entry { path, members, variables }));
        }
        config
    }

    fn is_disabled(&mut self, path: &JsonPath, members: &[Member]) -> bool {
        match tree::get(members, "disabled") {
            None => false,
            Some(Node::Bool(disabled)) => *disabled,
            Some(other) => {
                self.wrong_kind(&path.member("disabled"), other, Wanted::Flag);
                false
            }
        }
    }

    fn server(&mut self, name: ServerName, server: &Entry<'_>) -> Option<ServerSpec> {
        for key in ["type", "transport"] {
            if let Some(value) = server.get(key)
                && !matches!(value, Node::String(_))
            {
                self.wrong_kind(&server.path.member(key), value, Wanted::Text);
            }
        }
        match (Kind::of(server), self.accepted) {
            (Ok(Kind::Program), _) => Some(ServerSpec { name, transport: Transport::Stdio(self.program(server)?) }),
            (Ok(Kind::Remote(dialect)), Accepted::All) => {
                Some(ServerSpec { name, transport: Transport::Remote(self.remote(server, dialect)?) })
            }
            (Err(unknown), Accepted::All) => {
                self.problem_with_hint(&server.path, unknown, Some("known are \"stdio\", \"http\" and \"sse\""));
                None
            }
            (Ok(Kind::Remote(_)) | Err(_), Accepted::StdioOnly) => {
                // What is never started need not be started over stdio.
                if server.variables == Variables::Fill {
                    let hint = "use `mcp-aggregator` for servers over HTTP or SSE";
                    self.problem_with_hint(&server.path, refusal_of_remote(server), Some(hint));
                }
                None
            }
        }
    }

    /// All of it is checked before a missing command ends it.
    fn program(&mut self, server: &Entry<'_>) -> Option<Program> {
        let command = self.command(server);
        let args = self.args(server);
        let env = self.named_texts(server, "env", |name| {
            let unfit = name.contains(['=', '\0']);
            unfit.then_some("has a name that no environment can hold: it contains `=` or NUL")
        });
        let cwd = self.cwd(server);
        Some(Program { command: command?, args, env, cwd })
    }

    fn remote(&mut self, server: &Entry<'_>, dialect: Dialect) -> Option<Remote> {
        let url = self.url(server);
        let headers = self.named_texts(server, "headers", |name| {
            let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
            (!fits).then_some("has a name that no header can have")
        });
        let mut fits = true;
        for (name, value) in &headers {
            if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
                self.problem(&server.path.member("headers").member(name), "contains a control character");
                fits = false;
            }
        }
        fits.then_some(Remote { url: url?, headers, dialect })
    }

    fn url(&mut self, server: &Entry<'_>) -> Option<Filled> {
        let key = ADDRESS_KEYS.into_iter().find(|key| server.get(key).is_some());
        let path = server.path.member(key.unwrap_or("url"));
        let Some(value) = key.and_then(|key| server.get(key)) else {
            self.problem(&path, "is missing");
            return None;
        };
        let url = self.text_not_blank(&path, value, server.variables)?;
        // The rest of an address is checked by whoever connects; an address is no secret, but what is behind `?` may be.
        let is_http = ["http://", "https://"].iter().any(|scheme| url.value.to_ascii_lowercase().starts_with(scheme));
        if !is_http && server.variables == Variables::Fill {
            self.problem(&path, "must start with http:// or https://");
            return None;
        }
        // They would be shown wherever the address is.
        let authority = url.value.split(['/', '?', '#']).nth(2).unwrap_or_default();
        if authority.contains('@') {
            self.problem_with_hint(&path, "must not hold credentials", Some("put them into `headers`"));
            return None;
        }
        Some(url)
    }

    fn command(&mut self, server: &Entry<'_>) -> Option<Filled> {
        let path = server.path.member("command");
        let Some(value) = server.get("command") else {
            self.problem(&path, "is missing");
            return None;
        };
        self.text_not_blank(&path, value, server.variables)
    }

    fn args(&mut self, server: &Entry<'_>) -> Vec<String> {
        let path = server.path.member("args");
        match server.get("args") {
            None => Vec::new(),
            Some(Node::Array(args)) => {
                let args = args.iter().enumerate();
                args.filter_map(|(at, arg)| self.text(&path.index(at), arg, server.variables)).collect()
            }
            Some(other) => {
                self.wrong_kind(&path, other, Wanted::Texts);
                Vec::new()
            }
        }
    }

    /// An object of strings; `unfit` says what is wrong with a name.
    fn named_texts(
        &mut self,
        server: &Entry<'_>,
        key: &str,
        unfit: impl Fn(&str) -> Option<&'static str>,
    ) -> Vec<(String, String)> {
        let path = server.path.member(key);
        let entries = match server.get(key) {
            None => return Vec::new(),
            Some(Node::Object(entries)) => entries,
            Some(other) => {
                self.wrong_kind(&path, other, Wanted::NamedTexts);
                return Vec::new();
            }
        };
        self.refuse_repeated_keys(&path, entries);
        let mut texts = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            let path = path.member(name);
            if name.is_empty() {
                self.problem(&path, "has an empty name");
            } else if let Some(why) = unfit(name) {
                self.problem(&path, why);
            }
            if let Some(value) = self.text(&path, value, server.variables) {
                texts.push((name.clone(), value));
            }
        }
        texts
    }

    fn cwd(&mut self, server: &Entry<'_>) -> Option<Filled> {
        let value = server.get("cwd")?;
        self.text_not_blank(&server.path.member("cwd"), value, server.variables)
    }

    fn text_not_blank(&mut self, path: &JsonPath, value: &Node, variables: Variables) -> Option<Filled> {
        let text = self.text(path, value, variables)?;
        let Node::String(written) = value else { return None };
        if !text.trim().is_empty() {
            return Some(Filled::new(text, written));
        }
        let when = if written.trim().is_empty() { "is empty" } else { "is empty once its variables are filled in" };
        self.problem(path, when);
        None
    }

    /// A string that can be passed to a program.
    fn text(&mut self, path: &JsonPath, value: &Node, variables: Variables) -> Option<String> {
        let Node::String(raw) = value else {
            self.wrong_kind(path, value, Wanted::Text);
            return None;
        };
        let template = match Template::parse(raw) {
            Ok(template) => template,
            Err(error) => {
                let hint = (error == TemplateError::Unclosed).then_some("close it with `}`");
                self.problem_with_hint(path, error.to_string(), hint);
                return None;
            }
        };
        let text = match variables {
            Variables::LeaveAlone => raw.clone(),
            Variables::Fill => {
                let filled = template.fill(self.lookup);
                for name in &filled.missing {
                    self.variable_is_missing(name, path);
                }
                if !filled.missing.is_empty() {
                    return None;
                }
                filled.text
            }
        };
        if text.contains('\0') {
            self.problem(path, "contains a NUL character, which cannot be passed to a program");
            return None;
        }
        Some(text)
    }

    fn refuse_repeated_keys(&mut self, path: &JsonPath, members: &[Member]) {
        for (key, count) in tree::repeated(members) {
            self.problem(&path.member(key), given_often(count));
        }
    }

    fn wrong_kind(&mut self, path: &JsonPath, found: &Node, wanted: Wanted) {
        let hint = match (wanted, found) {
            (Wanted::Text, Node::Number | Node::Bool(_)) => Some("put the value in quotes"),
            (Wanted::Flag, Node::String(_)) => Some("remove the quotes"),
            (Wanted::Texts | Wanted::NamedTexts, Node::Null) => Some("leave the key out instead"),
            _ => None,
        };
        let wanted = match wanted {
            Wanted::Object => "an object",
            Wanted::Text => "a string",
            Wanted::Texts => "an array of strings",
            Wanted::NamedTexts => "an object of strings",
            Wanted::Flag => "true or false",
        };
        self.problem_with_hint(path, format!("must be {wanted}, not {}", found.kind()), hint);
    }

    fn problem(&mut self, path: &JsonPath, message: impl Into<String>) {
        self.problem_with_hint(path, message, None::<&str>);
    }

    fn problem_with_hint(&mut self, path: &JsonPath, message: impl Into<String>, hint: Option<impl Into<String>>) {
        self.problems.push(Problem {
            kind: ProblemKind::Schema,
            path: path.to_string(),
            message: message.into(),
            hint: hint.map(Into::into),
        });
    }

    fn variable_is_missing(&mut self, name: &str, path: &JsonPath) {
        let place = path.to_string();
        let known = self.missing.iter_mut().find(|variable| variable.name == name);
        let Some(variable) = known else {
            self.missing.push(MissingVariable { name: name.to_owned(), used_at: vec![place] });
            return;
        };
        // Twice in one text is one place.
        if variable.used_at.last() != Some(&place) {
            variable.used_at.push(place);
        }
    }

    fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems;
        problems.extend(self.missing.into_iter().map(MissingVariable::into_problem));
        // Both bodies of a server that is given twice are checked, and may have the same fault.
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert(problem.clone()));
        problems
    }
}

impl MissingVariable {
    fn into_problem(self) -> Problem {
        let Self { name, used_at } = self;
        let hint = match name.strip_prefix("env:") {
            Some(plain) => format!("`${{env:..}}` is how other programs write it; here it is `${{{plain}}}`"),
            None => "set it where this program is started, or give a default: `${NAME:-default}`".to_owned(),
        };
        let shown = if is_identifier(&name) { name } else { quoted(&name) };
        Problem {
            kind: ProblemKind::MissingVariable,
            message: format!("{shown} is not set; used at {}", used_at.join(", ")),
            path: used_at.into_iter().next().unwrap_or_default(),
            hint: Some(hint),
        }
    }
}

fn given_often(count: usize) -> String {
    match count {
        2 => "is given twice".to_owned(),
        _ => format!("is given {count} times"),
    }
}

/// What kind of server an entry describes.
enum Kind {
    Program,
    Remote(Dialect),
}

impl Kind {
    /// By what the entry says of itself, else by what it has; an error tells of a word nobody knows.
    fn of(server: &Entry<'_>) -> Result<Self, String> {
        for key in ["type", "transport"] {
            if let Some(Node::String(value)) = server.get(key) {
                return match value.to_ascii_lowercase().replace(['_', ' '], "-").as_str() {
                    "stdio" => Ok(Self::Program),
                    "http" | "streamable-http" | "streamablehttp" => Ok(Self::Remote(Dialect::Streamable)),
                    "sse" => Ok(Self::Remote(Dialect::Sse)),
                    _ => Err(format!("has an unknown {key} {}", quoted(value))),
                };
            }
        }
        let has_address = ADDRESS_KEYS.into_iter().any(|key| server.get(key).is_some());
        let is_remote = has_address && server.get("command").is_none();
        Ok(if is_remote { Self::Remote(Dialect::Unknown) } else { Self::Program })
    }
}

/// What to say about a server that is not started over stdio where only such are accepted.
fn refusal_of_remote(server: &Entry<'_>) -> String {
    for key in ["type", "transport"] {
        if let Some(Node::String(value)) = server.get(key) {
            return format!("has the {key} {}; this program starts servers over stdio only", quoted(value));
        }
    }
    let key = ADDRESS_KEYS.into_iter().find(|key| server.get(key).is_some()).unwrap_or("url");
    format!("is reached over HTTP (`{key}`); this program starts servers over stdio only")
}

/// What may have been meant by a file without `mcpServers`.
fn missing_servers_hint(members: &[Member]) -> Option<String> {
    let is_server = |(_, value): &Member| tree::get(value.members(), "command").is_some();
    let near_miss = |(key, _): &&Member| {
        let letters: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
        letters.eq_ignore_ascii_case("mcpServers")
    };
    if let Some((key, _)) = members.iter().find(near_miss) {
        return Some(format!("rename {} to \"mcpServers\"", quoted(key)));
    }
    if tree::get(members, "servers").is_some() {
        return Some("\"servers\" is what VS Code calls it; rename it to \"mcpServers\"".to_owned());
    }
    if members.iter().any(is_server) {
        return Some("these look like servers; wrap them: {\"mcpServers\": { .. }}".to_owned());
    }
    None
}
