//! How BERT cuts a text into pieces that its vocabulary knows: lower-case, without accents, longest piece first.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The piece that opens every text.
const OPENING: u32 = 101;
/// The piece that closes every text.
const CLOSING: u32 = 102;
/// The piece for what cannot be cut into known ones.
const UNKNOWN: u32 = 100;
/// Longer words are unknown without a look: nobody writes them, and trying costs the square of their length.
const LONGEST_WORD: usize = 100;

pub(super) struct WordPiece {
    beginnings: HashMap<&'static str, u32>,
    continuations: HashMap<&'static str, u32>,
}

impl WordPiece {
    /// From a vocabulary with one piece per line, in the order of their numbers; `##` marks continuations.
    pub(super) fn new(vocabulary: &'static str) -> Self {
        let mut beginnings = HashMap::new();
        let mut continuations = HashMap::new();
        for (id, piece) in (0..).zip(vocabulary.lines()) {
            match piece.strip_prefix("##") {
                Some(rest) if !rest.is_empty() => continuations.insert(rest, id),
                _ => beginnings.insert(piece, id),
            };
        }
        Self { beginnings, continuations }
    }

    /// The numbers of a text's pieces, at most `limit` with the opening and the closing one.
    pub(super) fn encode(&self, text: &str, limit: usize) -> Vec<u32> {
        let mut pieces = vec![OPENING];
        let mut word = String::new();
        // Each character of a text becomes at least a part of a piece, so nothing after these can matter.
        for character in text.chars().take(limit * LONGEST_WORD) {
            if pieces.len() >= limit {
                break;
            }
            for character in std::iter::once(character).nfd().filter(|character| !is_combining_mark(*character)) {
                if is_left_out(character) {
                    continue;
                }
                if character.is_whitespace() {
                    self.cut(&mut word, &mut pieces);
                } else if stands_alone(character) {
                    self.cut(&mut word, &mut pieces);
                    word.extend(character.to_lowercase());
                    self.cut(&mut word, &mut pieces);
                } else {
                    word.extend(character.to_lowercase());
                }
            }
        }
        self.cut(&mut word, &mut pieces);
        pieces.truncate(limit - 1);
        pieces.push(CLOSING);
        pieces
    }

    /// Adds the pieces of a word, and empties it.
    fn cut(&self, word: &mut String, pieces: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        let before = pieces.len();
        let mut rest = word.as_str();
        let mut known = &self.beginnings;
        if word.chars().count() > LONGEST_WORD {
            rest = "";
            pieces.push(UNKNOWN);
        }
        while !rest.is_empty() {
            let Some((id, length)) = longest(known, rest) else {
                pieces.truncate(before);
                pieces.push(UNKNOWN);
                break;
            };
            pieces.push(id);
            rest = &rest[length..];
            known = &self.continuations;
        }
        word.clear();
    }
}

/// The longest known piece that a text begins with, and its length.
fn longest(known: &HashMap<&'static str, u32>, text: &str) -> Option<(u32, usize)> {
    let mut length = text.len();
    loop {
        if let Some(id) = known.get(&text[..length]) {
            return Some((*id, length));
        }
        length = text[..length].char_indices().next_back().map(|(start, _)| start).filter(|start| *start > 0)?;
    }
}

fn is_left_out(character: char) -> bool {
    matches!(character, '\0' | '\u{fffd}' | '\u{200b}'..='\u{200f}' | '\u{feff}')
        || (character.is_control() && !character.is_whitespace())
}

/// Punctuation and ideographs are words of their own.
fn stands_alone(character: char) -> bool {
    character.is_ascii_punctuation()
        || matches!(character,
            '\u{a1}' | '\u{a7}' | '\u{ab}' | '\u{b6}' | '\u{b7}' | '\u{bb}' | '\u{bf}'
            | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}'
            | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}'
            | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff20}' | '\u{ff3b}'..='\u{ff40}' | '\u{ff5b}'..='\u{ff65}'
            | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}
