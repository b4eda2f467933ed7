//! Real servers answer the same through us as directly.

use std::fs;

use serde_json::{Value, json};

use super::clients::session_and_session_through_us;
use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers::{self, Server};
use super::steps::call;

/// Makes the same calls in a session with the server and in one with us, and returns both lists of responses.
#[track_caller]
fn same_answers(parts: &Parts, sandbox: &Sandbox, server: &Server, calls: &[(&str, Value)]) -> Vec<Value> {
    let (direct, through_us) = both_answers(parts, sandbox, (server, server), calls);
    assert_eq!(through_us, direct);
    direct
}

/// The answers to the same calls, first by the first server directly, then by the second through us.
#[track_caller]
fn both_answers(
    parts: &Parts,
    sandbox: &Sandbox,
    (directly, behind_us): (&Server, &Server),
    calls: &[(&str, Value)],
) -> (Vec<Value>, Vec<Value>) {
    let steps = calls.iter().map(|(tool, arguments)| call(tool, arguments)).collect();
    let our_steps = calls.iter().map(|(tool, arguments)| call(&behind_us.name_of(tool), arguments)).collect();
    session_and_session_through_us(parts, sandbox, (directly, steps), (behind_us, our_steps))
        .map(|session| session.answers)
        .into()
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("there is no text in {answer}"))
}

