//! The time for large documents is proportional to their length, whatever they contain.

use std::time::Duration;

use notebook::{
    Binding, Bindings, Document, MAX_BINDINGS, Origin, Plan, Section, Selection, Server, line_context, outline,
    read_fuzz_document,
};
use rustix::time::{ClockId, clock_gettime};

/// Quadratic work on these documents would take minutes.
const SOON: Duration = Duration::from_secs(30);

/// The processor time of this thread, which does not depend on what else the machine does.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("the time of a thread is positive");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("less than a second"))
}

fn servers() -> Vec<Server> {
    ["one", "two"].map(|name| Server { name: name.to_owned(), is_enabled: true }).to_vec()
}

/// Parses, maps and plans a document; returns the number of blocks.
fn looked_at(what: &str, text: &str) -> usize {
    let began = processor_time();
    let document = Document::parse(text);
    let bindings = Bindings::of(&document, &[]);
    let map = outline(&document, &servers(), &bindings);
    let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).expect("all are meant");
    line_context(&document, &servers(), &bindings, text.lines().count());
    assert!(processor_time() - began < SOON, "{what}: {:?} for {} bytes", processor_time() - began, text.len());
    assert_eq!(map.blocks().count(), plan.steps.len());
    plan.steps.len()
}

fn repeated(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

#[test]
fn whatever_a_document_has_many_of_it_is_read_soon() {
    let matter = format!("---\nmcp:\n{}---\n", repeated(900, |it| format!("- heading: H{it}\n  server: one\n")));
    for (what, text, blocks) in [
        ("keys", format!("```one\ntool: t\n{}```\n", repeated(40_000, |it| format!("k{it}: {it}\n"))), 1),
        ("blocks", repeated(30_000, |_| "```one\ntool: t\n```\n\n".to_owned()), 30_000),
        ("different blocks", repeated(30_000, |it| format!("```one\ntool: t{it}\n```\n\n")), 30_000),
        ("headings", repeated(100_000, |it| format!("{} H\n", "#".repeat(it % 6 + 1))), 0),
        ("sections with blocks", repeated(20_000, |it| format!("# H{it}\n\n```one\ntool: t\n```\n\n")), 20_000),
        ("comments", format!("# A\n\n{}{}", "<!-- mcp: one -->\n\n".repeat(50_000), "## B\n".repeat(50_000)), 0),
        (
            "bound sections",
            repeated(30_000, |it| format!("# H{it}\n<!-- mcp: one -->\n\n```mcp\ntool: t\n```\n\n")),
            30_000,
        ),
        ("bindings", format!("{matter}{}", repeated(50_000, |it| format!("# H{}\n", it % 900))), 0),
        ("torn results", repeated(30_000, |it| format!("<!-- mcp-result id={it:016x} status=ok at=x ms=1 -->\n\n")), 0),
        ("ids", repeated(50_000, |it| format!("text ^a{it}\n\n^b{it}\n\n")), 0),
        ("ids in deep quotes", format!("{} a ^x\n{}", ">".repeat(2_000), "b ^y\n".repeat(50_000)), 0),
        ("front matter", format!("---\n{}---\n", repeated(40_000, |it| format!("k{it}: {it}\n"))), 0),
    ] {
        assert_eq!(looked_at(what, &text), blocks, "{what}");
    }
}

#[test]
fn results_are_put_under_many_blocks_soon() {
    let began = processor_time();
    read_fuzz_document(repeated(10_000, |it| format!("```one\ntool: t{}\n```\n\n", it % 5_000)).as_bytes());
    assert!(processor_time() - began < SOON, "{:?}", processor_time() - began);
}

/// A short block that expands to as many values as one block may have.
fn repeating_block() -> String {
    let mut block = "```one\ntool: t\na: &a [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
    for (name, below) in [("b", "a"), ("c", "b"), ("d", "c")] {
        let aliases = vec![format!("*{below}"); 8].join(",");
        block.push_str(&format!("{name}: &{name} [{aliases}]\n"));
    }
    block + "```\n\n"
}

#[test]
fn values_are_bounded_for_all_blocks_of_a_document_together() {
    let document = Document::parse(repeating_block().repeat(2_000));
    let bindings = Bindings::of(&document, &[]);
    let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).expect("all are meant");
    let problems: Vec<String> = plan.steps.iter().filter_map(|step| step.problem()).map(ToString::to_string).collect();
    let read = plan.steps.len() - problems.len();
    assert!((10..100).contains(&read), "{read} blocks were read, of some 12,000 values each");
    assert!(problems.iter().all(|why| why.contains("more than 500000")), "{}", problems[0]);
}

