//! Which clients share one process or session of a server.

use std::fmt;

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
