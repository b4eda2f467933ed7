//! Documents on disk are replaced in one step, whatever happens.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use notebook::{ApplyOptions, FileError, PlacementOutcome, Report, apply, check_writable, read, save};
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::fixture::run_text;

const TEXT: &str = "# A\n\n```echo\ntool: image\n```\n";

fn report() -> Report {
    run_text(TEXT).1
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn results_and_images_are_written_once_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my notes.md");
    fs::write(&path, TEXT).unwrap();
    assert!(save(&path, None, &report(), false).unwrap().is_changed);
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written, run_text(TEXT).0.text);
    assert_eq!(names(folder.path()), ["my notes.assets", "my notes.md"]);
    assert_eq!(names(&folder.path().join("my notes.assets")), ["50a480d63158c7b8.png"]);
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(!save(&path, None, &run_text(&written).1, false).unwrap().is_changed);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
}

#[test]
fn links_are_followed_and_modes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real.md"), folder.path().join("notes.md"));
    fs::write(&real, TEXT).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.md", &link).unwrap();
    save(&link, None, &report(), false).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("mcp-result"));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn images_are_next_to_the_document_and_not_next_to_a_link_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    fs::create_dir(&here).unwrap();
    fs::create_dir(&there).unwrap();
    fs::write(here.join("real.md"), TEXT).unwrap();
    symlink("../here/real.md", there.join("link.md")).unwrap();
    save(&there.join("link.md"), None, &report(), false).unwrap();
    assert_eq!((names(&here), names(&there)), (vec!["real.assets".into(), "real.md".into()], vec!["link.md".into()]));
    assert!(read(&here.join("real.md")).unwrap().contains("](real.assets/"));
}

#[test]
fn a_pipe_is_written_to_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, pipe) = (folder.path().join("notes.md"), folder.path().join("pipe"));
    fs::write(&path, TEXT).unwrap();
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    assert!(matches!(read(&pipe), Err(FileError::Read { .. })), "nobody is waited for");
    check_writable(&path, Some(&pipe)).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    save(&path, Some(&pipe), &report(), false).unwrap();
    assert!(reader.join().unwrap().contains("](notes.assets/"));
    assert!(!fs::metadata(&pipe).unwrap().is_file());
    assert_eq!(names(folder.path()), ["notes.assets", "notes.md", "pipe"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
}

#[test]
fn what_cannot_be_written_is_found_out_before_anything_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.md");
    fs::write(&path, TEXT).unwrap();
    check_writable(&path, None).unwrap();
    check_writable(&path, Some(&folder.path().join("new.md"))).unwrap();
    assert_eq!(names(folder.path()), ["notes.md"], "nothing is left behind");
    for target in [folder.path().join("no/such.md"), folder.path().to_owned()] {
        assert!(matches!(check_writable(&path, Some(&target)), Err(FileError::Write { .. })), "{target:?}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(check_writable(&path, None), Err(FileError::Write { .. })));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(folder.path().join("notes.assets"), "a file").unwrap();
    assert!(matches!(check_writable(&path, None), Err(FileError::Write { .. })));
}

#[test]
fn images_are_as_private_as_their_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.md");
    fs::write(&path, TEXT).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    save(&path, None, &report(), false).unwrap();
    let image = folder.path().join("notes.assets/50a480d63158c7b8.png");
    assert_eq!(fs::metadata(image).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_read_only_document_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.md");
    fs::write(&path, TEXT).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(save(&path, None, &report(), false), Err(FileError::Write { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
    assert_eq!(names(folder.path()), ["notes.md"]);
}

#[test]
fn a_copy_leaves_the_document_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("notes.md"), folder.path().join("copy.md"));
    fs::write(&path, TEXT).unwrap();
    save(&path, Some(&copy), &report(), false).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
    assert!(fs::read_to_string(&copy).unwrap().contains("copy.assets/"));
    assert_eq!(names(folder.path()), ["copy.assets", "copy.md", "notes.md"]);
}

#[test]
fn concurrent_edits_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.md");
    fs::write(&path, format!("new words\n\n{TEXT}and more")).unwrap();
    let saved = save(&path, None, &report(), false).unwrap();
    assert_eq!(saved.applied.placements[0].fate, PlacementOutcome::Written);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("new words\n\n# A") && text.ends_with("\nand more") && text.contains("mcp-result"));
}

#[test]
fn unreadable_and_unwritable_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.md");
    assert!(matches!(save(&path, None, &report(), false), Err(FileError::Read { .. })));
    fs::write(&path, b"\xff\xfe").unwrap();
    assert!(matches!(save(&path, None, &report(), false), Err(FileError::NotText { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"\xff\xfe");
    let nowhere = folder.path().join("missing/notes.md");
    fs::write(&path, TEXT).unwrap();
    assert!(matches!(save(&path, Some(&nowhere), &report(), false), Err(FileError::Write { .. })));
}

/// Not a test: the process that `a_writer_that_is_killed_...` starts and kills. It writes one text after the other.
#[test]
fn writer_to_be_killed() {
    let Some(path) = std::env::var_os("NOTEBOOK_TEST_WRITE") else { return };
    let path = Path::new(&path);
    let texts = texts();
    loop {
        for text in &texts {
            let report = run_text(text).1;
            save(path, None, &report, false).unwrap();
            // An editor restores the text, in one step, too.
            let beside = path.with_extension("beside");
            fs::write(&beside, text).unwrap();
            fs::rename(&beside, path).unwrap();
        }
    }
}

fn texts() -> [String; 2] {
    let filler = "Lorem ipsum dolor sit amet. ".repeat(20_000);
    [format!("{filler}\n\n{TEXT}"), format!("{TEXT}\n\n{filler}\n")]
}

#[test]
fn a_writer_that_is_killed_leaves_the_old_or_the_new_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.md");
    let ran = |text: &str| apply(text, &run_text(text).1, &ApplyOptions { force: false, folder: "notes.assets" }).text;
    let whole: Vec<String> = texts().into_iter().flat_map(|text| [ran(&text), text]).collect();
    for round in 0..12u64 {
        fs::write(&path, &texts()[0]).unwrap();
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "files::writer_to_be_killed"])
            .env("NOTEBOOK_TEST_WRITE", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Wait until it works, then kill it at a different moment in every round.
        let first = fs::metadata(&path).unwrap().modified().unwrap();
        while fs::metadata(&path).map_or(first, |file| file.modified().unwrap()) == first {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(700 * round));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(whole.contains(&text), "{} bytes", text.len());
    }
}
