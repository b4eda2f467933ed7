//! A validating cursor over JSON text that returns spans instead of values.
//!
//! It accepts exactly the JSON texts of RFC 8259, with unlimited nesting, and without interpreting numbers and
//! surrogates: `1e400`, a 40-digit integer and `"\ud800"` are valid payloads. The caller checks UTF-8, once per
//! message. Tests compare it with `serde_json` on generated and mutated documents.

use std::fmt;

use crate::grammar::{blank, string, this, value};

/// A half-open range of bytes inside one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The index of the first byte.
    pub start: usize,
    /// The index after the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes of this span in the text it was found in.
    pub fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start..self.end]
    }
}

/// A syntax error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The index of the first invalid byte; the length of the text if it ended too early.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "not JSON at byte {}", self.at)
    }
}

impl std::error::Error for Malformed {}

/// A position in JSON text. Every method moves it behind what it read.
pub struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Cursor<'t> {
    /// Starts at the beginning of `text`.
    pub fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Starts at a value that was found earlier in the same text.
    pub fn at(text: &'t [u8], span: Span) -> Self {
        Self { text: &text[..span.end], at: span.start }
    }

    /// The next byte that is not white space, without reading it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        self.at = blank(self.text, self.at);
        self.text.get(self.at).copied()
    }

    /// Reads `byte` if it comes next.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Reads `byte`, or fails.
    #[inline]
    pub fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        self.at = this(byte, self.text, self.at)?;
        Ok(())
    }

    /// The current position.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether only white space is left.
    pub fn finish(&mut self) -> Result<(), Malformed> {
        if self.peek().is_none() { Ok(()) } else { Err(Malformed { at: self.at }) }
    }

    /// Reads the key of a member and its colon; the span includes the quotes.
    #[inline]
    pub fn key(&mut self) -> Result<Span, Malformed> {
        let start = blank(self.text, self.at);
        let end = string(self.text, start)?;
        self.at = this(b':', self.text, end)?;
        Ok(Span { start, end })
    }

    /// Reads one whole value, however deep.
    #[inline]
    pub fn value(&mut self) -> Result<Span, Malformed> {
        let start = blank(self.text, self.at);
        self.at = value(self.text, start)?;
        Ok(Span { start, end: self.at })
    }
}

/// The value of the last member with that name in the object at `object`; `None` if there is none, or if the value is
/// not an object.
///
/// For valid JSON. It walks the whole object, so it is for rare paths.
pub fn member(text: &[u8], object: Span, name: &str) -> Option<Span> {
    let mut found = None;
    members(text, object, |key, value| {
        if crate::text::token_is(key.of(text), name) {
            found = Some(value);
        }
    });
    found
}

/// Calls `each` with the key token and the value of every member; does nothing if the value is not an object.
pub fn members(text: &[u8], object: Span, mut each: impl FnMut(Span, Span)) {
    let mut cursor = Cursor::at(text, object);
    if !cursor.take(b'{') || cursor.take(b'}') {
        return;
    }
    loop {
        let (Ok(key), Ok(value)) = (cursor.key(), cursor.value()) else {
            return;
        };
        each(key, value);
        if !cursor.take(b',') {
            return;
        }
    }
}

/// The elements of the array at `array`; `None` if the value is not an array.
///
/// The spans take up to eight times the memory of the text. For arrays of any length there are [`count_elements`] and
/// [`each_element`].
pub fn elements(text: &[u8], array: Span) -> Option<Vec<Span>> {
    let mut found = Vec::new();
    each_element(text, array, |element| found.push(element)).then_some(found)
}

/// The number of elements of the array at `array`, counted without memory for them; `None` if the value is not an array.
pub fn count_elements(text: &[u8], array: Span) -> Option<usize> {
    let mut count = 0;
    each_element(text, array, |_| count += 1).then_some(count)
}

