//! Reading a config never panics, and no error tells what a variable is set to.
#![no_main]

use catalog::{Accepted, Config};
use libfuzzer_sys::fuzz_target;
use std::hash::{DefaultHasher, Hash, Hasher};

fuzz_target!(|data: &[u8]| fuzz::bounded(|| check(data)));

fn check(data: &[u8]) {
    // Made from the input, so the input cannot contain it.
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    let secret = format!("secret-{:016x}", hasher.finish());
    let lookup = |name: &str| match name {
        "EMPTY" => Some(String::new()),
        "NUL" => Some(format!("{secret}\0")),
        _ if name.contains("UNSET") => None,
        _ => Some(format!("{secret} ${{{secret}")),
    };
    let both = [Accepted::StdioOnly, Accepted::All].map(|accepted| Config::parse(data, accepted, lookup));
    for error in both.into_iter().filter_map(Result::err) {
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(&secret), "{shown}");
    }
}
