//! The server `example-notes`: keeps notes as Markdown files in a folder.

mod folder;
mod name;

use crate::calendar::{day_and_time, unix_seconds};
use crate::{Answer, Arguments, Effect, Field, Kind, Server, Tool, ToolError};
use folder::{Entry, Folder, Found, IfExists};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

const fn text(name: &'static str, description: &'static str) -> Field {
    Field::required(name, Kind::Text, description)
}

const NAME: Field = text("name", "The name of the note as `list` shows it, or its title.");

/// The server for the notes in a folder, which is made when the first is written.
#[must_use]
pub fn server(folder: PathBuf) -> Server {
    let folder = Rc::new(Folder::new(folder));
    let tool = |name, description, effect, input, run: fn(&Folder, &Arguments) -> Result<Answer, ToolError>| {
        let folder = Rc::clone(&folder);
        Tool { name, description, effect, input, run: Box::new(move |arguments| run(&folder, arguments)) }
    };
    Server {
        name: "example-notes",
        instructions: "Keeps the person's notes. Search before you add, to avoid a second note about the same thing.",
        tools: vec![
            tool(
                "add",
                "Writes a new note. Fails if one with that title exists, unless `append` is true.",
                Effect::Adds,
                vec![
                    text("title", "A short title; the note is named after it."),
                    text("text", "The note itself, in Markdown."),
                    Field::optional("append", Kind::Flag, "Add the text to the end of the note if it exists."),
                ],
                add,
            ),
            tool("list", "Lists all notes, the most recently changed first.", Effect::Reads, vec![], list),
            tool("read", "Reads one note.", Effect::Reads, vec![NAME], read),
            tool(
                "search",
                "Finds the notes that hold every word of the query, in any case, and shows the lines.",
                Effect::Reads,
                vec![text("query", "One or more words or parts of words.")],
                search,
            ),
            tool("delete", "Deletes one note for good.", Effect::Destroys, vec![NAME], delete),
        ],
    }
}

fn add(folder: &Folder, arguments: &Arguments) -> Result<Answer, ToolError> {
    let if_exists = if arguments.flag("append") { IfExists::Append } else { IfExists::Refuse };
    let name = folder.add(arguments.text("title")?, arguments.text("text")?, if_exists)?;
    Ok(Answer { text: format!("Saved as `{name}`."), data: json!({"name": name.to_string()}) })
}

fn list(folder: &Folder, _: &Arguments) -> Result<Answer, ToolError> {
    let entries = folder.list()?;
    let lines = entries.iter().map(|entry| {
        let Entry { name, bytes, changed } = entry;
        format!("- {name} ({bytes} bytes, changed {})", timestamp(*changed))
    });
    let notes: Vec<Value> = entries
        .iter()
        .map(|entry| json!({"name": entry.name.to_string(), "bytes": entry.bytes, "changed": timestamp(entry.changed)}))
        .collect();
    Ok(Answer {
        text: lines_or(lines, &format!("There are no notes in {} yet.", folder.path().display())),
        data: json!({"notes": notes}),
    })
}

fn read(folder: &Folder, arguments: &Arguments) -> Result<Answer, ToolError> {
    let (name, note) = folder.read(arguments.text("name")?)?;
    Ok(Answer { data: json!({"name": name.to_string(), "text": note}), text: note })
}

fn search(folder: &Folder, arguments: &Arguments) -> Result<Answer, ToolError> {
    let query = arguments.text("query")?;
    let found = folder.search(query)?;
    let lines = found.iter().map(|Found { name, lines }| {
        let lines: String = lines.iter().map(|line| format!("\n  {}: {}", line.number, line.text)).collect();
        format!("- {name}{lines}")
    });
    let notes: Vec<Value> = found
        .iter()
        .map(|Found { name, lines }| {
            let lines: Vec<Value> = lines.iter().map(|line| json!({"line": line.number, "text": line.text})).collect();
            json!({"name": name.to_string(), "lines": lines})
        })
        .collect();
    Ok(Answer { text: lines_or(lines, &format!("No note holds all of: {query}")), data: json!({"notes": notes}) })
}

fn delete(folder: &Folder, arguments: &Arguments) -> Result<Answer, ToolError> {
    let name = folder.delete(arguments.text("name")?)?;
    Ok(Answer { text: format!("Deleted `{name}`."), data: json!({"name": name.to_string()}) })
}

fn lines_or(lines: impl Iterator<Item = String>, if_none: &str) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { if_none.to_owned() } else { lines.join("\n") }
}

fn timestamp(moment: SystemTime) -> String {
    match day_and_time(unix_seconds(moment)) {
        Some((day, time)) => format!("{day}T{time}Z"),
        None => "at an unknown time".to_owned(),
    }
}
