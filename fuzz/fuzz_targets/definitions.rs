//! Definitions of servers: what is kept of them is JSON within every limit, and needs no further repair.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| catalog::fuzzing::definitions(data)));
