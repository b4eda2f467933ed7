//! The table: a vector for each piece of a word and a gate, which together make a rough vector of a text in microseconds.
//!
//! Tools are found by it until their own vectors are made, and in builds without the encoder always.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::VOCABULARY;
use crate::bert::{Folding, Tensors, WeightsError, WordPiece};
use crate::columns::{Columns, Inputs};
use crate::kernel::Kernel;
use crate::vectors::{dot, normalized};

const TABLE: &[u8] = include_bytes!("../model/table.safetensors");
/// Numbers of a vector.
pub(crate) const WIDTH: usize = 256;
const WORDS: usize = 30_522;
/// Pieces of a text that are used, with the opening and the closing one.
const LONGEST_TEXT: usize = 128;
/// How sharply the gate tells pieces that belong to a text from others.
const SHARPNESS: f32 = 4.0;

/// The table that comes with the program.
pub(crate) struct WordTable {
    pieces: WordPiece,
    rows: &'static [u8],
    scales: Vec<f32>,
    gate: Columns,
}

impl WordTable {
    /// The one copy in this process, made when it is first asked for.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<WordTable> = OnceLock::new();
        SHARED.get_or_init(|| Self::read().expect("the table that is compiled in is whole"))
    }

    fn read() -> Result<Self, WeightsError> {
        let file = Tensors::read(TABLE)?;
        let bytes = |name: &str, length: usize| {
            let (_, bytes) = file.get(name)?;
            if bytes.len() == length { Ok(bytes) } else { Err(WeightsError::Lacks(name.to_owned())) }
        };
        let floats = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        let gate: Vec<f32> = floats(bytes("gate", WIDTH * WIDTH * 4)?);
        let pieces =
            WordPiece::new(VOCABULARY.lines().map(Cow::Borrowed).zip(0..), Folding { case: true, accents: true });
        Ok(Self {
            pieces: pieces.expect("the vocabulary that is compiled in is whole"),
            rows: bytes("rows", WORDS * WIDTH)?,
            scales: floats(bytes("scales", WORDS * 4)?),
            gate: Columns::scaled(&gate, WIDTH),
        })
    }

    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.pieces.has_word(word)
    }

    /// The vector of a text, of length one; zero for a text without pieces.
    pub(crate) fn embed(&self, text: &str) -> Vec<f32> {
        let pieces = self.pieces.encode(text, LONGEST_TEXT);
        let pieces = &pieces[1..pieces.len() - 1];
        let mut rows = Vec::with_capacity(pieces.len() * WIDTH);
        for piece in pieces {
            let piece = *piece as usize;
            let numbers = &self.rows[piece * WIDTH..][..WIDTH];
            rows.extend(numbers.iter().map(|number| f32::from(number.cast_signed()) * self.scales[piece]));
        }
        let mut sum = vec![0.0; WIDTH];
        for row in rows.chunks_exact(WIDTH) {
            sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        }
        let Some(middle) = normalized(&sum) else { return vec![0.0; WIDTH] };
        let kernel = Kernel::best();
        let products = self.gate.multiply(&Inputs::in_two_parts(&middle, WIDTH, kernel), kernel);
        let (coarse, fine) = products.split_at(WIDTH);
        let gated: Vec<f32> = coarse.iter().zip(fine).map(|(coarse, fine)| coarse + fine).collect();
        sum.fill(0.0);
        for row in rows.chunks_exact(WIDTH) {
            let gate = 2.0 / (1.0 + (-SHARPNESS * dot(row, &gated)).exp());
            sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += gate * number);
        }
        normalized(&sum).unwrap_or(sum)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn vectors_are_those_of_an_independent_implementation() {
        #[derive(Deserialize)]
        struct Parity {
            texts: Vec<Text>,
        }
        #[derive(Deserialize)]
        struct Text {
            text: String,
            table: Vec<f32>,
        }
        let Parity { texts } =
            serde_json::from_str(include_str!("../tests/quality/parity.json")).expect("the file has this form");
        for Text { text, table } in texts {
            let vector = WordTable::shared().embed(&text);
            for (number, expected) in vector.iter().zip(table) {
                assert!((number - expected).abs() < 1e-3, "{text}: {number} instead of {expected}");
            }
        }
        assert_eq!(WordTable::shared().embed(""), [0.0; WIDTH]);
    }
}
