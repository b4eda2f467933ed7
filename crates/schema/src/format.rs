//! The values of `format` that are asserted: those of draft-07, by the RFCs that it names.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::pattern;

/// A format that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Date,
    DateTime,
    Time,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Iri,
    IriReference,
    JsonPointer,
    Regex,
    RelativeJsonPointer,
    Uri,
    UriReference,
    UriTemplate,
}

impl Format {
    /// A format by its name; nothing for those that are not checked.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "date" => Self::Date,
            "date-time" => Self::DateTime,
            "time" => Self::Time,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "iri" => Self::Iri,
            "iri-reference" => Self::IriReference,
            "json-pointer" => Self::JsonPointer,
            "regex" => Self::Regex,
            "relative-json-pointer" => Self::RelativeJsonPointer,
            "uri" => Self::Uri,
            "uri-reference" => Self::UriReference,
            "uri-template" => Self::UriTemplate,
            _ => return None,
        })
    }

    /// Whether a text has this format.
    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
            Self::Time => is_time(text),
            Self::Email => is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Iri => is_uri(text, Alphabet::Unicode),
            Self::IriReference => is_reference(text, Alphabet::Unicode),
            Self::JsonPointer => is_json_pointer(text),
            Self::Regex => pattern::is_regex(text),
            Self::RelativeJsonPointer => is_relative_json_pointer(text),
            Self::Uri => is_uri(text, Alphabet::Ascii),
            Self::UriReference => is_reference(text, Alphabet::Ascii),
            Self::UriTemplate => is_uri_template(text),
        }
    }
}

/// So many digits at the beginning of a text, as a number, and what follows.
fn digits(text: &str, count: usize) -> Option<(u32, &str)> {
    let head = text.get(..count).filter(|head| head.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((head.parse().ok()?, &text[count..]))
}

fn is_date(text: &str) -> bool {
    let parsed = (|| {
        let (year, rest) = digits(text, 4)?;
        let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
        let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if is_leap => 29,
            2 => 28,
            _ => return None,
        };
        (rest.is_empty() && (1..=days).contains(&day)).then_some(())
    })();
    parsed.is_some()
}

fn is_time(text: &str) -> bool {
    let parsed = (|| {
        let (hour, rest) = digits(text, 2)?;
        let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
        let (second, mut rest) = digits(rest.strip_prefix(':')?, 2)?;
        if let Some(fraction) = rest.strip_prefix('.') {
            let after = fraction.trim_start_matches(|it: char| it.is_ascii_digit());
            if after.len() == fraction.len() {
                return None;
            }
            rest = after;
        }
        let offset = match rest {
            "Z" | "z" => 0,
            rest => {
                let sign = if rest.starts_with('-') { -1 } else { 1 };
                let (hours, rest) = digits(rest.strip_prefix(['+', '-'])?, 2)?;
                let (minutes, rest) = digits(rest.strip_prefix(':')?, 2)?;
                if !rest.is_empty() || hours > 23 || minutes > 59 {
                    return None;
                }
                sign * i64::from(hours * 60 + minutes)
            }
        };
        // A leap second is added at the end of a day in UTC.
        let in_utc = (i64::from(hour * 60 + minute) - offset).rem_euclid(24 * 60);
        let fits = hour < 24 && minute < 60 && (second < 60 || second == 60 && in_utc == 24 * 60 - 1);
        fits.then_some(())
    })();
    parsed.is_some()
}

fn is_date_time(text: &str) -> bool {
    let (Some(date), Some(rest)) = (text.get(..10), text.get(10..)) else { return false };
    is_date(date) && rest.strip_prefix(['T', 't']).is_some_and(is_time)
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_known)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_atom = |atom: &str| {
        !atom.is_empty() && atom.chars().all(|it| it.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(it))
    };
    let is_quoted = || {
        let inner = local.strip_prefix('"').and_then(|local| local.strip_suffix('"'));
        inner.is_some_and(|inner| !inner.replace("\\\\", "").replace("\\\"", "").contains(['"', '\\']))
    };
    let is_literal = || {
        let inner = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
        inner.is_some_and(|inner| match inner.strip_prefix("IPv6:") {
            Some(address) => Format::Ipv6.accepts(address),
            None => Format::Ipv4.accepts(inner),
        })
    };
    (local.split('.').all(is_atom) || is_quoted()) && (is_hostname(domain) || is_literal())
}

