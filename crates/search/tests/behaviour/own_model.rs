//! A sentence model from files.

use std::collections::BTreeMap;
use std::io;

use search::{Embedder, ModelError, SentenceModel};
use serde_json::json;

use crate::tiny_model::{Floats, TinyModel};

type Files = BTreeMap<String, Vec<u8>>;

fn read(files: &Files) -> Result<SentenceModel, ModelError> {
    SentenceModel::read("tiny", |name| Ok(files.get(name).cloned()))
}

fn vector(files: &Files, text: &str) -> Vec<f32> {
    read(files).expect("the files are whole").embed(&[text]).expect("a model at hand always answers").remove(0)
}

fn with(name: &str, bytes: impl Into<Vec<u8>>) -> Files {
    let mut files = TinyModel::new().files();
    files.insert(name.to_owned(), bytes.into());
    files
}

fn refusal(files: &Files) -> String {
    read(files).err().expect("it cannot be used").to_string()
}

#[track_caller]
fn assert_near(one: &[f32], other: &[f32], most: f32) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert!((one - other).abs() < most, "{one} is not {other}");
    }
}

/// The expected output, computed step by step as in the papers, in 64 bits and without optimisation.
mod by_the_book {
    use super::TinyModel;

    type Matrix = Vec<Vec<f64>>;

    pub(super) fn vector(model: &TinyModel, pieces: &[&str]) -> Vec<f32> {
        let number = |piece: &&str| model.vocabulary.iter().position(|known| known == piece).expect("a known piece");
        let (words, places) =
            (matrix(model, "embeddings.word_embeddings"), matrix(model, "embeddings.position_embeddings"));
        let kind = &matrix(model, "embeddings.token_type_embeddings")[0];
        let sum = |(place, piece): (usize, &&str)| -> Vec<f64> {
            (0..model.hidden).map(|i| words[number(piece)][i] + places[place][i] + kind[i]).collect()
        };
        let summed: Matrix = pieces.iter().enumerate().map(sum).collect();
        let mut hidden = norm(model, "embeddings.LayerNorm", &summed);
        for layer in 0..model.layers {
            hidden = through(model, &format!("encoder.layer.{layer}"), &hidden);
        }
        let mean: Vec<f64> = (0..model.hidden).map(|i| hidden.iter().map(|row| row[i]).sum::<f64>()).collect();
        let length = mean.iter().map(|value| value * value).sum::<f64>().sqrt();
        mean.iter().map(|value| (value / length) as f32).collect()
    }

    fn through(model: &TinyModel, layer: &str, hidden: &Matrix) -> Matrix {
        let [query, key, value] =
            ["query", "key", "value"].map(|part| linear(model, &format!("{layer}.attention.self.{part}"), hidden));
        let width = model.hidden / model.heads;
        let mut context = vec![vec![0.0; model.hidden]; hidden.len()];
        for head in 0..model.heads {
            let part = head * width..(head + 1) * width;
            for (row, asking) in query.iter().enumerate() {
                let near = |other: &Vec<f64>| -> f64 {
                    part.clone().map(|i| asking[i] * other[i]).sum::<f64>() / (width as f64).sqrt()
                };
                let weights: Vec<f64> = key.iter().map(|other| near(other).exp()).collect();
                let all: f64 = weights.iter().sum();
                for i in part.clone() {
                    context[row][i] =
                        weights.iter().zip(&value).map(|(weight, reported)| weight / all * reported[i]).sum();
                }
            }
        }
        let attended = add(&linear(model, &format!("{layer}.attention.output.dense"), &context), hidden);
        let attended = norm(model, &format!("{layer}.attention.output.LayerNorm"), &attended);
        let mut inner = linear(model, &format!("{layer}.intermediate.dense"), &attended);
        inner.iter_mut().flatten().for_each(|value| *value = 0.5 * *value * (1.0 + erf(*value / 2.0_f64.sqrt())));
        let outer = add(&linear(model, &format!("{layer}.output.dense"), &inner), &attended);
        norm(model, &format!("{layer}.output.LayerNorm"), &outer)
    }

    fn matrix(model: &TinyModel, name: &str) -> Matrix {
        let (shape, values) = &model.tensors[&format!("{name}.weight")];
        values.chunks(shape[1]).map(|row| row.iter().map(|value| f64::from(*value)).collect()).collect()
    }

    fn row(model: &TinyModel, name: &str) -> Vec<f64> {
        model.tensors[name].1.iter().map(|value| f64::from(*value)).collect()
    }

