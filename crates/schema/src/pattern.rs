//! Regular expressions of ECMA-262, matched in linear time.
//!
//! A pattern is translated to the syntax of `regex-automata` and run as a lazily built automaton whose memory is bounded.
//! Look-around and back-references have no such automaton; patterns that use them are not checked.

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// A longer pattern is not compiled.
const LONGEST_PATTERN: usize = 4096;

/// The compiled pattern, before it is made an automaton.
const MAX_NFA_BYTES: usize = 128 * 1024;

/// The automaton. If it does not fit it is begun anew this often.
const AUTOMATON_BYTES: usize = 512 * 1024;
const MAX_CACHE_CLEARS: usize = 4;

/// What ECMA-262 calls white space and line ends.
const SPACE: &str = r"\t\n\x0B\x0C\r \x{a0}\x{feff}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}";

/// Why there is no automaton for a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is no regular expression of ECMA-262.
    Invalid(String),
    /// It is, or may be, but not one that can be matched in linear time and bounded memory.
    Unsupported(String),
}

impl Unusable {
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Invalid(why) | Self::Unsupported(why) => why,
        }
    }
}

/// About how much work compiling a pattern is.
pub(crate) fn compile_steps(source: &str) -> usize {
    3000 + 20 * source.len().min(LONGEST_PATTERN)
}

/// A pattern that can be matched.
pub(crate) struct Pattern {
    automaton: DFA,
    cache: Cache,
}

impl Pattern {
    pub(crate) fn new(source: &str) -> Result<Self, Unusable> {
        if source.len() > LONGEST_PATTERN {
            return Err(Unusable::Unsupported(format!("it is longer than {LONGEST_PATTERN} bytes")));
        }
        let translated = Translation::of(source)?;
        // The automaton looks at bytes and is only asked whether there is a match, so it need not keep to characters.
        let automaton = DFA::builder()
            .syntax(syntax::Config::new().utf8(false))
            .thompson(
                thompson::Config::new()
                    .utf8(false)
                    .nfa_size_limit(Some(MAX_NFA_BYTES))
                    .which_captures(WhichCaptures::None),
            )
            .configure(
                DFA::config()
                    .cache_capacity(AUTOMATON_BYTES)
                    .minimum_cache_clear_count(Some(MAX_CACHE_CLEARS))
                    .minimum_bytes_per_state(None),
            )
            .build(&translated)
            .map_err(|error| refusal(&error))?;
        let cache = automaton.create_cache();
        Ok(Self { automaton, cache })
    }

    /// Whether it matches somewhere in a text, and about how much work that was; nothing if it would take too much.
    pub(crate) fn matches(&mut self, text: &str) -> (Option<bool>, usize) {
        let before = self.cache.memory_usage();
        let input = Input::new(text).anchored(Anchored::No).earliest(true);
        let found = self.automaton.try_search_fwd(&mut self.cache, &input).map(|found| found.is_some()).ok();
        let grown = self.cache.memory_usage().saturating_sub(before);
        (found, grown / 64)
    }
}

fn refusal(error: &regex_automata::hybrid::BuildError) -> Unusable {
    let whole = std::error::Error::source(error).map_or_else(
        || error.to_string(),
        |source| std::error::Error::source(source).map_or_else(|| source.to_string(), ToString::to_string),
    );
    let is_large = whole.contains("size limit") || whole.contains("capacity") || whole.contains("exceed");
    let last = whole.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    if is_large { Unusable::Unsupported("it is too large when compiled".to_owned()) } else { Unusable::Invalid(last) }
}

/// A pattern on its way from one syntax to the other.
struct Translation<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    out: String,
}

impl<'a> Translation<'a> {
    fn of(source: &'a str) -> Result<String, Unusable> {
        let mut translation = Self { rest: source.chars().peekable(), out: String::with_capacity(source.len() * 2) };
        while let Some(character) = translation.rest.next() {
            translation.step(character)?;
        }
        Ok(translation.out)
    }

    fn step(&mut self, character: char) -> Result<(), Unusable> {
        match character {
            '\\' => self.escape()?,
            '[' => self.class()?,
            '(' => self.group()?,
            '{' => self.brace(),
            '.' => self.out.push_str(r"[^\n\r\x{2028}\x{2029}]"),
            '^' | '$' | '|' | ')' | '*' | '+' | '?' => self.out.push(character),
            literal => push_literal(&mut self.out, literal),
        }
        Ok(())
    }

    fn group(&mut self) -> Result<(), Unusable> {
        self.out.push_str("(?:");
        if self.rest.peek() != Some(&'?') {
            return Ok(());
        }
        self.rest.next();
        let unsupported = |what: &str| Err(Unusable::Unsupported(format!("it uses {what}")));
        match self.rest.next() {
            Some(':') => Ok(()),
            Some('=' | '!') => unsupported("look-ahead"),
            Some('<') => match self.rest.peek() {
                Some('=' | '!') => unsupported("look-behind"),
                _ => {
                    // The name of a group has no meaning here.
                    while self.rest.next().ok_or_else(|| invalid("a group's name does not end"))? != '>' {}
                    Ok(())
                }
            },
            _ => unsupported("flags"),
        }
    }

