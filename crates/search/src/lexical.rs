//! Finds tools by words: BM25, updated tool by tool.

use std::collections::HashMap;
use std::sync::Arc;

/// How soon repetitions of a word stop counting.
const SATURATION: f32 = 1.2;
/// How much long texts are penalized.
const LENGTH: f32 = 0.75;
/// The raw score that counts as half. It keeps scores between zero and one and independent of other results, so a tool
/// that is stuffed with words cannot lower the scores of others.
const HALF: f32 = 16.0;

/// The maximum score by words alone, and the share of the query that counts half of that.
const MAX_ALONE: f32 = 0.7;
const ALONE_HALF: f32 = 0.4;

/// A word that is in the index.
pub(crate) type TermId = u32;
/// The index of a tool, assigned by the owner of the lexicon.
pub(crate) type Slot = u32;

/// Which words are in which tools.
#[derive(Default)]
pub(crate) struct Lexicon {
    terms: HashMap<Arc<str>, TermId>,
    names: Vec<Arc<str>>,
    /// Unused words, for reuse.
    free: Vec<TermId>,
    /// For each word the tools that have it, by slot, and how often.
    postings: Vec<Vec<(Slot, f32)>>,
    /// For each slot its words and their weights; nothing for an empty one.
    tools: Vec<Option<Vec<(TermId, f32)>>>,
    /// For each slot the sum of the weights of its words. Apart, because each search looks at many of them.
    lengths: Vec<f32>,
    count: usize,
    total_length: f64,
}

impl Lexicon {
    /// Puts a tool into an empty slot. Each word comes with the weight of its field.
    pub(crate) fn insert<'a>(&mut self, slot: Slot, words: impl Iterator<Item = (&'a str, f32)>) {
        let mut terms: Vec<(TermId, f32)> = words.map(|(word, weight)| (self.term(word), weight)).collect();
        let length: f32 = terms.iter().map(|(_, weight)| weight).sum();
        terms.sort_by_key(|(term, _)| *term);
        terms.dedup_by(|next, first| {
            let is_same = next.0 == first.0;
            first.1 += if is_same { next.1 } else { 0.0 };
            is_same
        });
        for (term, weight) in &terms {
            let posting = &mut self.postings[*term as usize];
            let place = posting.partition_point(|(other, _)| *other < slot);
            posting.insert(place, (slot, *weight));
        }
        let place = slot as usize;
        if self.tools.len() <= place {
            self.tools.resize_with(place + 1, || None);
            self.lengths.resize(place + 1, 0.0);
        }
        debug_assert!(self.tools[place].is_none(), "the slot is empty");
        self.tools[place] = Some(terms);
        self.lengths[place] = length;
        self.count += 1;
        self.total_length += f64::from(length);
    }

    /// Takes the tool out of a slot, if there is one.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let Some(words) = self.tools.get_mut(slot as usize).and_then(Option::take) else { return };
        for (term, _) in &words {
            let posting = &mut self.postings[*term as usize];
            posting.retain(|(other, _)| *other != slot);
            if posting.is_empty() {
                // Servers may change their texts often: unused words are not kept forever.
                self.terms.remove(&self.names[*term as usize]);
                self.free.push(*term);
            }
        }
        self.count -= 1;
        self.total_length -= f64::from(self.lengths[slot as usize]);
        if self.count == 0 {
            // Recompute, so that sums of floats do not drift.
            *self = Self::default();
        }
    }

    fn term(&mut self, word: &str) -> TermId {
        if let Some(term) = self.terms.get(word) {
            return *term;
        }
        let name: Arc<str> = word.into();
        let term = self.free.pop().unwrap_or_else(|| {
            self.postings.push(Vec::new());
            self.names.push(Arc::clone(&name));
            TermId::try_from(self.postings.len() - 1).expect("there are fewer words than that in the world")
        });
        self.names[term as usize] = Arc::clone(&name);
        self.terms.insert(name, term);
        term
    }

    /// Adds to `scores`, one for each slot, how well each tool fits these words. All are below one.
    pub(crate) fn score<'a>(&self, words: impl Iterator<Item = &'a str>, scores: &mut [f32]) {
        let average = (self.total_length / self.count.max(1) as f64) as f32;
        for word in words {
            let Some(term) = self.terms.get(word) else { continue };
            let posting = &self.postings[*term as usize];
            let rarity = self.rarity(posting.len());
            for (slot, weight) in posting {
                let room = SATURATION * (1.0 - LENGTH + LENGTH * self.lengths[*slot as usize] / average);
                scores[*slot as usize] += rarity * (SATURATION + 1.0) * weight / (weight + room);
            }
        }
        for score in scores {
            *score /= *score + HALF;
        }
    }

    /// The value of these words: the raw score of a tool that contains each of them once.
    pub(crate) fn worth<'a>(&self, words: impl Iterator<Item = &'a str>) -> f32 {
        let tools_with = |word| self.terms.get(word).map_or(0, |term| self.postings[*term as usize].len());
        words.map(|word| self.rarity(tools_with(word))).sum()
    }

    /// The value of a word that this many tools have.
    fn rarity(&self, tools: usize) -> f32 {
        let (all, tools) = (self.count as f32, tools as f32);
        ((all - tools + 0.5) / (tools + 0.5)).ln_1p()
    }

    /// The share of their words that two tools have in common, from 0 to 1.
    pub(crate) fn overlap(&self, one: Slot, other: Slot) -> f32 {
        let terms = |slot: Slot| self.tools.get(slot as usize).and_then(Option::as_deref).unwrap_or_default();
        let (one, other) = (terms(one), terms(other));
        let (mut common, mut all) = (0.0, one.iter().map(|(_, weight)| weight).sum::<f32>());
        for (term, weight) in other {
            let place = one.binary_search_by_key(term, |(term, _)| *term);
            let there = place.map_or(0.0, |place| one[place].1);
            common += there.min(*weight);
            all += (weight - there).max(0.0);
        }
        if all > 0.0 { common / all } else { 0.0 }
    }

    /// Some words of the tool in a slot, by number; none if it lacks one of them. They stay as long as the tool does.
    pub(crate) fn terms(&self, slot: Slot, words: &[String]) -> Vec<TermId> {
        let term = |word: &String| self.terms.get(word.as_str()).copied().filter(|_| self.has(slot, word));
        words.iter().map(term).collect::<Option<_>>().unwrap_or_default()
    }

    /// For each word by number whether it is one of these.
    pub(crate) fn are_said<'a>(&self, words: impl Iterator<Item = &'a str>) -> Vec<bool> {
        let mut are_said = vec![false; self.names.len()];
        for term in words.filter_map(|word| self.terms.get(word)) {
            are_said[*term as usize] = true;
        }
        are_said
    }

    /// Whether the tool in a slot has a word.
    pub(crate) fn has(&self, slot: Slot, word: &str) -> bool {
        let Some(term) = self.terms.get(word) else { return false };
        let words = self.tools.get(slot as usize).and_then(Option::as_ref);
        words.is_some_and(|words| words.binary_search_by_key(term, |(term, _)| *term).is_ok())
    }
}

