//! Whether a schema can be compiled. Some clients compile every listed `outputSchema`, and reject the whole list if one
//! does not compile: an unknown type, a dangling reference, a pattern of another language.
//!
//! The text is parsed once into a flat list of nodes. After that each node is visited a fixed number of times, whatever
//! the schema repeats or refers to.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};

use protocol::scan::{Cursor, Span};
use protocol::text::{decode, token_is};

use crate::limits::MAX_DEPTH;

/// The TypeScript SDK (v1) compiles each alternative into a nested level of code, and compares each pattern with all
/// others: it fails at about 2,200 alternatives, and takes seconds for 5,000 patterns.
const MAX_ALTERNATIVES: usize = 500;

/// How deep that SDK recurses while it compiles: it compiles the target of a reference before it continues. It fails
/// between 500 and 600 nested objects (two levels each), and at a chain of 100 to 300 references through objects.
const MAX_COMPILE_DEPTH: usize = 400;

/// The cost of a reference, in levels of nesting.
const REFERENCE_DEPTH: usize = 4;

/// Whether the schema at `root` can be compiled.
pub(crate) fn is_sound(text: &[u8], root: Span) -> bool {
    is_sound_with_steps(text, root).0
}

/// The same, with the number of steps.
fn is_sound_with_steps(text: &[u8], root: Span) -> (bool, usize) {
    let Some(nodes) = read(text, root) else { return (false, 0) };
    let steps = Cell::new(nodes.len());
    let schema =
        Schema { text, root, nodes: &nodes, steps: &steps, children: RefCell::default(), names: OnceCell::new() };
    let is_sound = schema.is_sound(0) && schema.compiles(0, 0, &mut HashSet::new());
    (is_sound, steps.get())
}

/// A value of the schema. A container comes before its contents in the list.
struct Node {
    /// The key, if it is a member of an object.
    key: Option<Span>,
    value: Span,
    /// The index after the last node within this one.
    end: usize,
}

/// Parses the value at `root`, which is valid JSON; `None` if it is nested too deeply.
fn read(text: &[u8], root: Span) -> Option<Vec<Node>> {
    let mut cursor = Cursor::at(text, root);
    let (mut nodes, mut open, mut key) = (Vec::<Node>::new(), Vec::<usize>::new(), None);
    loop {
        let first = cursor.peek()?;
        if matches!(first, b'{' | b'[') {
            if open.len() == MAX_DEPTH {
                return None;
            }
            let start = cursor.position();
            cursor.expect(first).ok()?;
            open.push(nodes.len());
            nodes.push(Node { key: key.take(), value: Span { start, end: start + 1 }, end: 0 });
        } else {
            let (value, end) = (cursor.value().ok()?, nodes.len() + 1);
            nodes.push(Node { key: key.take(), value, end });
        }
        // Close what ends here, then continue with the next member or element.
        loop {
            let Some(&innermost) = open.last() else { return Some(nodes) };
            let is_object = text[nodes[innermost].value.start] == b'{';
            if !cursor.take(if is_object { b'}' } else { b']' }) {
                cursor.take(b',');
                if is_object {
                    key = Some(cursor.key().ok()?);
                }
                break;
            }
            open.pop();
            let end = nodes.len();
            nodes[innermost].value.end = cursor.position();
            nodes[innermost].end = end;
        }
    }
}

struct Schema<'t> {
    text: &'t [u8],
    root: Span,
    nodes: &'t [Node],
    /// The number of visited nodes and lookups: tests compare it with the size of the schema.
    steps: &'t Cell<usize>,
    /// The contents of containers on the path of references, each indexed once.
    children: RefCell<HashMap<usize, Children<'t>>>,
    names: OnceCell<Names>,
}

/// The contents of a container, by the names in references.
enum Children<'t> {
    Members(HashMap<std::borrow::Cow<'t, str>, usize>),
    Elements(Vec<usize>),
}

/// Which ways to name a schema occur in the text.
struct Names {
    has_anchors: bool,
    has_ids: bool,
}

