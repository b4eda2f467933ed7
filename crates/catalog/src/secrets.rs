//! The secrets of a server, and texts without them.
//!
//! A server may write anything to stderr or in an error, including its own credentials. They are known: the values of
//! `env` and headers, and of the variables in its config.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::container::Contact;
use crate::mask::{self, MASK};
use crate::server::Transport;

/// Shorter values occur in any text, and are not secrets.
const MIN_SECRET_LEN: usize = 6;

/// Common variables: hiding their values would hide what a message is about.
const NO_SECRETS: [&str; 12] =
    ["PATH", "HOME", "PWD", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TERM", "TMPDIR", "HOSTNAME", "NODE_ENV"];

/// Schemes of credentials: what follows is the secret.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// The secrets of one server, longest first.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secrets(Arc<[Box<str>]>);

impl Secrets {
    /// The values that a server is given, and the variables in its config, by name and value.
    pub(crate) fn of<'v>(transport: &'v Transport, variables: impl Iterator<Item = (&'v str, &'v str)>) -> Self {
        let none: &[(String, String)] = &[];
        let (env, headers) = match transport {
            Transport::Stdio(program) => (program.env.as_slice(), none),
            Transport::Remote(remote) => (none, remote.headers.as_slice()),
            Transport::Container(container) => match &container.contact {
                Contact::Http { headers, .. } => (container.env.as_slice(), headers.as_slice()),
                Contact::Stdio => (container.env.as_slice(), none),
            },
        };
        let found = match transport {
            Transport::Stdio(program) => in_arguments(&program.command.value, &program.args),
            Transport::Remote(remote) => {
                let secret = remote.oauth.as_ref().and_then(|oauth| oauth.client_secret.clone());
                mask::replaced(&remote.url.value, &mask::text(&remote.url.value)).into_iter().chain(secret).collect()
            }
            // The image decides what its arguments mean.
            Transport::Container(container) => in_arguments("", &container.args),
        };
        let given = env.iter().chain(headers).map(|(name, value)| (name.as_str(), value.as_str())).chain(variables);
        let is_usual = |name: &str| NO_SECRETS.iter().any(|usual| usual.eq_ignore_ascii_case(name));
        let given = given.filter(|(name, _)| !is_usual(name)).map(|(_, value)| value);
        Self::default().with(given.chain(found.iter().map(String::as_str)))
    }

    /// Adds further secrets.
    #[must_use]
    pub fn with<'s>(&self, more: impl IntoIterator<Item = &'s str>) -> Self {
        let credential = |text: &'s str| SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        let more = more.into_iter().map(|text| credential(text.trim()).trim());
        // A server that logs JSON writes them with escapes.
        let written = |text: &'s str| [Some(Box::from(text)), as_in_json(text)].into_iter().flatten();
        let mut all: Vec<Box<str>> = self.0.iter().cloned().chain(more.flat_map(written)).collect();
        all.retain(|secret| secret.chars().count() >= MIN_SECRET_LEN);
        // One may be a part of another.
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Self(all.into())
    }

    /// The text with every secret replaced.
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in &*self.0 {
            if shown.contains(&**secret) {
                shown = Cow::Owned(shown.replace(&**secret, MASK));
            }
            if let Some(at) = cut_off(&shown, secret) {
                shown = Cow::Owned(format!("{}{MASK}", &shown[..at]));
            }
        }
        shown
    }
}

/// A secret as it is written in JSON, if that differs.
fn as_in_json(secret: &str) -> Option<Box<str>> {
    let mut written = Vec::new();
    protocol::text::encode_inner(secret, &mut written);
    String::from_utf8(written).ok().filter(|written| written != secret).map(String::into_boxed_str)
}

/// The secrets among the arguments of a command.
fn in_arguments(command: &str, arguments: &[String]) -> Vec<String> {
    let shown = mask::arguments(command, arguments);
    arguments.iter().zip(&shown).flat_map(|(argument, shown)| mask::replaced(argument, shown)).collect()
}

/// Where a truncated text ends with the start of a secret.
fn cut_off(text: &str, secret: &str) -> Option<usize> {
    let ends: Vec<usize> = secret.char_indices().map(|(at, _)| at).skip(MIN_SECRET_LEN).collect();
    ends.into_iter().rev().find(|&end| text.ends_with(&secret[..end])).map(|end| text.len() - end)
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} hidden]", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Accepted, Config};

    use super::*;

    fn of(server: &str) -> Secrets {
        let text = format!(r#"{{"mcpServers": {{"x": {server}}}}}"#);
        let lookup = |name: &str| match name {
            "KEY" => Some("filled-in-1".to_owned()),
            "HOME" => Some("/home/somebody".to_owned()),
            _ => None,
        };
        let config = Config::parse(text.as_bytes(), Accepted::All, lookup).unwrap();
        config.servers[0].secrets.clone()
    }

    #[test]
    fn configured_secrets_are_masked_in_server_output() {
        let secrets = of(r#"{"command": "x", "args": ["${KEY}", "$HOME/x"], "env": {"A": "hunter2", "B": "short"}}"#);
        assert_eq!(secrets.hide("bad token hunter2, filled-in-1"), "bad token ***, ***");
        assert_eq!(secrets.hide("too short in /home/somebody/x"), "too short in /home/somebody/x");
        assert_eq!(format!("{secrets:?}"), "[2 hidden]");
    }

    #[test]
    fn secrets_in_arguments_and_addresses_are_known_too() {
        let secrets =
            of(r#"{"command": "x", "args": ["--password", "hunter2", "-u", "me:swordfish", "--port", "808080"]}"#);
        assert_eq!(secrets.hide("hunter2 swordfish 808080"), "*** *** 808080");
        let secrets = of(r#"{"url": "https://x/y?sig=swordfish"}"#);
        assert_eq!(secrets.hide("got swordfish"), "got ***");
    }

    #[test]
    fn a_credential_is_hidden_without_its_scheme_too() {
        let secrets = of(r#"{"url": "http://x", "headers": {"Authorization": "Bearer hunter2"}}"#);
        assert_eq!(secrets.hide("you sent Bearer hunter2 (hunter2)"), "you sent Bearer *** (***)");
    }

    #[test]
    fn a_secret_is_hidden_in_json_too() {
        let secrets = Secrets::default().with([r#"hun"ter\2"#]);
        let logged = serde_json::json!({"level": "info", "password": r#"hun"ter\2"#}).to_string();
        assert_eq!(secrets.hide(&logged), r#"{"level":"info","password":"***"}"#);
    }

    #[test]
    fn a_longer_secret_is_hidden_whole_and_a_cut_one_as_far_as_it_goes() {
        let secrets = Secrets::default().with(["hunter2", "hunter2-and-more"]);
        assert_eq!(secrets.hide("hunter2-and-more!"), "***!");
        assert_eq!(secrets.hide("hunter2-and-m"), "***");
        assert_eq!(secrets.hide("a hunt"), "a hunt");
    }
}
