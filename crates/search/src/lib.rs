//! Finds tools by words and by meaning, and tells what they are for.
//!
//! # Layout
//! - `text`: from what people and servers write to words that can be compared
//! - `lexical`: tools by words (BM25)
//! - `embedder`: the seam to whatever makes vectors; `minilm`: the model that comes with the program; `builtin`: the
//!   same, read when it is needed; `sentence_model`: one of somebody's own choosing; `bert`: what all of them are
//! - `vectors`: vectors in memory, compared exactly; `matrix`: the arithmetic of both
//! - `document`, `query`: what is read of a tool and of a request
//! - `index`: all of it together; `servers`: what the servers of tools have to do with a request
//! - `elsewhere`: the seam to whatever keeps vectors elsewhere and compares them there
//! - `skills`, `classifier`: what tools are for, and searching by that
//!
//! Everything here thinks and nothing waits: no files, no network, no clock, no runtime. Whoever uses it keeps the
//! vectors (with the model's id and the text's hash) and decides when and where they are made:
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
mod document;
mod embedder;
mod index;
mod lexical;
mod matrix;
#[cfg(feature = "builtin-model")]
mod minilm;
mod query;
mod sentence_model;
mod servers;
mod skills;
mod text;
mod vector_store;
mod vectors;

#[cfg(feature = "builtin-model")]
pub use builtin::BuiltIn;
pub use classifier::{Classification, Classifier, MIN_PRIMARY};
pub use document::{Document, TextHash, embed_documents};
pub use embedder::{EmbedError, Embedder};
pub use index::{Hit, Index, Limits, MissingVector};
#[cfg(feature = "builtin-model")]
pub use minilm::MiniLm;
pub use query::Query;
pub use sentence_model::{FileError, ModelError, SentenceModel};
pub use skills::{Skill, SkillsError, builtin_skills, fingerprint, read_skills};
pub use vector_store::{
    NearestAnswers, Payload, Point, PointId, Request, StoreError, StoreFilter, StoredScores, VectorStore,
};
