//! A three-way merge of JSON texts, line by line.
//!
//! The comma at the end of a line is a part of its own, because adding a member changes it in the previous line.

use std::ops::Range;

/// The maximum number of compared pairs.
const MAX_COMPARISONS: usize = 8_000_000;

/// A range of the base, and its replacement in another text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunk {
    base: Range<usize>,
    other: Range<usize>,
}

/// `base` with the changes of both texts. `None` if both changed the same lines, or if the texts differ too much to
/// compare.
pub(crate) fn merged(base: &str, one: &str, another: &str) -> Option<String> {
    let (base, one, another) = (parts(base), parts(one), parts(another));
    let ones = hunks(&base, &one)?.into_iter().map(|hunk| (hunk, &one));
    let anothers = hunks(&base, &another)?.into_iter().map(|hunk| (hunk, &another));
    let mut all: Vec<(Hunk, &Vec<&str>)> = ones.chain(anothers).collect();
    all.sort_by_key(|(hunk, _)| (hunk.base.start, hunk.base.end));
    if all.windows(2).any(|pair| is_conflict(&pair[0].0.base, &pair[1].0.base)) {
        return None;
    }
    let (mut text, mut at) = (String::new(), 0);
    for (hunk, lines) in all {
        text.extend(base[at..hunk.base.start].iter().chain(&lines[hunk.other]).copied());
        at = hunk.base.end;
    }
    text.extend(base[at..].iter().copied());
    Some(text)
}

/// The lines of a text without their ends, and the ends, with the comma if there is one.
fn parts(text: &str) -> Vec<&str> {
    let lines = text.split_inclusive('\n');
    let split = lines.flat_map(|line| {
        let content = line.trim_end_matches(['\r', '\n']);
        let (content, end) = line.split_at(content.strip_suffix(',').unwrap_or(content).len());
        [content, end]
    });
    split.filter(|part| !part.is_empty()).collect()
}

/// Whether two changes, in order of their start, touch. Two insertions at the same position have no order.
fn is_conflict(first: &Range<usize>, second: &Range<usize>) -> bool {
    second.start < first.end || (first.is_empty() && first == second)
}

/// The weight of a common part: line ends say little, because every line has one.
fn weight(part: &str) -> u32 {
    if part.trim_matches([',', '\r', '\n']).is_empty() { 1 } else { 16 }
}

/// The difference between `old` and `new`, by a longest common subsequence of their lines.
fn hunks(old: &[&str], new: &[&str]) -> Option<Vec<Hunk>> {
    let head = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old_middle, new_middle) = (&old_rest[..old_rest.len() - tail], &new_rest[..new_rest.len() - tail]);
    let width = new_middle.len() + 1;
    if old_middle.len().saturating_add(1).saturating_mul(width) > MAX_COMPARISONS {
        return None;
    }
    // The weight of the common parts after each pair of positions.
    let mut common = vec![0_u32; (old_middle.len() + 1) * width];
    for (row, line) in old_middle.iter().enumerate().rev() {
        for (column, other) in new_middle.iter().enumerate().rev() {
            let at = row * width + column;
            common[at] = match line == other {
                true => common[at + width + 1] + weight(line),
                false => common[at + width].max(common[at + 1]),
            };
        }
    }
    let (mut hunks, mut row, mut column) = (Vec::new(), 0, 0);
    let mut from = (0, 0);
    loop {
        let is_end = row == old_middle.len() && column == new_middle.len();
        let is_same = !is_end && old_middle.get(row).is_some_and(|line| new_middle.get(column) == Some(line));
        if is_end || is_same {
            if from != (row, column) {
                hunks.push(Hunk { base: head + from.0..head + row, other: head + from.1..head + column });
            }
            if is_end {
                return Some(hunks);
            }
            (row, column) = (row + 1, column + 1);
            from = (row, column);
        } else if column == new_middle.len()
            || (row < old_middle.len() && common[(row + 1) * width + column] >= common[row * width + column + 1])
        {
            row += 1;
        } else {
            column += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_at_different_places_are_both_made() {
        let base = "1\n2\n3\n4\n5\n";
        assert_eq!(merged(base, "1\n3\n4\n5\n", "1\n2\n3\n4\nx\n5\n").unwrap(), "1\n3\n4\nx\n5\n");
        assert_eq!(merged(base, "0\n1\n2\n3\n4\n5\n", "1\n2\nthree\n4\n").unwrap(), "0\n1\n2\nthree\n4\n");
        assert_eq!(merged(base, base, "").unwrap(), "");
        assert_eq!(merged("1\n2,\n3\n", "1\n2\n", "1\ntwo,\n3\n").unwrap(), "1\ntwo\n");
        let without_first = ("{ //\na,\nb\nc\n}\n", "{\nx, //\na\n}\n", "{ //\nA,\nb\nc\n}\n");
        assert_eq!(merged(without_first.0, without_first.1, without_first.2).unwrap(), "{\nx, //\nA\n}\n");
        assert_eq!(merged("a", "a\n", "a").unwrap(), "a\n", "also where the last line has no end");
    }

    #[test]
    fn changes_of_the_same_lines_are_not_guessed_at() {
        assert_eq!(merged("1\n2\n3\n", "1\nx\n3\n", "1\ny\n3\n"), None);
        assert_eq!(merged("1\n2\n", "1\nx\n2\n", "1\ny\n2\n"), None);
        assert_eq!(merged("1\n2\n3\n", "", "1\nx\n2\n3\n"), None);
    }

    #[test]
    fn texts_that_differ_too_much_are_not_compared() {
        let lines = |word: &str| (0..2000).map(|number| format!("{word}{number}\n")).collect::<String>();
        assert_eq!(merged(&lines("a"), &lines("b"), &lines("a")), None);
    }
}
