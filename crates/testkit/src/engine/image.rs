//! Builds an image from local files: the fake servers, a shell, and the libraries they need.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Engine, api};
use crate::program;

/// Programs of this machine that are added.
const TOOLS: [&str; 2] = ["/bin/sh", "/bin/sleep"];
const FAKES: [&str; 2] = ["fake-server", "fake-http-server"];

/// Builds the image and loads it into the engine.
#[track_caller]
pub(super) fn import(engine: &Engine, image: &str) {
    let (name, tag) = image.split_once(':').expect("the image has a tag");
    let path = format!("/images/create?fromSrc=-&repo={name}&tag={tag}");
    let answer = api::ask(&engine.socket(), "POST", &path, Some(("application/x-tar", packed())));
    let answer = answer.expect("the engine takes an image");
    let said = String::from_utf8_lossy(&answer.body);
    assert!(answer.status == 200 && !said.contains("\"error\""), "{}: {said}", answer.status);
}

/// All its files, as one archive.
#[track_caller]
pub(super) fn packed() -> Vec<u8> {
    let root = tempfile::Builder::new().prefix("image-").tempdir().expect("a temporary folder can be made");
    for name in FAKES {
        let path = program(name);
        put(root.path(), &path, &Path::new("/bin").join(name));
        put_libraries(root.path(), &path);
    }
    for tool in TOOLS.map(Path::new) {
        put(root.path(), tool, tool);
        put_libraries(root.path(), tool);
    }
    std::fs::create_dir_all(root.path().join("tmp")).expect("a folder can be made");
    let packed = Command::new("tar").arg("-C").arg(root.path()).args(["-c", "."]).output();
    let packed = packed.expect("tar can be started");
    assert!(packed.status.success(), "tar: {}", String::from_utf8_lossy(&packed.stderr));
    packed.stdout
}

fn put(root: &Path, file: &Path, place: &Path) {
    let place = root.join(place.strip_prefix("/").expect("places in an image are absolute"));
    std::fs::create_dir_all(place.parent().expect("a file is in a folder")).expect("a folder can be made");
    std::fs::copy(file, &place).unwrap_or_else(|error| panic!("could not copy {}: {error}", file.display()));
}

fn put_libraries(root: &Path, program: &Path) {
    let output = Command::new("ldd").arg(program).output().expect("ldd can be started");
    let output = String::from_utf8_lossy(&output.stdout);
    let paths = output.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    for path in paths.filter(|path| path.is_file()) {
        put(root, &path, &path);
    }
}
