//! Runs a document by a form, without scripts: the next page shows the outcome of every block.

use executions::with_local_times;
use notebook::ProblemKind;
use serde_json::{Value, json};
use service::Error;

use super::address_of;
use crate::display;
use crate::pages::{Confirmation, ask, error_text, is_confirmed};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// Runs blocks.
pub(crate) async fn run(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let (path, blocks) = (request.form.text("path"), numbers(request.form.text("blocks")));
    let Some(documents) = request.console.dependencies.documents.as_ref() else {
        return Ok(request.failed("No documents folder is configured.", "/documents"));
    };
    let back = match blocks.as_slice() {
        [only] => format!("{}#block-{only}", address_of(path)),
        _ => address_of(path),
    };
    if blocks.is_empty() {
        return Ok(request.failed("There is nothing to run.", back));
    }
    let version = request.form.text("version");
    // Results that were edited by hand are replaced only after confirmation.
    let wanted = json!({"path": path, "version": version, "blocks": blocks, "save": true, "output": "none", "force": is_confirmed(request)});
    let answer = match (documents.run)(request.actor.clone(), wanted).await {
        Ok(answer) => answer,
        Err(Error::DocumentChanged { .. }) => {
            let why = "Nothing was run, because the document changed since you opened it. The page now shows the current version: check it, then run it.";
            return Ok(request.failed(why, address_of(path)));
        }
        Err(error) => return Ok(request.failed(error_text(&error), address_of(path))),
    };
    let finished = answer["blocks"].as_array().cloned().unwrap_or_default();
    let edited: Vec<String> = finished.iter().filter(|over| is_edited(over)).map(number).collect();
    let summary = summary(&finished);
    if !edited.is_empty() {
        let edited = edited.join(" ");
        let about = format!("The result of block {edited} was edited by hand. Replace it?\n{summary}");
        let fields = &[("path", path), ("version", version), ("blocks", edited.as_str())];
        return Ok(ask(request, &Confirmation { about: &about, action: "Replace", fields, back: &back }));
    }
    Ok(match answer["ok"] == json!(true) {
        true => request.done(summary, back),
        false => request.failed(summary, back),
    })
}

fn numbers(text: &str) -> Vec<usize> {
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn number(over: &Value) -> String {
    over["number"].to_string()
}

fn is_edited(over: &Value) -> bool {
    over["problem"]["trouble"] == json!(ProblemKind::EditedResult)
}

/// How many blocks had which outcome, and the reasons of failures.
fn summary(finished: &[Value]) -> String {
    let mut counted: Vec<(&str, u64)> = Vec::new();
    for over in finished {
        let word = over["status"].as_str().unwrap_or("stopped");
        match counted.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counted.push((word, 1)),
        }
    }
    let counts = counted.iter().map(|(word, count)| format!("{} {word}", display::count(*count)));
    let reasons = finished.iter().filter_map(|over| Some(format!("Block {}: {}", number(over), reason(over)?)));
    std::iter::once(counts.collect::<Vec<_>>().join(", ")).chain(reasons.take(20)).collect::<Vec<_>>().join("\n")
}

fn reason(over: &Value) -> Option<String> {
    if is_edited(over) {
        return Some("its result was edited by hand, and stays as it is".to_owned());
    }
    let faults = over["problem"]["faults"]
        .as_array()
        .map(|faults| faults.iter().filter_map(|fault| fault["what"].as_str()).collect::<Vec<_>>().join("; "));
    let message = over["message"].as_str().map(with_local_times);
    faults.or(message).filter(|_| over["status"] != "done")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_blocks_is_reported_in_a_few_lines() {
        let finished = [
            json!({"number": 1, "status": "done"}),
            json!({"number": 2, "status": "failed", "message": "no such note"}),
            json!({"number": 3, "status": "done", "message": "ignored"}),
            json!({"number": 4, "status": "refused", "problem": {"trouble": "no_tool", "faults": [{"line": 3, "what": "there is no tool x"}]}}),
        ];
        let said = "2 done, 1 failed, 1 refused\nBlock 2: no such note\nBlock 4: there is no tool x";
        assert_eq!(summary(&finished), said);
        assert_eq!(numbers("1 2 x 3"), [1, 2, 3]);
    }
}
