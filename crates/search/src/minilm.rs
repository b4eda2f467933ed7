//! The model that comes with the program: paraphrase-MiniLM-L3-v2, a sentence transformer of three layers.
//!
//! `model/README.md` tells where its weights come from. They are kept in four bits; the layers' are unpacked into
//! 16-bit integers at the start (11 MB), the table of words stays as it is.

mod linear;
mod weights;
mod wordpiece;

use std::sync::OnceLock;

use linear::Linear;
pub use weights::WeightsError;
use weights::{Table, Tensors};
use wordpiece::WordPiece;

use crate::embedder::{EmbedError, Embedder};
use crate::vectors::dot;

const WEIGHTS: &[u8] = include_bytes!("../model/minilm-l3.safetensors");
const VOCABULARY: &str = include_str!("../model/vocabulary.txt");

/// Names the model and how its weights are kept.
pub(crate) const ID: &str = "paraphrase-minilm-l3-v2/q4";
pub(crate) const HIDDEN: usize = 384;
const INNER: usize = 1536;
const HEADS: usize = 12;
const HEAD: usize = HIDDEN / HEADS;
const LAYERS: usize = 3;
const WORDS: usize = 30_522;
const POSITIONS: usize = 512;
/// Pieces of a text that are looked at. The model was trained with as many.
const LONGEST_TEXT: usize = 128;
/// Pieces that go through a layer together. More does not make it faster, and would take more memory.
const TOGETHER: usize = 256;

/// The built-in sentence model.
pub struct MiniLm {
    pieces: WordPiece,
    words: Table<'static>,
    positions: Table<'static>,
    kinds: Vec<f32>,
    first_norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
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
}

impl MiniLm {
    /// The one copy of the model in this process, made when it is first asked for.
    ///
    /// # Panics
    /// Never: the weights are compiled in, and a test reads them.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MiniLm> = OnceLock::new();
        SHARED.get_or_init(|| Self::read(WEIGHTS).expect("the weights that are compiled in are whole"))
    }

    fn read(file: &'static [u8]) -> Result<Self, WeightsError> {
        let tensors = Tensors::read(file)?;
        let kinds = tensors.table("embeddings.token_type_embeddings.weight", 2, HIDDEN)?;
        Ok(Self {
            pieces: WordPiece::new(VOCABULARY),
            words: tensors.table("embeddings.word_embeddings.weight", WORDS, HIDDEN)?,
            positions: tensors.table("embeddings.position_embeddings.weight", POSITIONS, HIDDEN)?,
            kinds: kinds.row(0).collect(),
            first_norm: Norm::read(&tensors, "embeddings.LayerNorm")?,
            layers: (0..LAYERS).map(|number| Layer::read(&tensors, number)).collect::<Result<_, _>>()?,
        })
    }

    /// The vectors of some texts that are not too many pieces together.
    fn embed_together(&self, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
        let mut hidden = Vec::new();
        for text in texts {
            for (place, piece) in text.iter().enumerate() {
                let word = self.words.row(*piece as usize);
                let sum = word.zip(self.positions.row(place)).zip(&self.kinds);
                hidden.extend(sum.map(|((word, position), kind)| word + position + kind));
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
            let (text, others) = rest.split_at(length * HIDDEN);
            pooled.push(mean(text));
            rest = others;
        }
        pooled
    }
}

impl Embedder for MiniLm {
    fn id(&self) -> &'static str {
        ID
    }

    fn dimension(&self) -> usize {
        HIDDEN
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut waiting = Vec::new();
        let mut pieces = 0;
        for text in texts {
            let text = self.pieces.encode(text, LONGEST_TEXT);
            pieces += text.len();
            waiting.push(text);
            if pieces >= TOGETHER {
                vectors.extend(self.embed_together(&waiting));
                waiting.clear();
                pieces = 0;
            }
        }
        vectors.extend(self.embed_together(&waiting));
        Ok(vectors)
    }
}

impl Layer {
    fn read(tensors: &Tensors, number: usize) -> Result<Self, WeightsError> {
        let linear =
            |part: &str, outputs, width| tensors.linear(&format!("encoder.layer.{number}.{part}"), outputs, width);
        let norm = |part: &str| Norm::read(tensors, &format!("encoder.layer.{number}.{part}.LayerNorm"));
        Ok(Self {
            query: linear("attention.self.query", HIDDEN, HIDDEN)?,
            key: linear("attention.self.key", HIDDEN, HIDDEN)?,
            value: linear("attention.self.value", HIDDEN, HIDDEN)?,
            attended: linear("attention.output.dense", HIDDEN, HIDDEN)?,
            attended_norm: norm("attention.output")?,
            inner: linear("intermediate.dense", INNER, HIDDEN)?,
            outer: linear("output.dense", HIDDEN, INNER)?,
            outer_norm: norm("output")?,
        })
    }

