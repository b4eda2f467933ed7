//! Settings that can be changed while the service runs: limits, timeouts, retention.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use registry::{Actor, AuditNote, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use upstream::{Limit, ServerLimits};

use crate::error::Problem;
use crate::{Error, Service};

/// All settings, with their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long a call from REST, the command line, a document or an assistant may take, in milliseconds, waiting for its
    /// turn included.
    pub timeout_ms: u64,
    /// The same for calls of MCP clients; none if absent.
    pub mcp_timeout_ms: Option<u64>,
    /// How many calls from REST, the command line, documents and assistants may run at once.
    pub concurrent_limit: u32,
    /// The same for calls of MCP clients; -1 means any number.
    pub mcp_concurrent_limit: i64,
    /// How many calls may wait for their turn.
    pub queue_limit: u32,
    /// How many calls a document or an assistant may make in one session; -1 means any number.
    pub session_limit: i64,
    /// How often connected servers are checked, in seconds.
    pub health_check_interval_s: u64,
    /// How long a health check may take, in milliseconds.
    pub health_check_timeout_ms: u64,
    /// How long to wait before each further attempt to connect, in milliseconds. Retries of calls wait as long.
    pub retry_backoff_ms: Vec<u64>,
    /// After this many failed retries, a server that never worked is disabled.
    pub failure_threshold: u32,
    /// How long a lazy server may be idle before it is stopped, in seconds.
    pub idle_timeout_s: u64,
    /// Executions older than this are deleted, in days.
    pub keep_executions_days: u32,
    /// More executions than this are deleted, oldest first.
    pub keep_executions: u32,
    /// Rows of the audit log older than this are deleted, in days.
    pub keep_audit_days: u32,
    /// More rows of the audit log than this are deleted, oldest first.
    pub keep_audit: u32,
    /// Events in the histories of servers older than this are deleted, in days.
    pub keep_history_days: u32,
    /// More events than this in the history of one server are deleted, oldest first.
    pub keep_history: u32,
    /// Whether arguments and results are stored with executions.
    pub store_payloads: bool,
    /// Tools that clients see on every surface, by their full names.
    pub pinned_tools: Vec<String>,
    /// Whether what clients call after a search lifts tools in later searches.
    pub learn_from_use: bool,
    /// The result of a server's `initialize` or `server/discover`, instructions included, in kB.
    pub server_handshake_kb: u32,
    /// The instructions of one server, in kB.
    pub server_instructions_kb: u32,
    /// The instructions of all servers, in kB.
    pub all_instructions_kb: u32,
    /// Pages of one list of a server.
    pub server_list_pages: u32,
    /// Everything one server lists, in kB.
    pub server_catalog_kb: u32,
    /// Everything all servers list, in kB.
    pub all_catalogs_kb: u32,
    /// One notification of a server, in kB.
    pub server_notification_kb: u32,
    /// Requests of one server that wait for a client's answer, in kB.
    pub server_requests_kb: u32,
    /// One message of a server, results of calls included, in kB.
    pub server_message_kb: u32,
    /// Large messages of one server that are not delivered yet, in kB.
    pub server_undelivered_kb: u32,
    /// The same of all servers.
    pub all_undelivered_kb: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let of_calls = executions::Settings::default();
        Self {
            timeout_ms: of_calls.timeout_ms,
            mcp_timeout_ms: of_calls.mcp_timeout_ms,
            concurrent_limit: of_calls.concurrent_limit,
            mcp_concurrent_limit: of_calls.mcp_concurrent_limit,
            queue_limit: of_calls.queue_limit,
            session_limit: of_calls.session_limit,
            health_check_interval_s: 30,
            health_check_timeout_ms: 5_000,
            retry_backoff_ms: of_calls.retry_backoff_ms,
            failure_threshold: 3,
            idle_timeout_s: 300,
            keep_executions_days: of_calls.keep_executions_days,
            keep_executions: of_calls.keep_executions,
            keep_audit_days: 365,
            keep_audit: 100_000,
            keep_history_days: 90,
            keep_history: 5_000,
            store_payloads: of_calls.store_payloads,
            pinned_tools: Vec::new(),
            learn_from_use: true,
            server_handshake_kb: Limit::Handshake.default_value(),
            server_instructions_kb: Limit::Instructions.default_value(),
            all_instructions_kb: Limit::AllInstructions.default_value(),
            server_list_pages: Limit::Pages.default_value(),
            server_catalog_kb: Limit::Catalog.default_value(),
            all_catalogs_kb: Limit::AllCatalogs.default_value(),
            server_notification_kb: Limit::Notification.default_value(),
            server_requests_kb: Limit::Requests.default_value(),
            server_message_kb: Limit::Message.default_value(),
            server_undelivered_kb: Limit::Undelivered.default_value(),
            all_undelivered_kb: Limit::AllUndelivered.default_value(),
        }
    }
}

