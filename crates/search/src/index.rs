//! The index: tools go in and out one by one, and are found by words and by meaning.

use std::collections::HashMap;
use std::hash::Hash;

use crate::document::{Document, NameMark, TextHash};
use crate::lexical::{Lexicon, Slot, alone};
use crate::query::{Query, near, whole_and_best};
use crate::servers::Servers;
use crate::text::Word;
use crate::vector_store::StoredScores;
use crate::vectors::Vectors;

/// How much of a score comes from meaning; the rest comes from words.
const MEANING: f32 = 0.6;
/// How well the words of a tool fit whose name is the request. No others fit so well: they stay below one.
const BY_NAME: f32 = 1.0;
/// What such a tool scores at least. Who says a name means it, whatever is near.
const MIN_BY_NAME: f32 = 0.9;

/// How much of what is lacking in words a tool is given whose name is all of a request; the less, the more is said besides.
const NAME_SAID: f32 = 0.5;
/// A name that is less of a request is said by the way.
const MIN_SHARE: f32 = 0.4;

/// How much of what is lacking in words a tool is given whose server is what the request is about. By words alone nothing:
/// the server's name is among the words of its tools already.
const SERVER_SAID: f32 = 0.95;

/// Tools by key. Of equal tools the one with the smaller key comes first, so results do not depend on the order in which
/// tools came.
pub struct Index<K> {
    slots: HashMap<K, Slot>,
    tools: Vec<Option<Entry<K>>>,
    free: Vec<Slot>,
    lexicon: Lexicon,
    vectors: Vectors,
    /// Whose the tools are; nothing if these are servers themselves.
    servers: Option<Box<Servers>>,
}

struct Entry<K> {
    key: K,
    document: Document,
    /// The place of its server among the servers.
    server: Option<Slot>,
    hash: TextHash,
    names: [Option<NameMark>; 2],
    /// The words of its name that are not its server's.
    own_words: Vec<String>,
}

/// How results are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many at most.
    pub count: usize,
    /// What scores less is left out.
    pub least_score: f32,
}

/// A tool that was found, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit<K> {
    /// Which one.
    pub key: K,
    /// How well it fits, from 0 to 1. Comparable between requests, more or less, but no probability.
    pub score: f32,
    /// How well its words fit, from 0 to 1.
    pub lexical: f32,
    /// How near its meaning is, from 0 to 1; nothing if it or the request has no vector.
    pub vector: Option<f32>,
    /// The words of the request that it has, as they were written, without case.
    pub words: Vec<String>,
}

/// A tool that has no vector yet.
#[derive(Clone, Copy, Debug)]
pub struct MissingVector<'a, K> {
    /// Which one.
    pub key: &'a K,
    /// The text to be embedded.
    pub document: &'a Document,
    /// What the vector has to be given back with.
    pub hash: TextHash,
}

impl<K: Clone + Eq + Hash + Ord> Index<K> {
    /// An empty index for vectors of one model. Without a model the dimension may be zero.
    pub fn new(dimension: usize) -> Self {
        Self { servers: Some(Box::new(Servers::new(dimension))), ..Self::without_servers(dimension) }
    }

