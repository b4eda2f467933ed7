//! The models of the tool search: a language model that classifies tools, and an embedding model.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use models::{Budget, Key, Limits, Model, ModelErrorKind, Provider};
use search::{EmbedError, Embedder, MAX_DIMENSION};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tool_search::{ClassifierScope, ClassifierSetup};

use crate::environment;
use crate::failure::Failure;
use crate::model_folder;

/// The variable with the key of the classifier, unless a file has it.
const CLASSIFIER_KEY: &str = "MCP_CLASSIFIER_API_KEY";
/// The same for embeddings.
const EMBEDDINGS_KEY: &str = "MCP_EMBEDDINGS_API_KEY";
/// An unreachable classifier is retried after this delay, which then grows.
const CLASSIFIER_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The timeout of the embedding of a query, and of tools.
const FEW: usize = 8;
const FOR_FEW: Duration = Duration::from_secs(5);
const FOR_MANY: Duration = Duration::from_secs(60);
/// After a failure, queries do not wait for embeddings for this time.
const UNREACHABLE_FOR: Duration = Duration::from_secs(10);
/// The maximum length of an embedded text. Providers refuse texts that are longer than their models support.
const MAX_TEXT_LEN: usize = 2000;

/// Which models to use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Models for tool search")]
pub(crate) struct SearchModelArguments {
    /// Classify tools with a language model: the base URL of an OpenAI-compatible API, such as
    /// http://localhost:11434/v1. Its key is in MCP_CLASSIFIER_API_KEY or a file
    #[arg(long, verbatim_doc_comment, value_name = "URL", requires = "classifier_model")]
    classifier_url: Option<String>,
    /// The name of the classifier model
    #[arg(long, value_name = "NAME", requires = "classifier_url")]
    classifier_model: Option<String>,
    /// The file that contains the key
    #[arg(long, value_name = "FILE", requires = "classifier_url")]
    classifier_key_file: Option<PathBuf>,
    /// Which tools to classify with it: those that embeddings leave unclear, or all
    #[arg(long, value_name = "unsure|always", default_value = "unsure")]
    classifier_asked: ClassifierScope,
    /// The maximum number of requests per day
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    classifier_budget: u64,
    /// Compute embeddings with this model instead of the built-in one: the base URL of an OpenAI-compatible API with
    /// /embeddings. Its key is in MCP_EMBEDDINGS_API_KEY or a file
    #[arg(long, verbatim_doc_comment, value_name = "URL", requires = "embeddings_model")]
    embeddings_url: Option<String>,
    /// The name of the embedding model. If it changes, all embeddings are computed again
    #[arg(long, value_name = "NAME", requires = "embeddings_url")]
    embeddings_model: Option<String>,
    /// The file that contains the key
    #[arg(long, value_name = "FILE", requires = "embeddings_url")]
    embeddings_key_file: Option<PathBuf>,
    /// Compute embeddings offline with the model in this folder instead of the built-in one: a sentence model of the
    /// BERT family, such as all-MiniLM-L6-v2, with config.json, tokenizer.json or vocab.txt, and model.safetensors
    #[arg(long, verbatim_doc_comment, value_name = "DIR", conflicts_with = "embeddings_url")]
    model_dir: Option<PathBuf>,
}

impl SearchModelArguments {
    /// The language model that classifies tools, if one is configured.
    pub(crate) fn classifier(&self) -> Result<Option<ClassifierSetup>, Failure> {
        let (Some(url), Some(name)) = (&self.classifier_url, &self.classifier_model) else { return Ok(None) };
        let key = key(self.classifier_key_file.as_deref(), CLASSIFIER_KEY)?;
        let budget = Arc::new(Budget::new(Some(self.classifier_budget), None));
        let model = Model::new(Provider::openai(url, key, name), Limits::default(), Arc::clone(&budget));
        let model = model.map_err(|failure| Failure::usage(format!("--classifier-url cannot be used: {failure}")))?;
        Ok(Some(ClassifierSetup { model, budget, about: self.classifier_asked, pause: CLASSIFIER_RETRY_DELAY }))
    }

    /// The embedding model that replaces the built-in one, if one is configured.
    pub(crate) fn embedder(&self, runtime: &Handle) -> Result<Option<Arc<dyn Embedder>>, Failure> {
        if let Some(folder) = &self.model_dir {
            return model_folder::open(folder).map(Some);
        }
        let (Some(url), Some(name)) = (&self.embeddings_url, &self.embeddings_model) else { return Ok(None) };
        let key = key(self.embeddings_key_file.as_deref(), EMBEDDINGS_KEY)?;
        // The index retries by itself.
        let limits = Limits { tries: 1, ..Limits::default() };
        let model = Model::new(Provider::openai(url, key, name), limits, Arc::new(Budget::unlimited()));
        let model = model.map_err(|failure| Failure::usage(format!("--embeddings-url cannot be used: {failure}")))?;
        Ok(Some(Arc::new(RemoteEmbedder {
            id: format!("embeddings/{name}"),
            model,
            runtime: runtime.clone(),
            dimension: AtomicUsize::new(0),
            unreachable_until: Mutex::default(),
        })))
    }
}