    fn linear(model: &TinyModel, name: &str, rows: &Matrix) -> Matrix {
        let (weights, bias) = (matrix(model, name), row(model, &format!("{name}.bias")));
        let product = |row: &Vec<f64>, weights: &Vec<f64>| -> f64 { row.iter().zip(weights).map(|(a, b)| a * b).sum() };
        rows.iter().map(|row| weights.iter().zip(&bias).map(|(w, b)| product(row, w) + b).collect()).collect()
    }

    fn norm(model: &TinyModel, name: &str, rows: &Matrix) -> Matrix {
        let (scale, shift) = (row(model, &format!("{name}.weight")), row(model, &format!("{name}.bias")));
        let normed = |row: &Vec<f64>| -> Vec<f64> {
            let count = row.len() as f64;
            let mean = row.iter().sum::<f64>() / count;
            let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
            let each = row.iter().zip(scale.iter().zip(&shift));
            each.map(|(value, (scale, shift))| (value - mean) / (variance + 1e-12).sqrt() * scale + shift).collect()
        };
        rows.iter().map(normed).collect()
    }

    fn add(one: &Matrix, other: &Matrix) -> Matrix {
        one.iter().zip(other).map(|(one, other)| one.iter().zip(other).map(|(a, b)| a + b).collect()).collect()
    }

    /// The error function by its series, which is exact for small numbers.
    fn erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }
}

#[test]
fn vectors_are_those_of_a_plain_computation() {
    let model = TinyModel::new();
    let files = model.files();
    let cases: [(&str, &[&str]); 5] = [
        ("Send a document", &["[CLS]", "send", "a", "document", "[SEP]"]),
        ("CREATED, issues.", &["[CLS]", "create", "##d", ",", "issue", "##s", ".", "[SEP]"]),
        ("message to äll people", &["[CLS]", "mess", "##age", "to", "all", "people", "[SEP]"]),
        ("unheard file", &["[CLS]", "[UNK]", "file", "[SEP]"]),
        ("", &["[CLS]", "[SEP]"]),
    ];
    for (text, pieces) in cases {
        assert_near(&vector(&files, text), &by_the_book::vector(&model, pieces), 5e-3);
    }
}

#[test]
fn a_vector_is_of_length_one_and_depends_on_its_text_alone() {
    let model = read(&TinyModel::new().files()).unwrap();
    let long = "read the files to all people ".repeat(40);
    let texts = ["Send a document", &long, "", "天气 \u{0} 🦀", "send a DOCUMENT", "weather"];
    let together = model.embed(&texts).unwrap();
    for (text, vector) in texts.iter().zip(&together) {
        let length: f32 = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        assert_eq!(&model.embed(&[text]).unwrap()[0], vector, "what stands beside a text does not matter");
    }
    assert_eq!(together[0], together[4], "case does not matter");
    assert_ne!(together[0], together[5]);
    assert!(model.embed(&[]).unwrap().is_empty());
    assert_eq!(model.dimension(), 16);
}

#[test]
fn weights_may_be_in_16_bits_and_have_the_models_name_before_theirs() {
    let model = TinyModel::new();
    let plain = vector(&model.files(), "read all files");
    for (floats, most) in [(Floats::F16, 5e-3), (Floats::Bf16, 5e-2)] {
        assert_near(&vector(&with("model.safetensors", model.weights(floats, "")), "read all files"), &plain, most);
    }
    assert_eq!(vector(&with("model.safetensors", model.weights(Floats::F32, "bert.")), "read all files"), plain);
}

