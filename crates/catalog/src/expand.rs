//! Filling variables into the text of a config.
//!
//! | written | becomes |
//! |---|---|
//! | `$NAME` | the value; upper-case names only, so that `$1` and `$id` in a script stay as they are |
//! | `${name}` | the value, whatever the name |
//! | `${name:-default}` | the value, or the default when unset or empty; the default may hold references and balanced braces |
//! | `${` without its `}`, `${}` and `${:-default}` | itself, as in a shell script among the arguments; [`Template::warnings`] tells |
//! | any other `$` | itself, so `$$NAME` is a dollar sign and the value |
//!
//! There is no escape; a literal `$NAME` is written as a default: `${DOLLAR:-$}NAME`.
//! A value is inserted as it is: a `$` inside it is never looked at again.
//!
//! Reading a text (is it well formed?) is apart from filling it in (is everything set?), because a disabled
//! server must be well formed but may lack variables.

use std::collections::HashMap;

use crate::config::Variable;

/// Far more than real configs need; protects the stack from hostile texts.
const MAX_NESTING: usize = 16;

/// A text whose references have been found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template<'a> {
    pieces: Vec<Piece<'a>>,
    /// What looks like a reference and stays unchanged: each kind once, in order of appearance.
    warnings: Vec<TemplateWarning>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Reference { name: &'a str, default: Option<Template<'a>> },
}

/// Text that looks like a reference, but is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TemplateWarning {
    /// A `${` that is never closed.
    Unclosed,
    /// A `${}` without a variable name.
    NoName,
}

/// Why a text is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("nests defaults more than {MAX_NESTING} levels deep")]
    TooDeep,
}

/// A text with its variables replaced, as far as they are set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filled<'a> {
    pub(crate) text: String,
    /// Names that have no value, in order of use; each left a gap in `text`.
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
        let mut template = Self { pieces: Vec::new(), warnings: Vec::new() };
        let mut closing = ClosingBraces::of(text);
        let mut at = 0;
        while let Some(found) = text[at..].find('$') {
            let dollar = at + found;
            let after = &text[dollar + 1..];
            if let Some(braced) = after.strip_prefix('{') {
                let reference = match closing.of_brace_at(dollar + 1) {
                    None => Err(TemplateWarning::Unclosed),
                    Some(end) => template.reference(&text[dollar + 2..end], depth)?.map(|piece| (piece, end + 1)),
                };
                match reference {
                    Ok((piece, behind)) => {
                        template.pieces.extend([Piece::Literal(&text[at..dollar]), piece]);
                        at = behind;
                    }
                    Err(warning) => {
                        template.note(warning);
                        at = template.literal(text, at, text.len() - braced.len());
                    }
                }
                continue;
            }
            let name = leading_plain_name(after);
            let behind = dollar + 1 + name.len();
            if name.is_empty() {
                at = template.literal(text, at, behind);
            } else {
                template.pieces.extend([Piece::Literal(&text[at..dollar]), Piece::Reference { name, default: None }]);
                at = behind;
            }
        }
        template.literal(text, at, text.len());
        Ok(template)
    }

    /// Parses the text between `${` and its `}`.
    fn reference(
        &mut self,
        inside: &'a str,
        depth: usize,
    ) -> Result<Result<Piece<'a>, TemplateWarning>, TemplateError> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if name.is_empty() {
            return Ok(Err(TemplateWarning::NoName));
        }
        let default = default.map(|default| Self::parse_nested(default, depth + 1)).transpose()?;
        for warning in default.iter().flat_map(|default| &default.warnings) {
            self.note(*warning);
        }
        Ok(Ok(Piece::Reference { name, default }))
    }

    /// Takes `text` from `start` to `end` literally; returns where to continue.
    fn literal(&mut self, text: &'a str, start: usize, end: usize) -> usize {
        self.pieces.push(Piece::Literal(&text[start..end]));
        end
    }

    fn note(&mut self, warning: TemplateWarning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// What looks like a reference and stays unchanged: each kind once.
    pub(crate) fn warnings(&self) -> &[TemplateWarning] {
        &self.warnings
    }

    /// Replaces variables. A default is for a variable that is not set or empty, not for one that cannot be read.
    pub(crate) fn fill(&self, lookup: &dyn Fn(&str) -> Variable) -> Filled<'a> {
        let mut filled = Filled::default();
        self.fill_into(&mut filled, lookup);
        filled
    }

    fn fill_into(&self, filled: &mut Filled<'a>, lookup: &dyn Fn(&str) -> Variable) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => filled.text.push_str(text),
                Piece::Reference { name, default } => match (lookup(name), default) {
                    (Variable::Set(value), None) => filled.text.push_str(&value),
                    (Variable::Set(value), Some(_)) if !value.is_empty() => filled.text.push_str(&value),
                    (Variable::Set(_) | Variable::Unset, Some(default)) => default.fill_into(filled, lookup),
                    (Variable::Unset, None) | (Variable::NotUtf8, _) => filled.missing.push(name),
                },
            }
        }
    }
}

