//! What tools were used for lifts them, within bounds.

use std::sync::Arc;

use search::{Document, Hit, Index, MAX_USES, Query, words_of_use};

use crate::quality::tools_of_servers;
use crate::{TEN, by_meaning, document, embed_lacking, embedded};

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

/// nDCG@10 of each request in percent, where one tool is right.
fn judge(index: &Index<usize>, habits: &[Habit], read: impl Fn(&str) -> Query) -> Vec<f64> {
    let requests = habits.iter().flat_map(|habit| habit.judged.iter().map(|request| (habit.tool, *request)));
    let gains = requests.map(|(tool, request)| {
        let hits = index.search(&read(request), TEN, |_| true);
        let place = hits.iter().position(|hit| hit.key == tool);
        place.map_or(0.0, |place| 100.0 / (place as f64 + 2.0).log2())
    });
    gains.collect()
}

/// The mean of the differences of two rankings of the same requests, and the interval of 95 % of its bootstrap means.
fn gain(before: &[f64], after: &[f64]) -> (f64, [f64; 2]) {
    const RESAMPLES: usize = 2_000;
    let differences: Vec<f64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    let mut seed = 20_261_119_u64;
    let mut draw = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        differences[(seed >> 33) as usize % differences.len()]
    };
    let count = differences.len() as f64;
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| differences.iter().map(|_| draw()).sum::<f64>() / count).collect();
    means.sort_unstable_by(f64::total_cmp);
    (differences.iter().sum::<f64>() / count, [means[RESAMPLES / 40], means[RESAMPLES - RESAMPLES / 40]])
}

fn learn(index: &mut Index<usize>, user: &str, request: &str, tool: usize, uses: u32) {
    for word in words_of_use(request) {
        index.add_uses(user, &word, &tool, uses);
    }
}

/// A team that makes the requests to learn from and calls the right tool; then others are judged.
fn replay(index: &mut Index<usize>, documents: &[Document], read: impl Fn(&str) -> Query) -> [Vec<f64>; 3] {
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

/// Checks that a team gains by what it has used, surely and at least so much, and that others do not lose by it.
fn assert_gain(least: f64, index: &mut Index<usize>, documents: &[Document], read: impl Fn(&str) -> Query) {
    let [before, own, others] = replay(index, documents, read);
    let (own, others) = (gain(&before, &own), gain(&before, &others));
    assert!(own.0 > least && own.1[0] > 0.0, "the team gains {own:?}, others {others:?}");
    assert!(others.0 >= 0.0, "the team gains {own:?}, others {others:?}");
}

#[test]
fn what_a_team_has_used_is_found_sooner_by_words_and_by_the_table() {
    let documents = tools_of_servers();
    let mut index = Index::new(0).with_rough_vectors();
    for (key, document) in documents.iter().enumerate() {
        index.insert(key, document.clone());
    }
    assert_gain(5.0, &mut index, &documents, Query::new);
    assert_gain(3.0, &mut index, &documents, |request| Query::new(request).with_rough_vectors());
}

#[test]
fn what_a_team_has_used_is_found_sooner_by_the_model() {
    let documents = tools_of_servers();
    let mut index = by_meaning(&documents);
    // Measured: nDCG@10 grows by 7.8 [3.0, 13.8] for the team and by 1.0 [0.0, 2.6] for others.
    assert_gain(3.0, &mut index, &documents, embedded);
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
