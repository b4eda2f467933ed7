//! The name of a note, which is the name of its file without `.md`.

use crate::ToolError;
use std::fmt;

/// File systems allow 255 bytes, of which `.md` takes three.
const MAX_NAME_LEN: usize = 200;

/// A name that cannot lead out of the folder: no separators, no leading dot, nothing invisible.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NoteName(String);

impl NoteName {
    /// Takes a name as it is, or refuses it.
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        let refuse = |why: &str| Err(ToolError::new(format!("a note cannot be named {text:?}: {why}")));
        if text.trim().is_empty() {
            return refuse("a name must not be empty");
        }
        if text.contains(['/', '\\', ':']) || text.starts_with('.') {
            return refuse("a name is not a path; use a name that `list` shows");
        }
        if text.chars().any(char::is_control) {
            return refuse("a name holds no control characters");
        }
        if text.len() > MAX_NAME_LEN {
            return refuse("it is too long");
        }
        Ok(Self(text.to_owned()))
    }

    /// Makes a name of a title: `Milk & eggs!` becomes `milk-eggs`.
    pub(crate) fn from_title(title: &str) -> Result<Self, ToolError> {
        let mut name = String::new();
        for char in title.chars().flat_map(char::to_lowercase) {
            if name.len() + char.len_utf8() > MAX_NAME_LEN {
                break;
            }
            if char.is_alphanumeric() {
                name.push(char);
            } else if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
        }
        let name = name.trim_end_matches('-');
        if name.is_empty() {
            let why = "a title needs at least one letter or digit, because the note is named after it";
            return Err(ToolError::new(why));
        }
        Self::parse(name)
    }

    pub(crate) fn file_name(&self) -> String {
        format!("{self}.md")
    }
}

impl fmt::Display for NoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, Path};

    const HOSTILE: &[&str] = &[
        "../up",
        "..",
        ".",
        "/etc/passwd",
        "a/b",
        "a\\..\\b",
        "..\\up",
        "C:evil",
        "a\0b",
        "a\nb",
        ".hidden",
        "",
        "   ",
        "~/x/../y",
    ];

    #[test]
    fn names_that_are_paths_are_refused() {
        for text in HOSTILE {
            assert!(NoteName::parse(text).is_err(), "{text:?}");
        }
        assert!(NoteName::parse(&"x".repeat(300)).is_err());
    }

    #[test]
    fn names_written_by_hand_are_taken() {
        for text in ["Meeting 3 May", "日記", "a..b", "v1.2", "~", "-rf"] {
            assert_eq!(NoteName::parse(text).expect("a name").to_string(), text);
        }
    }

    #[test]
    fn a_title_becomes_a_plain_file_name() {
        for (title, name) in [
            ("Milk & eggs!", "milk-eggs"),
            ("  Über Straße  ", "über-straße"),
            ("../../etc/passwd", "etc-passwd"),
            ("日記 2024", "日記-2024"),
        ] {
            assert_eq!(NoteName::from_title(title).expect("a name").to_string(), name);
        }
        for title in ["", "...", "/", "!?"] {
            assert!(NoteName::from_title(title).is_err(), "{title:?}");
        }
    }

    #[test]
    fn whatever_is_accepted_is_one_plain_file() {
        let long = "ß".repeat(500);
        for text in HOSTILE.iter().chain(&[long.as_str(), "İstanbul", "ok"]) {
            for name in [NoteName::parse(text), NoteName::from_title(text)].into_iter().flatten() {
                let file = name.file_name();
                let parts: Vec<Component<'_>> = Path::new(&file).components().collect();
                assert!(matches!(parts[..], [Component::Normal(_)]), "{file:?}");
                assert!(file.len() <= 255, "{file:?}");
            }
        }
    }

    #[test]
    fn the_name_of_a_name_is_the_name() {
        for title in ["Milk & eggs!", "İstanbul", "ǅ", "a  -- b"] {
            let once = NoteName::from_title(title).expect("a name");
            assert_eq!(NoteName::from_title(&once.to_string()).expect("a name"), once);
        }
    }
}
