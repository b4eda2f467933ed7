//! Guards the quality of ranking: 88 tools of real servers, 81 realistic queries.

use search::{Document, Query};
use serde::Deserialize;

use crate::{TEN, by_meaning, embedded};

#[derive(Deserialize)]
pub(crate) struct Tool {
    id: usize,
    server: String,
    name: String,
    description: String,
    /// Of the 88 only.
    #[serde(default)]
    pub(crate) category: String,
}

#[derive(Deserialize)]
struct Request {
    query: String,
    gold: Vec<usize>,
}

pub(crate) fn tools() -> Vec<(Tool, Document)> {
    read_tools(include_str!("../quality/mcp.tools.jsonl"))
}

/// The 418 tools of 31 servers.
pub(crate) fn tools_of_servers() -> Vec<Document> {
    let tools = read_tools(include_str!("../quality/servers.tools.jsonl"));
    tools.into_iter().map(|(_, document)| document).collect()
}

fn read_tools(lines: &str) -> Vec<(Tool, Document)> {
    let read = lines.lines().map(|line| {
        let tool: Tool = serde_json::from_str(line).expect("every line is one of these");
        let document = Document {
            server: tool.server.clone(),
            name: tool.name.clone(),
            description: tool.description.clone(),
            // In their order, which counts.
            parameters: Document::parameters_of(&line.replacen(r#""parameters":"#, r#""properties":"#, 1)),
            about_server: String::new(),
        };
        (tool, document)
    });
    let read: Vec<_> = read.collect();
    assert!(read.iter().enumerate().all(|(place, (tool, _))| tool.id == place));
    read
}

/// Hit@1, Recall@10 and nDCG@10 in percent.
fn quality(read: impl Fn(&str) -> Query) -> [f64; 3] {
    let documents: Vec<Document> = tools().into_iter().map(|(_, document)| document).collect();
    let index = by_meaning(&documents);
    let requests: Vec<Request> = include_str!("../quality/mcp.queries.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("every line is one of these"))
        .collect();
    let mut sums = [0.0; 3];
    for request in &requests {
        let hits = index.search(&read(&request.query), TEN, |_| true);
        let right: Vec<bool> = hits.iter().map(|hit| request.gold.contains(&hit.key)).collect();
        let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
        let gained: f64 = right.iter().enumerate().filter(|(_, right)| **right).map(|(place, _)| gain(place)).sum();
        let ideal: f64 = (0..request.gold.len()).map(gain).sum();
        sums[0] += f64::from(u8::from(right.first() == Some(&true)));
        sums[1] += right.iter().filter(|right| **right).count() as f64 / request.gold.len() as f64;
        sums[2] += gained / ideal;
    }
    sums.map(|sum| sum / requests.len() as f64 * 100.0)
}

// What was measured, less about one request: 70.4, 94.4 and 83.2 by words and meaning, 37.0, 63.8 and 50.0 by words.

#[test]
fn by_words_and_meaning_most_requests_find_their_tool() {
    let [first, recall, ndcg] = quality(embedded);
    assert!(first >= 69.1 && recall >= 93.1 && ndcg >= 82.2, "{first:.1} {recall:.1} {ndcg:.1}");
}

#[test]
fn by_words_alone_many_requests_find_their_tool() {
    let [first, recall, ndcg] = quality(Query::new);
    assert!(first >= 35.5 && recall >= 62.0 && ndcg >= 48.8, "{first:.1} {recall:.1} {ndcg:.1}");
}
