//! Which clients share one process or session of a server.

use std::fmt;

use crate::server::{Filled, Program, ServerSpec, Transport};

/// Whom one instance of a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Share {
    /// All clients: there is one instance.
    #[default]
    All,
    /// One identity: each has its own instance.
    User,
    /// One session of a client: each has its own instance.
    Session,
}

impl Share {
    /// All values, the default first.
    pub const ALL: [Self; 3] = [Self::All, Self::User, Self::Session];

    /// Its name in configs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::User => "user",
            Self::Session => "session",
        }
    }

    /// The value of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|share| share.as_str() == name)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// How a server is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Whom one instance serves.
    pub share: Share,
    /// How many instances may run at once, if there are several.
    pub max_instances: usize,
}

impl Sharing {
    /// How many instances a server may have unless it is configured.
    pub const DEFAULT_MAX_INSTANCES: usize = 100;
    /// The largest value of the setting.
    pub const MAX_MAX_INSTANCES: usize = 10_000;
}

impl Default for Sharing {
    fn default() -> Self {
        Self { share: Share::All, max_instances: Self::DEFAULT_MAX_INSTANCES }
    }
}

/// Stands for the name of an instance in the `env`, `args`, `cwd` and `volumes` of a server with instances.
const PLACEHOLDER: &str = "{instance}";

impl ServerSpec {
    /// The config of one instance of the server: with its name instead of the placeholder, and with the names and ports
    /// of its container chosen freely. `name` is a word that fits into a path.
    #[must_use]
    pub fn for_instance(self, name: &str) -> Self {
        let named = |text: String| if text.contains(PLACEHOLDER) { text.replace(PLACEHOLDER, name) } else { text };
        let all = |texts: Vec<String>| texts.into_iter().map(named).collect();
        let values =
            |entries: Vec<(String, String)>| entries.into_iter().map(|(key, value)| (key, named(value))).collect();
        let folder = |folder: Filled| {
            let written = folder.shown().to_owned();
            Filled::new(named(folder.value), &written)
        };
        let transport = match self.transport {
            Transport::Stdio(Program { command, args, env, cwd }) => {
                Transport::Stdio(Program { command, args: all(args), env: values(env), cwd: cwd.map(folder) })
            }
            Transport::Container(container) => {
                let mut container = container.apart();
                container.args = all(container.args);
                container.env = values(container.env);
                container.volumes = all(container.volumes);
                Transport::Container(container)
            }
            Transport::Remote(remote) => Transport::Remote(remote),
        };
        Self { transport, ..self }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Accepted, Config, Transport};

    #[test]
    fn an_instance_has_its_name_wherever_the_placeholder_is() {
        let config = r#"{"mcpServers": {"a": {"command": "{instance}", "args": ["--at", "/d/{instance}/{instance}"],
            "env": {"F": "/m/{instance}.json", "G": "{other}"}, "cwd": "/w/{instance}"},
            "b": {"docker": {"image": "i", "containerName": "nn", "volumes": ["/v/{instance}:/v"]}}}}"#;
        let config = Config::parse(config.as_bytes(), Accepted::All, |_| None).unwrap();
        let [a, b] = <[_; 2]>::try_from(config.servers).unwrap().map(|spec| spec.for_instance("x1"));
        let Transport::Stdio(program) = a.transport else { panic!("it is a program") };
        assert_eq!(program.command.value, "{instance}", "which program runs does not depend on who calls");
        assert_eq!(program.args, ["--at", "/d/x1/x1"]);
        let env = [("F", "/m/x1.json"), ("G", "{other}")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!((program.env, program.cwd.unwrap().value.as_str()), (env.to_vec(), "/w/x1"));
        let Transport::Container(container) = b.transport else { panic!("it is a container") };
        assert_eq!((container.name, container.volumes), (None, vec!["/v/x1:/v".to_owned()]));
    }
}
