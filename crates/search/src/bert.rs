//! Sentence models of the BERT family, whatever their size: the pieces of a text go through the layers, and the mean of
//! what comes out is its vector.
//!
//! - here: the layers; [`linear`]: their arithmetic; [`wordpiece`]: from text to pieces
//! - [`tensors`]: the file that weights come in; [`packed`], [`plain`]: the forms that they have there; [`table`]: those of
//!   words and places

mod linear;
#[cfg(feature = "builtin-model")]
mod packed;
mod plain;
mod table;
mod tensors;
mod wordpiece;

use linear::Linear;
#[cfg(feature = "builtin-model")]
pub(crate) use packed::Packed;
pub(crate) use plain::Plain;
use table::Table;
#[cfg(feature = "builtin-model")]
pub(crate) use tensors::Tensors;
pub(crate) use tensors::{Weights, WeightsError};
pub(crate) use wordpiece::{Folding, WordPiece};

use crate::vectors::dot;

/// Pieces that go through a layer together. More does not make it faster, and would take more memory.
const TOGETHER: usize = 256;

/// How large a model is. Widths are multiples of four, and `hidden` one of `heads`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Numbers of a piece, and of a vector.
    pub(crate) hidden: usize,
    /// Numbers of a piece in the middle of a layer.
    pub(crate) inner: usize,
    pub(crate) heads: usize,
    pub(crate) layers: usize,
    /// Pieces that the model knows.
    pub(crate) words: usize,
    /// Places that it knows.
    pub(crate) positions: usize,
    /// Kinds of text that it knows; all of ours are of the first.
    pub(crate) kinds: usize,
    /// Pieces of a text that are looked at.
    pub(crate) longest_text: usize,
    /// Keeps a division from being one by nothing.
    pub(crate) epsilon: f32,
}

/// A sentence model.
pub(crate) struct Bert {
    shape: Shape,
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
            pieces,
            words: weights.table("embeddings.word_embeddings.weight", shape.words, shape.hidden)?,
            positions: weights.table("embeddings.position_embeddings.weight", shape.positions, shape.hidden)?,
            kind,
            first_norm: Norm::read(weights, shape, "embeddings.LayerNorm")?,
            layers: (0..shape.layers).map(|number| Layer::read(weights, shape, number)).collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn dimension(&self) -> usize {
        self.shape.hidden
    }

    /// The vectors of some texts.
    pub(crate) fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut waiting = Vec::new();
        let mut pieces = 0;
        for text in texts {
            let text = self.pieces.encode(text, self.shape.longest_text);
            pieces += text.len();
            waiting.push(text);
            if pieces >= TOGETHER {
                vectors.extend(self.embed_together(&waiting));
                waiting.clear();
                pieces = 0;
            }
        }
        vectors.extend(self.embed_together(&waiting));
        vectors
    }

    /// The vectors of some texts that are not too many pieces together. They stand one after the other and each looks
    /// only at itself, so nothing is filled up and no text changes another's vector.
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
            hidden = layer.apply(&hidden, &lengths);
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

    fn apply(&self, hidden: &[f32], lengths: &[usize]) -> Vec<f32> {
        let (query, key, value) = (self.query.apply(hidden), self.key.apply(hidden), self.value.apply(hidden));
        let mut context = vec![0.0; hidden.len()];
        let mut start = 0;
        for length in lengths {
            let text = start..start + length * self.shape.hidden;
            self.attend(&query[text.clone()], &key[text.clone()], &value[text.clone()], &mut context[text.clone()]);
            start = text.end;
        }
        let mut attended = self.attended.apply(&context);
        add(&mut attended, hidden);
        self.attended_norm.apply(&mut attended);
        let mut inner = self.inner.apply(&attended);
        inner.iter_mut().for_each(|value| *value = gelu(*value));
        let mut outer = self.outer.apply(&inner);
        add(&mut outer, &attended);
        self.outer_norm.apply(&mut outer);
        outer
    }

    /// Every piece of a text looks at every other, with each of its heads.
    fn attend(&self, query: &[f32], key: &[f32], value: &[f32], context: &mut [f32]) {
        let Shape { hidden, heads, .. } = self.shape;
        let width = hidden / heads;
        let nearer = (width as f32).sqrt().recip();
        let mut weights = vec![0.0_f32; query.len() / hidden];
        for head in 0..heads {
            let part = |row: usize| row * hidden + head * width..row * hidden + (head + 1) * width;
            for row in 0..weights.len() {
                let asking = &query[part(row)];
                for (other, weight) in weights.iter_mut().enumerate() {
                    *weight = dot(asking, &key[part(other)]) * nearer;
                }
                soften(&mut weights);
                let sum = &mut context[part(row)];
                for (other, weight) in weights.iter().enumerate() {
                    for (sum, told) in sum.iter_mut().zip(&value[part(other)]) {
                        *sum += weight * told;
                    }
                }
            }
        }
    }
}

/// Softmax: positive, and one together.
fn soften(weights: &mut [f32]) {
    let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    weights.iter_mut().for_each(|weight| *weight = (*weight - largest).exp());
    let sum: f32 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
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
            let mean = row.iter().sum::<f32>() / width as f32;
            row.iter_mut().for_each(|value| *value -= mean);
            let variance = dot(row, row) / width as f32;
            let factor = (variance + self.epsilon).sqrt().recip();
            for ((value, scale), shift) in row.iter_mut().zip(&self.scale).zip(&self.shift) {
                *value = *value * factor * scale + shift;
            }
        }
    }
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

/// The Gaussian error linear unit, with the error function of Abramowitz and Stegun 7.1.26 (off by 1.5e-7 at most).
fn gelu(value: f32) -> f32 {
    let x = value.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = (1.0 + 0.327_591_1 * x).recip();
    let series = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_8) * t - 0.284_496_74) * t + 0.254_829_6) * t;
    let erf = (1.0 - series * (-x * x).exp()).copysign(value);
    0.5 * value * (1.0 + erf)
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
