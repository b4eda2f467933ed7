//! Whether a URI matches a URI template (RFC 6570), to find the server for it.
//!
//! A template becomes a small program that runs over the URI with all alternatives in parallel, so the work is at most
//! the product of both lengths, whatever a hostile server sends. The templates of a server and the work of one request
//! are limited as well. Where real servers deviate from the RFC, this is lenient: asking a wrong server is better than
//! not asking the right one.

mod compile;

use crate::item::Item;

/// Longer URIs are not matched. All other limits are below this.
const LONGEST_URI: usize = 8192;

/// Steps of all compiled templates of one server, plus one for each of their bytes. A real template has fewer than 200.
pub const STEPS_PER_SERVER: usize = 200_000;

/// How many steps the matching of one URI of a request may take, on all servers together: about ten milliseconds. A
/// real template that matches takes a few for each character of the URI; one that does not is usually refused after a
/// few.
pub const STEPS_PER_URI: usize = 1_000_000;

/// The same for all URIs of a request: about a tenth of a second.
pub const STEPS_PER_REQUEST: usize = 10_000_000;

/// The remaining work.
#[derive(Debug, Clone)]
pub struct Budget(usize);

impl Budget {
    /// A budget of steps.
    pub fn new(steps: usize) -> Self {
        Self(steps)
    }

    /// Spends steps; returns whether there were enough.
    fn spend(&mut self, steps: usize) -> bool {
        let left = self.0.checked_sub(steps);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// The compiled templates of one server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Templates {
    compiled: Vec<UriTemplate>,
    /// How many were not compiled because of the limit.
    left_out: usize,
}

impl Templates {
    /// Compiles templates up to the limit. Malformed ones match nothing.
    pub fn compile(items: &[Item]) -> Self {
        let mut room = Budget::new(STEPS_PER_SERVER);
        let mut templates = Self::default();
        for (index, item) in items.iter().enumerate() {
            let template = UriTemplate::parse(&item.id);
            if !room.spend(item.id.len() + template.as_ref().map_or(0, |template| template.steps.len())) {
                templates.left_out = items.len() - index;
                break;
            }
            templates.compiled.extend(template);
        }
        templates.compiled.shrink_to_fit();
        templates
    }

    /// How many are not matched because of the limit.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether there are no templates.
    pub fn is_empty(&self) -> bool {
        self.compiled.is_empty()
    }

    /// Whether any of them matches. Undecided within the budget counts as no.
    pub fn match_any(&self, uri: &str, budget: &mut Budget) -> bool {
        self.compiled.iter().any(|template| template.matches_within(uri, budget))
    }
}

/// A compiled template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    steps: Vec<Step>,
}

/// One step of the program. The URI matches if both end together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Matches exactly this.
    Literal(Symbol),
    /// Matches one symbol of a value.
    Value(Class),
    /// Matches the rest of a multi-byte character.
    Continuation,
    /// Continues with the next step and with this one.
    Split(usize),
    /// Continues with this step.
    Jump(usize),
}

/// The characters of a value, unless percent-encoded: then all are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Anything.
    Any,
    /// Anything but what ends a path.
    Path,
    /// Anything but what ends a path or a segment of it.
    Segment,
    /// The same, and not `;`.
    Parameter,
    /// Anything but what ends a query or a pair in it.
    Query,
}

impl Class {
    fn has(self, byte: u8) -> bool {
        let excluded: &[u8] = match self {
            Self::Any => b"",
            Self::Path => b"?#",
            Self::Segment => b"/?#",
            Self::Parameter => b"/?#;",
            Self::Query => b"#&",
        };
        !excluded.contains(&byte)
    }
}

/// One byte of a URI, after undoing its percent-encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Symbol {
    byte: u8,
    was_encoded: bool,
}

impl Symbol {
    /// Encoding matters only for reserved characters: `%2F` is not `/`, `%41` is `A`.
    fn is_same_as(self, other: Self) -> bool {
        let may_be_encoded = !self.byte.is_ascii() || self.byte.is_ascii_alphanumeric() || b"-._~".contains(&self.byte);
        self.byte == other.byte && (may_be_encoded || self.was_encoded == other.was_encoded)
    }