impl Settings {
    /// Applies the limits of servers.
    pub(crate) fn apply_to(&self, limits: &ServerLimits) {
        for limit in Limit::ALL {
            limits.set(limit, self.server_limit(limit));
        }
    }

    /// The settings of executions.
    pub(crate) fn for_executions(&self) -> executions::Settings {
        executions::Settings {
            timeout_ms: self.timeout_ms,
            mcp_timeout_ms: self.mcp_timeout_ms,
            concurrent_limit: self.concurrent_limit,
            mcp_concurrent_limit: self.mcp_concurrent_limit,
            queue_limit: self.queue_limit,
            session_limit: self.session_limit,
            retry_backoff_ms: self.retry_backoff_ms.clone(),
            keep_executions_days: self.keep_executions_days,
            keep_executions: self.keep_executions,
            store_payloads: self.store_payloads,
        }
    }

    fn server_limit(&self, limit: Limit) -> u32 {
        match limit {
            Limit::Handshake => self.server_handshake_kb,
            Limit::Instructions => self.server_instructions_kb,
            Limit::AllInstructions => self.all_instructions_kb,
            Limit::Pages => self.server_list_pages,
            Limit::Catalog => self.server_catalog_kb,
            Limit::AllCatalogs => self.all_catalogs_kb,
            Limit::Notification => self.server_notification_kb,
            Limit::Requests => self.server_requests_kb,
            Limit::Message => self.server_message_kb,
            Limit::Undelivered => self.server_undelivered_kb,
            Limit::AllUndelivered => self.all_undelivered_kb,
        }
    }
}

/// The current settings, shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveSettings(Arc<SettingsState>);

#[derive(Debug, Default)]
struct SettingsState {
    now: RwLock<Arc<Settings>>,
    /// Serialises changes.
    changing: tokio::sync::Mutex<()>,
    /// Notified when they have changed.
    changed: tokio::sync::Notify,
    /// Invalid values in the registry, for which defaults are used. Until settings are changed, which writes all.
    unusable: Mutex<Vec<String>>,
}

