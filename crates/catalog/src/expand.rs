//! Filling variables into the text of a config.
//!
//! | written | becomes |
//! |---|---|
//! | `$NAME` | the value; upper-case names only, so that `$1` and `$id` in a script stay as they are |
//! | `${name}` | the value, whatever the name |
//! | `${name:-default}` | the value, or the default when unset or empty; the default may hold references and balanced braces |
//! | any other `$` | itself, so `$$NAME` is a dollar sign and the value |
//!
//! There is no escape; a literal `$NAME` is written as a default: `${DOLLAR:-$}NAME`.
//! A value is inserted as it is: a `$` inside it is never looked at again.
//!
//! Reading a text (is it well formed?) is apart from filling it in (is everything set?), because a disabled
//! server must be well formed but may lack variables.

/// Far more than anyone writes; keeps a hostile text from exhausting the stack.
const MAX_NESTING: usize = 16;

/// A text whose references have been found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template<'a> {
    pieces: Vec<Piece<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Reference { name: &'a str, default: Option<Template<'a>> },
}

/// Why a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("has a `${{` that is never closed")]
    Unclosed,
    #[error("has a `${{}}` without a variable name")]
    EmptyName,
    #[error("nests defaults more than {MAX_NESTING} levels deep")]
    TooDeep,
}

/// A text with its variables filled in, as far as they are set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filled<'a> {
    pub(crate) text: String,
    /// Names that are not set, in order of use; each left a gap in `text`.
    pub(crate) missing: Vec<&'a str>,
}

impl<'a> Template<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, TemplateError> {
        Self::parse_nested(text, 0)
    }

    fn parse_nested(text: &'a str, depth: usize) -> Result<Self, TemplateError> {
        if depth > MAX_NESTING {
            return Err(TemplateError::TooDeep);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            let (before, after) = (&rest[..dollar], &rest[dollar + 1..]);
            if let Some(braced) = after.strip_prefix('{') {
                let end = closing_brace(braced).ok_or(TemplateError::Unclosed)?;
                pieces.push(Piece::Literal(before));
                pieces.push(parse_braced(&braced[..end], depth)?);
                rest = &braced[end + 1..];
            } else {
                let name = leading_plain_name(after);
                if name.is_empty() {
                    pieces.push(Piece::Literal(&rest[..=dollar]));
                } else {
                    pieces.push(Piece::Literal(before));
                    pieces.push(Piece::Reference { name, default: None });
                }
                rest = &after[name.len()..];
            }
        }
        pieces.push(Piece::Literal(rest));
        Ok(Self { pieces })
    }

    /// Puts the values in. `lookup` says `None` for a variable that is not set.
    pub(crate) fn fill(&self, lookup: &dyn Fn(&str) -> Option<String>) -> Filled<'a> {
        let mut filled = Filled::default();
        self.fill_into(&mut filled, lookup);
        filled
    }

    fn fill_into(&self, filled: &mut Filled<'a>, lookup: &dyn Fn(&str) -> Option<String>) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => filled.text.push_str(text),
                Piece::Reference { name, default } => match (lookup(name), default) {
                    (Some(value), None) => filled.text.push_str(&value),
                    (Some(value), Some(_)) if !value.is_empty() => filled.text.push_str(&value),
                    (_, Some(default)) => default.fill_into(filled, lookup),
                    (None, None) => filled.missing.push(name),
                },
            }
        }
    }
}

/// Reads what stands between `${` and its `}`.
fn parse_braced(inside: &str, depth: usize) -> Result<Piece<'_>, TemplateError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(Template::parse_nested(default, depth + 1)?)),
        None => (inside, None),
    };
    if name.is_empty() {
        return Err(TemplateError::EmptyName);
    }
    Ok(Piece::Reference { name, default })
}

