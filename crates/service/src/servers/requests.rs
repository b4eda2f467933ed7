//! The requests to register a server or to change its registration.

use registry::{Deployment, Transport};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Problem;

/// A server to be registered, as it was sent.
#[derive(Debug, Clone, Deserialize)]
pub struct Registration {
    /// `^[a-z][a-z0-9_-]*$`, at most 255 characters, unique.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// Its transport.
    pub transport_type: Transport,
    /// Who runs it. It follows from the rest; a contradicting value is an error.
    #[serde(default)]
    pub deployment_type: Option<Deployment>,
    /// Its connection config.
    pub connection_config: Map<String, Value>,
    /// A URL to check instead of the server itself.
    #[serde(default)]
    pub health_check_url: Option<String>,
    /// Connect at once.
    #[serde(default = "yes")]
    pub auto_connect: bool,
    /// Whether it is enabled.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// Changes of a registration; an absent member stays, null removes.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Update {
    /// Its new name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its new description.
    #[serde(default)]
    pub description: Option<Option<String>>,
    /// Its new transport.
    #[serde(default)]
    pub transport_type: Option<Transport>,
    /// Who runs it, as with a registration.
    #[serde(default)]
    pub deployment_type: Option<Deployment>,
    /// Its new connection config. Members that contain the mask keep their value.
    #[serde(default)]
    pub connection_config: Option<Map<String, Value>>,
    /// Its new health check URL.
    #[serde(default)]
    pub health_check_url: Option<Option<String>>,
    /// Connect automatically.
    #[serde(default)]
    pub auto_connect: Option<bool>,
    /// Whether it is enabled.
    #[serde(default)]
    pub enabled: Option<bool>,
}

impl Registration {
    /// All problems with it.
    pub fn problems(&self) -> Vec<Problem> {
        super::operations::problems_with(self)
    }

    /// The same, but secrets may be masked.
    pub(crate) fn problems_but_masks(&self) -> Vec<Problem> {
        let mut bare = self.clone();
        bare.connection_config = without_masks(&self.connection_config);
        bare.health_check_url = self.health_check_url.as_ref().map(|url| url.replace(registry::MASK, "masked"));
        bare.problems()
    }
}

/// The same with a placeholder for masks: only their presence matters.
fn without_masks(config: &Map<String, Value>) -> Map<String, Value> {
    fn bare(value: &Value) -> Value {
        match value {
            Value::String(text) => text.replace(registry::MASK, "masked").into(),
            Value::Array(items) => items.iter().map(bare).collect(),
            Value::Object(members) => Value::Object(without_masks(members)),
            other => other.clone(),
        }
    }
    config.iter().map(|(name, value)| (name.clone(), bare(value))).collect()
}

impl Update {
    /// Whether it only enables or disables the server.
    pub(super) fn only_sets_enabled(&self) -> bool {
        let Self {
            name,
            description,
            transport_type,
            deployment_type,
            connection_config,
            health_check_url,
            auto_connect,
            enabled: _,
        } = self;
        name.is_none()
            && deployment_type.is_none()
            && description.is_none()
            && transport_type.is_none()
            && connection_config.is_none()
            && health_check_url.is_none()
            && auto_connect.is_none()
    }
}