    fn apply(&self, hidden: &[f32], lengths: &[usize]) -> Vec<f32> {
        let (query, key, value) = (self.query.apply(hidden), self.key.apply(hidden), self.value.apply(hidden));
        let mut context = vec![0.0; hidden.len()];
        let mut start = 0;
        for length in lengths {
            let text = start..start + length * HIDDEN;
            attend(&query[text.clone()], &key[text.clone()], &value[text.clone()], &mut context[text.clone()]);
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
}

/// Every piece of a text looks at every other, with each of its heads.
fn attend(query: &[f32], key: &[f32], value: &[f32], context: &mut [f32]) {
    let length = query.len() / HIDDEN;
    let mut weights = vec![0.0_f32; length];
    for head in 0..HEADS {
        let part = |rows: &'_ [f32], row: usize| -> [f32; HEAD] {
            rows[row * HIDDEN + head * HEAD..][..HEAD].try_into().expect("a head is as long as a head")
        };
        for row in 0..length {
            let asking = part(query, row);
            for (other, weight) in weights.iter_mut().enumerate() {
                *weight = dot(&asking, &part(key, other)) / (HEAD as f32).sqrt();
            }
            soften(&mut weights);
            let mut sum = [0.0; HEAD];
            for (other, weight) in weights.iter().enumerate() {
                let told = part(value, other);
                for (sum, told) in sum.iter_mut().zip(told) {
                    *sum += weight * told;
                }
            }
            context[row * HIDDEN + head * HEAD..][..HEAD].copy_from_slice(&sum);
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
    fn read(tensors: &Tensors, name: &str) -> Result<Self, WeightsError> {
        Ok(Self {
            scale: tensors.floats(&format!("{name}.weight"), HIDDEN)?,
            shift: tensors.floats(&format!("{name}.bias"), HIDDEN)?,
        })
    }

    fn apply(&self, values: &mut [f32]) {
        for row in values.as_chunks_mut::<HIDDEN>().0 {
            let mean = dot(row, &[1.0; HIDDEN]) / HIDDEN as f32;
            row.iter_mut().for_each(|value| *value -= mean);
            let variance = dot(row, row) / HIDDEN as f32;
            let factor = (variance + 1e-12).sqrt().recip();
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
fn mean(text: &[f32]) -> Vec<f32> {
    let mut sum = vec![0.0; HIDDEN];
    for row in text.as_chunks::<HIDDEN>().0 {
        add(&mut sum, row);
    }
    let pieces = (text.len() / HIDDEN) as f32;
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

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::vectors::normalized;

    fn embed(texts: &[&str]) -> Vec<Vec<f32>> {
        let vectors = MiniLm::shared().embed(texts).expect("the built-in model always answers");
        vectors.iter().map(|vector| normalized(vector).expect("every text has a direction")).collect()
    }

    #[test]
    fn the_weights_are_those_that_the_readme_tells_of() {
        let digest: String = Sha256::digest(WEIGHTS).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(include_str!("../model/README.md").contains(&digest), "{digest}");
    }

    #[test]
    fn vectors_are_those_of_a_plain_implementation_in_floats() {
        // Computed once with NumPy, from the same weights.
        let expected = [
            -0.07922, -0.01198, -0.09803, 0.08388, 0.00861, -0.02727, -0.01886, -0.05799, 0.08291, 0.01577, -0.00658,
            0.02114,
        ];
        let vector = &embed(&["create a new issue in the project repository"])[0];
        for (number, expected) in vector.iter().zip(expected) {
            assert!((number - expected).abs() < 1e-3, "{number} instead of {expected}");
        }
    }

    #[test]
    fn texts_of_like_meaning_are_near_each_other() {
        let vectors = embed(&["Send a document", "Transfer a file", "A volcano erupts"]);
        assert!(dot(&vectors[0], &vectors[1]) > dot(&vectors[0], &vectors[2]) + 0.2);
    }

    #[test]
    fn a_text_has_the_same_vector_whatever_is_embedded_with_it() {
        let long = "word ".repeat(500);
        let together = embed(&["Send a document", &long, "", "天气 \u{0} 🦀", "Transfer a file"]);
        for (place, text) in ["Send a document", &long, "", "天气 \u{0} 🦀", "Transfer a file"].iter().enumerate() {
            assert_eq!(embed(&[text])[0], together[place]);
        }
        assert!(embed(&[]).is_empty());
    }
}
