//! Limits of calls: they are set, shown and removed here, and apply at once. [`executions`] counts calls against them.

use catalog::{Kind, Scope};
use executions::limits::{EACH, LimitView};
use registry::{Actor, AuditNote, CallLimit, CallRate, LimitKind, LimitRecord};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{Error, Problem, Service};

/// The longest name of what a limit is for, in bytes.
const MAX_NAME_LEN: usize = 1024;
/// The highest number of calls at once, and of calls in a day.
const MAX_BURST: u64 = 1_000_000;
const MAX_CONCURRENT: u64 = 1_000_000;
const MAX_PER_DAY: u64 = 1_000_000_000_000;

/// The members of a limit.
pub const LIMIT_MEMBERS: [&str; 4] = ["per_second", "burst", "concurrent", "per_day"];

/// A limit as it is shown.
#[derive(Debug, Clone, Serialize)]
pub struct ShownLimit {
    /// The limit, and what counts against it.
    #[serde(flatten)]
    pub view: LimitView,
    /// Whether there is a server of that name, or a known tool. None for identities and profiles, and for defaults.
    pub exists: Option<bool>,
}

impl Service {
    /// All limits, by kind and name.
    pub fn limits(&self) -> Vec<ShownLimit> {
        self.executions.limits().view().into_iter().map(|view| self.shown(view)).collect()
    }

    /// Sets a limit in place of an earlier one. It applies at once; what was counted still counts.
    pub async fn put_limit(
        &self,
        by: &Actor,
        kind: LimitKind,
        name: &str,
        members: &Map<String, Value>,
    ) -> Result<ShownLimit, Error> {
        let limit = read_limit(kind, name, members).map_err(|problems| Error::Validation { problems })?;
        // Limits apply in the order in which they are stored.
        let _turn = self.settings.changing().await;
        let mut change = self.store.transaction("set a limit").await?;
        let record = change.put_limit(kind, name, limit).await?;
        change
            .commit_audited(AuditNote::new(by, "limit.put", Some(&limit_target(kind, name)), Some(json!(limit))))
            .await?;
        self.executions.limits().put(&record);
        let view = self.executions.limits().find(kind, name);
        view.map(|view| self.shown(view)).ok_or_else(|| Error::LimitNotFound { key: limit_target(kind, name) })
    }

    /// Removes a limit, and what was counted against it.
    pub async fn remove_limit(&self, by: &Actor, kind: LimitKind, name: &str) -> Result<(), Error> {
        let _turn = self.settings.changing().await;
        let mut change = self.store.transaction("remove a limit").await?;
        change.delete_limit(kind, name).await?;
        change.commit_audited(AuditNote::new(by, "limit.remove", Some(&limit_target(kind, name)), None)).await?;
        self.executions.limits().remove(kind, name);
        Ok(())
    }

    fn shown(&self, view: LimitView) -> ShownLimit {
        let LimitRecord { kind, name, .. } = &view.record;
        let exists = match kind {
            _ if name == EACH => None,
            LimitKind::Server => Some(self.context.find(name).is_ok()),
            LimitKind::Tool => {
                let snapshot = &self.fleet.view().snapshot;
                Some(snapshot.resolve(Scope::All, Kind::Tool, name).is_some())
            }
            LimitKind::Identity | LimitKind::Profile => None,
        };
        ShownLimit { view, exists }
    }
}

/// The target of an audit note about a limit.
pub fn limit_target(kind: LimitKind, name: &str) -> String {
    format!("{kind} {name}")
}

/// Reads a limit, or reports everything that is wrong with it.
pub fn read_limit(kind: LimitKind, name: &str, members: &Map<String, Value>) -> Result<CallLimit, Vec<Problem>> {
    let mut problems: Vec<Problem> = problem_with_name(kind, name).into_iter().collect();
    for member in members.keys().filter(|member| !LIMIT_MEMBERS.contains(&member.as_str())) {
        let msg = format!("`{member}` is not a member of a limit; expected one of {}", LIMIT_MEMBERS.join(", "));
        problems.push(problem(member, msg, "extra_forbidden"));
    }
    let mut whole = |member: &str, most: u64| {
        let given = members.get(member).filter(|value| !value.is_null())?;
        let read = given.as_u64().filter(|number| (1..=most).contains(number));
        if read.is_none() {
            let msg =
                format!("`{member}` is {given}; it must be a whole number from 1 to {most}, or null for no limit");
            problems.push(problem(member, msg, "value_error"));
        }
        read
    };
    let burst = whole("burst", MAX_BURST).and_then(|burst| u32::try_from(burst).ok());
    let concurrent = whole("concurrent", MAX_CONCURRENT).and_then(|most| u32::try_from(most).ok());
    let per_day = whole("per_day", MAX_PER_DAY);
    let given = |member: &str| members.get(member).filter(|value| !value.is_null());
    let per_second = given("per_second").and_then(|given| {
        let read = given.as_f64().and_then(CallRate::per_second);
        if read.is_none() {
            let (least, most) = CallRate::RANGE;
            let msg = format!(
                "`per_second` is {given}; it must be a number from {least} to {most} with at most three decimals, or \
                 null for no limit"
            );
            problems.push(problem("per_second", msg, "value_error"));
        }
        read
    });
    if given("burst").is_some() && given("per_second").is_none() {
        let msg = "`burst` is how many calls may begin at once within `per_second`; set that, too".to_owned();
        problems.push(problem("burst", msg, "value_error"));
    }
    if LIMIT_MEMBERS.iter().all(|member| given(member).is_none()) {
        let msg = "set at least one of per_second, concurrent and per_day; to have no limit, remove it";
        problems.push(Problem { loc: vec!["body".to_owned()], msg: msg.to_owned(), kind: "missing" });
    }
    if problems.is_empty() { Ok(CallLimit { per_second, burst, concurrent, per_day }) } else { Err(problems) }
}

