//! Matches the path of a document with the pattern of a binding.

use crate::binding::Binding;

/// The limit of characters of a pattern. Longer ones match nothing.
pub const MAX_PATTERN_LENGTH: usize = 1024;
/// The limit of bytes of a path, as on Linux.
const MAX_PATH_BYTES: usize = 4096;

/// The bindings for this document. For the same part, paths take precedence over patterns, and longer patterns over
/// shorter ones.
pub fn bindings_for(path: &str, all: impl IntoIterator<Item = (String, Binding)>) -> Vec<Binding> {
    let mut found: Vec<(String, Binding)> =
        all.into_iter().filter(|(pattern, _)| matches_path(pattern, path)).collect();
    found.sort_by_key(|(pattern, _)| (pattern.contains(['*', '?']), usize::MAX - pattern.len()));
    found.into_iter().map(|(_, binding)| binding).collect()
}

/// Whether a pattern matches a path: `*` and `?` match anything except `/`, `**` matches anything. A pattern that does
/// not start with `/` matches in any folder.
///
/// Overlong patterns and paths do not match: the work grows with the product of both lengths.
pub fn matches_path(pattern: &str, path: &str) -> bool {
    if pattern.chars().count() > MAX_PATTERN_LENGTH || path.len() > MAX_PATH_BYTES {
        return false;
    }
    let (pattern, path) = (tidy(pattern), tidy(path));
    let steps: Vec<&str> = path.split('/').collect();
    let anywhere = (!pattern.starts_with('/')).then_some("**");
    let wanted: Vec<&str> = anywhere.into_iter().chain(pattern.split('/')).collect();
    match_steps(&wanted, &steps)
}

fn tidy(path: &str) -> String {
    let path = path.replace('\\', "/");
    path.strip_prefix("./").unwrap_or(&path).to_owned()
}

/// Matches in time proportional to the product of the lengths, for any pattern.
fn match_steps(wanted: &[&str], steps: &[&str]) -> bool {
    // `reached[i]`: the pattern so far matches the first `i` steps.
    let mut reached = vec![false; steps.len() + 1];
    reached[0] = true;
    for part in wanted {
        let mut next = vec![false; steps.len() + 1];
        if *part == "**" {
            let from = reached.iter().position(|is_reached| *is_reached).unwrap_or(reached.len());
            next[from..].fill(true);
        } else {
            for (place, step) in steps.iter().enumerate() {
                next[place + 1] = reached[place] && match_step(part, step);
            }
        }
        reached = next;
    }
    reached[steps.len()]
}

fn match_step(wanted: &str, step: &str) -> bool {
    let step: Vec<char> = step.chars().collect();
    let mut reached = vec![false; step.len() + 1];
    reached[0] = true;
    for character in wanted.chars() {
        let mut next = vec![false; step.len() + 1];
        if character == '*' {
            let from = reached.iter().position(|is_reached| *is_reached).unwrap_or(reached.len());
            next[from..].fill(true);
        } else {
            for (place, here) in step.iter().enumerate() {
                next[place + 1] = reached[place] && (character == '?' || character == *here);
            }
        }
        reached = next;
    }
    reached[step.len()]
}

/// The fuzz target `glob`: a pattern and, after the first line break, a path. Panics only on a bug.
#[doc(hidden)]
pub fn fuzz_glob(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (pattern, path) = text.split_once('\n').unwrap_or((text, ""));
    matches_path(pattern, path);
    if path.len() <= MAX_PATTERN_LENGTH && !path.is_empty() {
        assert!(matches_path("**", path) && matches_path(path, path), "a path is meant by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::{bindings_for, fuzz_glob, matches_path};
    use crate::binding::{Binding, Origin, Section};

    #[test]
    fn a_path_takes_precedence_over_a_pattern() {
        let binding = |pattern: &str, server: &str| {
            let section = Section::Document;
            let (server, origin) = (server.to_owned(), Origin::Registry);
            (pattern.to_owned(), Binding { section, server, inherit_to_children: true, origin })
        };
        let all = [binding("*.md", "a"), binding("x.md", "no"), binding("daily/*.md", "b"), binding("1.md", "c")];
        let found = bindings_for("/home/daily/1.md", all);
        assert_eq!(found.iter().map(|it| it.server.as_str()).collect::<Vec<_>>(), ["c", "b", "a"]);
    }

    #[test]
    fn patterns_name_paths_by_their_folders() {
        for (pattern, path, expected) in [
            ("notes.md", "/home/me/notes.md", true),
            ("notes.md", "notes.md", true),
            ("./notes.md", "notes.md", true),
            ("otes.md", "notes.md", false),
            ("work/notes.md", "/home/me/work/notes.md", true),
            ("work/notes.md", "/home/me/homework/notes.md", false),
            ("/home/me/notes.md", "/home/me/notes.md", true),
            ("/me/notes.md", "/home/me/notes.md", false),
            ("*.md", "/home/me/notes.md", true),
            ("*.md", "/home/me/notes.txt", false),
            ("daily/*.md", "/home/daily/1.md", true),
            ("daily/*.md", "/home/daily/more/1.md", false),
            ("daily/**", "/home/daily/more/1.md", true),
            ("daily/**/*.md", "/home/daily/1.md", true),
            ("/home/**/1.md", "/home/a/b/c/1.md", true),
            ("2026-??.md", "2026-11.md", true),
            ("2026-??.md", "2026-1.md", false),
            ("daily/*.md", "C:\\Users\\me\\daily\\1.md", true),
        ] {
            assert_eq!(matches_path(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_corpus_is_fine() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/glob");
        let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() > 5);
        for file in files {
            println!("{}", file.display());
            fuzz_glob(&std::fs::read(&file).unwrap());
        }
    }

    #[test]
    fn no_pattern_takes_forever() {
        assert!(!matches_path(&format!("{}b", "*a".repeat(200)), &"a".repeat(5000)));
        assert!(!matches_path(&format!("{}b", "**/a/".repeat(50)), &vec!["a"; 500].join("/")));
    }
}