fn is_json_pointer(text: &str) -> bool {
    let is_escaped = |step: &str| step.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    text.is_empty() || text.starts_with('/') && text.split('/').all(is_escaped)
}

fn is_relative_json_pointer(text: &str) -> bool {
    let rest = text.trim_start_matches(|it: char| it.is_ascii_digit());
    let number = &text[..text.len() - rest.len()];
    let is_number = number == "0" || !number.is_empty() && !number.starts_with('0');
    is_number && (rest == "#" || is_json_pointer(rest))
}

/// Which characters an address may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    Ascii,
    Unicode,
}

fn is_uri(text: &str, alphabet: Alphabet) -> bool {
    let Some((scheme, _)) = text.split_once(':') else { return false };
    is_scheme(scheme) && is_reference(text, alphabet)
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn is_reference(text: &str, alphabet: Alphabet) -> bool {
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let (has_scheme, rest) = match before.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (true, rest),
        _ => (false, before),
    };
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        None => (None, rest),
    };
    // Without a scheme, a colon in the first step would make one.
    let first_step = path.split('/').next().unwrap_or_default();
    (has_scheme || authority.is_some() || !first_step.contains(':'))
        && authority.is_none_or(|authority| is_authority(authority, alphabet))
        && has_only(path, "/:@", alphabet)
        && has_only(query, "/:@?", alphabet)
        && has_only(fragment, "/:@?", alphabet)
}

fn is_authority(authority: &str, alphabet: Alphabet) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = match host.strip_prefix('[') {
        Some(inner) => {
            let Some((address, port)) = inner.split_once(']') else { return false };
            if !Format::Ipv6.accepts(address) && !address.starts_with(['v', 'V']) {
                return false;
            }
            ("", port.strip_prefix(':').unwrap_or(port))
        }
        None => host.rsplit_once(':').unwrap_or((host, "")),
    };
    has_only(user, ":", alphabet) && has_only(host, "", alphabet) && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a part of an address has only characters that may be there, and complete percent-encodings.
fn has_only(part: &str, more: &str, alphabet: Alphabet) -> bool {
    let is_plain = |it: char| {
        it.is_ascii_alphanumeric()
            || "-._~!$&'()*+,;=%".contains(it)
            || more.contains(it)
            || alphabet == Alphabet::Unicode && !it.is_ascii() && !it.is_control()
    };
    part.chars().all(is_plain) && has_whole_encodings(part)
}

fn has_whole_encodings(part: &str) -> bool {
    let is_hex = |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    part.split('%').skip(1).all(is_hex)
}

fn is_uri_template(text: &str) -> bool {
    let mut rest = text;
    loop {
        let Some((literal, after)) = rest.split_once('{') else { return is_literal(rest) };
        let Some((expression, after)) = after.split_once('}') else { return false };
        if !is_literal(literal) || !is_expression(expression) {
            return false;
        }
        rest = after;
    }
}

fn is_literal(text: &str) -> bool {
    let is_forbidden = |it: char| it.is_control() || " \"'<>\\^`{|}".contains(it);
    !text.contains(is_forbidden) && has_whole_encodings(text)
}

fn is_expression(expression: &str) -> bool {
    let variables = expression.strip_prefix(['+', '#', '.', '/', ';', '?', '&']).unwrap_or(expression);
    variables.split(',').all(|variable| {
        let name = match variable.split_once(':') {
            Some((name, length)) => {
                let is_length = (1..=4).contains(&length.len()) && length.bytes().all(|byte| byte.is_ascii_digit());
                if !is_length || length.starts_with('0') {
                    return false;
                }
                name
            }
            None => variable.strip_suffix('*').unwrap_or(variable),
        };
        let is_known = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '%' | '.');
        !name.is_empty() && name.chars().all(is_known) && has_whole_encodings(name)
    })
}
