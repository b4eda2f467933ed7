//! The lines of a text. Lines end with `
//! `; a `\r` before it belongs to the line ending.

use std::ops::Range;

/// The lines of a text, by number, from 1.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    starts: Vec<usize>,
    length: usize,
}

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        let after_newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(place, _)| place + 1);
        Self { starts: std::iter::once(0).chain(after_newlines).collect(), length: text.len() }
    }

    /// The number of the line in which a byte stands.
    pub(crate) fn number_at(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// The number of lines. An empty one after the last newline does not count.
    pub(crate) fn count(&self) -> usize {
        match self.starts.last() {
            Some(last) if *last == self.length && self.starts.len() > 1 => self.starts.len() - 1,
            _ => self.starts.len(),
        }
    }

    /// Where a line begins; the end of the text for lines after the last.
    pub(crate) fn start(&self, number: usize) -> usize {
        self.starts.get(number - 1).copied().unwrap_or(self.length)
    }

    /// A line's bytes with its end.
    pub(crate) fn span(&self, number: usize) -> Range<usize> {
        self.start(number)..self.start(number + 1)
    }

    /// A line's bytes without its end.
    pub(crate) fn content(&self, text: &str, number: usize) -> Range<usize> {
        let span = self.span(number);
        let line = &text[span.clone()];
        let content = line.strip_suffix('\n').unwrap_or(line);
        let content = content.strip_suffix('\r').unwrap_or(content);
        span.start..span.start + content.len()
    }
}

/// A line without leading white space and quote marks.
pub(crate) fn without_container(line: &str) -> &str {
    line.trim_start_matches([' ', '\t', '>'])
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_are_counted_from_one_whatever_ends_them() {
        let text = "a\r\nb\n\nc";
        let lines = Lines::of(text);
        assert_eq!(lines.count(), 4);
        assert_eq!(&text[lines.content(text, 1)], "a");
        assert_eq!(&text[lines.span(1)], "a\r\n");
        assert_eq!(&text[lines.content(text, 4)], "c");
        assert_eq!([0, 2, 3, 5, 6].map(|offset| lines.number_at(offset)), [1, 1, 2, 3, 4]);
        assert_eq!(Lines::of("a\n").count(), 1);
        assert_eq!(Lines::of("").count(), 1);
    }
}
