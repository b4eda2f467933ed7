//! Notes as Markdown files in one folder. Files put there by hand are notes too.

use super::name::NoteName;
use crate::ToolError;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder. It is made when the first note is added, so that looking around leaves nothing behind.
pub(crate) struct Folder(PathBuf);

/// What `list` tells about a note.
pub(crate) struct Entry {
    pub(crate) name: NoteName,
    pub(crate) bytes: u64,
    pub(crate) changed: SystemTime,
}

/// A line of a note that a search found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundLine {
    pub(crate) number: usize,
    pub(crate) text: String,
}

/// A note that a search found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: NoteName,
    pub(crate) lines: Vec<FoundLine>,
}

/// What to do when there is a note of that name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfExists {
    Refuse,
    Append,
}

/// Lines shown of one note, and characters of one line: a hint of what to read, not the note itself.
const SHOWN_LINES: usize = 3;
const SHOWN_CHARS: usize = 200;

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn add(&self, title: &str, text: &str, if_exists: IfExists) -> Result<NoteName, ToolError> {
        // A line break in a title would end the heading.
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let name = NoteName::from_title(&title)?;
        let text = text.trim_end();
        let doing = |error| failed("write", &name, &error);
        if if_exists == IfExists::Append && self.is_note(&name)? {
            let mut file = OpenOptions::new().append(true).open(self.place(&name)).map_err(doing)?;
            file.write_all(format!("\n{text}\n").as_bytes()).map_err(doing)?;
            return Ok(name);
        }
        fs::create_dir_all(&self.0).map_err(|error| self.unusable(&error))?;
        match File::create_new(self.place(&name)) {
            Ok(mut file) => {
                let note = format!("# {title}\n\n{text}\n");
                file.write_all(note.as_bytes()).map_err(doing)?;
                Ok(name)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(ToolError::new(format!(
                "there is a note `{name}` already; choose another title, or set `append` to add to it"
            ))),
            Err(error) => Err(doing(error)),
        }
    }

    /// The most recently changed first.
    pub(crate) fn list(&self) -> Result<Vec<Entry>, ToolError> {
        let files = match fs::read_dir(&self.0) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unusable(&error)),
        };
        let mut entries = Vec::new();
        for file in files {
            let file = file.map_err(|error| self.unusable(&error))?;
            let file_name = file.file_name();
            let Some(name) = file_name.to_str().and_then(|name| name.strip_suffix(".md")) else {
                continue;
            };
            // The metadata of a link is that of the link: it is no file, so it is no note.
            // A file that vanished meanwhile is no note either.
            if let (Ok(name), Ok(metadata)) = (NoteName::parse(name), file.metadata())
                && metadata.is_file()
            {
                entries.push(Entry {
                    name,
                    bytes: metadata.len(),
                    changed: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                });
            }
        }
        entries.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| a.name.cmp(&b.name)));
        Ok(entries)
    }

    pub(crate) fn read(&self, text: &str) -> Result<(NoteName, String), ToolError> {
        let name = self.find(text)?;
        let note = self.content(&name)?;
        Ok((name, note))
    }

    pub(crate) fn delete(&self, text: &str) -> Result<NoteName, ToolError> {
        let name = self.find(text)?;
        fs::remove_file(self.place(&name)).map_err(|error| failed("delete", &name, &error))?;
        Ok(name)
    }

    /// Notes that hold every word, in any case, in their name or text.
    pub(crate) fn search(&self, query: &str) -> Result<Vec<Found>, ToolError> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() {
            return Err(ToolError::new("`query` needs at least one word to look for"));
        }
        let mut found = Vec::new();
        for Entry { name, .. } in self.list()? {
            // One note that cannot be read, or has just gone, must not hide the others.
            let Ok(note) = self.content(&name) else {
                continue;
            };
            let whole = format!("{name}\n{note}").to_lowercase();
            if !words.iter().all(|word| whole.contains(word)) {
                continue;
            }
            let lines = note
                .lines()
                .enumerate()
                .filter(|(_, line)| {
                    let line = line.to_lowercase();
                    words.iter().any(|word| line.contains(word))
                })
                .take(SHOWN_LINES)
                .map(|(index, line)| FoundLine {
                    number: index + 1,
                    text: line.trim().chars().take(SHOWN_CHARS).collect(),
                })
                .collect();
            found.push(Found { name, lines });
        }
        Ok(found)
    }

    /// The note of that name, else the one made from that title.
    fn find(&self, text: &str) -> Result<NoteName, ToolError> {
        let exact = NoteName::parse(text)?;
        if self.is_note(&exact)? {
            return Ok(exact);
        }
        if let Ok(name) = NoteName::from_title(text)
            && self.is_note(&name)?
        {
            return Ok(name);
        }
        Err(ToolError::new(format!("there is no note `{text}`; `list` shows the names of all notes")))
    }

    /// Whether the name is that of a real file. A link is not one: it could lead out of the folder.
    fn is_note(&self, name: &NoteName) -> Result<bool, ToolError> {
        match fs::symlink_metadata(self.place(name)) {
            Ok(metadata) => Ok(metadata.is_file()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("find", name, &error)),
        }
    }

    fn content(&self, name: &NoteName) -> Result<String, ToolError> {
        let bytes = fs::read(self.place(name)).map_err(|error| failed("read", name, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn place(&self, name: &NoteName) -> PathBuf {
        self.0.join(name.file_name())
    }

    fn unusable(&self, error: &io::Error) -> ToolError {
        ToolError::new(format!("could not use the folder {}: {error}", self.0.display()))
    }
}

fn failed(action: &str, name: &NoteName, error: &io::Error) -> ToolError {
    ToolError::new(format!("could not {action} the note `{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A folder of notes inside a folder that must stay untouched.
    fn folder() -> (TempDir, Folder) {
        let outside = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(outside.path().join("notes"));
        (outside, folder)
    }

    fn names(folder: &Folder) -> Vec<String> {
        let mut names: Vec<String> = folder.list().expect("a list").iter().map(|e| e.name.to_string()).collect();
        names.sort();
        names
    }

    fn add(folder: &Folder, title: &str, text: &str) {
        folder.add(title, text, IfExists::Refuse).expect("added");
    }

    #[test]
    fn a_note_is_added_read_by_name_or_title_and_deleted() {
        let (_outside, folder) = folder();
        add(&folder, "Milk &\neggs", "two\n");
        for text in ["milk-eggs", "Milk & Eggs"] {
            let (name, note) = folder.read(text).expect("a note");
            assert_eq!(name.to_string(), "milk-eggs");
            assert_eq!(note, "# Milk & eggs\n\ntwo\n");
        }
        folder.delete("milk-eggs").expect("deleted");
        assert!(folder.read("milk-eggs").is_err());
    }

    #[test]
    fn looking_around_makes_no_folder() {
        let (_outside, folder) = folder();
        assert!(names(&folder).is_empty());
        assert!(folder.search("x").expect("a search").is_empty());
        assert!(folder.read("x").is_err());
        assert!(!folder.path().exists());
    }

    #[test]
    fn a_note_is_never_overwritten_but_can_grow() {
        let (_outside, folder) = folder();
        add(&folder, "Log", "one");
        let error = folder.add("log", "two", IfExists::Refuse).expect_err("refused");
        assert!(error.sentence().contains("`append`"), "{}", error.sentence());
        folder.add("Log", "two", IfExists::Append).expect("appended");
        assert_eq!(folder.read("log").expect("a note").1, "# Log\n\none\n\ntwo\n");
        folder.add("New", "x", IfExists::Append).expect("a new note");
        assert_eq!(names(&folder), ["log", "new"]);
    }

    #[test]
    fn nothing_outside_the_folder_is_read_written_or_deleted() {
        let (outside, folder) = folder();
        let secret = outside.path().join("secret.md");
        fs::write(&secret, "secret").expect("written");
        for name in ["../secret", "../secret.md", "x/../../secret", "..\\secret", secret.to_str().expect("text")] {
            assert!(folder.read(name).is_err(), "{name}");
            assert!(folder.delete(name).is_err(), "{name}");
            folder.add(name, "x", IfExists::Append).expect("added inside");
        }
        assert_eq!(fs::read_to_string(&secret).expect("still there"), "secret");
        assert_eq!(fs::read_dir(outside.path()).expect("a folder").count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_no_note() {
        let (outside, folder) = folder();
        let secret = outside.path().join("secret");
        fs::write(&secret, "secret").expect("written");
        add(&folder, "real", "x");
        std::os::unix::fs::symlink(&secret, folder.path().join("link.md")).expect("linked");
        assert_eq!(names(&folder), ["real"]);
        assert!(folder.read("link").is_err());
        assert!(folder.delete("link").is_err());
        assert!(folder.add("link", "x", IfExists::Append).is_err());
        assert!(folder.search("secret").expect("a search").is_empty());
        assert_eq!(fs::read_to_string(&secret).expect("still there"), "secret");
    }

    #[test]
    fn files_written_by_hand_are_notes_and_others_are_not() {
        let (_outside, folder) = folder();
        add(&folder, "one", "x");
        fs::write(folder.path().join("Meeting 3 May.md"), b"\xff agenda").expect("written");
        fs::write(folder.path().join("picture.png"), "x").expect("written");
        fs::create_dir(folder.path().join("folder.md")).expect("made");
        assert_eq!(names(&folder), ["Meeting 3 May", "one"]);
        assert!(folder.read("Meeting 3 May").expect("a note").1.ends_with("agenda"));
    }

    #[test]
    fn a_search_finds_notes_with_every_word() {
        let (_outside, folder) = folder();
        add(&folder, "Shopping", "Buy MILK\nand bread");
        add(&folder, "Work", "write the bread report");
        let found = folder.search("milk BREAD").expect("a search");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name.to_string(), "shopping");
        let lines: Vec<usize> = found[0].lines.iter().map(|line| line.number).collect();
        assert_eq!(lines, [3, 4]);
        assert_eq!(folder.search("bread").expect("a search").len(), 2);
        assert!(folder.search("  ").is_err());
    }
}
