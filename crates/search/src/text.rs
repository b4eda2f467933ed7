//! Splits text into words that can be compared.
//!
//! `getUserInfo`, `get_user_info` and "the user's infos" must match. So names are split into their parts, case and
//! accents are removed, stop words are dropped, and endings are cut off.

mod stop_words;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// A word without case and accents, and its stem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// For display.
    pub shown: String,
    /// For comparison.
    pub stem: String,
}

/// The words of a text without stop words, at most `limit`.
pub(crate) fn words(text: &str, limit: usize) -> Vec<Word> {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut found = Vec::new();
    for token in text.split(|character: char| !is_part_of_token(character)) {
        if found.len() >= limit {
            break;
        }
        push_token(token, &stemmer, &mut found);
    }
    found.truncate(limit);
    found
}

/// A name as separate words: `getUserInfo` and `get_user_info` are "get user info".
pub(crate) fn spelled_out(name: &str) -> String {
    let tokens = name.split(|character: char| !character.is_alphanumeric());
    let parts: Vec<String> =
        tokens.flat_map(|token| split_camel(token).into_iter().map(str::to_lowercase).collect::<Vec<_>>()).collect();
    parts.join(" ")
}

/// The sentences of a text, if it has several. A long query often contains several requests, and each needs its own
/// tools.
pub(crate) fn sentences(text: &str, limit: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        let next_is_space = characters.peek().is_none_or(|(_, next)| next.is_whitespace());
        let ends = matches!(character, '\n' | '。' | '！' | '？' | '；')
            || (matches!(character, '.' | '!' | '?' | ';') && next_is_space);
        if ends {
            let end = place + character.len_utf8();
            found.push(text[start..end].trim());
            start = end;
        }
    }
    found.push(text[start..].trim());
    found.retain(|sentence| !words(sentence, 1).is_empty());
    found.truncate(limit);
    if found.len() > 1 { found } else { Vec::new() }
}

/// Underscores, hyphens and apostrophes join the parts of a word until it is split on purpose.
fn is_part_of_token(character: char) -> bool {
    character.is_alphanumeric() || is_combining_mark(character) || matches!(character, '_' | '-' | '\'' | '’')
}

fn push_token(token: &str, stemmer: &Stemmer, found: &mut Vec<Word>) {
    let token = without_ending(token);
    let pieces: Vec<&str> =
        token.split(|character: char| !character.is_alphanumeric() && !is_combining_mark(character)).collect();
    let parts: Vec<String> =
        pieces.into_iter().flat_map(split_camel).map(folded).filter(|part| !part.is_empty()).collect();
    for part in &parts {
        push_part(part, stemmer, found);
    }
    // "e-mail" must match "email", and "GitHub" "github".
    if let [first, second] = parts.as_slice() {
        push_word(&format!("{first}{second}"), stemmer, found);
    }
}

fn push_part(part: &str, stemmer: &Stemmer, found: &mut Vec<Word>) {
    if !part.chars().any(is_ideograph) {
        push_word(part, stemmer, found);
        return;
    }
    // Without spaces the words are unknown, so pairs of adjacent characters are used.
    let characters: Vec<char> = part.chars().collect();
    for pair in characters.windows(characters.len().min(2)) {
        let pair: String = pair.iter().collect();
        found.push(Word { shown: pair.clone(), stem: pair });
    }
}

fn push_word(word: &str, stemmer: &Stemmer, found: &mut Vec<Word>) {
    /// Nobody searches for longer words, and some servers put whole files into their descriptions.
    const MAX_TOKEN_LEN: usize = 64;
    if word.len() > MAX_TOKEN_LEN || stop_words::is_one(word) {
        return;
    }
    let stem = if word.is_ascii() { stemmer.stem(word).into_owned() } else { word.to_owned() };
    found.push(Word { shown: word.to_owned(), stem });
}

/// Removes a genitive or a negation.
fn without_ending(token: &str) -> &str {
    let token = token.trim_matches(|character: char| !character.is_alphanumeric());
    ["'s", "’s", "n't", "n’t"].iter().find_map(|ending| token.strip_suffix(ending)).unwrap_or(token)
}

/// Splits `getUserInfo` and `HTTPServer` into their parts.
fn split_camel(token: &str) -> Vec<&str> {
    let characters: Vec<(usize, char)> = token.char_indices().collect();
    let mut parts = Vec::new();
    let mut start = 0;
    for here in 1..characters.len() {
        let (before, (place, this)) = (characters[here - 1].1, characters[here]);
        let next_is_lower = characters.get(here + 1).is_some_and(|(_, next)| next.is_lowercase());
        let begins = this.is_uppercase() && (!before.is_uppercase() || next_is_lower);
        if begins {
            parts.push(&token[start..place]);
            start = place;
        }
    }
    parts.push(&token[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// Removes case, accents, ligatures and full width.
fn folded(part: &str) -> String {
    if part.is_ascii() {
        return part.to_ascii_lowercase();
    }
    part.nfkd().filter(|character| !is_combining_mark(*character)).flat_map(char::to_lowercase).collect()
}

fn is_ideograph(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2fa1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stems(text: &str) -> Vec<String> {
        words(text, usize::MAX).into_iter().map(|word| word.stem).collect()
    }

    #[test]
    fn names_meet_however_they_are_joined() {
        for name in ["getUserInfo", "get_user_info", "get-user-info", "GetUserInfo", "get user info", "get.user.info"] {
            assert_eq!(stems(name), ["get", "user", "info"], "{name}");
            assert_eq!(spelled_out(name), "get user info");
        }
        assert_eq!(stems("HTTPServerError"), ["http", "server", "error"]);
    }

    #[test]
    fn a_name_of_two_parts_also_matches_as_one_word() {
        assert_eq!(stems("GitHub"), ["git", "hub", "github"]);
        assert!(stems("e-mail").contains(&"email".to_owned()));
    }

    #[test]
    fn endings_case_and_accents_do_not_matter() {
        assert_eq!(stems("Searching CAFÉS"), stems("search cafe"));
        assert_eq!(stems("ﬁle"), stems("files"));
        assert_eq!(stems("the user's"), ["user"]);
    }

    #[test]
    fn words_of_polite_requests_are_stop_words() {
        assert!(stems("Could you please tell me what it is?").is_empty());
    }

    #[test]
    fn text_without_spaces_is_compared_by_pairs() {
        assert_eq!(stems("天气预报"), ["天气", "气预", "预报"]);
        assert_eq!(stems("雨"), ["雨"]);
    }

    #[test]
    fn a_request_is_cut_into_its_sentences() {
        assert_eq!(sentences("Find a hotel. Then book a flight! Please.", 8), ["Find a hotel.", "Then book a flight!"]);
        assert!(sentences("Find version 1.2 of it", 8).is_empty());
        assert_eq!(sentences("a1. b1. c1. d1.", 3).len(), 3);
    }

    #[test]
    fn only_so_many_words_are_looked_at() {
        assert_eq!(words(&"word ".repeat(1000), 10).len(), 10);
        assert!(words(&"x".repeat(1_000_000), 10).is_empty());
    }
}
