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

use super::classifying;
use super::judging::Judge;
use super::library::{Lacking, Library};
use super::wellness::Wellness;
use super::{Finder, with_causes};
use crate::{Error, Event};

/// How many tools get their vectors at once: little enough that news are not kept waiting.
const AT_ONCE: usize = 16;
/// Bytes of a server's instructions that count as what it says of itself: what it is for comes first.
const MOST_INSTRUCTIONS: usize = 400;
/// How long what was discovered may take to be written down before the library looks at what there is.
const WRITING: Duration = Duration::from_secs(2);
/// How long to wait before the database, or the model, is tried again; the model after longer and longer.
const PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

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

/// How it goes with the model that makes vectors.
#[derive(Debug, Default)]
struct Model {
    /// How often in a row no vectors could be made.
    failures: u32,
    /// How often it began to make vectors of another length.
    turns: u32,
    /// It is left alone until then.
    rests_until: Option<Instant>,
    /// What was wrong last; said once.
    trouble: String,
}

impl Model {
    fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| until > Instant::now())
    }

    fn rest(&mut self, times: u32) {
        let pause = PAUSE.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1))).min(LONGEST_PAUSE);
        self.rests_until = Some(Instant::now() + pause);
    }

    fn has_failed(&mut self, error: &Error) {
        self.failures += 1;
        self.rest(self.failures);
        let trouble = error.to_string();
        if trouble != self.trouble {
            tracing::warn!(%error, "no vectors could be made; tools are found by words, and it is tried again");
        }
        self.trouble = trouble;
    }

    fn has_worked(&mut self) {
        if self.failures > 0 {
            tracing::info!("vectors are made again");
        }
        self.failures = 0;
        self.trouble.clear();
        self.rests_until = None;
    }

    /// It makes vectors of another length than before under the same name. If it goes on like that, it may do so rarely.
    fn has_turned(&mut self, lengths: (usize, usize)) {
        self.turns += 1;
        self.rest(self.turns);
        let (before, now) = lengths;
        tracing::warn!(before, now, "the model makes vectors of another length; all are made anew");
    }
}

/// Vectors that were made.
struct Made {
    kept: Vec<Embedding>,
    /// The lengths that vectors had before and have now, where that is not the same.
    turned: Option<(usize, usize)>,
}

