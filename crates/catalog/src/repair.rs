//! Checks definitions against the protocol, once, when they are received: what would make clients reject a whole list
//! is removed from an entry, in the smallest possible part. If nothing can be removed, the entry is omitted.
//!
//! Everything else stays byte for byte, and a valid definition is not even copied.

use std::borrow::Cow;

use protocol::scan::{Span, elements, members};
use protocol::splice;
use protocol::text::{decode, token_is};

use crate::limits::end_of_string;
use crate::rules::{Member, Need, Rule};
use crate::schema;

/// A span of a definition, and its replacement.
pub(crate) type Edit = (Span, Cow<'static, [u8]>);

/// The edits that make a definition valid, and their reasons.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    /// In order, without overlaps.
    pub(crate) edits: Vec<Edit>,
    /// What was wrong: ``"`annotations.readOnlyHint` is not true or false"``.
    pub(crate) flaws: Vec<String>,
}

/// The edits that make the definition in `text` valid; fails if that is not possible. `id` is the token that identifies
/// it.
pub(crate) fn repair_definition(text: &[u8], id: Span, rule: &Rule) -> Result<Repair, String> {
    let mut check = Check { text, id, path: String::new(), found: Repair::default() };
    check.look_at(Span { start: 0, end: text.len() }, rule).map_err(|flaw| flaw.to_string())?;
    // Of two edits at the same position, the insertion comes first.
    check.found.edits.sort_by_key(|(span, _)| (span.start, span.end));
    Ok(check.found)
}

/// `text` with `edits` applied, which are ordered.
pub(crate) fn edited(text: &[u8], edits: &[Edit]) -> Vec<u8> {
    let edits: Vec<_> = edits.iter().map(|(span, with)| splice::Edit { span: *span, with }).collect();
    splice::spliced(text, &edits)
}

/// `text` with every lone surrogate replaced by U+FFFD; `None` if there is none. Many parsers refuse a whole message
/// for one.
pub(crate) fn without_halves(text: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut whole, mut at) = (None, 0);
    while let Some(next) = text[at..].iter().position(|byte| *byte == b'\\') {
        at += next;
        at += match unit(at) {
            Some(0xd800..=0xdbff) if unit(at + 6).is_some_and(|low| (0xdc00..0xe000).contains(&low)) => 12,
            Some(0xd800..=0xdfff) => {
                whole.get_or_insert_with(|| text.to_vec())[at..at + 6].copy_from_slice(b"\\ufffd");
                6
            }
            Some(_) => 6,
            None => 2,
        };
    }
    whole
}

/// The schemas of a definition with numbers that are too large for a double replaced by the largest one; `None` if
/// there is none. Some SDKs reject a whole list for one: the TypeScript SDK (v2), and all that use `serde_json`.
pub(crate) fn without_huge_numbers(text: &[u8]) -> Option<Vec<u8>> {
    let mut edits: Vec<Edit> = Vec::new();
    members(text, Span { start: 0, end: text.len() }, |key, value| {
        if ["inputSchema", "outputSchema"].iter().any(|name| token_is(key.of(text), name)) {
            note_huge_numbers(text, value, &mut edits);
        }
    });
    (!edits.is_empty()).then(|| edited(text, &edits))
}

fn note_huge_numbers(text: &[u8], value: Span, edits: &mut Vec<Edit>) {
    let mut at = value.start;
    while at < value.end {
        let start = at;
        match text[at] {
            b'"' => at = end_of_string(text, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                at += text[at..value.end].iter().take_while(|byte| is_part(byte)).count();
                let token = std::str::from_utf8(&text[start..at]).unwrap_or_default();
                if token.parse::<f64>().is_ok_and(f64::is_infinite) {
                    let largest: &[u8] =
                        if token.starts_with('-') { b"-1.7976931348623157e308" } else { b"1.7976931348623157e308" };
                    edits.push((Span { start, end: at }, Cow::Borrowed(largest)));
                }
            }
            _ => at += 1,
        }
    }
}

/// A problem, and the member it is about.
#[derive(Debug, thiserror::Error)]
#[error("`{member}` {problem}")]
struct Flaw {
    member: String,
    problem: &'static str,
}

struct Check<'t> {
    text: &'t [u8],
    id: Span,
    /// The current member.
    path: String,
    found: Repair,
}

