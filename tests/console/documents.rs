//! Documents in a browser without scripts: listed, read, and nothing outside of their folder.

use std::fs;

use tempfile::TempDir;

use super::Visitor;
use crate::rest::Rest;

/// A service with a folder of documents; in it a document with sections, blocks and a result, and a picture.
pub(crate) fn with_documents() -> (Rest, TempDir) {
    let place = TempDir::with_prefix("documents-").expect("a temporary folder can be made");
    let folder = place.path().join("notes");
    let write = |path: &str, text: &[u8]| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        fs::write(path, text).expect("the test can write there");
    };
    let text = "# Friday\n\nWhat to *do*.\n\n## Sums\n<!-- mcp: one -->\n\n```mcp\ntool: echo\ntext: hello\n```\n\n### More\n\n\
        ```one\ntool: echo\ntext: again\n```\n\n## Elsewhere\n\n```two\ntool: echo\ntext: there\n```\n\n\
        ![plot](friday.assets/a.png) [sound](friday.assets/c.wav) [next](work/b.md)\n";
    write("friday.md", text.as_bytes());
    write("work/b.md", b"# B\n<script>alert(1)</script>\n\n<img src=x onerror=alert(2)> [x](javascript:alert(3))\n");
    write("friday.assets/a.png", b"picture");
    write("friday.assets/b.svg", b"<svg onload=alert(1)>");
    write("friday.assets/c.wav", b"sound");
    fs::write(place.path().join("secret.png"), "secret").expect("the test can write there");
    let rest = Rest::start_as(|launch| launch.arg("--documents").arg(&folder));
    rest.register("one", &[]);
    rest.register("two", &[]);
    (rest, place)
}

#[test]
fn without_a_folder_the_page_explains_the_option() {
    let rest = Rest::start();
    let page = Visitor::new(&rest).page("/documents");
    assert!(page.contains("No documents folder is configured") && page.contains("serve --documents"), "{page}");
    assert_eq!(Visitor::new(&rest).get("/documents/picture?path=a.png").status, 404);
}

#[test]
fn a_document_is_listed_and_shown_with_the_server_of_every_section_and_why() {
    let (rest, _place) = with_documents();
    let visitor = Visitor::new(&rest);
    let list = visitor.page("/documents");
    assert!(list.contains("/documents?path=friday.md") && list.contains("/documents?path=work%2Fb.md"), "{list}");
    let page = visitor.page("/documents?path=friday.md");
    for part in [
        "<h2>Friday</h2>",
        "What to <em>do</em>.",
        "a comment binds `## Sums`",
        "inherited from",
        "not bound: the first enabled server",
        r#"data-all="1 2 3""#,
        r#"data-run="1 2""#,
        r#"<img src="/documents/picture?path=friday.assets%2Fa.png" alt="plot">"#,
        r#"<a href="/documents?path=work%2Fb.md">next</a>"#,
        r#"<a href="/documents/file?path=friday.assets%2Fc.wav">sound</a>"#,
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn document_markup_is_escaped_and_files_outside_its_folder_are_hidden() {
    let (rest, _place) = with_documents();
    let visitor = Visitor::new(&rest);
    let page = visitor.page("/documents?path=work/b.md");
    for sign in ["<script>alert", "<img src=x", "href=\"javascript:"] {
        assert!(!page.contains(sign), "{sign} in {page}");
    }
    let picture = visitor.get("/documents/picture?path=friday.assets/a.png");
    assert_eq!((picture.status, picture.headers["content-type"].as_str()), (200, "image/png"));
    let drawing = visitor.get("/documents/picture?path=friday.assets/b.svg");
    assert_eq!((drawing.status, drawing.headers["content-type"].as_str()), (200, "image/svg+xml"));
    assert!(drawing.headers["content-security-policy"].contains("sandbox"), "scripts in it are not run: {drawing:?}");
    assert_eq!(drawing.headers["content-disposition"], "attachment", "and it is never opened by itself");
    let sound = visitor.get("/documents/file?path=friday.assets/c.wav");
    assert_eq!((sound.status, sound.headers["content-type"].as_str()), (200, "application/octet-stream"));
    assert!(sound.headers["content-disposition"].starts_with("attachment"), "{sound:?}");
    for hidden in ["../secret.png", "friday.md", "work/b.md", "friday.assets/../friday.md"] {
        let answer = visitor.get(&format!("/documents/file?path={}", super::encoded(hidden)));
        assert_eq!(answer.status, 404, "{hidden}");
    }
    for hidden in ["../secret.png", "friday.md", "friday.assets/none.png"] {
        let answer = visitor.get(&format!("/documents/picture?path={}", super::encoded(hidden)));
        assert_eq!(answer.status, 404, "{hidden}");
    }
    assert_eq!(visitor.get("/documents?path=..%2Fsecret.md").status, 404);
}

#[test]
fn an_assistant_of_an_unbound_section_is_labelled_with_all_servers() {
    let (rest, place) = with_documents();
    let text = "# Free\n\n```assistant\nWell?\n```\n\n# Bound\n<!-- mcp: two -->\n\n```assistant\nAnd?\n```\n";
    fs::write(place.path().join("notes/ask.md"), text).expect("the test can write there");
    let page = Visitor::new(&rest).page("/documents?path=ask.md");
    assert!(page.contains("with the tools of all enabled servers"), "{page}");
    assert!(page.contains("with the tools of `two`"), "{page}");
    assert!(page.contains(r#"<span class="tag">all servers</span>"#), "{page}");
}
