//! What is removed from definitions, and what is not.

use bytes::Bytes;
use protocol::Lifecycle;

use crate::item::{Item, Kind};

/// The definition as clients of both lifecycles see it, legacy ones first, and what was wrong with it.
fn shown(kind: Kind, definition: &str) -> (Option<[String; 2]>, Vec<String>) {
    let item = Item::read(kind, Bytes::copy_from_slice(definition.as_bytes())).unwrap();
    let (item, flaws) = item.repaired(kind);
    let written = |item: Item| {
        [Lifecycle::Session, Lifecycle::SelfContained].map(|lifecycle| {
            let mut out = Vec::new();
            item.write_for(lifecycle, None, &mut out);
            String::from_utf8(out).unwrap()
        })
    };
    (item.map(written), flaws)
}

#[track_caller]
fn becomes(kind: Kind, definition: &str, expected: &str, flaws: &[&str]) {
    let (shown, reported) = shown(kind, definition);
    assert_eq!(shown, Some([expected.to_owned(), expected.to_owned()]), "{definition}");
    assert_eq!(reported, flaws, "{definition}");
}

#[track_caller]
fn is_left_out(kind: Kind, definition: &str, flaw: &str) {
    assert_eq!(shown(kind, definition), (None, vec![flaw.to_owned()]), "{definition}");
}

#[test]
fn a_good_definition_stays_byte_for_byte_and_is_not_copied() {
    for (kind, definition) in [
        (
            Kind::Tool,
            r#"{ "title":"\u0041","name" : "a","inputSchema":{"type":"object","properties":{"a":{ },"b":{"type":5}},"required":["a"]},
            "outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"mine":5},"execution":{"taskSupport":"optional"},
            "icons":[{"src":"x","sizes":["48x48"],"theme":"dark"}],"_meta":{"a":1e400},"other":null,"n":1.0}"#,
        ),
        (Kind::Prompt, r#"{"name":"p","arguments":[{"name":"a","required":false,"title":"A"}],"description":"d"}"#),
        (
            Kind::Resource,
            r#"{"uri":"urn:x","name":"","size":1e3,"mimeType":"t","annotations":{"audience":["user"],"priority":0.5,
            "lastModified":"2024-02-29T23:59:59.123+02:00"}}"#,
        ),
        (Kind::Template, r#"{"uriTemplate":"{+anything}","name":"t","annotations":{}}"#),
    ] {
        becomes(kind, definition, definition, &[]);
        let item = Item::read(kind, Bytes::copy_from_slice(definition.as_bytes())).unwrap();
        let at = item.definition.as_ptr();
        assert_eq!(item.repaired(kind).0.unwrap().definition.as_ptr(), at);
    }
}