impl LiveSettings {
    /// Waits until they are changed.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// The current settings.
    pub(crate) fn now(&self) -> Arc<Settings> {
        Arc::clone(&self.0.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn unusable(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.unusable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which stored settings are not applied, if any, and why.
    pub(crate) fn last_error(&self) -> Option<String> {
        let unusable = self.unusable();
        (!unusable.is_empty())
            .then(|| format!("stored settings are not valid, so defaults are used: {}", unusable.join("; ")))
    }

    /// Prevents other changes while this is held.
    pub(crate) async fn changing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.changing.lock().await
    }

    /// Replaces the settings.
    pub(crate) fn put(&self, settings: Settings) {
        self.unusable().clear();
        *self.0.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.0.changed.notify_waiters();
    }
}

/// The longest useful time: a day.
const DAY_MS: i64 = 24 * 3600 * 1000;

/// The ranges of whole numbers, by name: from, to, and whether -1 means that there is no limit.
pub const SETTING_RANGES: [(&str, i64, i64, bool); 27] = [
    ("timeout_ms", 1, DAY_MS, false),
    ("mcp_timeout_ms", 1, DAY_MS, false),
    ("concurrent_limit", 1, 100_000, false),
    ("mcp_concurrent_limit", 1, 100_000, true),
    ("queue_limit", 0, 1_000_000, false),
    ("session_limit", 0, 1_000_000_000, true),
    ("health_check_interval_s", 1, DAY_MS / 1000, false),
    ("health_check_timeout_ms", 1, 600_000, false),
    ("failure_threshold", 1, 1000, false),
    ("idle_timeout_s", 1, 30 * DAY_MS / 1000, false),
    ("keep_executions_days", 1, 36_500, false),
    ("keep_executions", 0, 100_000_000, false),
    ("keep_audit_days", 1, 36_500, false),
    ("keep_audit", 0, 100_000_000, false),
    ("keep_history_days", 1, 36_500, false),
    ("keep_history", 0, 100_000_000, false),
    range_of(Limit::Handshake),
    range_of(Limit::Instructions),
    range_of(Limit::AllInstructions),
    range_of(Limit::Pages),
    range_of(Limit::Catalog),
    range_of(Limit::AllCatalogs),
    range_of(Limit::Notification),
    range_of(Limit::Requests),
    range_of(Limit::Message),
    range_of(Limit::Undelivered),
    range_of(Limit::AllUndelivered),
];

const fn range_of(limit: Limit) -> (&'static str, i64, i64, bool) {
    let (least, most) = limit.range();
    (limit.setting(), least as i64, most as i64, false)
}

/// How many retry delays there may be.
const MAX_BACKOFF_STEPS: usize = 20;

/// How many tools may be pinned: more would not be a small surface.
const MAX_PINNED_TOOLS: usize = 100;
const MAX_NAME_LEN: usize = 1024;

/// A problem with a value: a message, and a stable identifier.
type SettingProblem = (String, &'static str);

impl Settings {
    /// These settings with changes; or all problems with the changes. `null` resets one to its default.
    pub(crate) fn changed(&self, changes: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let defaults = as_object(&Self::default());
        let mut all = as_object(self);
        let mut problems = Vec::new();
        for (name, value) in changes {
            let Some(default) = defaults.get(name) else {
                let known: Vec<_> = defaults.keys().map(String::as_str).collect();
                let msg = format!("there is no setting `{name}`; the settings are {}", known.join(", "));
                problems.push(problem(name, msg, "extra_forbidden"));
                continue;
            };
            let value = if value.is_null() { default } else { value };
            if !value.is_null()
                && let Err((msg, kind)) = check(name, value)
            {
                problems.push(problem(name, msg, kind));
                continue;
            }
            all.insert(name.clone(), value.clone());
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        serde_json::from_value(Value::Object(all))
            .map_err(|error| vec![problem("", format!("these settings contradict each other: {error}"), "value_error")])
    }

    /// What to store for these settings: only what differs from the default, and `null` for the rest.
    fn to_store(&self) -> BTreeMap<String, Value> {
        let defaults = as_object(&Self::default());
        let differs = |name: &String, value: &Value| defaults.get(name) != Some(value);
        let kept = |(name, value): (String, Value)| {
            let value = if differs(&name, &value) { value } else { Value::Null };
            (name, value)
        };
        as_object(self).into_iter().map(kept).collect()
    }
}

fn as_object(settings: &Settings) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(members)) => members,
        _ => unreachable!("settings must be an object"),
    }
}

fn problem(name: &str, msg: String, kind: &'static str) -> Problem {
    let loc = ["body", name].into_iter().filter(|part| !part.is_empty()).map(str::to_owned).collect();
    Problem { loc, msg, kind }
}

fn check(name: &str, value: &Value) -> Result<(), SettingProblem> {
    match name {
        "store_payloads" | "learn_from_use" if value.is_boolean() => Ok(()),
        "store_payloads" | "learn_from_use" => Err((format!("`{name}` must be true or false"), "bool_type")),
        "retry_backoff_ms" => check_pauses(name, value),
        "pinned_tools" => check_names(name, value),
        _ => check_number(name, value),
    }
}

fn check_number(name: &str, value: &Value) -> Result<(), SettingProblem> {
    let Some(&(_, least, most, may_be_unlimited)) = SETTING_RANGES.iter().find(|range| range.0 == name) else {
        return Err((format!("there is no setting `{name}`"), "extra_forbidden"));
    };
    let unlimited = if may_be_unlimited { ", or -1 for no limit" } else { "" };
    let Some(number) = value.as_i64() else {
        return Err((format!("`{name}` must be a whole number from {least} to {most}{unlimited}"), "int_type"));
    };
    if (least..=most).contains(&number) || may_be_unlimited && number == -1 {
        return Ok(());
    }
    let kind = if number < least { "greater_than_equal" } else { "less_than_equal" };
    Err((format!("`{name}` is {number}; it must be from {least} to {most}{unlimited}"), kind))
}

fn check_names(name: &str, value: &Value) -> Result<(), SettingProblem> {
    let is_name = |value: &Value| value.as_str().is_some_and(|name| is_full(name) && name.len() <= MAX_NAME_LEN);
    // Whatever the separator between a server and its tool is, it is neither a letter nor a digit.
    let names = value.as_array().filter(|names| names.len() <= MAX_PINNED_TOOLS && names.iter().all(is_name));
    let sentence = || format!("`{name}` must be a list of at most {MAX_PINNED_TOOLS} names, such as `server.tool`");
    names.map(drop).ok_or_else(|| (sentence(), "list_type"))
}

/// Whether a name can be that of a server and its tool.
fn is_full(name: &str) -> bool {
    name.trim_matches(|outgoing: char| !outgoing.is_alphanumeric())
        .contains(|outgoing: char| !outgoing.is_alphanumeric())
}

fn check_pauses(name: &str, value: &Value) -> Result<(), SettingProblem> {
    let is_pause = |value: &Value| value.as_i64().is_some_and(|pause| (0..=DAY_MS).contains(&pause));
    let pauses = value.as_array().filter(|pauses| (1..=MAX_BACKOFF_STEPS).contains(&pauses.len()));
    let pauses = pauses.filter(|pauses| pauses.iter().all(is_pause));
    let sentence = || format!("`{name}` must be a list of 1 to {MAX_BACKOFF_STEPS} whole numbers from 0 to {DAY_MS}");
    pauses.map(drop).ok_or_else(|| (sentence(), "list_type"))
}

impl LiveSettings {
    /// The stored settings. Invalid values are reported, and the default is used.
    pub(crate) async fn load(store: &Store) -> Result<Self, Error> {
        let (mut settings, mut unusable) = (Settings::default(), Vec::new());
        for (name, value) in store.settings().await? {
            let change = Map::from_iter([(name.clone(), value)]);
            match settings.changed(&change) {
                Ok(changed) => settings = changed,
                Err(problems) => {
                    let problem = problems.first().map_or("", |problem| &problem.msg);
                    tracing::warn!(setting = name, problem, "a stored setting is not valid; the default is used");
                    // A setting of a newer version has no default here.
                    if as_object(&settings).contains_key(&name) {
                        unusable.push(problem.to_owned());
                    }
                }
            }
        }
        let live_settings = Self::default();
        live_settings.put(settings);
        *live_settings.unusable() = unusable;
        Ok(live_settings)
    }
}

/// The settings in a registry, while no service runs.
pub async fn stored_settings(store: &Store) -> Result<Settings, Error> {
    Ok((*LiveSettings::load(store).await?.now()).clone())
}

/// Changes the settings in a registry, while no service runs. If a change is invalid, nothing is changed.
pub async fn change_stored_settings(store: &Store, by: &Actor, changes: Map<String, Value>) -> Result<Settings, Error> {
    let changed = stored_settings(store).await?.changed(&changes).map_err(|problems| Error::Validation { problems })?;
    let mut change = store.transaction("change settings").await?;
    change.put_settings(changed.to_store()).await?;
    change.commit_audited(AuditNote::new(by, "settings.change", None, Some(Value::Object(changes)))).await?;
    Ok(changed)
}

impl Service {
    /// The current settings.
    pub fn settings(&self) -> Settings {
        (*self.settings.now()).clone()
    }

