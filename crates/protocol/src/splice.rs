//! A message with a few spans replaced, written without copying the rest.

use crate::scan::Span;

/// A span, and its replacement in the outgoing message.
#[derive(Debug, Clone, Copy)]
pub struct Edit<'e> {
    /// The span that is replaced.
    pub span: Span,
    /// The replacement.
    pub with: &'e [u8],
}

/// A piece of the outgoing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'e> {
    /// These bytes of the line, unchanged.
    Kept(Span),
    /// New bytes.
    New(&'e [u8]),
}

/// Sorts edits as [`splice`] requires.
#[inline]
pub fn in_order<'s, 'e>(edits: &'s mut [Edit<'e>]) -> &'s [Edit<'e>] {
    edits.sort_unstable_by_key(|edit| edit.span.start);
    edits
}

/// Calls `write` with the pieces of a message of `length` bytes in order. The edits are sorted and do not overlap.
#[inline]
pub fn splice<'e>(length: usize, edits: &[Edit<'e>], mut write: impl FnMut(Piece<'e>)) {
    debug_assert!(edits.is_sorted_by_key(|edit| edit.span.start), "edits must stand in order");
    let mut kept_from = 0;
    for edit in edits {
        if edit.span.start > kept_from {
            write(Piece::Kept(Span { start: kept_from, end: edit.span.start }));
        }
        write(Piece::New(edit.with));
        kept_from = edit.span.end;
    }
    if kept_from < length {
        write(Piece::Kept(Span { start: kept_from, end: length }));
    }
}

/// Appends a message with edits applied to `out`. The edits are sorted and do not overlap.
#[inline]
pub fn append_spliced(line: &[u8], edits: &[Edit<'_>], out: &mut Vec<u8>) {
    splice(line.len(), edits, |piece| match piece {
        Piece::Kept(span) => out.extend_from_slice(span.of(line)),
        Piece::New(bytes) => out.extend_from_slice(bytes),
    });
}

/// A message with edits applied. The edits are sorted and do not overlap.
#[inline]
pub fn spliced(line: &[u8], edits: &[Edit<'_>]) -> Vec<u8> {
    // Replacements are seldom much longer than what they replace.
    let mut out = Vec::with_capacity(line.len() + 32);
    append_spliced(line, edits, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spliced(line: &[u8], edits: &mut [Edit<'_>]) -> String {
        String::from_utf8(super::spliced(line, in_order(edits))).unwrap()
    }

    fn edit(start: usize, end: usize, with: &[u8]) -> Edit<'_> {
        Edit { span: Span { start, end }, with }
    }

    #[test]
    fn replaces_spans_in_any_order_and_keeps_the_rest() {
        assert_eq!(spliced(b"0123456789", &mut [edit(7, 9, b"B"), edit(2, 5, b"aaaa")]), "01aaaa56B9");
        assert_eq!(spliced(b"0123", &mut [edit(0, 1, b"x"), edit(3, 4, b"y")]), "x12y");
        assert_eq!(spliced(b"0123", &mut []), "0123");
        assert_eq!(spliced(b"", &mut []), "");
    }
}
