//! Large documents take time in proportion to their length, whatever they are made of.

use std::time::{Duration, Instant};

use notebook::{Bindings, Document, Plan, Selection, Server, outline, place, read_fuzz_document};

/// Work that grows with the square of these documents would take minutes.
const SOON: Duration = Duration::from_secs(30);

fn servers() -> Vec<Server> {
    ["one", "two"].map(|name| Server { name: name.to_owned(), is_enabled: true }).to_vec()
}

/// Reads, maps and plans a document; how many blocks it has.
fn looked_at(what: &str, text: &str) -> usize {
    let began = Instant::now();
    let document = Document::parse(text);
    let bindings = Bindings::of(&document, &[]);
    let map = outline(&document, &servers(), &bindings);
    let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).expect("all are meant");
    place(&document, &servers(), &bindings, text.lines().count());
    assert!(began.elapsed() < SOON, "{what}: {:?} for {} bytes", began.elapsed(), text.len());
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
    let began = Instant::now();
    read_fuzz_document(repeated(10_000, |it| format!("```one\ntool: t{}\n```\n\n", it % 5_000)).as_bytes());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