impl<'t> Schema<'t> {
    fn token(&self, node: usize) -> &'t [u8] {
        self.nodes[node].value.of(self.text)
    }

    /// The members or elements of a container.
    fn within(&self, node: usize) -> impl Iterator<Item = usize> {
        let mut next = node + 1;
        std::iter::from_fn(move || {
            if next >= self.nodes[node].end {
                return None;
            }
            self.steps.set(self.steps.get() + 1);
            let at = next;
            next = self.nodes[at].end;
            Some(at)
        })
    }

    /// Recursion is limited by the nesting of the text, which `read` limits.
    fn is_sound(&self, schema: usize) -> bool {
        match self.token(schema) {
            b"true" | b"false" => return true,
            [b'{', ..] => {}
            _ => return false,
        }
        let (mut needs_type, mut has_type) = (false, false);
        for value in self.within(schema) {
            // An unreadable key is not a keyword.
            let Some(key) = self.nodes[value].key.and_then(|key| decode(key.of(self.text))) else { continue };
            needs_type |= key == "nullable";
            has_type |= key == "type";
            if !self.keyword(&key, value) {
                return false;
            }
        }
        has_type || !needs_type
    }

    fn keyword(&self, key: &str, value: usize) -> bool {
        let token = self.token(value);
        let is_text = || decode(token).is_some();
        let is_object = || token.starts_with(b"{");
        let list_of = |fits: &dyn Fn(usize) -> bool| token.starts_with(b"[") && self.within(value).all(fits);
        let below = |inner: usize| self.is_sound(inner);
        match key {
            "type" => self.is_type(value) || list_of(&|one| self.is_type(one)),
            "patternProperties" => {
                is_object() && self.within(value).all(below) && self.within(value).nth(MAX_ALTERNATIVES).is_none()
            }
            "properties" | "$defs" | "definitions" | "dependentSchemas" => is_object() && self.within(value).all(below),
            "dependencies" | "dependentRequired" => is_object(),
            "items" if token.starts_with(b"[") => list_of(&below),
            "items"
            | "additionalProperties"
            | "additionalItems"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "contains"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else" => below(value),
            "anyOf" | "oneOf" => list_of(&below) && self.within(value).nth(MAX_ALTERNATIVES).is_none(),
            "allOf" | "prefixItems" => list_of(&below),
            "required" => list_of(&|name| decode(self.token(name)).is_some()),
            "enum" => token.starts_with(b"[") && self.within(value).next().is_some(),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "minLength"
            | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                token.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit())
            }
            "uniqueItems" => matches!(token, b"true" | b"false"),
            "$ref" => decode(token).is_some_and(|target| self.leads_somewhere(&target)),
            "pattern" => decode(token).is_some_and(|pattern| is_pattern(&pattern)),
            "$id" | "$schema" | "$anchor" | "format" => is_text(),
            // Its name in a draft that is no longer supported.
            "id" => false,
            _ => true,
        }
    }

    /// Whether a compiler that follows each reference at its first use ends before its stack does. It compiles every
    /// target once, so the work is at most the size of the schema times its depth.
    fn compiles(&self, node: usize, depth: usize, begun: &mut HashSet<usize>) -> bool {
        if depth > MAX_COMPILE_DEPTH {
            return false;
        }
        self.within(node).all(|value| {
            let key = self.nodes[value].key.map(|key| key.of(self.text));
            let is = |name: &str| key.is_some_and(|key| token_is(key, name));
            // Definitions are compiled where they are referred to.
            if is("$defs") || is("definitions") {
                return true;
            }
            let target = is("$ref").then(|| decode(self.token(value))).flatten();
            let target = target.and_then(|target| self.resolve(target.strip_prefix('#')?));
            match target {
                Some(target) if begun.insert(target) => self.compiles(target, depth + REFERENCE_DEPTH, begun),
                _ => self.compiles(value, depth + 1, begun),
            }
        })
    }

    fn is_type(&self, value: usize) -> bool {
        let types = ["object", "array", "string", "number", "integer", "boolean", "null"];
        types.iter().any(|known| token_is(self.token(value), known))
    }

    /// Whether a reference has a target. A reference by name is only known to be possible.
    fn leads_somewhere(&self, target: &str) -> bool {
        match target.strip_prefix('#') {
            Some("") => true,
            Some(pointer) if pointer.starts_with('/') => self.resolve(pointer).is_some(),
            Some(_) => self.names().has_anchors,
            None => self.names().has_ids,
        }
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let contains = |word: &[u8]| self.root.of(self.text).windows(word.len()).any(|bytes| bytes == word);
            Names {
                has_anchors: contains(b"\"$anchor\"") || contains(b"\"$dynamicAnchor\""),
                has_ids: contains(b"\"$id\""),
            }
        })
    }

    fn resolve(&self, pointer: &str) -> Option<usize> {
        pointer.split('/').skip(1).try_fold(0, |at, step| {
            let name = percent_decoded(step)?.replace("~1", "/").replace("~0", "~");
            self.child(at, &name)
        })
    }

    /// The member or element of that name. Of duplicate members, the last one counts.
    fn child(&self, node: usize, name: &str) -> Option<usize> {
        self.steps.set(self.steps.get() + 1);
        let mut known = self.children.borrow_mut();
        let children = known.entry(node).or_insert_with(|| {
            if self.token(node).starts_with(b"[") {
                return Children::Elements(self.within(node).collect());
            }
            let named = |at: usize| Some((decode(self.nodes[at].key?.of(self.text))?, at));
            Children::Members(self.within(node).filter_map(named).collect())
        });
        match children {
            Children::Members(members) => members.get(name).copied(),
            Children::Elements(elements) => elements.get(name.parse::<usize>().ok()?).copied(),
        }
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Whether a pattern is valid in JavaScript, as far as a quick check shows: brackets are closed, and groups and escapes
/// are not those of other languages, which generated schemas often have.
fn is_pattern(pattern: &str) -> bool {
    let (mut groups, mut in_class) = (0_usize, false);
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\\' => {
                let escapes = "dDwWsSbBnrtvf0123456789cxukpP^$\\.*+?()[]{}|/";
                if !rest.next().is_some_and(|escaped| escapes.contains(escaped) || in_class && escaped == '-') {
                    return false;
                }
            }
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => {
                groups += 1;
                if rest.next_if_eq(&'?').is_some() && !rest.peek().is_some_and(|kind| ":=!<".contains(*kind)) {
                    return false;
                }
            }
            ')' if groups == 0 => return false,
            ')' => groups -= 1,
            _ => {}
        }
    }
    groups == 0 && !in_class
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound(schema: &str) -> bool {
        is_sound(schema.as_bytes(), Span { start: 0, end: schema.len() })
    }

    #[test]
    fn schemas_as_they_are_made_can_be_used() {
        for schema in [
            "{}",
            "true",
            r#"{"type":"object","properties":{"a":{"type":["string","null"]},"type":{"type":"string"},"id":{},"pattern":{}}}"#,
            r##"{"$schema":"x","$ref":"#/$defs/A","$defs":{"A":{"items":{"$ref":"#/%24defs/A"}}}}"##,
            r##"{"definitions":{"a/b":{}},"items":[{"$ref":"#/definitions/a~1b"},{"$ref":"#"},{"$ref":"#/items/0"}]}"##,
            r#"{"anyOf":[{"const":5},{"enum":[1,null]}],"additionalProperties":false,"minimum":-1e2,"x-mine":5}"#,
            r#"{"pattern":"^[a-z(\\-]+(?:\\.\\d{2}|(?<y>x))$","title":5,"default":{"type":7}}"#,
        ] {
            assert!(sound(schema), "{schema}");
        }
    }

    #[test]
    fn schemas_that_do_not_compile_are_recognised_at_any_depth() {
        for schema in [
            "5",
            r#"{"type":5}"#,
            r#"{"type":"strin"}"#,
            r#"{"type":["string","strin"]}"#,
            r##"{"$ref":"#/nope"}"##,
            r#"{"$ref":"http://x/y"}"#,
            r##"{"$ref":"#name"}"##,
            r#"{"pattern":"("}"#,
            r#"{"pattern":"(?P<a>x)"}"#,
            r#"{"pattern":"\\Ax\\Z"}"#,
            r#"{"minimum":"x"}"#,
            r#"{"required":"a"}"#,
            r#"{"required":[1]}"#,
            r#"{"enum":[]}"#,
            r#"{"properties":[]}"#,
            r#"{"anyOf":{}}"#,
            r#"{"additionalProperties":5}"#,
            r#"{"exclusiveMaximum":true}"#,
            r#"{"nullable":true}"#,
            r#"{"id":"abc"}"#,
        ] {
            assert!(!sound(schema), "{schema}");
            assert!(!sound(&format!(r#"{{"properties":{{"a":{{"items":{schema}}}}}}}"#)), "{schema} within");
        }
        assert!(!sound(&format!("{}1{}", r#"{"not":"#.repeat(100_000), "}".repeat(100_000))), "and nothing overflows");
    }

    #[test]
    fn the_last_of_several_members_of_one_name_is_what_a_reference_leads_to() {
        assert!(sound(r##"{"$defs":{"a":{},"a":{"b":{}}},"$ref":"#/$defs/a/b"}"##));
        assert!(!sound(r##"{"$defs":{"a":{"b":{}},"a":{}},"$ref":"#/$defs/a/b"}"##));
        assert!(sound(r#"{"nullable":true,"type":"string"}"#), "wherever the type stands");
    }

    #[test]
    fn schemas_that_overflow_a_clients_stack_are_recognised() {
        let alternatives = |count: usize| format!(r#"{{"anyOf":[{}]}}"#, vec!["{}"; count].join(","));
        assert!(sound(&alternatives(MAX_ALTERNATIVES)));
        assert!(!sound(&alternatives(MAX_ALTERNATIVES + 1)));
        let chain = |length: usize| {
            let link = |n: usize| format!(r##""d{n}":{{"properties":{{"a":{{"$ref":"#/$defs/d{}"}}}}}}"##, n + 1);
            let links: Vec<_> = (0..length).map(link).collect();
            format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d{length}":{{}}}}}}"##, links.join(","))
        };
        assert!(sound(&chain(50)));
        assert!(!sound(&chain(300)), "the TypeScript SDK loses the whole list to it");
        assert!(!sound(&chain(5000)), "and nothing overflows");
    }

    /// Schemas of about `count` parts, each of a kind that could make somebody look at everything for each part.
    fn repetitive(count: usize) -> Vec<String> {
        let many = |part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<Vec<_>>().join(",");
        vec![
            format!(
                r##"{{"$defs":{{"a":{{}}}},"properties":{{{}}}}}"##,
                many(&|n| format!(r##""p{n}":{{"$ref":"#/$defs/a"}}"##))
            ),
            format!(
                r##"{{"properties":{{{}}},"$defs":{{{}}}}}"##,
                many(&|n| format!(r##""p{n}":{{"$ref":"#/$defs/d{n}"}}"##)),
                many(&|n| format!(r#""d{n}":{{}}"#)),
            ),
            format!(r##"{{"allOf":[{}]}}"##, many(&|n| format!(r##"{{"$ref":"#/allOf/{n}"}}"##))),
            format!(r##"{{"$anchor":"x","allOf":[{}]}}"##, many(&|_| r##"{"$ref":"#x"}"##.to_owned())),
            format!(r#"{{"$id":"x","allOf":[{}]}}"#, many(&|_| r#"{"$ref":"y"}"#.to_owned())),
            format!(r#"{{{},"type":"string"}}"#, many(&|_| r#""nullable":true"#.to_owned())),
            format!(r#"{{{}}}"#, many(&|_| r#""type":"string""#.to_owned())),
            format!(r##"{{{}}}"##, many(&|_| r##""$ref":"#""##.to_owned())),
            format!(r#"{{"required":[{}]}}"#, many(&|n| format!(r#""r{n}""#))),
        ]
    }

    #[test]
    fn the_work_is_proportional_to_the_size_of_the_schema() {
        let steps = |schema: &String| {
            let (is_sound, steps) = is_sound_with_steps(schema.as_bytes(), Span { start: 0, end: schema.len() });
            assert!(is_sound, "{}", &schema[..200.min(schema.len())]);
            steps
        };
        for (small, large) in repetitive(1000).iter().zip(&repetitive(8000)) {
            let (few, many) = (steps(small), steps(large));
            assert!(many <= few * 8 + 100, "{few} steps for 1000 parts, {many} for 8000: {}", &large[..60]);
        }
    }
}
