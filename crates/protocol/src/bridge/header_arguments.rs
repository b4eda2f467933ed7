//! Finds the arguments of a call that are repeated in headers: all of them in one pass over `arguments`.
//!
//! The walk uses its own stack instead of recursion: arguments come from clients and may be nested to any depth.

use std::collections::HashMap;

use crate::bridge::header_params::HeaderParam;
use crate::envelope::Params;
use crate::scan::{Cursor, Malformed, Span, member};
use crate::text;

/// An argument that fits into a header.
pub(crate) struct Argument {
    pub(crate) text: String,
    is_number: bool,
}

impl Argument {
    /// Whether a header has this value. Integers may be written in several ways.
    pub(crate) fn is(&self, said: &str) -> bool {
        self.text == said || self.is_number && integer(said).as_ref() == Some(&self.text)
    }
}

/// The arguments of a call, in the order of `of`; `None` for one that is absent, null, an object or an array.
pub(crate) fn find(line: &[u8], params: &Params, of: &[HeaderParam]) -> Vec<Option<Argument>> {
    if of.is_empty() {
        return Vec::new();
    }
    let arguments = params.span.and_then(|params| member(line, params, "arguments"));
    let mut walk = Walk::of(line, of);
    if let Some(arguments) = arguments.filter(|arguments| line.get(arguments.start) == Some(&b'{')) {
        // The message was scanned before, so it is valid.
        walk.run(Cursor::at(line, arguments)).ok();
    }
    walk.wanted.iter().map(|&place| argument(walk.value(place)?.of(line))).collect()
}

/// A place in the arguments that a path leads to or through.
#[derive(Default)]
struct Place<'p> {
    below: HashMap<&'p str, usize>,
    above: usize,
    /// Which occurrence of this place, and of the place above it, was read last: of two members with the same name the
    /// last one counts.
    occurrence: usize,
    occurrence_above: usize,
    value: Option<Span>,
}

struct Walk<'l, 'p> {
    line: &'l [u8],
    /// The first place is `arguments` itself.
    places: Vec<Place<'p>>,
    /// The place of each parameter.
    wanted: Vec<usize>,
    occurrences: usize,
    #[cfg(test)]
    keys_read: usize,
}

impl<'l, 'p> Walk<'l, 'p> {
    fn of(line: &'l [u8], of: &'p [HeaderParam]) -> Self {
        let mut places = vec![Place::default()];
        let wanted = of.iter().map(|param| {
            param.path.iter().fold(0, |above, name| {
                let next = places.len();
                let place = *places[above].below.entry(name).or_insert(next);
                if place == next {
                    places.push(Place { above, ..Place::default() });
                }
                place
            })
        });
        let wanted = wanted.collect();
        Self {
            line,
            places,
            wanted,
            occurrences: 0,
            #[cfg(test)]
            keys_read: 0,
        }
    }

    fn run(&mut self, mut cursor: Cursor<'_>) -> Result<(), Malformed> {
        let mut open = vec![0];
        cursor.expect(b'{')?;
        while let Some(&above) = open.last() {
            if cursor.take(b'}') {
                open.pop();
                continue;
            }
            // The text is valid JSON, so commas are where they must be.
            cursor.take(b',');
            let key = cursor.key()?;
            #[cfg(test)]
            {
                self.keys_read += 1;
            }
            let place = text::decode(key.of(self.line)).and_then(|name| self.places[above].below.get(&*name).copied());
            let Some(place) = place else {
                cursor.value()?;
                continue;
            };
            self.occurrences += 1;
            let (occurrence, occurrence_above) = (self.occurrences, self.places[above].occurrence);
            let is_entered = !self.places[place].below.is_empty() && cursor.peek() == Some(b'{');
            let value = if is_entered {
                open.push(place);
                cursor.expect(b'{')?;
                None
            } else {
                Some(cursor.value()?)
            };
            let place = &mut self.places[place];
            (place.occurrence, place.occurrence_above, place.value) = (occurrence, occurrence_above, value);
        }
        Ok(())
    }

    /// The value at a place, unless a later member with the name of an outer place replaces all of that.
    fn value(&self, place: usize) -> Option<Span> {
        let value = self.places[place].value?;
        let mut here = place;
        while here != 0 {
            let Place { above, occurrence_above, .. } = self.places[here];
            if self.places[above].occurrence != occurrence_above {
                return None;
            }
            here = above;
        }
        Some(value)
    }
}

