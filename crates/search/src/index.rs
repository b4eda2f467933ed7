//! The index: tools are added and removed one by one, and found by words and by meaning.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::OnceLock;

use crate::document::{DescriptionMark, Document, NameMark, TextHash};
use crate::lexical::{Lexicon, Slot, TermId, alone};
use crate::pending::Pending;
use crate::query::{Query, whole_and_best};
use crate::ranking::{Found, ranked};
use crate::rough::RoughVectors;
use crate::servers::Servers;
use crate::uses::{Uses, lifted};
use crate::vector_store::StoredScores;
use crate::vectors::{Vectors, dot};

/// The weight of meaning in a score; the rest is words.
const MEANING: f32 = 0.7;
/// The same for the rough vectors of the table.
const ROUGH_MEANING: f32 = 0.6;
/// The word score of a tool whose name is the query. All others stay below one.
const BY_NAME: f32 = 1.0;
/// The minimum score of such a tool: a query that is a name means that tool.
const MIN_BY_NAME: f32 = 0.9;

/// Two tools of one name are of one kind if their names and descriptions are at least so similar by the table. Reworded
/// copies are at 0.89 and above, different tools of one name below 0.78. Without the table, the vectors of the model count,
/// into which the server goes, too; without these, the share of words that both have.
const ALIKE: f32 = 0.85;
const ALIKE_BY_MODEL: f32 = 0.8;
const ALIKE_BY_WORDS: f32 = 0.7;

/// The bonus on the missing word score for a tool whose name is the whole query; less, the more the query contains
/// besides.
const NAME_SAID: f32 = 0.5;
/// A name that is a smaller share of a query does not count.
const MIN_SHARE: f32 = 0.4;

/// The bonus on the missing word score for tools of the server that the query is about. By words alone it is small: the
/// server's name is already among the words of its tools, and only what the server says besides is new.
const SERVER_SAID: f32 = 0.95;
const SERVER_SAID_ALONE: f32 = 0.3;

/// Tools by key. Of equal tools the one with the smaller key comes first, so results do not depend on the order of
/// insertion.
pub struct Index<K> {
    slots: HashMap<K, Slot>,
    tools: Vec<Option<Entry<K>>>,
    /// What each search looks at of every tool, by slot.
    marks: Vec<Marks>,
    free: Vec<Slot>,
    lexicon: Lexicon,
    vectors: Vectors,
    /// Tools that have no own vector yet.
    pending: Pending<K>,
    /// Vectors of the table, which are compared where there is no other.
    rough_vectors: Option<RoughVectors<K>>,
    /// The servers of the tools; None if these are servers themselves.
    servers: Option<Box<Servers>>,
    uses: Uses,
}

struct Entry<K> {
    key: K,
    document: Document,
    hash: TextHash,
    description: DescriptionMark,
    /// The vector of the table for its name and description; made when it is first compared with a tool of its name.
    rough_without_server: OnceLock<Option<Vec<f32>>>,
}

/// The parts of a tool that decide how well words fit it; nothing for an empty slot.
#[derive(Default)]
struct Marks {
    names: [Option<NameMark>; 2],
    /// The slot of its server.
    server: Option<Slot>,
    /// The words of its name that are not its server's.
    own_words: Box<[TermId]>,
}

impl<K> Entry<K> {
    fn rough_without_server(&self) -> Option<&[f32]> {
        let made = || {
            let Document { name, description, .. } = &self.document;
            let document = Document { name: name.clone(), description: description.clone(), ..Document::default() };
            document.rough_vector()
        };
        self.rough_without_server.get_or_init(made).as_deref()
    }
}

/// How results are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many at most.
    pub count: usize,
    /// Results with a lower score are dropped.
    pub least_score: f32,
}

/// A tool that was found, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit<K> {
    /// Which one.
    pub key: K,
    /// The score, from 0 to 1. Roughly comparable between queries, but not a probability.
    pub score: f32,
    /// The word score, from 0 to 1.
    pub lexical: f32,
    /// The similarity of meaning, from 0 to 1; None if it or the query has no vector.
    pub vector: Option<f32>,
    /// The words of the query that it contains, as written, ignoring case.
    pub words: Vec<String>,
}

