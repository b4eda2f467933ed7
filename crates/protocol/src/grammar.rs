//! The JSON grammar, as functions over positions.
//!
//! Each function takes the text and a position, and returns the position after what it read, or the position of the
//! first error. Positions passed by value stay in registers, which makes walking a large message fast.

use crate::block;
use crate::scan::Malformed;

pub(crate) type Position = Result<usize, Malformed>;

/// Skips white space.
#[inline(always)]
pub(crate) fn blank(text: &[u8], mut at: usize) -> usize {
    // Few writers put white space between tokens, so the first check usually suffices.
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// Reads `byte`, and white space before it.
#[inline(always)]
pub(crate) fn this(byte: u8, text: &[u8], at: usize) -> Position {
    let at = blank(text, at);
    if text.get(at) == Some(&byte) { Ok(at + 1) } else { Err(Malformed { at }) }
}

/// Reads the value at `at`.
#[inline]
pub(crate) fn value(text: &[u8], at: usize) -> Position {
    match text.get(at) {
        Some(b'"') => string(text, at),
        Some(b'{' | b'[') => container(text, at),
        _ => scalar(text, at),
    }
}

/// Reads an object or array without recursion: depth costs one bit per level and no stack.
fn container(text: &[u8], mut at: usize) -> Position {
    let mut open = Nesting::default();
    'value: loop {
        match text.get(at) {
            Some(b'"') => at = string(text, at)?,
            Some(b'{') => {
                at = blank(text, at + 1);
                if text.get(at) != Some(&b'}') {
                    open.push(true);
                    at = blank(text, key(text, at)?);
                    continue 'value;
                }
                at += 1;
            }
            Some(b'[') => {
                at = blank(text, at + 1);
                if text.get(at) != Some(&b']') {
                    open.push(false);
                    continue 'value;
                }
                at += 1;
            }
            _ => at = scalar(text, at)?,
        }
        // A value ended: close the containers that end here, or continue with the next sibling.
        loop {
            let Some(in_object) = open.innermost() else { return Ok(at) };
            at = blank(text, at);
            match text.get(at) {
                Some(b',') => {
                    at = blank(text, at + 1);
                    if in_object {
                        at = blank(text, key(text, at)?);
                    }
                    continue 'value;
                }
                Some(b'}') if in_object => {}
                Some(b']') if !in_object => {}
                _ => return Err(Malformed { at }),
            }
            at += 1;
            open.pop();
        }
    }
}

/// Reads a key and its colon.
#[inline(always)]
fn key(text: &[u8], at: usize) -> Position {
    this(b':', text, string(text, at)?)
}

/// Reads a string.
#[inline(always)]
pub(crate) fn string(text: &[u8], at: usize) -> Position {
    if text.get(at) != Some(&b'"') {
        return Err(Malformed { at });
    }
    // Keys and most values are shorter than one block.
    if let Some(block) = text[at + 1..].first_chunk() {
        let specials = block::specials(block);
        let index = specials.trailing_zeros() as usize;
        if specials != 0 && block[index % block::SIZE] == b'"' {
            return Ok(at + 1 + index + 1);
        }
    }
    rest_of_string(text, at + 1)
}

fn rest_of_string(text: &[u8], mut at: usize) -> Position {
    'block: while let Some(block) = text[at..].first_chunk::<{ block::SIZE }>() {
        let mut specials = block::specials(block);
        while specials != 0 {
            let index = specials.trailing_zeros() as usize;
            match block[index % block::SIZE] {
                b'"' => return Ok(at + index + 1),
                b'\\' => {
                    let behind = escape(text, at + index)?;
                    if behind >= at + block::SIZE {
                        at = behind;
                        continue 'block;
                    }
                    specials &= u32::MAX << (behind - at);
                }
                _ => return Err(Malformed { at: at + index }),
            }
        }
        at += block::SIZE;
    }
    // Near the end of the text there is no whole block left.
    loop {
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = escape(text, at)?,
            None | Some(..0x20) => return Err(Malformed { at }),
            Some(_) => at += 1,
        }
    }
}

/// Reads the escape whose backslash is at `at`.
#[inline]
fn escape(text: &[u8], at: usize) -> Position {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') if text.get(at + 2..at + 6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) => {
            Ok(at + 6)
        }
        _ => Err(Malformed { at }),
    }
}

#[inline]
fn scalar(text: &[u8], at: usize) -> Position {
    match text.get(at) {
        Some(b'-' | b'0'..=b'9') => number(text, at),
        Some(b't') => word(b"true", text, at),
        Some(b'f') => word(b"false", text, at),
        Some(b'n') => word(b"null", text, at),
        _ => Err(Malformed { at }),
    }
}

#[inline]
fn number(text: &[u8], mut at: usize) -> Position {
    at += usize::from(text.get(at) == Some(&b'-'));
    at = if text.get(at) == Some(&b'0') { at + 1 } else { digits(text, at)? };
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        at += usize::from(matches!(text.get(at), Some(b'+' | b'-')));
        at = digits(text, at)?;
    }
    Ok(at)
}

/// Reads at least one digit.
#[inline(always)]
fn digits(text: &[u8], start: usize) -> Position {
    let mut at = start;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(Malformed { at }) }
}

#[inline(always)]
fn word(expected: &[u8], text: &[u8], at: usize) -> Position {
    if text[at..].starts_with(expected) { Ok(at + expected.len()) } else { Err(Malformed { at }) }
}

/// Which of the open containers are objects, one bit each; the first 64 levels need no allocation.
#[derive(Default)]
struct Nesting {
    /// The innermost levels; the deepest is the lowest bit.
    near: u64,
    depth: usize,
    /// Full words of 64 outer levels.
    far: Vec<u64>,
}

impl Nesting {
    #[inline]
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.far.push(self.near);
        }
        self.near = (self.near << 1) | u64::from(is_object);
        self.depth += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        self.near >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.near = self.far.pop().unwrap_or_default();
        }
    }

    #[inline]
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.near & 1 == 1)
    }
}
