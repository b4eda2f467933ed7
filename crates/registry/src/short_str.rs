//! Strings that are usually short. Every call has one, and a heap allocation would cost more than the text.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Texts of up to this many bytes need no allocation.
const INLINE_LEN: usize = 22;

/// A string that is usually short.
#[derive(Clone, PartialEq, Eq)]
pub struct ShortStr(Repr);

#[derive(Clone, PartialEq, Eq)]
enum Repr {
    Inline(u8, [u8; INLINE_LEN]),
    Heap(Arc<str>),
}

impl From<&str> for ShortStr {
    fn from(text: &str) -> Self {
        let mut bytes = [0; INLINE_LEN];
        let (Some(place), Ok(length)) = (bytes.get_mut(..text.len()), u8::try_from(text.len())) else {
            return Self(Repr::Heap(text.into()));
        };
        place.copy_from_slice(text.as_bytes());
        Self(Repr::Inline(length, bytes))
    }
}

impl Deref for ShortStr {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Repr::Inline(length, bytes) => {
                std::str::from_utf8(&bytes[..usize::from(*length)]).expect("it was made from a text")
            }
            Repr::Heap(text) => text,
        }
    }
}

impl fmt::Debug for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl serde::Serialize for ShortStr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_string_round_trips_at_any_length() {
        for length in [0, 1, INLINE_LEN - 1, INLINE_LEN, INLINE_LEN + 1, 300] {
            let text = "ä7".repeat(length).chars().take(length).collect::<String>();
            assert_eq!(&*ShortStr::from(&*text), text);
        }
        assert_eq!(size_of::<ShortStr>(), 24);
    }
}
