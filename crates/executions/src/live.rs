//! The table of running calls.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use registry::ExecutionId;

use super::execution::Execution;

/// The number of shards, so that calls on different threads rarely contend.
const PARTS: usize = 16;

type Part = HashMap<ExecutionId, Arc<Execution>, BuildHasherDefault<LastBytes>>;

/// A hasher that uses the end of an id, which is random.
#[derive(Default)]
struct LastBytes(u64);

impl Hasher for LastBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*last);
        }
    }

    fn write_usize(&mut self, _: usize) {
        // All ids are of the same length.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The running calls, by id.
#[derive(Default)]
pub(super) struct Live([Mutex<Part>; PARTS]);

impl Live {
    pub(super) fn add(&self, execution: &Arc<Execution>) {
        self.part(execution.id).insert(execution.id, Arc::clone(execution));
    }

    pub(super) fn remove(&self, id: ExecutionId) {
        self.part(id).remove(&id);
    }

    pub(super) fn get(&self, id: ExecutionId) -> Option<Arc<Execution>> {
        self.part(id).get(&id).cloned()
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> Vec<Arc<Execution>> {
        self.0.iter().flat_map(|part| lock(part).values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|part| lock(part).is_empty())
    }

    fn part(&self, id: ExecutionId) -> MutexGuard<'_, Part> {
        // The last byte is random.
        lock(&self.0[usize::from(id.0.as_bytes()[15]) % PARTS])
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
