//! What tools were used for: counts of the uses that followed a search, by user, word of the search and tool.
//!
//! They lift a tool by a bounded amount. Among those who share an index, nobody can lift a tool much for the others: for
//! them all the uses of one user count as a part of one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::lexical::Slot;
use crate::query::Query;

/// The share of what a score lacks to one that uses can add.
const MAX_LIFT: f32 = 0.1;
/// The number of uses that counts half of that.
const HALF: f32 = 1.0;
/// More uses of one tool by one user for one word do not count.
pub const MAX_COUNT: u32 = 8;
/// What all uses of another user count for a word: a part of one own use.
const OF_ANOTHER: f32 = 0.25;
/// The same of all other users together.
const MAX_OF_OTHERS: f32 = 4.0;
/// So many words of a search are counted.
const MAX_WORDS: usize = 16;

/// The words of a search under which a use of what it found is counted.
pub fn words_of_use(query: &str) -> Vec<String> {
    let query = Query::new(query);
    let mut known = HashSet::new();
    let stems = query.words().iter().map(|word| word.stem.clone()).filter(|stem| known.insert(stem.clone()));
    stems.take(MAX_WORDS).collect()
}

/// A user, by number.
type User = u32;

#[derive(Debug, Clone, Copy)]
struct Count {
    slot: Slot,
    user: User,
    uses: u32,
}

/// The counts of all tools.
#[derive(Default)]
pub(crate) struct Uses {
    users: HashMap<Arc<str>, User>,
    by_word: HashMap<Arc<str>, Vec<Count>>,
    /// The words of each tool, so that it can be removed.
    words: HashMap<Slot, HashSet<Arc<str>>>,
}

impl Uses {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_word.is_empty()
    }

    pub(crate) fn add(&mut self, user: &str, word: &str, slot: Slot, uses: u32) {
        let next = User::try_from(self.users.len()).expect("there are fewer users than that in the world");
        let user = match self.users.get(user) {
            Some(user) => *user,
            None => *self.users.entry(user.into()).or_insert(next),
        };
        let word = match self.by_word.get_key_value(word) {
            Some((word, _)) => Arc::clone(word),
            None => Arc::from(word),
        };
        self.words.entry(slot).or_default().insert(Arc::clone(&word));
        let counts = self.by_word.entry(word).or_default();
        match counts.iter_mut().find(|count| count.slot == slot && count.user == user) {
            Some(count) => count.uses = count.uses.saturating_add(uses).min(MAX_COUNT),
            None => counts.push(Count { slot, user, uses: uses.min(MAX_COUNT) }),
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        for word in self.words.remove(&slot).unwrap_or_default() {
            let Some(counts) = self.by_word.get_mut(&word) else { continue };
            counts.retain(|count| count.slot != slot);
            if counts.is_empty() {
                self.by_word.remove(&word);
            }
        }
    }

    /// The share of what its score lacks to one that each used tool gains for a query, from 0 to [`MAX_LIFT`]. Rare words
    /// count more, as they do where texts are compared.
    pub(crate) fn lifts(&self, query: &Query, rarity: impl Fn(&str) -> f32) -> HashMap<Slot, f32> {
        let Some(user) = query.user().filter(|_| !self.is_empty()) else { return HashMap::new() };
        let user = self.users.get(user).copied();
        let (mut known, mut total) = (HashSet::new(), 0.0);
        let mut sums: HashMap<Slot, f32> = HashMap::new();
        for word in query.words().iter().filter(|word| known.insert(word.stem.as_str())) {
            let weight = rarity(&word.stem);
            total += weight;
            let mut of_others: HashMap<Slot, f32> = HashMap::new();
            for count in self.by_word.get(word.stem.as_str()).into_iter().flatten() {
                if Some(count.user) == user {
                    *sums.entry(count.slot).or_default() += weight * count.uses as f32;
                } else {
                    *of_others.entry(count.slot).or_default() += OF_ANOTHER;
                }
            }
            for (slot, uses) in of_others {
                *sums.entry(slot).or_default() += weight * uses.min(MAX_OF_OTHERS);
            }
        }
        let lift = |uses: f32| MAX_LIFT * uses / (uses + HALF);
        sums.into_iter().map(|(slot, sum)| (slot, lift(sum / f32::max(total, f32::MIN_POSITIVE)))).collect()
    }
}

/// A score, lifted.
pub(crate) fn lifted(score: f32, lift: f32) -> f32 {
    score + (1.0 - score) * lift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lift(uses: &Uses, user: &str, query: &str) -> f32 {
        uses.lifts(&Query::new(query).by_user(user.into()), |_| 2.0).get(&7).copied().unwrap_or(0.0)
    }

    #[test]
    fn own_uses_count_more_and_all_are_bounded() {
        let mut uses = Uses::default();
        assert_eq!(lift(&uses, "me", "ping the gang"), 0.0);
        uses.add("me", "gang", 7, 1);
        let (own, others) = (lift(&uses, "me", "gang"), lift(&uses, "you", "gang"));
        assert!(own > others && others > 0.0, "{own} {others}");
        assert!(lift(&uses, "me", "ping the gang") < own, "half of the words were said");
        uses.add("me", "gang", 7, 1_000_000);
        assert!(lift(&uses, "me", "gang") > own && lift(&uses, "me", "gang") < MAX_LIFT);
        assert_eq!(lift(&uses, "you", "gang"), others, "nobody counts twice for others");
        for user in 0..10_000 {
            uses.add(&format!("crowd{user}"), "gang", 7, 1);
        }
        assert!(lift(&uses, "you", "gang") <= MAX_LIFT * MAX_OF_OTHERS / (MAX_OF_OTHERS + HALF));
        assert!(uses.lifts(&Query::new("gang"), |_| 2.0).is_empty(), "a query of no user learns nothing");
    }

    #[test]
    fn a_removed_tool_leaves_no_trace() {
        let mut uses = Uses::default();
        uses.add("me", "gang", 7, 1);
        uses.add("me", "gang", 8, 1);
        uses.remove(7);
        assert_eq!((lift(&uses, "me", "gang"), uses.by_word["gang"].len()), (0.0, 1));
        uses.remove(8);
        assert!(uses.is_empty());
    }

    #[test]
    fn the_words_of_a_use_are_stems_and_few() {
        assert_eq!(words_of_use("Send the messages, send them"), ["send", "messag"]);
        let long: String = (0..100).map(|number| format!("word{number} ")).collect();
        assert_eq!(words_of_use(&long).len(), MAX_WORDS);
    }
}
