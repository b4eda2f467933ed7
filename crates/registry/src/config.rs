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

    /// Takes a config as somebody sent it who had seen only the masked one: what is still masked is taken from here. But a
    /// secret for one host is not for another: who changes the address has to say the headers again.
    #[must_use]
    pub fn updated_with(&self, changed: Self) -> Self {
        let mut known = self.0.clone();
        let mut shown = mask::config(&self.0);
        if host_of(&self.0) != host_of(&changed.0) {
            for key in ADDRESSES.iter().chain([&HEADERS]) {
                known.shift_remove(*key);
                shown.shift_remove(*key);
            }
        }
        let mut changed = Value::Object(changed.0);
        mask::restore(&mut changed, &Value::Object(known), &Value::Object(shown));
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

/// Where a config may have its address, and what is sent there.
const ADDRESSES: [&str; 4] = ["url", "base_url", "serverUrl", "httpUrl"];
const HEADERS: &str = "headers";

/// Who is reached: the address without its user, password, path and query.
fn host_of(config: &Map<String, Value>) -> Option<String> {
    let address = ADDRESSES.iter().find_map(|key| config.get(*key)?.as_str())?;
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Some(format!("{scheme}://{host}").to_ascii_lowercase())
}

/// An address to be shown: without its password, tokens, and query parameters that name secrets.
pub fn masked_address(address: &str) -> String {
    mask::address(address)
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
