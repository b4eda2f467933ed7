//! Servers: their registration and status.

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
    /// Unique, at most 255 characters. Further rules are checked by the caller.
    pub name: String,
    /// What the server is for.
    pub description: Option<String>,
    /// The transport.
    pub transport: Transport,
    /// How to connect. Encrypted in the database.
    pub connection_config: ConnectionConfig,
    /// A URL for health checks, instead of a request to the server itself.
    pub health_check_url: Option<String>,
    /// Who runs it.
    pub deployment: Deployment,
    /// Whether it may be connected.
    pub enabled: bool,
    /// Whether it is connected at every start.
    pub auto_connect: bool,
    /// Where it is defined.
    pub origin: Origin,
}

impl NewServer {
    /// A server that is enabled and connects automatically; `managed` if it uses stdio or a container.
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

/// A stored server.
///
/// It serializes as REST shows it: lowercase words, RFC 3339 times, the config masked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerRecord {
    /// The id; it never changes.
    pub id: ServerId,
    /// The name; it can be changed.
    pub name: String,
    /// What the server is for.
    pub description: Option<String>,
    /// The transport.
    #[serde(rename = "transport_type")]
    pub transport: Transport,
    /// How to connect.
    #[serde(serialize_with = "masked")]
    pub connection_config: ConnectionConfig,
    /// A URL for health checks.
    #[serde(serialize_with = "without_secrets")]
    pub health_check_url: Option<String>,
    /// Who runs it.
    #[serde(rename = "deployment_type")]
    pub deployment: Deployment,
    /// Where it is defined.
    pub origin: Origin,
    /// Its status.
    pub status: Status,
    /// Whether it may be connected.
    pub enabled: bool,
    /// Whether it is connected at every start.
    pub auto_connect: bool,
    /// Whether it was disabled after too many failures.
    pub auto_disabled: bool,
    /// When it was disabled after too many failures.
    pub auto_disabled_at: Option<Timestamp>,
    /// The number of consecutive failures.
    pub failure_count: u32,
    /// The number of known tools.
    pub tool_count: u32,
    /// The current error.
    pub error_message: Option<String>,
    /// What it reported at the last handshake: name, version, capabilities, instructions.
    pub server_info: Option<Value>,
    /// The time of the last health check.
    pub last_health_check: Option<Timestamp>,
    /// The time of the last connection.
    pub last_connected_at: Option<Timestamp>,
    /// When a connection was last considered good; reset if another program is started for the server. A server that
    /// never worked is disabled after too many failures.
    #[serde(skip)]
    pub worked_at: Option<Timestamp>,
    /// Since when it is connected; None while it is not.
    pub connected_at: Option<Timestamp>,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
}

#[expect(clippy::ref_option, reason = "the shape `serialize_with` asks for")]
fn without_secrets<S: serde::Serializer>(address: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    address.as_deref().map(masked_address).serialize(serializer)
}

fn masked<S: serde::Serializer>(config: &ConnectionConfig, serializer: S) -> Result<S::Ok, S::Error> {
    config.masked().serialize(serializer)
}

/// A filter for servers. The default matches all.
#[derive(Debug, Clone, Default)]
pub struct ServerFilter {
    /// Only those with this status.
    pub status: Option<Status>,
    /// Only those of this origin.
    pub origin: Option<Origin>,
}

/// A change of a server. `None` keeps a value.
#[derive(Debug, Clone, Default)]
pub struct ServerPatch {
    /// The new name; its tools are renamed, too.
    pub name: Option<String>,
    /// The new description, or none.
    pub description: Option<Option<String>>,
    /// The transport.
    pub transport: Option<Transport>,
    /// How to connect.
    ///
    /// Stored as given: if it may come from a client that saw only the masked config, pass it through
    /// [`ConnectionConfig::updated_with`] first.
    pub connection_config: Option<ConnectionConfig>,
    /// The new URL for health checks, or none.
    pub health_check_url: Option<Option<String>>,
    /// Who runs it.
    pub deployment: Option<Deployment>,
    /// Whether it may be connected. `true` resets failures and automatic disabling.
    pub enabled: Option<bool>,
    /// Whether it is connected at every start.
    pub auto_connect: Option<bool>,
    /// Where it is defined.
    pub origin: Option<Origin>,
}

/// A change of a server's status.
#[derive(Debug, Clone)]
pub struct StatusChange {
    /// The new status.
    pub status: Status,
    /// The error. It replaces the previous one: None means that there is none.
    pub error_message: Option<String>,
    /// The number of consecutive failures, if it changed.
    pub failure_count: Option<u32>,
    /// Whether it may be connected, if that changed.
    pub enabled: Option<bool>,
    /// Whether it was disabled after failures, if that changed.
    pub auto_disabled: Option<bool>,
    /// What the server reported at the handshake, if there was one.
    pub server_info: Option<Value>,
    /// The time of a health check, if there was one.
    pub last_health_check: Option<Timestamp>,
    /// When its connection was considered good, if it was.
    pub worked_at: Option<Timestamp>,
    /// The event for its history. By default, a new status writes the event that it implies ([`EventKind::of`]), and an
    /// unchanged status writes none.
    pub event: Option<EventKind>,
    /// Further details for the history: an object that is merged with the previous and new status.
    pub details: Option<Value>,
}

impl StatusChange {
    /// A change of the status only.
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

/// A server whose status was set.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusChanged {
    /// The previous status.
    pub previous: Status,
    /// The server now.
    pub server: ServerRecord,
}