    /// A quantifier, or a brace that stands for itself.
    fn brace(&mut self) {
        let mut ahead = self.rest.clone();
        let mut written = String::from("{");
        let mut commas = 0;
        for character in ahead.by_ref() {
            written.push(character);
            match character {
                ',' if commas == 0 && written.len() > 2 => commas += 1,
                '0'..='9' => {}
                '}' if written.len() > 2 => {
                    self.out.push_str(&written);
                    self.rest = ahead;
                    return;
                }
                _ => break,
            }
        }
        self.out.push_str(r"\{");
    }

    fn escape(&mut self) -> Result<(), Unusable> {
        match self.rest.next().ok_or_else(|| invalid("it ends with a backslash"))? {
            'b' => self.out.push_str(r"(?-u:\b)"),
            'B' => self.out.push_str(r"(?-u:\B)"),
            '1'..='9' | 'k' => return Err(Unusable::Unsupported("it uses back-references".to_owned())),
            other => {
                let escaped = self.escaped(other)?;
                match escaped {
                    Escaped::Character(character) => push_literal(&mut self.out, character),
                    Escaped::Class(class) => self.out.push_str(&class),
                }
            }
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), Unusable> {
        let is_negated = self.rest.next_if_eq(&'^').is_some();
        let mut inner = String::new();
        loop {
            let first = match self.class_atom()? {
                None => break,
                Some(Escaped::Class(class)) => {
                    inner.push_str(&class);
                    continue;
                }
                Some(Escaped::Character(first)) => first,
            };
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']');
            if !is_range {
                push_in_class(&mut inner, first);
                continue;
            }
            self.rest.next();
            push_in_class(&mut inner, first);
            match self.class_atom()? {
                Some(Escaped::Character(last)) if first <= last => {
                    inner.push('-');
                    push_in_class(&mut inner, last);
                }
                Some(Escaped::Class(class)) => {
                    push_in_class(&mut inner, '-');
                    inner.push_str(&class);
                }
                _ => return Err(invalid("a range of characters is out of order")),
            }
        }
        match (inner.is_empty(), is_negated) {
            // Nothing, and anything.
            (true, false) => self.out.push_str(r"[^\x{0}-\x{10FFFF}]"),
            (true, true) => self.out.push_str(r"[\x{0}-\x{10FFFF}]"),
            (false, false) => self.out.push_str(&format!("[{inner}]")),
            (false, true) => self.out.push_str(&format!("[^{inner}]")),
        }
        Ok(())
    }

    /// The next character or class of characters in brackets; nothing at their end.
    fn class_atom(&mut self) -> Result<Option<Escaped>, Unusable> {
        match self.rest.next().ok_or_else(|| invalid("a bracket is not closed"))? {
            ']' => Ok(None),
            '\\' => match self.rest.next().ok_or_else(|| invalid("it ends with a backslash"))? {
                'b' => Ok(Some(Escaped::Character('\u{8}'))),
                other => self.escaped(other).map(Some),
            },
            character => Ok(Some(Escaped::Character(character))),
        }
    }

    /// What a backslash and this character mean, in brackets or outside.
    fn escaped(&mut self, character: char) -> Result<Escaped, Unusable> {
        let class = |class: &str| Ok(Escaped::Class(class.to_owned()));
        let plain = match character {
            'd' => return class("[0-9]"),
            'D' => return class("[^0-9]"),
            'w' => return class("[0-9A-Za-z_]"),
            'W' => return class("[^0-9A-Za-z_]"),
            's' => return Ok(Escaped::Class(format!("[{SPACE}]"))),
            'S' => return Ok(Escaped::Class(format!("[^{SPACE}]"))),
            'p' | 'P' => return self.property(character),
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'v' => '\u{b}',
            'f' => '\u{c}',
            '0' => '\0',
            'c' => match self.rest.next() {
                Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 % 32),
                _ => return Err(invalid(r"`\c` needs a letter")),
            },
            'x' => self.code(2)?,
            'u' => self.unicode()?,
            other if other.is_ascii_alphanumeric() => {
                return Err(invalid(&format!(r"`\{other}` means nothing")));
            }
            other => other,
        };
        Ok(Escaped::Character(plain))
    }

    /// `\p{Letter}`, `\p{Script=Greek}`.
    fn property(&mut self, letter: char) -> Result<Escaped, Unusable> {
        if self.rest.next() != Some('{') {
            return Err(invalid(r"`\p` needs braces"));
        }
        let mut name = String::new();
        loop {
            match self.rest.next() {
                Some('}') => return Ok(Escaped::Class(format!(r"\{letter}{{{name}}}"))),
                Some(it) if it.is_ascii_alphanumeric() || matches!(it, '_' | '=') => name.push(it),
                _ => return Err(invalid("a property of characters is not closed")),
            }
        }
    }

    fn code(&mut self, digits: usize) -> Result<char, Unusable> {
        let number = self.hex(digits)?;
        char::from_u32(number).ok_or_else(|| Unusable::Unsupported("it names half a character".to_owned()))
    }

    fn hex(&mut self, digits: usize) -> Result<u32, Unusable> {
        let written: String = self.rest.by_ref().take(digits).collect();
        let is_hex = written.len() == digits && written.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u32::from_str_radix(&written, 16).ok()).flatten();
        number.ok_or_else(|| invalid("a character's code is incomplete"))
    }

    /// `\u0041`, `\u{1F600}`, or two halves of a character.
    fn unicode(&mut self) -> Result<char, Unusable> {
        if self.rest.next_if_eq(&'{').is_some() {
            let mut digits = String::new();
            while let Some(it) = self.rest.next_if(|it| *it != '}') {
                digits.push(it);
            }
            self.rest.next();
            let number = (digits.len() <= 8).then(|| u32::from_str_radix(&digits, 16).ok()).flatten();
            return number.and_then(char::from_u32).ok_or_else(|| invalid("there is no such character"));
        }
        let first = self.hex(4)?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| Unusable::Unsupported("it names half a character".to_owned()));
        }
        let is_pair = self.rest.next() == Some('\\') && self.rest.next() == Some('u');
        let second = if is_pair { self.hex(4)? } else { 0 };
        if !(0xdc00..0xe000).contains(&second) {
            return Err(Unusable::Unsupported("it names half a character".to_owned()));
        }
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(code).ok_or_else(|| invalid("there is no such character"))
    }
}

