//! Checking any value against any schema ends within its bounds, and contradicts itself nowhere.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| schema::check_fuzz_input(data)));