#[test]
fn a_tool_without_an_input_schema_accepts_anything() {
    for (definition, expected, flaw) in [
        (r#"{"name":"a"}"#, r#"{"inputSchema":{"type":"object"},"name":"a"}"#, "`inputSchema` is missing"),
        (
            r#"{"name":"a", "inputSchema":null}"#,
            r#"{"inputSchema":{"type":"object"},"name":"a"}"#,
            "`inputSchema` is not an object",
        ),
        (
            r#"{"inputSchema":null,"name":"a"}"#,
            r#"{"inputSchema":{"type":"object"},"name":"a"}"#,
            "`inputSchema` is not an object",
        ),
        (
            r#"{"name":"a","inputSchema":{}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
            "`inputSchema.type` is missing",
        ),
        (
            r#"{"name":"a","inputSchema":{ "required":["x"]}}"#,
            r#"{"name":"a","inputSchema":{"type":"object", "required":["x"]}}"#,
            "`inputSchema.type` is missing",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":null}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
            "`inputSchema.type` is not `object`",
        ),
    ] {
        becomes(Kind::Tool, definition, expected, &[flaw]);
    }
    becomes(
        Kind::Tool,
        r#"{"name":"a","inputSchema":{"type":["object","null"]}}"#,
        r#"{"name":"a","inputSchema":{"type":"object"}}"#,
        &[],
    );
}

#[test]
fn what_can_be_spared_is_taken_out_of_a_tool_in_the_smallest_piece() {
    for (member, flaw) in [
        (r#""annotations":"x""#, "`annotations` is not an object"),
        (r#""title":5"#, "`title` is not a string"),
        (r#""description":7"#, "`description` is not a string"),
        (r#""description":null"#, "`description` is not a string"),
        (r#""outputSchema":5"#, "`outputSchema` is not an object"),
        (r#""icons":"x""#, "`icons` is not a list"),
        (r#""_meta":5"#, "`_meta` is not an object"),
        (r#""execution":5"#, "`execution` is not an object"),
    ] {
        let expected = r#"{"name":"a","inputSchema":{"type":"object"}}"#;
        let definition = expected.replacen(',', &format!(" , {member},"), 1);
        becomes(Kind::Tool, &definition, expected, &[flaw]);
        let at_the_front = expected.replacen('{', &format!("{{ {member} , "), 1);
        becomes(Kind::Tool, &at_the_front, &expected.replacen('{', "{ ", 1), &[flaw]);
        let twice = format!("{},{member},{member}}}", expected.strip_suffix('}').unwrap());
        becomes(Kind::Tool, &twice, expected, &[flaw]);
    }
    for (definition, expected, flaw) in [
        (
            r#"{"name":"a","annotations":{"readOnlyHint":"yes","title":"A"},"inputSchema":{"type":"object"}}"#,
            r#"{"name":"a","annotations":{"title":"A"},"inputSchema":{"type":"object"}}"#,
            "`annotations.readOnlyHint` is not true or false",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","properties":[]}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
            "`inputSchema.properties` is not an object",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","properties":null,"required":"x"}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
            "`inputSchema.properties` is not an object",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","required":[1,"b",null]}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","required":["b"]}}"#,
            "`inputSchema.required[]` is not a string",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"b":5,"c":{}}}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"c":{}}}}"#,
            "`inputSchema.properties.*` is not a schema",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"icons":[{"src":"x","sizes":"48x48"},{"theme":"dark"}]}"#,
            r#"{"name":"a","inputSchema":{"type":"object"},"icons":[{"src":"x"}]}"#,
            "`icons[].sizes` is not a list",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"maybe"}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"},"execution":{}}"#,
            "`execution.taskSupport` is not one of the allowed values",
        ),
    ] {
        let (shown, flaws) = shown(Kind::Tool, definition);
        assert_eq!(shown, Some([expected.to_owned(), expected.to_owned()]));
        assert_eq!(flaws[0], flaw);
    }
}

#[test]
fn half_a_character_is_replaced_wherever_it_is() {
    becomes(
        Kind::Tool,
        r#"{"name":"a","description":"\\ud800 \ud83d\ude00 \uDBFF\u0041 \ud800\ud83d\ude00","inputSchema":{"type":"object","properties":{"b":{"default":"\udfff"}}}}"#,
        r#"{"name":"a","description":"\\ud800 \ud83d\ude00 \ufffd\u0041 \ufffd\ud83d\ude00","inputSchema":{"type":"object","properties":{"b":{"default":"\ufffd"}}}}"#,
        &["a `\\u` escape is half a character"],
    );
}

#[test]
fn a_number_that_no_double_holds_becomes_the_largest_there_is_in_schemas() {
    becomes(
        Kind::Tool,
        r#"{"name":"a","n":1e400,"inputSchema":{"type":"object","properties":{"1e999":{"maximum":1e400,"minimum":-1E+999,"default":[1e308,"1e400",0.1e-999]}}}}"#,
        r#"{"name":"a","n":1e400,"inputSchema":{"type":"object","properties":{"1e999":{"maximum":1.7976931348623157e308,"minimum":-1.7976931348623157e308,"default":[1e308,"1e400",0.1e-999]}}}}"#,
        &["a number in a schema is out of range"],
    );
}

