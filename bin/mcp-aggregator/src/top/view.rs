//! Formats a snapshot in lines. Pure: depends only on the snapshot, the user's choices and the size.

use super::snapshot::{Call, Instance, Server, Snapshot};
use crate::colour::Colour;
use crate::commands::status::in_words;
use crate::table::{aligned, cut};

/// The user's choices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) sort: Sort,
    /// The selected row: 0 is all servers, then each in display order.
    pub(crate) marked: usize,
}

/// The sort key of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Name,
    Calls,
    Errors,
    Slowness,
}

impl Sort {
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Name => Self::Calls,
            Self::Calls => Self::Errors,
            Self::Errors => Self::Slowness,
            Self::Slowness => Self::Name,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Calls => "calls",
            Self::Errors => "errors",
            Self::Slowness => "p95",
        }
    }
}

/// The size of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// A line and its colour.
type Line = (String, Option<Colour>);

/// The lines around the two lists: title, numbers, blank, header; blank, header; blank, keys.
const FIXED_ROWS: usize = 8;

/// The whole view, at most as large as the terminal. `error` is why the snapshot is outdated.
pub(crate) fn frame(snapshot: &Snapshot, choice: &Choice, error: Option<&str>, size: Size) -> Vec<Line> {
    let room = size.height.saturating_sub(FIXED_ROWS).max(2);
    let servers = sorted(&snapshot.servers, choice.sort);
    // Servers get the lines they need, but a third is left for calls.
    let for_servers = rows_of(&servers).min(room - room / 3);
    let chosen = choice.marked.checked_sub(1).and_then(|place| servers.get(place)).map(|server| server.name.as_str());

    let mut lines = vec![(title(snapshot), None), error.map_or_else(|| numbers(snapshot), warning)];
    lines.push((String::new(), None));
    lines.extend(server_lines(snapshot, &servers, choice.marked, for_servers));
    lines.push((String::new(), None));
    lines.extend(call_lines(snapshot, chosen, room - for_servers));
    while lines.len() + 1 < size.height {
        lines.push((String::new(), None));
    }
    lines.truncate(size.height.saturating_sub(1));
    lines.push((format!("q quit   j/k or arrows select a server   s sorted by {}", choice.sort.as_str()), None));
    lines.into_iter().map(|(line, colour)| (cut(&line, size.width), colour)).collect()
}

/// The same for `--once`: everything, without keys and selection.
pub(crate) fn once(snapshot: &Snapshot, width: usize) -> Vec<String> {
    let servers = sorted(&snapshot.servers, Sort::Name);
    let mut lines = vec![(title(snapshot), None), numbers(snapshot), (String::new(), None)];
    lines.extend(server_lines(snapshot, &servers, usize::MAX, rows_of(&servers)));
    lines.push((String::new(), None));
    lines.extend(call_lines(snapshot, None, 20));
    lines.into_iter().map(|(line, _)| cut(&line, width).trim_end().to_owned()).collect()
}

/// A row for all servers, and one for each and for each of its instances.
fn rows_of(servers: &[Server]) -> usize {
    1 + servers.iter().map(|server| 1 + server.instances.len()).sum::<usize>()
}

fn warning(error: &str) -> Line {
    (format!("no answer: {error}"), Some(Colour::Bad))
}

fn title(snapshot: &Snapshot) -> String {
    format!("mcp-aggregator at {}, up for {}", snapshot.url, in_words(snapshot.uptime))
}

fn numbers(snapshot: &Snapshot) -> Line {
    let up = snapshot.servers.iter().filter(|server| is_up(server)).count();
    let under_way = snapshot.calls.iter().filter(|call| call.is_under_way()).count();
    let line = format!(
        "{up} of {} servers connected, {} tools, {} in the last minute, {under_way} in progress",
        snapshot.servers.len(),
        snapshot.tools,
        calls_in_words(snapshot),
    );
    if snapshot.is_stopped { (format!("{line}; ALL CALLS ARE STOPPED"), Some(Colour::Bad)) } else { (line, None) }
}

fn counted(snapshot: &Snapshot) -> String {
    format!("{}{}", snapshot.calls.len(), if snapshot.has_more { "+" } else { "" })
}

fn calls_in_words(snapshot: &Snapshot) -> String {
    if snapshot.calls.len() == 1 { "1 call".to_owned() } else { format!("{} calls", counted(snapshot)) }
}