#[test]
fn what_binds_many_blocks_is_not_repeated_in_its_whole_length() {
    let heading = "long ".repeat(20_000);
    let blocks = "```mcp\ntool: t\n```\n\n".repeat(2_000);
    let long_server = "s".repeat(100_000);
    let long_key = "k".repeat(100_000);
    for (what, text) in [
        ("heading", format!("# {heading}\n<!-- mcp: one -->\n\n{blocks}")),
        ("server", format!("# A\n<!-- mcp: {long_server} -->\n\n{blocks}")),
        ("front matter", format!("---\nmcp: {long_server}\n---\n{blocks}")),
        (
            "wrong front matter",
            format!("---\nmcp: {{{long_key}: 1}}\n---\n{}", blocks.replace("```mcp\ntool:", "```assistant\n")),
        ),
        ("contradictions", format!("# {heading}\n{}", repeated(2_000, |it| format!("<!-- mcp: s{it} -->\n\n")))),
    ] {
        let document = Document::parse(text.as_str());
        let bindings = Bindings::of(&document, &[]);
        let map = serde_json::to_string(&outline(&document, &servers(), &bindings)).expect("a map is JSON");
        assert!(map.len() < 20 * text.len() && map.len() < 5_000_000, "{what}: {} for {} bytes", map.len(), text.len());
    }
}

#[test]
fn a_document_with_too_much_of_something_is_an_error_that_names_the_bound() {
    for (what, bound, text) in [
        ("headings", "200000 headings", "#\n".repeat(200_001)),
        ("blocks", "50000 fenced blocks", "```\n```\n".repeat(50_001)),
        ("ids", "200000 ids", "a ^b\n\n".repeat(200_001)),
    ] {
        let document = Document::parse(format!("{text}\n```one\ntool: t\n```\n"));
        let bindings = Bindings::of(&document, &[]);
        let refused = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).unwrap_err();
        assert!(refused.to_string().contains(bound), "{what}: {refused}");
        let map = outline(&document, &servers(), &bindings);
        assert_eq!(map.blocks().count(), 0, "{what}");
        assert!(map.remarks.iter().any(|remark| remark.what.contains(bound)), "{what}: {:?}", map.remarks);
        assert!(line_context(&document, &servers(), &bindings, 1).allowed_servers.is_empty(), "{what}");
    }
}

#[test]
fn more_bindings_of_the_registry_than_a_document_may_have_are_an_error() {
    let section = |number: usize| Section::Heading { heading_text: format!("H{number}") };
    let binding = |number| Binding {
        section: section(number),
        server: "one".to_owned(),
        inherit_to_children: true,
        origin: Origin::Registry,
    };
    let document = Document::parse("# A\n\n```one\ntool: t\n```\n");
    for (count, is_too_many) in [(MAX_BINDINGS, false), (MAX_BINDINGS + 1, true)] {
        let registered: Vec<Binding> = (0..count).map(binding).collect();
        let bindings = Bindings::of(&document, &registered);
        let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).unwrap();
        let problem = plan.steps[0].problem().map(ToString::to_string);
        assert_eq!(problem.is_some(), is_too_many, "{problem:?}");
        assert!(problem.is_none_or(|why| why.contains("1001 bindings") && why.contains("the limit is 1000")));
    }
}
