//! Searches tools for a model whose request does not contain them all: with the index of a service, or with a local
//! index of the servers of a config.

use std::collections::BTreeSet;
use std::sync::Arc;

use search::{Document, Index, Limits, Query, embed_documents};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::client::Client;
use crate::failure::Failure;
use crate::model_args::builtin_embedder;

/// The number of best tools to consider, of which the model may be allowed only some. REST returns at most this many.
const MAX_CANDIDATES: usize = 1_000;

/// Searches a service for tools of these servers, without those that may not be used.
pub(super) async fn find_by_service(
    service: &Client,
    wish: &str,
    servers: BTreeSet<&str>,
    is_allowed: impl Fn(&str) -> bool,
    limit: usize,
) -> Result<Vec<String>, String> {
    let body = json!({ "query": wish, "limit": MAX_CANDIDATES, "server_filter": servers });
    let found = service.list_for("/search", &body).await.map_err(|denial| Failure::from(denial).message)?;
    let names = found.iter().filter_map(|tool| tool["name"].as_str());
    Ok(names.filter(|name| is_allowed(name)).take(limit).map(str::to_owned).collect())
}

/// Searches the tools of a config. The index is created by the first search.
pub(super) struct ToolFinder {
    tools: Arc<[(String, Document)]>,
    index: OnceCell<Arc<Index<usize>>>,
}

impl ToolFinder {
    pub(super) fn of(tools: &[Value]) -> Self {
        let text = |tool: &Value, member: &str| tool[member].as_str().unwrap_or_default().to_owned();
        let tools = tools.iter().map(|tool| {
            let document = Document {
                server: text(tool, "server_name"),
                name: text(tool, "tool_name"),
                description: text(tool, "description"),
                parameters: Document::parameters_of(&tool["input_schema"].to_string()),
                about_server: String::new(),
            };
            (text(tool, "name"), document)
        });
        Self { tools: tools.collect(), index: OnceCell::new() }
    }

    pub(super) async fn find(&self, wish: &str, limit: usize) -> Result<Vec<String>, String> {
        let tools = Arc::clone(&self.tools);
        // Embedding takes a processor for a while.
        let make = || async { tokio::task::spawn_blocking(move || Arc::new(index_of(&tools))).await };
        let index = Arc::clone(self.index.get_or_try_init(make).await.map_err(|error| error.to_string())?);
        let wish = wish.to_owned();
        let search = tokio::task::spawn_blocking(move || {
            let mut query = Query::new(&wish).with_rough_vectors();
            if let Some(embedder) = builtin_embedder()
                && let Err(error) = query.embed(&*embedder)
            {
                let by = search::WITHOUT_A_MODEL;
                tracing::warn!(%error, by, "searching tools without the model: there is no embedding of the query");
            }
            index.search(&query, Limits { count: limit, least_score: 0.0 }, |_| true)
        });
        let found = search.await.map_err(|error| error.to_string())?;
        Ok(found.into_iter().map(|hit| self.tools[hit.key].0.clone()).collect())
    }
}

fn index_of(tools: &[(String, Document)]) -> Index<usize> {
    let embedder = builtin_embedder();
    let dimension = embedder.as_ref().map_or(0, |embedder| embedder.dimension());
    let mut index = Index::new(dimension).with_rough_vectors();
    for (place, (_, document)) in tools.iter().enumerate() {
        index.insert(place, document.clone());
    }
    let documents: Vec<&Document> = tools.iter().map(|(_, document)| document).collect();
    let vectors = embedder.map_or_else(|| Ok(Vec::new()), |embedder| embed_documents(&*embedder, &documents));
    let vectors = vectors.unwrap_or_else(|error| {
        let by = search::WITHOUT_A_MODEL;
        tracing::warn!(%error, by, "searching tools without the model: there are no embeddings of tools");
        Vec::new()
    });
    for (place, (vector, document)) in vectors.iter().zip(documents).enumerate() {
        index.set_vector(&place, document.text_hash(), vector);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tools_of_a_config_are_found_by_what_they_do() {
        let tool = |server: &str, name: &str, description: &str| {
            json!({ "name": format!("{server}.{name}"), "server_name": server, "tool_name": name,
                "description": description, "input_schema": { "type": "object" } })
        };
        let tools =
            [tool("a", "sum", "Adds numbers"), tool("b", "read_file", "Reads a file"), tool("c", "now", "The time")];
        let finder = ToolFinder::of(&tools);
        assert_eq!(finder.find("read a file", 1).await, Ok(vec!["b.read_file".to_owned()]));
        assert_eq!(finder.find("add numbers", 2).await.unwrap()[0], "a.sum");
    }

    #[test]
    fn tools_of_a_config_have_vectors_of_the_table() {
        let document = |server: &str, name: &str, description: &str| Document {
            server: server.to_owned(),
            name: name.to_owned(),
            description: description.to_owned(),
            ..Document::default()
        };
        let tools = [document("a", "sum", "Adds numbers"), document("b", "create_issue", "Open a new issue")];
        let index = index_of(&tools.map(|document| (document.name.clone(), document)));
        // As in a build without the sentence model, or while that fails.
        let query = Query::new("report a bug").with_rough_vectors();
        let found = index.search(&query, Limits { count: 1, least_score: 0.0 }, |_| true);
        assert_eq!(found.first().map(|hit| hit.key), search::HAS_TABLE.then_some(1));
    }
}
