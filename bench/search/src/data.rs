//! Data sets: `NAME.tools.jsonl` and `NAME.queries.jsonl` in a folder.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use search::Document;
use serde::Deserialize;

/// Tools, and requests with the tools that are right for them.
pub(crate) struct DataSet {
    pub(crate) name: String,
    pub(crate) tools: Vec<Tool>,
    pub(crate) requests: Vec<Request>,
}

pub(crate) struct Tool {
    pub(crate) document: Document,
    pub(crate) category: Option<String>,
}

pub(crate) struct Request {
    pub(crate) text: String,
    /// Places among the tools.
    pub(crate) right: Vec<usize>,
}

#[derive(Deserialize)]
struct ToolLine {
    id: serde_json::Value,
    #[serde(default)]
    server: String,
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: serde_json::Map<String, serde_json::Value>,
    category: Option<String>,
}

#[derive(Deserialize)]
struct RequestLine {
    query: String,
    gold: Vec<serde_json::Value>,
}

/// All data sets of a folder, by name.
pub(crate) fn read_folder(folder: &Path) -> anyhow::Result<Vec<DataSet>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))? {
        let file = entry?.file_name();
        names.extend(file.to_str().and_then(|file| file.strip_suffix(".tools.jsonl")).map(str::to_owned));
    }
    names.sort();
    ensure!(!names.is_empty(), "{} has no *.tools.jsonl", folder.display());
    names.into_iter().map(|name| read_set(folder, name)).collect()
}

fn read_set(folder: &Path, name: String) -> anyhow::Result<DataSet> {
    let lines: Vec<ToolLine> = read_lines(&folder.join(format!("{name}.tools.jsonl")))?;
    let places: HashMap<String, usize> = lines.iter().map(|line| line.id.to_string()).zip(0..).collect();
    let requests: Vec<RequestLine> = read_lines(&folder.join(format!("{name}.queries.jsonl")))?;
    let requests = requests.into_iter().map(|RequestLine { query, gold }| {
        let place = |id: &serde_json::Value| places.get(&id.to_string()).copied().context("there is no such tool");
        let right = gold.iter().map(place).collect::<anyhow::Result<_>>();
        let right = right.with_context(|| format!("the request `{query}` of {name} names a tool"))?;
        Ok(Request { text: query, right })
    });
    let requests = requests.collect::<anyhow::Result<_>>()?;
    let tools = lines.into_iter().map(|line| Tool {
        document: Document {
            server: line.server,
            name: line.name,
            description: line.description,
            parameters: line.parameters.into_iter().map(|(name, _)| name).collect(),
            about_server: String::new(),
        },
        category: line.category,
    });
    Ok(DataSet { tools: tools.collect(), name, requests })
}

fn read_lines<T: for<'de> Deserialize<'de>>(path: &Path) -> anyhow::Result<Vec<T>> {
    let text = fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("line {} of {}", number + 1, path.display()))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}
