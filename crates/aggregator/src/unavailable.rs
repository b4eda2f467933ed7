//! Errors for requests to servers that are not connected.

use std::time::{Duration, SystemTime};

use catalog::{SIGN_IN_REQUIRED, ServerEntry, ServerState, Unavailable, login_command, sign_in_sentence};
use protocol::reply::{self, code};

/// The error response to a request for a server that is not connected.
pub(crate) fn answer(id: &[u8], server: &ServerEntry) -> Vec<u8> {
    let data = reply::object(describe(server));
    reply::error(id, code::INTERNAL_ERROR, &sentence(server, now()), Some(&data))
}

/// The `data` members for programs.
pub(crate) fn describe(server: &ServerEntry) -> Vec<(&'static str, Vec<u8>)> {
    let reason = match &server.state {
        _ if needs_sign_in(server) => SIGN_IN_REQUIRED,
        ServerState::Unavailable(_) => "server_unavailable",
        _ => "server_failed",
    };
    let mut members = vec![
        ("reason", reply::string(reason)),
        ("server", reply::string(server.name.as_ref())),
        ("detail", reply::string(&server.state.to_string())),
    ];
    if let ServerState::Unavailable(unavailable) = &server.state {
        let now = now();
        members.push(("status", reply::string(unavailable.status)));
        members.push(("downForSeconds", seconds(now.saturating_sub(unavailable.since))));
        members.extend(unavailable.retry_at.map(|at| ("retryInSeconds", seconds(at.saturating_sub(now)))));
        members.push(("safeToRetry", b"true".to_vec()));
    }
    if let ServerState::Unavailable(unavailable) = &server.state
        && needs_sign_in(server)
    {
        let usual = || login_command(server.name.as_ref()).into();
        members.push(("command", reply::string(&unavailable.command.clone().unwrap_or_else(usual))));
    }
    members
}

/// Whether the server waits until a person signs in to it.
pub(crate) fn needs_sign_in(server: &ServerEntry) -> bool {
    matches!(&server.state, ServerState::Unavailable(unavailable) if unavailable.status == SIGN_IN_REQUIRED)
}

/// The message for people.
fn sentence(server: &ServerEntry, now: Duration) -> String {
    let name = &server.name;
    let ServerState::Unavailable(unavailable) = &server.state else { return format!("Server `{name}` is not running") };
    let Unavailable { status, why, since, retry_at, .. } = &**unavailable;
    if needs_sign_in(server) {
        return sign_in_sentence(name.as_ref(), why.as_deref());
    }
    let mut text = format!("Server `{name}` is not connected: {status} for {}", spell(now.saturating_sub(*since)));
    if let Some(at) = retry_at {
        text += &format!("; next attempt in {}", spell(at.saturating_sub(now)));
    }
    match why {
        Some(why) => text + "; " + why,
        None => text,
    }
}

/// Whole seconds, rounded up: a future event must not be reported as 0 seconds away.
fn seconds(duration: Duration) -> Vec<u8> {
    duration.as_secs_f64().ceil().to_string().into_bytes()
}

fn spell(duration: Duration) -> String {
    match duration.as_secs() {
        0 => "less than a second".to_owned(),
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use catalog::{Offer, ServerName};
    use protocol::Lifecycle;

    use super::*;

    #[test]
    fn an_unavailable_server_is_reported_with_since_and_until() {
        let unavailable = Unavailable {
            status: "error",
            why: Some("it exited with status 3".into()),
            command: None,
            since: Duration::from_secs(1000),
            retry_at: Some(Duration::from_secs(1205)),
        };
        let server = ServerEntry {
            name: ServerName::new("db").unwrap(),
            state: ServerState::Unavailable(Arc::new(unavailable)),
            offer: Arc::new(Offer::new(Lifecycle::Session)),
        };
        let text = "Server `db` is not connected: error for 3 min; next attempt in 5 s; it exited with status 3";
        assert_eq!(sentence(&server, Duration::from_secs(1200)), text);
    }

    #[test]
    fn a_server_without_a_sign_in_is_reported_with_the_command_that_signs_in() {
        let unavailable = Unavailable {
            status: SIGN_IN_REQUIRED,
            why: Some("it answered 401".into()),
            command: None,
            since: Duration::ZERO,
            retry_at: None,
        };
        let server = |unavailable: &Unavailable| ServerEntry {
            name: ServerName::new("notion").unwrap(),
            state: ServerState::Unavailable(Arc::new(unavailable.clone())),
            offer: Arc::new(Offer::new(Lifecycle::Session)),
        };
        let whole = "mcp-aggregator login notion --config mcp.json";
        let of_config = Unavailable { command: Some(whole.into()), ..unavailable.clone() };
        let answer_of_config = String::from_utf8(answer(b"1", &server(&of_config))).unwrap();
        assert!(answer_of_config.contains(&format!(r#""command":"{whole}""#)), "{answer_of_config}");
        let answer = String::from_utf8(answer(b"1", &server(&unavailable))).unwrap();
        for part in [
            r#""message":"Server `notion` requires a sign-in: it answered 401; run `mcp-aggregator login notion`""#,
            r#""reason":"sign_in_required""#,
            r#""command":"mcp-aggregator login notion""#,
        ] {
            assert!(answer.contains(part), "{answer}");
        }
    }
}
