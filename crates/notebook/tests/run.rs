//! Runs: selection, order, parallelism, progress, and stopping.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use notebook::{
    Bindings, Document, Failure, Plan, ProblemKind, Progress, Report, Request, RunOptions, Selection, SelectionError,
    Server, Status, ToolSchema, ToolTable, Toolbox, WantedTools, run,
};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use crate::fixture::{FakeToolbox, run_text, run_with, servers};

const THREE: &str = "# A\n\n```echo\ntool: say\nwords: one\n```\n\n## B\n\n```echo\ntool: say\nwords: two\n```\n\n# C\n\n```echo\ntool: say\nwords: three\n```\n";

fn said(text: &str, selection: &Selection) -> Vec<String> {
    let world = FakeToolbox::default();
    run_with(text, &world, &[], selection, false);
    let calls = world.calls.lock().unwrap();
    calls.iter().map(|call| call.arguments.replace("{\"words\":\"", "").replace("\"}", "")).collect()
}

#[test]
fn blocks_run_from_the_top_or_as_selected() {
    let select = |blocks: &[usize], section: Option<&str>, line| Selection {
        blocks: blocks.to_vec(),
        section: section.map(str::to_owned),
        line,
    };
    for (selection, expected) in [
        (select(&[], None, None), vec!["one", "two", "three"]),
        (select(&[3, 1], None, None), vec!["one", "three"]),
        (select(&[], Some("A"), None), vec!["one", "two"]),
        (select(&[], Some("## B"), None), vec!["two"]),
        (select(&[], None, Some(12)), vec!["two"]),
        (select(&[3], Some("A"), None), vec![]),
    ] {
        assert_eq!(said(THREE, &selection), expected, "{selection:?}");
    }
}

#[test]
fn a_selection_of_nothing_is_reported() {
    let document = Document::parse(THREE);
    let bindings = Bindings::of(&document, &[]);
    let plan = |selection| Plan::new(&document, &servers(), &bindings, &selection, false).map(|_| ()).unwrap_err();
    let number = Selection { blocks: vec![4], ..Selection::default() };
    assert_eq!(plan(number), SelectionError::NoBlock { number: 4, count: 3 });
    let section = Selection { section: Some("### A".to_owned()), ..Selection::default() };
    assert_eq!(plan(section), SelectionError::NoSection { name: "### A".to_owned() });
    let line = Selection { line: Some(1), ..Selection::default() };
    assert_eq!(plan(line), SelectionError::NoBlockAt { line: 1 });
}

#[test]
fn faults_are_reported_with_the_lines_of_the_document() {
    let text =
        "---\ntitle: x\n---\n\n> - ```echo\n>   # words first\n>   tool: say\n>   words: 5\n>   loud: maybe\n>   ```\n";
    let finished = &run_text(text).1.finished[0];
    let problem = finished.problem.as_ref().unwrap();
    assert_eq!((finished.status, problem.kind), (Status::Refused, ProblemKind::BadArguments));
    let mut lines: Vec<usize> = problem.faults.iter().map(|fault| fault.line).collect();
    lines.sort_unstable();
    assert_eq!(lines, [8, 9]);
    for (block, kind, line) in [
        ("tool: say\nwords: [1,\n", ProblemKind::BadYaml, 6),
        ("tool: say\nother: x\nwords: y", ProblemKind::BadArguments, 6),
        ("tool: say", ProblemKind::BadArguments, 5),
        ("\n\ntool: nothing-like-it", ProblemKind::NoTool, 7),
        ("tool: say\nwords: a\nwords: b", ProblemKind::BadYaml, 7),
        ("tool: [say]", ProblemKind::BadYaml, 5),
    ] {
        let report = run_text(&format!("words\n\nwords\n```echo\n{block}\n```\n")).1;
        let problem = report.finished[0].problem.as_ref().unwrap();
        assert_eq!((problem.kind, problem.faults[0].line), (kind, line), "{block}: {problem}");
    }
}

/// A server with one tool, with or without a schema.
struct OneTool(Option<ToolSchema>);

impl Toolbox for OneTool {
    fn servers(&self) -> Vec<Server> {
        servers()
    }

