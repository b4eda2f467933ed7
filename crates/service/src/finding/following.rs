//! Keeps the library as the registry is, makes vectors where there are none, and lets tools be classified.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use registry::{Embedding, Page, ServerId, ToolFilter};
use search::{Document, Embedder, embed_documents};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::sleep;

use super::Finder;
use super::classifying;
use super::judging::Judge;
use super::library::{Lacking, Library};
use crate::{Error, Event};

/// How many tools get their vectors at once: little enough that news are not kept waiting.
const AT_ONCE: usize = 16;
/// How long what was discovered may take to be written down before the library looks at what there is.
const WRITING: Duration = Duration::from_secs(2);
/// How long to wait before the database, or the model, is tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// What has to be read anew.
#[derive(Debug, Default)]
struct Stale {
    everything: bool,
    servers: BTreeSet<ServerId>,
}

impl Stale {
    fn is_empty(&self) -> bool {
        !self.everything && self.servers.is_empty()
    }

    /// Takes note of what happened; whether that means work.
    fn hear(&mut self, event: &Event) -> bool {
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

/// Follows what servers offer until everything ends.
pub(super) async fn follow(finder: Arc<Finder>) {
    let following = async {
        let mut news = finder.house.events.listen_to_servers();
        let mut stale = Stale { everything: true, ..Stale::default() };
        let mut is_settled = false;
        loop {
            match finder.work(&mut stale).await {
                Ok(true) => is_settled = false,
                Ok(false) if is_settled => wait(&mut news, &mut stale).await,
                Ok(false) => {
                    finder.settle().await;
                    finder.judge.iter().for_each(Judge::wake);
                    is_settled = true;
                }
                Err(error) => {
                    tracing::warn!(%error, "tools are searched as they were; trying again");
                    sleep(PAUSE).await;
                }
            }
            catch_up(&mut news, &mut stale);
        }
    };
    tokio::select! {
        () = following => {}
        () = finder.house.stop_asked() => {}
    }
}

/// Waits for something to happen.
async fn wait(news: &mut Receiver<Event>, stale: &mut Stale) {
    loop {
        match news.recv().await {
            Ok(event) if stale.hear(&event) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => {
                stale.everything = true;
                return;
            }
            // The sender is the household's, which outlives us.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Hears everything that has happened.
fn catch_up(news: &mut Receiver<Event>, stale: &mut Stale) {
    loop {
        match news.try_recv() {
            Ok(event) => {
                stale.hear(&event);
            }
            Err(TryRecvError::Lagged(_)) => stale.everything = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

impl Finder {
    /// Does some of what is to be done, little enough that news are not kept waiting; whether there was something.
    async fn work(&self, stale: &mut Stale) -> Result<bool, Error> {
        if !stale.is_empty() {
            self.read(stale).await?;
            return Ok(true);
        }
        let has_embedded = self.embed_some().await;
        // While vectors are being made, tools are classified as soon as it is worth a transaction.
        let least = if has_embedded { classifying::AT_ONCE } else { 1 };
        let has_classified = self.classify_some(least).await;
        Ok(has_embedded || has_classified)
    }

    /// Reads what is stale.
    async fn read(&self, stale: &mut Stale) -> Result<(), Error> {
        if stale.everything {
            let tools = self.house.store.tools(&ToolFilter::default(), Page::ALL).await?.items;
            self.change(move |library| library.replace_all(tools)).await?;
            self.recall().await?;
            self.change(Library::has_been_read).await?;
            stale.everything = false;
            return Ok(());
        }
        while let Some(server) = stale.servers.first().copied() {
            let is_written = self.house.records.caught_up(server, WRITING).await;
            let filter = ToolFilter { server: Some(server), ..ToolFilter::default() };
            let tools = self.house.store.tools(&filter, Page::ALL).await?.items;
            self.change(move |library| library.replace(server, tools)).await?;
            if !is_written {
                return Err(Error::Internal { what: "what was discovered is not written down yet".to_owned() });
            }
            stale.servers.remove(&server);
        }
        Ok(())
    }

    /// Takes the vectors that were made before.
    async fn recall(&self) -> Result<(), Error> {
        let Some(embedder) = &self.embedder else { return Ok(()) };
        let kept = self.house.store.embeddings(embedder.id()).await?;
        self.change(move |library| {
            for Embedding { tool, text_hash, bytes, .. } in kept {
                library.recall(tool, &text_hash, &numbers(&bytes));
            }
        })
        .await
    }

    /// Makes some of the vectors that are missing; whether there is more to be done.
    async fn embed_some(&self) -> bool {
        let Some(embedder) = self.embedder.clone() else { return false };
        let lacking = self.library.read().unwrap_or_else(PoisonError::into_inner).lacking(AT_ONCE);
        if lacking.is_empty() {
            return false;
        }
        if let Err(error) = self.embed(embedder, lacking).await {
            tracing::warn!(%error, "no vectors could be made; tools are found by words, and it is tried again");
            sleep(PAUSE).await;
        }
        true
    }

    async fn embed(&self, embedder: Arc<dyn Embedder>, lacking: Vec<Lacking>) -> Result<(), Error> {
        let library = Arc::clone(&self.library);
        let making = tokio::task::spawn_blocking(move || -> Result<Vec<Embedding>, search::EmbedError> {
            let documents: Vec<&Document> = lacking.iter().map(|lacking| &lacking.document).collect();
            let vectors = embed_documents(&*embedder, &documents)?;
            let mut library = library.write().unwrap_or_else(PoisonError::into_inner);
            let kept = lacking.iter().zip(vectors).map(|(lacking, vector)| {
                library.set_vector(lacking.tool, lacking.hash, &vector);
                Embedding {
                    tool: lacking.tool,
                    text_hash: lacking.text_hash.clone(),
                    model: embedder.id().to_owned(),
                    bytes: bytes(&vector),
                }
            });
            Ok(kept.collect())
        });
        let broke = || Error::Internal { what: "the model broke".to_owned() };
        let made = making.await.map_err(|_| broke())?;
        let made = made.map_err(|error| Error::Internal { what: error.to_string() })?;
        self.shelf_is_stale();
        self.counts.embedded.fetch_add(made.len() as u64, Ordering::Relaxed);
        self.house.store.put_embeddings(made).await?;
        Ok(())
    }

    /// Changes the library away from the thread that moves calls.
    pub(super) async fn change(&self, change: impl FnOnce(&mut Library) + Send + 'static) -> Result<(), Error> {
        let library = Arc::clone(&self.library);
        let changing = tokio::task::spawn_blocking(move || {
            change(&mut library.write().unwrap_or_else(PoisonError::into_inner));
        });
        changing.await.map_err(|_| Error::Internal { what: "the library of tools broke".to_owned() })?;
        self.shelf_is_stale();
        Ok(())
    }
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
