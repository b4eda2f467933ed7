//! Makes text of others safe for a terminal or a log: control characters and direction marks are displayed instead of
//! taking effect.
//!
//! `␛` stands for an escape, `␊` for a line end within a line, `⟨U+202E⟩` for an invisible character. JSON does not
//! need this, because it has its own escapes.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes `text`, but keeps line ends and tabs.
pub fn multi_line(text: &str) -> Cow<'_, str> {
    let is_kept = |letter: char| matches!(letter, '\n' | '\t');
    if !text.chars().any(|letter| is_unseen(letter) && !is_kept(letter)) {
        return Cow::Borrowed(text);
    }
    // A Windows line end counts as one line end; a carriage return alone would overwrite the line.
    Cow::Owned(with_signs(&text.replace("\r\n", "\n"), is_kept))
}

/// Escapes `text` to one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unseen) { Cow::Owned(with_signs(text, |_| false)) } else { Cow::Borrowed(text) }
}

/// Equivalent JSON: such characters can only occur in its strings, where they can be written as escapes.
pub fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '\n' | '\t' | '\r') || !is_unseen(letter) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            write!(shown, "\\u{unit:04x}").expect("writing to a string cannot fail");
        }
    }
    shown
}

fn with_signs(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_unseen(letter) && !is_kept(letter) {
            push_sign(&mut shown, letter);
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Appends the sign for a character that must not take effect.
pub(crate) fn push_sign(shown: &mut String, letter: char) {
    let picture = match letter {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(letter)),
        '\u{7f}' => Some('\u{2421}'),
        _ => None,
    };
    match picture {
        Some(picture) => shown.push(picture),
        None => write!(shown, "⟨U+{:04X}⟩", u32::from(letter)).expect("writing to a string cannot fail"),
    }
}

/// Whether a character is invisible, but changes how others are displayed: controls, directions, special line ends,
/// tags. Joiners (in Persian, in Hindi, in emoji) are not among them.
pub fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{61c}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stranger_steers_no_terminal_and_turns_no_line_around() {
        let text = "a\u{1b}]0;t\u{7}b\0\u{202e}c\u{9b}2J\u{7f}\rd\n\te";
        assert_eq!(multi_line(text), "a␛]0;t␇b␀⟨U+202E⟩c⟨U+009B⟩2J␡␍d\n\te");
        assert_eq!(one_line(text), "a␛]0;t␇b␀⟨U+202E⟩c⟨U+009B⟩2J␡␍d␊␉e");
        assert_eq!(one_line("hidden\u{e0041}"), "hidden⟨U+E0041⟩");
    }

    #[test]
    fn letters_lines_and_tabs_stay_as_they_are() {
        let text = "é 日本 👩\u{200d}💻\n\tend\n";
        assert!(matches!(multi_line(text), Cow::Borrowed(same) if same == text));
        assert_eq!(multi_line("a\r\nb\u{7f}"), "a\nb␡");
        assert!(matches!(one_line("plain é"), Cow::Borrowed("plain é")));
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let text = "{\"a\": \"x\u{202e}\u{7f}\u{e0041}\"}\n";
        assert_eq!(json(text), "{\"a\": \"x\\u202e\\u007f\\udb40\\udc41\"}\n");
    }

    proptest! {
        #[test]
        fn no_invisible_character_remains_unescaped(text in any::<String>()) {
            prop_assert!(!one_line(&text).chars().any(is_unseen));
            prop_assert!(!multi_line(&text).chars().any(|letter| is_unseen(letter) && !matches!(letter, '\n' | '\t')));
            prop_assert!(!json(&text).chars().any(|letter| is_unseen(letter) && !matches!(letter, '\n' | '\t' | '\r')));
        }
    }
}
