//! Numbers that stay exact as long as they fit, and say so when they do not.

use std::cmp::Ordering;
use std::fmt;

/// Numerator and denominator stay below this, so that ten times either still fits an `i128`.
const LIMIT: i128 = 10_i128.pow(37);
/// Decimals with more digits after the point than this are written as a fraction.
const MAX_DECIMAL_LEN: usize = 40;
/// Significant digits of a decimal that had to be rounded.
const ROUNDED_DIGITS: usize = 20;

/// A number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    /// Exactly this fraction.
    Exact(Fraction),
    /// About this: a root, or too many digits for a fraction.
    About(f64),
}

/// In lowest terms, the denominator positive, both within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    numerator: i128,
    denominator: i128,
}

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoNumber {
    DivisionByZero,
    TooLarge,
    NotReal,
}

impl fmt::Display for NoNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DivisionByZero => "this divides by zero",
            Self::TooLarge => "the result is too large",
            Self::NotReal => "a negative number to a power that is not whole is not a real number",
        })
    }
}

impl Fraction {
    /// None if it does not fit.
    fn new(numerator: i128, denominator: i128) -> Option<Self> {
        let divisor = greatest_common_divisor(numerator, denominator)?;
        let sign = denominator.signum();
        let fraction = Self { numerator: numerator / divisor * sign, denominator: denominator / divisor * sign };
        let fits = fraction.numerator.abs() < LIMIT && fraction.denominator < LIMIT;
        fits.then_some(fraction)
    }

    fn plus(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    fn times(self, other: Self) -> Option<Self> {
        // Cancel crosswise first, so that the products stay small.
        let left = Self::new(self.numerator, other.denominator)?;
        let right = Self::new(other.numerator, self.denominator)?;
        Self::new(left.numerator.checked_mul(right.numerator)?, left.denominator.checked_mul(right.denominator)?)
    }

    /// Zero has no inverse.
    fn inverse(self) -> Option<Self> {
        (self.numerator != 0)
            .then(|| Self { numerator: self.denominator * self.numerator.signum(), denominator: self.numerator.abs() })
    }

    fn power(self, exponent: u32) -> Option<Self> {
        Some(Self {
            numerator: self.numerator.checked_pow(exponent).filter(|n| n.abs() < LIMIT)?,
            denominator: self.denominator.checked_pow(exponent).filter(|d| *d < LIMIT)?,
        })
    }

    fn about(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// The digits before the point, and those after it up to and without `enough`; true if nothing is left.
    fn digits(self, enough: impl Fn(&[u8]) -> bool) -> (i128, Vec<u8>, bool) {
        let magnitude = self.numerator.abs();
        let mut rest = magnitude % self.denominator;
        let mut digits = Vec::new();
        while rest != 0 && !enough(&digits) {
            rest *= 10;
            digits.push((rest / self.denominator) as u8);
            rest %= self.denominator;
        }
        (magnitude / self.denominator, digits, rest == 0)
    }

    fn sign(self) -> &'static str {
        if self.numerator < 0 { "-" } else { "" }
    }

    /// The whole decimal, if it ends soon enough.
    fn finite_decimal(self) -> Option<String> {
        let (whole, digits, complete) = self.digits(|digits| digits.len() == MAX_DECIMAL_LEN);
        complete.then(|| decimal(self.sign(), whole, &digits))
    }

    /// Only for decimals without an early end: there must be a digit to round by.
    fn rounded_decimal(self) -> String {
        let whole_digits = match self.numerator.abs() / self.denominator {
            0 => 0,
            whole => whole.to_string().len(),
        };
        let shown_after_point = ROUNDED_DIGITS.saturating_sub(whole_digits);
        let (mut whole, mut digits, _) = self.digits(|digits| {
            let insignificant = match whole_digits {
                0 => digits.iter().take_while(|digit| **digit == 0).count(),
                _ => 0,
            };
            digits.len() - insignificant > shown_after_point
        });
        // There is one digit more than shown. It decides whether to round up.
        let up = digits.pop().is_some_and(|digit| digit >= 5);
        if up {
            match digits.iter().rposition(|digit| *digit != 9) {
                Some(last) => {
                    digits[last] += 1;
                    digits.truncate(last + 1);
                }
                None => {
                    digits.clear();
                    whole += 1;
                }
            }
        }
        decimal(self.sign(), whole, &digits)
    }
}

fn decimal(sign: &str, whole: i128, digits: &[u8]) -> String {
    let digits: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
    match digits.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        digits => format!("{sign}{whole}.{digits}"),
    }
}

/// None if both are zero or one is too large to be made positive.
fn greatest_common_divisor(a: i128, b: i128) -> Option<i128> {
    let (mut a, mut b) = (a.checked_abs()?, b.checked_abs()?);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (a != 0).then_some(a)
}

