//! Reads and computes an expression in one pass: each function below is one rule of the grammar.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = signed (("*" | "/") signed)*
//! signed  = ("+" | "-") signed | power
//! power   = percent ("^" signed)?            so -2^2 is -4 and 2^3^2 is 2^9
//! percent = atom "%"*
//! atom    = number | "(" sum ")" | "sqrt" "(" sum ")"
//! ```

use super::exact::{NoNumber, Number};
use std::fmt;
use std::iter::Peekable;
use std::str::CharIndices;

/// Nesting beyond this is refused, because each level takes a piece of the stack.
const MAX_DEPTH: usize = 100;

/// Why an expression has no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExpressionError {
    Unexpected { found: String, position: usize, wanted: &'static str },
    TooDeep,
    NoNumber(NoNumber),
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected { found, position, wanted } => {
                write!(f, "expected {wanted} at character {position}, found {found}")
            }
            Self::TooDeep => write!(f, "the expression is nested more than {MAX_DEPTH} levels deep"),
            Self::NoNumber(why) => why.fmt(f),
        }
    }
}

impl From<NoNumber> for ExpressionError {
    fn from(why: NoNumber) -> Self {
        Self::NoNumber(why)
    }
}

/// The value of the expression.
pub(crate) fn evaluate(text: &str) -> Result<Number, ExpressionError> {
    let mut reader = Reader { text, chars: text.char_indices().peekable(), depth: 0 };
    let value = reader.sum()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.unexpected("an operator (+ - * / ^ %) or the end")),
    }
}

struct Reader<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
    depth: usize,
}

