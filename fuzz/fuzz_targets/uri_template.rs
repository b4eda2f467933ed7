//! A URI template is read or refused, and matched with a URI in bounded time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| catalog::fuzzing::uri_template(data)));
