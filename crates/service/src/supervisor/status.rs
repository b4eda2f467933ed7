//! The status of a server: one type. What the registry stores, and what REST, the console, the command line and
//! clients show, are views of it.

use std::sync::Arc;
use std::time::Duration;

use catalog::Unavailable;
use registry::{ServerRecord, Status, StatusChange, Timestamp};

/// The status of a server. The transitions are shown in `supervisor.rs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerStatus {
    /// It is being connected.
    Connecting,
    /// It is connected, and healthy as far as is known.
    Connected,
    /// It is connected, but unhealthy.
    Degraded {
        /// What is wrong.
        why: String,
    },
    /// It could not be connected, or was lost, and is retried.
    Waiting {
        /// What happened.
        why: String,
        /// When the next attempt is made.
        retry_at: Timestamp,
    },
    /// It could not be connected, or was lost, and a retry would not help or is not needed yet.
    Failed {
        /// What happened.
        why: String,
    },
    /// A person must sign in to it. That is not a failure: nothing is retried and nothing is counted.
    SignInRequired {
        /// What the server or its provider reported.
        why: String,
    },
    /// It is lazy, and starts when it is needed.
    Asleep,
    /// An administrator disconnected it.
    Disconnected,
    /// An administrator disabled it, or it failed too often.
    Disabled {
        /// What happened, if it failed.
        why: Option<String>,
    },
}

impl ServerStatus {
    /// As the registry stored it.
    pub(super) fn of(record: &ServerRecord) -> Self {
        let why = record.error_message.clone();
        match record.status {
            Status::Connecting => Self::Connecting,
            Status::Connected => Self::Connected,
            Status::Degraded => Self::Degraded { why: why.unwrap_or_default() },
            Status::Error => Self::Failed { why: why.unwrap_or_default() },
            Status::Disconnected => Self::Disconnected,
            Status::Disabled => Self::Disabled { why },
            Status::SignInRequired => Self::SignInRequired { why: why.unwrap_or_default() },
        }
    }

    /// It failed, and is retried after a delay.
    pub(super) fn waiting(why: &str, delay: Duration) -> Self {
        Self::Waiting { why: why.to_owned(), retry_at: Timestamp::now().later_by(delay) }
    }

    /// The registry's name of the status.
    pub(crate) fn word(&self) -> Status {
        match self {
            Self::Connecting => Status::Connecting,
            Self::Connected => Status::Connected,
            Self::Degraded { .. } => Status::Degraded,
            Self::Waiting { .. } | Self::Failed { .. } => Status::Error,
            Self::Asleep | Self::Disconnected => Status::Disconnected,
            Self::Disabled { .. } => Status::Disabled,
            Self::SignInRequired { .. } => Status::SignInRequired,
        }
    }

    /// What is wrong, if anything is.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            Self::Degraded { why }
            | Self::Waiting { why, .. }
            | Self::Failed { why }
            | Self::SignInRequired { why } => Some(why),
            Self::Disabled { why } => why.as_deref(),
            Self::Connecting | Self::Connected | Self::Asleep | Self::Disconnected => None,
        }
    }

    /// When the next attempt to connect is made, if one is.
    pub(crate) fn retry_at(&self) -> Option<Timestamp> {
        match self {
            Self::Waiting { retry_at, .. } => Some(*retry_at),
            _ => None,
        }
    }

    /// Whether it is connected, healthy or not.
    fn is_up(&self) -> bool {
        self.word().is_up()
    }

    /// Whether a transition is valid.
    pub(super) fn can_become(&self, next: &Self) -> bool {
        match next {
            Self::Connected | Self::Waiting { .. } => self.is_up() || *self == Self::Connecting,
            Self::Degraded { .. } => self.is_up(),
            // Administrators and calls cause these at any time.
            Self::Connecting
            | Self::Failed { .. }
            | Self::SignInRequired { .. }
            | Self::Asleep
            | Self::Disconnected
            | Self::Disabled { .. } => true,
        }
    }

    /// What the registry stores of it.
    pub(super) fn change(&self) -> StatusChange {
        StatusChange { error_message: self.why().map(str::to_owned), ..StatusChange::to(self.word()) }
    }

    /// What clients receive that call it in this status.
    pub(super) fn unavailable(&self, since: Timestamp) -> Unavailable {
        let since_1970 = |moment: Timestamp| Duration::from_micros(moment.as_micros().try_into().unwrap_or(0));
        Unavailable {
            status: self.word().as_str(),
            why: self.why().map(Arc::from),
            // The usual one for its name, which may change.
            command: None,
            since: since_1970(since),
            retry_at: self.retry_at().map(since_1970),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [ServerStatus; 9] {
        let why = || "it fell over".to_owned();
        [
            ServerStatus::Connecting,
            ServerStatus::Connected,
            ServerStatus::Degraded { why: why() },
            ServerStatus::Waiting { why: why(), retry_at: Timestamp::from_micros(7) },
            ServerStatus::Failed { why: why() },
            ServerStatus::Asleep,
            ServerStatus::Disconnected,
            ServerStatus::Disabled { why: Some(why()) },
            ServerStatus::SignInRequired { why: why() },
        ]
    }

    #[test]
    fn only_one_that_is_being_connected_comes_up_and_only_one_that_is_up_degrades() {
        let before = |next: &ServerStatus| -> Vec<&'static str> {
            let can = |status: &ServerStatus| status.can_become(next);
            all().iter().filter(|status| can(status)).map(|status| status.word().as_str()).collect()
        };
        let [_, connected, degraded, waiting, ..] = all();
        assert_eq!(before(&connected), ["connecting", "connected", "degraded"]);
        assert_eq!(before(&degraded), ["connected", "degraded"]);
        assert_eq!(before(&waiting), ["connecting", "connected", "degraded"]);
        for next in [ServerStatus::Connecting, ServerStatus::Disconnected, ServerStatus::Disabled { why: None }] {
            assert_eq!(before(&next).len(), all().len(), "{next:?}");
        }
    }

    #[test]
    fn every_view_agrees() {
        for status in all() {
            let (change, unavailable) = (status.change(), status.unavailable(Timestamp::from_micros(5)));
            assert_eq!((change.status, change.status.as_str()), (status.word(), unavailable.status));
            assert_eq!(change.error_message.as_deref(), unavailable.why.as_deref());
            assert_eq!(unavailable.since, Duration::from_micros(5));
            assert_eq!(unavailable.retry_at, status.retry_at().map(|_| Duration::from_micros(7)));
        }
        let words = all().map(|status| status.word().as_str());
        assert_eq!(
            words,
            [
                "connecting",
                "connected",
                "degraded",
                "error",
                "error",
                "disconnected",
                "disconnected",
                "disabled",
                catalog::SIGN_IN_REQUIRED
            ]
        );
    }
}
