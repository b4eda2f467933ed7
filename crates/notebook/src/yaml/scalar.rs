//! The meaning of plain scalars in the core schema of YAML 1.2.

/// A parsed scalar.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    /// A number in the syntax of JSON.
    Number(String),
    Text,
    /// `.inf`, `.nan`: numbers that JSON does not have.
    NoJson,
}

impl Scalar {
    pub(super) fn of(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "true" | "True" | "TRUE" => Self::Bool(true),
            "false" | "False" | "FALSE" => Self::Bool(false),
            _ if is_endless(text) => Self::NoJson,
            _ => number(text).map_or(Self::Text, Self::Number),
        }
    }
}

fn is_endless(text: &str) -> bool {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(bare, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn number(text: &str) -> Option<String> {
    let in_base = |digits: &str, base| u128::from_str_radix(digits, base).ok().map(|it| it.to_string());
    if let Some(digits) = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+')) {
        return in_base(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o").filter(|digits| !digits.starts_with('+')) {
        return in_base(digits, 8);
    }
    decimal(text)
}

/// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`, converted to the syntax of JSON.
fn decimal(text: &str) -> Option<String> {
    let (sign, bare) = match text.strip_prefix('-') {
        Some(bare) => ("-", bare),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match bare.find(['e', 'E']) {
        Some(place) => (&bare[..place], &bare[place..]),
        None => (bare, ""),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_digits = !whole.is_empty() || fraction.is_some_and(|fraction| !fraction.is_empty());
    let exponent_digits = exponent.get(1..).map(|it| it.strip_prefix(['+', '-']).unwrap_or(it));
    let is_number = has_digits
        && is_digits(whole)
        && fraction.is_none_or(is_digits)
        && exponent_digits.is_none_or(|digits| !digits.is_empty() && is_digits(digits));
    if !is_number {
        return None;
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let fraction = match fraction {
        None => String::new(),
        Some("") => ".0".to_owned(),
        Some(fraction) => format!(".{fraction}"),
    };
    Some(format!("{sign}{whole}{fraction}{exponent}"))
}

#[cfg(test)]
mod tests {
    use super::Scalar;

    #[test]
    fn only_numbers_are_numbers() {
        for text in ["1.2.3", "1-2", "e5", "1e", "1e+", ".", "-", "+", "0x", "0xZZ", "0o9", "1_000", "١", "0x+1", "--1"]
        {
            assert_eq!(Scalar::of(text), Scalar::Text, "{text}");
        }
        for (text, json) in [("-0", "-0"), ("-.5e-3", "-0.5e-3"), ("00.10", "0.10"), ("0", "0"), ("1E5", "1E5")] {
            assert_eq!(Scalar::of(text), Scalar::Number(json.to_owned()));
        }
    }
}
