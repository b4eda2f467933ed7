//! The model that comes with the program: paraphrase-MiniLM-L3-v2, a sentence transformer of three layers.
//!
//! `model/README.md` tells where its weights come from. They are kept in four bits; the layers' are unpacked into
//! 16-bit integers at the start (11 MB), the table of words stays as it is.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::bert::{Bert, Folding, Packed, Shape, Tensors, WeightsError, WordPiece};
use crate::embedder::{EmbedError, Embedder};

const WEIGHTS: &[u8] = include_bytes!("../model/minilm-l3.safetensors");
const VOCABULARY: &str = include_str!("../model/vocabulary.txt");

/// Names the model and how its weights are kept.
pub(crate) const ID: &str = "paraphrase-minilm-l3-v2/q4";
pub(crate) const HIDDEN: usize = SHAPE.hidden;
const SHAPE: Shape = Shape {
    hidden: 384,
    inner: 1536,
    heads: 12,
    layers: 3,
    words: 30_522,
    positions: 512,
    kinds: 2,
    // The model was trained with as many.
    longest_text: 128,
    epsilon: 1e-12,
};

/// The built-in sentence model.
pub struct MiniLm(Bert);

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
        let pieces = VOCABULARY.lines().map(Cow::Borrowed).zip(0..);
        let pieces = WordPiece::new(pieces, Folding { case: true, accents: true });
        let pieces = pieces.expect("the vocabulary that is compiled in is whole");
        Ok(Self(Bert::read(SHAPE, pieces, &Packed(Tensors::read(file)?))?))
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
        Ok(self.0.embed(texts))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::SentenceModel;
    use crate::vectors::{dot, normalized};

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

    #[test]
    fn its_weights_written_out_in_floats_are_a_model_with_the_same_vectors() {
        let files = written_out();
        let model = SentenceModel::read("l3", |name| Ok(files.get(name).cloned())).expect("the files are whole");
        let texts = ["create a new issue in the project repository", "Send a document", "天气 ümlaut 🦀", ""];
        let made = model.embed(&texts).expect("a model at hand always answers");
        for (mine, own) in made.iter().zip(embed(&texts)) {
            assert!(dot(mine, &own) > 0.9999, "{}", dot(mine, &own));
        }
    }

    /// The built-in model as it would have been published.
    fn written_out() -> HashMap<&'static str, Vec<u8>> {
        let file = Tensors::read(WEIGHTS).expect("the weights that are compiled in are whole");
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, shape, values) in Packed(file).all() {
            let start = data.len();
            data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
        }
        let header = serde_json::Value::from(header).to_string();
        let mut weights = (header.len() as u64).to_le_bytes().to_vec();
        weights.extend(header.bytes());
        weights.extend(data);
        let config = json!({
            "model_type": "bert", "hidden_size": SHAPE.hidden, "intermediate_size": SHAPE.inner, "vocab_size": SHAPE.words,
            "num_attention_heads": SHAPE.heads, "num_hidden_layers": SHAPE.layers,
            "max_position_embeddings": SHAPE.positions,
        });
        let length = json!({"max_seq_length": SHAPE.longest_text});
        HashMap::from([
            ("config.json", config.to_string().into_bytes()),
            ("sentence_bert_config.json", length.to_string().into_bytes()),
            ("vocab.txt", VOCABULARY.as_bytes().to_vec()),
            ("model.safetensors", weights),
        ])
    }
}
