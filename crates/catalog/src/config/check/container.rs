//! The `docker` block of a server in a container. The block is ours, so an unknown key is an error.

use super::super::path::JsonPath;
use super::super::tree::Node;
use super::report::Wanted;
use super::transport::unfit_variable;
use super::{Check, Entry, Variables};
use crate::container::{Contact, Container, Port, Pull};
use crate::server::Dialect;

/// The key of the block.
pub(super) const BLOCK: &str = "docker";

const KEYS: [&str; 14] = [
    "image",
    "containerName",
    "command",
    "args",
    "env",
    "ports",
    "path",
    "volumes",
    "network",
    "memory",
    "cpus",
    "user",
    "pull",
    "readOnly",
];
/// Container engines refuse less memory.
const LEAST_MEMORY: u64 = 6 << 20;
const BILLION: f64 = 1e9;
/// The modes of a volume, in Docker and in Podman.
const VOLUME_MODES: [&str; 17] = [
    "ro",
    "rw",
    "z",
    "Z",
    "U",
    "nocopy",
    "copy",
    "cached",
    "delegated",
    "consistent",
    "shared",
    "rshared",
    "slave",
    "rslave",
    "private",
    "rprivate",
    "noexec",
];

impl Check<'_> {
    /// `dialect` is the HTTP transport, if it is not stdio. Everything is checked before an error ends it.
    pub(super) fn container(&mut self, server: &Entry<'_>, dialect: Option<Dialect>) -> Option<Container> {
        let path = server.path.member(BLOCK);
        let members = match server.get(BLOCK)? {
            Node::Object(members) => members,
            other => {
                self.wrong_kind(&path, other, Wanted::Object);
                return None;
            }
        };
        self.refuse_repeated_keys(&path, members);
        for (key, _) in members {
            if !KEYS.contains(&key.as_str()) {
                let hint = format!("known are {}", KEYS.join(", "));
                self.problem_with_hint(&path.member(key), "is not a setting of a container", Some(hint));
            }
        }
        let block = Entry { path, members, variables: server.variables, keys: None };
        let image = self.image(&block);
        let name = self.container_name(&block);
        let network = self.filled(&block, "network");
        let ports = self.ports(&block);
        if dialect.is_some() && network.as_deref() == Some("none") {
            self.problem(&block.path.member("network"), "must not be \"none\" for a server that is reached over HTTP");
        }
        self.refuse_ports_of_nobody(&block, &ports, network.as_deref());
        if dialect.is_some() && ports.is_empty() && block.get("ports").is_none() {
            let hint = "name the port it listens on inside the container: {\"ports\": [8080]}";
            self.problem_with_hint(&block.path.member("ports"), "is missing", Some(hint));
        }
        let contact = match dialect {
            None => Contact::Stdio,
            Some(dialect) => {
                Contact::Http { dialect, path: self.http_path(&block, dialect), headers: self.headers(server)? }
            }
        };
        let container = Container {
            name,
            command: self.command_line(&block, "command"),
            args: self.command_line(&block, "args"),
            env: self.named_texts(&block, "env", unfit_variable),
            volumes: self.volumes(&block),
            network,
            memory: self.memory(&block),
            nano_cpus: self.cpus(&block),
            user: self.filled(&block, "user"),
            pull: self.pull(&block),
            read_only: self.flag(&block.path, block.members, "readOnly").unwrap_or(false),
            ports,
            contact,
            image: image?,
        };
        Some(container)
    }

    /// Warns about keys next to the block that have no effect.
    pub(super) fn warn_about_members_outside_block(&mut self, server: &Entry<'_>) {
        for key in ["command", "args", "env", "cwd", "url", "serverUrl", "httpUrl"] {
            if server.get(key).is_some() {
                self.warning(&server.path.member(key), format!("is not used, because `{BLOCK}` is present"));
            }
        }
    }

    fn image(&mut self, block: &Entry<'_>) -> Option<crate::server::Filled> {
        let path = block.path.member("image");
        let Some(value) = block.get("image") else {
            self.problem(&path, "is missing");
            return None;
        };
        let image = self.text_not_blank(&path, value, block.variables)?;
        if image.value.contains(char::is_whitespace) {
            self.problem(&path, "must be the name of one image, without spaces");
            return None;
        }
        if block.variables == Variables::Fill && !is_reference(&image.value) {
            let hint = "such as `mcp/time`, `ghcr.io/me/server:2` or `server@sha256:..`; lowercase except for the tag";
            self.problem_with_hint(&path, "is not a valid image name", Some(hint));
            return None;
        }
        Some(image)
    }

    /// A text that is not blank, if present.
    fn filled(&mut self, block: &Entry<'_>, key: &str) -> Option<String> {
        let value = block.get(key)?;
        Some(self.text_not_blank(&block.path.member(key), value, block.variables)?.value)
    }

    fn container_name(&mut self, block: &Entry<'_>) -> Option<String> {
        let name = self.filled(block, "containerName")?;
        let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        let goes_on_well = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter));
        if block.variables == Variables::Fill && !(begins_well && goes_on_well && name.len() > 1) {
            let message = "must be two or more letters, digits, `_`, `.` and `-`, starting with a letter or digit";
            self.problem(&block.path.member("containerName"), message);
            return None;
        }
        Some(name)
    }

    /// One string, or several.
    fn command_line(&mut self, block: &Entry<'_>, key: &str) -> Vec<String> {
        let path = block.path.member(key);
        match block.get(key) {
            Some(value @ Node::String(_)) if key == "command" => {
                self.text_not_blank(&path, value, block.variables).map(|word| word.value).into_iter().collect()
            }
            Some(other) if key == "command" && !matches!(other, Node::Array(_)) => {
                self.problem(&path, format!("must be a string or an array of strings, not {}", other.kind()));
                Vec::new()
            }
            _ => self.texts(block, key),
        }
    }

    /// Refuses two mappings to one port, and a mapping in the host network, where the server itself chooses its port.
    fn refuse_ports_of_nobody(&mut self, block: &Entry<'_>, ports: &[Port], network: Option<&str>) {
        let path = block.path.member("ports");
        for (at, port) in ports.iter().enumerate() {
            let before = &ports[..at];
            if before.iter().any(|other| other.inside == port.inside) {
                self.problem(&path, format!("has {} twice", port.inside));
            }
            let Some(here) = port.here else { continue };
            if before.iter().any(|other| other.here == Some(here)) {
                self.problem(&path, format!("maps two ports to {here}"));
            }
            if network == Some("host") && here != port.inside {
                let hint = format!(
                    "in the network `host`, a server is reached at the port it listens on: write [{}]",
                    port.inside
                );
                self.problem_with_hint(&path, format!("cannot map {here} to {}", port.inside), Some(hint));
            }
        }
    }

    fn texts(&mut self, block: &Entry<'_>, key: &str) -> Vec<String> {
        let path = block.path.member(key);
        match block.get(key) {
            None => Vec::new(),
            Some(Node::Array(texts)) => {
                let texts = texts.iter().enumerate();
                texts.filter_map(|(at, text)| self.text(&path.index(at), text, block.variables)).collect()
            }
            Some(other) => {
                self.wrong_kind(&path, other, Wanted::Texts);
                Vec::new()
            }
        }
    }

    /// `[8080]`, or `{"8080": 18080}` with the port on this machine.
    fn ports(&mut self, block: &Entry<'_>) -> Vec<Port> {
        let path = block.path.member("ports");
        let found = match block.get("ports") {
            None => return Vec::new(),
            Some(Node::Array(ports)) => {
                let inside = |port: &Node| Some(Port { inside: port_number(port)?, here: None });
                ports.iter().enumerate().map(|(at, port)| inside(port).ok_or_else(|| path.index(at))).collect()
            }
            Some(Node::Object(ports)) => {
                ports.iter().map(|(inside, here)| mapped(inside, here).ok_or_else(|| path.member(inside))).collect()
            }
            Some(_) => vec![Err(path.clone())],
        };
        if found.is_empty() {
            self.problem(&path, "is empty");
        }
        let hint = "write [8080], or {\"8080\": 18080} to reach it at 18080";
        let mut ports = Vec::with_capacity(found.len());
        for port in found {
            match port {
                Ok(port) => ports.push(port),
                Err(path) => {
                    self.problem_with_hint(&path, "must be a port number from 1 to 65535", Some(hint));
                }
            }
        }
        ports
    }

    fn http_path(&mut self, block: &Entry<'_>, dialect: Dialect) -> String {
        let usual = if dialect == Dialect::Sse { "/sse" } else { "/mcp" };
        let Some(path) = self.filled(block, "path") else { return usual.to_owned() };
        if !path.starts_with('/') && block.variables == Variables::Fill {
            self.problem(&block.path.member("path"), "must start with a slash");
        }
        path
    }

    fn volumes(&mut self, block: &Entry<'_>) -> Vec<String> {
        let volumes = self.texts(block, "volumes");
        let path = block.path.member("volumes");
        for (at, volume) in volumes.iter().enumerate() {
            let parts: Vec<&str> = volume.split(':').collect();
            let (fits, here, modes) = match parts[..] {
                [here, inside] => (inside.starts_with('/'), here, ""),
                [here, inside, modes] => (inside.starts_with('/') && !modes.is_empty(), here, modes),
                _ => (false, "", ""),
            };
            if block.variables != Variables::Fill {
                continue;
            }
            let unknown = modes.split(',').find(|mode| !mode.is_empty() && !VOLUME_MODES.contains(mode));
            if !fits || here.is_empty() {
                let hint = Some("such as `/home/me/notes:/notes:ro`");
                self.problem_with_hint(&path.index(at), "must be `HERE:/INSIDE` or `HERE:/INSIDE:ro`", hint);
            } else if !here.starts_with('/') && !is_volume(here) {
                let hint = Some("write the absolute path of a folder, starting with a slash");
                self.problem_with_hint(&path.index(at), "is neither an absolute path nor the name of a volume", hint);
            } else if let Some(mode) = unknown {
                let message = format!("ends with `{mode}`, which is not a mode of a volume");
                self.problem_with_hint(&path.index(at), message, Some("`ro` and `rw` are usual"));
            }
        }
        volumes
    }

    /// Bytes, or `512m`.
    fn memory(&mut self, block: &Entry<'_>) -> Option<u64> {
        let path = block.path.member("memory");
        let bytes = match block.get("memory")? {
            Node::Number(bytes) => Some(*bytes),
            value => bytes_of(&self.known_text(&path, value, block.variables)?),
        };
        let Some(bytes) = bytes.filter(|bytes| *bytes >= LEAST_MEMORY as f64 && *bytes < 1e18) else {
            let hint = Some("such as `512m` or `2g`; the minimum is 6m");
            self.problem_with_hint(&path, "must be an amount of memory", hint);
            return None;
        };
        Some(bytes as u64)
    }

    fn cpus(&mut self, block: &Entry<'_>) -> Option<u64> {
        let path = block.path.member("cpus");
        let cpus = match block.get("cpus")? {
            Node::Number(cpus) => Some(*cpus),
            value => self.known_text(&path, value, block.variables)?.trim().parse().ok(),
        };
        let Some(cpus) = cpus.filter(|cpus| *cpus >= 0.01 && *cpus < 1e5) else {
            self.problem_with_hint(&path, "must be a number of CPUs", Some("such as 0.5 or 2"));
            return None;
        };
        Some((cpus * BILLION) as u64)
    }

    /// A text, unless it has variables that are not replaced: then its value is unknown.
    fn known_text(&mut self, path: &JsonPath, value: &Node, variables: Variables) -> Option<String> {
        let text = self.text(path, value, variables)?;
        (variables == Variables::Fill || !text.contains('$')).then_some(text)
    }

    fn pull(&mut self, block: &Entry<'_>) -> Pull {
        let Some(word) = self.word(block, "pull") else { return Pull::default() };
        match word.value.trim().to_ascii_lowercase().as_str() {
            "never" => Pull::Never,
            "missing" => Pull::Missing,
            "always" => Pull::Always,
            _ => {
                self.problem(&block.path.member("pull"), "must be \"never\", \"missing\" or \"always\"");
                Pull::default()
            }
        }
    }
}