/// Matches braces in one pass, so that many unclosed ones cost no more than others.
struct ClosingBraces<'a> {
    text: &'a str,
    /// By the position of the opening brace; built on first use.
    pairs: Option<HashMap<usize, usize>>,
}

impl<'a> ClosingBraces<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, pairs: None }
    }

    /// The closing brace for the one at `open`, considering nested ones.
    fn of_brace_at(&mut self, open: usize) -> Option<usize> {
        let text = self.text;
        let pairs = self.pairs.get_or_insert_with(|| {
            let (mut open, mut pairs) = (Vec::new(), HashMap::new());
            for (at, byte) in text.bytes().enumerate() {
                match byte {
                    b'{' => open.push(at),
                    b'}' => pairs.extend(open.pop().map(|opened| (opened, at))),
                    _ => {}
                }
            }
            pairs
        });
        pairs.get(&open).copied()
    }
}

/// The `[A-Z_][A-Z0-9_]*` at the start of `text`; empty if there is none.
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

    fn lookup(name: &str) -> Variable {
        let value = match name {
            "HOME" => "/home/me",
            "A" => "alpha",
            "_X9" => "under",
            "lower-case.name" => "odd",
            "EMPTY" => "",
            "TRICKY" => "$A ${A} ${",
            _ => return Variable::Unset,
        };
        Variable::Set(value.to_owned())
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
    fn a_default_replaces_a_variable_that_is_unset_or_empty() {
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

    fn warnings(text: &str) -> Vec<TemplateWarning> {
        Template::parse(text).unwrap().warnings().to_vec()
    }

    #[test]
    fn what_only_looks_like_a_reference_stays_and_is_reported() {
        use TemplateWarning::{NoName, Unclosed};
        for (text, expected, expected_warnings) in [
            ("${", "${", &[Unclosed][..]),
            ("x ${A", "x ${A", &[Unclosed]),
            ("${A:-${B", "${A:-${B", &[Unclosed]),
            ("${A:-${A}", "${A:-alpha", &[Unclosed]),
            ("${A:-{}", "${A:-{}", &[Unclosed]),
            ("${A} ${ $A", "alpha ${ alpha", &[Unclosed]),
            ("${}", "${}", &[NoName]),
            ("${:-x}", "${:-x}", &[NoName]),
            ("${:-$A}", "${:-alpha}", &[NoName]),
            ("${NOPE:-${}}", "${}", &[NoName]),
            ("${} ${} ${", "${} ${} ${", &[NoName, Unclosed]),
            ("for f in $@; do echo ${f%.*} ${", "", &[Unclosed]),
        ] {
            assert_eq!(warnings(text), expected_warnings, "{text}");
            if !expected.is_empty() {
                assert_eq!(filled(text), expected, "{text}");
            }
        }
        assert!(warnings("${A} $A $$ {} }{").is_empty());
    }

    #[test]
    fn many_braces_that_are_never_closed_take_no_longer_than_others() {
        let text = "${".repeat(200_000);
        assert_eq!(filled(&text), text);
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
                let filled = template.fill(&lookup);
                // What is neither a reference nor a part of one is kept.
                if template.pieces.iter().all(|piece| matches!(piece, Piece::Literal(_))) {
                    prop_assert_eq!(&filled.text, &text);
                }
                template.fill(&|_| Variable::Unset);
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
            let filled = template.fill(&|_| Variable::Set(value.clone()));
            prop_assert_eq!(filled, Filled { text: expected, missing: vec![] });
            prop_assert_eq!(template.fill(&|_| Variable::Unset).missing.len(), parts.len());
        }
    }
}
