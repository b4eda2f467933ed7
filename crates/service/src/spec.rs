//! From a registration to what can be started, with its validation.
//!
//! The format of a server, and the expansion of variables, are those of the config file ([`catalog::Config`]): a
//! registration becomes a config with one entry. Variables are expanded when the server is started, not before.

use aggregator::grant_key_of_server;
use catalog::config::{Problem as ConfigProblem, ProblemKind};
use catalog::{Accepted, Config, ConfigError, ServerSpec};
use oauth::{Network, Protected};
use registry::{Origin, ServerRecord, Transport};
use serde_json::{Map, Value, json};

use crate::Problem;

const MAX_NAME_LEN: usize = 255;
const MAX_DESCRIPTION_LEN: usize = 10_000;
const LONGEST_ADDRESS: usize = 8_000;

/// The name of the one entry. Paths of problems need no quotes for it.
const ENTRY: &str = "connection_config";

/// The problem with a name, if any.
pub(crate) fn problem_with_name(name: &str) -> Option<Problem> {
    let problem = |kind, msg: &str| Some(Problem { loc: body(&["name"]), msg: msg.to_owned(), kind });
    if name.chars().count() > MAX_NAME_LEN {
        return problem("string_too_long", "the name must have at most 255 characters");
    }
    let mut bytes = name.bytes();
    let begins_well = bytes.next().is_some_and(|first| first.is_ascii_lowercase());
    let goes_on_well = bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte));
    if begins_well && goes_on_well {
        return None;
    }
    problem(
        "string_pattern_mismatch",
        "the name must start with a lowercase letter and consist of lowercase letters, digits, `_` and `-`",
    )
}

/// The problem with a description, if any.
pub(crate) fn problem_with_description(description: &str) -> Option<Problem> {
    (description.chars().count() > MAX_DESCRIPTION_LEN).then(|| Problem {
        loc: body(&["description"]),
        msg: format!("the description must have at most {MAX_DESCRIPTION_LEN} characters"),
        kind: "string_too_long",
    })
}

/// The problem with a health check URL, if any.
pub(crate) fn problem_with_health_url(url: &str) -> Option<Problem> {
    let is_http = ["http://", "https://"].iter().any(|scheme| url.to_ascii_lowercase().starts_with(scheme));
    let host = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    let msg = if !is_http {
        "the address must start with http:// or https://".to_owned()
    } else if host.is_some_and(|host| host.contains('@')) {
        "the address must not contain a user or password".to_owned()
    } else if url.contains(registry::MASK) {
        format!("there is a {} in place of a secret: send the secret itself", registry::MASK)
    } else if url.chars().count() > LONGEST_ADDRESS {
        format!("the address must have at most {LONGEST_ADDRESS} characters")
    } else {
        return None;
    };
    Some(Problem { loc: body(&["health_check_url"]), msg, kind: "value_error" })
}

/// All problems with a connection config. Whether its variables are set is not checked.
pub fn problems_with_config(transport: Transport, config: &Map<String, Value>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let lazy = config.get("lazy").filter(|lazy| !lazy.is_boolean());
    problems.extend(lazy.map(|_| Problem {
        loc: body(&[ENTRY, "lazy"]),
        msg: "`lazy` must be true or false".to_owned(),
        kind: "bool_type",
    }));
    if registry::ConnectionConfig::from(config.clone()).is_masked() {
        problems.push(Problem {
            loc: body(&[ENTRY]),
            msg: format!("there is a {} in place of a secret: send the secret itself", registry::MASK),
            kind: "value_error",
        });
    }
    if let (Some(url), Some(base_url)) = (config.get("url"), config.get("base_url"))
        && url != base_url
    {
        let msg = "`url` and `base_url` differ; remove one of them".to_owned();
        problems.push(Problem { loc: body(&[ENTRY, "base_url"]), msg, kind: "value_error" });
    }
    let mut entry = entry(transport, config);
    // A disabled entry is checked, but its variables are not expanded.
    entry.insert("disabled".to_owned(), json!(true));
    let file = json!({ "mcpServers": { ENTRY: entry } });
    if let Err(ConfigError::Problems(found)) = parse(&file) {
        problems.extend(found.iter().map(|problem| translated(transport, config, problem)));
    }
    for found in problems_with_plain(transport, config) {
        if !problems.contains(&found) {
            problems.push(found);
        }
    }
    problems
}

