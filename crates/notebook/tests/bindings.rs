//! The binding of a place in a document, for every kind of binding, nesting and override.

use notebook::{Binding, Bindings, Document, Origin, Plan, Section, Selection, line_context, outline};

use crate::fixture::{run_text, servers};

fn registered(section: Section, server: &str, inherit_to_children: bool) -> Binding {
    Binding { section, server: server.to_owned(), inherit_to_children, origin: Origin::Registry }
}

fn heading(heading_text: &str) -> Section {
    Section::Heading { heading_text: heading_text.to_owned() }
}

fn block(block_id: &str) -> Section {
    Section::Block { block_id: block_id.to_owned() }
}

fn range(start_line: usize, end_line: usize) -> Section {
    Section::Range { start_line, end_line }
}

/// The server and whether it is inherited, at every line with a `?n` in it, by `n`.
fn bound(text: &str, bindings: &[Binding]) -> Vec<String> {
    let document = Document::parse(text);
    let bindings = Bindings::of(&document, bindings);
    let asked = text.lines().enumerate().filter(|(_, line)| line.contains('?'));
    asked
        .map(|(place, _)| match bindings.at(place + 1) {
            None => "-".to_owned(),
            Some(bound) if bound.is_inherited => format!("({})", bound.binding.server),
            Some(bound) => bound.binding.server,
        })
        .collect()
}

#[test]
fn every_kind_of_binding_holds_where_it_should() {
    let nested = "?\n# A\n?\n## B\n?\n### C\n?\n## D\n?\n# E\n?\n";
    let cases: Vec<(&str, &str, Vec<Binding>, &[&str])> = vec![
        ("nothing is bound", nested, vec![], &["-", "-", "-", "-", "-", "-"]),
        ("children inherit", nested, vec![registered(heading("A"), "x", true)], &["-", "x", "(x)", "(x)", "(x)", "-"]),
        ("unless they must not", nested, vec![registered(heading("A"), "x", false)], &["-", "x", "-", "-", "-", "-"]),
        (
            "a child overrides its parent, and its children inherit from it",
            nested,
            vec![registered(heading("A"), "x", true), registered(heading("B"), "y", true)],
            &["-", "x", "y", "(y)", "(x)", "-"],
        ),
        (
            "a child alone overrides its parent for itself alone",
            nested,
            vec![registered(heading("A"), "x", true), registered(heading("B"), "y", false)],
            &["-", "x", "y", "(x)", "(x)", "-"],
        ),
        (
            "a heading may be named with its level",
            "# A\n?\n## A\n?\n",
            vec![registered(heading("## A"), "x", true)],
            &["-", "x"],
        ),
        ("or with any", "# A\n?\n# B\n?\n## A\n?\n", vec![registered(heading("A"), "x", true)], &["x", "-", "x"]),
        ("or not at all", nested, vec![registered(heading("F"), "x", true)], &["-", "-", "-", "-", "-", "-"]),
        (
            "the whole document",
            nested,
            vec![registered(Section::Document, "x", true)],
            &["x", "(x)", "(x)", "(x)", "(x)", "(x)"],
        ),
        (
            "what stands before the first heading",
            nested,
            vec![registered(Section::Document, "x", false)],
            &["x", "-", "-", "-", "-", "-"],
        ),
        ("a comment under a heading", "# A\n<!-- mcp: x -->\n?\n## B\n?\n# C\n?\n", vec![], &["x", "(x)", "-"]),
        (
            "a comment for a section alone",
            "# A\n\nwords\n\n<!-- mcp: x no-inherit -->\n?\n## B\n?\n",
            vec![],
            &["x", "-"],
        ),
        ("a comment before all headings", "<!-- mcp: x -->\n\n?\n# A\n?\n", vec![], &["x", "(x)"]),
        ("a server with a space in its name", "# A\n<!-- mcp: my server no-inherit -->\n?\n", vec![], &["my server"]),
        (
            "a comment inside something is none",
            "# A\n```\n<!-- mcp: x -->\n```\n> <!-- mcp: x -->\n\n<div>\n<!-- mcp: x -->\n</div>\n\n?\n",
            vec![],
            &["-"],
        ),
        (
            "a comment wins over front matter, that over the registry",
            "---\nmcp:\n  - heading: A\n    server: y\n  - heading: B\n    server: y\n---\n# A\n<!-- mcp: x -->\n?\n# B\n?\n# C\n?\n",
            vec![
                registered(heading("A"), "z", true),
                registered(heading("B"), "z", true),
                registered(heading("C"), "z", true),
            ],
            &["x", "y", "z"],
        ),
        ("front matter for all", "---\nmcp: x\n---\n?\n# A\n?\n", vec![], &["x", "(x)"]),
        (
            "front matter of every kind",
            "---\nmcp:\n  - headingText: '## B'\n    server: x\n    inheritToChildren: false\n  - blockId: one\n    server: y\n  - startLine: 16\n    endLine: 17\n    server: z\n---\n# A\n? ^one\n## B\n?\n### C\n?\n?\n",
            vec![],
            &["y", "x", "z", "-"],
        ),
        (
            "a block by its id",
            "# A\n\n? ^one\n\n?\n\n- ? ^two\n  ?\n- ?\n",
            vec![registered(block("^one"), "x", true), registered(block("two"), "y", true)],
            &["x", "-", "y", "y", "-"],
        ),
        (
            "a block before an id that stands alone",
            "# A\n\n```\n?\n```\n^one\n\n?\n\n> ?\n\n^two\n",
            vec![registered(block("one"), "x", true), registered(block("two"), "y", true)],
            &["x", "-", "y"],
        ),
        (
            "the section of a heading with an id",
            "# A ^one\n?\n## B\n?\n# C\n?\n",
            vec![registered(block("one"), "x", true)],
            &["x", "x", "-"],
        ),
        (
            "no id in code, and none in the middle of a word",
            "# A\n\n```\n? ^one\n```\n\n?^one\n\n? `^one`\n",
            vec![registered(block("one"), "x", true)],
            &["-", "-", "-"],
        ),
        (
            "lines, with what is inside them",
            "# A\n?\n?\n## B\n?\n?\n",
            vec![registered(range(3, 5), "x", true)],
            &["-", "x", "(x)", "-"],
        ),
        (
            "lines without the sections inside them",
            "# A\n?\n?\n## B\n?\n?\n",
            vec![registered(range(3, 5), "x", false)],
            &["-", "x", "-", "-"],
        ),
        (
            "the one for the fewest lines wins",
            "# A\n?\n## B\n?\n- ? ^one\n\n?\n",
            vec![
                registered(range(1, 6), "lines", true),
                registered(heading("A"), "a", true),
                registered(heading("B"), "b", true),
                registered(block("one"), "block", true),
            ],
            &["lines", "b", "block", "b"],
        ),
        (
            "setext headings, and headings with marks in them",
            "A *b* `c`\n===\n?\n## [D](x) ##\n?\n",
            vec![registered(heading("# A b c"), "x", false), registered(heading("[D](x)"), "y", true)],
            &["x", "y"],
        ),
        ("the first of two that contradict each other", "# A\n<!-- mcp: x -->\n<!-- mcp: y -->\n?\n", vec![], &["x"]),
    ];
    for (what, text, bindings, expected) in cases {
        assert_eq!(bound(text, &bindings), expected, "{what}: {text}");
    }
}

