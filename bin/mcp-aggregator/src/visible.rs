//! What strangers wrote, as it may stand on a terminal: what would steer it, or turn a line around, is seen and not obeyed.
//!
//! The console shows the same signs: `␛` for an escape, `⟨U+202E⟩` for what has no picture.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with its lines and tabs, and with signs for everything else that is no letter to look at.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|letter| is_unseen(letter) || (letter.is_control() && !matches!(letter, '\n' | '\t'))) {
        return Cow::Borrowed(text);
    }
    // The end of a line on Windows is one here, too; alone, it would write over what is there.
    let text = text.replace("\r\n", "\n");
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => shown.push(letter),
            letter if letter.is_control() || is_unseen(letter) => push_sign(&mut shown, letter),
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// The same for JSON, which stays what it is: such letters can only be in its texts, where they may be written otherwise.
pub(crate) fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        if matches!(letter, '\n' | '\t' | '\r') || !(letter.is_control() || is_unseen(letter)) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            write!(shown, "\\u{unit:04x}").expect("writing to a string cannot fail");
        }
    }
    shown
}

/// Writes the sign for a letter that is not to be obeyed.
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

/// What is not seen, but changes how the rest is: directions, lines of another kind, words within words.
pub(crate) fn is_unseen(letter: char) -> bool {
    matches!(letter,
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
    use super::*;

    #[test]
    fn a_stranger_steers_no_terminal_and_turns_no_line_around() {
        assert_eq!(visible("a\u{1b}]0;t\u{7}b\0\u{202e}c\u{9b}2J\u{7f}\rd"), "a␛]0;t␇b␀⟨U+202E⟩c⟨U+009B⟩2J␡␍d");
        assert_eq!(visible("hidden\u{e0041}"), "hidden⟨U+E0041⟩");
    }

    #[test]
    fn letters_lines_and_tabs_stay_as_they_are() {
        let text = "é 日本 👩\u{200d}💻\n\tend\n";
        assert!(matches!(visible(text), Cow::Borrowed(same) if same == text));
        assert_eq!(visible("a\r\nb"), "a\r\nb".replace('\r', ""));
    }

    #[test]
    fn json_says_the_same_with_other_letters() {
        let json = "{\"a\": \"x\u{202e}\u{7f}\u{e0041}\"}\n";
        let shown = visible_json(json);
        assert_eq!(shown, "{\"a\": \"x\\u202e\\u007f\\udb40\\udc41\"}\n");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(json));
    }
}