fn is_up(server: &Server) -> bool {
    matches!(server.status.as_str(), "connected" | "degraded")
}

fn sorted(servers: &[Server], sort: Sort) -> Vec<Server> {
    let mut servers = servers.to_vec();
    servers.sort_by(|one, other| {
        let by_number = match sort {
            Sort::Name => std::cmp::Ordering::Equal,
            Sort::Calls => other.calls.cmp(&one.calls),
            Sort::Errors => other.errors.cmp(&one.errors),
            Sort::Slowness => other.p95.unwrap_or_default().total_cmp(&one.p95.unwrap_or_default()),
        };
        by_number.then_with(|| one.name.cmp(&other.name))
    });
    servers
}

/// The header, a row for all, and one for each server that fits, always including the selected one.
fn server_lines(snapshot: &Snapshot, servers: &[Server], marked: usize, room: usize) -> Vec<Line> {
    let header = ["", "SERVER", "STATUS", "TOOLS", "CALLS", "ERRORS", "P50", "P95", "CPU", "MEMORY"].map(str::to_owned);
    let mark = |place: usize| if place == marked { ">" } else { "" }.to_owned();
    let errors: usize = servers.iter().map(|server| server.errors).sum();
    let all = [
        mark(0),
        "(all)".to_owned(),
        String::new(),
        snapshot.tools.to_string(),
        counted(snapshot),
        errors.to_string(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ];
    let row = |(place, server): (usize, &Server)| {
        [
            mark(place + 1),
            server.name.clone(),
            server.status.clone(),
            server.tools.to_string(),
            server.calls.to_string(),
            server.errors.to_string(),
            server.p50.map(time).unwrap_or_default(),
            server.p95.map(time).unwrap_or_default(),
            server.cpu.clone(),
            server.memory.clone(),
        ]
    };
    let (mut rows, mut colours) = (vec![header, all], vec![None, None]);
    let mut marked_row = marked;
    for (place, server) in servers.iter().enumerate() {
        if place + 1 == marked {
            marked_row = rows.len() - 1;
        }
        rows.push(row((place, server)));
        colours.push(Some(colour_of(server)));
        rows.extend(server.instances.iter().map(instance_row));
        colours.resize(rows.len(), None);
    }
    let mut lines = aligned(&rows).into_iter().zip(colours);
    let header = lines.next();
    // The list scrolls until the selected row is the last one.
    let skipped = if marked == usize::MAX { 0 } else { (marked_row + 1).saturating_sub(room) };
    header.into_iter().chain(lines.skip(skipped).take(room)).collect()
}

/// An instance, below its server.
fn instance_row(instance: &Instance) -> [String; 10] {
    let mut row: [String; 10] = Default::default();
    row[1] = format!("  {}", instance.whose);
    row[2].clone_from(&instance.status);
    if instance.running_calls > 0 {
        row[4] = format!("{} running", instance.running_calls);
    }
    row
}

fn colour_of(server: &Server) -> Colour {
    match server.status.as_str() {
        "connected" => Colour::Good,
        "error" => Colour::Bad,
        _ => Colour::Warning,
    }
}

fn call_lines(snapshot: &Snapshot, server: Option<&str>, room: usize) -> Vec<Line> {
    let calls: Vec<&Call> =
        snapshot.calls.iter().filter(|call| server.is_none_or(|server| call.server == server)).take(room).collect();
    let header = ["TIME", "CALL", "STATUS", "TOOK", "CAME BY"].map(str::to_owned);
    let row = |call: &&Call| {
        [
            call.time.clone(),
            format!("{}.{}", call.server, call.tool),
            call.status.clone(),
            call.millis.map(time).unwrap_or_default(),
            call.source.clone(),
        ]
    };
    let rows: Vec<_> = [header].into_iter().chain(calls.iter().map(row)).collect();
    let colour = |call: &&Call| match call.status.as_str() {
        "error" | "timeout" => Some(Colour::Bad),
        "cancelled" => Some(Colour::Warning),
        _ => None,
    };
    let colours = std::iter::once(None).chain(calls.iter().map(colour));
    aligned(&rows).into_iter().zip(colours).collect()
}

/// A duration in a suitable unit.
fn time(millis: f64) -> String {
    match millis {
        millis if millis >= 1000.0 => format!("{:.1} s", millis / 1000.0),
        millis if millis >= 10.0 => format!("{millis:.0} ms"),
        millis => format!("{millis:.1} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let server = |name: &str, status: &str, calls, errors, p95| Server {
            name: name.to_owned(),
            status: status.to_owned(),
            tools: 3,
            calls,
            errors,
            p50: p95,
            p95,
            ..Server::default()
        };
        let call = |server: &str, status: &str| Call {
            time: "12:00:00".to_owned(),
            submitted_at: String::new(),
            server: server.to_owned(),
            tool: "t".to_owned(),
            status: status.to_owned(),
            millis: Some(1234.0),
            source: "mcp".to_owned(),
        };
        Snapshot {
            url: "http://x".to_owned(),
            tools: 6,
            servers: vec![server("b", "connected", 5, 0, Some(2.0)), server("a", "error", 1, 1, Some(50.0))],
            calls: vec![call("a", "error"), call("b", "success")],
            ..Snapshot::default()
        }
    }

    fn shown(choice: &Choice, height: usize) -> Vec<String> {
        frame(&snapshot(), choice, None, Size { width: 80, height }).into_iter().map(|(line, _)| line).collect()
    }

    fn names(choice: &Choice) -> Vec<String> {
        let lines = shown(choice, 24);
        lines[5..7]
            .iter()
            .map(|line| line.trim_start_matches(['>', ' ']).split(' ').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn servers_are_sorted_as_chosen() {
        assert_eq!(names(&Choice::default()), ["a", "b"]);
        assert_eq!(names(&Choice { sort: Sort::Calls, marked: 0 }), ["b", "a"]);
        assert_eq!(names(&Choice { sort: Sort::Slowness, marked: 0 }), ["a", "b"]);
        let mut sort = Sort::Name;
        for _ in 0..4 {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Name);
    }

    #[test]
    fn the_instances_of_a_server_are_below_it() {
        let mut snapshot = snapshot();
        let of = |whose: &str| Instance { whose: whose.into(), status: "running".into(), running_calls: 1 };
        snapshot.servers[1].instances = vec![of("ann"), of("ben")];
        let lines = once(&snapshot, 80);
        let at = |text: &str| lines.iter().position(|line| line.trim_start().starts_with(text)).unwrap();
        assert_eq!([at("ann"), at("ben"), at("b  ")], [at("a ") + 1, at("a ") + 2, at("a ") + 3], "{lines:#?}");
        let size = Size { width: 80, height: 11 };
        let marked: Vec<String> = frame(&snapshot, &Choice { marked: 2, ..Choice::default() }, None, size)
            .into_iter()
            .map(|(line, _)| line)
            .collect();
        assert!(marked.iter().any(|line| line.starts_with(">  b")), "the marked row is visible: {marked:#?}");
    }

    #[test]
    fn a_marked_server_shows_its_own_calls() {
        let all = shown(&Choice::default(), 24).join("\n");
        assert!(all.contains("a.t") && all.contains("b.t") && all.contains("1.2 s"), "{all}");
        let of_b = shown(&Choice { sort: Sort::Name, marked: 2 }, 24).join("\n");
        assert!(!of_b.contains("a.t") && of_b.contains("b.t") && of_b.contains(">  b"), "{of_b}");
    }

    #[test]
    fn the_view_is_as_large_as_the_terminal_and_never_larger() {
        for height in [5, 10, 24, 60] {
            let lines = shown(&Choice::default(), height);
            assert_eq!(lines.len(), height, "{lines:#?}");
            assert!(lines.iter().all(|line| line.chars().count() <= 80));
            assert!(lines.last().unwrap().starts_with("q quit"));
        }
    }

    #[test]
    fn an_error_is_displayed_and_the_old_numbers_stay() {
        let size = Size { width: 80, height: 24 };
        let lines = frame(&snapshot(), &Choice::default(), Some("gone"), size);
        assert_eq!(lines[1], ("no answer: gone".to_owned(), Some(Colour::Bad)));
        assert!(lines.iter().any(|(line, _)| line.contains("connected")));
    }

    #[test]
    fn a_single_view_has_no_keys_and_no_mark() {
        let lines = once(&snapshot(), 100).join("\n");
        assert!(!lines.contains("quit") && !lines.contains('>'), "{lines}");
        assert!(lines.contains("1 of 2 servers connected, 6 tools, 2 calls in the last minute"), "{lines}");
    }
}