/// Problems with members without variables, which can be checked as if the server were to start.
fn problems_with_plain(transport: Transport, config: &Map<String, Value>) -> Vec<Problem> {
    let mut plain = entry(transport, config);
    plain.retain(|_, value| !value.to_string().contains('$'));
    let Err(ConfigError::Problems(found)) = parse(&json!({ "mcpServers": { ENTRY: plain } })) else {
        return Vec::new();
    };
    // Members that were left out here are not missing.
    let is_there = |problem: &&ConfigProblem| steps(&problem.path).get(1).is_some_and(|key| plain.contains_key(key));
    found.iter().filter(is_there).map(|problem| translated(transport, config, problem)).collect()
}

/// The error of a server that was imported without its secrets.
pub const SECRETS_ARE_MISSING: &str = "its secrets are missing: the config has `***` in their place, as in an export \
     without secrets; enter them in its config";

/// What is needed to start a server, with its variables expanded; or why it cannot be started. Its sign-in is stored
/// under its id, so that it survives a change of the name.
pub(crate) fn resolve(record: &ServerRecord) -> Result<ServerSpec, String> {
    resolve_stored(record).map(|spec| with_grant_of(record, spec))
}

/// The same server with the sign-in of a record.
pub(crate) fn with_grant_of(record: &ServerRecord, spec: ServerSpec) -> ServerSpec {
    ServerSpec { grant_key: spec.grant_key.as_ref().map(|_| grant_key(record)), ..spec }
}

/// Ends the key of the sign-in of a server that the config file defines.
const OF_CONFIG_FILE: &str = " config";

/// Where the sign-in of a server of the registry is stored: under its id, and whether the config file defines it.
pub(crate) fn grant_key(record: &ServerRecord) -> String {
    match record.origin {
        Origin::Registered => record.id.to_string(),
        Origin::Config => format!("{}{OF_CONFIG_FILE}", record.id),
    }
}

/// What a sign-in to a server is about; `None` if it cannot have one. Requests for it may go to `network`, and anywhere
/// if the config file defines the server.
pub fn protected_within(network: Network) -> impl Fn(&ServerSpec) -> Option<Protected> + Send + Sync + 'static {
    move |spec| {
        let protected = Protected::of(spec)?;
        let is_of_config_file = grant_key_of_server(&protected.key).ends_with(OF_CONFIG_FILE);
        Some(protected.with_network(if is_of_config_file { Network::Any } else { network }))
    }
}

fn resolve_stored(record: &ServerRecord) -> Result<ServerSpec, String> {
    let config = record.connection_config.reveal();
    match record.origin {
        // A mask in the place of a secret would be sent as one.
        Origin::Registered if record.connection_config.is_masked() => Err(SECRETS_ARE_MISSING.to_owned()),
        Origin::Registered => resolve_parts(&record.name, record.transport, config),
        // As it is in the file, which need not contain a transport type.
        Origin::Config => resolve_entry(&record.name, &without_disabled_flags(config)),
    }
}

/// The same, for what is not registered.
pub(crate) fn resolve_parts(
    name: &str,
    transport: Transport,
    config: &Map<String, Value>,
) -> Result<ServerSpec, String> {
    // A registered server has no file that such a path would refer to.
    let whole = [format!("$.mcpServers.{name}."), format!("$.mcpServers[\"{name}\"].")];
    let resolved = resolve_entry(name, &entry(transport, config));
    resolved.map_err(|why| whole.iter().fold(why, |why, whole| why.replace(whole, "")))
}

fn resolve_entry(name: &str, entry: &Map<String, Value>) -> Result<ServerSpec, String> {
    let file = json!({ "mcpServers": { name: entry } });
    let one_after_the_other = |problems: &[ConfigProblem]| {
        let messages = problems.iter().map(|problem| match problem.kind {
            ProblemKind::MissingVariable => problem.message.clone(),
            ProblemKind::Schema => format!("`{}` {}", place(&problem.path), problem.message),
        });
        messages.collect::<Vec<_>>().join("; ")
    };
    let hiding = |spec: ServerSpec| {
        let found = registry::ConnectionConfig::from(entry.clone()).secrets();
        ServerSpec { secrets: spec.secrets.with(found.iter().map(String::as_str)), ..spec }
    };
    match parse(&file) {
        Ok(config) => config.servers.into_iter().next().ok_or_else(|| "it is disabled".to_owned()).map(hiding),
        Err(ConfigError::Problems(problems)) => Err(one_after_the_other(&problems)),
        Err(other) => Err(other.to_string()),
    }
}

/// The keys of a connection config that a config file has under other names or not at all.
const OF_REGISTRATIONS: [&str; 2] = ["base_url", "lazy"];

