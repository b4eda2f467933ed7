//! Masks secrets within a text: credentials in addresses, query parameters, connection strings, headers and tokens.

use std::ops::Range;

use super::names::means_a_secret;
use super::{MASK, SECRET_MAPS, hidden, is_reference};

/// Prefixes of tokens of well-known services.
const TOKENS: [&str; 36] = [
    "sk-",
    "sk_",
    "rk_",
    "pk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxa-",
    "xoxb-",
    "xoxe-",
    "xoxp-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "hf_",
    "npm_",
    "pypi-",
    "dop_v1_",
    "shpat_",
    "SG.",
    "eyJ",
    "lin_api_",
    "ntn_",
    "secret_",
    "figd_",
    "tvly-",
    "gsk_",
    "pplx-",
    "ATATT",
];

/// Shorter texts are words with the same prefix.
const SHORTEST_TOKEN: usize = 16;

/// Shorter numbers in JSON are not secrets, whatever their names.
const SHORTEST_NUMBER: usize = 6;

/// The limit of user and password. Without it, a text full of addresses would take quadratic time.
const LONGEST_CREDENTIALS: usize = 1024;

/// Schemes of addresses whose paths may contain an `@`.
const WEB: [&str; 8] = ["http", "https", "ws", "wss", "file", "git", "git+https", "npm"];

/// Masks every secret that can be recognised by its context or its form.
pub(super) fn text(text: &str) -> String {
    without_tokens(&without_credentials(&without_values(&without_passwords(text))))
}

/// The same without values of names, for a text whose words were all checked.
pub(super) fn unnamed(text: &str) -> String {
    without_tokens(&without_credentials(&without_passwords(text)))
}

/// Addresses without their passwords: `postgres://me:***@db/x`.
fn without_passwords(text: &str) -> String {
    const BETWEEN: &str = "://";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BETWEEN) {
        let (before, behind) = rest.split_at(at + BETWEEN.len());
        shown += before;
        let is_scheme = |letter: char| letter.is_ascii_alphanumeric() || "+.-".contains(letter);
        let scheme = before[..at].rsplit(|letter| !is_scheme(letter)).next().unwrap_or_default();
        // An address that is the whole text may contain anything.
        let is_alone = shown.len() == scheme.len() + BETWEEN.len();
        let is_end = |letter: char| letter.is_whitespace() || "\"<>`".contains(letter);
        let near = &behind[..behind.floor_char_boundary(behind.len().min(LONGEST_CREDENTIALS))];
        let end = if is_alone { near.len() } else { near.find(is_end).unwrap_or(near.len()) };
        let length = credentials(scheme, &near[..end]);
        let (user, host_and_path) = behind.split_at(length.unwrap_or(0));
        match (length, user.split_once(':')) {
            (Some(_), Some((user, password))) => shown += &format!("{user}:{}", hidden(password)),
            (Some(_), None) if is_long_and_mixed(user) => shown += MASK,
            _ => shown += user,
        }
        rest = host_and_path;
    }
    shown + rest
}

/// The length of user and password at the start of an address (after `://`), if any.
fn credentials(scheme: &str, address: &str) -> Option<usize> {
    let authority = &address[..address.find(['/', '?', '#']).unwrap_or(address.len())];
    if let Some(at) = authority.rfind('@') {
        return Some(at);
    }
    // A password may contain anything. After the colon of a host there is a number.
    let is_port = |port: &str| port.chars().all(|digit| digit.is_ascii_digit()) || port.starts_with(['$', '{', '%']);
    let is_host = |host: &str| host.starts_with('[') || host.split_once(':').is_none_or(|(_, port)| is_port(port));
    let may_be_host = authority.split(',').all(is_host);
    let is_web = WEB.iter().any(|web| web.eq_ignore_ascii_case(scheme));
    let has_password = !may_be_host || !is_web && authority.contains(':');
    has_password.then(|| address.rfind('@')).flatten()
}

