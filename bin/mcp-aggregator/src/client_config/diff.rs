//! The difference between two versions of a file, for display. All our changes are adjacent, so one hunk suffices.

/// The number of context lines.
const CONTEXT: usize = 2;

/// A text, and its masked version, line by line.
pub(crate) struct Side<'t> {
    pub(crate) text: &'t str,
    pub(crate) shown: &'t str,
}

/// The removed and added lines, with context.
pub(crate) fn diff(name: &str, before: &Side<'_>, after: &Side<'_>) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.text.lines().collect(), after.text.lines().collect());
    let same = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let left = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(left).take_while(|(one, other)| one == other).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let from = same.saturating_sub(CONTEXT);
    let context = old_end..(old_end + CONTEXT).min(old.len());
    let mut lines = vec![
        format!("--- {name}"),
        format!("+++ {name}"),
        format!("@@ -{},{} +{},{} @@", from + 1, context.end - from, from + 1, new_end + context.len() - from),
    ];
    let (old, new): (Vec<&str>, Vec<&str>) = (before.shown.lines().collect(), after.shown.lines().collect());
    lines.extend(old[from..same].iter().map(|line| format!(" {line}")));
    lines.extend(old[same..old_end].iter().map(|line| format!("-{line}")));
    lines.extend(new[same..new_end].iter().map(|line| format!("+{line}")));
    lines.extend(old[context].iter().map(|line| format!(" {line}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(before: &str, after: &str) -> Vec<String> {
        diff("f", &Side { text: before, shown: before }, &Side { text: after, shown: after })
    }

    #[test]
    fn added_and_removed_lines_are_displayed_with_context() {
        let lines = plain("1\n2\n3\nold\n5\n6\n7\n", "1\n2\n3\nnew\nmore\n5\n6\n7\n");
        assert_eq!(lines, ["--- f", "+++ f", "@@ -2,5 +2,6 @@", " 2", " 3", "-old", "+new", "+more", " 5", " 6"]);
        assert_eq!(plain("", "a\n")[3..], ["+a"]);
        assert_eq!(plain("a\na\n", "a\na\na\n")[3..], [" a", " a", "+a"]);
        let secret = |text| Side { text, shown: "***" };
        assert_eq!(diff("f", &secret("old"), &secret("new"))[3..], ["-***", "+***"], "that it changes is seen");
    }
}