#[test]
fn everything_echoes_adds_and_sends_structured_content_and_images() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let message = "quotes \" and \\, a line\nbreak, \u{0}, ü, 漢字 and 🙂";
    let calls = [
        ("echo", json!({"message": message})),
        ("get-sum", json!({"a": 2, "b": 3.5})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("get-tiny-image", json!({})),
        ("get-annotated-message", json!({"messageType": "error", "includeImage": true})),
        ("get-resource-links", json!({"count": 2})),
        ("get-resource-reference", json!({"resourceType": "Text", "resourceId": 1})),
    ];
    let sandbox = Sandbox::new();
    // The text of a resource contains the time of its creation.
    let (mut direct, mut through_us) =
        both_answers(&parts, &sandbox, (&servers::everything(&parts), &servers::everything(&parts)), &calls);
    for answers in [&mut direct, &mut through_us] {
        let resource = &mut answers[6]["result"]["content"][1]["resource"]["text"];
        assert!(resource.as_str().is_some_and(|text| text.starts_with("Resource 1:")), "{resource}");
        *resource = Value::Null;
    }
    assert_eq!(through_us, direct);

    assert_eq!(text(&through_us[0]), format!("Echo: {message}"));
    assert_eq!(
        through_us[1],
        json!({"result": {"content": [{"type": "text", "text": "The sum of 2 and 3.5 is 5.5."}]}})
    );
    let weather = json!({"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82});
    assert_eq!(through_us[2]["result"]["structuredContent"], weather);
    let image = &through_us[3]["result"]["content"][1];
    assert_eq!(image["type"], "image");
    assert_eq!(image["mimeType"], "image/png");
    assert!(image["data"].as_str().is_some_and(|data| data.starts_with("iVBORw0KGgo") && data.len() > 1000));
    assert_eq!(through_us[4]["result"]["content"][0]["annotations"]["priority"], 1.0);
    assert_eq!(through_us[5]["result"]["content"][1]["type"], "resource_link");
}

#[test]
fn files_are_written_read_and_listed() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let files = sandbox.files();
    let note = files.join("note.txt");
    let content = "first line\nsecond line, with ü and 🙂\n";
    let calls = [
        ("write_file", json!({"path": note, "content": content})),
        ("read_text_file", json!({"path": note})),
        ("list_directory", json!({"path": files})),
    ];
    let answers = same_answers(&parts, &sandbox, &servers::filesystem(&parts, &files), &calls);
    assert_eq!(text(&answers[0]), format!("Successfully wrote to {}", note.display()));
    assert_eq!(text(&answers[1]), content);
    assert_eq!(answers[1]["result"]["structuredContent"], json!({"content": content}));
    assert_eq!(text(&answers[2]), "[FILE] note.txt");
    assert_eq!(fs::read_to_string(note).unwrap(), content);
}

#[test]
fn errors_of_a_server_pass_unchanged() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let files = sandbox.files();
    let calls = [
        ("read_text_file", json!({"path": files.join("missing.txt")})),
        ("read_text_file", json!({"path": "/etc/passwd"})),
        ("read_text_file", json!({"path": 7})),
    ];
    let answers = same_answers(&parts, &sandbox, &servers::filesystem(&parts, &files), &calls);
    for answer in &answers {
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    let missing = files.join("missing.txt");
    assert_eq!(text(&answers[0]), format!("ENOENT: no such file or directory, open '{}'", missing.display()));
    assert!(text(&answers[1]).starts_with("Access denied - path outside allowed directories: /etc/passwd"));

    let calls = [("convert_time", json!({"source_timezone": "Nowhere", "time": "12:30", "target_timezone": "UTC"}))];
    let answers = same_answers(&parts, &sandbox, &servers::time(&parts), &calls);
    assert_eq!(answers[0]["result"]["isError"], true);
    assert!(text(&answers[0]).contains("Invalid timezone"), "{}", answers[0]);
}

#[test]
fn memory_remembers_entities() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let entities = json!([{"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}]);
    let calls = [("create_entities", json!({"entities": entities})), ("read_graph", json!({}))];
    // Separate memories: the second server would otherwise know Ada already.
    let directly = servers::memory(&parts, &sandbox.path("directly.jsonl"));
    let behind_us = servers::memory(&parts, &sandbox.path("behind-us.jsonl"));
    let (direct, through_us) = both_answers(&parts, &sandbox, (&directly, &behind_us), &calls);
    assert_eq!(through_us, direct);
    assert_eq!(through_us[0]["result"]["structuredContent"], json!({"entities": entities}));
    assert_eq!(through_us[1]["result"]["structuredContent"], json!({"entities": entities, "relations": []}));
    let kept = |name: &str| fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(kept("behind-us.jsonl"), kept("directly.jsonl"));
}

#[test]
fn git_returns_status_and_history() {
    let Some(parts) = Parts::with(&[Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let repository = sandbox.repository();
    let arguments = json!({"repo_path": repository.folder()});
    let calls = [
        ("git_status", arguments.clone()),
        ("git_log", arguments),
        ("git_status", json!({"repo_path": sandbox.path("elsewhere")})),
    ];
    let answers = same_answers(&parts, &sandbox, &servers::git(&parts, &repository), &calls);
    assert!(text(&answers[0]).starts_with("Repository status:\nOn branch main\n"), "{}", answers[0]);
    assert!(text(&answers[0]).contains("\n\tnew.txt\n"), "{}", answers[0]);
    let history = format!(
        "Commit history:\nCommit: {}\nAuthor: Ada\nDate: 2026-01-02 03:04:05+00:00\nMessage: first\n\n",
        repository.head()
    );
    assert_eq!(text(&answers[1]).trim_end(), history.trim_end());
    assert_eq!(answers[2]["result"]["isError"], true);
}

#[test]
fn time_is_returned_and_converted() {
    let Some(parts) = Parts::with(&[Part::Python]) else { return };
    let calls = [
        ("convert_time", json!({"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"})),
        ("get_current_time", json!({"timezone": "Asia/Tokyo"})),
    ];
    let time = servers::time(&parts);
    let (direct, through_us) = both_answers(&parts, &Sandbox::new(), (&time, &time), &calls);
    // Both contain the date, so midnight may come between the two sessions. Only what is the same every day is
    // compared.
    let timeless = |answer: &Value| {
        let mut result = answer["result"].clone();
        let reported = result["content"][0]["text"].take();
        let reported: Value = serde_json::from_str(reported.as_str().unwrap()).unwrap();
        assert_eq!(reported, result["structuredContent"], "text and structure say the same");
        for pointer in ["", "/source", "/target"] {
            let Some(moment) = result["structuredContent"].pointer_mut(pointer).and_then(Value::as_object_mut) else {
                continue;
            };
            moment.remove("day_of_week");
            if let Some(Value::String(datetime)) = moment.get_mut("datetime") {
                datetime.replace_range(..10, "0000-00-00");
            }
        }
        result
    };
    assert_eq!(timeless(&through_us[0]), timeless(&direct[0]));
    assert_eq!(
        timeless(&through_us[0])["structuredContent"],
        json!({
            "source": {"timezone": "UTC", "datetime": "0000-00-00T12:30:00+00:00", "is_dst": false},
            "target": {"timezone": "Asia/Tokyo", "datetime": "0000-00-00T21:30:00+09:00", "is_dst": false},
            "time_difference": "+9.0h",
        })
    );
    let now = &through_us[1]["result"]["structuredContent"];
    assert_eq!((&now["timezone"], &now["is_dst"]), (&json!("Asia/Tokyo"), &json!(false)));
    assert!(now["datetime"].as_str().is_some_and(|datetime| datetime.ends_with("+09:00")), "{now}");
}