/// A tool that has no vector yet.
#[derive(Clone, Copy, Debug)]
pub struct MissingVector<'a, K> {
    /// Which one.
    pub key: &'a K,
    /// The text to be embedded.
    pub document: &'a Document,
    /// The hash to return the vector with.
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
            marks: Vec::new(),
            free: Vec::new(),
            lexicon: Lexicon::default(),
            vectors: Vectors::new(dimension),
            pending: Pending::default(),
            rough_vectors: None,
            servers: None,
            uses: Uses::default(),
        }
    }

    /// The same, with rough vectors of the table, if that is compiled in. They are made when a tool is inserted. Requests
    /// need them as well: [`Query::with_rough_vectors`].
    #[must_use]
    pub fn with_rough_vectors(self) -> Self {
        Self { rough_vectors: RoughVectors::made_at_once(), ..self }.with_rough_servers()
    }

    /// The same, but the caller makes them: [`Index::missing_rough_vectors`].
    #[must_use]
    pub fn with_rough_vectors_later(self) -> Self {
        Self { rough_vectors: RoughVectors::made_later(), ..self }.with_rough_servers()
    }

    fn with_rough_servers(self) -> Self {
        Self { servers: self.servers.map(|servers| Box::new(servers.with_rough_vectors())), ..self }
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a tool, or replaces its text. A vector stays if its text stays.
    pub fn insert(&mut self, key: K, document: Document) {
        let hash = document.text_hash();
        let known = self.slots.get(&key).copied();
        if self.document(&key).is_some_and(|known| *known == document) {
            return;
        }
        // First, so that a server is not forgotten between the old text of its only tool and the new one.
        let server = self.servers.as_mut().and_then(|servers| servers.insert(&document));
        let mut is_same_text = false;
        if let Some((slot, entry)) = known.and_then(|slot| Some((slot, self.tools[slot as usize].take()?))) {
            is_same_text = entry.hash == hash;
            if !is_same_text {
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
        if !is_same_text {
            self.pending.insert(key.clone());
            if let Some(rough_vectors) = &mut self.rough_vectors {
                rough_vectors.insert(&key, slot, &document);
            }
        }
        let own_words = self.lexicon.terms(slot, &document.own_words()).into_boxed_slice();
        self.marks[slot as usize] = Marks { names: document.names(), server, own_words };
        let (description, rough_without_server) = (document.description_mark(), OnceLock::new());
        self.tools[slot as usize] = Some(Entry { key, document, hash, description, rough_without_server });
    }

    fn empty_slot(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            self.tools.push(None);
            self.marks.push(Marks::default());
            Slot::try_from(self.tools.len() - 1).expect("there are fewer tools than that in the world")
        })
    }

    /// The dimension of vectors; zero while unknown.
    pub fn dimension(&self) -> usize {
        self.vectors.dimension()
    }

    /// Says how long the vectors of a remote model are, before the first of them is there.
    pub fn expect_dimension(&mut self, dimension: usize) {
        self.vectors.expect_dimension(dimension);
        if let Some(servers) = &mut self.servers {
            servers.expect_dimension(dimension);
        }
    }

    /// Removes all vectors of the model, also those that it could not make: the next ones may have another dimension.
    /// Those of the table stay.
    pub fn forget_vectors(&mut self) {
        self.vectors = Vectors::new(0);
        self.pending = self.slots.keys().cloned().collect();
        if let Some(servers) = &mut self.servers {
            servers.forget_vectors();
        }
    }

    /// Removes a tool. Returns whether it existed.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(slot) = self.slots.remove(key) else { return false };
        self.lexicon.remove(slot);
        self.vectors.clear(slot);
        self.pending.remove(key);
        if let Some(rough_vectors) = &mut self.rough_vectors {
            rough_vectors.remove(key, slot);
        }
        self.uses.remove(slot);
        self.marks[slot as usize] = Marks::default();
        let entry = self.tools[slot as usize].take();
        if let (Some(servers), Some(entry)) = (&mut self.servers, entry) {
            servers.remove(&entry.document);
        }
        self.free.push(slot);
        true
    }

    /// Sets the vector of a tool for the text with this hash. Returns false if the tool was removed, its text changed,
    /// or the vector does not fit.
    pub fn set_vector(&mut self, key: &K, hash: TextHash, vector: &[f32]) -> bool {
        let Some(slot) = self.current_slot(key, hash) else { return false };
        let is_set = self.vectors.set(slot, vector);
        if is_set {
            self.pending.remove(key);
        }
        is_set
    }

    /// Records that the model has no vector for the text with this hash: it is not asked for again until the text
    /// changes or all vectors are forgotten.
    pub fn give_up(&mut self, key: &K, hash: TextHash) {
        if self.current_slot(key, hash).is_some() {
            self.pending.give_up(key);
        }
    }

    /// Whether the model has no vector for a tool's text.
    pub fn has_given_up(&self, key: &K) -> bool {
        self.pending.has_given_up(key)
    }

    /// The slot of a tool, if its text has this hash.
    fn current_slot(&self, key: &K, hash: TextHash) -> Option<Slot> {
        let slot = *self.slots.get(key)?;
        self.tools[slot as usize].as_ref().filter(|entry| entry.hash == hash).map(|_| slot)
    }

    /// Counts that a user has used a tool after a search with this word ([`crate::words_of_use`]). It lifts the tool for
    /// such searches ([`Query::by_user`]).
    pub fn add_uses(&mut self, user: &str, word: &str, key: &K, uses: u32) {
        if let Some(slot) = self.slots.get(key) {
            self.uses.add(user, word, *slot, uses);
        }
    }

    /// Forgets all uses.
    pub fn forget_uses(&mut self) {
        self.uses = Uses::default();
    }

    /// Lets a tool be found by a vector that is close to its own: of an earlier model, or of a slightly different text.
    /// The tool still counts as one without a vector.
    pub fn set_interim_vector(&mut self, key: &K, vector: &[f32]) -> bool {
        self.slots.get(key).is_some_and(|slot| self.vectors.set_interim(*slot, vector))
    }

    /// Some of the servers without a vector, by name. Their tools are found, but not by the purpose of their server.
    pub fn servers_missing_vectors(&self, count: usize) -> Vec<MissingVector<'_, String>> {
        self.servers.as_ref().map(|servers| servers.missing_vectors(count)).unwrap_or_default()
    }

    /// Sets the vector of a server, like [`Index::set_vector`].
    pub fn set_server_vector(&mut self, server: &String, hash: TextHash, vector: &[f32]) -> bool {
        self.servers.as_mut().is_some_and(|servers| servers.set_vector(server, hash, vector))
    }

    /// The same as [`Index::give_up`] for a server.
    pub fn give_up_server(&mut self, server: &String, hash: TextHash) {
        if let Some(servers) = &mut self.servers {
            servers.give_up(server, hash);
        }
    }

    /// Tools without a vector of the table and without any other; `with_own` adds those that have another one. Empty if
    /// these are made at once, or never.
    pub fn missing_rough_vectors(&self, with_own: bool) -> Vec<K> {
        let Some(rough_vectors) = &self.rough_vectors else { return Vec::new() };
        let mut missing: Vec<K> = self.pending.iter().filter(|key| rough_vectors.is_missing(key)).cloned().collect();
        if with_own {
            missing.extend(rough_vectors.missing().filter(|key| !self.pending.contains(key)).cloned());
        }
        missing
    }

    /// Sets the vector of the table for the text with this hash.
    pub fn set_rough_vector(&mut self, key: &K, hash: TextHash, vector: &[f32]) {
        if let Some(slot) = self.current_slot(key, hash)
            && let Some(rough_vectors) = &mut self.rough_vectors
        {
            rough_vectors.set(key, slot, vector);
        }
    }

    /// The text of a tool, and its hash.
    pub fn text(&self, key: &K) -> Option<(&Document, TextHash)> {
        let slot = self.slots.get(key)?;
        self.tools[*slot as usize].as_ref().map(|entry| (&entry.document, entry.hash))
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

    /// Some of the tools that have no vector yet, the smallest keys first, without those that were given up.
    pub fn missing_vectors(&self, count: usize) -> Vec<MissingVector<'_, K>> {
        let missing = self.pending.iter().take(count).filter_map(|key| {
            let (document, hash) = self.text(key)?;
            Some(MissingVector { key, document, hash })
        });
        missing.collect()
    }

    /// The tools that match a query best, best first, among those that are admitted. The others only affect how common
    /// words are.
    pub fn search(&self, query: &Query, limits: Limits, admits: impl Fn(&K) -> bool) -> Vec<Hit<K>> {
        let nearness = self.vectors.nearness(query.vectors());
        let rough = self.rough_nearness(query, &nearness);
        self.ranked(query, limits, admits, |_, slot| Some(nearness_at(slot, &nearness, &rough)))
    }

    /// The same if vectors are compared in a vector store, ranked in the same way. A tool in the store counts only if
    /// it has a score; others are compared here.
    pub fn search_with_scores(
        &self,
        query: &Query,
        limits: Limits,
        admits: impl Fn(&K) -> bool,
        stored: &StoredScores<'_, K>,
    ) -> Vec<Hit<K>> {
        let rough = self.rough_nearness(query, &[]);
        let compared = |key: &K, slot: Slot| match stored.near.get(key) {
            Some(nearness) => Some(Some(Nearness::Exact(*nearness))),
            None if (stored.is_kept)(key) => None,
            None => {
                let nearness = self.vectors.nearness_of(slot, query.vectors()).map(Nearness::Exact);
                Some(nearness.or_else(|| rough.get(slot as usize).copied().flatten().map(Nearness::Rough)))
            }
        };
        self.ranked(query, limits, admits, compared)
    }

    /// How near the rough vectors are, by place; nothing if every tool has a nearness by its own vector.
    fn rough_nearness(&self, query: &Query, nearness: &[Option<f32>]) -> Vec<Option<f32>> {
        let Some(rough_vectors) = &self.rough_vectors else { return Vec::new() };
        let has_own = |slot: usize| nearness.get(slot).copied().flatten().is_some();
        if self.tools.iter().enumerate().all(|(slot, entry)| has_own(slot) || entry.is_none()) {
            return Vec::new();
        }
        rough_vectors.nearness(query.rough_vectors())
    }

    /// How well everything fits a request, by place.
    pub(crate) fn scores(&self, query: &Query) -> Vec<f32> {
        let nearness = self.vectors.nearness(query.vectors());
        let rough = self.rough_nearness(query, &nearness);
        let scoring = self.scoring(query);
        let score = |(slot, entry): (Slot, &Option<Entry<K>>)| {
            entry.as_ref().map_or(0.0, |_| scoring.of(slot as usize, nearness_at(slot, &nearness, &rough)))
        };
        (0..).zip(&self.tools).map(score).collect()
    }

    fn scoring(&self, query: &Query) -> Scoring {
        let parts = self.scores_of_parts(query);
        let relevance = self.relevance(query);
        let lexical = self.lexical_scores(query, &parts, &relevance);
        let worth = query.stems().map(|stems| self.lexicon.worth(stems)).collect();
        let lifts = self.lifts(query);
        Scoring { parts, lexical, worth, relevance, lifts }
    }

    fn lifts(&self, query: &Query) -> HashMap<Slot, f32> {
        self.uses.lifts(query, |stem| self.lexicon.worth(std::iter::once(stem)))
    }

    /// The relevance of each tool's server for a query.
    fn relevance(&self, query: &Query) -> Vec<f32> {
        let relevance = self.servers.as_ref().map(|servers| servers.relevance(query)).unwrap_or_default();
        let of_tool =
            |marks: &Marks| marks.server.and_then(|server| relevance.get(server as usize).copied()).unwrap_or(0.0);
        self.marks.iter().map(of_tool).collect()
    }

    /// Ranks the admitted tools. `compared` returns a tool's similarity: `None` if the tool does not take part, and
    /// `Some(None)` if it has no vector.
    fn ranked(
        &self,
        query: &Query,
        limits: Limits,
        admits: impl Fn(&K) -> bool,
        compared: impl Fn(&K, Slot) -> Option<Option<Nearness>>,
    ) -> Vec<Hit<K>> {
        let scoring = self.scoring(query);
        let mut candidates = Vec::with_capacity(self.slots.len());
        for (slot, entry) in (0..).zip(&self.tools) {
            let Some(entry) = entry.as_ref() else { continue };
            let Some(vector) = compared(&entry.key, slot) else { continue };
            let score = scoring.of(slot as usize, vector);
            if score > 0.0 && score >= limits.least_score {
                candidates.push(Found { score, vector: vector.map(Nearness::value), slot, key: &entry.key });
            }
        }
        // Who names a tool asks for all of that name.
        let are_alike =
            |one: Slot, other: Slot| scoring.lexical[one as usize] < BY_NAME && self.are_of_one_kind(one, other);
        let hit = |Found { score, vector, slot, key }: Found<'_, K>| Hit {
            key: key.clone(),
            score,
            lexical: scoring.lexical[slot as usize],
            vector,
            words: self.matched(query, slot),
        };
        // Whether a tool is admitted may be a costly question, so it is asked last.
        ranked(candidates, limits.count, admits, are_alike).into_iter().map(hit).collect()
    }

    /// Whether two tools do the same, as the same tool of two servers does: they have one name and nearly one text.
    fn are_of_one_kind(&self, one: Slot, other: Slot) -> bool {
        let entry = |slot: Slot| self.tools[slot as usize].as_ref();
        let (Some(first), Some(second)) = (entry(one), entry(other)) else { return false };
        let [first_name, second_name] = [one, other].map(|slot| self.marks[slot as usize].names[0]);
        if first_name.is_none() || first_name != second_name {
            return false;
        }
        if first.description == second.description {
            return true;
        }
        if let (Some(first), Some(second)) = (first.rough_without_server(), second.rough_without_server()) {
            return dot(first, second) >= ALIKE;
        }
        match (self.vectors.get(one), self.vectors.get(other)) {
            (Some(one), Some(other)) => dot(&one, &other) >= ALIKE_BY_MODEL,
            _ => self.lexicon.overlap(one, other) >= ALIKE_BY_WORDS,
        }
    }

    /// The best matches by words alone, up to a limit, and those that uses lift; and an upper bound for the others.
    pub fn best_by_words(&self, query: &Query, count: usize, admits: impl Fn(&K) -> bool) -> (Vec<K>, f32) {
        let lexical = self.lexical_scores(query, &self.scores_of_parts(query), &self.relevance(query));
        let entries = self.tools.iter().zip(&lexical).filter(|(_, score)| **score > 0.0);
        let mut found: Vec<(f32, &K)> = entries
            .filter_map(|(entry, score)| Some((*score, &entry.as_ref()?.key)))
            .filter(|(_, key)| admits(key))
            .collect();
        found.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        let rest = found.get(count).map_or(0.0, |(score, _)| *score);
        let mut best: Vec<K> = found.into_iter().take(count).map(|(_, key)| key.clone()).collect();
        let lifted = self.lifts(query).into_keys().filter_map(|slot| Some(&self.tools[slot as usize].as_ref()?.key));
        let lifted: Vec<K> = lifted.filter(|key| !best.contains(key) && admits(key)).cloned().collect();
        best.extend(lifted);
        (best, rest)
    }

    /// For each part of a query the word scores of all tools.
    fn scores_of_parts(&self, query: &Query) -> Vec<Vec<f32>> {
        let score = |stems: &mut dyn Iterator<Item = &str>| {
            let mut scores = vec![0.0; self.tools.len()];
            self.lexicon.score(stems, &mut scores);
            scores
        };
        query.stems().map(|mut stems| score(&mut stems)).collect()
    }

    fn lexical_scores(&self, query: &Query, parts: &[Vec<f32>], relevance: &[f32]) -> Vec<f32> {
        let is_named = |marks: &Marks| query.name().is_some() && marks.names.contains(&query.name());
        let are_said = self.lexicon.are_said(query.words().iter().map(|word| word.stem.as_str()));
        let words = query.words().len();
        let score = |(slot, marks): (usize, &Marks)| {
            if is_named(marks) {
                return BY_NAME;
            }
            let score = whole_and_best(parts.iter().map(|part| part[slot]));
            let share = share_of_name(&marks.own_words, &are_said, words);
            let score = score + (1.0 - score) * NAME_SAID * share;
            score + (1.0 - score) * SERVER_SAID * relevance[slot]
        };
        self.marks.iter().enumerate().map(score).collect()
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

/// How near a tool's meaning is to a request.
#[derive(Clone, Copy, Debug)]
enum Nearness {
    /// By the vectors of the model.
    Exact(f32),
    /// By those of the table.
    Rough(f32),
}

impl Nearness {
    fn value(self) -> f32 {
        match self {
            Self::Exact(value) | Self::Rough(value) => value,
        }
    }
}

/// The nearness at a place: by the vectors of the model, or else by those of the table.
fn nearness_at(slot: Slot, exact: &[Option<f32>], rough: &[Option<f32>]) -> Option<Nearness> {
    let at = |all: &[Option<f32>]| all.get(slot as usize).copied().flatten();
    at(exact).map(Nearness::Exact).or_else(|| at(rough).map(Nearness::Rough))
}

/// What tools score for one request.
struct Scoring {
    /// For each part of the query the word scores of all tools.
    parts: Vec<Vec<f32>>,
    /// The best word score of each tool.
    lexical: Vec<f32>,
    /// The value of the words of each part.
    worth: Vec<f32>,
    /// The relevance of each tool's server.
    relevance: Vec<f32>,
    /// What uses add to the scores of some tools.
    lifts: HashMap<Slot, f32>,
}

impl Scoring {
    /// The score of a tool whose vector is so near, lifted if it was used for such requests.
    fn of(&self, slot: usize, vector: Option<Nearness>) -> f32 {
        let score = self.without_uses(slot, vector);
        if self.lifts.is_empty() || score >= MIN_BY_NAME {
            return score;
        }
        let lift = Slot::try_from(slot).ok().and_then(|slot| self.lifts.get(&slot));
        // Who names a tool gets that one first.
        lift.map_or(score, |lift| lifted(score, *lift).min(MIN_BY_NAME))
    }

    /// The score by words and meaning; by words alone, if the tool has no vector.
    fn without_uses(&self, slot: usize, vector: Option<Nearness>) -> f32 {
        match (vector, self.lexical[slot]) {
            (Some(Nearness::Exact(vector)), lexical) => fused(lexical, vector, MEANING),
            (Some(Nearness::Rough(vector)), lexical) => fused(lexical, vector, ROUGH_MEANING),
            (None, lexical) if lexical >= BY_NAME => BY_NAME,
            (None, _) => {
                let parts = self.parts.iter().zip(&self.worth);
                let score = whole_and_best(parts.map(|(part, worth)| alone(part[slot], *worth)));
                score + (1.0 - score) * SERVER_SAID_ALONE * self.relevance[slot]
            }
        }
    }
}

/// The share of the query of so many words that is the name of a tool, from 0 to 1; 0 unless the whole name occurs.
fn share_of_name(own_words: &[TermId], are_said: &[bool], words: usize) -> f32 {
    let is_said = |own: &TermId| are_said[*own as usize];
    let share = own_words.len() as f32 / words.max(1) as f32;
    let counts = (MIN_SHARE..=1.0).contains(&share) && !own_words.is_empty() && own_words.iter().all(is_said);
    if counts { share } else { 0.0 }
}

/// The maximum score of a tool with these maximum word score and similarity.
pub(crate) fn most(lexical: f32, vector: f32) -> f32 {
    fused(lexical, vector, MEANING).max(0.0)
}

fn fused(lexical: f32, vector: f32, meaning: f32) -> f32 {
    if lexical >= BY_NAME {
        return MIN_BY_NAME + (1.0 - MIN_BY_NAME) * vector.max(0.0);
    }
    meaning * vector + (1.0 - meaning) * lexical
}