    /// An empty index of what belongs to no server.
    pub(crate) fn without_servers(dimension: usize) -> Self {
        Self {
            slots: HashMap::new(),
            tools: Vec::new(),
            free: Vec::new(),
            lexicon: Lexicon::default(),
            vectors: Vectors::new(dimension),
            servers: None,
        }
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Puts a tool in, or replaces its text. A vector stays if the text it was made from stays.
    pub fn insert(&mut self, key: K, document: Document) {
        let hash = document.text_hash();
        let known = self.slots.get(&key).copied();
        if self.document(&key).is_some_and(|known| *known == document) {
            return;
        }
        // First, so that a server is not forgotten between the old text of its only tool and the new one.
        let server = self.servers.as_mut().and_then(|servers| servers.insert(&document));
        if let Some((slot, entry)) = known.and_then(|slot| Some((slot, self.tools[slot as usize].take()?))) {
            if entry.hash != hash {
                self.vectors.clear(slot);
            }
            if let Some(servers) = &mut self.servers {
                servers.remove(&entry.document);
            }
            self.lexicon.remove(slot);
        }
        let slot = known.unwrap_or_else(|| self.empty_slot());
        let words = document.weighted_words();
        self.lexicon.insert(slot, words.iter().map(|(word, weight)| (word.as_str(), *weight)));
        self.slots.insert(key.clone(), slot);
        let (names, own_words) = (document.names(), document.own_words());
        self.tools[slot as usize] = Some(Entry { key, document, server, hash, names, own_words });
    }

    fn empty_slot(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            self.tools.push(None);
            Slot::try_from(self.tools.len() - 1).expect("there are fewer tools than that in the world")
        })
    }

    /// How many numbers a vector has here; zero while nobody knows.
    pub fn dimension(&self) -> usize {
        self.vectors.dimension()
    }

    /// Forgets all vectors. The next ones may be of any length, as long as all are.
    pub fn forget_vectors(&mut self) {
        self.vectors = Vectors::new(0);
        if let Some(servers) = &mut self.servers {
            servers.forget_vectors();
        }
    }

    /// Takes a tool out. Says whether it was there.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(slot) = self.slots.remove(key) else { return false };
        self.lexicon.remove(slot);
        self.vectors.clear(slot);
        let entry = self.tools[slot as usize].take();
        if let (Some(servers), Some(entry)) = (&mut self.servers, entry) {
            servers.remove(&entry.document);
        }
        self.free.push(slot);
        true
    }

    /// Gives a tool its vector, which was made from the text with this hash. Says no if the tool is gone, if its text is
    /// another one by now, or if this is no vector for this index.
    pub fn set_vector(&mut self, key: &K, hash: TextHash, vector: &[f32]) -> bool {
        let Some(slot) = self.slots.get(key).copied() else { return false };
        let is_current = self.tools[slot as usize].as_ref().is_some_and(|entry| entry.hash == hash);
        is_current && self.vectors.set(slot, vector)
    }

    /// Some of the servers that have no vector yet, by name. Tools are found without, but not by what their server is for.
    pub fn servers_missing_vectors(&self, count: usize) -> Vec<MissingVector<'_, String>> {
        self.servers.as_ref().map(|servers| servers.missing_vectors(count)).unwrap_or_default()
    }

    /// Gives a server its vector, as [`Index::set_vector`] does a tool.
    pub fn set_server_vector(&mut self, server: &String, hash: TextHash, vector: &[f32]) -> bool {
        self.servers.as_mut().is_some_and(|servers| servers.set_vector(server, hash, vector))
    }

    /// The text of a tool.
    pub(crate) fn document(&self, key: &K) -> Option<&Document> {
        let slot = self.slots.get(key)?;
        self.tools[*slot as usize].as_ref().map(|entry| &entry.document)
    }

    /// The place of a tool.
    pub(crate) fn slot_of(&self, key: &K) -> Option<Slot> {
        self.slots.get(key).copied()
    }

    /// A tool's vector, of length one.
    pub fn vector(&self, key: &K) -> Option<Vec<f32>> {
        self.slots.get(key).and_then(|slot| self.vectors.get(*slot))
    }

    /// Whether a tool has a vector.
    pub fn has_vector(&self, key: &K) -> bool {
        self.slots.get(key).is_some_and(|slot| self.vectors.has(*slot))
    }

    /// How many tools have a vector.
    pub fn vector_count(&self) -> usize {
        self.slots.values().filter(|slot| self.vectors.has(**slot)).count()
    }

    /// Some of the tools that have no vector yet, the smallest keys first.
    pub fn missing_vectors(&self, count: usize) -> Vec<MissingVector<'_, K>> {
        let entries = (0..).zip(&self.tools).filter(|(slot, _)| !self.vectors.has(*slot));
        let mut missing_vectors: Vec<MissingVector<K>> = entries
            .filter_map(|(_, entry)| entry.as_ref())
            .map(|Entry { key, document, hash, .. }| MissingVector { key, document, hash: *hash })
            .collect();
        missing_vectors.sort_by(|one, other| one.key.cmp(other.key));
        missing_vectors.truncate(count);
        missing_vectors
    }

    /// The tools that fit a request best, best first, among those that are admitted. The others play no part in the
    /// result but for how common they make words.
    pub fn search(&self, query: &Query, limits: Limits, admits: impl Fn(&K) -> bool) -> Vec<Hit<K>> {
        let nearness = self.vectors.nearness(query.vectors(), near);
        let compared = |_: &K, slot: Slot| Some(nearness.get(slot as usize).copied().flatten());
        self.ranked(query, limits, admits, compared)
    }

    /// The same where vectors are compared elsewhere, ranked in the same way. What is kept there counts only if
    /// something was told of it; what is not is compared here.
    pub fn search_with_scores(
        &self,
        query: &Query,
        limits: Limits,
        admits: impl Fn(&K) -> bool,
        told: &StoredScores<'_, K>,
    ) -> Vec<Hit<K>> {
        let compared = |key: &K, slot: Slot| match told.near.get(key) {
            Some(nearness) => Some(Some(*nearness)),
            None if (told.is_kept)(key) => None,
            None => Some(self.vectors.nearness_of(slot, query.vectors(), near)),
        };
        self.ranked(query, limits, admits, compared)
    }

    /// How well everything fits a request, by place.
    pub(crate) fn scores(&self, query: &Query) -> Vec<f32> {
        let nearness = self.vectors.nearness(query.vectors(), near);
        let scoring = self.scoring(query);
        let score = |(slot, entry): (usize, &Option<Entry<K>>)| {
            entry.as_ref().map_or(0.0, |_| scoring.of(slot, nearness.get(slot).copied().flatten()))
        };
        self.tools.iter().enumerate().map(score).collect()
    }

    fn scoring(&self, query: &Query) -> Scoring {
        let parts = self.scores_of_parts(query);
        let lexical = self.lexical_scores(query, &parts);
        let worth = query.stems().map(|stems| self.lexicon.worth(stems)).collect();
        Scoring { parts, lexical, worth }
    }

    /// How much the server of each tool has to do with a request.
    fn relevance(&self, query: &Query) -> Vec<f32> {
        let relevance = self.servers.as_ref().map(|servers| servers.relevance(query)).unwrap_or_default();
        let of_tool = |entry: &Option<Entry<K>>| {
            let server = entry.as_ref().and_then(|entry| entry.server);
            server.and_then(|server| relevance.get(server as usize).copied()).unwrap_or(0.0)
        };
        self.tools.iter().map(of_tool).collect()
    }

    /// The best by what was compared: nothing for what plays no part, and no number for what has no vector.
    fn ranked(
        &self,
        query: &Query,
        limits: Limits,
        admits: impl Fn(&K) -> bool,
        compared: impl Fn(&K, Slot) -> Option<Option<f32>>,
    ) -> Vec<Hit<K>> {
        let scoring = self.scoring(query);
        let mut found: Vec<(f32, Option<f32>, Slot, &K)> = Vec::new();
        for (slot, entry) in (0..).zip(&self.tools) {
            let Some(entry) = entry.as_ref().filter(|entry| admits(&entry.key)) else { continue };
            let Some(vector) = compared(&entry.key, slot) else { continue };
            let score = scoring.of(slot as usize, vector);
            if score > 0.0 && score >= limits.least_score {
                found.push((score, vector, slot, &entry.key));
            }
        }
        let by_score = |one: &(f32, Option<f32>, Slot, &K), other: &(f32, Option<f32>, Slot, &K)| {
            other.0.total_cmp(&one.0).then_with(|| one.3.cmp(other.3))
        };
        if limits.count == 0 {
            return Vec::new();
        }
        if found.len() > limits.count {
            found.select_nth_unstable_by(limits.count - 1, by_score);
            found.truncate(limits.count);
        }
        found.sort_by(by_score);
        let hit = |(score, vector, slot, key): (f32, Option<f32>, Slot, &K)| Hit {
            key: key.clone(),
            score,
            lexical: scoring.lexical[slot as usize],
            vector,
            words: self.matched(query, slot),
        };
        found.into_iter().map(hit).collect()
    }

    /// The tools that fit a request best by words alone, so many at most, and how well those that are left out fit at
    /// most.
    pub fn best_by_words(&self, query: &Query, count: usize, admits: impl Fn(&K) -> bool) -> (Vec<K>, f32) {
        let lexical = self.lexical_scores(query, &self.scores_of_parts(query));
        let entries = self.tools.iter().zip(&lexical).filter(|(_, score)| **score > 0.0);
        let mut found: Vec<(f32, &K)> = entries
            .filter_map(|(entry, score)| Some((*score, &entry.as_ref()?.key)))
            .filter(|(_, key)| admits(key))
            .collect();
        found.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        let rest = found.get(count).map_or(0.0, |(score, _)| *score);
        (found.into_iter().take(count).map(|(_, key)| key.clone()).collect(), rest)
    }

    /// For each part of a request how well each tool fits its words.
    fn scores_of_parts(&self, query: &Query) -> Vec<Vec<f32>> {
        let score = |stems: &mut dyn Iterator<Item = &str>| {
            let mut scores = vec![0.0; self.tools.len()];
            self.lexicon.score(stems, &mut scores);
            scores
        };
        query.stems().map(|mut stems| score(&mut stems)).collect()
    }

    fn lexical_scores(&self, query: &Query, parts: &[Vec<f32>]) -> Vec<f32> {
        let relevance = self.relevance(query);
        let is_named = |entry: &Option<Entry<K>>| {
            entry.as_ref().is_some_and(|entry| query.name().is_some() && entry.names.contains(&query.name()))
        };
        let score = |(slot, entry)| {
            if is_named(entry) {
                return BY_NAME;
            }
            let score = whole_and_best(&mut parts.iter().map(|part| part[slot]));
            let share = entry.as_ref().map_or(0.0, |entry| share_of_name(&entry.own_words, query.words()));
            let score = score + (1.0 - score) * NAME_SAID * share;
            score + (1.0 - score) * SERVER_SAID * relevance[slot]
        };
        self.tools.iter().enumerate().map(score).collect()
    }

    fn matched(&self, query: &Query, slot: Slot) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for word in query.words() {
            if self.lexicon.has(slot, &word.stem) && !words.contains(&word.shown) {
                words.push(word.shown.clone());
            }
        }
        words
    }
}