impl Number {
    pub(crate) const ZERO: Self = Self::whole(0);

    pub(crate) const fn whole(value: i32) -> Self {
        Self::Exact(Fraction { numerator: value as i128, denominator: 1 })
    }

    /// Reads `12`, `.5`, `1_000.25` or `6.02e23`, without a sign. None if it is no number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let plain: String = text.chars().filter(|c| *c != '_').collect();
        // Rust also reads `inf`, `nan` and signs.
        let about: f64 = plain.parse().ok().filter(|_| plain.starts_with(|c: char| c.is_ascii_digit() || c == '.'))?;
        if !about.is_finite() {
            return None;
        }
        Some(parse_exact(&plain).map_or(Self::About(about), Self::Exact))
    }

    fn about(self) -> f64 {
        match self {
            Self::Exact(fraction) => fraction.about(),
            Self::About(value) => value,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.about() == 0.0
    }

    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Exact(f) => Self::Exact(Fraction { numerator: -f.numerator, ..f }),
            Self::About(value) => Self::About(-value),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Result<Self, NoNumber> {
        self.combine(other, Fraction::plus, |a, b| a + b)
    }

    pub(crate) fn minus(self, other: Self) -> Result<Self, NoNumber> {
        self.plus(other.negated())
    }

    pub(crate) fn times(self, other: Self) -> Result<Self, NoNumber> {
        self.combine(other, Fraction::times, |a, b| a * b)
    }

    pub(crate) fn over(self, other: Self) -> Result<Self, NoNumber> {
        if other.is_zero() {
            return Err(NoNumber::DivisionByZero);
        }
        self.combine(other, |a, b| a.times(b.inverse()?), |a, b| a / b)
    }

    pub(crate) fn power(self, exponent: Self) -> Result<Self, NoNumber> {
        if self.is_zero() && exponent.about() < 0.0 {
            return Err(NoNumber::DivisionByZero);
        }
        self.combine(exponent, exact_power, f64::powf)
    }

    /// Exactly if that fits, else as near as floating point comes.
    fn combine(
        self,
        other: Self,
        exactly: impl Fn(Fraction, Fraction) -> Option<Fraction>,
        nearly: impl Fn(f64, f64) -> f64,
    ) -> Result<Self, NoNumber> {
        if let (Self::Exact(a), Self::Exact(b)) = (self, other)
            && let Some(exact) = exactly(a, b)
        {
            return Ok(Self::Exact(exact));
        }
        let about = nearly(self.about(), other.about());
        if about.is_nan() {
            return Err(NoNumber::NotReal);
        }
        if about.is_infinite() {
            return Err(NoNumber::TooLarge);
        }
        Ok(Self::About(about))
    }

    pub(crate) fn is_exact(self) -> bool {
        matches!(self, Self::Exact(_))
    }

    pub(crate) fn order(self, other: Self) -> Ordering {
        if let (Self::Exact(a), Self::Exact(b)) = (self, other)
            && let Some(difference) = a.plus(Fraction { numerator: -b.numerator, ..b })
        {
            return difference.numerator.cmp(&0);
        }
        self.about().total_cmp(&other.about())
    }

    /// A decimal, rounded if it has no end.
    pub(crate) fn decimal(self) -> String {
        match self {
            Self::Exact(fraction) => fraction.finite_decimal().unwrap_or_else(|| fraction.rounded_decimal()),
            Self::About(_) => self.to_string(),
        }
    }
}

/// The whole value: a decimal if it has an end, else a fraction. What is only about right keeps 15 digits.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(fraction) => match fraction.finite_decimal() {
                Some(decimal) => f.write_str(&decimal),
                None => write!(f, "{}/{}", fraction.numerator, fraction.denominator),
            },
            Self::About(value) => {
                // Floating point is good for 15 digits; more would be noise.
                let rounded = format!("{value:.14e}").parse().unwrap_or(*value);
                if rounded == 0.0 || (1e-6..1e15).contains(&rounded.abs()) {
                    write!(f, "{rounded}")
                } else {
                    write!(f, "{rounded:e}")
                }
            }
        }
    }
}

fn parse_exact(plain: &str) -> Option<Fraction> {
    let (mantissa, exponent) = plain.split_once(['e', 'E']).unwrap_or((plain, "0"));
    let (whole, after_point) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let numerator: i128 = format!("{whole}{after_point}").parse().ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    let shift = exponent.checked_sub(i32::try_from(after_point.len()).ok()?)?;
    let power = 10_i128.checked_pow(shift.unsigned_abs())?;
    if shift < 0 { Fraction::new(numerator, power) } else { Fraction::new(numerator.checked_mul(power)?, 1) }
}