impl Check<'_> {
    /// Checks `value` against a rule, after the recorded edits.
    fn look_at(&mut self, value: Span, rule: &Rule) -> Result<(), Flaw> {
        let token = value.of(self.text);
        match rule {
            Rule::Text => self.must(decode(token).is_some(), "is not a string"),
            Rule::Address => self.must(decode(token).is_some_and(|text| has_scheme(&text)), "is not a URI"),
            Rule::Moment => self.must(decode(token).is_some_and(|text| is_moment(&text)), "is not a date with time"),
            Rule::Flag => self.must(matches!(token, b"true" | b"false"), "is not true or false"),
            Rule::Whole => self.must(number(token).is_some_and(|it| it.fract() == 0.0), "is not a whole number"),
            Rule::Share => self.must(number(token).is_some_and(|it| (0.0..=1.0).contains(&it)), "is not from 0 to 1"),
            Rule::Word(words) => {
                self.must(words.iter().any(|word| token_is(token, word)), "is not one of the allowed values")
            }
            Rule::ObjectType => self.object_type(value),
            Rule::Schema { booleans } => self.schema(value, *booleans),
            Rule::Anything => self.must(token.starts_with(b"{"), "is not an object"),
            Rule::Object(known) => self.object(value, known),
            Rule::Map(each) => self.map(value, each),
            Rule::List(each) => self.list(value, each),
            Rule::Sound(more) => {
                self.must(schema::is_sound(self.text, value), "is not a usable schema")?;
                self.look_at(value, more)
            }
        }
    }

    fn must(&self, is_so: bool, problem: &'static str) -> Result<(), Flaw> {
        if is_so { Ok(()) } else { Err(Flaw { member: self.path.clone(), problem }) }
    }

    fn replace(&mut self, span: Span, with: impl Into<Cow<'static, [u8]>>) {
        self.found.edits.push((span, with.into()));
    }

    fn object_type(&mut self, value: Span) -> Result<(), Flaw> {
        let is_object = |token: Span| token_is(token.of(self.text), "object");
        if is_object(value) {
            return Ok(());
        }
        let types = elements(self.text, value).unwrap_or_default();
        self.must(types.into_iter().any(is_object), "is not `object`")?;
        self.replace(value, br#""object""#);
        Ok(())
    }

    fn schema(&mut self, value: Span, booleans: bool) -> Result<(), Flaw> {
        match value.of(self.text) {
            [b'{', ..] => {}
            b"true" | b"false" if booleans => {}
            b"true" => self.replace(value, b"{}"),
            b"false" => self.replace(value, br#"{"not":{}}"#),
            _ => self.must(false, "is not a schema")?,
        }
        Ok(())
    }

    fn object(&mut self, object: Span, known: &[Member]) -> Result<(), Flaw> {
        self.must(object.of(self.text).starts_with(b"{"), "is not an object")?;
        let mut parts = Vec::new();
        members(self.text, object, |key, value| parts.push(Part::member(key, value)));
        for part in &mut parts {
            let is_it = |member: &&Member| token_is(part.key.of(self.text), member.name);
            let Some(member) = known.iter().find(is_it) else { continue };
            let outcome = self.within(member.name, |check| check.try_at(part.value, &member.rule));
            match outcome {
                Ok(()) => {}
                Err(flaw) if member.need == Need::Optional => part.give_up(&mut self.found, &flaw),
                // A `null` counts as missing, and there is a substitute for that.
                Err(flaw) if part.value.of(self.text) == b"null" => match self.substitute(member.need) {
                    Some(_) => part.give_up(&mut self.found, &flaw),
                    None => return Err(flaw),
                },
                Err(flaw) => return Err(flaw),
            }
        }
        for member in known.iter().filter(|member| member.need != Need::Optional) {
            let is_it = |part: &Part| !part.goes && token_is(part.key.of(self.text), member.name);
            if !parts.iter().any(is_it) {
                self.supply(object, member, &parts)?;
            }
        }
        self.cut(&parts);
        Ok(())
    }

    /// The substitute for a missing member.
    fn substitute(&self, need: Need) -> Option<Vec<u8>> {
        match need {
            Need::Or(value) => Some(value.as_bytes().to_vec()),
            Need::OrItsId => Some(self.id.of(self.text).to_vec()),
            Need::Optional | Need::Required => None,
        }
    }

    /// Inserts the substitute for a missing member at the start of its object.
    fn supply(&mut self, object: Span, member: &Member, parts: &[Part]) -> Result<(), Flaw> {
        let flaw = self.within(member.name, |check| check.must(false, "is missing"));
        let (Some(value), Err(flaw)) = (self.substitute(member.need), &flaw) else { return flaw };
        let comma = if parts.iter().all(|part| part.goes) { "" } else { "," };
        let mut insert = format!("\"{}\":", member.name).into_bytes();
        insert.extend_from_slice(&value);
        insert.extend_from_slice(comma.as_bytes());
        let at = object.start + 1;
        self.replace(Span { start: at, end: at }, insert);
        // A `null` was already reported.
        if !parts.iter().any(|part| token_is(part.key.of(self.text), member.name)) {
            self.found.flaws.push(flaw.to_string());
        }
        Ok(())
    }

    fn map(&mut self, object: Span, each: &Rule) -> Result<(), Flaw> {
        self.must(object.of(self.text).starts_with(b"{"), "is not an object")?;
        let mut parts = Vec::new();
        members(self.text, object, |key, value| parts.push(Part::member(key, value)));
        self.all(&mut parts, ".*", each);
        Ok(())
    }

    fn list(&mut self, list: Span, each: &Rule) -> Result<(), Flaw> {
        self.must(list.of(self.text).starts_with(b"["), "is not a list")?;
        let mut parts: Vec<_> =
            elements(self.text, list).unwrap_or_default().into_iter().map(|value| Part::member(value, value)).collect();
        self.all(&mut parts, "[]", each);
        Ok(())
    }

    fn all(&mut self, parts: &mut [Part], step: &'static str, each: &Rule) {
        for part in parts.iter_mut() {
            if let Err(flaw) = self.within(step, |check| check.try_at(part.value, each)) {
                part.give_up(&mut self.found, &flaw);
            }
        }
        self.cut(parts);
    }

    /// Checks a value, and discards the edits within it if it is useless as a whole.
    fn try_at(&mut self, value: Span, rule: &Rule) -> Result<(), Flaw> {
        let noted = (self.found.edits.len(), self.found.flaws.len());
        let outcome = self.look_at(value, rule);
        if outcome.is_err() {
            self.found.edits.truncate(noted.0);
            self.found.flaws.truncate(noted.1);
        }
        outcome
    }

    fn within<T>(&mut self, step: &'static str, look: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 && !step.starts_with(['.', '[']) {
            self.path.push('.');
        }
        self.path.push_str(step);
        let seen = look(self);
        self.path.truncate(length);
        seen
    }

    /// Removes parts, each with one comma.
    fn cut(&mut self, parts: &[Part]) {
        let mut has_kept = false;
        for (at, part) in parts.iter().enumerate() {
            if !part.goes {
                has_kept = true;
                continue;
            }
            // The comma before a part goes, too; the first part that stays has none, so before it the comma after goes.
            let span = match (has_kept, parts.get(at + 1)) {
                (true, _) => Span { start: parts[at - 1].value.end, end: part.value.end },
                (false, Some(next)) => Span { start: part.key.start, end: next.key.start },
                (false, None) => Span { start: part.key.start, end: part.value.end },
            };
            self.replace(span, Vec::new());
        }
    }
}

/// A member of an object, or an element of a list, which is its own key.
struct Part {
    key: Span,
    value: Span,
    goes: bool,
}

impl Part {
    fn member(key: Span, value: Span) -> Self {
        Self { key, value, goes: false }
    }

    fn give_up(&mut self, found: &mut Repair, flaw: &Flaw) {
        self.goes = true;
        let flaw = flaw.to_string();
        if !found.flaws.contains(&flaw) {
            found.flaws.push(flaw);
        }
    }
}

fn number(token: &[u8]) -> Option<f64> {
    let is_number = token.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit());
    let number = std::str::from_utf8(token).ok().filter(|_| is_number)?.parse::<f64>().ok()?;
    number.is_finite().then_some(number)
}

