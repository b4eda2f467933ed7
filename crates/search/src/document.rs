//! The searchable text of a tool, and the hash of that text by which vectors are stored.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

use crate::embedder::{EmbedError, Embedder};
use crate::text;

/// The limit of bytes of a description that are used. Some servers put whole manuals there; the purpose of a tool comes
/// first.
const MAX_DESCRIPTION_LEN: usize = 4096;
/// The limit of parameters whose words count.
const MAX_PARAMETERS: usize = 64;
/// The limit of parameters in the text of a vector, as the built-in model was trained.
const MAX_EMBEDDED_PARAMETERS: usize = 12;
/// The limit of words of a description.
const MAX_WORDS: usize = 400;

/// The text of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The name of its server.
    pub server: String,
    /// Its own name, without the server's.
    pub name: String,
    /// The description of the server.
    pub description: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// The self-description of its server; the same for all its tools.
    pub about_server: String,
}

/// Identifies the text of a vector: the same text has the same hash on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextHash(pub [u8; 16]);

impl fmt::Display for TextHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Compares names regardless of how their parts are joined: `create_issue` equals `createIssue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameMark(u64);

impl NameMark {
    /// Longer names are not compared: no request contains one.
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

/// Names a description, without case and punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptionMark(u64);

impl Document {
    /// Two tools of one name with the same mark do the same, whoever's they are.
    pub(crate) fn description_mark(&self) -> DescriptionMark {
        let mut hasher = DefaultHasher::new();
        let letters = self.short_description().chars().filter(|letter| letter.is_alphanumeric());
        letters.flat_map(char::to_lowercase).for_each(|letter| letter.hash(&mut hasher));
        DescriptionMark(hasher.finish())
    }

    /// A rough vector, in microseconds; None if the table is not compiled in.
    pub fn rough_vector(&self) -> Option<Vec<f32>> {
        crate::rough_vector(&self.embedded_text())
    }

    /// Its name, and the same with its server's before it.
    pub(crate) fn names(&self) -> [Option<NameMark>; 2] {
        [NameMark::of(&self.name), NameMark::of(&format!("{} {}", self.server, self.name))]
    }

    /// The words of its name that are not its server's.
    pub(crate) fn own_words(&self) -> Vec<String> {
        // Spelled out, `git_commit` is not also a word of its own.
        let stems = |text: &str| text::words(&text::spelled_out(text), MAX_WORDS).into_iter().map(|word| word.stem);
        let servers: Vec<String> = stems(&self.server).collect();
        stems(&self.name).filter(|stem| !servers.contains(stem)).collect()
    }

    /// The hash of everything that affects the vector, and of nothing else: it names the text in every form that the
    /// text may take.
    pub fn text_hash(&self) -> TextHash {
        let mut hasher = Sha256::new();
        hasher.update(b"server: name. description. 12 parameters\0");
        let parts = [&self.server, &self.name, self.short_description()].into_iter().map(str::as_bytes);
        for part in parts.chain(self.embedded_parameters().map(str::as_bytes)) {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        let digest = hasher.finalize();
        TextHash(std::array::from_fn(|place| digest[place]))
    }

    /// The text that a model makes the vector of: `server: name. description. parameters`.
    pub(crate) fn embedded_text(&self) -> String {
        let mut whole = String::new();
        for (name, ending) in [(&self.server, ": "), (&self.name, ". ")] {
            let name = text::spelled_out(name);
            if !name.is_empty() {
                whole.push_str(&name);
                whole.push_str(ending);
            }
        }
        for (place, word) in self.short_description().split_whitespace().enumerate() {
            if place > 0 {
                whole.push(' ');
            }
            whole.push_str(word);
        }
        let parameters: Vec<String> = self.embedded_parameters().map(text::spelled_out).collect();
        if !parameters.is_empty() {
            let has_end = whole.trim_end().ends_with(['.', '!', '?']);
            whole.push_str(if has_end { " " } else { ". " });
            whole.push_str(&parameters.join(", "));
        }
        whole.trim().to_owned()
    }

    fn embedded_parameters(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().take(MAX_EMBEDDED_PARAMETERS).map(String::as_str)
    }

    /// The names of the parameters in a tool's input schema, in its order; none if it cannot be parsed.
    pub fn parameters_of(input_schema: &str) -> Vec<String> {
        #[derive(Deserialize)]
        struct Schema {
            #[serde(default)]
            properties: Names,
        }
        // An invalid schema is not our problem; the tool is found by its other words.
        serde_json::from_str::<Schema>(input_schema).map(|schema| schema.properties.0).unwrap_or_default()
    }

    fn short_description(&self) -> &str {
        &self.description[..self.description.floor_char_boundary(MAX_DESCRIPTION_LEN)]
    }

    /// The searchable words, each with the weight of its field.
    pub(crate) fn weighted_words(&self) -> Vec<(String, f32)> {
        let parameters = self.parameters.iter().take(MAX_PARAMETERS);
        let fields = [(self.server.as_str(), 1.0), (self.name.as_str(), 2.0), (self.short_description(), 1.0)];
        let fields = fields.into_iter().chain(parameters.map(|parameter| (parameter.as_str(), 0.5)));
        fields
            .flat_map(|(text, weight)| text::words(text, MAX_WORDS).into_iter().map(move |word| (word.stem, weight)))
            .collect()
    }
}

/// The names of the members of a JSON object, in its order.
#[derive(Default)]
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Names;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some((name, _)) = members.next_entry::<String, IgnoredAny>()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// The vectors of tools, in order.
///
/// # Errors
/// If the model is unreachable.
pub fn embed_documents(embedder: &dyn Embedder, documents: &[&Document]) -> Result<Vec<Vec<f32>>, EmbedError> {
    let texts: Vec<String> = documents.iter().map(|document| document.embedded_text()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    embedder.embed(&texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_vector_has_server_name_description_and_parameters() {
        let document = |server: &str, name: &str, description: &str, parameters: &[&str]| Document {
            server: server.into(),
            name: name.into(),
            description: description.into(),
            parameters: parameters.iter().map(|name| (*name).to_owned()).collect(),
            ..Document::default()
        };
        let whole = document("myMail", "sendMessage", " Sends\n a  mail", &["toWhom", "body"]);
        assert_eq!(whole.embedded_text(), "my mail: send message. Sends a mail. to whom, body");
        assert_eq!(document("", "now", "Is it late?", &["zone"]).embedded_text(), "now. Is it late? zone");
        assert_eq!(document("db", "run_query", "", &["sql"]).embedded_text(), "db: run query.  sql");
        assert_eq!(document("db", "", "", &[]).embedded_text(), "db:");
        assert_eq!(document("", "", "", &[]).embedded_text(), "");
        let many: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(document("", "a", "", &many).embedded_text().ends_with(", p11"));
    }

    #[test]
    fn a_hash_names_one_text() {
        let tool = Document { server: "a".into(), name: "b".into(), description: "c".into(), ..Document::default() };
        let changed = [
            Document { server: "A".into(), ..tool.clone() },
            Document { server: "ab".into(), name: String::new(), ..tool.clone() },
            Document { name: "B".into(), ..tool.clone() },
            Document { description: "d".into(), ..tool.clone() },
            Document { parameters: vec!["p".into()], ..tool.clone() },
        ];
        assert!(changed.iter().all(|changed| changed.text_hash() != tool.text_hash()));
        let many = Document { parameters: vec!["p".into(); 12], ..tool.clone() };
        let more = Document { parameters: vec!["p".into(); 13], about_server: "x".into(), ..tool };
        assert_eq!(many.text_hash(), more.text_hash(), "the thirteenth is in no vector");
    }

    #[test]
    fn parameters_are_read_from_a_schema() {
        let schema = r#"{"type":"object","properties":{"title":{"type":"string"},"body":{}},"required":["title"]}"#;
        assert_eq!(Document::parameters_of(schema), ["title", "body"]);
        for strange in ["", "[]", "{}", r#"{"properties":[]}"#, &"[".repeat(100_000), r#"{"properties":null}"#] {
            assert!(Document::parameters_of(strange).is_empty());
        }
    }
}