fn argument(token: &[u8]) -> Option<Argument> {
    match token.first()? {
        b'"' => text::decode(token).map(|text| Argument { text: text.into_owned(), is_number: false }),
        b't' | b'f' => String::from_utf8(token.to_vec()).ok().map(|text| Argument { text, is_number: false }),
        b'-' | b'0'..=b'9' => {
            let number = std::str::from_utf8(token).ok()?;
            let text = integer(number).unwrap_or_else(|| number.to_owned());
            Some(Argument { text, is_number: true })
        }
        _ => None,
    }
}

/// An integer in plain digits, however it was written; `None` if the token is not an integer.
fn integer(number: &str) -> Option<String> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    if !digits.is_empty() && digits != "0" && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(number.to_owned());
    }
    let value: f64 = number.parse().ok()?;
    let is_exact = value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
    // Checked above: it is an integer in range.
    is_exact.then(|| (value as i64).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Envelope;

    fn call(arguments: &str) -> (String, Params) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
        );
        let params = Envelope::scan(line.as_bytes()).unwrap().params;
        (line, params)
    }

    fn paths(paths: &[&[&str]]) -> Vec<HeaderParam> {
        let param = |path: &&[&str]| HeaderParam {
            header: "H".to_owned(),
            path: path.iter().map(|name| (*name).to_owned()).collect(),
        };
        paths.iter().map(param).collect()
    }

    fn found(arguments: &str, of: &[HeaderParam]) -> Vec<Option<String>> {
        let (line, params) = call(arguments);
        find(line.as_bytes(), &params, of).into_iter().map(|argument| argument.map(|it| it.text)).collect()
    }

    #[test]
    fn of_two_members_with_one_name_the_last_counts() {
        let of = paths(&[&["a"], &["o", "i"], &["o", "p", "j"], &["o"]]);
        let all = |texts: [Option<&str>; 4]| texts.map(|text| text.map(str::to_owned)).to_vec();
        assert_eq!(found(r#"{"a":1,"\u0061":2}"#, &of), all([Some("2"), None, None, None]));
        assert_eq!(found(r#"{"a":1,"a":null}"#, &of), all([None; 4]));
        assert_eq!(found(r#"{"o":{"i":1,"p":{"j":2}}}"#, &of), all([None, Some("1"), Some("2"), None]));
        assert_eq!(found(r#"{"o":{"i":1,"p":{"j":2}},"o":{"i":3}}"#, &of), all([None, Some("3"), None, None]));
        assert_eq!(found(r#"{"o":{"p":{"j":2},"p":{}}}"#, &of), all([None; 4]));
        assert_eq!(found(r#"{"o":{"i":1},"o":5}"#, &of), all([None, None, None, Some("5")]));
        assert_eq!(found(r#"{"o":5,"o":{"i":1}}"#, &of), all([None, Some("1"), None, None]));
        assert_eq!(found(r#"{"o":{"i":1},"o":[{"i":2}]}"#, &of), all([None; 4]));
        assert_eq!(found("[]", &of), all([None; 4]));
    }

    #[test]
    fn arguments_are_read_once_whatever_the_number_of_parameters() {
        let of: Vec<HeaderParam> = (0..100)
            .map(|index| HeaderParam { header: format!("H{index}"), path: vec!["o".to_owned(), format!("p{index}")] })
            .collect();
        let filler = r#""x":[1],"#.repeat(10_000);
        let (line, params) = call(&format!(r#"{{{filler}"o":{{{filler}"p7":1}}}}"#));
        let arguments = member(line.as_bytes(), params.span.unwrap(), "arguments").unwrap();
        let read = |of: &[HeaderParam]| {
            let mut walk = Walk::of(line.as_bytes(), of);
            walk.run(Cursor::at(line.as_bytes(), arguments)).unwrap();
            walk.keys_read
        };
        assert_eq!((read(&of), read(&of[..1])), (20_002, 20_002));
        let of_params = find(line.as_bytes(), &params, &of);
        assert_eq!(of_params.iter().filter(|argument| argument.is_some()).count(), 1);
    }
}
