//! `settings`: prints the settings of the service, or changes one.

use clap::Args;
use serde_json::{Map, Value, json};
use service::Settings;

use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::table;
use crate::target::{Target, TargetArguments};
use crate::{local_registry, session, suggestion};

/// Print all settings of the service, print one, or change one.
///
/// A running service applies a change immediately. If none runs, the change is stored in the registry and applies at
/// the next start. docs/security.md describes the settings that are limits.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator settings
  mcp-aggregator settings timeout_ms
  mcp-aggregator settings timeout_ms 60000
  mcp-aggregator settings pinned_tools github.search_issues,time.get_current_time
  mcp-aggregator settings timeout_ms default"
)]
pub(crate) struct SettingsArguments {
    /// The setting
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The new value: JSON or text, a list as items separated by commas; `default` resets the setting
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) value: Option<String>,
    /// Print JSON: all settings, or {KEY: VALUE}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// The value that resets a setting.
const DEFAULT: &str = "default";

pub(crate) fn run(arguments: &SettingsArguments) -> Result<(), Failure> {
    let (before, after) = session::block_on(async {
        let target = match &arguments.value {
            Some(_) => arguments.target.find_for_change().await?,
            None => arguments.target.require_existing().await?,
        };
        let before = read(&target).await?;
        let (Some(key), Some(value)) = (&arguments.key, &arguments.value) else { return Ok((before, None)) };
        let current = known(&before, key)?;
        let changes = Map::from_iter([(key.clone(), typed(value, current))]);
        Ok((before, Some(change(&target, changes).await?)))
    })?;
    match (&arguments.key, after) {
        (Some(key), Some(after)) => {
            if arguments.json {
                return output::print_json(&after);
            }
            print_message(format_args!("{key}: {} (was {})", after[key], before[key]));
            Ok(())
        }
        (Some(key), None) => {
            let value = known(&before, key)?;
            if arguments.json {
                output::print_json(&json!({ key: value }))
            } else {
                output::print_lines(&[shown(value)])
            }
        }
        (None, _) if arguments.json => output::print_json(&before),
        (None, _) => output::print_lines(&lines(&before)?),
    }
}

async fn read(target: &Target) -> Result<Value, Failure> {
    match target {
        Target::Service(service) => Ok(service.get("/settings").await?),
        Target::Registry(store) => local_registry::settings(store).await,
    }
}

async fn change(target: &Target, changes: Map<String, Value>) -> Result<Value, Failure> {
    match target {
        Target::Service(service) => Ok(service.patch("/settings", &Value::Object(changes)).await?),
        Target::Registry(store) => local_registry::change_settings(store, changes).await,
    }
}

fn all(settings: &Value) -> Result<&Map<String, Value>, Failure> {
    settings.as_object().ok_or_else(|| Failure::new("the service has no settings"))
}

/// The value of a setting, or a suggestion.
fn known<'s>(settings: &'s Value, key: &str) -> Result<&'s Value, Failure> {
    let all = all(settings)?;
    all.get(key).ok_or_else(|| {
        let failure = Failure::usage(format!("there is no setting `{key}`")).of_kind("SETTING_NOT_FOUND");
        let question = suggestion::among(key, all.keys().map(String::as_str));
        failure.with_hint(question.unwrap_or_else(|| "`mcp-aggregator settings` lists all".to_owned()))
    })
}

/// Parses a value: JSON, the items of a list, or text.
fn typed(value: &str, current: &Value) -> Value {
    if value == DEFAULT {
        return Value::Null;
    }
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    match serde_json::from_str(value) {
        Ok(list @ Value::Array(_)) => list,
        _ if current.is_array() => value.split(',').map(str::trim).filter(|item| !item.is_empty()).map(read).collect(),
        Ok(value) => value,
        Err(_) => json!(value),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn lines(settings: &Value) -> Result<Vec<String>, Failure> {
    let defaults = json!(Settings::default());
    let row = |(key, value): (&String, &Value)| {
        let default = &defaults[key.as_str()];
        let changed = if value == default { String::new() } else { shown(default) };
        [key.clone(), shown(value), changed]
    };
    let rows = all(settings)?.iter().map(row).collect();
    Ok(table(["SETTING", "VALUE", "DEFAULT, IF DIFFERENT"], rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_typed_as_json_as_text_or_as_items() {
        assert_eq!(typed("5", &json!(1)), json!(5));
        assert_eq!(typed("-1", &json!(1)), json!(-1));
        assert_eq!(typed("default", &json!(1)), Value::Null);
        assert_eq!(typed("true", &json!(false)), json!(true));
        assert_eq!(typed("1,2", &json!([3])), json!([1, 2]));
        assert_eq!(typed("a.b, c.d", &json!([])), json!(["a.b", "c.d"]));
        assert_eq!(typed("", &json!([1])), json!([]));
        assert_eq!(typed("[\"a.b\"]", &json!([])), json!(["a.b"]));
        assert_eq!(typed("many", &json!(1)), json!("many"));
    }

    #[test]
    fn an_unknown_setting_gets_a_suggestion() {
        let failure = known(&json!({"timeout_ms": 1}), "timeout_m").unwrap_err();
        assert!(failure.hint.unwrap().contains("`timeout_ms`"));
    }
}
