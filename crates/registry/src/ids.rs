//! The ids of the registry, as distinct types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuids {
    ($(#[$doc:meta])* $name:ident, $fresh:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new, unique id.
            pub fn fresh() -> Self {
                Self($fresh)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }
    };
}

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuids! {
    /// The id of a server. Random.
    ServerId, Uuid::new_v4()
}
uuids! {
    /// The id of an execution. Ordered by time, so that new ones are adjacent in the database index.
    ExecutionId, Uuid::now_v7()
}
impl ExecutionId {
    /// When it was created, to the millisecond, if it contains a time.
    pub fn made_at(&self) -> Option<crate::Timestamp> {
        let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
        let micros = i64::try_from(seconds).ok()?.checked_mul(1_000_000)? + i64::from(nanos / 1000);
        Some(crate::Timestamp::from_micros(micros))
    }
}

numbers! {
    /// The id of a tool. It stays the same while its server lists the tool.
    ToolId
}
numbers! {
    /// A section binding's id.
    BindingId
}
