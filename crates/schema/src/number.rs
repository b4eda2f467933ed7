//! Numbers compared by value, as JSON Schema requires, whatever their notation.

use std::cmp::Ordering;

use serde_json::Number;

/// Every power of ten below 2^128.
const LARGEST_POWER: u32 = 38;

/// Compares two numbers by value.
pub(crate) fn compare(left: &Number, right: &Number) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_with_float(left, float(right)),
        (None, Some(right)) => compare_with_float(right, float(left)).reverse(),
        (None, None) => float(left).partial_cmp(&float(right)).unwrap_or(Ordering::Equal),
    }
}

/// Whether it has no fraction: `1.0` is an integer.
pub(crate) fn is_integer(number: &Number) -> bool {
    number.as_f64().is_none_or(|float| number.is_i64() || number.is_u64() || float.fract() == 0.0)
}

/// Whether a number divided by another is an integer, in decimal arithmetic: `0.0075` is a multiple of `0.0001`.
pub(crate) fn is_multiple(number: &Number, of: &Number) -> bool {
    let (Some(number), Some(of)) = (Decimal::of(number), Decimal::of(of)) else { return true };
    if number.digits == 0 || of.digits == 0 {
        return true;
    }
    let shift = number.exponent - of.exponent;
    if shift >= 0 {
        let scaled = multiply(number.digits % of.digits, power_of_ten(shift.unsigned_abs(), of.digits), of.digits);
        return scaled == 0;
    }
    // The divisor has more zeros than a number of these sizes can have, or the product is exact.
    let shift = shift.unsigned_abs();
    let divisor = (shift <= LARGEST_POWER).then(|| 10u128.pow(shift)).and_then(|power| power.checked_mul(of.digits));
    divisor.is_some_and(|divisor| number.digits % divisor == 0)
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::INFINITY)
}

fn compare_with_float(integer: i128, float: f64) -> Ordering {
    // Every integer here is within 64 bits, so a float beyond them is beyond all of them.
    const BEYOND: f64 = 1e20;
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float <= -BEYOND {
        return Ordering::Greater;
    }
    let whole = float.trunc();
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within 1e20")]
    let ordering = integer.cmp(&(whole as i128));
    ordering.then_with(|| 0.0f64.total_cmp(&(float - whole + 0.0)))
}

/// `digits * 10^exponent`, without its sign.
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// Nothing for infinities, which JSON cannot write.
    fn of(number: &Number) -> Option<Self> {
        let written = match integer(number) {
            Some(integer) => return Some(Self { digits: integer.unsigned_abs(), exponent: 0 }),
            // The shortest decimal that means this float, at most 17 digits.
            None => format!("{:e}", number.as_f64().filter(|float| float.is_finite())?.abs()),
        };
        let (mantissa, exponent) = written.split_once('e')?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}").parse().ok()?;
        let exponent: i32 = exponent.parse().ok()?;
        Some(Self { digits, exponent: exponent - i32::try_from(fraction.len()).ok()? })
    }
}

/// `10^exponent` modulo a number below 2^64.
fn power_of_ten(exponent: u32, modulus: u128) -> u128 {
    let (mut result, mut base, mut left) = (1 % modulus, 10 % modulus, exponent);
    while left > 0 {
        if left % 2 == 1 {
            result = multiply(result, base, modulus);
        }
        base = multiply(base, base, modulus);
        left /= 2;
    }
    result
}

/// Both factors are below the modulus, which is below 2^64: the product fits.
fn multiply(left: u128, right: u128, modulus: u128) -> u128 {
    left * right % modulus
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use serde_json::Number;

    use super::{compare, is_integer, is_multiple};

    fn number(text: &str) -> Number {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for (left, right, expected) in [
            ("1", "1.0", Ordering::Equal),
            ("1", "1.5", Ordering::Less),
            ("-1", "-1.5", Ordering::Greater),
            ("9007199254740993", "9007199254740992.0", Ordering::Greater),
            ("18446744073709551615", "1e20", Ordering::Less),
            ("-9223372036854775808", "-1e300", Ordering::Greater),
            ("0", "-0.0", Ordering::Equal),
            ("2.5", "2", Ordering::Greater),
        ] {
            assert_eq!(compare(&number(left), &number(right)), expected, "{left} {right}");
            assert_eq!(compare(&number(right), &number(left)), expected.reverse(), "{left} {right}");
        }
    }

    #[test]
    fn multiples_are_found_in_decimal() {
        for (left, of, expected) in [
            ("0.0075", "0.0001", true),
            ("0.00751", "0.0001", false),
            ("4.5", "1.5", true),
            ("35", "1.5", false),
            ("1e308", "0.5", true),
            ("1e308", "7", false),
            ("12391239123", "1e-8", true),
            ("-6", "3", true),
            ("0", "3", true),
            ("1e-300", "1e300", false),
            ("18446744073709551615", "18446744073709551615", true),
            ("5", "1e30", false),
        ] {
            assert_eq!(is_multiple(&number(left), &number(of)), expected, "{left} {of}");
        }
        assert!(is_integer(&number("1.0")) && is_integer(&number("1e30")) && !is_integer(&number("1.5")));
    }
}
