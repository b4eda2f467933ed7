//! Bounds that are constants, for the page that documents them.

pub use crate::batch::MAX_BATCH_MESSAGES;
pub use crate::bridge::parked_calls::{MAX_BRIDGED_CALLS, MAX_BRIDGED_CALLS_PER_TOKEN};
pub use crate::client::MAX_DEFERRED;
pub use crate::fleet::name_conflicts::{LONGEST_REPORTED, MAX_REPORTED};
pub use crate::server_requests::MAX_REMEMBERED_ELICITATIONS;
pub use crate::tasks::{MAX_TASKS, MAX_TASKS_PER_TOKEN};
