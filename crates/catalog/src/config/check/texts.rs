//! Texts of a config with their variables replaced.

use super::super::Accepted;
use super::super::Variable;
use super::super::path::JsonPath;
use super::super::tree::Node;
use super::report::Wanted;
use super::{Check, Entry, Variables};
use crate::expand::{Template, TemplateWarning};
use crate::server::Filled;

/// A keyword, with its variables replaced and as it was written.
pub(super) struct Word<'a> {
    pub(super) value: String,
    /// The only form to show: a variable may contain a secret in place of a keyword.
    pub(super) written: &'a str,
}

impl Check<'_> {
    /// The text of `key`; `None` if it is absent, or unknown because its variables are not replaced.
    pub(super) fn word<'e>(&mut self, server: &Entry<'e>, key: &str) -> Option<Word<'e>> {
        let value = server.get(key)?;
        let text = self.text(&server.path.member(key), value, server.variables)?;
        let Node::String(written) = value else { return None };
        let is_unknown = server.variables == Variables::LeaveAlone && written.contains('$');
        (!is_unknown).then_some(Word { value: text, written })
    }

    /// An object of strings; `unfit` returns what is wrong with a name.
    pub(super) fn named_texts(
        &mut self,
        server: &Entry<'_>,
        key: &str,
        unfit: impl Fn(&str) -> Option<&'static str>,
    ) -> Vec<(String, String)> {
        let path = server.path.member(key);
        let entries = match server.get(key) {
            None => return Vec::new(),
            Some(Node::Object(entries)) => entries,
            Some(other) => {
                self.wrong_kind(&path, other, Wanted::NamedTexts);
                return Vec::new();
            }
        };
        self.refuse_repeated_keys(&path, entries);
        let mut texts = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            let path = path.member(name);
            if name.is_empty() {
                self.problem(&path, "has an empty name");
            } else if let Some(why) = unfit(name) {
                self.problem(&path, why);
            }
            if let Some(value) = self.text(&path, value, server.variables) {
                texts.push((name.clone(), value));
            }
        }
        texts
    }

    pub(super) fn text_not_blank(&mut self, path: &JsonPath, value: &Node, variables: Variables) -> Option<Filled> {
        let text = self.text(path, value, variables)?;
        let Node::String(written) = value else { return None };
        if !text.trim().is_empty() {
            return Some(Filled::new(text, written));
        }
        let when = if written.trim().is_empty() { "is empty" } else { "is empty after its variables are replaced" };
        self.problem(path, when);
        None
    }

    /// A string that can be passed to a program.
    pub(super) fn text(&mut self, path: &JsonPath, value: &Node, variables: Variables) -> Option<String> {
        let Node::String(raw) = value else {
            self.wrong_kind(path, value, Wanted::Text);
            return None;
        };
        let template = match Template::parse(raw) {
            Ok(template) => template,
            Err(error) => {
                self.problem(path, error.to_string());
                return None;
            }
        };
        for warning in template.warnings() {
            self.warning(path, message_about(*warning).to_owned());
        }
        let text = match variables {
            Variables::LeaveAlone => raw.clone(),
            Variables::Fill => {
                let filled = template.fill(&|name| self.variable(name));
                for name in &filled.missing {
                    let is_set = self.variable(name) == Variable::NotUtf8;
                    self.variable_is_missing(self.plain_name(name), is_set, path);
                }
                if !filled.missing.is_empty() {
                    return None;
                }
                filled.text
            }
        };
        if text.contains('\0') {
            self.problem(path, "contains a NUL character, which cannot be passed to a program");
            return None;
        }
        Some(text)
    }

    fn variable(&self, name: &str) -> Variable {
        let plain_name = self.plain_name(name);
        let variable = match (self.lookup)(name) {
            Variable::Unset => (self.lookup)(plain_name),
            known => known,
        };
        if let Variable::Set(value) = &variable {
            self.filled_in.borrow_mut().push((plain_name.to_owned(), value.clone()));
        }
        variable
    }

    /// VS Code and Cursor write `${env:NAME}`. It is accepted where their files are.
    fn plain_name<'n>(&self, name: &'n str) -> &'n str {
        match self.accepted {
            Accepted::All => name.strip_prefix("env:").unwrap_or(name),
            Accepted::StdioOnly => name,
        }
    }
}

/// The warning about text that looks like a reference; continues the path as a sentence.
fn message_about(warning: TemplateWarning) -> &'static str {
    match warning {
        TemplateWarning::Unclosed => "has a `${` that is never closed; it is passed on unchanged",
        TemplateWarning::NoName => "has a `${}` without a variable name; it is passed on unchanged",
    }
}

#[cfg(test)]
mod tests {
    use crate::{Accepted, Config, Dialect, Transport};

    fn lookup(name: &str) -> Option<String> {
        let value = match name {
            "WORD" => "hunter2",
            "TYPE" => "sse",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text.as_bytes(), Accepted::All, lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_are_filled_in_wherever_a_text_is_used() {
        let text = r#"{"servers": {
            "p": {"type": "${NOPE:-stdio}", "command": "c-$WORD", "args": ["a-${WORD}"], "env": {"E": "e-${env:WORD}"},
                  "cwd": "/${WORD}"},
            "r": {"type": "$TYPE", "url": "https://x/${env:WORD}", "headers": {"H": "h-$WORD"}}
        }}"#;
        let config = parse(text).unwrap();
        let [Transport::Stdio(program), Transport::Remote(remote)] =
            [&config.servers[0].transport, &config.servers[1].transport]
        else {
            panic!("{config:?}")
        };
        assert_eq!((program.command.value.as_str(), program.args[0].as_str()), ("c-hunter2", "a-hunter2"));
        assert_eq!(program.env, [("E".to_owned(), "e-hunter2".to_owned())]);
        assert_eq!(program.cwd.as_ref().map(|cwd| cwd.value.as_str()), Some("/hunter2"));
        assert_eq!((remote.url.value.as_str(), remote.dialect), ("https://x/hunter2", Dialect::Sse));
        assert_eq!(remote.headers, [("H".to_owned(), "h-hunter2".to_owned())]);
    }

    #[test]
    fn an_unknown_word_is_displayed_verbatim() {
        for accepted in [Accepted::All, Accepted::StdioOnly] {
            let text = r#"{"mcpServers": {"s": {"type": "$WORD", "url": "http://x"}}}"#;
            let error = Config::parse(text.as_bytes(), accepted, lookup).unwrap_err().to_string();
            assert!(error.contains("$WORD") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_unset_variable_of_vs_code_is_reported_by_its_plain_name() {
        let error = parse(r#"{"servers": {"s": {"command": "${env:NOPE} ${input:key}"}}}"#).unwrap_err();
        assert!(error.contains("NOPE is not set; used at $.servers.s.command\n"), "{error}");
        assert!(error.contains(r#""input:key" is not set"#) && error.contains("VS Code asks for"), "{error}");
    }
}
