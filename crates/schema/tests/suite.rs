//! The official JSON Schema Test Suite, but for what is named here.
//!
//! `tests/suite` holds the files of `tests/draft7`, `tests/draft2019-09` and `tests/draft2020-12` of
//! <https://github.com/json-schema-org/JSON-Schema-Test-Suite>, with white space removed; see LICENSE there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use schema::{Limits, Outcome, check};
use serde_json::{Value, json};

/// What we do not check, and why. A test that begins like this must be reported as not checked; an entry that no test
/// needs any more fails.
const NOT_CHECKED: &[(&str, &str)] = &[
    ("draft7/definitions: validate definition against metaschema", "refers to a meta-schema, which is not built in"),
    ("draft7/ref: remote ref, containing refs itself", "refers to a meta-schema, which is not built in"),
    ("draft7/refRemote: ", "refers to a schema elsewhere, and nothing is fetched"),
    ("draft2019-09/defs: validate definition against metaschema", "refers to a meta-schema, which is not built in"),
    ("draft2019-09/ref: remote ref, containing refs itself", "refers to a meta-schema, which is not built in"),
    ("draft2019-09/refRemote: ", "refers to a schema elsewhere, and nothing is fetched"),
    ("draft2019-09/vocabulary: ", "uses a meta-schema of its own"),
    ("draft2020-12/defs: validate definition against metaschema", "refers to a meta-schema, which is not built in"),
    ("draft2020-12/ref: remote ref, containing refs itself", "refers to a meta-schema, which is not built in"),
    ("draft2020-12/refRemote: ", "refers to a schema elsewhere, and nothing is fetched"),
    ("draft2020-12/vocabulary: ", "uses a meta-schema of its own"),
    (
        "draft2020-12/dynamicRef: $ref and $dynamicAnchor are independent of order",
        "refers to a schema elsewhere, and nothing is fetched",
    ),
    (
        "draft2020-12/dynamicRef: $ref to $dynamicRef finds detached $dynamicAnchor",
        "refers to a schema elsewhere, and nothing is fetched",
    ),
    (
        "draft2020-12/dynamicRef: strict-tree schema, guards against misspelled properties",
        "refers to a schema elsewhere, and nothing is fetched",
    ),
    (
        "draft2020-12/dynamicRef: tests for implementation dynamic anchor and reference link",
        "refers to a schema elsewhere, and nothing is fetched",
    ),
];

fn default_dialect(draft: &str) -> Option<&'static str> {
    match draft {
        "draft7" => Some("http://json-schema.org/draft-07/schema#"),
        "draft2019-09" => Some("https://json-schema.org/draft/2019-09/schema"),
        _ => None,
    }
}

/// A schema as its draft reads it: files of older drafts do not name theirs.
fn in_dialect(schema: &Value, draft: &str) -> Value {
    let mut schema = schema.clone();
    if let (Some(dialect), Value::Object(members)) = (default_dialect(draft), &mut schema)
        && !members.contains_key("$schema")
    {
        members.insert("$schema".to_owned(), json!(dialect));
    }
    schema
}

#[test]
fn the_official_suite_gets_the_expected_outcomes() {
    let (mut wrong, mut used, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for draft in ["draft7", "draft2019-09", "draft2020-12"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(draft);
        let mut files: Vec<_> =
            fs::read_dir(folder).expect("the suite is there").flatten().map(|it| it.path()).collect();
        files.sort();
        for file in files {
            let groups: Vec<Value> =
                serde_json::from_slice(&fs::read(&file).expect("the file is there")).expect("it is JSON");
            let file = file.file_stem().expect("it has a name").to_string_lossy().into_owned();
            for group in groups {
                let schema = in_dialect(&group["schema"], draft);
                for test in group["tests"].as_array().expect("a group has tests") {
                    count += 1;
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let name =
                        format!("{draft}/{file}: {}: {}", text(&group["description"]), text(&test["description"]));
                    let outcome = check(&schema, &test["data"], Limits::default(), &|| false);
                    let is_right = match &outcome {
                        Outcome::Valid => test["valid"] == true,
                        Outcome::Invalid(_) => test["valid"] == false,
                        Outcome::NotChecked(_) => {
                            let starts = NOT_CHECKED.iter().map(|(start, _)| *start);
                            let known = starts.into_iter().find(|start| name.starts_with(start));
                            used.extend(known);
                            known.is_some()
                        }
                    };
                    if !is_right {
                        wrong.push(format!("{name}\n    {outcome:?}"));
                    }
                }
            }
        }
    }
    assert!(count > 3000, "{count} tests were found");
    assert!(wrong.is_empty(), "{} of {count} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let unused: Vec<_> = NOT_CHECKED.iter().map(|(start, _)| start).filter(|start| !used.contains(**start)).collect();
    assert!(unused.is_empty(), "these entries are not needed any more: {unused:?}");
}