#[test]
fn a_binding_follows_its_heading_when_lines_move() {
    let bindings = [registered(heading("B"), "x", true)];
    assert_eq!(bound("# A\n?\n# B\n?\n", &bindings), ["-", "x"]);
    assert_eq!(bound("# A\n\nmany\n\nmore\n\nlines\n\n?\n# B\n?\n", &bindings), ["-", "x"]);
}

#[test]
fn no_run_moves_a_range_of_lines() {
    let text = "```echo\ntool: lines\ncount: 30\n```\n\n```mcp\ntool: name\n```\n\n```mcp\ntool: name\n```\n";
    let ran = run_text(text).0.text;
    let bindings = [registered(range(6, 8), "other", true)];
    for text in [text, &ran] {
        let document = Document::parse(text);
        let bindings = Bindings::of(&document, &bindings);
        let lines = document.fences().iter().map(|fence| fence.first_line);
        let servers: Vec<_> = lines.map(|line| bindings.at(line).map(|bound| bound.binding.server)).collect();
        assert_eq!(servers, [None, Some("other".to_owned()), None], "{text}");
    }
}

#[test]
fn what_is_wrong_in_front_matter_is_reported_with_its_line() {
    for (yaml, line, part) in [
        ("mcp:\n  - heading: A", 3, "server"),
        ("mcp:\n  - server: x\n    heading: A\n    block: b", 3, "not for several"),
        ("mcp:\n  - server: x\n    start: 5\n    end: 5", 3, "come after"),
        ("mcp:\n  - server: x\n    start: 0\n    end: 5", 3, "start at 1"),
        ("mcp:\n  - server: x\n    lines: some", 4, "10-20"),
        ("mcp:\n  - server: x\n    end: 5", 3, "first and a last"),
        ("mcp:\n  - server: x\n    colour: red", 4, "colour"),
        ("mcp:\n  - server: x\n    heading: Nowhere", 3, "no heading"),
        ("mcp:\n  - server: x\n    block: nothing", 3, "no block"),
        ("mcp:\n  - server: x\n    inherit: perhaps", 4, "true or false"),
        ("mcp: [x, y]", 2, "already"),
        ("title: x\nmcp: [a", 3, "not valid YAML"),
        ("mcp: 5", 2, "server"),
    ] {
        let document = Document::parse(format!("---\n{yaml}\n---\n# A\n"));
        let faults = Bindings::of(&document, &[]).faults;
        assert!(faults.len() == 1 && faults[0].line == line && faults[0].what.contains(part), "{yaml}: {faults:?}");
    }
}

