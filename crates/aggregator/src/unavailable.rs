//! Servers that are not there: what a client is told who needs one.

use std::time::{Duration, SystemTime};

use catalog::{Downtime, ServerEntry, ServerState};
use protocol::reply::{self, code};

/// The answer to a request for a server that is not there.
pub(crate) fn answer(id: &[u8], server: &ServerEntry) -> Vec<u8> {
    let data = reply::object(describe(server));
    reply::error(id, code::INTERNAL_ERROR, &sentence(server, now()), Some(&data))
}

/// What programs can know about it.
pub(crate) fn describe(server: &ServerEntry) -> Vec<(&'static str, Vec<u8>)> {
    let reason = if matches!(server.state, ServerState::Down(_)) { "server_unavailable" } else { "server_failed" };
    let mut members = vec![
        ("reason", reply::string(reason)),
        ("server", reply::string(server.name.as_ref())),
        ("detail", reply::string(&server.state.to_string())),
    ];
    if let ServerState::Down(unavailable) = &server.state {
        let now = now();
        members.push(("status", reply::string(unavailable.status)));
        members.push(("downForSeconds", seconds(now.saturating_sub(unavailable.since))));
        members.extend(unavailable.retry_at.map(|at| ("retryInSeconds", seconds(at.saturating_sub(now)))));
        members.push(("safeToRetry", b"true".to_vec()));
    }
    members
}

/// The same for people.
fn sentence(server: &ServerEntry, now: Duration) -> String {
    let name = &server.name;
    let ServerState::Down(unavailable) = &server.state else { return format!("Server `{name}` is not running") };
    let Downtime { status, why, since, retry_at } = &**unavailable;
    let mut text = format!("Server `{name}` is not connected: {status} for {}", spell(now.saturating_sub(*since)));
    if let Some(at) = retry_at {
        text += &format!("; next attempt in {}", spell(at.saturating_sub(now)));
    }
    match why {
        Some(why) => text + "; " + why,
        None => text,
    }
}

/// Whole seconds are enough, but what is about to happen is not happening now.
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
        let unavailable = Downtime {
            status: "error",
            why: Some("it exited with status 3".into()),
            since: Duration::from_secs(1000),
            retry_at: Some(Duration::from_secs(1205)),
        };
        let server = ServerEntry {
            name: ServerName::new("db").unwrap(),
            state: ServerState::Down(Arc::new(unavailable)),
            offer: Arc::new(Offer::new(Lifecycle::Session)),
        };
        let text = "Server `db` is not connected: error for 3 min; next attempt in 5 s; it exited with status 3";
        assert_eq!(sentence(&server, Duration::from_secs(1200)), text);
    }
}
