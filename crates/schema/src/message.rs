//! Error messages of bounded length.

use std::fmt::{self, Display, Write};

use serde_json::Value;

/// A message is cut after so many characters.
const LONGEST_MESSAGE: usize = 300;

/// So many of the values of an `enum` are named, if there are not more.
const MAX_NAMED: usize = 3;

/// Something that is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where it is wrong: the names of members and the numbers of items that lead there.
    pub path: Vec<String>,
    /// What is wrong, in a sentence.
    pub message: String,
    /// The first member that should not be there, if that is what is wrong.
    pub unexpected: Option<String>,
    /// The types that were expected, if another type is what is wrong.
    pub expected_types: Vec<&'static str>,
}

/// A text that takes no more than so many characters.
struct Clipped {
    text: String,
    left: usize,
}

impl Write for Clipped {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        match part.char_indices().nth(self.left) {
            Some((end, _)) => {
                self.text.push_str(&part[..end]);
                self.text.push('…');
                self.left = 0;
                Err(fmt::Error)
            }
            None => {
                self.left -= part.chars().count();
                self.text.push_str(part);
                Ok(())
            }
        }
    }
}

/// Writes a message until it is full.
pub(crate) fn clipped(arguments: fmt::Arguments<'_>) -> String {
    let mut clipped = Clipped { text: String::new(), left: LONGEST_MESSAGE };
    // The error says that it is full, which is no problem.
    clipped.write_fmt(arguments).ok();
    clipped.text
}

/// `1 item`, `2 items`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `'a', 'b' were unexpected`.
pub(crate) struct Unexpected<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for Unexpected<'_, T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            write!(to, "{}'{item}'", if index == 0 { "" } else { ", " })?;
        }
        to.write_str(if self.0.len() == 1 { " was unexpected" } else { " were unexpected" })
    }
}

/// `"a", "b" or 3 other candidates`.
pub(crate) struct Options<'a>(pub(crate) &'a [Value]);

impl Display for Options<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.len();
        let named = if all <= MAX_NAMED { all } else { MAX_NAMED - 1 };
        for (index, option) in self.0.iter().take(named).enumerate() {
            let before = match index {
                0 => "",
                index if index + 1 == all => " or ",
                _ => ", ",
            };
            write!(to, "{before}{option}")?;
        }
        if named < all { write!(to, " or {} other candidates", all - named) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Options, Unexpected, clipped};

    #[test]
    fn messages_end_whatever_is_put_into_them() {
        assert_eq!(clipped(format_args!("{} is long", json!("a"))), "\"a\" is long");
        let long = clipped(format_args!("{}", json!(vec!["é"; 100_000])));
        assert!(long.ends_with('…') && long.chars().count() == 301, "{}", long.len());
    }

    #[test]
    fn lists_read_like_sentences() {
        let options = |values: serde_json::Value| Options(values.as_array().expect("a list")).to_string();
        assert_eq!(options(json!(["C", "F"])), "\"C\" or \"F\"");
        assert_eq!(options(json!([1, 2, 3])), "1, 2 or 3");
        assert_eq!(options(json!([1, 2, 3, 4])), "1, 2 or 2 other candidates");
        assert_eq!(Unexpected(&["a"]).to_string(), "'a' was unexpected");
        assert_eq!(Unexpected(&["a", "b"]).to_string(), "'a', 'b' were unexpected");
    }
}