/// Whether we read a key of a connection config.
pub fn is_known_key(key: &str) -> bool {
    catalog::SERVER_KEYS.contains(&key) || OF_REGISTRATIONS.contains(&key)
}

/// Whether it is started on demand.
pub(crate) fn is_lazy(config: &Map<String, Value>) -> bool {
    config.get("lazy").and_then(Value::as_bool).unwrap_or(false)
}

fn parse(file: &Value) -> Result<Config, ConfigError> {
    let text = serde_json::to_vec(file).expect("a JSON value can be written");
    Config::parse(&text, Accepted::All, aggregator::load::variable)
}

/// The equivalent entry of a config file.
fn entry(transport: Transport, config: &Map<String, Value>) -> Map<String, Value> {
    let mut entry = without_disabled_flags(config);
    entry.shift_remove("transport");
    entry.insert("type".to_owned(), json!(transport.as_str()));
    if transport != Transport::Stdio
        && !["url", "serverUrl", "httpUrl"].iter().any(|key| entry.contains_key(*key))
        && let Some(url) = entry.shift_remove("base_url")
    {
        entry.insert("url".to_owned(), url);
    }
    entry
}

/// The same without the enabled state, which is stored separately.
fn without_disabled_flags(config: &Map<String, Value>) -> Map<String, Value> {
    let mut entry = config.clone();
    entry.shift_remove("enabled");
    entry.shift_remove("disabled");
    entry
}

fn translated(transport: Transport, config: &Map<String, Value>, problem: &ConfigProblem) -> Problem {
    let mut loc = body(&[]);
    loc.extend(steps(&problem.path));
    let is_about = |key: &str| loc.len() == 3 && loc[2] == key;
    let is_url = is_about("url");
    if is_url && config.contains_key("base_url") {
        loc[2] = "base_url".to_owned();
    }
    let is_missing = problem.message == "is missing";
    let name = name_of(&loc);
    let msg = match (is_missing, transport) {
        (true, Transport::Http) if is_url => "an HTTP server needs `base_url` or `url`".to_owned(),
        (true, _) => format!("{} {} server needs `{name}`", article(transport), transport.as_str().to_uppercase()),
        (false, _) => match &problem.hint {
            Some(hint) => format!("`{name}` {} ({hint})", problem.message),
            None => format!("`{name}` {}", problem.message),
        },
    };
    let kind = match problem.message.as_str() {
        "is missing" => "missing",
        text if text.contains(", not ") => "type_error",
        _ => "value_error",
    };
    Problem { loc, msg, kind }
}

/// The last step, and the one before it where that is only a number: `args[1]`.
fn name_of(loc: &[String]) -> String {
    match loc {
        [.., list, place] if place.bytes().all(|byte| byte.is_ascii_digit()) => format!("{list}[{place}]"),
        [.., last] => last.clone(),
        [] => String::new(),
    }
}

fn article(transport: Transport) -> &'static str {
    match transport {
        Transport::Stdio => "a",
        Transport::Sse | Transport::Http => "an",
    }
}

fn body(path: &[&str]) -> Vec<String> {
    std::iter::once("body").chain(path.iter().copied()).map(str::to_owned).collect()
}

/// A path in an entry, for people: `args.1`.
fn place(path: &str) -> String {
    let steps = steps(path);
    steps.get(1..).filter(|steps| !steps.is_empty()).unwrap_or(&steps).join(".")
}

/// The steps of a path such as `$.mcpServers.name.args[1]`, from the entry on.
fn steps(path: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix("$.mcpServers.").unwrap_or(path);
    while !rest.is_empty() {
        let (step, after) = if let Some(quoted) = rest.strip_prefix("[\"") {
            quoted.split_once("\"]").unwrap_or((quoted, ""))
        } else if let Some(index) = rest.strip_prefix('[') {
            index.split_once(']').unwrap_or((index, ""))
        } else {
            rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()))
        };
        steps.push(step.to_owned());
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    steps
}

#[cfg(test)]
mod tests {
    use catalog::{Dialect, Transport as ConfigTransport};

    use super::*;

    fn problems(transport: Transport, config: Value) -> Vec<(String, &'static str)> {
        let Value::Object(config) = config else { panic!("an object is a config") };
        let messages = |problem: Problem| (problem.loc.join("."), problem.kind);
        problems_with_config(transport, &config).into_iter().map(messages).collect()
    }

    fn spec(transport: Transport, config: Value) -> Result<ServerSpec, String> {
        let Value::Object(config) = config else { panic!("an object is a config") };
        resolve_parts("db", transport, &config)
    }