    /// Keeps the tools of a renamed server pinned.
    pub(crate) async fn rename_pins(&self, by: &Actor, before: &str, after: &str) -> Result<(), Error> {
        let (before, after) = (self.fleet.full_name(before, ""), self.fleet.full_name(after, ""));
        let renamed = |pin: &String| pin.strip_prefix(&before).map_or(pin.clone(), |tool| format!("{after}{tool}"));
        let pins = self.settings().pinned_tools;
        let renamed: Vec<_> = pins.iter().map(renamed).collect();
        if renamed != pins {
            self.change_settings(by, json!({ "pinned_tools": renamed })).await?;
        }
        Ok(())
    }

    /// Changes settings; they take effect at once. If a change is invalid, nothing is changed.
    pub async fn change_settings(&self, by: &Actor, changes: Value) -> Result<Settings, Error> {
        let Value::Object(changes) = changes else {
            let msg = "expected a JSON object with settings".to_owned();
            return Err(Error::Validation { problems: vec![problem("", msg, "dict_type")] });
        };
        // One after the other: each starts from the result of the last one.
        let _turn = self.settings.changing().await;
        let before = self.settings.now();
        let changed = before.changed(&changes).map_err(|problems| Error::Validation { problems })?;
        let mut change = self.store.transaction("change settings").await?;
        change.put_settings(changed.to_store()).await?;
        change.commit_audited(AuditNote::new(by, "settings.change", None, Some(Value::Object(changes)))).await?;
        self.apply_settings(&before, &changed);
        Ok(changed)
    }