/// Whether an engine treats it as a named volume.
fn is_volume(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
}

/// Whether it is a valid image name: `[host[:port]/]name[/name..][:tag][@digest]`.
fn is_reference(image: &str) -> bool {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let host = named.split_once('/').map(|(first, _)| first);
    let host = host.filter(|first| first.contains(['.', ':']) || *first == "localhost");
    let rest = host.map_or(named, |host| &named[host.len() + 1..]);
    let (name, tag) = match rest.split_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (rest, None),
    };
    let in_lower_case = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(in_lower_case)
            && part.ends_with(in_lower_case)
            && part.chars().all(|letter| in_lower_case(letter) || "_.-".contains(letter))
    };
    let is_word = |word: &str, more: &str| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || more.contains(letter);
        !word.is_empty() && !word.starts_with(['-', '.']) && word.chars().all(fits)
    };
    host.is_none_or(|host| is_word(host, ".-:"))
        && name.split('/').all(is_part)
        && tag.is_none_or(|tag| is_word(tag, "_.-"))
        && digest.is_none_or(|digest| is_word(digest, "+._-:") && digest.contains(':'))
}

fn port_number(node: &Node) -> Option<u16> {
    let number = match node {
        Node::Number(number) if number.fract() == 0.0 && (1.0..=65535.0).contains(number) => *number as u16,
        Node::String(text) => text.trim().parse().ok().filter(|port| *port > 0)?,
        _ => return None,
    };
    Some(number)
}