    #[test]
    fn every_mistake_is_reported_at_once_and_where_it_is() {
        let config = json!({"args": ["a", 1], "env": {"A": true}, "timeout": -1, "lazy": "yes"});
        let found = problems(Transport::Stdio, config);
        let places: Vec<_> = found.iter().map(|(place, _)| place.as_str()).collect();
        for place in ["command", "args.1", "env.A", "timeout", "lazy"] {
            let place = format!("body.connection_config.{place}");
            assert!(places.contains(&place.as_str()), "{place} in {places:?}");
        }
        assert_eq!(found.iter().find(|(place, _)| place.ends_with("command")).unwrap().1, "missing");
    }

    #[test]
    fn each_transport_needs_what_it_needs() {
        assert_eq!(problems(Transport::Stdio, json!({"command": "x"})), []);
        assert_eq!(problems(Transport::Sse, json!({"url": "http://x"})), []);
        assert_eq!(problems(Transport::Http, json!({"url": "http://x"})), []);
        assert_eq!(problems(Transport::Http, json!({"base_url": "http://x", "foreign": 1})), []);
        for transport in [Transport::Sse, Transport::Http] {
            let found = problems(transport, json!({"command": "x"}));
            assert_eq!(found, [("body.connection_config.url".to_owned(), "missing")]);
        }
        let found = problems(Transport::Http, json!({"base_url": 5}));
        assert_eq!(found, [("body.connection_config.base_url".to_owned(), "type_error")]);
    }

    #[test]
    fn variables_that_are_not_set_are_no_mistake_until_the_server_is_started() {
        let config = json!({"command": "${NOBODY_HAS_SET_THIS}", "args": ["${PATH}"]});
        assert_eq!(problems(Transport::Stdio, config.clone()), []);
        let why = spec(Transport::Stdio, config).unwrap_err();
        assert!(why.contains("NOBODY_HAS_SET_THIS is not set"), "{why}");
    }

    #[test]
    fn an_http_server_is_reached_at_its_base_url() {
        let spec = spec(Transport::Http, json!({"base_url": "http://x/mcp", "timeout": 5000})).unwrap();
        let ConfigTransport::Remote(remote) = &spec.transport else { panic!("{spec:?}") };
        assert_eq!((remote.url.value.as_str(), remote.dialect), ("http://x/mcp", Dialect::Streamable));
        assert_eq!(spec.timeout, Some(std::time::Duration::from_secs(5)));
    }

    #[test]
    fn an_address_without_variables_is_checked_at_once_and_one_with_later() {
        let found = problems(Transport::Http, json!({"url": "ftp://x", "headers": {"A": "${UNSET_HERE}"}}));
        assert_eq!(found, [("body.connection_config.url".to_owned(), "value_error")]);
        assert_eq!(problems(Transport::Http, json!({"url": "${UNSET_HERE}/mcp"})), []);
        let why = spec(Transport::Http, json!({"url": "ftp://x"})).unwrap_err();
        assert!(why.starts_with("`url` "), "{why}");
    }

    #[test]
    fn the_secrets_of_a_registration_are_masked_in_server_output() {
        let config = json!({"command": "x", "args": ["--token", "hunter2"], "env": {"A": "hunter3"}});
        let spec = spec(Transport::Stdio, config).unwrap();
        assert_eq!(spec.secrets.hide("neither hunter2 nor hunter3"), "neither *** nor ***");
    }

    #[test]
    fn a_health_address_holds_no_credentials() {
        assert_eq!(problem_with_health_url("https://host/ok?page=a@b"), None);
        for bad in ["ftp://x", "http://me:hunter2@host/", "https://host/?token=***"] {
            assert!(problem_with_health_url(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_mask_is_no_secret() {
        let found = problems(Transport::Stdio, json!({"command": "x", "env": {"TOKEN": registry::MASK}}));
        assert_eq!(found, [("body.connection_config".to_owned(), "value_error")]);
    }

    #[test]
    fn a_name_begins_with_a_letter_and_stays_small() {
        for good in ["a", "git-2", "my_server"] {
            assert_eq!(problem_with_name(good), None, "{good}");
        }
        for bad in ["", "Git", "2git", "a.b", "a b", "-a", "ä"] {
            assert_eq!(problem_with_name(bad).map(|problem| problem.kind), Some("string_pattern_mismatch"), "{bad}");
        }
        assert_eq!(problem_with_name(&"a".repeat(256)).map(|problem| problem.kind), Some("string_too_long"));
    }
}
