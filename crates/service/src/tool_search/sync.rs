//! Keeps the library as the registry is, makes vectors where there are none, and lets tools be classified.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use registry::{Embedding, Page, ServerId, ServerRecord, ToolFilter};
use search::{Document, EmbedError, Embedder, TextHash, embed_documents};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, sleep, sleep_until};

use super::embedding_classifier;
use super::health::EmbedderHealth;
use super::llm_classifier::LlmClassifier;
use super::tool_index::{MissingVector, ToolIndex};
use super::{Finder, with_causes};
use crate::{Error, Event};

/// How many tools get their vectors at once: little enough that news are not kept waiting.
const BATCH_SIZE: usize = 16;
/// Bytes of a server's instructions that count as what it says of itself: what it is for comes first.
const MAX_INSTRUCTIONS_LEN: usize = 400;
/// How long what was discovered may take to be written down before the library looks at what there is.
const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before the database, or the model, is tried again; the model after longer and longer.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// What has to be read anew.
#[derive(Debug, Default)]
struct PendingChanges {
    everything: bool,
    servers: BTreeSet<ServerId>,
}

impl PendingChanges {
    fn is_empty(&self) -> bool {
        !self.everything && self.servers.is_empty()
    }

    /// Takes note of what happened; whether that means work.
    fn note_event(&mut self, event: &Event) -> bool {
        let (Event::ToolsChanged { server_id, .. }
        | Event::ServerUpdated { server_id, .. }
        | Event::ServerRemoved { server_id, .. }) = event
        else {
            return matches!(event, Event::SkillsChanged { .. });
        };
        self.servers.extend(server_id.parse::<ServerId>().ok());
        true
    }
}

/// How it goes with the model that makes vectors.
#[derive(Debug, Default)]
struct EmbedderState {
    /// How often in a row no vectors could be made.
    failures: u32,
    /// How often it began to make vectors of another length.
    turns: u32,
    /// It is left alone until then.
    backoff_until: Option<Instant>,
    /// What was wrong last; said once.
    trouble: String,
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
        let trouble = error.to_string();
        if trouble != self.trouble {
            tracing::warn!(%error, "no vectors could be made; tools are found by words, and it is tried again");
        }
        self.trouble = trouble;
    }

    fn note_success(&mut self) {
        if self.failures > 0 {
            tracing::info!("vectors are made again");
        }
        self.failures = 0;
        self.trouble.clear();
        self.backoff_until = None;
    }

    /// It makes vectors of another length than before under the same name. If it goes on like that, it may do so rarely.
    fn note_dimension_change(&mut self, lengths: (usize, usize)) {
        self.turns += 1;
        self.back_off(self.turns);
        let (before, now) = lengths;
        tracing::warn!(before, now, "the model makes vectors of another length; all are made anew");
    }
}

/// Vectors that were made.
struct EmbeddedBatch {
    kept: Vec<Embedding>,
    /// The lengths that vectors had before and have now, where that is not the same.
    turned: Option<(usize, usize)>,
}

/// Follows what servers offer until everything ends.
pub(super) async fn run(finder: Arc<Finder>) {
    let following = async {
        let mut news = finder.context.events.listen_to_servers();
        let mut pending = PendingChanges { everything: true, ..PendingChanges::default() };
        let mut is_settled = false;
        let mut model = EmbedderState::default();
        loop {
            match finder.work(&mut pending, &mut model).await {
                Ok(true) => is_settled = false,
                Ok(false) if is_settled => wait(&finder.embedder_health, &mut news, &mut pending, &mut model).await,
                Ok(false) => {
                    finder.settle().await;
                    finder.llm_classifier.iter().for_each(LlmClassifier::wake);
                    is_settled = true;
                }
                Err(error) => {
                    tracing::warn!(%error, "tools are searched as they were; trying again");
                    sleep(FIRST_BACKOFF).await;
                }
            }
            catch_up(&mut news, &mut pending);
        }
    };
    tokio::select! {
        () = following => {}
        () = finder.context.stop_requested() => {}
    }
}

