//! Headers and bodies of requests are taken in, looked at and refused without a panic, up to where they are dispatched.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| http_server::check_request(data)));
