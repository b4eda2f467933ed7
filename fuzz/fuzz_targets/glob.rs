//! A pattern of a binding is matched with a path in bounded time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| notebook::fuzz_glob(data)));
