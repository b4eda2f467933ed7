//! What tools were used for lifts them, within bounds.

use std::sync::Arc;

use search::{Document, Hit, Index, MAX_USES, Query, words_of_use};

use crate::quality::tools_of_servers;
use crate::{TEN, document, embed_lacking, embedded};

/// What one team asks for, and the tool it then calls.
struct Habit {
    tool: usize,
    learned: Vec<&'static str>,
    judged: Vec<&'static str>,
}

fn habits(documents: &[Document]) -> Vec<Habit> {
    let lines = include_str!("../quality/uses.txt").lines().filter(|line| !line.starts_with('#'));
    let habit = |line: &'static str| {
        let mut parts = line.split(" | ");
        let (server, name) = parts.next().and_then(|tool| tool.split_once(' ')).expect("a line begins with a tool");
        let is_it = |document: &Document| document.server == server && document.name == name;
        let tool = documents.iter().position(is_it).unwrap_or_else(|| panic!("there is no {server} {name}"));
        let requests: Vec<&str> = parts.collect();
        let (learned, judged) = requests.split_at(requests.len() / 2);
        Habit { tool, learned: learned.to_vec(), judged: judged.to_vec() }
    };
    lines.map(habit).collect()
}

fn by(user: &str, query: Query) -> Query {
    query.by_user(Arc::from(user))
}

/// Hit@1 and nDCG@10 in percent, where one tool is right.
fn judge(index: &Index<usize>, habits: &[Habit], read: impl Fn(&str) -> Query) -> [f64; 2] {
    let requests = habits.iter().flat_map(|habit| habit.judged.iter().map(|request| (habit.tool, *request)));
    let places = requests.map(|(tool, request)| {
        let hits = index.search(&read(request), TEN, |_| true);
        hits.iter().position(|hit| hit.key == tool)
    });
    let (mut count, mut sums) = (0.0, [0.0; 2]);
    for place in places {
        count += 1.0;
        sums[0] += if place == Some(0) { 1.0 } else { 0.0 };
        sums[1] += place.map_or(0.0, |place| 1.0 / (place as f64 + 2.0).log2());
    }
    sums.map(|sum| sum / count * 100.0)
}

fn learn(index: &mut Index<usize>, user: &str, request: &str, tool: usize, uses: u32) {
    for word in words_of_use(request) {
        index.add_uses(user, &word, &tool, uses);
    }
}

/// A team that makes the requests to learn from and calls the right tool; then others are judged.
fn replay(index: &mut Index<usize>, documents: &[Document], read: impl Fn(&str) -> Query) -> [[f64; 2]; 3] {
    let habits = habits(documents);
    let before = judge(index, &habits, |request| by("team", read(request)));
    assert_eq!(before, judge(index, &habits, &read), "nobody has learned anything");
    for habit in &habits {
        habit.learned.iter().for_each(|request| learn(index, "team", request, habit.tool, 1));
    }
    let own = judge(index, &habits, |request| by("team", read(request)));
    let others = judge(index, &habits, |request| by("others", read(request)));
    assert_eq!(before, judge(index, &habits, &read), "who does not ask for it sees nothing of it");
    index.forget_uses();
    assert_eq!(before, judge(index, &habits, |request| by("team", read(request))));
    [before, own, others]
}

#[test]
fn what_a_team_has_used_is_found_sooner_by_words_and_by_the_table() {
    let documents = tools_of_servers();
    let mut index = Index::new(0).with_rough_vectors();
    for (key, document) in documents.iter().enumerate() {
        index.insert(key, document.clone());
    }
    let [before, own, others] = replay(&mut index, &documents, Query::new);
    assert!(own[0] > before[0] + 5.0 && own[1] > before[1] + 5.0, "by words: {before:?} {own:?} {others:?}");
    let [before, own, others] = replay(&mut index, &documents, |request| Query::new(request).with_rough_vectors());
    assert!(own[0] > before[0] + 3.0 && own[1] > before[1] + 3.0, "by the table: {before:?} {own:?} {others:?}");
    assert!(others[1] >= before[1], "by the table, others: {before:?} {own:?} {others:?}");
}

fn two_tools() -> Index<usize> {
    let mut index = Index::new(search::Embedder::dimension(search::MiniLm::shared()));
    index.insert(0, document("chat", "send_message", "Send a message to a channel"));
    index.insert(1, document("mail", "send_email", "Send an e-mail to somebody"));
    embed_lacking(&mut index);
    index
}

fn scores(hits: &[Hit<usize>]) -> [f32; 2] {
    [0, 1].map(|key| hits.iter().find(|hit| hit.key == key).map_or(0.0, |hit| hit.score))
}

#[test]
fn one_client_cannot_push_a_tool_for_others_beyond_the_bound() {
    /// A tenth of what a score lacks to one, times the fifth that a quarter of a use counts.
    const BOUND: f32 = 0.1 * 0.2 + 1e-6;
    let mut index = two_tools();
    let request = "send the quarterly report to the boss";
    for read in [Query::new, embedded] {
        let before = index.search(&read(request), TEN, |_| true);
        for _ in 0..1_000 {
            learn(&mut index, "eager", request, 0, MAX_USES);
        }
        let [pushed, other] = scores(&index.search(&by("somebody", read(request)), TEN, |_| true));
        let [was, other_was] = scores(&before);
        assert!(pushed > was && pushed - was <= (1.0 - was) * BOUND, "{was} {pushed}");
        assert_eq!(other, other_was);
        let own = scores(&index.search(&by("eager", read(request)), TEN, |_| true))[0];
        assert!(own > pushed && own - was <= (1.0 - was) * 0.1, "{was} {own}");
        assert_eq!(index.search(&read(request), TEN, |_| true), before, "to the bit");
        index.forget_uses();
    }
}

#[test]
fn uses_never_displace_the_tool_that_a_request_names() {
    let mut index = two_tools();
    learn(&mut index, "me", "send_email", 0, MAX_USES);
    let hits = index.search(&by("me", embedded("send_email")), TEN, |_| true);
    assert_eq!(hits[0].key, 1, "{hits:?}");
}

#[test]
fn a_tool_that_words_do_not_find_is_among_those_a_store_is_asked_about() {
    let mut index = two_tools();
    learn(&mut index, "me", "ping the gang", 0, 1);
    let query = by("me", Query::new("ping the gang"));
    assert_eq!(index.best_by_words(&query, 10, |_| true), (vec![0], 0.0));
    assert_eq!(index.best_by_words(&query, 10, |_| false), (vec![], 0.0));
    assert!(index.best_by_words(&Query::new("ping the gang"), 10, |_| true).0.is_empty());
    index.remove(&0);
    assert!(index.best_by_words(&query, 10, |_| true).0.is_empty());
}
