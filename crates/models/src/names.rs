//! Names of tools that every provider accepts, and the mapping back.
//!
//! OpenAI and Anthropic accept `[a-zA-Z0-9_-]{1,64}`; Gemini requires a letter or `_` first. A name that is already
//! safe stays unchanged, so that models and users see the same name where possible.

use std::collections::HashMap;

/// The longest name that all providers accept.
const MAX_NAME_LEN: usize = 64;

/// Safe names of tools, in both directions. No two tools have the same safe name.
#[derive(Debug, Clone, Default)]
pub struct SafeNames {
    safe: HashMap<String, String>,
    original: HashMap<String, String>,
}

impl SafeNames {
    /// Chooses safe names. A name that is already safe stays unchanged, no matter what the others are.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let (safe, unsafe_ones): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| is_safe(name));
        let mut all = Self::default();
        for name in safe {
            all.add(name, name.to_owned());
        }
        for name in unsafe_ones {
            all.add_unsafe(name);
        }
        all
    }

    /// The safe name of a tool.
    pub fn safe(&self, original: &str) -> Option<&str> {
        self.safe.get(original).map(String::as_str)
    }

    /// The original name of a tool.
    pub fn original(&self, safe: &str) -> Option<&str> {
        self.original.get(safe).map(String::as_str)
    }

    fn add(&mut self, original: &str, safe: String) {
        self.original.insert(safe.clone(), original.to_owned());
        self.safe.insert(original.to_owned(), safe);
    }

    fn add_unsafe(&mut self, name: &str) {
        if self.safe.contains_key(name) {
            return;
        }
        let readable = sanitised(name);
        let plain = (readable.len() <= MAX_NAME_LEN).then(|| readable.clone());
        // The hash depends only on the name, so that it stays the same when other tools come and go, as far as
        // possible.
        let mut hashed = (0_u32..).map(|round| with_hash(&readable, fnv1a(name, round)));
        let free = plain.filter(|plain| !self.original.contains_key(plain));
        let safe = free.or_else(|| hashed.find(|hashed| !self.original.contains_key(hashed)));
        self.add(name, safe.expect("there are more hashes than tools"));
    }
}

fn is_safe(name: &str) -> bool {
    name.len() <= MAX_NAME_LEN && name.chars().all(may_stand) && name.starts_with(may_begin)
}

fn may_stand(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

fn may_begin(character: char) -> bool {
    character.is_ascii_alphabetic() || character == '_'
}

fn sanitised(name: &str) -> String {
    let text: String = name.chars().map(|character| if may_stand(character) { character } else { '_' }).collect();
    if text.starts_with(may_begin) { text } else { format!("_{text}") }
}

fn with_hash(readable: &str, hash: u32) -> String {
    let hash = format!("_{hash:08x}");
    // Sanitised text is ASCII: it can be cut anywhere.
    let kept = &readable[..readable.len().min(MAX_NAME_LEN - hash.len())];
    [kept, &hash].concat()
}

/// 32-bit FNV-1a of a name, different in every round.
fn fnv1a(name: &str, round: u32) -> u32 {
    let bytes = name.bytes().chain(round.to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_safe_name_stays_and_others_become_readable() {
        let names = SafeNames::of(["git__log", "git:log", "7z", "größe", ""]);
        assert_eq!(names.safe("git__log"), Some("git__log"));
        assert_eq!(names.safe("git:log"), Some("git_log"));
        assert_eq!(names.safe("7z"), Some("_7z"));
        assert_eq!(names.safe("größe"), Some("gr__e"));
        assert_eq!(names.safe(""), Some("_"));
        assert_eq!(names.safe("unknown"), None);
        assert_eq!(names.original("git_log"), Some("git:log"));
    }

    #[test]
    fn a_safe_name_stays_even_if_another_server_comes_first() {
        let names = SafeNames::of(["git:log", "git_log", "git.log"]);
        assert_eq!(names.safe("git_log"), Some("git_log"));
        let hashed = names.safe("git:log").unwrap();
        assert!(hashed.starts_with("git_log_") && hashed.len() == 16, "{hashed}");
        assert_ne!(names.safe("git.log"), Some(hashed));
        assert_eq!(names.original(hashed), Some("git:log"));
    }

    #[test]
    fn long_names_that_differ_at_their_end_stay_apart() {
        let (one, other) = ("x".repeat(80) + "1", "x".repeat(80) + "2");
        let names = SafeNames::of([one.as_str(), other.as_str()]);
        assert_ne!(names.safe(&one), names.safe(&other));
        assert_eq!(names.safe(&one).unwrap().len(), 64);
    }

    proptest! {
        #[test]
        fn every_name_is_accepted_everywhere_and_leads_back(
            given in proptest::collection::hash_set("[a-c:.ä_-]{0,4}|\\PC{0,90}", 0..40),
        ) {
            let names = SafeNames::of(given.iter().map(String::as_str));
            let mut seen = HashSet::new();
            for name in &given {
                let safe = names.safe(name).unwrap();
                prop_assert!(is_safe(safe) && !safe.is_empty(), "{safe}");
                prop_assert!(seen.insert(safe.to_owned()));
                prop_assert_eq!(names.original(safe), Some(name.as_str()));
            }
        }
    }
}
