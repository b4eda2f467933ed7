//! Ids of executions: UUIDs of version 7, made without a system call other than for the time.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use registry::{ExecutionId, Timestamp};
use uuid::Uuid;

/// An id for an execution requested at that time. Later ones are higher, to some 250 ns.
pub(super) fn fresh(at: Timestamp) -> ExecutionId {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    let (millis, fraction) = (micros / 1000, micros % 1000 * 4096 / 1000);
    ExecutionId(Uuid::from_u64_pair(millis << 16 | 0x7000 | fraction, 0b10 << 62 | unpredictable() >> 2))
}

/// An unpredictable number that is hardly ever repeated: a keyed hash of a counter.
pub(crate) fn unpredictable() -> u64 {
    static SECRET: OnceLock<RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    SECRET.get_or_init(RandomState::new).hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_uuid_version_7_with_their_time_and_unique() {
        let at = Timestamp::from_micros(1_785_240_000_123_456);
        let ids: HashSet<_> = (0..10_000).map(|_| fresh(at)).collect();
        assert_eq!(ids.len(), 10_000);
        let id = fresh(at).0;
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos), (1_785_240_000, 123_000_000));
        assert!(fresh(Timestamp::from_micros(at.as_micros() + 1)) > ExecutionId(id));
    }
}
