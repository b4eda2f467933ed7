//! What search costs, beside plain arithmetic: batch by batch and request by request in turn, so that noise is the same
//! for both.

use std::time::Duration;

use search::{Document, Embedder, Index, Limits, Query, embed_documents};

use crate::clock::{Cost, percentile_cells, resident_mb, timed};
use crate::data::{DataSet, Tool};
use crate::{BATCH, indexed, say};

/// Requests whose cost is measured.
const REQUESTS: usize = 500;
/// Tools that are also embedded in plain arithmetic.
const COMPARED_TOOLS: usize = 480;
const TEN: Limits = Limits { count: 10, least_score: 0.0 };

/// Prints what search among so many tools costs with this set of instructions.
pub(crate) fn measure(
    sets: &[DataSet],
    count: usize,
    model: &dyn Embedder,
    plain: Option<&dyn Embedder>,
    instructions: &str,
) -> anyhow::Result<()> {
    let tools: Vec<&Tool> = sets.iter().flat_map(|set| &set.tools).collect();
    // Repeated tools get a number, so that no text is there twice.
    let documents = (0..count).map(|number| {
        let mut document = tools[number % tools.len()].document.clone();
        if number >= tools.len() {
            document.description.push_str(&format!(" (variant {})", number / tools.len()));
        }
        document
    });
    let before = resident_mb();
    let (index, [words, vectors]) = indexed(documents, model)?;
    let memory = resident_mb() - before;
    say(&format!(
        "\n{instructions}, {count} tools: indexed words {:.2} CPU s, vectors {:.1} CPU s, {memory:.0} MB",
        words.cpu.as_secs_f64(),
        vectors.cpu.as_secs_f64()
    ));
    say("\n| one request | p50 ms | p99 ms | p50 CPU ms | p99 CPU ms |\n|---|---|---|---|---|");
    let requests: Vec<&str> = sets.iter().flat_map(|set| &set.requests).map(|request| request.text.as_str()).collect();
    let requests: Vec<&str> = requests.iter().step_by((requests.len() / REQUESTS).max(1)).copied().collect();
    measure_requests(&index, count, &requests, model, plain)?;
    let Some(plain) = plain else { return Ok(()) };
    let tools = tools.iter().map(|tool| &tool.document);
    let tools: Vec<&Document> =
        tools.clone().step_by((tools.len() / COMPARED_TOOLS).max(1)).take(COMPARED_TOOLS).collect();
    let mut totals = [Duration::ZERO; 2];
    for batch in tools.chunks(BATCH) {
        for (model, total) in [model, plain].into_iter().zip(&mut totals) {
            let (made, cost) = timed(|| embed_documents(model, batch));
            made?;
            *total += cost.cpu;
        }
    }
    let [fast, slow] = totals.map(|total| tools.len() as f64 / total.as_secs_f64().max(1e-9));
    say(&format!("\nTools embedded per CPU second: {fast:.0}; in plain arithmetic {slow:.0}"));
    Ok(())
}

fn measure_requests(
    index: &Index<usize>,
    count: usize,
    requests: &[&str],
    model: &dyn Embedder,
    plain: Option<&dyn Embedder>,
) -> anyhow::Result<()> {
    let floats: Vec<Vec<f32>> = (0..count).filter_map(|key| index.vector(&key)).collect();
    let mut costs: [(&str, Vec<Cost>); 6] = [
        ("words alone", Vec::new()),
        ("words and meaning, in all", Vec::new()),
        ("of that, its vectors", Vec::new()),
        ("plain: words and meaning, in all", Vec::new()),
        ("of that, its vectors", Vec::new()),
        ("of that, comparing in floats and sorting", Vec::new()),
    ];
    for text in requests {
        let (_, words) = timed(|| index.search(&Query::new(text), TEN, |_| true));
        let mut query = Query::new(text);
        let (made, vectors) = timed(|| query.embed(model));
        made?;
        let (_, search) = timed(|| index.search(&query, TEN, |_| true));
        let mut of_request = vec![words, sum(vectors, search), vectors];
        if let Some(plain) = plain {
            let mut query = Query::new(text);
            let (made, vectors) = timed(|| query.embed(plain));
            made?;
            let (_, scan) = timed(|| scanned(&floats, &query));
            of_request.extend([sum(sum(vectors, scan), words), vectors, scan]);
        }
        costs.iter_mut().zip(of_request).for_each(|((_, costs), cost)| costs.push(cost));
    }
    for (what, costs) in costs.iter().filter(|(_, costs)| !costs.is_empty()) {
        say(&format!("| {what} | {} |", percentile_cells(costs)));
    }
    Ok(())
}

fn sum(one: Cost, other: Cost) -> Cost {
    Cost { wall: one.wall + other.wall, cpu: one.cpu + other.cpu }
}

/// The nearest vectors, the plain way: every product in floats, number by number, and everything sorted.
fn scanned(vectors: &[Vec<f32>], query: &Query) -> Vec<(f32, usize)> {
    let product = |vector: &[f32]| {
        let parts = query.vectors().iter();
        parts.map(|part| part.iter().zip(vector).map(|(left, right)| left * right).sum::<f32>()).sum::<f32>()
    };
    let mut all: Vec<(f32, usize)> = vectors.iter().map(|vector| product(vector)).zip(0..).collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    all.truncate(TEN.count);
    std::hint::black_box(all)
}