fn has_scheme(address: &str) -> bool {
    let Some((scheme, _)) = address.split_once(':') else { return false };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(is_part)
}

/// `2026-07-28T12:00:00.5+02:00`: an existing date, seconds, and `Z` or an offset.
fn is_moment(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    let Some(at) = time.find(['Z', '+', '-']) else { return false };
    let (clock, offset) = time.split_at(at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    is_date(date)
        && numbers(clock, ':', &[2, 2, 2]).is_some_and(|it| it[0] < 24 && it[1] < 60 && it[2] < 60)
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
        && (offset == "Z" || numbers(&offset[1..], ':', &[2, 2]).is_some_and(|it| it[0] < 24 && it[1] < 60))
}

fn is_date(date: &str) -> bool {
    let Some([year, month, day]) = numbers(date, '-', &[4, 2, 2]).and_then(|it| <[u32; 3]>::try_from(it).ok()) else {
        return false;
    };
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Numbers with the given digits, separated by `between`.
fn numbers(text: &str, between: char, digits: &[usize]) -> Option<Vec<u32>> {
    let parts: Vec<_> = text.split(between).collect();
    let fits =
        |(part, &digits): (&&str, &usize)| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
    let fit = parts.len() == digits.len() && parts.iter().zip(digits).all(fits);
    fit.then(|| parts.iter().filter_map(|part| part.parse().ok()).collect())
}

#[cfg(test)]
mod tests;