fn problem_with_name(kind: LimitKind, name: &str) -> Option<Problem> {
    let msg = match name {
        EACH => return None,
        "" => format!("name the {kind}, or use `*` for each one that has no limit of its own"),
        _ if name.len() > MAX_NAME_LEN => format!("the name of a limit has at most {MAX_NAME_LEN} bytes"),
        _ if name.chars().any(char::is_control) => "the name of a limit has no control characters".to_owned(),
        _ if name.contains('*') => {
            "only `*` alone stands for each one; to limit all tools of a server together, limit the server".to_owned()
        }
        _ if kind == LimitKind::Tool && !name.contains('.') => {
            format!("`{name}` is not the full name of a tool, as in `server.tool`")
        }
        _ => return None,
    };
    Some(Problem { loc: vec!["path".to_owned(), "name".to_owned()], msg, kind: "value_error" })
}

fn problem(member: &str, msg: String, kind: &'static str) -> Problem {
    Problem { loc: vec!["body".to_owned(), member.to_owned()], msg, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: LimitKind, name: &str, members: Value) -> Result<CallLimit, Vec<(String, String)>> {
        let Value::Object(members) = members else { panic!("no object") };
        let problems =
            |problems: Vec<Problem>| problems.into_iter().map(|problem| (problem.loc.join("."), problem.msg)).collect();
        read_limit(kind, name, &members).map_err(problems)
    }

    #[test]
    fn a_limit_may_have_any_of_its_members_and_null_is_none() {
        let limit = read(LimitKind::Server, "git", json!({"per_second": 2.5, "burst": 10, "per_day": null})).unwrap();
        assert_eq!((limit.per_second, limit.burst), (CallRate::per_second(2.5), Some(10)));
        assert_eq!((limit.concurrent, limit.per_day), (None, None));
        for name in ["oauth:https://id.example/ ann", "local", "*"] {
            assert!(read(LimitKind::Identity, name, json!({"concurrent": 1})).is_ok(), "{name}");
        }
        assert!(read(LimitKind::Tool, "git.log", json!({"per_day": 1_000_000_000_000_u64})).is_ok());
    }

    #[test]
    fn everything_that_is_wrong_is_reported_with_its_member_and_what_would_be_valid() {
        let wrong = json!({
            "per_second": 0, "burst": -1, "concurrent": 1.5, "per_day": "many", "per_hour": 1,
        });
        let problems = read(LimitKind::Tool, "log", wrong).unwrap_err();
        let places: Vec<&str> = problems.iter().map(|(place, _)| place.as_str()).collect();
        let expected =
            ["path.name", "body.per_hour", "body.burst", "body.concurrent", "body.per_day", "body.per_second"];
        assert_eq!(places, expected);
        for (place, msg) in &problems {
            let fix = ["as in `server.tool`", "expected one of", "it must be"];
            assert!(fix.iter().any(|fix| msg.contains(fix)), "{place}: {msg}");
        }
        for rate in [json!(0.0005), json!(100_001), json!(1.0001), json!("1"), json!(true)] {
            assert!(read(LimitKind::Server, "git", json!({"per_second": rate})).is_err());
        }
    }

    #[test]
    fn a_limit_that_limits_nothing_or_has_no_possible_name_is_refused() {
        let place = |kind, name: &str, members| {
            let problems = read(kind, name, members).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            problems[0].0.clone()
        };
        assert_eq!(place(LimitKind::Identity, "ann", json!({})), "body");
        assert_eq!(place(LimitKind::Identity, "ann", json!({"per_day": null})), "body");
        assert_eq!(place(LimitKind::Identity, "ann", json!({"burst": 3})), "body.burst");
        for name in ["", "a\nb", "git.*", &"x".repeat(1025)] {
            assert_eq!(place(LimitKind::Tool, name, json!({"per_day": 1})), "path.name", "{name}");
        }
    }
}