/// The score if words are the only criterion. A good match then scores about as much as with meaning, however few tools
/// there are and however common words are.
pub(crate) fn alone(score: f32, worth: f32) -> f32 {
    if worth <= 0.0 {
        return 0.0;
    }
    let share = HALF * score / (1.0 - score) / worth;
    MAX_ALONE * share / (share + ALONE_HALF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(lexicon: &mut Lexicon, slot: Slot, text: &str) {
        lexicon.insert(slot, text.split(' ').map(|word| (word, 1.0)));
    }

    fn scores(lexicon: &Lexicon, slots: usize, text: &str) -> Vec<f32> {
        let mut scores = vec![0.0; slots];
        lexicon.score(text.split(' '), &mut scores);
        scores
    }

    #[test]
    fn rare_words_count_more_than_common_ones() {
        let mut lexicon = Lexicon::default();
        insert(&mut lexicon, 0, "get weather");
        insert(&mut lexicon, 1, "get time");
        insert(&mut lexicon, 2, "get issue");
        let scores = scores(&lexicon, 3, "get weather");
        assert!(scores[0] > scores[1] && scores[1] == scores[2] && scores[2] > 0.0, "{scores:?}");
        assert!(scores.iter().all(|score| (0.0..1.0).contains(score)));
    }

    #[test]
    fn what_was_put_in_and_taken_out_leaves_no_trace() {
        let mut lexicon = Lexicon::default();
        insert(&mut lexicon, 0, "get weather");
        insert(&mut lexicon, 1, "get time now");
        let before = scores(&lexicon, 3, "get time");
        insert(&mut lexicon, 2, "set time zone");
        assert_ne!(scores(&lexicon, 3, "get time"), before);
        lexicon.remove(2);
        lexicon.remove(2);
        assert_eq!(scores(&lexicon, 3, "get time"), before);
    }

    #[test]
    fn unused_words_take_no_memory() {
        let mut lexicon = Lexicon::default();
        insert(&mut lexicon, 0, "stays");
        for number in 0..100 {
            insert(&mut lexicon, 1, &format!("word{number} other{number}"));
            lexicon.remove(1);
        }
        assert!(lexicon.terms.len() == 1 && lexicon.postings.len() == 3, "{}", lexicon.postings.len());
        insert(&mut lexicon, 1, "new");
        assert!(scores(&lexicon, 2, "new")[1] > 0.0 && !lexicon.has(1, "word99"));
    }

    #[test]
    fn an_empty_index_knows_nothing() {
        assert_eq!(scores(&Lexicon::default(), 1, "anything"), [0.0]);
        let mut lexicon = Lexicon::default();
        lexicon.insert(0, std::iter::empty());
        assert_eq!(scores(&lexicon, 1, "anything"), [0.0]);
    }
}