/// Calls `each` with every element of the array at `array`. Returns whether the value is an array.
pub fn each_element(text: &[u8], array: Span, mut each: impl FnMut(Span)) -> bool {
    let mut cursor = Cursor::at(text, array);
    if !cursor.take(b'[') {
        return false;
    }
    if cursor.take(b']') {
        return true;
    }
    loop {
        let Ok(element) = cursor.value() else { return false };
        each(element);
        if !cursor.take(b',') {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accepts(text: &[u8]) -> bool {
        let mut cursor = Cursor::new(text);
        cursor.value().and_then(|_| cursor.finish()).is_ok()
    }

    /// The verdict of `serde_json`, which skips the value here and so does not interpret numbers either.
    fn judge(text: &[u8]) -> bool {
        serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
    }

    #[test]
    fn agrees_with_serde_json_on_the_corner_cases() {
        for text in [
            "",
            " ",
            "null",
            "nul",
            "nulll",
            "true",
            "false",
            "0",
            "-0",
            "00",
            "01",
            "-",
            "1.",
            "1.0",
            ".5",
            "1e5",
            "1e",
            "1e+",
            "1E-5",
            "1e400",
            "123456789012345678901234567890",
            "\"\"",
            "\"",
            "\"a",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12G4\"",
            "\"\\ud800\"",
            "\"\\u0000\"",
            "\"\t\"",
            "\"\u{7f}\"",
            "[]",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,]",
            "[1 2]",
            "{}",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "[}",
            "{]",
            "[[]",
            "[[]]]",
            "{\"a\":{\"b\":[{}]}}",
            " [ 1 , { \"a\" : null } ] ",
            "1 2",
            "\u{feff}1",
            "[1]x",
            "'a'",
            "NaN",
            "Infinity",
            "+1",
            "0x10",
            "[\"\\\"\"]",
        ] {
            assert_eq!(accepts(text.as_bytes()), judge(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn agrees_with_serde_json_on_the_fuzzing_corpus() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/scan");
        let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() > 10);
        for file in files {
            let text = std::fs::read(&file).unwrap();
            assert_eq!(accepts(&text), judge(&text), "{}", file.display());
            // It must not panic, whatever the result.
            let _envelope = crate::Envelope::scan(&text);
        }
    }

    #[test]
    fn nesting_is_limited_by_nothing_but_the_text() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 200, 100_000] {
            let nested = "[{\"a\":".repeat(depth) + "1" + &"}]".repeat(depth);
            assert!(accepts(nested.as_bytes()), "{depth} levels");
            assert!(!accepts(&nested.as_bytes()[..nested.len() - 1]), "{depth} levels, one bracket short");
            let crossed = "[{\"a\":".repeat(depth) + "1" + &"]}".repeat(depth);
            assert!(!accepts(crossed.as_bytes()), "{depth} levels, closed in the wrong order");
        }
    }

    #[test]
    fn finds_members_and_elements() {
        let text = br#" {"a":[1, "x" ,{}],"\u0062":2,"a2":{}} "#;
        let whole = Span { start: 1, end: text.len() - 1 };
        let array = member(text, whole, "a").unwrap();
        let found: Vec<_> = elements(text, array).unwrap().iter().map(|span| span.of(text)).collect();
        assert_eq!(found, [&b"1"[..], b"\"x\"", b"{}"]);
        assert_eq!(member(text, whole, "b").unwrap().of(text), b"2", "a key written with an escape is the same key");
        assert_eq!(member(text, whole, "c"), None);
        assert_eq!((elements(text, whole), count_elements(text, whole)), (None, None));
        assert_eq!((count_elements(text, array), count_elements(b"[]", Span { start: 0, end: 2 })), (Some(3), Some(0)));
    }

    /// JSON documents with white space, escapes, unusual numbers and depth.
    pub(crate) fn document() -> impl Strategy<Value = String> {
        let blank = prop::sample::select(vec!["", "", "", " ", "\n", "\t ", "\r\n"]);
        let scalar = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
            string_token(),
        ];
        (scalar, blank).prop_map(|(value, blank)| format!("{blank}{value}{blank}")).prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec((string_token(), inner), 0..6).prop_map(|members| {
                    let members: Vec<_> = members.iter().map(|(key, value)| format!("{key} :{value}")).collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    fn string_token() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-zA-Z0-9 :/_-]{0,40}",
            Just("\\\"".to_owned()),
            Just("\\\\".to_owned()),
            Just("\\u00e9".to_owned()),
            Just("\\ud83d\\ude00".to_owned()),
            Just("\\udc00".to_owned()),
            Just("é😀".to_owned()),
        ];
        prop::collection::vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
    }

    proptest! {
        #[test]
        fn accepts_every_document(text in document()) {
            prop_assert!(accepts(text.as_bytes()));
            prop_assert!(judge(text.as_bytes()));
        }

        #[test]
        fn agrees_with_serde_json_on_mutated_documents(
            text in document(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()
        ) {
            let mut text = text.into_bytes();
            let at = at.index(text.len());
            if cut { text.remove(at); } else { text[at] = byte; }
            prop_assert_eq!(accepts(&text), judge(&text), "{:?}", String::from_utf8_lossy(&text));
        }

        #[test]
        fn agrees_with_serde_json_on_token_soup(
            tokens in prop::collection::vec(prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\", "\"", "1", "-", "0", ".", "e", "true", "null", " ", "\\u00"
            ]), 0..12)
        ) {
            let text = tokens.concat();
            prop_assert_eq!(accepts(text.as_bytes()), judge(text.as_bytes()), "{}", text);
        }
    }
}