#[test]
fn a_map_has_the_server_of_every_section_with_the_reason() {
    let text = "Words\n\n# A\n<!-- mcp: other -->\n\n## B\n\n```echo\ntool: say\n```\n\n# C\n\n```mcp\ntool: say\n```\n<!-- mcp: nobody -->\n\n# D\n";
    let document = Document::parse(text);
    let bindings = Bindings::of(&document, &[registered(heading("D"), "echo", true)]);
    let map = outline(&document, &servers(), &bindings);
    let sections: Vec<(usize, &str, Option<&str>, String, usize)> = map
        .sections
        .iter()
        .map(|it| (it.level, it.heading.as_str(), it.server.as_deref(), it.why(), it.blocks.len()))
        .collect();
    let why = |words: &str| words.to_owned();
    assert_eq!(
        sections,
        [
            (0, "", Some("echo"), why("not bound: the first enabled server"), 0),
            (1, "A", Some("other"), why("a comment binds `# A`"), 0),
            (2, "B", Some("other"), why("inherited from `# A`, which a comment binds"), 1),
            (1, "C", Some("nobody"), why("a comment binds `# C`"), 1),
            (1, "D", Some("echo"), why("the registry binds `D`"), 0),
        ]
    );
    assert_eq!(map.remarks.len(), 1);
    assert!(map.remarks[0].line == 17 && map.remarks[0].what.contains("nobody"), "{:?}", map.remarks);
}

#[test]
fn a_map_as_json_is_what_editors_expect() {
    let document = Document::parse("# A\n<!-- mcp: other -->\n\n```echo\ntool: say\n```\n");
    let map = outline(&document, &servers(), &Bindings::of(&document, &[]));
    let bound = serde_json::json!({
        "section_type": "heading", "heading_text": "# A", "server": "other", "inherit_to_children": true,
        "origin": "comment", "line": 2, "is_inherited": false
    });
    let shown = serde_json::to_value(&map).unwrap();
    let problem = &shown["sections"][0]["blocks"][0]["problem"];
    assert!(problem["trouble"] == "refused" && problem["faults"][0]["line"] == 4, "{problem}");
    assert_eq!(
        shown,
        serde_json::json!({
            "sections": [{
                "level": 1, "heading": "A", "line": 1, "bound": bound, "server": "other",
                "blocks": [{
                    "number": 1, "line": 4, "addressee": { "server": "echo" }, "bound": bound, "title": "echo.say",
                    "problem": problem
                }]
            }],
            "remarks": [],
            "version": map.version
        })
    );
}

#[test]
fn bindings_at_too_many_places_are_an_error_of_the_document() {
    let block = "# Last\n\n```echo\ntool: say\nwords: x\n```\n";
    for (headings, is_too_many) in [(99_999, false), (100_000, true)] {
        let matter = "---\nmcp:\n- heading: H\n  server: echo\n- heading: Last\n  server: other\n---\n";
        let text = format!("{matter}{}{block}", "# H\n".repeat(headings));
        let document = Document::parse(text.as_str());
        let bindings = Bindings::of(&document, &[]);
        let plan = Plan::new(&document, &servers(), &bindings, &Selection::default(), false).unwrap();
        let problem = plan.steps[0].problem().unwrap().to_string();
        let line = text.lines().position(|line| line == "```echo").unwrap() + 1;
        let allowed = line_context(&document, &servers(), &bindings, line).allowed_servers;
        if is_too_many {
            assert!(problem.contains("more than 100000 places"), "{problem}");
            assert_eq!(
                bindings.faults.iter().map(|fault| fault.line).collect::<Vec<_>>(),
                [5],
                "{:?}",
                bindings.faults
            );
            assert!(allowed.is_empty(), "{allowed:?}");
        } else {
            assert!(problem.contains("only tools of `other` may run here"), "{problem}");
            assert!(bindings.faults.is_empty(), "{:?}", bindings.faults);
            assert_eq!(allowed, ["other"]);
        }
    }
}

#[test]
fn lines_that_no_document_has_are_an_error_and_no_panic() {
    for lines in
        ["lines: 1-18446744073709551615", "start: 1\n  end: 18446744073709551615", "lines: 1-1844674407370955161500"]
    {
        let document = Document::parse(format!("---\nmcp:\n- server: echo\n  {lines}\n---\n# A\n"));
        let bindings = Bindings::of(&document, &[]);
        assert_eq!(bindings.faults.len(), 1, "{lines}: {:?}", bindings.faults);
    }
    let last = Document::parse("---\nmcp:\n- server: echo\n  lines: 1-18446744073709551614\n---\n# A\n");
    let bindings = Bindings::of(&last, &[]);
    assert!(bindings.faults.is_empty() && bindings.at(6).is_some(), "{:?}", bindings.faults);
}
