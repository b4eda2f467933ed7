//! What would change in a file, for people. All our changes are in one place, so one hunk is enough.

/// How many lines around a change are shown.
const CONTEXT: usize = 2;

/// The lines that go and those that come, with a little of what is around them.
pub(crate) fn diff(name: &str, before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
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
    lines.extend(old[from..same].iter().map(|line| format!(" {line}")));
    lines.extend(old[same..old_end].iter().map(|line| format!("-{line}")));
    lines.extend(new[same..new_end].iter().map(|line| format!("+{line}")));
    lines.extend(old[context].iter().map(|line| format!(" {line}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_shown_with_what_is_around_it() {
        let lines = diff("f", "1\n2\n3\nold\n5\n6\n7\n", "1\n2\n3\nnew\nmore\n5\n6\n7\n");
        assert_eq!(lines, ["--- f", "+++ f", "@@ -2,5 +2,6 @@", " 2", " 3", "-old", "+new", "+more", " 5", " 6"]);
        assert_eq!(diff("f", "", "a\n")[3..], ["+a"]);
        assert_eq!(diff("f", "a\na\n", "a\na\na\n")[3..], [" a", " a", "+a"]);
    }
}
