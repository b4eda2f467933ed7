//! Sentence models of the BERT family, of any size: the pieces of a text go through the layers, and the mean of the
//! output is the vector of the text.
//!
//! - here: the layers; [`linear`]: their arithmetic; [`wordpiece`]: from text to pieces
//! - [`reference`]: the same in plain arithmetic
//! - [`tensors`]: the file format of weights; [`packed`], [`plain`]: their encodings; [`table`]: tables of words and
//!   positions

mod linear;
#[cfg(feature = "builtin-model")]
mod packed;
mod plain;
#[cfg(any(test, feature = "reference"))]
mod reference;
mod table;
mod tensors;
mod wordpiece;

use linear::Linear;
#[cfg(feature = "builtin-model")]
pub(crate) use packed::{Packed, PackedForm};
pub(crate) use plain::Plain;
use table::Table;
#[cfg(any(feature = "builtin-model", feature = "table"))]
pub(crate) use tensors::Tensors;
pub(crate) use tensors::{Weights, WeightsError};
pub(crate) use wordpiece::{Folding, WordPiece};

use crate::kernel::{Kernel, LANES};
use crate::vectors::dot;

/// How many pieces go through a layer together. More is not faster, and takes more memory.
const MAX_BATCH_PIECES: usize = 256;

/// The dimensions of a model. Widths are multiples of four, and `hidden` of `heads`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// The width of a piece, and of a vector.
    pub(crate) hidden: usize,
    /// The width inside a layer.
    pub(crate) inner: usize,
    pub(crate) heads: usize,
    pub(crate) layers: usize,
    /// The size of the vocabulary.
    pub(crate) words: usize,
    /// The number of positions.
    pub(crate) positions: usize,
    /// The number of token types; ours are all of the first.
    pub(crate) kinds: usize,
    /// How many pieces of a text are used.
    pub(crate) longest_text: usize,
    /// Avoids division by zero.
    pub(crate) epsilon: f32,
}

/// How the layers are computed.
#[derive(Clone, Copy, Debug)]
enum Arithmetic {
    Fast(Kernel),
    /// Slowly, for comparison.
    #[cfg(any(test, feature = "reference"))]
    Reference,
}

/// A sentence model.
pub(crate) struct Bert {
    shape: Shape,
    arithmetic: Arithmetic,
    pieces: WordPiece,
    words: Table,
    positions: Table,
    kind: Vec<f32>,
    first_norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    shape: Shape,
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    inner: Linear,
    outer: Linear,
    outer_norm: Norm,
}

struct Norm {
    scale: Vec<f32>,
    shift: Vec<f32>,
    epsilon: f32,
}

impl Bert {
    pub(crate) fn read(shape: Shape, pieces: WordPiece, weights: &impl Weights) -> Result<Self, WeightsError> {
        let kinds = weights.table("embeddings.token_type_embeddings.weight", shape.kinds, shape.hidden)?;
        let mut kind = vec![0.0; shape.hidden];
        kinds.add_row(0, &mut kind);
        Ok(Self {
            shape,
            arithmetic: Arithmetic::Fast(Kernel::best()),
            pieces,
            words: weights.table("embeddings.word_embeddings.weight", shape.words, shape.hidden)?,
            positions: weights.table("embeddings.position_embeddings.weight", shape.positions, shape.hidden)?,
            kind,
            first_norm: Norm::read(weights, shape, "embeddings.LayerNorm")?,
            layers: (0..shape.layers).map(|number| Layer::read(weights, shape, number)).collect::<Result<_, _>>()?,
        })
    }

    /// The same, computed in plain arithmetic.
    #[cfg(any(test, feature = "reference"))]
    pub(crate) fn into_reference(self) -> Self {
        Self { arithmetic: Arithmetic::Reference, ..self }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.shape.hidden
    }

    /// The numbers of a text's pieces.
    pub(crate) fn pieces(&self, text: &str) -> Vec<u32> {
        self.pieces.encode(text, self.shape.longest_text)
    }

    /// Whether a word is a piece of its own.
    #[cfg(feature = "builtin-model")]
    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.pieces.has_word(word)
    }

    /// The vectors of some texts.
    pub(crate) fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut waiting = Vec::new();
        let mut pieces = 0;
        for text in texts {
            let text = self.pieces(text);
            pieces += text.len();
            waiting.push(text);
            if pieces >= MAX_BATCH_PIECES {
                vectors.extend(self.embed_together(&waiting));
                waiting.clear();
                pieces = 0;
            }
        }
        vectors.extend(self.embed_together(&waiting));
        vectors
    }

    /// The vectors of texts that have not too many pieces together. They are concatenated and each attends only to
    /// itself, so nothing is padded and no text changes the vector of another.
    fn embed_together(&self, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
        let width = self.shape.hidden;
        let mut hidden = Vec::new();
        for text in texts {
            for (place, piece) in text.iter().enumerate() {
                let start = hidden.len();
                hidden.extend_from_slice(&self.kind);
                self.words.add_row(*piece as usize, &mut hidden[start..]);
                self.positions.add_row(place, &mut hidden[start..]);
            }
        }
        self.first_norm.apply(&mut hidden);
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        for layer in &self.layers {
            hidden = layer.apply(&hidden, &lengths, self.arithmetic);
        }
        let mut rest = hidden.as_slice();
        let mut pooled = Vec::new();
        for length in lengths {
            let (text, others) = rest.split_at(length * width);
            pooled.push(mean(text, width));
            rest = others;
        }
        pooled
    }
}

