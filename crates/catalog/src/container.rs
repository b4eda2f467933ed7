//! A server in a container: what it takes to have one made.

use std::fmt;

use crate::server::{Dialect, Filled, Hidden};

/// What it takes to run a server in a container of ours.
#[derive(Clone, PartialEq, Eq)]
pub struct Container {
    /// The image, as a container engine names it.
    pub image: Filled,
    /// What the container is called; something unused when absent.
    pub name: Option<String>,
    /// Replaces the image's entry point, unless it is empty.
    pub command: Vec<String>,
    /// Arguments after the entry point.
    pub args: Vec<String>,
    /// Variables inside. Keys are unique, not empty and without `=`.
    pub env: Vec<(String, String)>,
    /// Ports inside that are reached from this machine, and from nowhere else.
    pub ports: Vec<Port>,
    /// Folders and volumes as an engine writes them: `here:inside` or `here:inside:ro`.
    pub volumes: Vec<String>,
    /// A network of the engine. When absent, a server over stdio has none, and another the engine's usual one.
    pub network: Option<String>,
    /// Bytes of memory it may use; a limit of ours when absent.
    pub memory: Option<u64>,
    /// Billionths of a processor it may use at once.
    pub nano_cpus: Option<u64>,
    /// Who it is inside.
    pub user: Option<String>,
    /// When its image is fetched.
    pub pull: Pull,
    /// Nothing but its volumes can be written to.
    pub read_only: bool,
    /// How it is talked to.
    pub contact: Contact,
}

/// A port inside, and where it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Inside.
    pub inside: u16,
    /// On this machine; a free one is chosen when absent.
    pub here: Option<u16>,
}

/// When an image is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pull {
    /// Never: it has to be there.
    Never,
    /// If it is not there.
    #[default]
    Missing,
    /// Before every start.
    Always,
}

/// How a server in a container is talked to.
#[derive(Clone, PartialEq, Eq)]
pub enum Contact {
    /// Over its stdin and stdout.
    Stdio,
    /// Over HTTP at the first of its ports.
    Http {
        /// Which of the two transports over HTTP.
        dialect: Dialect,
        /// The path, beginning with a slash.
        path: String,
        /// Sent with every request.
        headers: Vec<(String, String)>,
    },
}

impl Container {
    /// The same for a life beside another one: what only one of them can have is chosen anew.
    pub fn apart(self) -> Self {
        let is_on_host = self.network.as_deref() == Some("host");
        let ports = self.ports.iter().map(|port| Port { here: port.here.filter(|_| is_on_host), ..*port }).collect();
        Self { name: None, ports, ..self }
    }
}

// As with programs: a stray `{:?}` must log no secret.
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
