//! The engine that tests share, for as long as one of them needs it. Whoever gives it back last leaves nothing in it.

use std::sync::{Mutex, PoisonError};

use super::Engine;

/// Leave to use the shared engine.
#[derive(Debug)]
pub struct Lease {
    engine: &'static Engine,
}

/// Who uses the shared engine.
struct LeaseCount {
    count: usize,
    /// A test failed half-way, so what it made may be there.
    is_spoiled: bool,
}

static LEASES: Mutex<LeaseCount> = Mutex::new(LeaseCount { count: 0, is_spoiled: false });

impl Lease {
    pub(super) fn new(engine: &'static Engine) -> Self {
        LEASES.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        Self { engine }
    }

    /// The engine itself.
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
        // Nobody may move in while the last one is looked after.
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
