//! What the index reads of a tool, and the name of that text by which vectors are kept.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use crate::embedder::{EmbedError, Embedder};
use crate::text;
use crate::vectors::normalized;

/// How much the name counts beside the description in a tool's vector.
const NAME_SHARE: f32 = 0.5;
/// Bytes of a description that are looked at. Some servers put whole manuals there; what a tool is for comes first.
const MAX_DESCRIPTION_LEN: usize = 4096;
/// Parameters that are looked at.
const MAX_PARAMETERS: usize = 64;
/// Words of a description that are looked at.
const MAX_WORDS: usize = 400;

/// The text of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The name of its server.
    pub server: String,
    /// Its own name, without the server's.
    pub name: String,
    /// What its server says it does.
    pub description: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// What its server says of itself; the same for all tools of a server.
    pub about_server: String,
}

/// Names the text that a vector was made from: the same text has the same, on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextHash(pub [u8; 16]);

/// Tells whether two names are the same, however their parts are joined: `create_issue` is `createIssue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameMark(u64);

impl NameMark {
    /// Nobody has longer names, and nobody types them.
    const MAX_NAME_WORDS_LEN: usize = 256;

    /// Of a name; nothing where there is none.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if name.len() > Self::MAX_NAME_WORDS_LEN {
            return None;
        }
        let letters: String =
            name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        let mut hasher = DefaultHasher::new();
        letters.hash(&mut hasher);
        (!letters.is_empty()).then(|| Self(hasher.finish()))
    }
}

impl Document {
    /// Its name, and the same with its server's before it.
    pub(crate) fn names(&self) -> [Option<NameMark>; 2] {
        [NameMark::of(&self.name), NameMark::of(&format!("{} {}", self.server, self.name))]
    }

    /// The words of its name that are not its server's: what it is among the tools of its server.
    pub(crate) fn own_words(&self) -> Vec<String> {
        // Spelled out, `git_commit` is not also a word of its own.
        let stems = |text: &str| text::words(&text::spelled_out(text), MAX_WORDS).into_iter().map(|word| word.stem);
        let servers: Vec<String> = stems(&self.server).collect();
        stems(&self.name).filter(|stem| !servers.contains(stem)).collect()
    }

    /// The hash of everything that shapes the vector, and of nothing else: a tool whose parameters change needs no new
    /// one.
    pub fn text_hash(&self) -> TextHash {
        let mut hasher = Sha256::new();
        hasher.update(b"name 0.5, description 1\0");
        hasher.update(self.name.as_bytes());
        hasher.update([0]);
        hasher.update(self.short_description().as_bytes());
        let digest = hasher.finalize();
        TextHash(std::array::from_fn(|place| digest[place]))
    }

    /// The names of the parameters that a tool's input schema describes; none if it cannot be read.
    pub fn parameters_of(input_schema: &str) -> Vec<String> {
        #[derive(Deserialize)]
        struct Schema {
            #[serde(default)]
            properties: BTreeMap<String, IgnoredAny>,
        }
        // A schema that is no schema is its server's affair; the tool is found by its other words.
        serde_json::from_str::<Schema>(input_schema)
            .map(|schema| schema.properties.into_keys().collect())
            .unwrap_or_default()
    }

    fn short_description(&self) -> &str {
        &self.description[..self.description.floor_char_boundary(MAX_DESCRIPTION_LEN)]
    }

    /// The words to be found by, each with the weight of where it stands.
    pub(crate) fn weighted_words(&self) -> Vec<(String, f32)> {
        let parameters = self.parameters.iter().take(MAX_PARAMETERS);
        let fields = [(self.server.as_str(), 1.0), (self.name.as_str(), 2.0), (self.short_description(), 1.0)];
        let fields = fields.into_iter().chain(parameters.map(|parameter| (parameter.as_str(), 0.5)));
        fields
            .flat_map(|(text, weight)| text::words(text, MAX_WORDS).into_iter().map(move |word| (word.stem, weight)))
            .collect()
    }
}

/// The vectors of some tools, in order. Name and description are embedded apart and joined, so that neither drowns the
/// other; the server's name is left out, because it makes all tools of a server alike.
///
/// # Errors
/// If the model cannot be asked now.
pub fn embed_documents(embedder: &dyn Embedder, documents: &[&Document]) -> Result<Vec<Vec<f32>>, EmbedError> {
    let names: Vec<String> = documents.iter().map(|document| text::spelled_out(&document.name)).collect();
    let mut texts: Vec<&str> = Vec::with_capacity(documents.len() * 2);
    for (document, name) in documents.iter().zip(&names) {
        let description = document.short_description();
        texts.push(name);
        texts.push(if description.trim().is_empty() { name } else { description });
    }
    let vectors = embedder.embed(&texts)?;
    Ok(vectors.as_chunks::<2>().0.iter().map(|[name, description]| joined(name, description)).collect())
}

fn joined(name: &[f32], description: &[f32]) -> Vec<f32> {
    let nothing = || vec![0.0; description.len()];
    let name = normalized(name).unwrap_or_else(nothing);
    let description = normalized(description).unwrap_or_else(nothing);
    let sum: Vec<f32> = name.iter().zip(&description).map(|(name, other)| NAME_SHARE * name + other).collect();
    normalized(&sum).unwrap_or(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_from_a_schema() {
        let schema = r#"{"type":"object","properties":{"title":{"type":"string"},"body":{}},"required":["title"]}"#;
        assert_eq!(Document::parameters_of(schema), ["body", "title"]);
        for strange in ["", "[]", "{}", r#"{"properties":[]}"#, &"[".repeat(100_000), r#"{"properties":null}"#] {
            assert!(Document::parameters_of(strange).is_empty());
        }
    }
}
