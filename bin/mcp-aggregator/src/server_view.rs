//! Tables of servers, from the objects of REST.

use catalog::login_command;
use registry::Timestamp;
use serde_json::Value;

use crate::colour;
use crate::table::{aligned, cut, printable, seen_width, width, wrapped};

/// The indentation of lines below a row.
pub(crate) const NOTE: &str = "  ";
/// The minimum width of the last column.
const MIN_COLUMN_WIDTH: usize = 20;
/// Longer text in other columns is truncated; `--json` has all of it.
const MAX_COLUMN_WIDTH: usize = 64;

/// A text member on one line; a dash if it is absent.
pub(crate) fn text(object: &Value, key: &str) -> String {
    match &object[key] {
        Value::String(text) if !text.is_empty() => printable(text),
        Value::Null | Value::String(_) => "-".to_owned(),
        other => printable(&other.to_string()),
    }
}

/// A status in its colour.
pub(crate) fn status(object: &Value) -> String {
    // A server that starts on demand is fine.
    let word = if object["asleep"] == true { "asleep".to_owned() } else { text(object, "status") };
    colour::of_status(&word).map_or_else(|| word.clone(), |colour| colour.paint(&word))
}

/// The format of times for people.
pub(crate) const LOCAL_TIME: &str = "%Y-%m-%d %H:%M:%S";

/// A time in local time: `2026-07-28 14:00:00`. JSON has it in UTC.
pub(crate) fn moment(object: &Value, key: &str) -> String {
    let written = text(object, key);
    written.parse().map_or(written, |moment: Timestamp| moment.local(LOCAL_TIME))
}

/// How a server is reached: its command line, its address, or its image. Secrets are already masked.
pub(crate) fn connection_summary(config: &Value) -> String {
    let word = |value: &Value| value.as_str().map(printable);
    if let Some(image) = word(&config["docker"]["image"]) {
        let args = config["docker"]["args"].as_array().into_iter().flatten().filter_map(word);
        return ["docker".to_owned(), image].into_iter().chain(args).collect::<Vec<_>>().join(" ");
    }
    if let Some(command) = word(&config["command"]) {
        let args = config["args"].as_array().into_iter().flatten().filter_map(word);
        return std::iter::once(command).chain(args).collect::<Vec<_>>().join(" ");
    }
    ["url", "base_url", "serverUrl", "httpUrl"].iter().find_map(|key| word(&config[*key])).unwrap_or_default()
}

/// The CPU usage of a server or a container, if known.
pub(crate) fn cpu(container: &Value) -> Option<String> {
    container["cpu_percent"].as_f64().map(|percent| format!("{percent:.1} %"))
}

/// Its memory usage, if known.
pub(crate) fn memory(container: &Value) -> Option<String> {
    let megabytes = |key: &str| container[key].as_f64().map(|bytes| bytes / f64::from(1 << 20));
    let used = megabytes("memory_bytes")?;
    let limit = megabytes("memory_limit_bytes").map(|limit| format!(" of {limit:.0} MB"));
    Some(format!("{used:.1} MB{}", limit.unwrap_or_default()))
}

/// A container on one line: its name, its image and its usage. Empty for a server without one.
pub(crate) fn container(server: &Value) -> Option<String> {
    let container = &server["container"];
    let id = container["id"].as_str()?;
    let digest = text(container, "image_digest");
    let short = digest.split_once(':').map_or_else(|| digest.clone(), |(kind, rest)| format!("{kind}:{rest:.12}"));
    let mut parts = vec![format!("{} ({id:.12})", text(container, "name")), format!("image {short}")];
    parts.extend(cpu(container).map(|cpu| format!("cpu {cpu}")));
    parts.extend(memory(container).map(|memory| format!("memory {memory}")));
    Some(printable(&parts.join(", ")))
}

/// The instances of a server that not everybody shares, one on each line; nothing for other servers.
pub(crate) fn instances(server: &Value) -> Vec<String> {
    let instances = server["instances"].as_array().map(Vec::as_slice).unwrap_or_default();
    if instances.is_empty() {
        return Vec::new();
    }
    let rows: Vec<[String; 3]> = instances.iter().map(instance).collect();
    let heading = format!("instances ({})", instances.len());
    std::iter::once(heading).chain(aligned(&rows).into_iter().map(|line| format!("{NOTE}{line}"))).collect()
}

/// An instance: whose it is, its status, and more.
fn instance(instance: &Value) -> [String; 3] {
    let mut more = vec![format!("since {}", moment(instance, "since"))];
    more.extend(instance["pid"].as_u64().map(|pid| format!("pid {pid}")));
    more.extend(instance["running_calls"].as_u64().filter(|calls| *calls > 0).map(|calls| format!("{calls} calls")));
    more.extend(instance["error"].as_str().map(printable));
    [instance_owner(instance), text(instance, "status"), more.join(", ")]
}

/// Whose instance it is.
pub(crate) fn instance_owner(instance: &Value) -> String {
    let identity = match text(instance, "identity").as_str() {
        "-" => "local user".to_owned(),
        name => name.to_owned(),
    };
    match instance["client"].as_str() {
        Some(client) => format!("{identity} in {}", printable(client)),
        None => identity,
    }
}

/// Rows below a header; the last column is truncated to the width of the terminal, but not in a pipe.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    table_within(header, rows, seen_width(), false)
}

/// The same for an important last column: if it is too long, it moves to the next line.
pub(crate) fn wrapping_table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    table_within(header, rows, seen_width(), true)
}