impl Reader<'_> {
    fn sum(&mut self) -> Result<Number, ExpressionError> {
        let mut value = self.product()?;
        loop {
            if self.takes("+") {
                value = value.plus(self.product()?)?;
            } else if self.takes("-−") {
                value = value.minus(self.product()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<Number, ExpressionError> {
        let mut value = self.signed()?;
        loop {
            if self.takes("*×·") {
                value = value.times(self.signed()?)?;
            } else if self.takes("/÷") {
                value = value.over(self.signed()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// Every way to nest leads through here.
    fn signed(&mut self) -> Result<Number, ExpressionError> {
        if self.depth == MAX_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        self.depth += 1;
        let value = if self.takes("-−") {
            self.signed()?.negated()
        } else if self.takes("+") {
            self.signed()?
        } else {
            self.power()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Result<Number, ExpressionError> {
        let base = self.percent()?;
        if self.takes("^") { Ok(base.power(self.signed()?)?) } else { Ok(base) }
    }

    fn percent(&mut self) -> Result<Number, ExpressionError> {
        let mut value = self.atom()?;
        while self.takes("%") {
            value = value.over(Number::whole(100))?;
        }
        Ok(value)
    }

    fn atom(&mut self) -> Result<Number, ExpressionError> {
        match self.peek() {
            Some('(') => self.parenthesis(),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() => {
                let start = self.position();
                if self.word() == "sqrt" {
                    let half = Number::whole(1).over(Number::whole(2))?;
                    Ok(self.parenthesis()?.power(half)?)
                } else {
                    Err(self.unexpected_at(start, "a number, `(` or `sqrt(`"))
                }
            }
            _ => Err(self.unexpected("a number, `(` or `sqrt(`")),
        }
    }

    fn parenthesis(&mut self) -> Result<Number, ExpressionError> {
        if !self.takes("(") {
            return Err(self.unexpected("`(`"));
        }
        let value = self.sum()?;
        if self.takes(")") { Ok(value) } else { Err(self.unexpected("`)`")) }
    }

    fn number(&mut self) -> Result<Number, ExpressionError> {
        let start = self.position();
        let mut previous = ' ';
        while let Some((_, c)) = self.chars.next_if(|(_, c)| {
            let sign_of_exponent = matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
            c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || sign_of_exponent
        }) {
            previous = c;
        }
        let end = self.position();
        let number = self.text.get(start..end).and_then(Number::parse);
        number.ok_or_else(|| self.unexpected_at(start, "a number such as 1_000, 0.5 or 6.02e23"))
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some((_, c)) = self.chars.next_if(|(_, c)| c.is_alphanumeric()) {
            word.push(c);
        }
        word
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        while self.chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        self.chars.peek().map(|(_, c)| *c)
    }

    /// Takes the next character if it is one of these ways to write an operator.
    fn takes(&mut self, spellings: &str) -> bool {
        let taken = self.peek().is_some_and(|c| spellings.contains(c));
        if taken {
            self.chars.next();
        }
        taken
    }

    /// Where the next character is, in bytes.
    fn position(&mut self) -> usize {
        self.chars.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    fn unexpected(&mut self, wanted: &'static str) -> ExpressionError {
        let position = self.position();
        self.unexpected_at(position, wanted)
    }

    fn unexpected_at(&self, at: usize, wanted: &'static str) -> ExpressionError {
        let (before, rest) = self.text.split_at(at);
        let found = match rest.chars().next() {
            None => "the end".to_owned(),
            Some(c) if c.is_alphanumeric() || c == '.' => {
                let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '.').take(40).collect();
                format!("`{word}`")
            }
            Some(c) => format!("`{c}`"),
        };
        ExpressionError::Unexpected { found, position: before.chars().count() + 1, wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> String {
        match evaluate(text) {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn arithmetic_is_exact_and_keeps_the_usual_order() {
        for (text, expected) in [
            ("0.1 + 0.2", "0.3"),
            ("1/3 + 1/6", "0.5"),
            ("2 + 3 * 4", "14"),
            ("(2 + 3) * 4", "20"),
            ("10 - 4 - 3", "3"),
            ("100 / 10 / 5", "2"),
            ("2^3^2", "512"),
            ("-2^2", "-4"),
            ("(-2)^2", "4"),
            ("2^-1", "0.5"),
            ("2 - -3", "5"),
            ("--+3", "3"),
            ("10 / 4", "2.5"),
            ("1/3", "1/3"),
            ("7 × 6 ÷ 2 − 1", "20"),
            ("1_000 * 1.5e3", "1500000"),
            ("99999999999999999999 + 1", "100000000000000000000"),
            ("1e-3+1", "1.001"),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn percent_is_a_hundredth() {
        assert_eq!(value("15% * 200"), "30");
        assert_eq!(value("200 * (100% + 19%)"), "238");
        assert_eq!(value("200 + 10%"), "200.1");
        assert_eq!(value("50%%"), "0.005");
        assert_eq!(value("10%^2"), "0.01");
    }

    #[test]
    fn roots_are_exact_where_they_can_be() {
        assert_eq!(value("sqrt(2.25)"), "1.5");
        assert_eq!(value("sqrt(9) + 1"), "4");
        assert_eq!(value("sqrt(2)^2"), "2");
        assert!(evaluate("sqrt(16)").expect("a value").is_exact());
        assert!(!evaluate("sqrt(2)^2").expect("a value").is_exact());
    }

    #[test]
    fn compound_interest_over_thirty_years_has_a_value() {
        assert_eq!(value("1.05^10"), "1.62889462677744140625");
        let monthly = evaluate("1000 * (1 + 5%/12)^360").expect("a value");
        assert!(!monthly.is_exact());
        assert!(monthly.to_string().starts_with("4467.7443"), "{monthly}");
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        for (text, expected) in [
            ("", "expected a number, `(` or `sqrt(` at character 1, found the end"),
            ("2 +", "expected a number, `(` or `sqrt(` at character 4, found the end"),
            ("(1 + 2", "expected `)` at character 7, found the end"),
            ("1 2", "expected an operator (+ - * / ^ %) or the end at character 3, found `2`"),
            ("5 % 3", "expected an operator (+ - * / ^ %) or the end at character 5, found `3`"),
            ("1,000", "expected an operator (+ - * / ^ %) or the end at character 2, found `,`"),
            ("é + foo", "expected a number, `(` or `sqrt(` at character 1, found `é`"),
            ("2 * foo", "expected a number, `(` or `sqrt(` at character 5, found `foo`"),
            ("1.2.3", "expected a number such as 1_000, 0.5 or 6.02e23 at character 1, found `1.2.3`"),
            ("sqrt 4", "expected `(` at character 6, found `4`"),
            ("1 / (2 - 2)", "this divides by zero"),
            ("10^400", "the result is too large"),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn nesting_is_limited_and_length_is_not() {
        for opening in ["(", "-", "2^", "sqrt("] {
            assert_eq!(evaluate(&opening.repeat(100_000)).expect_err("none"), ExpressionError::TooDeep);
        }
        assert_eq!(value(&format!("1{}", "+1".repeat(9_999))), "10000");
    }
}