/// Waits for something to happen, or for the end of the model's rest.
async fn wait(
    embedder_health: &EmbedderHealth,
    news: &mut Receiver<Event>,
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
        // Both may be left at any time: a message stays in its queue, a rest has its end.
        let heard = tokio::select! {
            heard = news.recv() => heard,
            () = &mut rested => {
                model.backoff_until = None;
                return;
            }
            // A search met it otherwise than it was: it is looked at soon if it is gone, and now if it is back.
            () = embedder_health.turned() => {
                match embedder_health.last_error() {
                    Some(_) => model.back_off(1),
                    None => model.backoff_until = None,
                }
                return;
            }
        };
        match heard {
            Ok(event) if pending.note_event(&event) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => {
                pending.everything = true;
                return;
            }
            // The sender is the household's, which outlives us.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Hears everything that has happened.
fn catch_up(news: &mut Receiver<Event>, pending: &mut PendingChanges) {
    loop {
        match news.try_recv() {
            Ok(event) => {
                pending.note_event(&event);
            }
            Err(TryRecvError::Lagged(_)) => pending.everything = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

impl Finder {
    /// Does some of what is to be done, little enough that news are not kept waiting; whether there was something.
    async fn work(&self, pending: &mut PendingChanges, model: &mut EmbedderState) -> Result<bool, Error> {
        if !pending.is_empty() {
            self.read(pending).await?;
            return Ok(true);
        }
        let has_embedded = self.embed_some(model).await;
        // While vectors are being made, tools are classified as soon as it is worth a transaction.
        let least = if has_embedded { embedding_classifier::BATCH_SIZE } else { 1 };
        let has_classified = self.classify_some(least).await;
        Ok(has_embedded || has_classified)
    }

    /// Reads what is stale.
    async fn read(&self, pending: &mut PendingChanges) -> Result<(), Error> {
        if pending.everything {
            let tools = self.context.store.tools(&ToolFilter::default(), Page::ALL).await?.items;
            let about: Vec<_> =
                self.context.all().iter().map(|handle| (handle.id, about(&handle.current().record))).collect();
            self.change(move |tool_index| {
                tool_index.describe_servers(about);
                tool_index.replace_all(tools);
            })
            .await?;
            self.load_vectors().await?;
            self.change(ToolIndex::mark_read).await?;
            pending.everything = false;
            return Ok(());
        }
        while let Some(server) = pending.servers.first().copied() {
            let is_written = self.context.status_writer.wait_written(server, STATUS_WRITE_TIMEOUT).await;
            let filter = ToolFilter { server: Some(server), ..ToolFilter::default() };
            let tools = self.context.store.tools(&filter, Page::ALL).await?.items;
            let handle = self.context.find(&server.to_string()).ok();
            let about = handle.map(|handle| (server, about(&handle.current().record)));
            self.change(move |tool_index| {
                tool_index.describe_servers(about);
                tool_index.replace(server, tools);
            })
            .await?;
            if !is_written {
                return Err(Error::Internal { what: "what was discovered is not written down yet".to_owned() });
            }
            pending.servers.remove(&server);
        }
        Ok(())
    }

    /// Takes the vectors that were made before.
    async fn load_vectors(&self) -> Result<(), Error> {
        let Some(embedder) = &self.embedder else { return Ok(()) };
        let kept = self.context.store.embeddings(embedder.id()).await?;
        self.change(move |tool_index| {
            for Embedding { tool, text_hash, bytes, .. } in kept {
                tool_index.load_vectors(tool, &text_hash, &numbers(&bytes));
            }
        })
        .await
    }

    /// Makes some of the vectors that are missing; whether there is more to be done now.
    async fn embed_some(&self, model: &mut EmbedderState) -> bool {
        let Some(embedder) = self.embedder.clone() else { return false };
        if model.is_backing_off() {
            return false;
        }
        let (missing_vectors, servers) = {
            let tool_index = self.tool_index.read().unwrap_or_else(PoisonError::into_inner);
            (tool_index.missing_vectors(BATCH_SIZE), tool_index.servers_missing_vectors(BATCH_SIZE))
        };
        if missing_vectors.is_empty() && !servers.is_empty() {
            match self.embed_servers(embedder, servers).await {
                Ok(()) => model.note_success(),
                Err(error) => {
                    self.embedder_health.failed(error.to_string());
                    model.note_failure(&error);
                }
            }
            return !model.is_backing_off();
        }
        if missing_vectors.is_empty() {
            if self.embedder_health.last_error().is_some() {
                self.probe_embedder(embedder, model).await;
            }
            return false;
        }
        match self.embed(embedder, missing_vectors).await {
            Ok(turned) => {
                self.embedder_health.worked();
                match turned {
                    None => model.note_success(),
                    Some(lengths) => {
                        self.embedding_classifier.forget();
                        model.note_dimension_change(lengths);
                    }
                }
            }
            Err(error) => {
                self.embedder_health.failed(error.to_string());
                model.note_failure(&error);
            }
        }
        !model.is_backing_off()
    }

    /// Asks the model for anything, only to see whether it is back.
    async fn probe_embedder(&self, embedder: Arc<dyn Embedder>, model: &mut EmbedderState) {
        let asking = tokio::task::spawn_blocking(move || embedder.embed(&["tool"]).map(drop));
        let asked = asking.await.map_err(|_| "the model broke".to_owned());
        match asked.and_then(|asked| asked.map_err(|error| with_causes(&error))) {
            Ok(()) => {
                self.embedder_health.worked();
                model.note_success();
            }
            Err(what) => model.note_failure(&Error::Internal { what }),
        }
    }

    /// Makes vectors and keeps them; the lengths they had before and have now, where that is not the same.
    async fn embed(
        &self,
        embedder: Arc<dyn Embedder>,
        missing_vectors: Vec<MissingVector>,
    ) -> Result<Option<(usize, usize)>, Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let making = tokio::task::spawn_blocking(move || -> Result<EmbeddedBatch, EmbedError> {
            let documents: Vec<&Document> =
                missing_vectors.iter().map(|missing_vectors| &missing_vectors.document).collect();
            let vectors = vectors_of(&*embedder, &documents)?;
            let mut tool_index = tool_index.write().unwrap_or_else(PoisonError::into_inner);
            let lengths = vectors.iter().flatten().map(|vector| (tool_index.dimension(), vector.len()));
            let turned = lengths.into_iter().find(|(before, now)| *before != 0 && before != now);
            if turned.is_some() {
                tool_index.forget_vectors();
            }
            let mut kept = Vec::with_capacity(vectors.len());
            for (missing_vectors, vector) in missing_vectors.iter().zip(vectors) {
                let Some(vector) =
                    vector.filter(|vector| tool_index.set_vector(missing_vectors.tool, missing_vectors.hash, vector))
                else {
                    tool_index.give_up(missing_vectors.tool, missing_vectors.hash);
                    continue;
                };
                let (text_hash, model) = (missing_vectors.text_hash.clone(), embedder.id().to_owned());
                kept.push(Embedding { tool: missing_vectors.tool, text_hash, model, bytes: bytes(&vector) });
            }
            Ok(EmbeddedBatch { kept, turned })
        });
        let broke = || Error::Internal { what: "the model broke".to_owned() };
        let EmbeddedBatch { kept, turned } =
            making.await.map_err(|_| broke())?.map_err(|error| Error::Internal { what: with_causes(&error) })?;
        self.mark_vector_store_stale();
        self.counts.embedded.fetch_add(kept.len() as u64, Ordering::Relaxed);
        self.context.store.put_embeddings(kept).await?;
        Ok(turned)
    }

    /// Makes the vectors of what servers say of themselves. They are few, and kept nowhere.
    async fn embed_servers(
        &self,
        embedder: Arc<dyn Embedder>,
        servers: Vec<(String, TextHash, Document)>,
    ) -> Result<(), Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let making = tokio::task::spawn_blocking(move || -> Result<(), EmbedError> {
            let documents: Vec<&Document> = servers.iter().map(|(_, _, document)| document).collect();
            let vectors = vectors_of(&*embedder, &documents)?;
            let mut tool_index = tool_index.write().unwrap_or_else(PoisonError::into_inner);
            for ((server, hash, _), vector) in servers.iter().zip(vectors) {
                tool_index.set_server_vector(server, *hash, vector.as_deref());
            }
            Ok(())
        });
        let broke = |_| Error::Internal { what: "the model broke".to_owned() };
        making.await.map_err(broke)?.map_err(|error| Error::Internal { what: with_causes(&error) })
    }

    /// Changes the library away from the thread that moves calls.
    pub(super) async fn change(&self, change: impl FnOnce(&mut ToolIndex) + Send + 'static) -> Result<(), Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let changing = tokio::task::spawn_blocking(move || {
            change(&mut tool_index.write().unwrap_or_else(PoisonError::into_inner));
        });
        changing.await.map_err(|_| Error::Internal { what: "the library of tools broke".to_owned() })?;
        self.mark_vector_store_stale();
        Ok(())
    }
}

/// The vectors of some tools. Where the model wants none of them, each is tried alone: one odd text must not cost others
/// their vectors.
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
                "a tool has no vector, and is found by words"
            );
            Ok(None)
        }
        made => Ok(made?.pop()),
    };
    documents.iter().map(alone).collect()
}

/// What a server says of itself: its own name and title, what it is for, and how its instructions begin.
fn about(record: &ServerRecord) -> String {
    let info = record.server_info.as_ref();
    let said = |member: &str| info.and_then(|info| info[member].as_str());
    let own_name = said("name").filter(|name| *name != record.name);
    let instructions = said("instructions").map(|text| &text[..text.floor_char_boundary(MAX_INSTRUCTIONS_LEN)]);
    let parts = [own_name, said("title"), record.description.as_deref(), said("description"), instructions];
    parts.into_iter().flatten().collect::<Vec<_>>().join(". ")
}

/// A vector as it is kept: its numbers in little-endian order.
fn bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_was_kept() {
        let vector = [1.0, -0.25, f32::MIN_POSITIVE];
        assert_eq!(numbers(&bytes(&vector)), vector);
    }
}
