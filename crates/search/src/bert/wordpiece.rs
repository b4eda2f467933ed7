//! The WordPiece tokenizer of BERT: lowercase, without accents, longest piece first.

use std::borrow::Cow;
use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Opens every text.
const OPENING: &str = "[CLS]";
/// Closes every text.
const CLOSING: &str = "[SEP]";
/// Stands for text without known pieces.
const UNKNOWN: &str = "[UNK]";
/// Longer words count as unknown: matching them would cost quadratic time.
const MAX_WORD_LEN: usize = 100;

/// A vocabulary that lacks a required piece.
#[derive(Debug, thiserror::Error)]
#[error("it has no piece `{0}`")]
pub(crate) struct VocabularyError(&'static str);

/// Which differences between letters are ignored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folding {
    pub(crate) case: bool,
    pub(crate) accents: bool,
}

pub(crate) struct WordPiece {
    beginnings: HashMap<Cow<'static, str>, u32>,
    continuations: HashMap<Cow<'static, str>, u32>,
    folding: Folding,
    opening: u32,
    closing: u32,
    unknown: u32,
}

impl WordPiece {
    /// From pieces and their numbers; `##` marks continuations.
    pub(crate) fn new(
        vocabulary: impl Iterator<Item = (Cow<'static, str>, u32)>,
        folding: Folding,
    ) -> Result<Self, VocabularyError> {
        let mut beginnings = HashMap::new();
        let mut continuations = HashMap::new();
        for (piece, id) in vocabulary {
            match continuation(&piece) {
                Some(rest) => continuations.insert(rest, id),
                None => beginnings.insert(piece, id),
            };
        }
        let special = |piece: &'static str| beginnings.get(piece).copied().ok_or(VocabularyError(piece));
        let (opening, closing, unknown) = (special(OPENING)?, special(CLOSING)?, special(UNKNOWN)?);
        Ok(Self { beginnings, continuations, folding, opening, closing, unknown })
    }

    /// The numbers of a text's pieces, at most `limit` with the opening and the closing one.
    pub(crate) fn encode(&self, text: &str, limit: usize) -> Vec<u32> {
        let mut pieces = vec![self.opening];
        let mut word = String::new();
        // Each character becomes at least a part of a piece, so nothing after these can matter.
        for character in text.chars().take(limit * MAX_WORD_LEN) {
            if pieces.len() >= limit {
                break;
            }
            if !self.folding.accents {
                self.take(character, &mut word, &mut pieces);
                continue;
            }
            for character in std::iter::once(character).nfd().filter(|character| !is_combining_mark(*character)) {
                self.take(character, &mut word, &mut pieces);
            }
        }
        self.cut(&mut word, &mut pieces);
        pieces.truncate(limit - 1);
        pieces.push(self.closing);
        pieces
    }

    /// Adds a character to a word, or ends the word with it.
    /// Whether a word is a piece of its own.
    #[cfg(any(feature = "builtin-model", feature = "table"))]
    pub(crate) fn has_word(&self, word: &str) -> bool {
        matches!(self.encode(word, 4).as_slice(), [_, piece, _] if *piece != self.unknown)
    }

    fn take(&self, character: char, word: &mut String, pieces: &mut Vec<u32>) {
        if is_left_out(character) {
            return;
        }
        if character.is_whitespace() {
            return self.cut(word, pieces);
        }
        let stands_alone = stands_alone(character);
        if stands_alone {
            self.cut(word, pieces);
        }
        match self.folding.case {
            true => word.extend(character.to_lowercase()),
            false => word.push(character),
        }
        if stands_alone {
            self.cut(word, pieces);
        }
    }

    /// Adds the pieces of a word, and empties it.
    fn cut(&self, word: &mut String, pieces: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        let before = pieces.len();
        let mut rest = word.as_str();
        let mut known = &self.beginnings;
        if word.chars().count() > MAX_WORD_LEN {
            rest = "";
            pieces.push(self.unknown);
        }
        while !rest.is_empty() {
            let Some((id, length)) = longest(known, rest) else {
                pieces.truncate(before);
                pieces.push(self.unknown);
                break;
            };
            pieces.push(id);
            rest = &rest[length..];
            known = &self.continuations;
        }
        word.clear();
    }
}

/// What a piece continues a word with, if it does.
#[expect(clippy::ptr_arg, reason = "what is borrowed of the program stays so")]
fn continuation(piece: &Cow<'static, str>) -> Option<Cow<'static, str>> {
    let rest = match piece {
        Cow::Borrowed(piece) => Cow::Borrowed(piece.strip_prefix("##")?),
        Cow::Owned(piece) => Cow::Owned(piece.strip_prefix("##")?.to_owned()),
    };
    (!rest.is_empty()).then_some(rest)
}

/// The longest known piece that a text begins with, and its length.
fn longest(known: &HashMap<Cow<'static, str>, u32>, text: &str) -> Option<(u32, usize)> {
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
