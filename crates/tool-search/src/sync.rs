//! Keeps the index equal to the registry, computes missing vectors, and has tools classified.

mod about;
mod vectors;

use std::collections::{BTreeSet, HashSet};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use registry::{Embedding, Page, ServerId, ToolFilter, ToolRecord};
use search::{Document, EmbedError, Embedder, TextHash, embed_documents, has_direction};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, sleep, sleep_until};

use super::embedding_classifier;
use super::health::EmbedderHealth;
use super::llm_classifier::LlmClassifier;
use super::stored_vector;
use super::tool_index::{MissingVector, ToolIndex};
use super::{Finder, locked, with_causes};
use crate::{Change, Error};
use about::about;
use vectors::{load_vectors, make_rough_vectors};

/// The number of tools that are embedded at once: so few that changes need not wait long.
const BATCH_SIZE: usize = 32;
/// The number of tools that are inserted while searches wait: so few that it takes milliseconds at most.
const INSERTED_AT_ONCE: usize = 32;
/// How long the registry may take to store a discovery before the index is read again.
const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before retrying if the database or the model fails; for the model, each further pause is longer.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// What has to be read again.
#[derive(Debug, Default)]
struct PendingChanges {
    everything: bool,
    servers: BTreeSet<ServerId>,
}

impl PendingChanges {
    fn is_empty(&self) -> bool {
        !self.everything && self.servers.is_empty()
    }

    /// Records a change. Even if nothing has to be read again, there may be work.
    fn note(&mut self, change: Change) {
        // Skills are read where they are changed.
        if let Change::Server(server) = change {
            self.servers.insert(server);
        }
    }
}

/// The state of the embedding model.
#[derive(Debug, Default)]
struct EmbedderState {
    /// Consecutive failures.
    failures: u32,
    /// How often its vectors changed their length.
    turns: u32,
    /// It is not asked again before then.
    backoff_until: Option<Instant>,
    /// The last error, which is logged once.
    error: String,
}

impl EmbedderState {
    fn is_backing_off(&self) -> bool {
        self.backoff_until.is_some_and(|until| until > Instant::now())
    }

    fn back_off(&mut self, times: u32) {
        let pause = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1))).min(MAX_BACKOFF);
        self.backoff_until = Some(Instant::now() + pause);
    }

    fn note_failure(&mut self, error: &Error) {
        self.failures += 1;
        self.back_off(self.failures);
        let error = error.to_string();
        if error != self.error {
            let found_by = search::WITHOUT_A_MODEL;
            tracing::warn!(%error, found_by, "failed to embed tools; embedding is retried");
        }
        self.error = error;
    }

    fn note_success(&mut self) {
        if self.failures > 0 {
            tracing::info!("embedding works again");
        }
        self.failures = 0;
        self.error.clear();
        self.backoff_until = None;
    }

    /// Records that the vectors of the same model changed their length. If that happens repeatedly, the model is asked
    /// less and less often.
    fn note_dimension_change(&mut self, lengths: (usize, usize)) {
        self.turns += 1;
        self.back_off(self.turns);
        let (before, now) = lengths;
        tracing::warn!(before, now, "the model returns vectors of another length; embedding all tools again");
    }
}

/// Follows changes until shutdown.
pub(super) async fn run(finder: Arc<Finder>, mut changes: Receiver<Change>) {
    let mut pending = PendingChanges { everything: true, ..PendingChanges::default() };
    let mut is_settled = false;
    let mut model = EmbedderState::default();
    loop {
        match finder.work(&mut pending, &mut model).await {
            Ok(true) => is_settled = false,
            Ok(false) if is_settled => wait(&finder.embedder_health, &mut changes, &mut pending, &mut model).await,
            Ok(false) => {
                finder.settle().await;
                finder.llm_classifier.iter().for_each(LlmClassifier::wake);
                is_settled = true;
            }
            Err(error) => {
                tracing::warn!(%error, "failed to update the tool index; the old one stays in use, will retry");
                sleep(FIRST_BACKOFF).await;
            }
        }
        catch_up(&mut changes, &mut pending);
    }
}

