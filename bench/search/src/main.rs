//! How well and how fast tools are found: runs data sets through the real index and prints Markdown tables.

mod clock;
mod data;
mod quality;
mod skills;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clock::{Cost, percentile_cells, resident_mb, timed};
use data::{DataSet, Tool};
use quality::Quality;
use search::{Document, Embedder, Index, Limits, MiniLm, Query, SentenceModel, embed_documents};

const USAGE: &str = "usage: bench-search FOLDER [--tools N] [--model-dir DIR]

Prints how good and how quick the search is on each NAME.tools.jsonl and NAME.queries.jsonl in FOLDER:
  {\"id\", \"server\", \"name\", \"description\", \"parameters\": {name: description}, \"category\"} and {\"query\", \"gold\": [ids]}

  --tools N        how many tools the test of speed has; those of the data are repeated (default: 10000)
  --model-dir DIR  a sentence model, as `serve --model-dir` takes it (default: the one that comes along)";

/// How many tools are embedded together.
const BATCH: usize = 32;
/// Requests in the test of speed.
const REQUESTS: usize = 500;
/// Tools that are also embedded in plain arithmetic, for comparison.
const COMPARED: usize = 480;

struct Options {
    folder: PathBuf,
    tools: usize,
    model: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let Some(options) = options()? else {
        say(USAGE);
        return Ok(());
    };
    let sets = data::read_folder(&options.folder)?;
    let own = options.model.as_deref().map(model_in).transpose()?;
    let model: &dyn Embedder = own.as_ref().map_or(MiniLm::shared(), |own| own);
    say(&format!("Model: {}\n", model.id()));
    // First, while no memory has been given back yet that would be used again.
    measure_speed(&sets, options.tools, model)?;
    if own.is_none() {
        compare_with_reference(&sets, MiniLm::shared())?;
    }
    say(
        "\n| data | tools | requests | by | Hit@1 | Recall@5 | Recall@10 | nDCG@10 |\n|---|---|---|---|---|---|---|---|",
    );
    let mut skill_lines = Vec::new();
    for set in &sets {
        let (index, _) = indexed(set.tools.iter().map(|tool| tool.document.clone()), model)?;
        let quality = judge_by_table(set)?;
        say(&format!(
            "| {} | {} | {} | words and table | {} |",
            set.name,
            set.tools.len(),
            set.requests.len(),
            quality.cells()
        ));
        for is_embedded in [false, true] {
            let way = if is_embedded { "words and meaning" } else { "words" };
            let quality = judge(&index, set, is_embedded.then_some(model))?;
            say(&format!(
                "| {} | {} | {} | {way} | {} |",
                set.name,
                set.tools.len(),
                set.requests.len(),
                quality.cells()
            ));
        }
        skill_lines.extend(skills::judge(&index, set, model)?);
    }
    if !skill_lines.is_empty() {
        say(
            "\n| data | skills | tools | best is right % | among those told % | has a primary % | primary is right % |",
        );
        say("|---|---|---|---|---|---|---|");
        skill_lines.iter().for_each(|line| say(line));
    }
    Ok(())
}

fn options() -> anyhow::Result<Option<Options>> {
    use lexopt::{Arg, ValueExt};
    let (mut folder, mut tools, mut model) = (None, 10_000, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Arg::Long("tools") => tools = arguments.value()?.parse()?,
            Arg::Long("model-dir") => model = Some(PathBuf::from(arguments.value()?)),
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Value(value) if folder.is_none() => folder = Some(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    let folder = folder.context("say in which folder the data is; see --help")?;
    Ok(Some(Options { folder, tools, model }))
}

/// A model of somebody's own choosing.
fn model_in(folder: &Path) -> anyhow::Result<SentenceModel> {
    let file = |name: &str| match std::fs::read(folder.join(name)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(read?)),
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    SentenceModel::read(&name, file).with_context(|| format!("could not use the model in {}", folder.display()))
}

/// An index with all vectors, and what the words and the vectors in it cost.
fn indexed(
    documents: impl Iterator<Item = Document>,
    model: &dyn Embedder,
) -> anyhow::Result<(Index<usize>, [Cost; 2])> {
    let mut index = Index::new(model.dimension());
    let ((), words) = timed(|| {
        for (key, document) in documents.enumerate() {
            index.insert(key, document);
        }
    });
    let (result, vectors) = timed(|| embed_all(&mut index, model));
    result?;
    Ok((index, [words, vectors]))
}

fn embed_all(index: &mut Index<usize>, model: &dyn Embedder) -> anyhow::Result<()> {
    let missing_vectors: Vec<_> =
        index.missing_vectors(usize::MAX).iter().map(|tool| (*tool.key, tool.hash, tool.document.clone())).collect();
    for batch in missing_vectors.chunks(BATCH) {
        let documents: Vec<&Document> = batch.iter().map(|(_, _, document)| document).collect();
        for ((key, hash, _), vector) in batch.iter().zip(embed_documents(model, &documents)?) {
            anyhow::ensure!(index.set_vector(key, *hash, &vector), "the index refused a vector");
        }
    }
    let missing_vectors: Vec<_> = index
        .servers_missing_vectors(usize::MAX)
        .iter()
        .map(|server| (server.key.clone(), server.hash, server.document.clone()))
        .collect();
    for batch in missing_vectors.chunks(BATCH) {
        let documents: Vec<&Document> = batch.iter().map(|(_, _, document)| document).collect();
        for ((server, hash, _), vector) in batch.iter().zip(embed_documents(model, &documents)?) {
            anyhow::ensure!(index.set_server_vector(server, *hash, &vector), "the index refused a vector");
        }
    }
    Ok(())
}

fn judge(index: &Index<usize>, set: &DataSet, model: Option<&dyn Embedder>) -> anyhow::Result<Quality> {
    let mut quality = Quality::default();
    for request in &set.requests {
        let found = find(index, &request.text, model)?;
        quality += Quality::of(&found, &request.right);
    }
    Ok(quality)
}

/// By the table alone: as tools are found until their vectors are made.
fn judge_by_table(set: &DataSet) -> anyhow::Result<Quality> {
    let mut index = Index::new(0).with_rough_vectors();
    for (key, tool) in set.tools.iter().enumerate() {
        index.insert(key, tool.document.clone());
    }
    let mut quality = Quality::default();
    for request in &set.requests {
        let query = Query::new(&request.text).with_rough_vectors();
        let hits = index.search(&query, Limits { count: 10, least_score: 0.0 }, |_| true);
        let found: Vec<usize> = hits.into_iter().map(|hit| hit.key).collect();
        quality += Quality::of(&found, &request.right);
    }
    Ok(quality)
}

fn find(index: &Index<usize>, request: &str, model: Option<&dyn Embedder>) -> anyhow::Result<Vec<usize>> {
    let mut query = Query::new(request);
    if let Some(model) = model {
        query.embed(model)?;
    }
    let hits = index.search(&query, Limits { count: 10, least_score: 0.0 }, |_| true);
    Ok(hits.into_iter().map(|hit| hit.key).collect())
}

fn measure_speed(sets: &[DataSet], count: usize, model: &dyn Embedder) -> anyhow::Result<()> {
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
    let requests: Vec<&str> = sets.iter().flat_map(|set| &set.requests).map(|request| request.text.as_str()).collect();
    let step = (requests.len() / REQUESTS).max(1);
    say("| tools | indexed: words, CPU s | vectors, CPU s | memory, MB |\n|---|---|---|---|");
    let seconds = |cost: Cost| cost.cpu.as_secs_f64();
    say(&format!("| {count} | {:.2} | {:.1} | {memory:.0} |", seconds(words), seconds(vectors)));
    say("\n| query by | p50 ms | p99 ms | p50 CPU ms | p99 CPU ms |\n|---|---|---|---|---|");
    for (way, is_embedded) in [("words", false), ("words and meaning", true)] {
        let mut costs = Vec::new();
        for request in requests.iter().step_by(step) {
            let (found, cost) = timed(|| find(&index, request, is_embedded.then_some(model)));
            found?;
            costs.push(cost);
        }
        say(&format!("| {way} | {} |", percentile_cells(&costs)));
    }
    Ok(())
}

/// The kernels beside plain arithmetic: batch by batch and request by request in turn, so that noise is the same for both.
fn compare_with_reference(sets: &[DataSet], model: &MiniLm) -> anyhow::Result<()> {
    let models: [(&str, &dyn Embedder); 2] = [("8 bits, kernels", model), ("16 bits, plain", MiniLm::reference())];
    let tools: Vec<&Document> = sets.iter().flat_map(|set| &set.tools).map(|tool| &tool.document).collect();
    let requests: Vec<&str> = sets.iter().flat_map(|set| &set.requests).map(|request| request.text.as_str()).collect();
    let mut of_tools = [Duration::ZERO; 2];
    let tools: Vec<&Document> = tools.iter().step_by((tools.len() / COMPARED).max(1)).take(COMPARED).copied().collect();
    for batch in tools.chunks(BATCH) {
        for ((_, model), total) in models.iter().zip(&mut of_tools) {
            let (made, cost) = timed(|| embed_documents(*model, batch));
            made?;
            *total += cost.cpu;
        }
    }
    let mut of_requests = [const { Vec::new() }; 2];
    for request in requests.iter().step_by((requests.len() / REQUESTS).max(1)) {
        for ((_, model), costs) in models.iter().zip(&mut of_requests) {
            let mut query = Query::new(request);
            let (made, cost) = timed(|| query.embed(*model));
            made?;
            costs.push(cost);
        }
    }
    say(
        "\n| model | tools/s of CPU | a request: p50 ms | p99 ms | p50 CPU ms | p99 CPU ms |\n|---|---|---|---|---|---|",
    );
    for (((name, _), total), costs) in models.iter().zip(of_tools).zip(&of_requests) {
        let speed = tools.len() as f64 / total.as_secs_f64().max(1e-9);
        say(&format!("| {name} | {speed:.0} | {} |", percentile_cells(costs)));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn say(line: &str) {
    println!("{line}");
}
