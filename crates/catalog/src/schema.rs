//! Whether a schema can be used. Some clients compile every `outputSchema` that is listed, and lose the whole list to
//! one that does not compile: a type that does not exist, a reference to nothing, a pattern in another language.

use protocol::scan::{Span, elements, member, members};
use protocol::text::{decode, token_is};

/// Schemas that are deeper are not looked through.
const DEEPEST: usize = 64;

/// Whether the schema at `root` can be compiled by those who do.
pub(crate) fn is_sound(text: &[u8], root: Span) -> bool {
    Schema { text, root }.is_sound(root, 0)
}

#[derive(Clone, Copy)]
struct Schema<'t> {
    text: &'t [u8],
    root: Span,
}

impl Schema<'_> {
    fn is_sound(self, schema: Span, depth: usize) -> bool {
        match schema.of(self.text) {
            b"true" | b"false" => return true,
            [b'{', ..] if depth < DEEPEST => {}
            _ => return false,
        }
        let mut is_sound = true;
        members(self.text, schema, |key, value| {
            // What cannot be read is no keyword.
            let Some(key) = decode(key.of(self.text)) else { return };
            is_sound = is_sound && self.keyword(&key, value, schema, depth);
        });
        is_sound
    }

    fn keyword(self, key: &str, value: Span, schema: Span, depth: usize) -> bool {
        let below = |inner: Span| self.is_sound(inner, depth + 1);
        let token = value.of(self.text);
        let is_text = || decode(token).is_some();
        let list_of =
            |fits: &dyn Fn(Span) -> bool| elements(self.text, value).is_some_and(|all| all.into_iter().all(fits));
        match key {
            "type" => self.is_type(value) || list_of(&|one| self.is_type(one)),
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                let mut are_sound = token.starts_with(b"{");
                members(self.text, value, |_, inner| are_sound = are_sound && below(inner));
                are_sound
            }
            "dependencies" | "dependentRequired" => token.starts_with(b"{"),
            "items" => list_of(&below) || below(value),
            "additionalProperties"
            | "additionalItems"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "contains"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else" => below(value),
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => list_of(&below),
            "required" => list_of(&|name| decode(name.of(self.text)).is_some()),
            "enum" => elements(self.text, value).is_some_and(|values| !values.is_empty()),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "minLength"
            | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                token.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit())
            }
            "uniqueItems" => matches!(token, b"true" | b"false"),
            "$ref" => decode(token).is_some_and(|target| self.leads_somewhere(&target)),
            "pattern" => decode(token).is_some_and(|pattern| is_pattern(&pattern)),
            "$id" | "$schema" | "$anchor" | "format" => is_text(),
            // What it was called in a draft that is no longer understood.
            "id" => false,
            "nullable" => member(self.text, schema, "type").is_some(),
            _ => true,
        }
    }

    fn is_type(self, value: Span) -> bool {
        let types = ["object", "array", "string", "number", "integer", "boolean", "null"];
        types.iter().any(|known| token_is(value.of(self.text), known))
    }

    /// Whether there is something at the end of a reference. One by name is only known to be possible.
    fn leads_somewhere(self, target: &str) -> bool {
        let contains = |word: &[u8]| self.root.of(self.text).windows(word.len()).any(|bytes| bytes == word);
        match target.strip_prefix('#') {
            Some("") => true,
            Some(pointer) if pointer.starts_with('/') => self.resolve(pointer).is_some(),
            Some(_) => contains(b"\"$anchor\"") || contains(b"\"$dynamicAnchor\""),
            None => contains(b"\"$id\""),
        }
    }

    fn resolve(self, pointer: &str) -> Option<Span> {
        pointer.split('/').skip(1).try_fold(self.root, |at, step| {
            let name = percent_decoded(step)?.replace("~1", "/").replace("~0", "~");
            match elements(self.text, at) {
                Some(list) => list.get(name.parse::<usize>().ok()?).copied(),
                None => member(self.text, at, &name),
            }
        })
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

/// Whether a pattern is one to JavaScript as well, as far as can be told without reading it fully: brackets are closed,
/// and neither groups nor escapes are those of other languages, which schemas made from code often have.
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
    fn what_does_not_compile_is_told_from_it_however_deep_it_is() {
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
}
