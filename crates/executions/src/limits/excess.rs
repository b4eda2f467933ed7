//! A limit that refuses a call, for its caller: which limit of what, and when to try again.

use std::sync::Arc;
use std::time::Duration;

use registry::{LimitKind, several_calls};
use serde_json::{Value, json};

use super::usage::Bound;

/// A limit that refuses a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitExcess {
    /// What is limited.
    pub(crate) kind: LimitKind,
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Which bound is reached.
    pub(crate) bound: Bound,
    /// When the call may be made again.
    pub(crate) retry_after: Duration,
}

impl LimitExcess {
    /// The message for people.
    pub(crate) fn message(&self) -> String {
        let Self { kind, name, bound, retry_after } = self;
        let subject = match kind {
            // It knows its name, and nobody else needs to.
            LimitKind::Identity => "This identity".to_owned(),
            LimitKind::Profile => format!("Profile `{name}`"),
            LimitKind::Server => format!("Server `{name}`"),
            LimitKind::Tool => format!("Tool `{name}`"),
        };
        let limit = match bound {
            Bound::PerSecond(rate, burst) => {
                format!(
                    "{} per second (bursts of {burst}); try again in {}",
                    several_calls(rate),
                    in_words(*retry_after)
                )
            }
            Bound::Concurrent(most) => format!("{} at once; try again when one has ended", several_calls(most)),
            Bound::PerDay(most) => {
                format!("{} per day; the next day begins in {} (UTC)", several_calls(most), in_words(*retry_after))
            }
        };
        format!("{subject} has reached its limit of {limit}")
    }

    /// The limit, for programs.
    pub(crate) fn context(&self) -> Value {
        let Self { kind, name, bound, retry_after } = self;
        let mut context = json!({ "limit": bound.name(), "of": kind });
        if *kind != LimitKind::Identity {
            context["name"] = json!(**name);
        }
        context[bound.name()] = match bound {
            Bound::PerSecond(rate, _) => json!(rate),
            Bound::Concurrent(most) => json!(most),
            Bound::PerDay(most) => json!(most),
        };
        context["retry_after_ms"] =
            json!(u64::try_from(retry_after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX));
        context
    }
}

/// A time to wait, rounded up to its largest units.
fn in_words(span: Duration) -> String {
    let millis = span.as_nanos().div_ceil(1_000_000);
    let seconds = millis.div_ceil(1000);
    let minutes = seconds.div_ceil(60);
    match (millis, seconds, minutes) {
        (..1000, ..) => format!("{millis} ms"),
        (_, ..120, _) => format!("{seconds} s"),
        (.., ..120) => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use registry::CallRate;

    use super::*;

    fn excess(kind: LimitKind, name: &str, bound: Bound, millis: u64) -> LimitExcess {
        LimitExcess { kind, name: name.into(), bound, retry_after: Duration::from_millis(millis) }
    }

    #[test]
    fn a_refusal_says_which_limit_of_what_is_reached_and_names_no_identity() {
        let rate = CallRate::per_second(0.5).unwrap();
        let of_identity = excess(LimitKind::Identity, "ann", Bound::PerSecond(rate, 3), 1_230);
        assert_eq!(
            of_identity.message(),
            "This identity has reached its limit of 0.5 calls per second (bursts of 3); try again in 2 s"
        );
        let context = json!({"limit": "per_second", "of": "identity", "per_second": 0.5, "retry_after_ms": 1230});
        assert_eq!(of_identity.context(), context);
        let of_server = excess(LimitKind::Server, "git", Bound::Concurrent(4), 1_000);
        assert_eq!(
            of_server.message(),
            "Server `git` has reached its limit of 4 calls at once; try again when one has ended"
        );
        assert_eq!((&of_server.context()["name"], &of_server.context()["concurrent"]), (&json!("git"), &json!(4)));
        let of_tool = excess(LimitKind::Tool, "git.log", Bound::PerDay(100), 11_520_000);
        assert_eq!(
            of_tool.message(),
            "Tool `git.log` has reached its limit of 100 calls per day; the next day begins in 3 h 12 min (UTC)"
        );
    }

    #[test]
    fn a_wait_is_never_shown_as_shorter_than_it_is() {
        for (nanos, words) in [
            (1, "1 ms"),
            (999_000_000, "999 ms"),
            (999_000_001, "1 s"),
            (1_000_000_001, "2 s"),
            (119_000_000_000, "119 s"),
            (119_000_000_001, "2 min"),
            (7_200_000_000_000, "2 h 0 min"),
        ] {
            assert_eq!(in_words(Duration::from_nanos(nanos)), words, "{nanos}");
        }
    }
}
