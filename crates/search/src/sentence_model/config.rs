//! The config files of a model: its dimensions, its tokenizer, and further steps.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::bert::{Folding, Shape, WordPiece};

/// No model of this kind is larger; a larger number is a mistake or an attack.
const MAX_WIDTH: usize = 8192;
const MAX_LAYERS: usize = 64;
const MAX_WORDS: usize = 1_000_000;
/// The default number of pieces that are used of a text: tools describe their purpose early.
const DEFAULT_LENGTH: usize = 256;

/// As nearly all models of this kind were trained.
pub(super) const DEFAULT_FOLDING: Folding = Folding { case: true, accents: true };

#[derive(Deserialize)]
struct Config {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "usual_kinds")]
    type_vocab_size: usize,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f32,
    #[serde(default = "usual_act")]
    hidden_act: String,
    #[serde(default = "usual_positions")]
    position_embedding_type: String,
}

fn usual_kinds() -> usize {
    2
}

fn usual_epsilon() -> f32 {
    1e-12
}

fn usual_act() -> String {
    "gelu".to_owned()
}

fn usual_positions() -> String {
    "absolute".to_owned()
}

pub(super) fn shape(bytes: &[u8]) -> Result<Shape, String> {
    let config: Config = json(bytes)?;
    only("model_type", &config.model_type, "bert")?;
    only("hidden_act", &config.hidden_act, "gelu")?;
    only("position_embedding_type", &config.position_embedding_type, "absolute")?;
    within("hidden_size", config.hidden_size, MAX_WIDTH)?;
    within("intermediate_size", config.intermediate_size, MAX_WIDTH * 4)?;
    within("num_hidden_layers", config.num_hidden_layers, MAX_LAYERS)?;
    within("num_attention_heads", config.num_attention_heads, config.hidden_size)?;
    within("vocab_size", config.vocab_size, MAX_WORDS)?;
    within("max_position_embeddings", config.max_position_embeddings, MAX_WIDTH)?;
    within("type_vocab_size", config.type_vocab_size, MAX_WIDTH)?;
    if config.max_position_embeddings < 3 {
        return Err("its `max_position_embeddings` leaves no room for a text".to_owned());
    }
    if !config.hidden_size.is_multiple_of(config.num_attention_heads) {
        return Err("its `hidden_size` cannot be divided among its `num_attention_heads`".to_owned());
    }
    if !config.hidden_size.is_multiple_of(4) || !config.intermediate_size.is_multiple_of(4) {
        return Err("its `hidden_size` and `intermediate_size` are not both multiples of four".to_owned());
    }
    if !(config.layer_norm_eps > 0.0 && config.layer_norm_eps < 1.0) {
        return Err("its `layer_norm_eps` is not between 0 and 1".to_owned());
    }
    Ok(Shape {
        hidden: config.hidden_size,
        inner: config.intermediate_size,
        heads: config.num_attention_heads,
        layers: config.num_hidden_layers,
        words: config.vocab_size,
        positions: config.max_position_embeddings,
        kinds: config.type_vocab_size,
        longest_text: config.max_position_embeddings.min(DEFAULT_LENGTH),
        epsilon: config.layer_norm_eps,
    })
}

/// The further steps after the layers. Vectors are always normalized.
pub(super) fn check_modules(bytes: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Module {
        r#type: String,
    }
    for Module { r#type } in json::<Vec<Module>>(bytes)? {
        let step = r#type.rsplit('.').next().unwrap_or_default();
        if !matches!(step, "Transformer" | "Pooling" | "Normalize") {
            return Err(format!("it has a step `{type}`; only Transformer, Pooling and Normalize are supported"));
        }
    }
    Ok(())
}

/// How the vectors of all pieces are combined.
pub(super) fn check_pooling(bytes: &[u8]) -> Result<(), String> {
    const MEAN: &str = "pooling_mode_mean_tokens";
    let said: HashMap<String, Value> = json(bytes)?;
    for (name, value) in &said {
        let is_another_way = match value {
            Value::Bool(is_used) if name.starts_with("pooling_mode_") => *is_used != (name == MEAN),
            Value::String(mode) if name == "pooling_mode" => mode != "mean",
            _ => false,
        };
        if is_another_way {
            return Err(format!("it sets `{name}: {value}`; only the mean of all pieces is supported"));
        }
    }
    Ok(())
}

