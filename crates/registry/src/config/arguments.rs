//! Which arguments of a command are secrets. Nobody should pass them so, and everybody does.

use serde_json::Value;

use super::MASK;
use super::mask::{address, config, is_reference, names_a_secret, secret};

/// Words in the names of options and variables whose values are secrets. As a part of another word they mean nothing.
const WORDS: [&str; 11] =
    ["auth", "bearer", "cookie", "credential", "credentials", "jwt", "key", "pass", "passphrase", "pat", "pwd"];

/// Options that are followed by a header, of which only the name is shown.
const HEADERS: [&str; 2] = ["--header", "-H"];

/// Options that are followed by a variable, of which only the name is shown.
const VARIABLES: [&str; 2] = ["--env", "-e"];

/// The option that is followed by a password for some programs, and for others by a port, a version or a package.
const PERHAPS_A_PASSWORD: &str = "-p";

/// How tokens of well-known services begin.
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

/// What is shorter is a word that happens to begin like one.
const SHORTEST_TOKEN: usize = 16;

/// What the argument before says about the next.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Anything,
    Secret,
    PerhapsSecret,
    Header,
    Variable,
}

/// The arguments to be shown.
pub(super) fn arguments(items: &[Value]) -> Vec<Value> {
    let mut next = Next::Anything;
    let mut shown = Vec::with_capacity(items.len());
    for item in items {
        let this = std::mem::replace(&mut next, Next::Anything);
        shown.push(match item {
            Value::String(text) if this == Next::Secret && !text.starts_with('-') => secret(item),
            Value::String(text) if this == Next::PerhapsSecret && is_like_a_password(text) => secret(item),
            Value::String(text) => {
                next = announced(text);
                Value::String(argument(text, this))
            }
            Value::Object(members) => Value::Object(config(members)),
            other => other.clone(),
        });
    }
    shown
}

/// What follows an option.
fn announced(option: &str) -> Next {
    if HEADERS.contains(&option) {
        return Next::Header;
    }
    if VARIABLES.contains(&option) {
        return Next::Variable;
    }
    if option == PERHAPS_A_PASSWORD {
        return Next::PerhapsSecret;
    }
    let is_bare_option = option.starts_with('-') && !option.contains(['=', ':', ' ']);
    if is_bare_option && means_a_secret(option) { Next::Secret } else { Next::Anything }
}

/// Whether that is neither a port, nor a version, nor a path, nor a package of somebody's.
fn is_like_a_password(text: &str) -> bool {
    let is_number = text.chars().all(|letter| letter.is_ascii_digit() || ".:".contains(letter));
    !is_number && !text.starts_with(['-', '.', '@']) && !text.contains('/')
}

fn argument(text: &str, what: Next) -> String {
    if let Some((option, header)) = text.split_once('=')
        && HEADERS.contains(&option)
    {
        return format!("{option}={}", argument(header, Next::Header));
    }
    if let Some((name, value)) = text.split_once('=')
        && is_name(name)
        && (what == Next::Variable || means_a_secret(name))
    {
        return format!("{name}={}", hidden(value));
    }
    if let Some((name, value)) = text.split_once(':')
        && is_name(name)
        && !value.starts_with("//")
        && (what == Next::Header || means_a_secret(name))
    {
        return format!("{name}:{}", hidden(value));
    }
    address(text)
}

/// A value without what is secret of it, which is all but a reference and the space before it.
fn hidden(value: &str) -> String {
    let bare = value.trim_start();
    if is_reference(bare) {
        return value.to_owned();
    }
    format!("{}{MASK}", &value[..value.len() - bare.len()])
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
}

fn means_a_secret(name: &str) -> bool {
    let is_telling = |word: &str| WORDS.iter().any(|telling| telling.eq_ignore_ascii_case(word));
    names_a_secret(name) || name.split(|char: char| !char.is_ascii_alphanumeric()).any(is_telling)
}

/// A text without the tokens in it that can be told from their form, and without what follows a `Bearer`.
pub(super) fn without_tokens(text: &str) -> String {
    let is_end = |char: char| !(char.is_ascii_alphanumeric() || "-_.+~".contains(char));
    let shown = |piece: &str| {
        let word = piece.trim_end_matches(is_end);
        if is_token(word) { format!("{MASK}{}", &piece[word.len()..]) } else { piece.to_owned() }
    };
    without_bearer(&text.split_inclusive(is_end).map(shown).collect::<String>())
}

fn without_bearer(text: &str) -> String {
    // Lower-casing ASCII moves no byte.
    let Some(at) = text.to_ascii_lowercase().find("bearer ") else { return text.to_owned() };
    let (before, credential) = text.split_at(at + "bearer ".len());
    let end = credential.find(|char: char| char.is_whitespace() || "\"'".contains(char)).unwrap_or(credential.len());
    let (credential, after) = credential.split_at(end);
    format!("{before}{}{}", hidden(credential), without_bearer(after))
}

fn is_token(word: &str) -> bool {
    let begins_like_one = TOKENS.iter().any(|beginning| word.starts_with(beginning));
    begins_like_one && word.len() >= SHORTEST_TOKEN && word.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::arguments;

    fn shown(items: &Value) -> Value {
        Value::Array(arguments(items.as_array().unwrap()))
    }

    #[test]
    fn secrets_in_arguments_are_hidden_however_they_are_written() {
        let items = json!([
            "--header",
            "Authorization: Bearer hidden-1",
            "-H",
            "X-Anything:hidden-2",
            "--header=X-Other: hidden-3",
            "Authorization:Bearer hidden-4",
            "--auth",
            "hidden-5",
            "-e",
            "ANYTHING=hidden-6",
            "GITHUB_PAT=hidden-7",
            "sk-proj-hidden0123456789",
            "--with=ghp_hidden0123456789abcdef",
            "https://host/mcp/sk-hidden0123456789/x",
            "say Bearer hidden-8",
            "--pwd=hidden-9",
        ]);
        let shown = shown(&items);
        assert!(!shown.to_string().contains("hidden"), "{shown}");
        assert_eq!(shown[1], "Authorization: ***");
        assert_eq!(shown[3], "X-Anything:***");
        assert_eq!(shown[4], "--header=X-Other: ***");
        assert_eq!(shown[9], "ANYTHING=***");
        assert_eq!(shown[13], "https://host/mcp/***/x");
    }

    #[test]
    fn what_stands_behind_p_is_hidden_unless_it_is_a_port_or_a_package() {
        let items =
            serde_json::json!(["-p", "hunter2", "-p", "8080:80", "-p", "3.12", "-p", "@me/tool", "-p", "${PASS}"]);
        let expected =
            serde_json::json!(["-p", "***", "-p", "8080:80", "-p", "3.12", "-p", "@me/tool", "-p", "${PASS}"]);
        assert_eq!(shown(&items), expected);
    }

    #[test]
    fn what_is_no_secret_is_shown_as_it_is() {
        let items = json!([
            "-y",
            "mcp-remote",
            "https://host:8080/keys/1?page=2",
            "--header",
            "Authorization: Bearer ${TOKEN}",
            "--header",
            "Authorization:${AUTH_HEADER}",
            "-p",
            "8080:80",
            "-e",
            "NAME",
            "sk-learn-server",
            "--author",
            "me",
            "C:\\keys",
            "ein Wort: zwei",
            "--monkey=1",
            "${TOKEN}",
            "pk_2",
        ]);
        assert_eq!(shown(&items), items);
    }
}
