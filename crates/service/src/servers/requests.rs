//! What is wanted of a server's registration: to be made, or to be changed.

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
    /// How it is reached, in any case.
    pub transport_type: Transport,
    /// Who runs it. Follows from the rest; whoever says it is told if it cannot be.
    #[serde(default)]
    pub deployment_type: Option<Deployment>,
    /// Where and with what.
    pub connection_config: Map<String, Value>,
    /// Asked instead of the server whether it is well.
    #[serde(default)]
    pub health_check_url: Option<String>,
    /// Connect at once.
    #[serde(default = "yes")]
    pub auto_connect: bool,
    /// It may be connected.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// What is to be different about a server; absent stays, null removes.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Update {
    /// Its new name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its new description.
    #[serde(default)]
    pub description: Option<Option<String>>,
    /// How it is reached from now on.
    #[serde(default)]
    pub transport_type: Option<Transport>,
    /// Who runs it, as with a registration.
    #[serde(default)]
    pub deployment_type: Option<Deployment>,
    /// Where and with what. Members that hold the mask keep what was there.
    #[serde(default)]
    pub connection_config: Option<Map<String, Value>>,
    /// What to ask for its health.
    #[serde(default)]
    pub health_check_url: Option<Option<String>>,
    /// Connect without being asked.
    #[serde(default)]
    pub auto_connect: Option<bool>,
    /// It may be connected.
    #[serde(default)]
    pub enabled: Option<bool>,
}

impl Registration {
    /// Everything that is wrong with it.
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

/// The same with something else where there is a mask: only whether it is there is of interest.
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
    /// Whether it only switches the server on or off.
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
