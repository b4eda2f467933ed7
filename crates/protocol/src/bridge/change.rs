//! Edits to one message, collected member by member and applied once.
//!
//! Everything that no edit names is copied byte for byte: spacing, key order, the spelling of numbers. Commas are
//! placed when the edits are applied, so members of one object may be set and removed in any order.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::scan::{Cursor, Span, members};
use crate::text;

/// Edits to a text. They own their data until they are applied.
#[derive(Debug)]
pub struct Change {
    line: Bytes,
    replaced: Vec<(Span, Vec<u8>)>,
    /// The objects that were walked so far, by their start.
    objects: BTreeMap<usize, Object>,
}

/// The members of an object.
#[derive(Debug)]
struct Object {
    span: Span,
    members: Vec<Member>,
    added: Vec<(String, Vec<u8>)>,
}

#[derive(Debug)]
struct Member {
    key: Span,
    value: Span,
    edit: MemberEdit,
}

#[derive(Debug, PartialEq)]
enum MemberEdit {
    Kept,
    Removed,
    Replaced(Vec<u8>),
}

/// The whole value of a valid JSON text, without the white space around it.
pub fn whole(text: &[u8]) -> Span {
    Cursor::new(text).value().unwrap_or(Span { start: 0, end: text.len() })
}

/// Whether the value at this span is an object.
pub fn is_object(text: &[u8], value: Span) -> bool {
    value.of(text).first() == Some(&b'{')
}

impl Change {
    /// No edits.
    pub fn new(line: &Bytes) -> Self {
        Self { line: line.clone(), replaced: Vec::new(), objects: BTreeMap::new() }
    }

    /// Replaces `span` by `with`. If two spans overlap, the one that starts first wins.
    pub fn replace(&mut self, span: Span, with: impl Into<Vec<u8>>) {
        self.replaced.push((span, with.into()));
    }

    /// The value of the last member with that name, like [`crate::scan::member`], but several lookups in one object
    /// walk it only once.
    pub fn member(&mut self, object: Span, name: &str) -> Option<Span> {
        let (line, object) = self.object(object)?;
        object.named(&line, name).last().map(|member| member.value)
    }

    /// Removes every member with that name from `object`. Returns whether there was one.
    pub fn remove_member(&mut self, object: Span, name: &str) -> bool {
        let Some((line, object)) = self.object(object) else { return false };
        let set_before = object.added.len();
        object.added.retain(|(added, _)| added != name);
        let mut found = object.added.len() < set_before;
        for member in object.named(&line, name).filter(|member| member.edit != MemberEdit::Removed) {
            member.edit = MemberEdit::Removed;
            found = true;
        }
        found
    }

    /// Sets one member of `object`; `value` is JSON. An existing member keeps its position, a new one is appended. Does
    /// nothing if `object` is not an object.
    pub fn set_member(&mut self, object: Span, name: &str, value: &[u8]) {
        let Some((line, object)) = self.object(object) else { return };
        let mut last = None;
        for member in object.named(&line, name) {
            member.edit = MemberEdit::Removed;
            last = Some(member);
        }
        if let Some(member) = last {
            let same = member.value.of(&line) == value;
            member.edit = if same { MemberEdit::Kept } else { MemberEdit::Replaced(value.to_vec()) };
            return;
        }
        match object.added.iter_mut().find(|(added, _)| added == name) {
            Some((_, earlier)) => *earlier = value.to_vec(),
            None => object.added.push((name.to_owned(), value.to_vec())),
        }
    }

    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty() && self.objects.values().all(Object::is_untouched)
    }

    /// The text with all edits applied.
    pub fn apply(self) -> Bytes {
        if self.is_empty() {
            return self.line;
        }
        let mut edits = self.replaced;
        for object in self.objects.into_values() {
            object.settle(&mut edits);
        }
        // At the same position, an insertion comes before a replacement, and an outer edit before an inner one.
        edits.sort_by_key(|(span, _)| (span.start, span.end > span.start, usize::MAX - span.end));
        let grown: usize = edits.iter().map(|(_, with)| with.len()).sum();
        let mut out = Vec::with_capacity(self.line.len() + grown);
        let mut kept_from = 0;
        for (span, with) in edits {
            if span.start < kept_from {
                continue;
            }
            out.extend_from_slice(&self.line[kept_from..span.start]);
            out.extend_from_slice(&with);
            kept_from = span.end;
        }
        out.extend_from_slice(&self.line[kept_from..]);
        out.into()
    }

    /// The members of the object at `span`, walked on first use; `None` if the value is not an object.
    fn object(&mut self, span: Span) -> Option<(Bytes, &mut Object)> {
        if !is_object(&self.line, span) {
            return None;
        }
        let object = self.objects.entry(span.start).or_insert_with(|| Object::walk(&self.line, span));
        Some((self.line.clone(), object))
    }
}

