//! Which vectors are in the index: stored ones, new ones, and none where the model has none.

use registry::ToolRecord;
use search::{EmbedError, Embedder, Limits, Query};

use super::*;
use crate::tool_index::tests::record;

/// A model elsewhere, whose vectors have eight numbers.
struct Elsewhere;

impl Embedder for Elsewhere {
    fn id(&self) -> &'static str {
        "embeddings/m"
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn dimension(&self) -> usize {
        0
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vector = |text: &&str| (0..8_u8).map(|place| f32::from(place) + text.len() as f32 / 100.0).collect();
        Ok(texts.iter().map(vector).collect())
    }
}

fn index_of(tools: Vec<ToolRecord>) -> RwLock<ToolIndex> {
    let mut tool_index = ToolIndex::new(0);
    tool_index.replace_all(tools);
    RwLock::new(tool_index)
}

fn stored(tool: &ToolRecord, bytes: Vec<u8>) -> Embedding {
    Embedding { tool: tool.id, text_hash: tool.text_hash.clone(), model: "embeddings/m".to_owned(), bytes }
}

/// How many tools are found by vectors.
fn compared(tool_index: &RwLock<ToolIndex>) -> usize {
    let mut query = Query::new("frobnicate");
    query.embed(&Elsewhere).unwrap();
    let hits = locked(tool_index).search(&query, Limits { count: 10, least_score: 0.0 }, &|_| true);
    hits.iter().filter(|(hit, _)| hit.vector.is_some()).count()
}

#[test]
fn vectors_of_a_remote_model_from_before_hashes_are_searched_with() {
    let tools = [record(1, "a"), record(2, "b")];
    let tool_index = index_of(tools.to_vec());
    let vector = Elsewhere.embed(&["tool"]).unwrap().remove(0);
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    load_vectors(&tool_index, tools.iter().map(|tool| stored(tool, bytes.clone())).collect(), Vec::new());
    assert_eq!((compared(&tool_index), locked(&tool_index).dimension()), (2, 8));
    assert_eq!(locked(&tool_index).missing_vectors(10).len(), 2, "and are replaced in the background");
    let made = [Some(vector)];
    assert_eq!(tool_index.write().unwrap().note_dimension(&made), None, "the model has not changed");
}

#[test]
fn a_vector_for_the_text_of_today_is_the_tools_own() {
    let tools = [record(1, "a"), record(2, "b")];
    let tool_index = index_of(tools.to_vec());
    let vector = Elsewhere.embed(&["tool"]).unwrap().remove(0);
    let hash = |place: usize| locked(&tool_index).missing_vectors(10)[place].hash;
    let rows = vec![
        stored(&tools[0], stored_vector::encode(&vector, hash(0))),
        // Of another text, such as one with the server's name before it was changed.
        stored(&tools[1], stored_vector::encode(&vector, hash(0))),
    ];
    load_vectors(&tool_index, rows, Vec::new());
    assert_eq!(compared(&tool_index), 2);
    let missing: Vec<_> = locked(&tool_index).missing_vectors(10).into_iter().map(|it| it.tool).collect();
    assert_eq!(missing, [tools[1].id]);
    // Vectors of the table are made for the rest only, unless requests may have no vector.
    let rough = |with_own: bool| locked(&tool_index).missing_rough_vectors(with_own);
    let (rest, all) = if search::HAS_TABLE { (1, 2) } else { (0, 0) };
    assert_eq!((rough(false).len(), rough(true).len()), (rest, all));
    make_rough_vectors(&tool_index, false);
    assert_eq!((rough(false).len(), rough(true).len()), (0, all - rest));
    make_rough_vectors(&tool_index, true);
    assert!(rough(true).is_empty());
}