/// The number of pieces that the model was trained with.
pub(super) fn longest_text(bytes: &[u8]) -> Result<Option<usize>, String> {
    #[derive(Deserialize)]
    struct Length {
        max_seq_length: Option<usize>,
    }
    let Length { max_seq_length } = json(bytes)?;
    match max_seq_length {
        Some(0..3) => Err("its `max_seq_length` leaves no room for a text".to_owned()),
        longest => Ok(longest),
    }
}

/// Which differences between letters are ignored, if there is no tokenizer file.
pub(super) fn folding(bytes: &[u8]) -> Result<Folding, String> {
    #[derive(Deserialize)]
    struct TokenizerConfig {
        do_lower_case: Option<bool>,
        strip_accents: Option<bool>,
    }
    let said: TokenizerConfig = json(bytes)?;
    let case = said.do_lower_case.unwrap_or(DEFAULT_FOLDING.case);
    Ok(Folding { case, accents: said.strip_accents.unwrap_or(case) })
}

pub(super) fn vocabulary(bytes: &[u8], folding: Folding, words: usize) -> Result<WordPiece, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let pieces = text.lines().map(|piece| Cow::Owned(piece.trim_end().to_owned())).zip(0..);
    word_piece(pieces.collect(), folding, words)
}

pub(super) fn tokenizer(bytes: &[u8], words: usize) -> Result<WordPiece, String> {
    #[derive(Deserialize)]
    struct Tokenizer {
        normalizer: Option<Normalizer>,
        model: Model,
    }
    #[derive(Deserialize)]
    struct Normalizer {
        r#type: Option<String>,
        lowercase: Option<bool>,
        strip_accents: Option<bool>,
    }
    // Other kinds have a vocabulary in another form, so the kind is checked first.
    #[derive(Deserialize)]
    struct Model {
        r#type: Option<String>,
        continuing_subword_prefix: Option<String>,
        vocab: Value,
    }
    let Tokenizer { normalizer, model } = json(bytes)?;
    only("model.type", model.r#type.as_deref().unwrap_or("WordPiece"), "WordPiece")?;
    only("continuing_subword_prefix", model.continuing_subword_prefix.as_deref().unwrap_or("##"), "##")?;
    let folding = match normalizer {
        Some(Normalizer { r#type, lowercase, strip_accents }) => {
            only("normalizer.type", r#type.as_deref().unwrap_or("BertNormalizer"), "BertNormalizer")?;
            let case = lowercase.unwrap_or(DEFAULT_FOLDING.case);
            Folding { case, accents: strip_accents.unwrap_or(case) }
        }
        None => Folding { case: false, accents: false },
    };
    let vocabulary: HashMap<String, u32> =
        serde_json::from_value(model.vocab).map_err(|error| format!("its `model.vocab` is not valid: {error}"))?;
    word_piece(vocabulary.into_iter().map(|(piece, id)| (Cow::Owned(piece), id)).collect(), folding, words)
}

fn word_piece(pieces: Vec<(Cow<'static, str>, u32)>, folding: Folding, words: usize) -> Result<WordPiece, String> {
    if let Some((piece, id)) = pieces.iter().find(|(_, id)| *id as usize >= words) {
        return Err(format!("its piece `{piece}` has the number {id}, but the model has {words} pieces"));
    }
    WordPiece::new(pieces.into_iter(), folding).map_err(|error| error.to_string())
}

fn json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn only(name: &str, found: &str, known: &str) -> Result<(), String> {
    match found == known {
        true => Ok(()),
        false => Err(format!("its `{name}` is `{found}`; only `{known}` is supported")),
    }
}

fn within(name: &str, number: usize, most: usize) -> Result<(), String> {
    match (1..=most).contains(&number) {
        true => Ok(()),
        false => Err(format!("its `{name}` is {number}; 1 to {most} is supported")),
    }
}