    fn is_continuation(self) -> bool {
        self.byte & 0xc0 == 0x80
    }
}

impl UriTemplate {
    /// Parses a template; `None` if it is malformed or too large.
    pub fn parse(template: &str) -> Option<Self> {
        compile::template(template).map(|steps| Self { steps })
    }

    /// Whether `uri` is an expansion of the template.
    pub fn matches(&self, uri: &str) -> bool {
        self.matches_within(uri, &mut Budget::new(STEPS_PER_URI))
    }

    /// The same within a budget for several templates. Beyond it, nothing matches.
    pub fn matches_within(&self, uri: &str, budget: &mut Budget) -> bool {
        if uri.len() > LONGEST_URI || !self.begins_like(uri, budget) || !budget.spend(self.steps.len()) {
            return false;
        }
        let mut run = Run { steps: &self.steps, now: Vec::new(), seen: vec![0; self.steps.len() + 1], round: 0 };
        run.enter_all([0]);
        for symbol in symbols(uri) {
            let next: Vec<_> = run.now.iter().filter_map(|&at| run.after(at, symbol)).collect();
            if next.is_empty() {
                return false;
            }
            let visited = run.enter_all(next);
            if !budget.spend(visited) {
                return false;
            }
        }
        run.seen[self.steps.len()] == run.round
    }

    /// Whether the text before the first expression matches. Most templates have another scheme or host, and fail here.
    fn begins_like(&self, uri: &str, budget: &mut Budget) -> bool {
        let mut symbols = symbols(uri);
        for step in &self.steps {
            let Step::Literal(literal) = step else { break };
            if !budget.spend(1) || !symbols.next().is_some_and(|symbol| literal.is_same_as(symbol)) {
                return false;
            }
        }
        true
    }
}

/// All current positions in a program.
struct Run<'p> {
    steps: &'p [Step],
    /// The steps that wait for a symbol.
    now: Vec<usize>,
    /// The round in which each step was last reached, so that none is entered twice in one.
    seen: Vec<usize>,
    round: usize,
}

impl Run<'_> {
    /// The next position if the step at `at` matches `symbol`.
    fn after(&self, at: usize, symbol: Symbol) -> Option<usize> {
        let takes = match self.steps[at] {
            Step::Literal(literal) => literal.is_same_as(symbol),
            Step::Value(class) => symbol.was_encoded || class.has(symbol.byte),
            Step::Continuation => symbol.is_continuation(),
            Step::Split(_) | Step::Jump(_) => false,
        };
        takes.then_some(at + 1)
    }

    /// Continues from these positions; returns the number of visited steps.
    fn enter_all(&mut self, places: impl IntoIterator<Item = usize>) -> usize {
        self.round += 1;
        self.now.clear();
        let mut open: Vec<usize> = places.into_iter().collect();
        let mut visited = 0;
        while let Some(at) = open.pop() {
            visited += 1;
            if std::mem::replace(&mut self.seen[at], self.round) == self.round {
                continue;
            }
            match self.steps.get(at) {
                None => {}
                Some(Step::Split(other)) => open.extend([*other, at + 1]),
                Some(Step::Jump(target)) => open.push(*target),
                Some(_) => self.now.push(at),
            }
        }
        visited
    }
}

/// The bytes of a text, percent-decoded. A `%` that encodes nothing stays.
fn symbols(text: &str) -> impl Iterator<Item = Symbol> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let &byte = bytes.get(at)?;
        let encoded = bytes.get(at..at + 3).filter(|_| byte == b'%').and_then(decoded);
        at += if encoded.is_some() { 3 } else { 1 };
        Some(Symbol { byte: encoded.unwrap_or(byte), was_encoded: encoded.is_some() })
    })
}

fn decoded(triplet: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(triplet[1])? << 4 | digit(triplet[2])?)
}

#[cfg(test)]
mod tests;