#[test]
fn a_tokenizer_file_gives_the_same_pieces_as_a_vocabulary() {
    let model = TinyModel::new();
    let numbers: BTreeMap<&str, usize> = model.vocabulary.iter().enumerate().map(|(id, piece)| (*piece, id)).collect();
    let tokenizer = |lowercase: bool| {
        let reported = json!({"normalizer": {"type": "BertNormalizer", "lowercase": lowercase, "strip_accents": null},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": numbers}});
        let mut files = with("tokenizer.json", reported.to_string());
        files.remove("vocab.txt");
        files
    };
    let plain = vector(&model.files(), "Create issues");
    assert_eq!(vector(&tokenizer(true), "Create issues"), plain);
    assert_eq!(vector(&tokenizer(false), "create issues"), plain);
    assert_ne!(vector(&tokenizer(false), "Create issues"), plain, "`Create` is unknown to it");
    assert_eq!(vector(&with("tokenizer_config.json", r#"{"do_lower_case": false}"#), "créate").len(), 16);
}

#[test]
fn only_so_many_pieces_are_looked_at() {
    let short = with("sentence_bert_config.json", r#"{"max_seq_length": 5, "do_lower_case": false}"#);
    assert_eq!(vector(&short, "send a document"), vector(&short, "send a document to all people"));
    let whole = TinyModel::new().files();
    assert_ne!(vector(&whole, "send a document"), vector(&whole, "send a document to all people"));
    let beyond = "a ".repeat(500);
    assert_eq!(vector(&whole, &beyond), vector(&whole, &format!("{beyond} document")), "it knows 24 places");
}

#[test]
fn models_that_differ_have_different_ids() {
    let ids = |files: &Files| read(files).unwrap().id().to_owned();
    let plain = ids(&TinyModel::new().files());
    assert_eq!(plain, ids(&TinyModel::new().files()));
    assert!(plain.starts_with("tiny/"), "{plain}");
    let mut other = TinyModel::new();
    other.tensors.get_mut("embeddings.LayerNorm.bias").unwrap().1[0] += 0.25;
    assert_ne!(plain, ids(&other.files()));
    assert_ne!(plain, ids(&with("sentence_bert_config.json", r#"{"max_seq_length": 5}"#)));
    let named = SentenceModel::read("my model/ü", |name| Ok(TinyModel::new().files().get(name).cloned())).unwrap();
    assert!(named.id().starts_with("my-model--/"), "{}", named.id());
}

#[test]
fn what_is_missing_is_named() {
    for (file, named) in [
        ("config.json", "it has no `config.json`"),
        ("vocab.txt", "it has no `tokenizer.json` or `vocab.txt`"),
        ("model.safetensors", "it has no `model.safetensors`"),
    ] {
        let mut files = TinyModel::new().files();
        files.remove(file);
        assert_eq!(refusal(&files), named);
    }
    let refused = SentenceModel::read("tiny", |_| Err(io::Error::from(io::ErrorKind::PermissionDenied).into()));
    assert_eq!(refused.err().unwrap().to_string(), "its `config.json` cannot be read");
}

#[test]
fn what_cannot_be_done_is_reported_with_its_file() {
    let model = TinyModel::new();
    let config = |name: &str, value: serde_json::Value| {
        let mut config = model.config();
        config[name] = value;
        with("config.json", config.to_string())
    };
    let mut broken = model.weights(Floats::F32, "");
    broken.truncate(broken.len() - 4);
    let mut infinite = TinyModel::new();
    infinite.tensors.get_mut("encoder.layer.1.output.dense.bias").unwrap().1[3] = f32::INFINITY;
    let cases = [
        (
            config("model_type", json!("mpnet")),
            "`config.json` cannot be used: its `model_type` is `mpnet`; only `bert`",
        ),
        (config("hidden_size", json!(18)), "`config.json` cannot be used: its `hidden_size` cannot be divided"),
        (config("hidden_size", json!(1_u64 << 60)), "`config.json` cannot be used: its `hidden_size` is"),
        (
            config("hidden_size", json!(32)),
            "`model.safetensors` cannot be used: its `embeddings.token_type_embeddings.weight` is [2, 16] instead of [2, 32]",
        ),
        (config("num_hidden_layers", json!(3)), "`model.safetensors` cannot be used: it has no `encoder.layer.2"),
        (config("num_attention_heads", json!(0)), "`num_attention_heads` is 0"),
        (config("vocab_size", json!(10)), "`vocab.txt` cannot be used: its piece `issue` has the number 10"),
        (with("config.json", "{"), "`config.json` cannot be used"),
        (with("model.safetensors", "x"), "`model.safetensors` cannot be used: it has no readable header"),
        (with("model.safetensors", [0xff; 64]), "`model.safetensors` cannot be used: it has no readable header"),
        (with("model.safetensors", broken), "`model.safetensors` cannot be used: it has no"),
        (with("model.safetensors", infinite.weights(Floats::F32, "")), "contains values that are not numbers"),
        (with("vocab.txt", "[UNK]\n[CLS]\nword"), "`vocab.txt` cannot be used: it has no piece `[SEP]`"),
        (
            with("tokenizer.json", r#"{"model": {"type": "Unigram", "vocab": [["a", -1.0]]}}"#),
            "`tokenizer.json` cannot be used: its `model.type` is `Unigram`",
        ),
        (
            with("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#),
            "`1_Pooling/config.json` cannot be used",
        ),
        (
            with("modules.json", r#"[{"type": "sentence_transformers.models.Dense"}]"#),
            "`modules.json` cannot be used: it has a step",
        ),
        (with("sentence_bert_config.json", r#"{"max_seq_length": 1}"#), "`sentence_bert_config.json` cannot be used"),
    ];
    for (files, said) in cases {
        let why = refusal(&files);
        assert!(why.contains(said), "{why}\n  instead of {said}");
    }
    let usual =
        r#"{"word_embedding_dimension": 16, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#;
    assert!(read(&with("1_Pooling/config.json", usual)).is_ok());
}