    async fn tools(&self, _server: &str, wanted: &WantedTools) -> Option<ToolTable> {
        let mut table = ToolTable::new(wanted, true);
        table.add("t", || self.0.clone());
        Some(table)
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        Ok(json!({ "content": [{ "type": "text", "text": format!("got {}", request.arguments) }] }).to_string())
    }
}

#[test]
fn format_and_display_in_the_body_are_arguments_unless_the_schema_forbids_them() {
    let run = |schema: Option<ToolSchema>, block: &str| {
        let (applied, report) = run_with(block, &OneTool(schema), &[], &Selection::default(), false);
        let request = report.finished[0].request.as_ref().map(|request| request.arguments.clone());
        (request, applied.text.contains("<details>"), report)
    };
    let lists_other = json!({ "properties": { "words": { "type": "string" } } });
    let forbids_more = json!({ "properties": { "words": { "type": "string" } }, "additionalProperties": false });
    let any = [
        json!({ "type": "object" }),
        json!({ "type": "object", "additionalProperties": true }),
        json!({ "properties": { "words": {} }, "additionalProperties": { "type": "string" } }),
        json!({ "properties": { "display": {}, "format": {} }, "additionalProperties": false }),
    ];
    let block = "```echo\ntool: t\ndisplay: collapsed\nformat: json\n```\n";
    for schema in any {
        let (arguments, is_collapsed, _) = run(Some(ToolSchema::Tree(schema.clone())), block);
        assert_eq!(arguments.as_deref(), Some(r#"{"display":"collapsed","format":"json"}"#), "{schema}");
        assert!(!is_collapsed, "{schema}");
    }
    // A schema that leaves further properties open gets them as arguments, and they also count as hints.
    for schema in [Some(ToolSchema::Tree(lists_other.clone())), None] {
        let (arguments, is_collapsed, _) = run(schema, block);
        assert_eq!(arguments.as_deref(), Some(r#"{"display":"collapsed","format":"json"}"#));
        assert!(is_collapsed);
    }
    // An invalid hint is accepted where it may be an argument.
    let other = "```echo\ntool: t\ndisplay: 4k\nformat: [csv]\n```\n";
    for schema in [Some(ToolSchema::Tree(lists_other)), Some(ToolSchema::Tree(json!({ "type": "object" }))), None] {
        let (arguments, _, report) = run(schema, other);
        assert_eq!(arguments.as_deref(), Some(r#"{"display":"4k","format":["csv"]}"#));
        assert!(report.is_success());
    }
    let (arguments, is_collapsed, _) = run(Some(ToolSchema::Tree(forbids_more.clone())), block);
    assert_eq!((arguments.as_deref(), is_collapsed), (Some("{}"), true));
    let (_, _, report) = run(Some(ToolSchema::Tree(forbids_more)), other);
    assert_eq!(report.finished[0].status, Status::Refused);
    // After the language they are hints, whatever the schema says; in the body of the same block, arguments.
    let both = "```echo display=collapsed format=text\ntool: t\ndisplay: wide\nformat: csv\n```\n";
    let (arguments, is_collapsed, _) = run(Some(ToolSchema::Tree(json!({ "type": "object" }))), both);
    assert_eq!((arguments.as_deref(), is_collapsed), (Some(r#"{"display":"wide","format":"csv"}"#), true));
}

#[test]
fn an_invalid_argument_is_reported_with_its_position() {
    let schema = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    let block = "```echo\ntool: t\ndisplay: collapsed\n```\n";
    let report = run_with(block, &OneTool(Some(ToolSchema::Tree(schema))), &[], &Selection::default(), false).1;
    let problem = report.finished[0].problem.as_ref().unwrap();
    assert_eq!((problem.kind, problem.faults[0].line), (ProblemKind::BadArguments, 3));
    assert!(problem.to_string().contains("write `display=...` after the language"), "{problem}");
}

#[test]
fn a_dry_run_checks_everything_and_calls_nothing() {
    let text = "```echo\ntool: say\nwords: x\n```\n\n```echo\ntool: say\n```\n";
    let world = FakeToolbox::default();
    let document = Document::parse(text);
    let bindings = Bindings::of(&document, &[]);
    let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).unwrap();
    let report = finished(run(&plan, &world, RunOptions { jobs: 1, is_dry: true }, std::future::pending(), |_| {}));
    assert_eq!(report.finished[0].status, Status::Ready);
    assert_eq!(report.finished[0].request.as_ref().unwrap().arguments, r#"{"words":"x"}"#);
    assert_eq!(report.finished[1].status, Status::Refused);
    assert!(world.calls.lock().unwrap().is_empty());
}

#[test]
fn remarks_are_made_about_what_looks_like_a_block() {
    let text = "```weather\ntool: forecast\n```\n\n```echo\nsome text\n```\n\n```yaml\ntool: hammer\n```\n\n```ECHO\ntool: say\nwords: case\n```\n";
    let report = run_text(text).1;
    let lines: Vec<usize> = report.remarks.iter().map(|remark| remark.line).collect();
    assert_eq!(lines, [1, 5]);
    assert_eq!(report.finished.len(), 1);
}

/// A server whose calls end when the test says so.
struct Slow {
    may_end: Semaphore,
    began: Notify,
    under_way: AtomicUsize,
    most: AtomicUsize,
    dropped: Mutex<usize>,
}

impl Slow {
    fn new(may_end: usize) -> Self {
        Self {
            may_end: Semaphore::new(may_end),
            began: Notify::new(),
            under_way: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            dropped: Mutex::new(0),
        }
    }
}

struct UnderWay<'a>(&'a Slow, bool);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            *self.0.dropped.lock().unwrap() += 1;
        }
    }
}

impl Toolbox for Slow {
    fn servers(&self) -> Vec<Server> {
        servers()
    }

    async fn tools(&self, _server: &str, _wanted: &WantedTools) -> Option<ToolTable> {
        None
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        let count = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        let mut under_way = UnderWay(self, false);
        self.most.fetch_max(count, Ordering::SeqCst);
        self.began.notify_one();
        self.may_end.acquire().await.unwrap().forget();
        under_way.1 = true;
        if request.arguments.contains("two") {
            return Err(Failure::new("two never works"));
        }
        Ok(json!({ "content": [{ "type": "text", "text": request.arguments }] }).to_string())
    }
}

fn finished<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn run_slowly(slow: &Slow, jobs: usize, stop: impl Future<Output = ()> + Send) -> (Report, Vec<String>) {
    let document = Document::parse(THREE);
    let bindings = Bindings::of(&document, &[]);
    let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).unwrap();
    let mut reported = Vec::new();
    let report = finished(run(&plan, slow, RunOptions { jobs, is_dry: false }, stop, |progress| {
        reported.push(match progress {
            Progress::Pending(step) => format!("pending {}", step.number),
            Progress::Executing(step) => format!("executing {}", step.number),
            Progress::Finished(finished) => format!("{:?} {}", finished.status, finished.number),
        });
    }));
    (report, reported)
}

#[test]
fn progress_is_reported_per_block_and_a_failure_does_not_end_the_run() {
    let (report, reported) = run_slowly(&Slow::new(3), 1, std::future::pending());
    let expected = [
        "pending 1",
        "pending 2",
        "pending 3",
        "executing 1",
        "Done 1",
        "executing 2",
        "Failed 2",
        "executing 3",
        "Done 3",
    ];
    assert_eq!(reported, expected);
    assert!(!report.is_success());
    assert_eq!(report.count(Status::Done), 2);
}

#[test]
fn one_after_the_other_unless_more_are_allowed() {
    for (jobs, most) in [(0, 1), (1, 1), (2, 2), (10, 3)] {
        let slow = Slow::new(0);
        let open_the_gate = async {
            while slow.under_way.load(Ordering::SeqCst) < most {
                slow.began.notified().await;
            }
            slow.may_end.add_permits(3);
            std::future::pending::<()>().await;
        };
        let (report, _) = run_slowly(&slow, jobs, open_the_gate);
        assert_eq!(report.count(Status::Stopped), 0);
        assert_eq!(slow.most.load(Ordering::SeqCst), most, "{jobs} jobs");
    }
}

#[test]
fn stopping_a_run_keeps_finished_results_and_cancels_the_rest() {
    let slow = Slow::new(1);
    let stop = async {
        slow.began.notified().await;
        while slow.may_end.available_permits() > 0 || slow.under_way.load(Ordering::SeqCst) == 0 {
            slow.began.notified().await;
        }
    };
    let (report, reported) = run_slowly(&slow, 1, stop);
    let statuses: Vec<Status> = report.finished.iter().map(|it| it.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Stopped, Status::Stopped], "{reported:?}");
    assert_eq!(*slow.dropped.lock().unwrap(), 1);
    assert_eq!(slow.under_way.load(Ordering::SeqCst), 0);
}

#[test]
fn a_run_can_be_given_to_another_thread() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let document = Document::parse(THREE);
    let bindings = Bindings::of(&document, &[]);
    let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).unwrap();
    let world = FakeToolbox::default();
    let report = finished(is_send(run(&plan, &world, RunOptions::default(), std::future::pending(), |_| {})));
    assert!(report.is_success());
}

/// Answers a number of calls; the next one ends the run.
struct Limited {
    left: Mutex<usize>,
    then: Failure,
}

impl Toolbox for Limited {
    fn servers(&self) -> Vec<Server> {
        servers()
    }

    async fn tools(&self, _server: &str, _wanted: &WantedTools) -> Option<ToolTable> {
        None
    }

    async fn call(&self, _request: &Request) -> Result<String, Failure> {
        let mut left = self.left.lock().unwrap();
        *left = left.checked_sub(1).ok_or_else(|| self.then.clone())?;
        Ok(r#"{"content":[{"type":"text","text":"good"}]}"#.to_owned())
    }
}

#[test]
fn an_error_in_the_document_names_no_line_that_a_result_moves() {
    let text = "```assistant\nwhy?\n```\n\n```assistant\nand then?\n```\n";
    let limited = Limited { left: Mutex::new(0), then: Failure::new("never") };
    let (once, report) = run_with(text, &limited, &[], &Selection::default(), false);
    let again = run_with(&once.text, &limited, &[], &Selection::default(), false).1;
    let messages = |report: &Report| report.finished.iter().map(|it| it.message.clone()).collect::<Vec<_>>();
    assert_eq!(messages(&report)[1].as_deref(), Some("there is no assistant to answer this block"));
    assert_eq!(messages(&report), messages(&again));
}

#[test]
fn what_was_not_run_keeps_the_result_it_has() {
    let run = |text: &str, left: usize, then: Failure| {
        run_with(text, &Limited { left: Mutex::new(left), then }, &[], &Selection::default(), false)
    };
    let (done, _) = run(THREE, 3, Failure::new("never"));
    assert_eq!(done.text.matches("good").count(), 3);
    for then in [Failure::not_tried("the server is away"), Failure::run_over("no more calls")] {
        let (again, report) = run(&done.text, 1, then);
        assert_eq!(again.text, done.text);
        assert!(!report.is_success());
    }
    // Attempted calls are reported.
    let (again, _) = run(&done.text, 1, Failure::new("it broke"));
    assert_eq!((again.text.matches("good").count(), again.text.matches("it broke").count()), (1, 2));
}

#[test]
fn a_run_without_remaining_calls_ends_with_one_reason() {
    let toolbox = Limited { left: Mutex::new(1), then: Failure::run_over("no more calls") };
    let (applied, report) = run_with(THREE, &toolbox, &[], &Selection::default(), false);
    let statuses: Vec<Status> = report.finished.iter().map(|over| over.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Failed, Status::Stopped]);
    assert_eq!(applied.text.matches("no more calls").count(), 1);
}

/// Counts how often the tools of servers are requested. A call of `more` adds a tool.
#[derive(Default)]
struct Counting {
    loads: Mutex<Vec<String>>,
    reaches: AtomicUsize,
    has_more: AtomicUsize,
    /// The schema of the tools.
    schema: Option<String>,
    result_bytes: usize,
}

impl Toolbox for Counting {
    fn servers(&self) -> Vec<Server> {
        servers()
    }

    async fn tools(&self, server: &str, wanted: &WantedTools) -> Option<ToolTable> {
        self.loads.lock().unwrap().push(server.to_owned());
        let mut table = ToolTable::new(wanted, true);
        let names = (0..5_000).map(|number| format!("t{number}")).chain(["more".to_owned()]);
        let later = (0..self.has_more.load(Ordering::SeqCst)).map(|number| format!("later{number}"));
        for name in names.chain(later) {
            table.add(&name, || self.schema.clone().map(ToolSchema::Text));
        }
        Some(table)
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        if request.tool == "more" {
            self.has_more.fetch_add(1, Ordering::SeqCst);
        }
        Ok(json!({ "content": [{ "type": "text", "text": "x".repeat(self.result_bytes) }] }).to_string())
    }

    async fn out_of_reach(&self, _server: &str) -> Option<String> {
        self.reaches.fetch_add(1, Ordering::SeqCst);
        None
    }
}

fn run_counting(text: &str, counting: &Counting, is_dry: bool) -> Report {
    let document = Document::parse(text);
    let plan = Plan::new(&document, &servers(), &Bindings::of(&document, &[]), &Selection::default(), false).unwrap();
    let options = RunOptions { is_dry, ..RunOptions::default() };
    let running = run(&plan, counting, options, std::future::pending(), |_| {});
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(running)
}

#[test]
fn the_tools_of_a_server_are_loaded_once_for_all_blocks() {
    let blocks: String = (0..2_000).map(|number| format!("```echo\ntool: t{number}\n```\n\n")).collect();
    let missing = "```echo\ntool: nowhere\n```\n\n".repeat(50);
    let counting = Counting::default();
    let report = run_counting(&format!("{blocks}{missing}```other\ntool: t1\n```\n"), &counting, true);
    assert_eq!((report.count(Status::Ready), report.count(Status::Refused)), (2_001, 50));
    assert_eq!(*counting.loads.lock().unwrap(), ["echo", "other"]);
    assert_eq!(counting.reaches.load(Ordering::SeqCst), 2, "whether a server is up is asked once as well");
    let why = report.finished[2_000].problem.as_ref().unwrap().to_string();
    assert!(why.contains("`t11` and 4989 more"), "{why}");
}

#[test]
fn tools_that_a_call_brings_are_found_by_the_blocks_below() {
    let block = |tool: &str| format!("```echo\ntool: {tool}\n```\n\n");
    let counting = Counting::default();
    let report = run_counting(&["later0", "more", "t1", "later0", "later1"].map(block).concat(), &counting, false);
    let statuses: Vec<Status> = report.finished.iter().map(|finished| finished.status).collect();
    assert_eq!(statuses, [Status::Refused, Status::Done, Status::Done, Status::Done, Status::Refused]);
    assert_eq!(counting.loads.lock().unwrap().len(), 3, "at the beginning, and where a tool was missing after calls");
}

#[test]
fn an_unreadable_schema_is_reported_as_not_checked() {
    let counting = Counting { schema: Some(r#"{"description":"\ud800"}"#.to_owned()), ..Counting::default() };
    let report = run_counting("```echo\ntool: t1\na: 1\n```\n", &counting, false);
    let finished = &report.finished[0];
    let why = finished.not_checked.as_deref().unwrap_or_default();
    assert!(why.contains("the schema of the tool cannot be read"), "{finished:?}");
    assert_eq!(finished.status, Status::Done, "the server decides");
}

#[test]
fn a_run_ends_when_its_results_are_too_large_to_be_held() {
    let counting = Counting { result_bytes: 40 * 1024 * 1024, ..Counting::default() };
    let report = run_counting(&"```echo\ntool: t1\n```\n\n".repeat(4), &counting, false);
    let statuses: Vec<Status> = report.finished.iter().map(|finished| finished.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Done, Status::Stopped, Status::Stopped]);
    assert!(report.finished[2].message.as_ref().unwrap().contains("more than 64 MiB"), "{:?}", report.finished[2]);
}