fn table_within<const N: usize>(
    header: [&str; N],
    rows: Vec<[String; N]>,
    line: Option<usize>,
    is_whole: bool,
) -> Vec<String> {
    let mut rows: Vec<[String; N]> = [header.map(str::to_owned)].into_iter().chain(rows).collect();
    // One long name must not leave the other columns without room.
    for cell in rows.iter_mut().flat_map(|row| &mut row[..N - 1]).filter(|cell| width(cell) > MAX_COLUMN_WIDTH) {
        *cell = cut(cell, MAX_COLUMN_WIDTH);
    }
    let widest = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let before: usize = (0..N - 1).map(|column| widest(column) + 2).sum();
    let Some(room) = line.map(|line| line.saturating_sub(before).max(MIN_COLUMN_WIDTH)) else { return aligned(&rows) };
    let mut below: Vec<Vec<String>> = Vec::new();
    for row in &mut rows {
        let cell = &row[N - 1];
        let moves = is_whole && width(cell) > room;
        below.push(if moves { wrapped(cell, NOTE) } else { Vec::new() });
        row[N - 1] = if moves { String::new() } else { cut(cell, room) };
    }
    aligned(&rows).into_iter().zip(below).flat_map(|(line, below)| std::iter::once(line).chain(below)).collect()
}

/// The status of a server in a few words.
pub(crate) fn status_text(server: &Value) -> String {
    match (server["status"].as_str(), server["tool_count"].as_u64()) {
        (Some(status @ ("connected" | "degraded")), Some(1)) => format!("{status}, 1 tool"),
        (Some(status @ ("connected" | "degraded")), Some(tools)) => format!("{status}, {tools} tools"),
        (Some(status @ "connecting"), _) => match server["progress"].as_str() {
            Some(progress) => format!("{status}: {}", printable(progress)),
            None => status.to_owned(),
        },
        (Some("sign_in_required"), _) => {
            let command = login_command(server["name"].as_str().unwrap_or_default());
            format!("sign_in_required: run `{}`", printable(&command))
        }
        (Some(status), _) => status.to_owned(),
        (None, _) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_short_and_missing_things_are_dashes() {
        let object = json!({"at": "2026-07-28T12:00:00.123456Z", "none": null, "number": 5});
        let local: Timestamp = "2026-07-28T12:00:00Z".parse().unwrap();
        assert_eq!(moment(&object, "at"), local.local("%Y-%m-%d %H:%M:%S"));
        assert_eq!((text(&object, "none").as_str(), text(&object, "number").as_str()), ("-", "5"));
        assert_eq!(moment(&object, "none"), "-");
    }

    #[test]
    fn one_long_name_leaves_room_for_the_others() {
        let rows = vec![["x".repeat(300), "long".into()], ["y".into(), "short".into()]];
        let lines = table_within(["TOOL", "WHAT"], rows, Some(100), false);
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
        assert!(lines[1].contains("x…  long") && lines[2].ends_with("  short"), "{lines:#?}");
    }

    #[test]
    fn what_matters_is_never_cut() {
        let rows = || vec![["a".to_owned(), "many words ".repeat(9).trim().to_owned()]];
        assert!(table_within(["A", "WHY"], rows(), Some(40), false)[1].ends_with('…'));
        let whole = table_within(["A", "WHY"], rows(), Some(40), true);
        assert_eq!(whole[1], "a");
        assert_eq!(whole[2..].join(" ").matches("many").count(), 9, "{whole:#?}");
        assert_eq!(table_within(["A", "WHY"], rows(), None, true).len(), 2, "in a pipe it stands on one line");
    }

    #[test]
    fn a_container_is_shown_on_one_line_with_what_is_known_of_it() {
        let mut server = json!({"container": {"id": "0123456789abcdef", "name": "mcp-box-1",
            "image_digest": "sha256:fedcba9876543210"}});
        assert_eq!(container(&server).unwrap(), "mcp-box-1 (0123456789ab), image sha256:fedcba987654");
        server["container"]["cpu_percent"] = json!(1.25);
        server["container"]["memory_bytes"] = json!(3 << 20);
        server["container"]["memory_limit_bytes"] = json!(64 << 20);
        assert!(
            container(&server).unwrap().ends_with(", cpu 1.2 %, memory 3.0 MB of 64 MB"),
            "{:?}",
            container(&server)
        );
        assert_eq!(container(&json!({"container": null})), None);
    }

    #[test]
    fn each_instance_is_on_its_own_line() {
        let since = "2026-07-28T12:00:00Z";
        let server = json!({"instances": [
            {"identity": null, "client": null, "status": "running", "since": since, "running_calls": 2, "pid": 7, "error": null},
            {"identity": "ann", "client": "cursor", "status": "failed", "since": since, "running_calls": 0, "pid": null, "error": "it\u{1b}ended"},
        ]});
        let lines = instances(&server);
        assert_eq!(lines[0], "instances (2)");
        assert!(lines[1].starts_with("  local user") && lines[1].ends_with(", pid 7, 2 calls"), "{lines:?}");
        assert!(lines[2].starts_with("  ann in cursor  failed") && !lines[2].contains('\u{1b}'), "{lines:?}");
        assert_eq!(instances(&json!({"instances": []})), [""; 0]);
    }

    #[test]
    fn a_server_is_where_its_command_or_its_address_is() {
        assert_eq!(connection_summary(&json!({"command": "npx", "args": ["-y", "x"]})), "npx -y x");
        assert_eq!(connection_summary(&json!({"base_url": "http://x"})), "http://x");
        assert_eq!(connection_summary(&json!({"docker": {"image": "mcp/time", "args": ["-v"]}})), "docker mcp/time -v");
    }
}
