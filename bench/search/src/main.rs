//! How well and how fast tools are found: runs data sets through the real index and prints Markdown tables.

mod clock;
mod data;
mod quality;
mod rankings;
mod skills;
mod speed;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clock::{Cost, timed};
use search::reference::{instructions, use_instructions};
use search::{Document, Embedder, Index, MiniLm, SentenceModel, embed_documents};

const USAGE: &str = "usage: bench-search FOLDER [--tools N] [--model-dir DIR] [--instructions SET]

Prints how good and how quick the search is on each NAME.tools.jsonl and NAME.queries.jsonl in FOLDER:
  {\"id\", \"server\", \"name\", \"description\", \"parameters\": {name: description}, \"category\"} and {\"query\", \"gold\": [ids]}

  --tools N        how many tools the test of speed has; those of the data are repeated (default: 10000)
  --model-dir DIR  a sentence model, as `serve --model-dir` takes it (default: the one that comes along)
  --instructions   only the test of speed, with these: portable, avx2, avxvnni, avx512vnni, neondot (default: all that the machine has)";

/// How many tools are embedded together.
const BATCH: usize = 32;

struct Options {
    folder: PathBuf,
    tools: usize,
    model: Option<PathBuf>,
    instructions: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let Some(options) = options()? else {
        say(USAGE);
        return Ok(());
    };
    if let Some(name) = &options.instructions {
        ensure!(use_instructions(name), "this machine has no `{name}`, only {}", instructions().join(", "));
    }
    let sets = data::read_folder(&options.folder)?;
    let own = options.model.as_deref().map(model_in).transpose()?;
    let model: &dyn Embedder = own.as_ref().map_or(MiniLm::shared(), |own| own);
    if let Some(name) = &options.instructions {
        // First, while no memory has been given back yet that would be used again.
        return speed::measure(
            &sets,
            options.tools,
            model,
            own.is_none().then(|| MiniLm::reference() as &dyn Embedder),
            name,
        );
    }
    say(&format!("Model: {}", model.id()));
    // A process has one set of instructions.
    for name in instructions() {
        let mut again = Command::new(std::env::current_exe()?);
        let done = again.args(std::env::args_os().skip(1)).args(["--instructions", &name]).status()?;
        ensure!(done.success(), "the test of speed with {name} failed");
    }
    let mut skill_lines = Vec::new();
    for set in &sets {
        let index = rankings::judge(set, model)?;
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
    let (mut folder, mut tools, mut model, mut instructions) = (None, 10_000, None, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Arg::Long("tools") => tools = arguments.value()?.parse()?,
            Arg::Long("model-dir") => model = Some(PathBuf::from(arguments.value()?)),
            Arg::Long("instructions") => instructions = Some(arguments.value()?.string()?),
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Value(value) if folder.is_none() => folder = Some(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    let folder = folder.context("say in which folder the data is; see --help")?;
    Ok(Some(Options { folder, tools, model, instructions }))
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

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn say(line: &str) {
    println!("{line}");
}
