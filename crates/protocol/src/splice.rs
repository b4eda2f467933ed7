//! A message with a few spans replaced, ready to be written without copying the rest.

use crate::scan::Span;

/// One span and what stands in its place in the outgoing message.
#[derive(Debug, Clone, Copy)]
pub struct Edit<'e> {
    /// What goes.
    pub span: Span,
    /// What comes.
    pub with: &'e [u8],
}

/// A stretch of the outgoing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'e> {
    /// These bytes of the line, untouched.
    Kept(Span),
    /// New bytes.
    New(&'e [u8]),
}

/// Puts edits into the order in which [`splice`] wants them.
#[inline]
pub fn in_order<'s, 'e>(edits: &'s mut [Edit<'e>]) -> &'s [Edit<'e>] {
    edits.sort_unstable_by_key(|edit| edit.span.start);
    edits
}

/// Calls `write` with the pieces of a message of `length` bytes in order. The edits stand in order and do not overlap.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spliced(line: &[u8], edits: &mut [Edit<'_>]) -> String {
        let mut out = Vec::new();
        splice(line.len(), in_order(edits), |piece| match piece {
            Piece::Kept(span) => out.extend_from_slice(span.of(line)),
            Piece::New(bytes) => out.extend_from_slice(bytes),
        });
        String::from_utf8(out).unwrap()
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
