//! How a server is reached, credentials included, in a wrapper that does not let them slip out.

mod arguments;
mod mask;

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A server's connection config: command, arguments, environment, addresses, headers.
///
/// It is sealed in the database. `Debug` shows nothing of it and it cannot be serialised by accident: what leaves the
/// program is [`masked`](Self::masked), unless somebody calls [`reveal`](Self::reveal).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ConnectionConfig(Map<String, Value>);

/// What stands in place of a secret.
pub const MASK: &str = "***";

impl ConnectionConfig {
    /// The config itself, for whoever connects.
    pub fn reveal(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The config to be shown: the values of `env` and `headers`, credentials in addresses, and arguments that look
    /// like secrets are replaced by [`MASK`]. References to variables, as in `${TOKEN}`, are no secrets.
    pub fn masked(&self) -> Value {
        Value::Object(mask::config(&self.0))
    }

    /// What is replaced in [`masked`](Self::masked).
    pub fn secrets(&self) -> Vec<String> {
        let mut found = Vec::new();
        mask::differences(&Value::Object(self.0.clone()), &self.masked(), &mut found);
        found
    }

    /// Takes a config as somebody sent it who had seen only the masked one: what is still masked is taken from here.
    #[must_use]
    pub fn updated_with(&self, changed: Self) -> Self {
        let mut changed = Value::Object(changed.0);
        mask::restore(&mut changed, &Value::Object(self.0.clone()), &self.masked());
        match changed {
            Value::Object(members) => Self(members),
            _ => unreachable!("an object stays one"),
        }
    }

    /// Whether a secret is missing: somewhere only the mask is left of it.
    pub fn is_masked(&self) -> bool {
        self.0.values().any(mask::is_masked)
    }
}

impl From<Map<String, Value>> for ConnectionConfig {
    fn from(config: Map<String, Value>) -> Self {
        Self(config)
    }
}

impl<'de> Deserialize<'de> for ConnectionConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self)
    }
}

impl fmt::Debug for ConnectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionConfig(..)")
    }
}