/// Where the brace that is already open gets closed, counting those opened in between.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// The `[A-Z_][A-Z0-9_]*` that `text` begins with; empty if it does not.
fn leading_plain_name(text: &str) -> &str {
    let is_name =
        |(at, byte): (usize, u8)| byte.is_ascii_uppercase() || byte == b'_' || (at > 0 && byte.is_ascii_digit());
    let length = text.bytes().enumerate().take_while(|&each| is_name(each)).count();
    &text[..length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lookup(name: &str) -> Option<String> {
        let value = match name {
            "HOME" => "/home/me",
            "A" => "alpha",
            "_X9" => "under",
            "lower-case.name" => "odd",
            "EMPTY" => "",
            "TRICKY" => "$A ${A} ${",
            _ => return None,
        };
        Some(value.to_owned())
    }

    /// The text filled in; panics if a variable is missing.
    fn filled(text: &str) -> String {
        let template = Template::parse(text).unwrap();
        let filled = template.fill(&lookup);
        assert!(filled.missing.is_empty(), "{:?} not set", filled.missing);
        filled.text
    }

    fn missing(text: &str) -> Vec<String> {
        let template = Template::parse(text).unwrap();
        template.fill(&lookup).missing.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn both_notations_are_replaced_wherever_they_stand() {
        assert_eq!(filled("$HOME/x"), "/home/me/x");
        assert_eq!(filled("${HOME}x$A-${A}"), "/home/mexalpha-alpha");
        assert_eq!(filled("$_X9."), "under.");
        assert_eq!(filled("${lower-case.name}"), "odd");
        assert_eq!(filled("ä$Aö"), "äalphaö");
    }

    #[test]
    fn a_dollar_that_refers_to_nothing_stays() {
        for text in ["$", "$$", "a$", "$1", "$id", "$ A", "$-", "cost: 5$", "$é", "{}", "}{", "$}"] {
            assert_eq!(filled(text), text);
        }
        assert_eq!(filled("$$A"), "$alpha");
    }

    #[test]
    fn a_default_stands_in_for_a_variable_that_is_unset_or_empty() {
        assert_eq!(filled("${NOPE:-plan b}"), "plan b");
        assert_eq!(filled("${EMPTY:-plan b}"), "plan b");
        assert_eq!(filled("${A:-plan b}"), "alpha");
        assert_eq!(filled("[${NOPE:-}]"), "[]");
        assert_eq!(filled("[${EMPTY}]"), "[]");
        assert_eq!(filled("${NOPE:-a:-b}"), "a:-b");
    }

    #[test]
    fn a_default_may_hold_references_and_balanced_braces() {
        assert_eq!(filled("${NOPE:-${NADA:-$A}}!"), "alpha!");
        assert_eq!(filled(r#"${NOPE:-{"a":{"b":"$A"}}}"#), r#"{"a":{"b":"alpha"}}"#);
    }

    #[test]
    fn a_default_that_is_not_needed_may_lack_variables() {
        assert_eq!(filled("${A:-$NOPE}"), "alpha");
        assert_eq!(missing("${NOPE:-$NADA}"), ["NADA"]);
    }

    #[test]
    fn a_default_writes_a_literal_dollar() {
        assert_eq!(filled("${DOLLAR:-$}HOME"), "$HOME");
    }

    #[test]
    fn an_inserted_value_is_not_expanded_again() {
        assert_eq!(filled("<$TRICKY|${NOPE:-$TRICKY}>"), "<$A ${A} ${|$A ${A} ${>");
    }

    #[test]
    fn every_missing_variable_is_named() {
        assert_eq!(missing("$ONE ${two} $A $ONE"), ["ONE", "two", "ONE"]);
    }

    #[test]
    fn a_malformed_reference_is_refused() {
        for text in ["${", "x ${A", "${A:-${B}", "${A:-{}", "${A} ${"] {
            assert_eq!(Template::parse(text), Err(TemplateError::Unclosed), "{text}");
        }
        for text in ["${}", "${:-x}", "${A:-${}}"] {
            assert_eq!(Template::parse(text), Err(TemplateError::EmptyName), "{text}");
        }
    }

    #[test]
    fn endless_nesting_is_refused_instead_of_exhausting_the_stack() {
        let text = format!("{}{}", "${N:-".repeat(100_000), "}".repeat(100_000));
        assert_eq!(Template::parse(&text), Err(TemplateError::TooDeep));
        let modest = format!("{}x{}", "${N:-".repeat(MAX_NESTING), "}".repeat(MAX_NESTING));
        assert_eq!(filled(&modest), "x");
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_is_unchanged(text in "[^$]*") {
            prop_assert_eq!(filled(&text), text);
        }

        #[test]
        fn any_text_is_read_or_refused_but_never_panics(text in "(\\$|\\{|\\}|:-|[A-Za-z0-9_]|\\PC){0,40}") {
            if let Ok(template) = Template::parse(&text) {
                template.fill(&lookup);
                template.fill(&|_| None);
            }
        }

        #[test]
        fn every_reference_is_replaced_by_its_value(
            parts in prop::collection::vec(("[a-z ./-]{0,6}", "[A-Z_][A-Z0-9_]{0,5}", any::<bool>()), 0..8),
            value in "\\PC{0,8}",
        ) {
            let (mut text, mut expected) = (String::new(), String::new());
            for (literal, name, braced) in &parts {
                text += literal;
                // The blank ends an unbraced name.
                text += &if *braced { format!("${{{name}}} ") } else { format!("${name} ") };
                expected += &format!("{literal}{value} ");
            }
            let template = Template::parse(&text).unwrap();
            let filled = template.fill(&|_| Some(value.clone()));
            prop_assert_eq!(filled, Filled { text: expected, missing: vec![] });
            prop_assert_eq!(template.fill(&|_| None).missing.len(), parts.len());
        }
    }
}
