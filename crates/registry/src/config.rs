//! The connection config of a server, with credentials, in a type that does not reveal them by accident.

use std::fmt;

use catalog::mask;
pub use catalog::mask::MASK;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A server's connection config: command, arguments, environment, addresses, headers.
///
/// It is encrypted in the database. `Debug` shows nothing of it, and it cannot be serialized by accident: what leaves
/// the program is [`masked`](Self::masked), unless a caller uses [`reveal`](Self::reveal).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ConnectionConfig(Map<String, Value>);

impl ConnectionConfig {
    /// The config itself, for connecting.
    pub fn reveal(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The config for display: the values of `env` and `headers`, credentials in addresses, and arguments that look
    /// like secrets are replaced by [`MASK`]. References to variables, such as `${TOKEN}`, are not secrets.
    pub fn masked(&self) -> Value {
        Value::Object(mask::config(&self.0))
    }

    /// What is replaced in [`masked`](Self::masked).
    pub fn secrets(&self) -> Vec<String> {
        let mut found = Vec::new();
        mask::differences(&Value::Object(self.0.clone()), &self.masked(), &mut found);
        found
    }

    /// Merges a config from a client that saw only the masked one: values that are still masked keep the stored secret.
    /// A secret for one host is not sent to another: if the address changes, the headers must be sent again.
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

    /// Whether a secret is missing, so that only its mask is left.
    pub fn is_masked(&self) -> bool {
        self.0.values().any(mask::is_masked)
    }
}

/// The members that may hold the address, and what is sent there.
const ADDRESSES: [&str; 4] = ["url", "base_url", "serverUrl", "httpUrl"];
const HEADERS: &str = "headers";

/// The host of the address, without user, password, path and query.
fn host_of(config: &Map<String, Value>) -> Option<String> {
    let address = ADDRESSES.iter().find_map(|key| config.get(*key)?.as_str())?;
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Some(format!("{scheme}://{host}").to_ascii_lowercase())
}

/// An address for display: without password, tokens, and query parameters that name secrets.
pub fn masked_address(address: &str) -> String {
    mask::text(address)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> ConnectionConfig {
        serde_json::from_value(json!({
            "command": "npx",
            "args": ["-y", "server", "--api-key", "hidden-1", "--token=hidden-2", "--verbose", "--token", "${TOKEN}",
                "postgres://me:hidden-3@db/x"],
            "env": {"ANYTHING": "hidden-4", "HOME_OF": "${HOME}", "DEFAULTED": "${X:-hidden-5}"},
            "headers": {"Authorization": "Bearer hidden-6", "X-Ref": "Bearer ${TOKEN}"},
            "url": "https://user:hidden-7@host/path?a=1&access_token=hidden-8",
            "oauth": {"client_secret": "hidden-9", "scope": "all"},
            "timeout": 5
        }))
        .unwrap()
    }

    #[test]
    fn what_is_shown_has_no_secret_and_all_the_rest() {
        let shown = config().masked();
        assert!(!shown.to_string().contains("hidden"), "{shown}");
        assert_eq!(shown["env"]["HOME_OF"], "${HOME}");
        assert_eq!(shown["env"]["ANYTHING"], "***");
        assert_eq!(shown["headers"]["X-Ref"], "Bearer ${TOKEN}");
        assert_eq!(shown["url"], "https://user:***@host/path?a=1&access_token=***");
        assert_eq!(shown["args"][4], "--token=***");
        assert_eq!(shown["args"][7], "${TOKEN}");
        assert_eq!(shown["oauth"]["scope"], "all");
        assert_eq!(shown["timeout"], 5);
    }

    #[test]
    fn what_is_hidden_is_known() {
        let mut secrets = config().secrets();
        secrets.sort();
        let expected =
            ["${X:-hidden-5}", "Bearer hidden-6", "hidden-1", "hidden-2", "hidden-3", "hidden-4", "hidden-7"];
        assert_eq!(secrets, [&expected[..], &["hidden-8", "hidden-9"]].concat());
    }

    #[test]
    fn a_debug_print_shows_nothing() {
        assert_eq!(format!("{:?}", config()), "ConnectionConfig(..)");
    }

    #[test]
    fn sending_the_masked_config_back_changes_nothing() {
        let shown: ConnectionConfig = serde_json::from_value(config().masked()).unwrap();
        assert!(shown.is_masked());
        assert_eq!(config().updated_with(shown), config());
    }

    #[test]
    fn a_secret_does_not_follow_to_another_host() {
        let known: ConnectionConfig = serde_json::from_value(json!({"url": "https://a.example/mcp?key=s",
            "headers": {"Authorization": "Bearer hunter2"}}))
        .unwrap();
        let sent = |url: &str| -> ConnectionConfig {
            serde_json::from_value(json!({"url": url, "headers": {"Authorization": "***"}})).unwrap()
        };
        let moved = known.updated_with(sent("https://b.example/mcp"));
        assert_eq!(moved.reveal()["headers"]["Authorization"], "***");
        assert!(moved.is_masked(), "so it is refused");
        let scheme = known.updated_with(sent("http://a.example/mcp"));
        assert!(scheme.is_masked(), "nor without TLS");
        let elsewhere_there = known.updated_with(sent("https://A.example/other"));
        assert_eq!(elsewhere_there.reveal()["headers"]["Authorization"], "Bearer hunter2");
    }

    #[test]
    fn a_new_secret_replaces_the_old_and_the_others_stay() {
        let mut sent = config().masked();
        sent["env"]["ANYTHING"] = "new".into();
        let updated = config().updated_with(serde_json::from_value(sent).unwrap());
        assert_eq!(updated.reveal()["env"]["ANYTHING"], "new");
        assert_eq!(updated.reveal()["headers"]["Authorization"], "Bearer hidden-6");
    }
}
