//! Finds tools by words and by meaning, and classifies them by skill.
//!
//! # Layout
//! - `text`: splits text into words that can be compared
//! - `lexical`: finds tools by words (BM25)
//! - `embedder`: the interface of embedding models; `minilm`: the built-in model; `builtin`: loads it on first use;
//!   `sentence_model`: a model that the user provides; `bert`: the code that all of them share
//! - `word_table`: rough vectors in microseconds, for tools without a vector of the model
//! - `vectors`: vectors in memory, compared exactly; `columns`: the arithmetic of the built-in model and of vectors, in
//!   8 bits; `matrix`: the same in 16 bits, for models that the user provides
//! - `document`, `query`: the searchable parts of a tool, and a parsed query; `query_cache`: the vectors of the last
//!   queries
//! - `index`: combines them; `servers`: the relevance of a tool's server; `ranking`: picks the best; `pending`: tools
//!   that wait for a vector; `rough`: the vectors of the table
//! - `uses`: what tools were used for, which lifts them a little
//! - `vector_store`: the interface of a store outside the program that keeps and compares vectors
//! - `language`: whether a model can read a request
//! - `skills`, `classifier`: the purposes of tools, and search by purpose
//!
//! Everything here is pure computation: no files, no network, no clock, no runtime. The caller stores vectors (with the
//! model's id and the text's hash), and decides when and on which thread they are computed:
//!
//! ```
//! use search::{Document, Index, Limits, Query, embed_documents};
//! # #[cfg(feature = "builtin-model")] {
//! let model = search::MiniLm::shared();
//! let mut index = Index::new(search::Embedder::dimension(model));
//! let tool = |name: &str, description: &str| Document {
//!     server: "github".into(), name: name.into(), description: description.into(), ..Document::default()
//! };
//! index.insert(1, tool("create_issue", "Open a new issue in a repository"));
//! index.insert(2, tool("merge_pull_request", "Merge a pull request"));
//!
//! // Found by words at once, by meaning as soon as there are vectors.
//! let missing_vectors = index.missing_vectors(32);
//! let documents: Vec<&Document> = missing_vectors.iter().map(|missing_vectors| missing_vectors.document).collect();
//! let vectors = embed_documents(model, &documents).expect("the built-in model always answers");
//! let made: Vec<_> = missing_vectors.iter().map(|missing_vectors| (*missing_vectors.key, missing_vectors.hash)).zip(vectors).collect();
//! for ((key, hash), vector) in made {
//!     index.set_vector(&key, hash, &vector);
//! }
//! let mut query = Query::new("report a bug");
//! query.embed(model).expect("the built-in model always answers");
//! let hits = index.search(&query, Limits { count: 5, least_score: 0.0 }, |_| true);
//! assert_eq!(hits[0].key, 1);
//! # }
//! ```

mod bert;
#[cfg(feature = "builtin-model")]
mod builtin;
mod classifier;
mod columns;
mod document;
mod embedder;
mod four_bits;
mod index;
mod kernel;
#[cfg(any(feature = "builtin-model", feature = "table"))]
mod language;
mod lexical;
mod matrix;
#[cfg(feature = "builtin-model")]
mod minilm;
#[cfg(all(test, feature = "builtin-model", feature = "table"))]
mod parity;
mod pending;
mod query;
mod query_cache;
mod ranking;
mod rough;
mod sentence_model;
mod servers;
mod skills;
mod text;
mod uses;
mod vector_store;
mod vectors;
#[cfg(feature = "table")]
mod word_table;

#[cfg(feature = "builtin-model")]
pub use builtin::BuiltIn;
pub use classifier::{Classification, Classifier, MIN_PRIMARY};
pub use document::{Document, TextHash, embed_documents};
pub use embedder::{EmbedError, Embedder};
pub use index::{Hit, Index, Limits, MissingVector};
#[cfg(feature = "builtin-model")]
pub use minilm::MiniLm;
pub use query::Query;
pub use query_cache::QueryCache;
pub use sentence_model::{FileError, ModelError, SentenceModel};
pub use skills::{Skill, SkillsError, builtin_skills, fingerprint, read_skills};
pub use uses::{MAX_COUNT as MAX_USES, words_of_use};
pub use vector_store::{
    NearestAnswers, Payload, Point, PointId, Request, StoreError, StoreFilter, StoredScores, VectorStore,
};
pub use vectors::has_direction;

/// The pieces of both models, one per line.
#[cfg(any(feature = "builtin-model", feature = "table"))]
const VOCABULARY: &str = include_str!("../model/vocabulary.txt");

/// Whether the table of word vectors is compiled in.
pub const HAS_TABLE: bool = cfg!(feature = "table");

/// What search compares while there is no model, or it is unreachable.
pub const WITHOUT_A_MODEL: &str = if HAS_TABLE { "words and the word table" } else { "words" };

/// The largest number of numbers of a vector: with more, sums of products in 32 bits could overflow.
pub const MAX_DIMENSION: usize = 65_536;

/// A rough vector of a text, in microseconds; None if the table is not compiled in.
fn rough_vector(text: &str) -> Option<Vec<f32>> {
    #[cfg(feature = "table")]
    return Some(word_table::WordTable::shared().embed(text));
    #[cfg(not(feature = "table"))]
    {
        let _without_a_table = text;
        None
    }
}

/// Whether the table can read a request, like [`Embedder::reads`]; true if it is not compiled in.
pub fn table_reads(request: &str, is_known: &dyn Fn(&str) -> bool) -> bool {
    #[cfg(feature = "table")]
    return language::is_readable(request, |word| word_table::WordTable::shared().has_word(word) || is_known(word));
    #[cfg(not(feature = "table"))]
    {
        let _without_a_table = (request, is_known);
        true
    }
}

/// What only `bench-search` needs.
#[cfg(feature = "reference")]
pub mod reference {
    use crate::kernel::Kernel;

    /// The sets of instructions that this machine has, the fastest last.
    pub fn instructions() -> Vec<String> {
        Kernel::names()
    }

    /// Uses this set of instructions in this process. Returns false if the machine lacks it, or another one is in use.
    pub fn use_instructions(name: &str) -> bool {
        Kernel::choose(name)
    }

    /// The vector of the table for a text; None if the table is not compiled in.
    pub fn table_vector(text: &str) -> Option<Vec<f32>> {
        crate::rough_vector(text)
    }
}

/// Where the built-in models come from, with the licences of its training data and the attributions that they ask for, as
/// Markdown; None if none is compiled in.
pub fn model_notice() -> Option<&'static str> {
    #[cfg(any(feature = "builtin-model", feature = "table"))]
    return Some(include_str!("../model/NOTICE.md"));
    #[cfg(not(any(feature = "builtin-model", feature = "table")))]
    return None;
}