impl Layer {
    fn read(weights: &impl Weights, shape: Shape, number: usize) -> Result<Self, WeightsError> {
        let Shape { hidden, inner, .. } = shape;
        let linear =
            |part: &str, outputs, width| weights.linear(&format!("encoder.layer.{number}.{part}"), outputs, width);
        let norm = |part: &str| Norm::read(weights, shape, &format!("encoder.layer.{number}.{part}.LayerNorm"));
        Ok(Self {
            shape,
            query: linear("attention.self.query", hidden, hidden)?,
            key: linear("attention.self.key", hidden, hidden)?,
            value: linear("attention.self.value", hidden, hidden)?,
            attended: linear("attention.output.dense", hidden, hidden)?,
            attended_norm: norm("attention.output")?,
            inner: linear("intermediate.dense", inner, hidden)?,
            outer: linear("output.dense", hidden, inner)?,
            outer_norm: norm("output")?,
        })
    }

    fn apply(&self, hidden: &[f32], lengths: &[usize], arithmetic: Arithmetic) -> Vec<f32> {
        let kernel = arithmetic.kernel();
        let [query, key, value] = Linear::apply_all([&self.query, &self.key, &self.value], hidden, kernel);
        let mut context = vec![0.0; hidden.len()];
        let mut start = 0;
        for length in lengths {
            let text = start..start + length * self.shape.hidden;
            let parts = [&query, &key, &value].map(|part| &part[text.clone()]);
            self.attend(parts, &mut context[text.clone()], arithmetic);
            start = text.end;
        }
        let mut attended = self.attended.apply(&context, kernel);
        add(&mut attended, hidden);
        self.attended_norm.apply(&mut attended);
        let mut inner = self.inner.apply(&attended, kernel);
        arithmetic.gelu(&mut inner);
        let mut outer = self.outer.apply(&inner, kernel);
        add(&mut outer, &attended);
        self.outer_norm.apply(&mut outer);
        outer
    }

    /// Self-attention within a text, for each head: its parts of the rows are put together before.
    fn attend(&self, parts: [&[f32]; 3], context: &mut [f32], arithmetic: Arithmetic) {
        let Shape { hidden, heads, .. } = self.shape;
        let width = hidden / heads;
        let padded = width.next_multiple_of(LANES);
        let nearer = (width as f32).sqrt().recip();
        let pieces = context.len() / hidden;
        let mut of_head = [(); 3].map(|()| vec![0.0; pieces * padded]);
        let mut result = vec![0.0; pieces * padded];
        for head in 0..heads {
            let place = head * width..(head + 1) * width;
            for (of_head, part) in of_head.iter_mut().zip(parts) {
                for (row, part) in of_head.chunks_exact_mut(padded).zip(part.chunks_exact(hidden)) {
                    row[..width].copy_from_slice(&part[place.clone()]);
                }
            }
            let [query, key, value] = &mut of_head;
            query.iter_mut().for_each(|number| *number *= nearer);
            arithmetic.attend([query, key, value], padded, &mut result);
            for (row, result) in context.chunks_exact_mut(hidden).zip(result.chunks_exact(padded)) {
                row[place.clone()].copy_from_slice(&result[..width]);
            }
        }
    }
}

impl Arithmetic {
    /// What multiplies matrices. In the reference they are in 16 bits, which have one kernel.
    fn kernel(self) -> Kernel {
        match self {
            Self::Fast(kernel) => kernel,
            #[cfg(any(test, feature = "reference"))]
            Self::Reference => Kernel::best(),
        }
    }

    fn gelu(self, values: &mut [f32]) {
        match self {
            Self::Fast(kernel) => kernel.gelu(values),
            #[cfg(any(test, feature = "reference"))]
            Self::Reference => reference::gelu(values),
        }
    }

    fn attend(self, [query, key, value]: [&[f32]; 3], width: usize, result: &mut [f32]) {
        match self {
            Self::Fast(kernel) => kernel.attend(query, key, value, width, result),
            #[cfg(any(test, feature = "reference"))]
            Self::Reference => reference::attend(query, key, value, width, result),
        }
    }
}

impl Norm {
    fn read(weights: &impl Weights, shape: Shape, name: &str) -> Result<Self, WeightsError> {
        Ok(Self {
            scale: weights.floats(&format!("{name}.weight"), shape.hidden)?,
            shift: weights.floats(&format!("{name}.bias"), shape.hidden)?,
            epsilon: shape.epsilon,
        })
    }

    fn apply(&self, values: &mut [f32]) {
        let width = self.scale.len();
        for row in values.chunks_exact_mut(width) {
            let mean = sum(row) / width as f32;
            row.iter_mut().for_each(|value| *value -= mean);
            let variance = dot(row, row) / width as f32;
            let factor = (variance + self.epsilon).sqrt().recip();
            for ((value, scale), shift) in row.iter_mut().zip(&self.scale).zip(&self.shift) {
                *value = *value * factor * scale + shift;
            }
        }
    }
}

/// A sum in eight parts side by side, so that it becomes vector instructions.
fn sum(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<8>();
    let mut sums = [0.0_f32; 8];
    for chunk in chunks {
        for lane in 0..8 {
            sums[lane] += chunk[lane];
        }
    }
    sums.iter().chain(rest).sum()
}

fn add(values: &mut [f32], others: &[f32]) {
    values.iter_mut().zip(others).for_each(|(value, other)| *value += other);
}

/// The mean of a text's pieces.
fn mean(text: &[f32], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    for row in text.chunks_exact(width) {
        add(&mut sum, row);
    }
    let pieces = (text.len() / width) as f32;
    sum.iter_mut().for_each(|value| *value /= pieces);
    sum
}

/// A 16-bit float.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f32::from(bits & 0x3ff);
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        31 => f32::NAN,
        _ => sign * (1024.0 + fraction) * 2.0_f32.powi(exponent - 25),
    }
}