/// `"8080": 18080`; with null or 0 a port is chosen.
fn mapped(inside: &str, here: &Node) -> Option<Port> {
    let inside = inside.strip_suffix("/tcp").unwrap_or(inside).parse().ok().filter(|port| *port > 0)?;
    match here {
        Node::Null => Some(Port { inside, here: None }),
        Node::Number(zero) if *zero == 0.0 => Some(Port { inside, here: None }),
        here => Some(Port { inside, here: Some(port_number(here)?) }),
    }
}

/// `512m` as bytes.
fn bytes_of(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(char::is_alphabetic);
    let factor: u64 = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" | "kib" | "ki" => 1 << 10,
        "m" | "mb" | "mib" | "mi" => 1 << 20,
        "g" | "gb" | "gib" | "gi" => 1 << 30,
        _ => return None,
    };
    Some(digits.trim().parse::<f64>().ok()? * factor as f64)
}

#[cfg(test)]
mod tests {
    use crate::container::{Contact, Container, Port, Pull};
    use crate::{Accepted, Config, Dialect, Transport};

    fn parse(server: &str) -> Result<Config, String> {
        let text = format!(r#"{{"mcpServers": {{"s": {server}}}}}"#);
        let lookup = |name: &str| (name == "TOKEN").then(|| "hunter2".to_owned());
        Config::parse(text.as_bytes(), Accepted::All, lookup).map_err(|error| error.to_string())
    }

    fn container(server: &str) -> Container {
        match parse(server).unwrap().servers.remove(0).transport {
            Transport::Container(container) => container,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn is_refused(server: &str, expected: &str) {
        let error = parse(server).unwrap_err();
        assert!(error.contains(expected), "{server}: {error}");
    }

    #[test]
    fn an_image_is_enough() {
        let container = container(r#"{"docker": {"image": "mcp/time"}}"#);
        assert_eq!(container.image.value, "mcp/time");
        assert_eq!((container.contact, container.pull), (Contact::Stdio, Pull::Missing));
        assert_eq!((container.network, container.memory, container.read_only), (None, None, false));
    }

    #[test]
    fn every_name_that_engines_take_is_one() {
        let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for image in [
            "a",
            "mcp/time",
            "localhost:5000/me/a_b:V1.0",
            "ghcr.io/me/a-b/c__d:latest",
            "LOCALHOST:1/a",
            digest,
            &format!("a/b:1@{digest}"),
            "e3b0c44298fc",
        ] {
            assert!(super::is_reference(image), "{image}");
        }
        for image in ["", "A", "a:", "a:b:c", "/a", "a/", "a//b", "a@b", "-a", "a:-b", "ü"] {
            assert!(!super::is_reference(image), "{image}");
        }
    }

    #[test]
    fn all_options_are_accepted_and_secrets_are_masked() {
        let container = container(
            r#"{"type": "sse", "docker": {"image": "a:1", "containerName": "box", "command": ["run", "-x"],
                "args": ["--token", "$TOKEN"], "env": {"KEY": "${TOKEN}"}, "ports": {"80": 1080, "81/tcp": 0},
                "path": "/events", "volumes": ["/a:/b:ro"], "network": "web", "memory": "64m", "cpus": 0.5,
                "user": "1000:1000", "pull": "never", "readOnly": true}}"#,
        );
        assert_eq!(container.command, ["run", "-x"]);
        assert_eq!(container.env, [("KEY".to_owned(), "hunter2".to_owned())]);
        assert_eq!(container.ports, [Port { inside: 80, here: Some(1080) }, Port { inside: 81, here: None }]);
        assert_eq!((container.memory, container.nano_cpus), (Some(64 << 20), Some(500_000_000)));
        assert_eq!((container.pull, container.read_only), (Pull::Never, true));
        let Contact::Http { dialect, path, .. } = &container.contact else { panic!("{container:?}") };
        assert_eq!((*dialect, path.as_str()), (Dialect::Sse, "/events"));
        assert!(!format!("{container:?}").contains("hunter2"));
    }

    #[test]
    fn every_mistake_is_reported_with_its_path() {
        for (block, error) in [
            (r#"{}"#, "$.mcpServers.s.docker.image  is missing"),
            (r#"{"image": " "}"#, "docker.image  is empty"),
            (r#"{"image": "a b"}"#, "docker.image  must be the name of one image"),
            (r#"{"image": "a", "readonly": true}"#, "docker.readonly  is not a setting of a container"),
            (r#"{"image": "a", "containerName": "-x"}"#, "docker.containerName  must be two or more"),
            (r#"{"image": "a", "ports": [0]}"#, "docker.ports[0]  must be a port number"),
            (r#"{"image": "a", "ports": {"x": 1}}"#, "docker.ports.x  must be a port number"),
            (r#"{"image": "a", "ports": 80}"#, "docker.ports  must be a port number"),
            (r#"{"image": "a", "volumes": ["/a"]}"#, "docker.volumes[0]  must be `HERE:/INSIDE`"),
            (r#"{"image": "a", "volumes": ["./a:/b"]}"#, "docker.volumes[0]  is neither an absolute path nor the name"),
            (r#"{"image": "a", "volumes": ["a:/b", "/a:/b:bogus"]}"#, "docker.volumes[1]  ends with `bogus`"),
            (r#"{"image": "UPPER/Case:::"}"#, "docker.image  is not a valid image name"),
            (r#"{"image": "-x"}"#, "docker.image  is not a valid image name"),
            (r#"{"image": "a", "ports": {"80": 90, "81": 90}}"#, "docker.ports  maps two ports to 90"),
            (r#"{"image": "a", "ports": [80, 80]}"#, "docker.ports  has 80 twice"),
            (r#"{"image": "a", "network": "host", "ports": {"80": 90}}"#, "docker.ports  cannot map 90 to 80"),
            (r#"{"image": "a", "command": 5}"#, "docker.command  must be a string or an array of strings"),
            (r#"{"image": "a", "memory": "lots"}"#, "docker.memory  must be an amount of memory"),
            (r#"{"image": "a", "memory": 5}"#, "docker.memory  must be an amount of memory"),
            (r#"{"image": "a", "cpus": 0}"#, "docker.cpus  must be a number of CPUs"),
            (r#"{"image": "a", "pull": "often"}"#, "docker.pull  must be \"never\""),
            (r#"{"image": "a", "env": {"A=B": "c"}}"#, "is not valid for a variable"),
            (r#""a""#, "docker  must be an object, not a string"),
        ] {
            is_refused(&format!(r#"{{"docker": {block}}}"#), error);
        }
        is_refused(r#"{"type": "http", "docker": {"image": "a"}}"#, "docker.ports  is missing");
    }

    #[test]
    fn unused_keys_next_to_the_block_cause_warnings_and_programs_without_an_engine_refuse_it() {
        let config = parse(r#"{"docker": {"image": "a"}, "command": "b"}"#).unwrap();
        assert_eq!(config.warnings.len(), 1);
        let text = r#"{"mcpServers": {"s": {"docker": {"image": "a"}}}}"#;
        let error = Config::parse(text.as_bytes(), Accepted::StdioOnly, |_| None).unwrap_err().to_string();
        assert!(error.contains("runs in a container") && error.contains("mcp-aggregator"), "{error}");
    }
}