/// None if the exponent is no whole number, unless it is a half and the root is a fraction.
fn exact_power(base: Fraction, exponent: Fraction) -> Option<Fraction> {
    if exponent == (Fraction { numerator: 1, denominator: 2 }) {
        return Fraction::new(exact_root(base.numerator)?, exact_root(base.denominator)?);
    }
    if exponent.denominator != 1 {
        return None;
    }
    // The powers of 0, 1 and -1 repeat, so that any exponent fits.
    if base.denominator == 1 && base.numerator.abs() <= 1 {
        let small = match (exponent.numerator, exponent.numerator % 2) {
            (0, _) => 0,
            (_, 0) => 2,
            _ => 1,
        };
        return base.power(small);
    }
    let magnitude = u32::try_from(exponent.numerator.unsigned_abs()).ok()?;
    if exponent.numerator < 0 { base.inverse()?.power(magnitude) } else { base.power(magnitude) }
}

fn exact_root(square: i128) -> Option<i128> {
    let root = u128::try_from(square).ok()?.isqrt();
    let root = i128::try_from(root).ok()?;
    (root * root == square).then_some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        match text.strip_prefix('-') {
            Some(text) => number(text).negated(),
            None => Number::parse(text).expect("a number"),
        }
    }

    #[test]
    fn decimals_are_read_exactly() {
        for (text, shown) in [
            ("0.1", "0.1"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1_000.250", "1000.25"),
            ("1e3", "1000"),
            ("2.5e-3", "0.0025"),
            ("007", "7"),
            ("0.000", "0"),
            ("1e-36", "0.000000000000000000000000000000000001"),
        ] {
            assert!(number(text).is_exact(), "{text}");
            assert_eq!(number(text).to_string(), shown);
        }
        for text in ["", ".", "inf", "nan", "-1", "+1", "1e", "0x10", "1e999", "_"] {
            assert!(Number::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn fractions_without_end_are_rounded_in_their_decimal() {
        for (a, b, fraction, decimal) in [
            ("2", "3", "2/3", "0.66666666666666666667"),
            ("-1", "3", "-1/3", "-0.33333333333333333333"),
            ("200", "3", "200/3", "66.666666666666666667"),
            ("1", "3000", "1/3000", "0.00033333333333333333333"),
            ("1e25", "3", "10000000000000000000000000/3", "3333333333333333333333333"),
            ("2e25", "3", "20000000000000000000000000/3", "6666666666666666666666667"),
            ("1", "7", "1/7", "0.14285714285714285714"),
        ] {
            let quotient = number(a).over(number(b)).expect("a number");
            assert_eq!(quotient.to_string(), fraction);
            assert_eq!(quotient.decimal(), decimal);
        }
        // Rounding carries over the point.
        let almost = number("29999999999999999999999999999999999").over(number("30000000000000000000000000000000000"));
        assert_eq!(almost.expect("a number").decimal(), "1");
    }

    #[test]
    fn inexact_numbers_are_rounded_and_reported() {
        let large = number("1e30").times(number("1e30")).expect("a number");
        assert!(!large.is_exact());
        assert_eq!(large.to_string(), "1e60");
        assert_eq!(number("1e300").times(number("1e300")).expect_err("none"), NoNumber::TooLarge);
    }

    #[test]
    fn powers_are_exact_where_they_can_be() {
        let power = |a, b| number(a).power(number(b)).expect("a number");
        for (base, exponent, shown) in [
            ("2", "10", "1024"),
            ("2", "-3", "0.125"),
            ("1.5", "2", "2.25"),
            ("-2", "3", "-8"),
            ("0", "0", "1"),
            ("0", "5", "0"),
            ("1", "1e30", "1"),
            ("-1", "1e30", "1"),
            ("-1", "-7", "-1"),
            ("-1", "0", "1"),
            ("6.25", "0.5", "2.5"),
            ("-3", "-1", "-1/3"),
            ("7", "0", "1"),
        ] {
            let result = power(base, exponent);
            assert!(result.is_exact(), "{base}^{exponent}");
            assert_eq!(result.to_string(), shown, "{base}^{exponent}");
        }
        assert_eq!(power("2", "0.5").to_string(), "1.4142135623731");
        assert_eq!(number("-2").power(number("0.5")).expect_err("none"), NoNumber::NotReal);
        assert_eq!(number("0").power(number("-1")).expect_err("none"), NoNumber::DivisionByZero);
        assert_eq!(number("9").power(number("999999999")).expect_err("none"), NoNumber::TooLarge);
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        assert_eq!(number("0.3").order(number("0.1").plus(number("0.2")).expect("a number")), Ordering::Equal);
        assert_eq!(number("-1").order(number("1e-30")), Ordering::Less);
        assert_eq!(number("1e60").order(number("2")), Ordering::Greater);
    }
}