enum Escaped {
    Character(char),
    Class(String),
}

fn invalid(why: &str) -> Unusable {
    Unusable::Invalid(why.to_owned())
}

fn push_literal(out: &mut String, character: char) {
    match character {
        it if it.is_ascii_alphanumeric() || !it.is_ascii() => out.push(it),
        it => out.push_str(&format!(r"\x{{{:x}}}", u32::from(it))),
    }
}

fn push_in_class(out: &mut String, character: char) {
    push_literal(out, character);
}

/// Whether a text is a regular expression, as far as that is known.
pub(crate) fn is_regex(text: &str) -> bool {
    !matches!(Pattern::new(text), Err(Unusable::Invalid(_)))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Pattern, Unusable};

    fn matches(pattern: &str, text: &str) -> bool {
        let mut compiled = Pattern::new(pattern).unwrap_or_else(|why| panic!("{pattern}: {why:?}"));
        compiled.matches(text).0.unwrap_or_else(|| panic!("{pattern} takes too long"))
    }

    #[test]
    fn patterns_mean_what_they_mean_to_ecma_262() {
        for (pattern, text, expected) in [
            ("^a+$", "aaa", true),
            ("^a+$", "aab", false),
            (r"^\d{3}$", "123", true),
            (r"^\d$", "߀", false),
            (r"^\w+$", "é", false),
            (r"^\s$", "\u{feff}", true),
            (r"^[\w.+-]+@[\w-]+\.\w+$", "a.b+c@d-e.org", true),
            (r"^\u0041\x42\u{43}$", "ABC", true),
            (r"^\ud83d\ude00$", "😀", true),
            (r"^[^]$", "\n", true),
            (r"[]", "a", false),
            (r"^[a&&b]$", "&", true),
            (r"^[[]$", "[", true),
            (r"^\/$", "/", true),
            (r"^{a}$", "{a}", true),
            (r"^a{2,}$", "aaa", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^\cA$", "\u{1}", true),
            (r"^\p{Lu}$", "É", true),
            (r"^\p{Script=Greek}+$", "αβ", true),
            (r"\bcat\b", "a cat.", true),
            (r"^a.$", "a\u{2028}", false),
            ("^(?<year>[0-9]+)$", "2026", true),
            (r"^[a-\d]$", "-", true),
            ("a$", "a\n", false),
            ("", "", true),
            (r"#", "#", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn what_has_no_linear_automaton_is_named() {
        for (pattern, part) in [
            ("^foo(?=bar)", "look-ahead"),
            ("(?<!a)b", "look-behind"),
            (r"(a)\1", "back-references"),
            ("(?i)a", "flags"),
            ("(?:a{1000}){1000}", "too large"),
        ] {
            let Err(Unusable::Unsupported(why)) = Pattern::new(pattern) else { panic!("{pattern}") };
            assert!(why.contains(part), "{pattern}: {why}");
        }
        for pattern in ["(", "[", "a)", "*", r"\", "[b-a]", r"\Z", r"\a", r"\p{Nonsense}"] {
            assert!(matches!(Pattern::new(pattern), Err(Unusable::Invalid(_))), "{pattern}");
        }
    }

    #[test]
    fn no_pattern_runs_away() {
        let text = "a".repeat(100_000);
        for pattern in ["^(a+)+$", "(a|aa)+$", "(.*)*b", "(?:a?){100}b", "([a-z]+[0-9])*c", ".*.*.*.*.*x", "a.{60}b"] {
            let began = Instant::now();
            let Ok(mut compiled) = Pattern::new(pattern) else { continue };
            compiled.matches(&text);
            assert!(began.elapsed().as_secs() < 5, "{pattern} took {:?}", began.elapsed());
        }
    }
}