#[test]
fn what_only_legacy_clients_cannot_take_is_changed_for_them_alone() {
    for (definition, for_legacy) in [
        (
            r#"{"name":"h","inputSchema":{"type":"object"},"outputSchema":{"type":"string"}}"#,
            r#"{"name":"h","inputSchema":{"type":"object"}}"#,
        ),
        (
            r#"{"outputSchema":{"type":"object","properties":{"a":{"type":"strin"}}},"name":"h","inputSchema":{"type":"object"}}"#,
            r#"{"name":"h","inputSchema":{"type":"object"}}"#,
        ),
        (
            r#"{"name":"h","inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":{}}}}"#,
            r#"{"name":"h","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{}}}}"#,
        ),
        (
            r#"{"name":"h","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":true}}}"#,
            r#"{"name":"h","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":{}}}}"#,
        ),
    ] {
        let (shown, flaws) = shown(Kind::Tool, definition);
        assert_eq!((shown, flaws), (Some([for_legacy.to_owned(), definition.to_owned()]), vec![]));
    }
}

#[test]
fn a_tool_that_cannot_be_called_is_left_out() {
    is_left_out(Kind::Tool, r#"{"name":"d","inputSchema":{"type":"array"}}"#, "`inputSchema.type` is not `object`");
    is_left_out(Kind::Tool, r#"{"name":"d","inputSchema":[]}"#, "`inputSchema` is not an object");
    is_left_out(Kind::Tool, r#"{"name":"d","title":5,"inputSchema":5}"#, "`inputSchema` is not an object");
}

/// A schema of so many objects within each other.
fn nested(objects: usize) -> String {
    r#"{"type":"object","properties":{"a":"#.repeat(objects) + "{}" + &"}}".repeat(objects)
}

#[test]
fn what_is_nested_too_deeply_is_taken_out_or_replaced() {
    for objects in [70, 110, 1000, 100_000] {
        let deep = nested(objects);
        becomes(
            Kind::Tool,
            &format!(r#"{{"name":"a", "outputSchema":{deep},"inputSchema":{{"type":"object"}}}}"#),
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
            &["`outputSchema` is nested deeper than 56 levels"],
        );
        becomes(
            Kind::Tool,
            &format!(r#"{{"name":"a","inputSchema":{deep},"x":{deep},"_meta":{{"y":1.0}}}}"#),
            r#"{"name":"a","inputSchema":{"type":"object"},"_meta":{"y":1.0}}"#,
            &[
                "`inputSchema` is nested deeper than 56 levels",
                "a member that the protocol does not know is nested deeper than 56 levels",
            ],
        );
        becomes(
            Kind::Prompt,
            &format!(r#"{{"name":"p","arguments":[{{"name":"x","y":{deep}}}]}}"#),
            r#"{"name":"p"}"#,
            &["`arguments` is nested deeper than 56 levels"],
        );
        becomes(
            Kind::Resource,
            &format!(r#"{{"uri":"x://a","name":"a","annotations":{deep}}}"#),
            r#"{"uri":"x://a","name":"a"}"#,
            &["`annotations` is nested deeper than 56 levels"],
        );
    }
    let (kept, flaws) = shown(Kind::Tool, &format!(r#"{{"name":"a","inputSchema":{}}}"#, nested(25)));
    assert!(kept.unwrap()[0].contains("properties") && flaws.is_empty(), "deeper than any real schema");
}

#[test]
fn what_has_too_many_parts_is_taken_out_or_replaced() {
    let many = |part: &dyn Fn(usize) -> String, count| (0..count).map(part).collect::<Vec<_>>().join(",");
    let references = many(&|n| format!(r##""p{n}":{{"$ref":"#/$defs/a"}}"##), 5000);
    let references = format!(r#"{{"type":"object","$defs":{{"a":{{}}}},"properties":{{{references}}}}}"#);
    let repeated = format!(r#"{{"type":"object",{}}}"#, many(&|_| r#""nullable":true"#.to_owned(), 40_000));
    let long = format!(r#"{{"type":"object","description":"{}"}}"#, "x".repeat(1 << 20));
    for (schema, excess) in [
        (references, "has more than 2000 references"),
        (repeated, "has more than 20000 members and elements"),
        (long, "is larger than 1048576 bytes"),
    ] {
        for (member, rest) in [("outputSchema", r#","inputSchema":{"type":"object"}"#), ("inputSchema", "")] {
            becomes(
                Kind::Tool,
                &format!(r#"{{"name":"a","{member}":{schema}{rest}}}"#),
                r#"{"name":"a","inputSchema":{"type":"object"}}"#,
                &[&format!("`{member}` {excess}")],
            );
        }
    }
    let title = format!(r#""title":"{}""#, "x".repeat(1 << 19));
    is_left_out(
        Kind::Prompt,
        &format!(r#"{{"name":"p",{title},{title}}}"#),
        "the definition is larger than 1048576 bytes",
    );
}

#[test]
fn prompts_keep_the_arguments_that_make_sense() {
    becomes(Kind::Prompt, r#"{"name":"p1","arguments":"x"}"#, r#"{"name":"p1"}"#, &["`arguments` is not a list"]);
    becomes(
        Kind::Prompt,
        r#"{"name":"p2","arguments":[{"noname":1}, {"name":"b","required":"yes"}]}"#,
        r#"{"name":"p2","arguments":[{"name":"b"}]}"#,
        &["`arguments[].name` is missing", "`arguments[].required` is not true or false"],
    );
    becomes(Kind::Prompt, r#"{"name":"p3","description":5}"#, r#"{"name":"p3"}"#, &["`description` is not a string"]);
}

#[test]
fn what_can_be_read_is_called_by_its_address_if_it_has_no_name() {
    becomes(
        Kind::Resource,
        r#"{"uri":"x://\u0061"}"#,
        r#"{"name":"x://\u0061","uri":"x://\u0061"}"#,
        &["`name` is missing"],
    );
    becomes(
        Kind::Template,
        r#"{"uriTemplate":"x://{a}","name":null}"#,
        r#"{"name":"x://{a}","uriTemplate":"x://{a}"}"#,
        &["`name` is not a string"],
    );
    becomes(
        Kind::Resource,
        r#"{"uri":"x://b","name":"b","size":"big","mimeType":5,"annotations":{"priority":2,"audience":["me","user"],"lastModified":"today"}}"#,
        r#"{"uri":"x://b","name":"b","annotations":{"audience":["user"]}}"#,
        &[
            "`size` is not a whole number",
            "`mimeType` is not a string",
            "`annotations.priority` is not from 0 to 1",
            "`annotations.audience[]` is not one of the allowed values",
            "`annotations.lastModified` is not a date with time",
        ],
    );
    is_left_out(Kind::Resource, r#"{"uri":"not a uri","name":"n"}"#, "`uri` is not a URI");
    is_left_out(Kind::Resource, r#"{"uri":"x://a","name":5}"#, "`name` is not a string");
}

#[test]
fn a_moment_is_a_date_that_exists_with_seconds_and_an_offset() {
    for moment in ["2025-01-12T15:00:58Z", "2000-02-29T00:00:00.000001-23:59"] {
        assert!(super::is_moment(moment), "{moment}");
    }
    for other in [
        "2025-01-12",
        "2025-01-12T15:00Z",
        "2025-01-12T15:00:58",
        "2025-02-29T15:00:58Z",
        "2025-01-12T24:00:00Z",
        "2025-13-12T15:00:58Z",
        "2025-01-12T15:00:58.Z",
        "2025-01-12T15:00:58+0100",
        "2025-01-12 15:00:58Z",
        "TZ",
        "",
    ] {
        assert!(!super::is_moment(other), "{other}");
    }
}