/// Waits for a change, or for the end of the model's pause.
async fn wait(
    embedder_health: &EmbedderHealth,
    changes: &mut Receiver<Change>,
    pending: &mut PendingChanges,
    model: &mut EmbedderState,
) {
    let back_off = model.backoff_until;
    let mut rested = pin!(async move {
        match back_off {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    });
    loop {
        // Both futures can be dropped at any time: a message stays in its queue, a pause has a fixed end.
        let heard = tokio::select! {
            heard = changes.recv() => heard,
            () = &mut rested => {
                model.backoff_until = None;
                return;
            }
            // A search changed the model's health: if the model failed, it is checked soon; if it recovered, now.
            () = embedder_health.turned() => {
                match embedder_health.last_error() {
                    Some(_) => model.back_off(1),
                    None => model.backoff_until = None,
                }
                return;
            }
        };
        match heard {
            Ok(change) => {
                pending.note(change);
                return;
            }
            Err(RecvError::Lagged(_)) => {
                pending.everything = true;
                return;
            }
            // The service owns the sender and outlives this task.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Receives all changes that are queued.
fn catch_up(changes: &mut Receiver<Change>, pending: &mut PendingChanges) {
    loop {
        match changes.try_recv() {
            Ok(change) => pending.note(change),
            Err(TryRecvError::Lagged(_)) => pending.everything = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

impl Finder {
    /// Does a part of the work, so little that changes need not wait long. Returns whether there was any.
    async fn work(&self, pending: &mut PendingChanges, model: &mut EmbedderState) -> Result<bool, Error> {
        if !pending.is_empty() {
            self.read(pending).await?;
            return Ok(true);
        }
        let has_embedded = self.embed_some(model).await;
        // While vectors are being computed, tools are classified as soon as there are enough for a transaction.
        let least = if has_embedded { embedding_classifier::BATCH_SIZE } else { 1 };
        let has_classified = self.classify_some(least).await;
        Ok(has_embedded || has_classified)
    }

    /// Reads what changed.
    async fn read(&self, pending: &mut PendingChanges) -> Result<(), Error> {
        if pending.everything {
            let tools = self.store.tools(&ToolFilter::default(), Page::ALL).await?.items;
            let about: Vec<_> =
                self.host.servers().iter().filter_map(|server| Some((server.id, self.about(server.id)?))).collect();
            let kept: HashSet<_> = tools.iter().map(|tool| tool.id).collect();
            self.write(move |tool_index| {
                tool_index.describe_servers(about);
                tool_index.retain(&kept);
            })
            .await?;
            self.insert(tools).await?;
            self.load_vectors().await?;
            self.make_rough_vectors().await?;
            self.load_uses().await?;
            self.change(ToolIndex::mark_read).await?;
            pending.everything = false;
            return Ok(());
        }
        while let Some(server) = pending.servers.first().copied() {
            let is_written = self.host.wait_written(server, STATUS_WRITE_TIMEOUT).await;
            let filter = ToolFilter { server: Some(server), ..ToolFilter::default() };
            let tools = self.store.tools(&filter, Page::ALL).await?.items;
            let about = self.about(server);
            let kept: HashSet<_> = tools.iter().map(|tool| tool.id).collect();
            self.write(move |tool_index| {
                tool_index.describe_server(server, about);
                tool_index.retain_of(server, &kept);
            })
            .await?;
            self.insert(tools).await?;
            self.make_rough_vectors().await?;
            self.mark_vector_store_stale();
            if !is_written {
                return Err(Error::Internal { what: "discovered tools are not written yet".to_owned() });
            }
            pending.servers.remove(&server);
        }
        Ok(())
    }

    /// What a server says of itself, if there is one with that id.
    fn about(&self, server: ServerId) -> Option<String> {
        self.host.record(&server.to_string()).map(|record| about(&record))
    }

    /// Puts tools into the index, some at a time.
    async fn insert(&self, tools: Vec<ToolRecord>) -> Result<(), Error> {
        let mut tools = tools.into_iter();
        while tools.len() > 0 {
            let some: Vec<_> = tools.by_ref().take(INSERTED_AT_ONCE).collect();
            self.write(move |tool_index| tool_index.insert_all(some)).await?;
        }
        Ok(())
    }

    /// Takes the vectors that were made before. One of an earlier model, or of a text that had another form, is searched
    /// with until it is replaced.
    async fn load_vectors(&self) -> Result<(), Error> {
        let Some(embedder) = self.embedder.clone() else { return Ok(()) };
        let current = self.store.embeddings(embedder.id()).await?;
        let mut outdated = Vec::new();
        for earlier in embedder.earlier_ids() {
            outdated.extend(self.store.embeddings(earlier).await?);
        }
        let tool_index = Arc::clone(&self.tool_index);
        let loading = tokio::task::spawn_blocking(move || load_vectors(&tool_index, current, outdated));
        loading.await.map_err(|_| broke())
    }

    /// Makes vectors of the table: for tools that have no other yet, and for all if a request may have no vector of the
    /// model, because that is somewhere else.
    pub(super) async fn make_rough_vectors(&self) -> Result<(), Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let with_own = self.embedder.as_ref().is_some_and(|embedder| embedder.is_remote());
        let making = tokio::task::spawn_blocking(move || make_rough_vectors(&tool_index, with_own));
        making.await.map_err(|_| broke())
    }

    /// Computes some of the missing vectors. Returns whether there is more to do now.
    async fn embed_some(&self, model: &mut EmbedderState) -> bool {
        let Some(embedder) = self.embedder.clone() else { return false };
        if model.is_backing_off() {
            return false;
        }
        let asking = self.read_index(|tool_index| {
            (tool_index.missing_vectors(BATCH_SIZE), tool_index.servers_missing_vectors(BATCH_SIZE))
        });
        let (missing_vectors, servers) = match asking.await {
            Ok(missing) => missing,
            Err(error) => {
                model.note_failure(&error);
                return false;
            }
        };
        // Servers first: there are few of them, and each counts for all of its tools.
        if !servers.is_empty() {
            let embedded = self.embed_servers(embedder, servers).await;
            self.note_embedded(embedded, model).await;
            return !model.is_backing_off();
        }
        if missing_vectors.is_empty() {
            if self.embedder_health.last_error().is_some() {
                self.probe_embedder(embedder, model).await;
            }
            return false;
        }
        let embedded = self.embed(embedder, missing_vectors).await;
        self.note_embedded(embedded, model).await;
        !model.is_backing_off()
    }

    /// Records how the model answered: with vectors, whose lengths before and now are given if they differ, or not.
    async fn note_embedded(&self, embedded: Result<Option<(usize, usize)>, Error>, model: &mut EmbedderState) {
        match embedded {
            Ok(None) => {
                self.embedder_health.worked();
                model.note_success();
            }
            Ok(Some(lengths)) => {
                self.embedder_health.worked();
                self.embedding_classifier.forget();
                model.note_dimension_change(lengths);
            }
            Err(error) => {
                self.embedder_health.failed(error.to_string());
                model.note_failure(&error);
            }
        }
    }

    /// Sends the model a request only to see whether it is reachable again.
    async fn probe_embedder(&self, embedder: Arc<dyn Embedder>, model: &mut EmbedderState) {
        let asking = tokio::task::spawn_blocking(move || embedder.embed(&["tool"]).map(drop));
        let asked = asking.await.map_err(|_| "the embedding model panicked".to_owned());
        match asked.and_then(|asked| asked.map_err(|error| with_causes(&error))) {
            Ok(()) => {
                self.embedder_health.worked();
                model.note_success();
            }
            Err(what) => model.note_failure(&Error::Internal { what }),
        }
    }

    /// Computes and stores vectors. Returns their lengths before and now if these differ.
    async fn embed(
        &self,
        embedder: Arc<dyn Embedder>,
        missing_vectors: Vec<MissingVector>,
    ) -> Result<Option<(usize, usize)>, Error> {
        let model = embedder.id().to_owned();
        let making = tokio::task::spawn_blocking(move || {
            let documents: Vec<&Document> = missing_vectors.iter().map(|missing| &missing.document).collect();
            vectors_of(&*embedder, &documents).map(|vectors| (missing_vectors, vectors))
        });
        let (missing_vectors, vectors) =
            making.await.map_err(|_| model_broke())?.map_err(|error| Error::Internal { what: with_causes(&error) })?;
        let kept = missing_vectors.iter().zip(&vectors).filter_map(|(missing, vector)| {
            let vector = vector.as_deref().filter(|vector| has_direction(vector))?;
            let (text_hash, bytes) = (missing.text_hash.clone(), stored_vector::encode(vector, missing.hash));
            Some(Embedding { tool: missing.tool, text_hash, model: model.clone(), bytes })
        });
        // Stored first: what a search compares is not made again after a restart. If it cannot be stored, it is used
        // all the same.
        let stored = self.store.put_embeddings(kept.collect()).await;
        let counts = Arc::clone(&self.counts);
        let turned = self.write(move |tool_index| {
            let turned = tool_index.note_dimension(&vectors);
            for (missing, vector) in missing_vectors.iter().zip(&vectors) {
                if tool_index.set_made_vector(missing.tool, missing.hash, vector.as_deref()) {
                    counts.embedded.fetch_add(1, Ordering::Relaxed);
                }
            }
            turned
        });
        let turned = turned.await?;
        self.mark_vector_store_stale();
        stored?;
        Ok(turned)
    }

    /// Computes the vectors of servers' self-descriptions. They are few, and are not stored. Returns the lengths of
    /// vectors before and now if these differ.
    async fn embed_servers(
        &self,
        embedder: Arc<dyn Embedder>,
        servers: Vec<(String, TextHash, Document)>,
    ) -> Result<Option<(usize, usize)>, Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let making = tokio::task::spawn_blocking(move || -> Result<_, EmbedError> {
            let documents: Vec<&Document> = servers.iter().map(|(_, _, document)| document).collect();
            let vectors = vectors_of(&*embedder, &documents)?;
            let mut tool_index = tool_index.write().unwrap_or_else(PoisonError::into_inner);
            let turned = tool_index.note_dimension(&vectors);
            for ((server, hash, _), vector) in servers.iter().zip(vectors) {
                tool_index.set_server_vector(server, *hash, vector.as_deref());
            }
            Ok(turned)
        });
        making.await.map_err(|_| model_broke())?.map_err(|error| Error::Internal { what: with_causes(&error) })
    }

    /// Reads the index outside the threads that serve calls.
    pub(super) async fn read_index<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ToolIndex) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let reading = tokio::task::spawn_blocking(move || read(&locked(&tool_index)));
        reading.await.map_err(|_| broke())
    }

    /// Changes the index outside the threads that serve calls, and has the vector store follow.
    pub(super) async fn change(&self, change: impl FnOnce(&mut ToolIndex) + Send + 'static) -> Result<(), Error> {
        self.write(change).await?;
        self.mark_vector_store_stale();
        Ok(())
    }

    /// Changes the index outside the threads that serve calls.
    async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut ToolIndex) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let changing = tokio::task::spawn_blocking(move || {
            change(&mut tool_index.write().unwrap_or_else(PoisonError::into_inner))
        });
        changing.await.map_err(|_| broke())
    }
}

fn broke() -> Error {
    Error::Internal { what: "the task of the tool index panicked".to_owned() }
}

fn model_broke() -> Error {
    Error::Internal { what: "the embedding model panicked".to_owned() }
}

/// The vectors of some tools. If the model refuses the batch, each text is tried alone: one odd text must not cost
/// others their vectors.
fn vectors_of(embedder: &dyn Embedder, documents: &[&Document]) -> Result<Vec<Option<Vec<f32>>>, EmbedError> {
    match embed_documents(embedder, documents) {
        Err(error) if error.is_about_the_texts => {}
        made => return Ok(made?.into_iter().map(Some).collect()),
    }
    let alone = |document: &&Document| match embed_documents(embedder, &[*document]) {
        Err(error) if error.is_about_the_texts => {
            tracing::warn!(
                tool = document.name,
                error = with_causes(&error),
                found_by = search::WITHOUT_A_MODEL,
                "the model refused the text of a tool or a server"
            );
            Ok(None)
        }
        made => Ok(made?.pop()),
    };
    documents.iter().map(alone).collect()
}
