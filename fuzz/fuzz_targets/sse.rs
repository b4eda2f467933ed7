//! A stream of server-sent events is read the same however it arrives, and holds no more than has come.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| protocol::events::check_stream(data)));
