//! A tiny sentence model for tests: real files, random weights.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The encoding of its weights.
#[derive(Clone, Copy)]
pub(crate) enum Floats {
    F32,
    F16,
    Bf16,
}

/// A complete model.
pub(crate) struct TinyModel {
    pub(crate) hidden: usize,
    pub(crate) inner: usize,
    pub(crate) heads: usize,
    pub(crate) layers: usize,
    pub(crate) positions: usize,
    pub(crate) vocabulary: Vec<&'static str>,
    pub(crate) tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

const VOCABULARY: [&str; 24] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "send", "a", "document", "file", "files", "read", "issue", "create", "##s",
    "##d", ".", ",", "the", "weather", "mail", "mess", "##age", "to", "all", "people",
];

impl TinyModel {
    pub(crate) fn new() -> Self {
        let (hidden, inner, heads, layers, positions) = (16, 32, 4, 2, 24);
        let mut tensors = BTreeMap::new();
        let mut seed = 1_u64;
        let mut put = |name: String, shape: &[usize], around: f32| {
            let values = (0..shape.iter().product::<usize>()).map(|_| around + random(&mut seed));
            tensors.insert(name, (shape.to_vec(), values.collect()));
        };
        let row = [hidden];
        put("embeddings.word_embeddings.weight".into(), &[VOCABULARY.len(), hidden], 0.0);
        put("embeddings.position_embeddings.weight".into(), &[positions, hidden], 0.0);
        put("embeddings.token_type_embeddings.weight".into(), &[2, hidden], 0.0);
        put("embeddings.LayerNorm.weight".into(), &row, 1.0);
        put("embeddings.LayerNorm.bias".into(), &row, 0.0);
        for layer in 0..layers {
            let mut linear = |part: &str, outputs: usize, width: usize| {
                put(format!("encoder.layer.{layer}.{part}.weight"), &[outputs, width], 0.0);
                put(format!("encoder.layer.{layer}.{part}.bias"), &[outputs], 0.0);
            };
            for part in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
            {
                linear(part, hidden, hidden);
            }
            linear("intermediate.dense", inner, hidden);
            linear("output.dense", hidden, inner);
            for part in ["attention.output.LayerNorm", "output.LayerNorm"] {
                put(format!("encoder.layer.{layer}.{part}.weight"), &row, 1.0);
                put(format!("encoder.layer.{layer}.{part}.bias"), &row, 0.0);
            }
        }
        Self { hidden, inner, heads, layers, positions, vocabulary: VOCABULARY.to_vec(), tensors }
    }

    /// Its files, as they are published.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        BTreeMap::from([
            ("config.json".to_owned(), self.config().to_string().into_bytes()),
            ("vocab.txt".to_owned(), self.vocabulary.join("\n").into_bytes()),
            ("model.safetensors".to_owned(), self.weights(Floats::F32, "")),
        ])
    }

    pub(crate) fn config(&self) -> Value {
        json!({
            "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": self.hidden,
            "intermediate_size": self.inner, "num_attention_heads": self.heads, "num_hidden_layers": self.layers,
            "vocab_size": self.vocabulary.len(), "max_position_embeddings": self.positions, "type_vocab_size": 2,
            "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
        })
    }

    /// The file of its weights.
    pub(crate) fn weights(&self, floats: Floats, prefix: &str) -> Vec<u8> {
        let mut header = json!({"__metadata__": {"format": "pt"}});
        let mut data = Vec::new();
        for (name, (shape, values)) in &self.tensors {
            let start = data.len();
            let dtype = match floats {
                Floats::F32 => {
                    data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                    "F32"
                }
                Floats::F16 => {
                    data.extend(values.iter().flat_map(|value| half(*value).to_le_bytes()));
                    "F16"
                }
                Floats::Bf16 => {
                    data.extend(values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()));
                    "BF16"
                }
            };
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header[format!("{prefix}{name}")] = entry;
        }
        let header = header.to_string().into_bytes();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(data);
        file
    }
}

/// Between -0.5 and 0.5, always the same for the same seed.
fn random(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as f32 / (1_u64 << 24) as f32 - 0.5
}

/// In 16 bits, slightly nearer to zero; the smallest become zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let exponent = (bits >> 23 & 255) as i32 - 127 + 15;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}
