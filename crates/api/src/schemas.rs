//! The named schemas of the OpenAPI document, one file per subject.

mod backup;
pub(crate) mod documents;
mod executions;
mod items;
mod limits;
mod overview;
mod profiles;
mod servers;
mod tools;

use serde_json::json;

use crate::schema::Schema;
pub(crate) use backup::{backup, new_binding};
pub(crate) use executions::call;
pub(crate) use items::{prompt_request, resource_request};
pub(crate) use limits::limit;
pub(crate) use overview::changed_settings;
pub(crate) use profiles::profile_request;
pub(crate) use servers::{force, registration, sign_in_request, test_request, update};
pub(crate) use tools::{changed_skill, search, suggestion, switched};

/// A schema for the values of an enum.
macro_rules! string_enum {
    ($name:ident) => {
        Schema::one_of($name::ALL.iter().map(|value| value.as_str()))
    };
}
use string_enum;

/// Every named schema.
pub(crate) fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("Server", servers::server()),
        ("Tool", tools::tool()),
        ("FoundTool", tools::found_tool()),
        ("Findings", tools::findings()),
        ("Skill", tools::skill()),
        ("Profile", profiles::profile()),
        ("Prompt", items::prompt()),
        ("Resource", items::resource()),
        ("Client", items::client()),
        ("Health", servers::server_health()),
        ("SignInAttempt", servers::sign_in_attempt()),
        ("SignInState", servers::sign_in_state()),
        ("HistoryEvent", servers::history_event()),
        ("TestReport", servers::test_report()),
        ("Result", executions::result()),
        ("Execution", executions::execution()),
        ("Binding", backup::binding()),
        ("Stopped", executions::stopped()),
        ("State", overview::state()),
        ("ServiceHealth", overview::service_health()),
        ("Settings", overview::settings()),
        ("Limit", limits::shown_limit()),
        ("AuditRecord", overview::audit_record()),
        ("Registry", backup::backup()),
        ("ImportReport", backup::import_report()),
        ("Problem", problem()),
        ("Error", error()),
    ]
    .into_iter()
    .chain(documents::all())
    .collect()
}

fn moment() -> Schema {
    Schema::formatted("date-time")
}

fn problem() -> Schema {
    Schema::object()
        .with("loc", Schema::list(Schema::text()).such_as(json!(["body", "name"])))
        .with("msg", Schema::text())
        .with("type", Schema::text().such_as("missing"))
}

fn error() -> Schema {
    Schema::object()
        .with(
            "detail",
            Schema::either([Schema::text(), Schema::list(Schema::named("Problem"))])
                .about("A message for people; with status 422, a list of what is wrong."),
        )
        .with("error_code", Schema::text().about("A stable code for programs."))
        .with("context", Schema::any_object().about("The objects the error is about."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry::{Source, Status};
    use serde_json::Value;
    use service::Settings;

    /// Members that only the value or only its schema has.
    fn differences(schema: &Schema, value: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        schema.check(&[], value, &mut problems);
        let documented = schema.member_names();
        let undocumented = value.as_object().unwrap().keys().filter(|name| !documented.contains(&name.as_str()));
        problems
            .iter()
            .map(|problem| format!("{}: {}", problem.loc.join("."), problem.msg))
            .chain(undocumented.cloned())
            .collect()
    }

    #[test]
    fn responses_match_their_schemas() {
        let state = service::ServiceState {
            total_servers: 1,
            connected_servers: 1,
            disconnected_servers: 0,
            connecting_servers: 0,
            asleep_servers: 0,
            disabled_servers: 0,
            sign_in_required_servers: 0,
            error_servers: 0,
            total_tools: 1,
            classified_tools: 0,
            unclassified_tools: 1,
            tool_states: tool_search::ToolStates::default(),
            last_sync: Some(registry::Timestamp::now()),
            uptime_seconds: 1.5,
            executions_stopped: false,
        };
        let execution = registry::ExecutionRecord::submitted("a", "b", Source::Rest);
        let report = service::TestReport {
            success: true,
            duration_ms: 1.0,
            server_info: None,
            tools: vec![],
            descriptions: vec![],
            error: None,
            sign_in_required: false,
        };
        let health = service::ServerHealth {
            server_id: registry::ServerId::fresh().to_string(),
            name: "a".to_owned(),
            status: Status::Connected,
            is_healthy: true,
            last_check: None,
            latency_ms: Some(0.5),
            consecutive_failures: 0,
            failure_count: 0,
            retry_count: 0,
            next_retry_at: None,
            error_message: None,
            warning: None,
            instances: Vec::new(),
        };
        let prompt = service::PromptView {
            name: "a.b".to_owned(),
            original_name: "b".to_owned(),
            server_name: "a".to_owned(),
            title: None,
            description: None,
            arguments: registry::RawJson::parse("[]").unwrap(),
        };
        let resource = service::ResourceView {
            uri: "file:///a".to_owned(),
            name: None,
            title: None,
            description: None,
            mime_type: None,
            size: Some(5),
            server_name: "a".to_owned(),
        };
        let client = service::ClientView {
            name: Some("editor".to_owned()),
            version: None,
            revision: "2025-11-25".to_owned(),
            since: registry::Timestamp::now(),
            calls: 3,
            caller: None,
        };
        for (schema, value) in [
            (items::prompt(), json!(prompt)),
            (items::resource(), json!(resource)),
            (items::client(), json!(client)),
            (overview::settings(), json!(Settings::default())),
            (overview::state(), json!(state)),
            (executions::execution(), json!(execution)),
            (servers::test_report(), json!(report)),
            (servers::server_health(), json!(health)),
        ] {
            assert_eq!(differences(&schema, &value), Vec::<String>::new(), "{value}");
        }
    }

    #[test]
    fn a_member_of_a_server_that_is_misspelt_is_reported() {
        for schema in [super::registration(), super::update(), super::test_request()] {
            let given = [
                ("name", r#""a""#),
                ("nmae", r#""a""#),
                ("transport_type", r#""stdio""#),
                ("connection_config", r#"{"command":"x"}"#),
            ];
            let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
            let given = given.map(|(name, value)| (name.to_owned(), raw(value)));
            let mut problems = Vec::new();
            schema.check_members(&[], &given, &mut problems);
            let found: Vec<_> = problems.iter().map(|problem| (problem.loc.join("."), problem.kind)).collect();
            assert_eq!(found, [("nmae".to_owned(), "extra_forbidden")]);
        }
    }

    #[test]
    fn names_are_small_and_plain() {
        let is_fine = |text: &str| {
            let mut problems = Vec::new();
            servers::name().check(&[], &json!(text), &mut problems);
            problems.is_empty()
        };
        assert!(is_fine("a") && is_fine("a-b_9") && is_fine(&"a".repeat(255)));
        for bad in ["", "A", "9a", "a.b", "a b", "ä", &"a".repeat(256)] {
            assert!(!is_fine(bad), "{bad}");
        }
    }
}
