//! Suggestions for names that do not exist.

use crate::table::printable;

/// The maximum number of suggestions; `tools` lists all.
const MAX_SUGGESTIONS: usize = 3;
/// The maximum number of a server's tools that are named if no name is similar.
const MAX_NAMED_TOOLS: usize = 8;

/// An existing name: the full one, and the tool's own part.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) full: String,
    pub(crate) tool: String,
}

/// The known names closest to `typed`, best first.
pub(crate) fn closest(typed: &str, known: &[Known]) -> Vec<String> {
    // In a short name, two letters are half of it.
    let far = match typed.chars().count() {
        0..=4 => 1,
        length => 2.max(length / 3),
    };
    let mut near: Vec<(usize, &str)> = known
        .iter()
        // The user typed the tool's own name without the server.
        .map(|name| (distance(typed, &name.full).min(1 + distance(typed, &name.tool)), name.full.as_str()))
        .filter(|&(distance, _)| distance <= far)
        .collect();
    near.sort_by_key(|&(distance, _)| distance);
    // Next to a good match, distant ones are noise.
    let best = near.first().map_or(0, |&(distance, _)| distance);
    near.into_iter()
        .take_while(|&(distance, _)| distance <= best + 1)
        .take(MAX_SUGGESTIONS)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// ``did you mean `a`, `b` or `c`?``
pub(crate) fn question(names: &[String]) -> Option<String> {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = quoted.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        _ => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

/// Suggestions for an unknown name: ``did you mean `a`?``
pub(crate) fn among<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let known = |name: &str| Known { full: printable(name), tool: printable(name) };
    // A name that equals the typed one is no suggestion: it exists, but the service did not know it.
    question(&closest(typed, &names.filter(|&name| name != typed).map(known).collect::<Vec<_>>()))
}

/// `` `a`, `b` and 3 more``
pub(crate) fn some_of(names: &[&str]) -> Option<String> {
    let shown: Vec<String> = names.iter().take(MAX_NAMED_TOOLS).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(MAX_NAMED_TOOLS) {
        _ if names.is_empty() => None,
        0 => Some(shown.join(", ")),
        more => Some(format!("{} and {more} more", shown.join(", "))),
    }
}

/// The edit distance (Levenshtein), ignoring case.
fn distance(one: &str, other: &str) -> usize {
    let lower = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let (one, other) = (lower(one), lower(other));
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, &mine) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, &theirs) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(mine != theirs);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggested(typed: &str) -> Vec<String> {
        let known = ["git.log", "git.show", "files.read_file", "files.read_files"].map(|full| {
            let (_, tool) = full.split_once('.').unwrap();
            Known { full: full.to_owned(), tool: tool.to_owned() }
        });
        closest(typed, &known)
    }

    #[test]
    fn typos_wrong_separators_and_forgotten_servers_are_understood() {
        assert_eq!(suggested("git.lgo"), ["git.log"]);
        assert_eq!(suggested("git:show"), ["git.show"]);
        assert_eq!(suggested("Git.Log"), ["git.log"]);
        assert_eq!(suggested("read_file"), ["files.read_file", "files.read_files"]);
        assert!(suggested("postgres.query").is_empty());
        let far_behind = ["notes.echo", "notes.env", "notes.cwd"];
        assert_eq!(among("notes.ecko", far_behind.into_iter()).unwrap(), "did you mean `notes.echo`?");
    }

    #[test]
    fn the_question_reads_well() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(question(&[]), None);
        assert_eq!(question(&names(&["a"])).unwrap(), "did you mean `a`?");
        assert_eq!(question(&names(&["a", "b", "c"])).unwrap(), "did you mean `a`, `b` or `c`?");
    }

    #[test]
    fn a_server_is_found_by_a_typo_and_some_of_many_are_named() {
        let servers = ["notes", "calc", "everything"];
        assert_eq!(among("note", servers.into_iter()).unwrap(), "did you mean `notes`?");
        assert_eq!(among("postgres", servers.into_iter()), None);
        assert_eq!(among("nope", servers.into_iter()), None);
        assert_eq!(among("notes", servers.into_iter()), None, "that is what was typed");
        assert_eq!(some_of(&[]), None);
        assert_eq!(some_of(&["a"; 10]).unwrap(), format!("{} and 2 more", ["`a`"; 8].join(", ")));
    }

    #[test]
    fn distance_counts_edits() {
        for (one, other, expected) in [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("a", "A", 0)] {
            assert_eq!(distance(one, other), expected);
            assert_eq!(distance(other, one), expected);
        }
    }
}
