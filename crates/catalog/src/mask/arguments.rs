//! Finds secrets among the arguments of a command. They should not be there, but often are.

use serde_json::Value;

use super::names::means_a_secret;
use super::text::{text, unnamed};
use super::wrappers::{announces_script, own_arguments, words};
use super::{config, hidden, is_reference, secret};

/// Options that take a header, of which only the name is shown.
const HEADERS: [&str; 2] = ["--header", "-H"];

/// Options that take a variable, of which only the name is shown.
const VARIABLES: [&str; 2] = ["--env", "-e"];

/// Options that take a user, for some programs with a password after a colon.
const USERS: [&str; 4] = ["--user", "-u", "--proxy-user", "-U"];

/// The option that takes credentials for some programs, and nothing for others.
const BASIC: &str = "--basic";

/// The option that takes a password for some programs, and for others a port, a version or a package.
const PERHAPS_A_PASSWORD: &str = "-p";

/// Options of several letters after one dash that start like `-pSECRET`.
const WORDS_WITH_P: [&str; 30] = [
    "package", "packages", "page", "parallel", "param", "params", "patch", "path", "paths", "pattern", "pid", "pipe",
    "platform", "plugin", "plugins", "policy", "pool", "port", "ports", "prefix", "preset", "pretty", "print", "prod",
    "profile", "progress", "project", "protocol", "provider", "proxy",
];

/// What an argument means for the next one.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Anything,
    Secret,
    /// Unless it is an address.
    Basic,
    PerhapsSecret,
    Header,
    Variable,
    User,
    /// A script for a shell.
    Script,
}

/// The arguments of `command` for display.
pub(super) fn arguments(command: Option<&str>, items: &[Value]) -> Vec<Value> {
    let own = own_arguments(command, items);
    let mut next = Next::Anything;
    let mut before = command;
    let mut shown = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let may_be_password = index >= own;
        let shell = std::mem::replace(&mut before, item.as_str());
        let this = std::mem::replace(&mut next, Next::Anything);
        shown.push(match item {
            Value::String(text) if this == Next::Secret && !text.starts_with('-') => secret(item),
            Value::String(text) if this == Next::Basic && !text.starts_with('-') && !text.contains("://") => {
                secret(item)
            }
            Value::String(text) if this == Next::PerhapsSecret && is_like_a_password(text) => secret(item),
            Value::String(text) if this == Next::Script => Value::String(script(text)),
            Value::String(text) => {
                next = announced(text, may_be_password);
                if shell.is_some_and(|shell| announces_script(shell, text)) {
                    next = Next::Script;
                }
                Value::String(argument(text, this, may_be_password))
            }
            Value::Object(members) => Value::Object(config(members)),
            Value::Array(items) => Value::Array(arguments(None, items)),
            other => other.clone(),
        });
    }
    shown
}

/// A shell script for display: each of its commands like its arguments.
fn script(script: &str) -> String {
    let words = words(script);
    let mut written = String::with_capacity(script.len());
    let mut done = 0;
    for command in words.chunk_by(|_, next| !next.begins_command) {
        let items: Vec<Value> = command.iter().map(|word| Value::String(word.text.clone())).collect();
        // Assignments before the first word belong to no program yet.
        let program = items.iter().position(|item| item.as_str().is_some_and(|text| !text.contains('=')));
        let (variables, rest) = items.split_at(program.unwrap_or(items.len()));
        let mut shown = arguments(None, variables);
        if let Some((program, rest)) = rest.split_first() {
            shown.push(Value::String(text(program.as_str().unwrap_or_default())));
            shown.extend(arguments(program.as_str(), rest));
        }
        for (word, shown) in command.iter().zip(shown) {
            let shown = shown.as_str().unwrap_or_default();
            if shown == word.text {
                continue;
            }
            written += &script[done..word.start];
            let quote = word.quote.map(String::from).unwrap_or_default();
            written += &format!("{quote}{shown}{quote}");
            done = word.end;
        }
    }
    // Some secrets are recognised only by their context.
    unnamed(&(written + &script[done..]))
}

