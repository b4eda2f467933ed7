//! Reading YAML never panics, stays within its bounds, and makes JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| notebook::read_fuzz_yaml(data)));