/// The embedding model, if there is one.
pub(crate) fn builtin_embedder() -> Option<Arc<dyn Embedder>> {
    #[cfg(feature = "builtin-model")]
    return Some(Arc::new(search::BuiltIn));
    #[cfg(not(feature = "builtin-model"))]
    return None;
}

fn key(file: Option<&Path>, variable: &str) -> Result<Option<Key>, Failure> {
    let Some(file) = file else {
        let set = environment::text(variable)?.filter(|key| !key.trim().is_empty());
        return Ok(set.map(Key::new));
    };
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Failure::new(format!("could not read the key in {}: {error}", file.display())))?;
    Ok(Some(Key::new(text)))
}

/// Computes embeddings with a model over HTTP.
struct RemoteEmbedder {
    id: String,
    model: Model,
    runtime: Handle,
    /// The dimension of its vectors, once it is known.
    dimension: AtomicUsize,
    unreachable_until: Mutex<Option<Instant>>,
}

impl Embedder for RemoteEmbedder {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn dimension(&self) -> usize {
        self.dimension.load(Ordering::Relaxed)
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let failed = |why: Box<dyn std::error::Error + Send + Sync>| EmbedError {
            model: self.id.clone(),
            is_about_the_texts: false,
            source: why,
        };
        if self.unreachable().is_some_and(|until| until > Instant::now()) {
            return Err(failed("it was unreachable a moment ago".into()));
        }
        let texts: Vec<&str> = texts.iter().map(|text| &text[..text.floor_char_boundary(MAX_TEXT_LEN)]).collect();
        // An empty text has no embedding.
        let texts: Vec<&str> = texts.into_iter().map(|text| if text.trim().is_empty() { "-" } else { text }).collect();
        let limit = if texts.len() <= FEW { FOR_FEW } else { FOR_MANY };
        let made = self.runtime.block_on(async { timeout(limit, self.model.embed(&texts)).await });
        let vectors = match made {
            Ok(Ok(vectors)) => vectors,
            // The model is reachable and refuses this text; other texts may work.
            Ok(Err(failure)) if is_about_the_texts(&failure) => {
                return Err(EmbedError { is_about_the_texts: true, ..failed(failure.into()) });
            }
            Ok(Err(failure)) => return Err(failed(self.mark_unreachable(failure.into()))),
            Err(_) => {
                return Err(failed(self.mark_unreachable(format!("no answer within {} s", limit.as_secs()).into())));
            }
        };
        *self.unreachable_lock() = None;
        if let Some(vector) = vectors.iter().find(|vector| vector.len() > MAX_DIMENSION) {
            let length = vector.len();
            return Err(failed(
                format!(
                    "its vectors have {length} numbers; at most {MAX_DIMENSION} are supported, choose another model"
                )
                .into(),
            ));
        }
        if let Some(first) = vectors.first() {
            self.dimension.store(first.len(), Ordering::Relaxed);
        }
        Ok(vectors)
    }
}

fn is_about_the_texts(failure: &models::ModelError) -> bool {
    matches!(failure.kind, ModelErrorKind::Refused { status: 400 | 413 | 422, .. })
}

impl RemoteEmbedder {
    fn unreachable(&self) -> Option<Instant> {
        *self.unreachable_lock()
    }

    fn mark_unreachable<E>(&self, why: E) -> E {
        *self.unreachable_lock() = Some(Instant::now() + UNREACHABLE_FOR);
        why
    }

    fn unreachable_lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.unreachable_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{ModelReply, ModelServer};

    fn remote_embedder(server: &ModelServer) -> Arc<dyn Embedder> {
        let arguments = SearchModelArguments {
            classifier_url: None,
            classifier_model: None,
            classifier_key_file: None,
            classifier_asked: ClassifierScope::Unsure,
            classifier_budget: 1,
            embeddings_url: Some(server.openai_url()),
            embeddings_model: Some("m".to_owned()),
            embeddings_key_file: None,
            model_dir: None,
        };
        arguments.embedder(&Handle::current()).unwrap().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn vectors_come_from_a_remote_embedder_and_search_does_not_wait_for_it() {
        let server = ModelServer::start();
        server.say(ModelReply::embeddings(&[vec![1.0, 2.0, 3.0]]));
        server.say(ModelReply::refused(403, "no more"));
        let embedder = remote_embedder(&server);
        let asking = tokio::task::spawn_blocking(move || {
            assert_eq!(embedder.embed(&["a"]).unwrap(), [[1.0, 2.0, 3.0]]);
            assert_eq!((embedder.id(), embedder.dimension()), ("embeddings/m", 3));
            assert!(embedder.embed(&["a"]).is_err());
            assert!(embedder.embed(&["a"]).is_err());
        });
        asking.await.unwrap();
        assert_eq!(server.asked().len(), 2, "it was left alone after it had failed");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn vectors_that_are_too_long_are_refused() {
        let server = ModelServer::start();
        server.say(ModelReply::embeddings(&[vec![1.0; MAX_DIMENSION + 1]]));
        let embedder = remote_embedder(&server);
        let asking = tokio::task::spawn_blocking(move || {
            let error = embedder.embed(&["a"]).unwrap_err();
            let why = error.source.to_string();
            assert!(
                !error.is_about_the_texts && why.starts_with("its vectors have 65537 numbers; at most 65536"),
                "{why}"
            );
            assert_eq!(embedder.dimension(), 0);
        });
        asking.await.unwrap();
    }
}
