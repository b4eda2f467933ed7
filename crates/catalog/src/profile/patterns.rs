//! Which names a list of patterns admits.

/// How many patterns one member of a profile may have.
pub const MAX_PATTERNS: usize = 200;
/// Bytes of one pattern.
pub const MAX_PATTERN_BYTES: usize = 500;

/// Patterns in order: the last one that matches a name decides about it, as in `.gitignore`.
///
/// `*` stands for any characters, also for none; everything else for itself. `!` at the start excludes what the pattern
/// matches. If the first pattern excludes, the list begins with everything, and otherwise with nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patterns {
    patterns: Vec<Pattern>,
    begins_with_all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: Box<str>,
    is_exclusion: bool,
}

impl Patterns {
    /// The patterns as they are written.
    pub fn new(written: &[String]) -> Self {
        let patterns: Vec<Pattern> = written.iter().map(|text| Pattern::new(text)).collect();
        let begins_with_all = patterns.first().is_some_and(|first| first.is_exclusion);
        Self { patterns, begins_with_all }
    }

    /// Whether the list admits a name.
    pub fn admits(&self, name: &str) -> bool {
        let last = self.patterns.iter().rev().find(|pattern| pattern.matches(name));
        last.map_or(self.begins_with_all, |pattern| !pattern.is_exclusion)
    }
}

impl Pattern {
    fn new(written: &str) -> Self {
        match written.strip_prefix('!') {
            Some(text) => Self { text: text.into(), is_exclusion: true },
            None => Self { text: written.into(), is_exclusion: false },
        }
    }

    fn matches(&self, name: &str) -> bool {
        is_match(self.text.as_bytes(), name.as_bytes())
    }
}

/// Whether a written pattern matches a name, whether or not it excludes it.
pub(super) fn matches(written: &str, name: &str) -> bool {
    Pattern::new(written).matches(name)
}

/// The name that a written pattern stands for, if it is only one.
pub(super) fn literal(written: &str) -> Option<&str> {
    let text = written.strip_prefix('!').unwrap_or(written);
    (!text.contains('*')).then_some(text)
}

fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // The last `*`, and where in the name its part ends. If the rest does not match, it takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() {
        if pattern.get(of) == Some(&b'*') {
            star = Some((of, at));
            of += 1;
        } else if pattern.get(of) == Some(&name[at]) {
            (at, of) = (at + 1, of + 1);
        } else if let Some((place, taken)) = star {
            (at, of) = (taken + 1, place + 1);
            star = Some((place, taken + 1));
        } else {
            return false;
        }
    }
    pattern[of..].iter().all(|byte| *byte == b'*')
}