/// What an option means for the next argument.
fn announced(option: &str, may_be_password: bool) -> Next {
    let is_bare_option = option.starts_with('-') && !option.contains(['=', ':', ' ']);
    match option {
        option if HEADERS.contains(&option) => Next::Header,
        option if VARIABLES.contains(&option) => Next::Variable,
        option if USERS.contains(&option) => Next::User,
        BASIC => Next::Basic,
        PERHAPS_A_PASSWORD if may_be_password => Next::PerhapsSecret,
        option if is_bare_option && means_a_secret(option) => Next::Secret,
        _ => Next::Anything,
    }
}

/// Whether it is not a port, a version, a path, or the name of a package.
fn is_like_a_password(text: &str) -> bool {
    let is_number = text.chars().all(|letter| letter.is_ascii_digit() || ".:-".contains(letter));
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_host = host.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-[]:".contains(letter));
        is_host && !port.is_empty() && port.chars().all(|digit| digit.is_ascii_digit())
    });
    !is_number && !has_port && !text.starts_with(['-', '.', '@', '~', '=']) && !text.contains('/')
}

fn argument(argument: &str, what: Next, may_be_password: bool) -> String {
    // The value may be part of its option: `--header=X: y`, `-HX: y`.
    if let Some((option, value, next)) = attached(argument) {
        return format!("{option}{}", self::argument(value, next, false));
    }
    if may_be_password
        && let Some(password) = argument.strip_prefix(PERHAPS_A_PASSWORD)
        && is_attached_password(password)
    {
        return format!("{PERHAPS_A_PASSWORD}{}", hidden(password));
    }
    if what == Next::User
        && let Some((user, password)) = argument.split_once(':')
        && !password.starts_with("//")
    {
        // `1000:1000` is a user and a group.
        let is_group = [user, password].iter().all(|part| part.chars().all(|digit| digit.is_ascii_digit()));
        return if is_group { argument.to_owned() } else { format!("{user}:{}", hidden(password)) };
    }
    if let Some((name, value)) = argument.split_once('=')
        && is_name(name)
        && (what == Next::Variable || means_a_secret(name) && !value.contains(';'))
    {
        return format!("{name}={}", hidden(value));
    }
    if let Some((name, value)) = argument.split_once(':')
        && is_name(name)
        && !value.starts_with("//")
        && (what == Next::Header || means_a_secret(name))
    {
        return format!("{name}:{}", hidden(value));
    }
    text(argument)
}

/// An option and its attached value, with its meaning.
fn attached(argument: &str) -> Option<(&str, &str, Next)> {
    let kinds = [(&HEADERS[..], Next::Header), (&VARIABLES[..], Next::Variable), (&USERS[..], Next::User)];
    kinds.into_iter().find_map(|(options, next)| {
        let option = options.iter().find(|option| argument.starts_with(**option))?;
        let is_long = option.starts_with("--");
        let length = option.len() + usize::from(argument[option.len()..].starts_with('='));
        // A short option may be followed by its value directly, if it looks like one.
        let is_value = |value: &str| match next {
            Next::Variable => value.split_once('=').is_some_and(|(name, _)| is_name(name)),
            _ => value.contains(':'),
        };
        let (option_text, value) = argument.split_at(length);
        let is_attached = length > option.len() || !is_long && is_value(value);
        (is_attached && !value.is_empty()).then_some((option_text, value, next))
    })
}

/// Whether the text after `-p` is a password, and not a port, further options, or the rest of a word.
fn is_attached_password(text: &str) -> bool {
    let word = text.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap_or_default();
    let is_word = WORDS_WITH_P.iter().any(|known| known[1..] == *word);
    let is_options = text.len() <= 2 && text.chars().all(|letter| letter.is_ascii_lowercase());
    !text.is_empty() && !is_word && !is_options && is_like_a_password(text) && !is_reference(text)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
}
