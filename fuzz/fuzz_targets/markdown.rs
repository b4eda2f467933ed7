//! Reading, mapping and planning a document never panics, and putting results into it changes nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::bounded(|| notebook::read_fuzz_document(data)));
