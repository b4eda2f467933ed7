//! The config of a server in a container.

use std::fmt;

use crate::server::{Dialect, Filled, Hidden};

/// The config of a container.
#[derive(Clone, PartialEq, Eq)]
pub struct Container {
    /// The name of the image.
    pub image: Filled,
    /// The name of the container; generated if absent.
    pub name: Option<String>,
    /// Replaces the image's entry point, unless it is empty.
    pub command: Vec<String>,
    /// Arguments after the entry point.
    pub args: Vec<String>,
    /// Environment variables. Keys are unique, not empty and without `=`.
    pub env: Vec<(String, String)>,
    /// Ports of the container that are reachable from this machine only.
    pub ports: Vec<Port>,
    /// Folders and volumes as an engine writes them: `here:inside` or `here:inside:ro`.
    pub volumes: Vec<String>,
    /// A network of the engine. By default none for stdio, and the engine's default otherwise.
    pub network: Option<String>,
    /// The memory limit in bytes; our default if absent.
    pub memory: Option<u64>,
    /// The CPU limit in billionths of a CPU.
    pub nano_cpus: Option<u64>,
    /// The user in the container.
    pub user: Option<String>,
    /// When the image is pulled.
    pub pull: Pull,
    /// Whether only its volumes can be written.
    pub read_only: bool,
    /// The transport to the server.
    pub contact: Contact,
}

/// A port of the container, and its port on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// In the container.
    pub inside: u16,
    /// On this machine; a free one is chosen if absent.
    pub here: Option<u16>,
}

/// When an image is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pull {
    /// Never: it must exist locally.
    Never,
    /// If it does not exist locally.
    #[default]
    Missing,
    /// Before every start.
    Always,
}

/// The transport to a server in a container.
#[derive(Clone, PartialEq, Eq)]
pub enum Contact {
    /// Over its stdin and stdout.
    Stdio,
    /// HTTP, on the first of its ports.
    Http {
        /// The HTTP transport.
        dialect: Dialect,
        /// The path, starting with a slash.
        path: String,
        /// Sent with every request.
        headers: Vec<(String, String)>,
    },
}

impl Container {
    /// The same for a second instance next to another one: names and ports are chosen freely.
    pub fn apart(self) -> Self {
        let is_on_host = self.network.as_deref() == Some("host");
        let ports = self.ports.iter().map(|port| Port { here: port.here.filter(|_| is_on_host), ..*port }).collect();
        Self { name: None, ports, ..self }
    }
}

// As with programs: an accidental `{:?}` must not log secrets.
impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env_keys: Vec<&str> = self.env.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("Container")
            .field("image", &self.image)
            .field("name", &self.name)
            .field("args", &Hidden(self.command.len() + self.args.len()))
            .field("env_keys", &env_keys)
            .field("ports", &self.ports)
            .field("network", &self.network)
            .field("memory", &self.memory)
            .field("nano_cpus", &self.nano_cpus)
            .field("pull", &self.pull)
            .field("read_only", &self.read_only)
            .field("contact", &self.contact)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio => f.write_str("Stdio"),
            Self::Http { dialect, .. } => f.debug_struct("Http").field("dialect", dialect).finish_non_exhaustive(),
        }
    }
}
