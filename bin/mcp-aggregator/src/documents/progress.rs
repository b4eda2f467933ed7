//! Prints the progress of a run, and its summary.

use executions::with_local_times;
use notebook::{Finished, PlacementOutcome, Progress, Report, Status};

use crate::table::{cut, printable};

/// How much of the parameters a dry run displays.
const ARGUMENTS_WIDTH: usize = 100;

/// The output for a step of a run.
pub(crate) struct RunPrinter;

impl RunPrinter {
    /// One line for people.
    pub(crate) fn of(progress: &Progress<'_>, is_dry: bool) -> Option<String> {
        match progress {
            // A dry run takes no time.
            Progress::Pending(_) | Progress::Executing(_) if is_dry => None,
            Progress::Pending(step) => {
                Some(format!("{}: pending", title(step.number, step.fence.first_line, step.title())))
            }
            Progress::Executing(step) => {
                Some(format!("{}: executing", title(step.number, step.fence.first_line, step.title())))
            }
            Progress::Finished(over) => Some(finished(over)),
        }
    }

    /// Why a result is not in the document, although it should be.
    pub(crate) fn of_fate(number: usize, fate: PlacementOutcome) -> Option<String> {
        let why = match fate {
            PlacementOutcome::Written | PlacementOutcome::Unchanged | PlacementOutcome::Nothing => return None,
            PlacementOutcome::BlockChanged => "the block was changed or removed in the meantime",
            PlacementOutcome::Kept => "the existing result was edited",
            PlacementOutcome::Unfit => "it would have changed more than its own part",
        };
        Some(format!("warning: the result of block {number} was not written: {why}"))
    }
}

fn title(number: usize, line: usize, title: &str) -> String {
    format!("block {number}, line {line}, {}", printable(title))
}

fn finished(over: &Finished) -> String {
    let took = over.took_ms.map(|ms| format!(" in {ms} ms")).unwrap_or_default();
    let message = over
        .message
        .as_deref()
        .map(|message| format!(": {}", in_lines(&with_local_times(message))))
        .unwrap_or_default();
    let how = match over.status {
        Status::Done => format!("done{took}"),
        Status::Failed => format!("failed{took}{message}"),
        Status::Stopped => format!("stopped{message}"),
        Status::Ready => {
            let arguments = over.request.as_ref().map(|request| cut(&printable(&request.arguments), ARGUMENTS_WIDTH));
            format!("ready {}", arguments.unwrap_or_default()).trim_end().to_owned()
        }
        Status::Refused => {
            let problem = over.problem.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("refused: {}", in_lines(&problem))
        }
    };
    let not_checked = over.not_checked.as_deref().map(|why| format!("\n  parameters not checked: {}", in_lines(why)));
    format!("{}: {how}{}", title(over.number, over.line, &over.title), not_checked.unwrap_or_default())
}

/// Text of a server; further lines are indented.
fn in_lines(words: &str) -> String {
    words.trim_end().lines().map(printable).collect::<Vec<_>>().join("\n  ")
}

/// `3 blocks: 2 done, 1 failed`
pub(crate) fn in_words(report: &Report) -> String {
    let kinds = [
        (Status::Done, "done"),
        (Status::Ready, "ready"),
        (Status::Failed, "failed"),
        (Status::Refused, "refused"),
        (Status::Stopped, "stopped"),
    ];
    let counted = kinds.map(|(status, word)| (report.count(status), word));
    let counted = counted.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    let all = report.finished.len();
    let blocks = if all == 1 { "block" } else { "blocks" };
    format!("{all} {blocks}: {}", counted.collect::<Vec<_>>().join(", "))
}
