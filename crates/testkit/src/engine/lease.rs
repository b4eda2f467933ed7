//! The engine that tests share while at least one of them needs it. The last one cleans it up.

use std::sync::{Mutex, PoisonError};

use super::Engine;

/// Permission to use the shared engine.
#[derive(Debug)]
pub struct Lease {
    engine: &'static Engine,
}

/// The users of the shared engine.
struct LeaseCount {
    count: usize,
    /// A test failed, so its containers may remain.
    is_spoiled: bool,
}

static LEASES: Mutex<LeaseCount> = Mutex::new(LeaseCount { count: 0, is_spoiled: false });

impl Lease {
    pub(super) fn new(engine: &'static Engine) -> Self {
        LEASES.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        Self { engine }
    }

    /// The engine.
    pub fn engine(&self) -> &'static Engine {
        self.engine
    }
}

impl std::ops::Deref for Lease {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // No test may start to use it during the last cleanup.
        let mut tenants = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.count -= 1;
        tenants.is_spoiled |= std::thread::panicking();
        if tenants.count > 0 || tenants.is_spoiled {
            return;
        }
        let held = self.engine.belongings();
        tenants.is_spoiled = !held.is_empty();
        drop(tenants);
        assert_eq!(held, Vec::<String>::new(), "tests leave nothing in the engine they share");
    }
}