    /// Applies settings that have been written.
    pub(crate) fn apply_settings(&self, before: &Settings, changed: &Settings) {
        self.settings.put(changed.clone());
        self.executions.apply_settings(changed.for_executions());
        changed.apply_to(self.fleet.server_limits());
        self.fleet.set_instance_idle_timeout(Duration::from_secs(changed.idle_timeout_s));
        if before.pinned_tools != changed.pinned_tools {
            self.fleet.surface_changed();
        }
        if !changed.learn_from_use {
            self.finder.forget_uses();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(changes: Value) -> Result<Settings, Vec<Problem>> {
        let Value::Object(changes) = changes else { panic!("no object") };
        Settings::default().changed(&changes)
    }

    #[test]
    fn a_setting_set_to_its_default_is_not_stored() {
        let all = as_object(&Settings::default());
        let settings = changed(Value::Object(all)).unwrap();
        assert_eq!(settings, Settings::default());
        assert!(settings.to_store().values().all(Value::is_null));
    }

    #[test]
    fn only_differences_are_stored_and_null_resets_them() {
        let settings = changed(json!({"timeout_ms": 5, "mcp_timeout_ms": 7, "session_limit": -1})).unwrap();
        let kept = settings.to_store().into_iter().filter(|(_, value)| !value.is_null()).collect::<BTreeMap<_, _>>();
        assert_eq!(json!(kept), json!({"timeout_ms": 5, "mcp_timeout_ms": 7, "session_limit": -1}));
        let back = json!({"timeout_ms": null, "mcp_timeout_ms": null, "session_limit": null});
        assert_eq!(settings.changed(back.as_object().unwrap()), Ok(Settings::default()));
    }

    #[test]
    fn everything_that_is_wrong_is_reported_with_where_it_is() {
        let problems = changed(json!({
            "timeout_ms": 0, "concurrent_limit": -1, "mcp_concurrent_limit": -2, "queue_limit": "many",
            "retry_backoff_ms": [1, "x"], "store_payloads": 1, "timeout": 5, "keep_executions": 1.5, "session_limit": 7
        }))
        .unwrap_err();
        let reported: Vec<_> = problems.iter().map(|problem| (problem.loc[1].as_str(), problem.kind)).collect();
        let expected = [
            ("timeout_ms", "greater_than_equal"),
            ("concurrent_limit", "greater_than_equal"),
            ("mcp_concurrent_limit", "greater_than_equal"),
            ("queue_limit", "int_type"),
            ("retry_backoff_ms", "list_type"),
            ("store_payloads", "bool_type"),
            ("timeout", "extra_forbidden"),
            ("keep_executions", "int_type"),
        ];
        assert_eq!(reported, expected);
        assert_eq!(problems[2].msg, "`mcp_concurrent_limit` is -2; it must be from 1 to 100000, or -1 for no limit");
    }

    #[test]
    fn every_number_among_the_settings_has_a_range() {
        for (name, value) in as_object(&Settings::default()) {
            assert!(value.is_null() || check(&name, &value).is_ok(), "{name}");
        }
        assert!(SETTING_RANGES.iter().all(|range| as_object(&Settings::default()).contains_key(range.0)));
    }

    #[test]
    fn every_limit_of_servers_is_the_setting_of_its_name() {
        for limit in Limit::ALL {
            let settings = changed(json!({limit.setting(): 2048})).unwrap();
            let limits = ServerLimits::from_settings();
            settings.apply_to(&limits);
            let unit = if limit == Limit::Pages { 1 } else { 1024 };
            assert_eq!(limits.most(limit), 2048 * unit, "{limit:?}");
        }
    }
}