/// Follows what servers offer until everything ends.
pub(super) async fn follow(finder: Arc<Finder>) {
    let following = async {
        let mut news = finder.house.events.listen_to_servers();
        let mut stale = Stale { everything: true, ..Stale::default() };
        let mut is_settled = false;
        let mut model = Model::default();
        loop {
            match finder.work(&mut stale, &mut model).await {
                Ok(true) => is_settled = false,
                Ok(false) if is_settled => wait(&finder.wellness, &mut news, &mut stale, &mut model).await,
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

/// Waits for something to happen, or for the end of the model's rest.
async fn wait(wellness: &Wellness, news: &mut Receiver<Event>, stale: &mut Stale, model: &mut Model) {
    let rest = model.rests_until;
    let mut rested = pin!(async move {
        match rest {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    });
    loop {
        // Both may be left at any time: a message stays in its queue, a rest has its end.
        let heard = tokio::select! {
            heard = news.recv() => heard,
            () = &mut rested => {
                model.rests_until = None;
                return;
            }
            // A search met it otherwise than it was: it is looked at soon if it is gone, and now if it is back.
            () = wellness.turned() => {
                match wellness.trouble() {
                    Some(_) => model.rest(1),
                    None => model.rests_until = None,
                }
                return;
            }
        };
        match heard {
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
    async fn work(&self, stale: &mut Stale, model: &mut Model) -> Result<bool, Error> {
        if !stale.is_empty() {
            self.read(stale).await?;
            return Ok(true);
        }
        let has_embedded = self.embed_some(model).await;
        // While vectors are being made, tools are classified as soon as it is worth a transaction.
        let least = if has_embedded { classifying::AT_ONCE } else { 1 };
        let has_classified = self.classify_some(least).await;
        Ok(has_embedded || has_classified)
    }

    /// Reads what is stale.
    async fn read(&self, stale: &mut Stale) -> Result<(), Error> {
        if stale.everything {
            let tools = self.house.store.tools(&ToolFilter::default(), Page::ALL).await?.items;
            let about: Vec<_> =
                self.house.all().iter().map(|handle| (handle.id, about(&handle.shown().record))).collect();
            self.change(move |library| {
                library.describe_servers(about);
                library.replace_all(tools);
            })
            .await?;
            self.recall().await?;
            self.change(Library::has_been_read).await?;
            stale.everything = false;
            return Ok(());
        }
        while let Some(server) = stale.servers.first().copied() {
            let is_written = self.house.records.caught_up(server, WRITING).await;
            let filter = ToolFilter { server: Some(server), ..ToolFilter::default() };
            let tools = self.house.store.tools(&filter, Page::ALL).await?.items;
            let handle = self.house.find(&server.to_string()).ok();
            let about = handle.map(|handle| (server, about(&handle.shown().record)));
            self.change(move |library| {
                library.describe_servers(about);
                library.replace(server, tools);
            })
            .await?;
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

    /// Makes some of the vectors that are missing; whether there is more to be done now.
    async fn embed_some(&self, model: &mut Model) -> bool {
        let Some(embedder) = self.embedder.clone() else { return false };
        if model.is_resting() {
            return false;
        }
        let (lacking, servers) = {
            let library = self.library.read().unwrap_or_else(PoisonError::into_inner);
            (library.lacking(AT_ONCE), library.servers_lacking(AT_ONCE))
        };
        if lacking.is_empty() && !servers.is_empty() {
            match self.embed_servers(embedder, servers).await {
                Ok(()) => model.has_worked(),
                Err(error) => {
                    self.wellness.failed(error.to_string());
                    model.has_failed(&error);
                }
            }
            return !model.is_resting();
        }
        if lacking.is_empty() {
            if self.wellness.trouble().is_some() {
                self.look_at_model(embedder, model).await;
            }
            return false;
        }
        match self.embed(embedder, lacking).await {
            Ok(turned) => {
                self.wellness.worked();
                match turned {
                    None => model.has_worked(),
                    Some(lengths) => {
                        self.teller.forget();
                        model.has_turned(lengths);
                    }
                }
            }
            Err(error) => {
                self.wellness.failed(error.to_string());
                model.has_failed(&error);
            }
        }
        !model.is_resting()
    }

    /// Asks the model for anything, only to see whether it is back.
    async fn look_at_model(&self, embedder: Arc<dyn Embedder>, model: &mut Model) {
        let asking = tokio::task::spawn_blocking(move || embedder.embed(&["tool"]).map(drop));
        let asked = asking.await.map_err(|_| "the model broke".to_owned());
        match asked.and_then(|asked| asked.map_err(|error| with_causes(&error))) {
            Ok(()) => {
                self.wellness.worked();
                model.has_worked();
            }
            Err(what) => model.has_failed(&Error::Internal { what }),
        }
    }

    /// Makes vectors and keeps them; the lengths they had before and have now, where that is not the same.
    async fn embed(&self, embedder: Arc<dyn Embedder>, lacking: Vec<Lacking>) -> Result<Option<(usize, usize)>, Error> {
        let library = Arc::clone(&self.library);
        let making = tokio::task::spawn_blocking(move || -> Result<Made, EmbedError> {
            let documents: Vec<&Document> = lacking.iter().map(|lacking| &lacking.document).collect();
            let vectors = vectors_of(&*embedder, &documents)?;
            let mut library = library.write().unwrap_or_else(PoisonError::into_inner);
            let lengths = vectors.iter().flatten().map(|vector| (library.dimension(), vector.len()));
            let turned = lengths.into_iter().find(|(before, now)| *before != 0 && before != now);
            if turned.is_some() {
                library.forget_vectors();
            }
            let mut kept = Vec::with_capacity(vectors.len());
            for (lacking, vector) in lacking.iter().zip(vectors) {
                let Some(vector) = vector.filter(|vector| library.set_vector(lacking.tool, lacking.hash, vector))
                else {
                    library.give_up(lacking.tool, lacking.hash);
                    continue;
                };
                let (text_hash, model) = (lacking.text_hash.clone(), embedder.id().to_owned());
                kept.push(Embedding { tool: lacking.tool, text_hash, model, bytes: bytes(&vector) });
            }
            Ok(Made { kept, turned })
        });
        let broke = || Error::Internal { what: "the model broke".to_owned() };
        let Made { kept, turned } =
            making.await.map_err(|_| broke())?.map_err(|error| Error::Internal { what: with_causes(&error) })?;
        self.shelf_is_stale();
        self.counts.embedded.fetch_add(kept.len() as u64, Ordering::Relaxed);
        self.house.store.put_embeddings(kept).await?;
        Ok(turned)
    }

    /// Makes the vectors of what servers say of themselves. They are few, and kept nowhere.
    async fn embed_servers(
        &self,
        embedder: Arc<dyn Embedder>,
        servers: Vec<(String, TextHash, Document)>,
    ) -> Result<(), Error> {
        let library = Arc::clone(&self.library);
        let making = tokio::task::spawn_blocking(move || -> Result<(), EmbedError> {
            let documents: Vec<&Document> = servers.iter().map(|(_, _, document)| document).collect();
            let vectors = vectors_of(&*embedder, &documents)?;
            let mut library = library.write().unwrap_or_else(PoisonError::into_inner);
            for ((server, hash, _), vector) in servers.iter().zip(vectors) {
                library.set_server_vector(server, *hash, vector.as_deref());
            }
            Ok(())
        });
        let broke = |_| Error::Internal { what: "the model broke".to_owned() };
        making.await.map_err(broke)?.map_err(|error| Error::Internal { what: with_causes(&error) })
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
    let instructions = said("instructions").map(|text| &text[..text.floor_char_boundary(MOST_INSTRUCTIONS)]);
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
