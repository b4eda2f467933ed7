//! A config file in its own folder.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::program::program;

/// The content of a config file: servers, or any text.
#[derive(Clone, Debug, Default)]
pub struct Config {
    servers: Vec<(String, ServerEntry)>,
    raw: Option<String>,
}

/// One server of a config.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    /// `None` for a server that is reached by its URL.
    command: Option<PathBuf>,
    args: Vec<String>,
    env: Map<String, Value>,
    extra: Map<String, Value>,
}

/// A config file on disk; it goes away with its folder when this is dropped.
#[derive(Debug)]
pub struct ConfigFile {
    folder: TempDir,
    path: PathBuf,
}

/// A server entry that starts the fake server.
#[track_caller]
pub fn fake() -> ServerEntry {
    ServerEntry::new(program("fake-server"))
}

impl Config {
    /// A config without any server.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server. The order is kept, and a repeated name is written twice.
    pub fn server(mut self, name: &str, entry: ServerEntry) -> Self {
        self.servers.push((name.to_owned(), entry));
        self
    }

    /// Writes this text instead of any servers.
    pub fn raw(mut self, text: impl Into<String>) -> Self {
        self.raw = Some(text.into());
        self
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        // Written by hand, because a map would lose duplicate names.
        let servers: Vec<String> = self
            .servers
            .iter()
            .map(|(name, entry)| format!("    {}: {}", Value::from(name.as_str()), entry.to_value()))
            .collect();
        format!("{{\n  \"mcpServers\": {{\n{}\n  }}\n}}\n", servers.join(",\n"))
    }

    /// Writes the file into a new folder.
    #[track_caller]
    pub fn write(&self) -> ConfigFile {
        let folder = TempDir::with_prefix("testkit-").expect("a temporary folder can be made");
        let path = folder.path().join("config.json");
        fs::write(&path, self.text()).expect("a temporary folder can be written");
        ConfigFile { folder, path }
    }
}

impl ConfigFile {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the file, which contains nothing else: a good place for a journal.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl ServerEntry {
    /// A server started by this command.
    pub fn new(command: impl Into<PathBuf>) -> Self {
        Self { command: Some(command.into()), args: Vec::new(), env: Map::new(), extra: Map::new() }
    }

    /// A remote server at this URL.
    pub fn remote(url: &str) -> Self {
        Self { command: None, args: Vec::new(), env: Map::new(), extra: Map::new() }.field("url", url)
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.args.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The arguments so far.
    pub fn arguments(&self) -> &[String] {
        &self.args
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Sets any other member of the entry, such as `disabled`.
    pub fn field(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(key.to_owned(), value.into());
        self
    }

    fn to_value(&self) -> Value {
        let mut entry = match &self.command {
            Some(command) => json!({"command": command.to_string_lossy(), "args": self.args}),
            None => json!({}),
        };
        if !self.env.is_empty() {
            entry["env"] = Value::Object(self.env.clone());
        }
        for (key, value) in &self.extra {
            entry[key] = value.clone();
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_written_in_order_with_what_was_set() {
        let entry = ServerEntry::new("/bin/true").args(["-x"]).env("KEY", "value").field("disabled", true);
        let config = Config::new().server("z", entry).server("a", ServerEntry::new("b"));
        let file = config.write();
        let read: Value = serde_json::from_str(&fs::read_to_string(file.path()).unwrap()).unwrap();
        let expected = json!({"command": "/bin/true", "args": ["-x"], "env": {"KEY": "value"}, "disabled": true});
        assert_eq!(read["mcpServers"]["z"], expected);
        let names: Vec<&String> = read["mcpServers"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["z", "a"]);
    }

    #[test]
    fn raw_text_is_written_unchanged() {
        assert_eq!(Config::new().raw("{ not json").text(), "{ not json");
    }
}
