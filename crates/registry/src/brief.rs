//! Short texts: every call has one, and memory of its own for each would cost more than the text.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// So many bytes need no memory of their own.
const HERE: usize = 22;

/// A text that is usually short.
#[derive(Clone, PartialEq, Eq)]
pub struct Brief(Kept);

#[derive(Clone, PartialEq, Eq)]
enum Kept {
    Here(u8, [u8; HERE]),
    Elsewhere(Arc<str>),
}

impl From<&str> for Brief {
    fn from(text: &str) -> Self {
        let mut bytes = [0; HERE];
        let (Some(place), Ok(length)) = (bytes.get_mut(..text.len()), u8::try_from(text.len())) else {
            return Self(Kept::Elsewhere(text.into()));
        };
        place.copy_from_slice(text.as_bytes());
        Self(Kept::Here(length, bytes))
    }
}

impl Deref for Brief {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Kept::Here(length, bytes) => {
                std::str::from_utf8(&bytes[..usize::from(*length)]).expect("it was made from a text")
            }
            Kept::Elsewhere(text) => text,
        }
    }
}

impl fmt::Debug for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl serde::Serialize for Brief {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_whatever_its_length() {
        for length in [0, 1, HERE - 1, HERE, HERE + 1, 300] {
            let text = "ä7".repeat(length).chars().take(length).collect::<String>();
            assert_eq!(&*Brief::from(&*text), text);
        }
        assert_eq!(size_of::<Brief>(), 24);
    }
}
