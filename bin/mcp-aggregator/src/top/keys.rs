//! Parses the keys that were typed.

/// A supported key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Up,
    Down,
    Sort,
}

/// The keys in the input of a terminal. A single escape is the Esc key; with more bytes after it, it is another key.
pub(crate) fn read(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        let (key, length) = match (first, rest) {
            (b'q' | b'Q' | 0x03, _) | (0x1b, []) => (Some(Key::Quit), 1),
            (b'k' | b'K', _) => (Some(Key::Up), 1),
            (b'j' | b'J', _) => (Some(Key::Down), 1),
            (b's' | b'S', _) => (Some(Key::Sort), 1),
            (0x1b, [b'[' | b'O', b'A', ..]) => (Some(Key::Up), 3),
            (0x1b, [b'[' | b'O', b'B', ..]) => (Some(Key::Down), 3),
            (0x1b, [b'[' | b'O', more @ ..]) => {
                // The name of a key ends with a letter or a tilde.
                let end = more.iter().position(|byte| byte.is_ascii_alphabetic() || *byte == b'~');
                (None, 2 + end.map_or(more.len(), |end| end + 1))
            }
            _ => (None, 1),
        };
        keys.extend(key);
        bytes = &bytes[length..];
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_arrows_and_ways_out_are_understood() {
        assert_eq!(read(b"jks"), [Key::Down, Key::Up, Key::Sort]);
        assert_eq!(read(b"\x1b[A\x1bOBx"), [Key::Up, Key::Down]);
        for quit in [&b"q"[..], b"\x03", b"\x1b"] {
            assert_eq!(read(quit), [Key::Quit]);
        }
        assert_eq!(read(b"\x1b[15~\x1b[1;5Cs"), [Key::Sort], "other keys mean nothing");
    }
}
