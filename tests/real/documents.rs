//! Documents that run tools of real servers.

use std::fs;

use testkit::{program, run};

use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers;

#[test]
fn files_images_links_and_errors_of_real_servers_stand_in_the_document() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let files = sandbox.files();
    fs::write(files.join("a.txt"), "what the file says\n").unwrap();
    let servers = [servers::everything(&parts), servers::filesystem(&parts, &files), servers::time(&parts)];
    let config = servers::config_of(&[&servers[0], &servers[1], &servers[2]]).write();
    let (good, missing) = (files.join("a.txt"), files.join("none.txt"));
    let text = format!(
        "# Real\n\n```filesystem\ntool: read_text_file\npath: {}\n```\n\n```filesystem\ntool: read_text_file\npath: {}\n```\n\n\
         ```everything\ntool: get-tiny-image\n```\n\n```everything\ntool: get-resource-links\ncount: 2\n```\n\n\
         ```everything\ntool: get-sum\na: 2\nb: many\n```\n\n\
         ```everything\ntool: trigger-long-running-operation\nduration: 1\nsteps: 2\n```\n\n\
         ```time\ntool: convert_time\nsource_timezone: UTC\ntime: '12:00'\ntarget_timezone: Asia/Tokyo\n```\n",
        good.display(),
        missing.display(),
    );
    let notes = sandbox.path("notes.md");
    fs::write(&notes, &text).unwrap();
    let arguments = ["run".as_ref(), notes.as_os_str(), "--config".as_ref(), config.path().as_os_str()];
    let output = run(program("mcp-aggregator"), arguments);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("7 blocks: 5 done, 1 failed, 1 refused"), "{}", output.stderr);
    assert!(output.stderr.contains("line 25: "), "the YAML line of `b`: {}", output.stderr);
    let report = fs::read_to_string(&notes).unwrap();
    assert!(report.contains("what the file says") && report.contains("ENOENT"), "{report}");
    assert!(report.contains("](notes.assets/"), "{report}");
    assert!(report.contains("T21:00:00+09:00"), "{report}");
    let images = fs::read_dir(sandbox.path("notes.assets")).unwrap().count();
    assert_eq!(images, 1);
}