/// What tools score for one request.
struct Scoring {
    /// For each part of the request how well each tool fits its words.
    parts: Vec<Vec<f32>>,
    /// How well the words of each tool fit.
    lexical: Vec<f32>,
    /// What the words of each part are worth.
    worth: Vec<f32>,
}

impl Scoring {
    /// The score of a tool whose vector is so near; by words alone, if it has none.
    fn of(&self, slot: usize, vector: Option<f32>) -> f32 {
        match (vector, self.lexical[slot]) {
            (Some(vector), lexical) => fused(lexical, vector),
            (None, lexical) if lexical >= BY_NAME => BY_NAME,
            (None, _) => {
                let parts = self.parts.iter().zip(&self.worth);
                whole_and_best(&mut parts.map(|(part, worth)| alone(part[slot], *worth)))
            }
        }
    }
}

/// How much of a request is the name of a tool, from 0 to 1: nothing unless all of the name is said.
fn share_of_name(own_words: &[String], request: &[Word]) -> f32 {
    let is_said = |own: &String| request.iter().any(|word| word.stem == *own);
    let share = own_words.len() as f32 / request.len().max(1) as f32;
    let counts = (MIN_SHARE..=1.0).contains(&share) && !own_words.is_empty() && own_words.iter().all(is_said);
    if counts { share } else { 0.0 }
}

/// What a tool scores at most that fits so well by words and by meaning at most.
pub(crate) fn most(lexical: f32, vector: f32) -> f32 {
    fused(lexical, vector).max(0.0)
}

fn fused(lexical: f32, vector: f32) -> f32 {
    if lexical >= BY_NAME {
        return MIN_BY_NAME + (1.0 - MIN_BY_NAME) * vector.max(0.0);
    }
    MEANING * vector + (1.0 - MEANING) * lexical
}
