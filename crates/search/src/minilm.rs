//! The model that comes with the program: a sentence transformer of three layers, trained to find tools.
//!
//! `model/NOTICE.md` says where its weights come from. They are kept in four bits; those of the layers are
//! arranged for the kernels at the start (3 MB), the table of words stays as it is.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::VOCABULARY;
use crate::bert::{Bert, Folding, Packed, PackedForm, Shape, Tensors, WeightsError, WordPiece};
use crate::embedder::{EmbedError, Embedder};
use crate::language::is_readable;

const WEIGHTS: &[u8] = include_bytes!("../model/model.safetensors");

/// Names the model and how its weights are kept.
pub(crate) const ID: &str = "minilm-l3-tools-1/q4";
/// The model that this one was trained from. Tools with its vectors are found nearly as well.
pub(crate) const EARLIER_IDS: &[&str] = &["paraphrase-minilm-l3-v2/q4"];
pub(crate) const HIDDEN: usize = SHAPE.hidden;
const SHAPE: Shape = Shape {
    hidden: 384,
    inner: 1536,
    heads: 12,
    layers: 3,
    words: 30_522,
    positions: 512,
    kinds: 2,
    // The model was trained with this many pieces.
    longest_text: 128,
    epsilon: 1e-12,
};

/// The built-in sentence model.
pub struct MiniLm(Bert);

impl MiniLm {
    /// The shared instance of the model, created on first use.
    ///
    /// # Panics
    ///
    /// Never: the weights are compiled in, and a test reads them.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MiniLm> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::read(WEIGHTS, PackedForm::FourBits).expect("the weights that are compiled in are whole")
        })
    }

    /// The same model with weights in 16 bits and layers in plain arithmetic: accurate and slow.
    ///
    /// # Panics
    /// Never: the weights are compiled in, and a test reads them.
    #[cfg(any(test, feature = "reference"))]
    pub fn reference() -> &'static Self {
        static REFERENCE: OnceLock<MiniLm> = OnceLock::new();
        REFERENCE.get_or_init(|| {
            let model = Self::read(WEIGHTS, PackedForm::SixteenBits);
            Self(model.expect("the weights that are compiled in are whole").0.into_reference())
        })
    }

    fn read(file: &'static [u8], form: PackedForm) -> Result<Self, WeightsError> {
        let pieces = VOCABULARY.lines().map(Cow::Borrowed).zip(0..);
        let pieces = WordPiece::new(pieces, Folding { case: true, accents: true });
        let pieces = pieces.expect("the vocabulary that is compiled in is whole");
        Ok(Self(Bert::read(SHAPE, pieces, &Packed { tensors: Tensors::read(file)?, form })?))
    }
}

impl Embedder for MiniLm {
    fn id(&self) -> &'static str {
        ID
    }

    fn earlier_ids(&self) -> &[&str] {
        EARLIER_IDS
    }

    fn dimension(&self) -> usize {
        HIDDEN
    }

    fn reads(&self, request: &str, is_known: &dyn Fn(&str) -> bool) -> bool {
        is_readable(request, |word| self.0.has_word(word) || is_known(word))
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(self.0.embed(texts))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;
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
    fn the_weights_match_the_readme() {
        let digest: String = Sha256::digest(WEIGHTS).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(include_str!("../model/README.md").contains(&digest), "{digest}");
    }

    #[test]
    fn pieces_and_vectors_are_those_of_an_independent_implementation() {
        #[derive(Deserialize)]
        struct Parity {
            texts: Vec<Text>,
        }
        #[derive(Deserialize)]
        struct Text {
            text: String,
            pieces: Vec<u32>,
            encoder: Vec<f32>,
        }
        let Parity { texts } =
            serde_json::from_str(include_str!("../tests/quality/parity.json")).expect("the file has this form");
        for Text { text, pieces, encoder } in texts {
            assert_eq!(MiniLm::shared().0.pieces(&text), pieces, "{text}");
            for (number, expected) in embed(&[&text])[0].iter().zip(encoder) {
                assert!((number - expected).abs() < 5e-3, "{text}: {number} instead of {expected}");
            }
        }
    }

    #[test]
    fn the_kernels_make_nearly_the_vectors_of_the_reference() {
        let texts = ["create a new issue in the project repository", "Send a document", "天气 ümlaut 🦀", "x"];
        let reference = MiniLm::reference().embed(&texts).expect("the built-in model always answers");
        for ((text, mine), reference) in texts.iter().zip(embed(&texts)).zip(reference) {
            let near = dot(&mine, &normalized(&reference).expect("every text has a direction"));
            assert!(near > 0.997, "{text}: {near}");
        }
    }

    #[test]
    fn vectors_are_the_same_on_every_machine_to_the_bit() {
        let texts = ["create a new issue in the project repository", "Send a document", "天气 ümlaut 🦀", "x"];
        let numbers = embed(&texts).into_iter().flatten().flat_map(f32::to_le_bytes);
        let digest: String =
            Sha256::digest(numbers.collect::<Vec<u8>>())[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, "a96a089613900b2c", "only a change of the model or of its arithmetic may change this");
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
        let own = MiniLm::reference().embed(&texts).expect("the built-in model always answers");
        for (mine, own) in made.iter().zip(own) {
            let near = dot(mine, &normalized(&own).expect("every text has a direction"));
            assert!(near > 0.9999, "{near}");
        }
    }

    /// The built-in model in its published encoding.
    fn written_out() -> HashMap<&'static str, Vec<u8>> {
        let file = Tensors::read(WEIGHTS).expect("the weights that are compiled in are whole");
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, shape, values) in (Packed { tensors: file, form: PackedForm::FourBits }).all() {
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
