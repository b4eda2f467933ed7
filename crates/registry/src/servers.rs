//! Servers: what was registered, and how things stand with them.

pub(crate) mod address;
mod changes;
mod queries;

pub(crate) use queries::{SEPARATOR, by_name, insert, update};
use serde::Serialize;
use serde_json::Value;

use crate::{ConnectionConfig, Deployment, EventKind, Origin, ServerId, Status, Timestamp, Transport, masked_address};

/// A server to be registered.
#[derive(Debug, Clone)]
pub struct NewServer {
    /// Unique, at most 255 characters. What else a name may be is for the caller to check.
    pub name: String,
    /// What it is for, in somebody's words.
    pub description: Option<String>,
    /// How it is reached.
    pub transport: Transport,
    /// Where and with what it is reached. Sealed in the database.
    pub connection_config: ConnectionConfig,
    /// Asked instead of the server itself whether it is well.
    pub health_check_url: Option<String>,
    /// Who runs it.
    pub deployment: Deployment,
    /// Whether it may be connected.
    pub enabled: bool,
    /// Whether it is connected without being asked.
    pub auto_connect: bool,
    /// How it came here.
    pub origin: Origin,
}

impl NewServer {
    /// A server that is enabled and connected by itself; one that we run if it is reached by stdio or in a container.
    pub fn new(name: impl Into<String>, transport: Transport, connection_config: ConnectionConfig) -> Self {
        let is_ours = transport == Transport::Stdio || connection_config.reveal().contains_key("docker");
        Self {
            name: name.into(),
            description: None,
            transport,
            connection_config,
            health_check_url: None,
            deployment: if is_ours { Deployment::Managed } else { Deployment::External },
            enabled: true,
            auto_connect: true,
            origin: Origin::Registered,
        }
    }
}

/// A server as it is kept.
///
/// It serialises as REST shows it: lower-case words, RFC 3339 times, the config masked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerRecord {
    /// Its id, for ever.
    pub id: ServerId,
    /// Its name, for now.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// How it is reached.
    #[serde(rename = "transport_type")]
    pub transport: Transport,
    /// Where and with what it is reached.
    #[serde(serialize_with = "masked")]
    pub connection_config: ConnectionConfig,
    /// Asked whether it is well.
    #[serde(serialize_with = "without_secrets")]
    pub health_check_url: Option<String>,
    /// Who runs it.
    #[serde(rename = "deployment_type")]
    pub deployment: Deployment,
    /// How it came here.
    pub origin: Origin,
    /// How things stand.
    pub status: Status,
    /// Whether it may be connected.
    pub enabled: bool,
    /// Whether it is connected without being asked.
    pub auto_connect: bool,
    /// Whether too many failures switched it off.
    pub auto_disabled: bool,
    /// When they did.
    pub auto_disabled_at: Option<Timestamp>,
    /// Failures in a row.
    pub failure_count: u32,
    /// How many tools it has, as far as is known.
    pub tool_count: u32,
    /// What went wrong last, while it is wrong.
    pub error_message: Option<String>,
    /// What it said about itself when last connected: name, version, capabilities, instructions.
    pub server_info: Option<Value>,
    /// When its health was last looked at.
    pub last_health_check: Option<Timestamp>,
    /// When it was last connected to.
    pub last_connected_at: Option<Timestamp>,
    /// When a connection last counted as good; forgotten if another program is started for the server. Without one, too
    /// many failures switch the server off.
    #[serde(skip)]
    pub worked_at: Option<Timestamp>,
    /// Since when it is connected; nothing while it is not.
    pub connected_at: Option<Timestamp>,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When anything here last changed.
    pub updated_at: Timestamp,
}

#[expect(clippy::ref_option, reason = "the shape `serialize_with` asks for")]
fn without_secrets<S: serde::Serializer>(address: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    address.as_deref().map(masked_address).serialize(serializer)
}

fn masked<S: serde::Serializer>(config: &ConnectionConfig, serializer: S) -> Result<S::Ok, S::Error> {
    config.masked().serialize(serializer)
}

/// Which servers are wanted. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct ServerFilter {
    /// Only those in this state.
    pub status: Option<Status>,
    /// Only those that came this way.
    pub origin: Option<Origin>,
}

/// What is to be different about a server. What is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct ServerPatch {
    /// Its new name; its tools are renamed with it.
    pub name: Option<String>,
    /// Its description, or that it has none.
    pub description: Option<Option<String>>,
    /// How it is reached.
    pub transport: Option<Transport>,
    /// Where and with what it is reached.
    ///
    /// Kept as given: where it may come from somebody who saw only masks, pass it through
    /// [`ConnectionConfig::updated_with`] first.
    pub connection_config: Option<ConnectionConfig>,
    /// What to ask for its health, or that there is nothing.
    pub health_check_url: Option<Option<String>>,
    /// Who runs it.
    pub deployment: Option<Deployment>,
    /// Whether it may be connected. `true` forgets failures and that they switched it off.
    pub enabled: Option<bool>,
    /// Whether it is connected without being asked.
    pub auto_connect: Option<bool>,
    /// How it came here.
    pub origin: Option<Origin>,
}

/// How things stand with a server from now on.
#[derive(Debug, Clone)]
pub struct StatusChange {
    /// The new state.
    pub status: Status,
    /// What went wrong. It replaces what was known: no message means that nothing is wrong.
    pub error_message: Option<String>,
    /// Failures in a row, if that changed.
    pub failure_count: Option<u32>,
    /// Whether it may be connected, if that changed.
    pub enabled: Option<bool>,
    /// Whether failures switched it off, if that changed.
    pub auto_disabled: Option<bool>,
    /// What it says about itself, if it was asked.
    pub server_info: Option<Value>,
    /// When its health was looked at, if it was.
    pub last_health_check: Option<Timestamp>,
    /// When its connection counted as good, if it did.
    pub worked_at: Option<Timestamp>,
    /// What is written into its history. Without it, a new state writes what it means ([`EventKind::of`]), and a state
    /// that is the old one writes nothing.
    pub event: Option<EventKind>,
    /// What the history says beyond the states before and after: an object, whose members are added to those.
    pub details: Option<Value>,
}

impl StatusChange {
    /// Another state, and nothing else.
    pub fn to(status: Status) -> Self {
        Self {
            status,
            error_message: None,
            failure_count: None,
            enabled: None,
            auto_disabled: None,
            server_info: None,
            last_health_check: None,
            worked_at: None,
            event: None,
            details: None,
        }
    }
}

/// A server whose state was set.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusChanged {
    /// How it was before.
    pub previous: Status,
    /// How it is now.
    pub server: ServerRecord,
}