impl Object {
    fn walk(line: &[u8], span: Span) -> Self {
        let mut found = Vec::new();
        members(line, span, |key, value| found.push(Member { key, value, edit: MemberEdit::Kept }));
        Self { span, members: found, added: Vec::new() }
    }

    fn named<'o>(&'o mut self, line: &[u8], name: &str) -> impl Iterator<Item = &'o mut Member> {
        self.members.iter_mut().filter(move |member| text::token_is(member.key.of(line), name))
    }

    fn is_untouched(&self) -> bool {
        self.added.is_empty() && self.members.iter().all(|member| member.edit == MemberEdit::Kept)
    }

    /// Turns the changes to members into edits that keep the commas right.
    fn settle(self, edits: &mut Vec<(Span, Vec<u8>)>) {
        let end = self.members.last().map_or(self.span.start + 1, |last| last.value.end);
        let mut stays_one = false;
        let mut members = self.members.into_iter().peekable();
        let mut previous_end = None;
        while let Some(Member { key, value, edit }) = members.next() {
            match edit {
                MemberEdit::Kept => stays_one = true,
                MemberEdit::Replaced(with) => {
                    stays_one = true;
                    edits.push((value, with));
                }
                // Removes the comma before it if a member before it stays, and otherwise the comma after it.
                MemberEdit::Removed => {
                    let span = match previous_end {
                        Some(start) if stays_one => Span { start, end: value.end },
                        _ => Span { start: key.start, end: members.peek().map_or(value.end, |next| next.key.start) },
                    };
                    edits.push((span, Vec::new()));
                }
            }
            previous_end = Some(value.end);
        }
        let mut appended = Vec::new();
        for (name, value) in self.added {
            if stays_one {
                appended.push(b',');
            }
            stays_one = true;
            text::encode(&name, &mut appended);
            appended.push(b':');
            appended.extend_from_slice(&value);
        }
        if !appended.is_empty() {
            edits.push((Span { start: end, end }, appended));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, edit: impl FnOnce(&mut Change, Span)) -> String {
        let text = Bytes::copy_from_slice(text.as_bytes());
        let mut change = Change::new(&text);
        edit(&mut change, whole(&text));
        String::from_utf8(change.apply().to_vec()).unwrap()
    }

    fn without(text: &str, names: &[&str]) -> String {
        changed(text, |change, object| {
            for name in names {
                change.remove_member(object, name);
            }
        })
    }

    #[test]
    fn members_are_removed_wherever_they_stand_and_the_commas_with_them() {
        let text = r#" { "a" : 1 , "b":2, "c": 3 } "#;
        assert_eq!(without(text, &["a"]), r#" { "b":2, "c": 3 } "#);
        assert_eq!(without(text, &["b"]), r#" { "a" : 1, "c": 3 } "#);
        assert_eq!(without(text, &["c"]), r#" { "a" : 1 , "b":2 } "#);
        assert_eq!(without(text, &["a", "b"]), r#" { "c": 3 } "#);
        assert_eq!(without(text, &["c", "a"]), r#" { "b":2 } "#);
        assert_eq!(without(text, &["b", "c"]), r#" { "a" : 1 } "#);
        assert_eq!(without(text, &["c", "b", "a"]), r#" {  } "#);
        assert_eq!(without(text, &["d"]), text);
    }

    #[test]
    fn members_are_set_in_their_place_or_last() {
        let set = |text: &str, name: &str| changed(text, |change, object| change.set_member(object, name, b"[]"));
        assert_eq!(set("{}", "a"), r#"{"a":[]}"#);
        assert_eq!(set("{ }", "a"), r#"{"a":[] }"#);
        assert_eq!(set(r#"{"a": 1 ,"b":2}"#, "a"), r#"{"a": [] ,"b":2}"#);
        assert_eq!(set(r#"{"a":1 }"#, "b"), r#"{"a":1,"b":[] }"#);
        assert_eq!(set(r#"{"a":1}"#, "q\"\n"), r#"{"a":1,"q\"\n":[]}"#);
    }

    #[test]
    fn one_change_may_set_and_remove_many_members() {
        let text = r#"{"a":1,"b":2,"c":3}"#;
        let result = changed(text, |change, object| {
            assert!(change.remove_member(object, "c"));
            change.set_member(object, "d", b"4");
            assert!(change.remove_member(object, "a"));
            change.set_member(object, "b", b"22");
            change.set_member(object, "e", b"5");
            assert!(change.remove_member(object, "d"));
            assert!(!change.remove_member(object, "a"));
            change.set_member(object, "e", b"55");
        });
        assert_eq!(result, r#"{"b":22,"e":55}"#);
        let all_new = changed(text, |change, object| {
            for name in ["a", "b", "c"] {
                change.remove_member(object, name);
            }
            change.set_member(object, "x", b"1");
            change.set_member(object, "y", b"2");
        });
        assert_eq!(all_new, r#"{"x":1,"y":2}"#);
    }

    #[test]
    fn a_member_that_is_removed_and_set_again_is_there() {
        assert_eq!(
            changed(r#"{"a":1,"b":2}"#, |change, object| {
                change.remove_member(object, "a");
                change.set_member(object, "a", b"1");
                assert!(change.is_empty(), "it says what it said before");
            }),
            r#"{"a":1,"b":2}"#
        );
    }

    #[test]
    fn a_member_given_twice_is_removed_twice_and_set_once() {
        let text = r#"{"a":1,"\u0061":2,"b":3}"#;
        assert_eq!(without(text, &["a"]), r#"{"b":3}"#);
        assert_eq!(changed(text, |change, object| change.set_member(object, "a", b"9")), r#"{"\u0061":9,"b":3}"#);
        assert_eq!(changed(text, |change, object| change.set_member(object, "a", b"2")), r#"{"\u0061":2,"b":3}"#);
    }

    #[test]
    fn objects_inside_each_other_change_together() {
        let text = r#"{"p":{"m":{"x":1},"n":2}}"#;
        let result = changed(text, |change, object| {
            let line = Bytes::from_static(text.as_bytes());
            let params = crate::scan::member(&line, object, "p").unwrap();
            let meta = crate::scan::member(&line, params, "m").unwrap();
            change.remove_member(meta, "x");
            change.set_member(meta, "y", b"2");
            change.set_member(params, "z", b"3");
            change.set_member(object, "q", b"4");
        });
        assert_eq!(result, r#"{"p":{"m":{"y":2},"n":2,"z":3},"q":4}"#);
    }

    #[test]
    fn what_happens_inside_of_something_removed_is_forgotten() {
        let text = r#"{"p":{"x":1},"q":2}"#;
        let result = changed(text, |change, object| {
            let params = crate::scan::member(text.as_bytes(), object, "p").unwrap();
            change.set_member(params, "x", b"2");
            change.set_member(params, "y", b"3");
            change.remove_member(object, "p");
        });
        assert_eq!(result, r#"{"q":2}"#);
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["[1]", "\"a\"", "1", "null", "", "{", "{\"", "x"] {
            let mut touched = false;
            let after = changed(text, |change, object| {
                touched = change.remove_member(object, "a");
                if !text.starts_with('{') {
                    change.set_member(object, "a", b"1");
                }
            });
            assert_eq!(after, text);
            assert!(!touched);
        }
    }

    #[test]
    fn an_unchanged_text_is_not_copied() {
        let text = Bytes::from_static(b"{\"a\":1}");
        let mut change = Change::new(&text);
        change.remove_member(whole(&text), "b");
        change.set_member(whole(&text), "a", b"1");
        assert!(change.is_empty());
        assert_eq!(change.apply().as_ptr(), text.as_ptr());
    }
}