fn is_long_and_mixed(text: &str) -> bool {
    text.len() >= 20
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Masks the values of names that mean secrets: in a query (`?sig=***&x=1`), a connection string
/// (`Server=db;Password=***;`), JSON (`{"apiKey":"***"}`), or a header (`X-Api-Key: ***`).
fn without_values(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    let is_connection_string = text.contains(';');
    // Up to this position everything is a secret, whatever its name.
    let mut end_of_map = 0;
    for (at, _) in text.match_indices(['=', ':']) {
        if at < done {
            continue;
        }
        if at >= end_of_map
            && let Some(end) = secret_map_at(text, at)
        {
            end_of_map = end;
            continue;
        }
        let value = if at < end_of_map { json_string_at(text, at) } else { None };
        let Some(value) = value.or_else(|| value_at(text, at, is_connection_string)) else { continue };
        shown += &text[done..value.start];
        shown += &hidden(&text[value.clone()]);
        done = value.end;
    }
    shown + &text[done..]
}

/// The position of the secret whose name ends before the separator at `at`, if it is one.
fn value_at(text: &str, at: usize, is_connection_string: bool) -> Option<Range<usize>> {
    let before = text[..at].trim_end();
    let is_quoted = before.ends_with('"');
    let before = before.trim_end_matches(['"', '\\']);
    let name_start = before
        .rfind(|letter: char| !is_of_name(letter))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let name = &before[name_start..];
    if name.is_empty() || !means_a_secret(name) {
        return None;
    }
    let behind = &text[at + 1..];
    let start = at + 1 + (behind.len() - behind.trim_start_matches([' ', '\t']).len());
    let rest = &text[start..];
    let until = |end: Option<usize>| Some(start..end.map_or(text.len(), |end| start + end));
    if let Some(quote) = ["\\\"", "\"", "'"].into_iter().find(|quote| rest.starts_with(quote)) {
        let inner = start + quote.len();
        let end = if is_quoted && quote == "\"" { end_of_string(&text[inner..]) } else { text[inner..].find(quote) };
        return Some(inner..end.map_or(text.len(), |end| inner + end));
    }
    if is_quoted && text[at..].starts_with(':') {
        return end_of_json(rest).map(|end| start..start + end);
    }
    let previous = text[..name_start].chars().next_back();
    if text[at..].starts_with(':') {
        let is_header =
            name.contains('-') || ["authorization", "cookie"].iter().any(|it| name.eq_ignore_ascii_case(it));
        return match previous {
            // Other values of keys in JSON are words, and not secrets.
            _ if is_quoted || rest.starts_with("//") => None,
            None => until(None),
            // Within a sentence, only names in the style of headers count.
            Some(_) if is_header => until(rest.find(['\n', '\r', '"', '\'', ';'])),
            Some(_) => None,
        };
    }
    match previous {
        Some('?' | '&' | '#') => until(rest.find(|letter: char| letter.is_whitespace() || "&#\"'<>`".contains(letter))),
        _ if rest.starts_with('{') && !rest.starts_with("${") => until(rest.find('}').map(|end| end + 1)),
        Some(',') => until(rest.find(',')),
        _ if is_connection_string => until(rest.find(';')),
        None => until(None),
        Some(_) => until(rest.find(char::is_whitespace)),
    }
}

/// The end of a JSON object whose members are all secrets (`"env": {`), if one starts after the colon at `at`.
fn secret_map_at(text: &str, at: usize) -> Option<usize> {
    let name = text[..at].trim_end().strip_suffix('"')?;
    let name = &name[name.rfind('"')? + 1..];
    let rest = text[at..].strip_prefix(':')?;
    let start = text.len() - rest.trim_start().len();
    let is_map = SECRET_MAPS.iter().any(|map| name.eq_ignore_ascii_case(map)) && text[start..].starts_with('{');
    if is_map { end_of_json(&text[start..]).map(|end| start + end) } else { None }
}

/// The position of the JSON string after the colon at `at`.
fn json_string_at(text: &str, at: usize) -> Option<Range<usize>> {
    text[..at].trim_end().strip_suffix('"')?;
    let rest = text[at..].strip_prefix(':')?;
    let inner = text.len() - rest.trim_start().strip_prefix('"')?.len();
    Some(inner..end_of_string(&text[inner..]).map_or(text.len(), |end| inner + end))
}

/// The end of a JSON string that started before the text.
fn end_of_string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// The length of the number, array or object at the start of the text. Words (`null`, `true`) and masks do not count.
fn end_of_json(text: &str) -> Option<usize> {
    match text.bytes().next()? {
        b'-' | b'0'..=b'9' => {
            let end = text.find(|letter: char| !"+-.0123456789eE".contains(letter)).unwrap_or(text.len());
            // `"max_tokens": 4096` is none.
            (end >= SHORTEST_NUMBER).then_some(end)
        }
        b'[' | b'{' => {
            let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
            let end = text.bytes().position(|byte| {
                match byte {
                    b'"' if !is_escaped => is_text = !is_text,
                    b'[' | b'{' if !is_text => depth += 1,
                    b']' | b'}' if !is_text => depth -= 1,
                    _ => {}
                }
                is_escaped = byte == b'\\' && !is_escaped;
                depth == 0
            });
            Some(end.map_or(text.len(), |end| end + 1))
        }
        _ => None,
    }
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.%".contains(letter)
}

/// Masks what follows `Bearer`, and what follows `Basic` if it is not a word.
fn without_credentials(text: &str) -> String {
    let shown = without_credential(text, "bearer ", |_| true);
    without_credential(&shown, "basic ", |credential| {
        let is_mixed = credential.bytes().skip(1).any(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        credential.contains(':') || credential.ends_with('=') || credential.len() >= 6 && is_mixed
    })
}

fn without_credential(text: &str, scheme: &str, is_credential: impl Fn(&str) -> bool) -> String {
    // Lower-casing ASCII moves no byte.
    let lower = text.to_ascii_lowercase();
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(at) = lower[done..].find(scheme) {
        let start = done + at + scheme.len();
        let rest = &text[start..];
        let end = rest.find(|char: char| char.is_whitespace() || "\"'".contains(char)).unwrap_or(rest.len());
        let credential = &rest[..end];
        shown += &text[done..start];
        shown += &if is_credential(credential) { hidden(credential) } else { credential.to_owned() };
        done = start + end;
    }
    shown + &text[done..]
}

/// Masks tokens that can be recognised by their form.
fn without_tokens(text: &str) -> String {
    let is_end = |char: char| !(char.is_ascii_alphanumeric() || "-_.+~".contains(char));
    let shown = |piece: &str| {
        let word = piece.trim_end_matches(is_end);
        if is_token(word) { format!("{MASK}{}", &piece[word.len()..]) } else { piece.to_owned() }
    };
    text.split_inclusive(is_end).map(shown).collect()
}

fn is_token(word: &str) -> bool {
    let begins_like_one = TOKENS.iter().any(|beginning| word.starts_with(beginning));
    begins_like_one && word.len() >= SHORTEST_TOKEN && word.bytes().any(|byte| byte.is_ascii_digit())
}

/// An address without user, password and query.
pub(super) fn address(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return text(address) };
    let (user, host_and_path) = match credentials(scheme, rest) {
        Some(length) => (
            rest[..length].split(':').next().filter(|user| !is_reference(user) && !is_long_and_mixed(user)),
            &rest[length + 1..],
        ),
        None => (None, rest),
    };
    let host_and_path = host_and_path.split(['?', '#']).next().unwrap_or_default();
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    format!("{scheme}://{user}{}", without_tokens(host_and_path))
}
