//! `limits`: lists the limits of calls, sets one, or removes one.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use registry::{CallLimit, LimitKind};
use serde_json::{Map, Value, json};

use crate::cli::shared::REST_JSON;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::table::printable;
use crate::target::{Target, TargetArguments};
use crate::{local_registry, session};

/// List the limits of calls, set one, or remove one.
///
/// A limit is for an identity, a profile, a server or a tool: calls per second, calls at once, calls per day (UTC).
/// The name `*` is the default for each that has no limit of its own; each is counted apart. Calls beyond a limit are
/// refused. A running service applies changes immediately. If none runs, they are stored in the registry.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mcp-aggregator limits
  mcp-aggregator limits set identity '*' --per-second 5 --burst 20 --per-day 10000
  mcp-aggregator limits set server github --concurrent 4
  mcp-aggregator limits remove server github"
)]
pub(crate) struct LimitsArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<LimitsVerb>,
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Sets or removes a limit.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitsVerb {
    Set(Box<SetLimitArguments>),
    Remove(RemoveLimitArguments),
}

/// Set a limit in place of an earlier one.
///
/// What is not given is not limited. Calls that were counted still count.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    group = clap::ArgGroup::new("bounds").required(true).multiple(true).args(["per_second", "concurrent", "per_day"]),
    after_help = "\
Examples:
  mcp-aggregator limits set identity ann --per-second 0.5 --burst 10
  mcp-aggregator limits set identity '*' --concurrent 8 --per-day 10000
  mcp-aggregator limits set tool github.search_code --per-second 0.5"
)]
pub(crate) struct SetLimitArguments {
    #[command(flatten)]
    pub(crate) subject: SubjectArguments,
    /// Calls that may begin per second, such as 5 or 0.1
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub(crate) per_second: Option<Value>,
    /// How many of them may begin at once after a pause [default: as many as in a second]
    #[arg(long, value_name = "NUMBER", value_parser = number, requires = "per_second")]
    pub(crate) burst: Option<Value>,
    /// Calls in progress at the same time, including those that wait
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub(crate) concurrent: Option<Value>,
    /// Calls that may begin in a day, in UTC
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub(crate) per_day: Option<Value>,
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Remove a limit, and what was counted against it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator limits remove identity '*'
  mcp-aggregator limits remove tool github.search_code")]
pub(crate) struct RemoveLimitArguments {
    #[command(flatten)]
    pub(crate) subject: SubjectArguments,
    /// Print JSON: {"removed": {"kind", "name"}}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What a limit is for.
#[derive(Debug, Args)]
pub(crate) struct SubjectArguments {
    /// What is limited
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(LimitKind::ALL.iter().map(|kind| kind.as_str())))]
    pub(crate) kind: String,
    /// Its name: of a token, a person (`oauth:ISSUER SUBJECT`), a profile or a server, or the full name of a tool; `*`
    /// for each one; `local` is the user of a service without tokens
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// How many of the identities that a default counts are listed below it.
const MAX_LISTED_USES: usize = 10;

pub(crate) fn run(arguments: &LimitsArguments) -> Result<(), Failure> {
    match &arguments.verb {
        None => list(arguments),
        Some(LimitsVerb::Set(arguments)) => set(arguments),
        Some(LimitsVerb::Remove(arguments)) => remove(arguments),
    }
}

/// A number as it was typed: the service checks its range.
fn number(text: &str) -> Result<Value, String> {
    let number = serde_json::from_str(text).ok().filter(Value::is_number);
    number.ok_or_else(|| "expected a number".to_owned())
}

fn list(arguments: &LimitsArguments) -> Result<(), Failure> {
    let limits = session::block_on(async {
        match arguments.target.find_existing_or_none().await? {
            Some(Target::Service(service)) => Ok(service.list("/limits").await?),
            Some(Target::Registry(store)) => local_registry::limits(&store).await,
            None => Ok(Vec::new()),
        }
    })?;
    if arguments.json {
        return output::print_json(&Value::Array(limits));
    }
    if limits.is_empty() {
        print_message("there are no limits; `mcp-aggregator limits set` sets one");
        return Ok(());
    }
    let heads = ["KIND", "NAME", "PER SECOND", "BURST", "AT ONCE", "PER DAY", "RUNNING", "TODAY", "REFUSED"];
    output::print_lines(&table(heads, limits.iter().flat_map(rows).collect()))
}

/// The row of a limit; and for a default, a row for each name that it counts.
fn rows(limit: &Value) -> Vec<[String; 9]> {
    let uses = limit["uses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let numbers = |one: &Value| [text(one, "running"), text(one, "today")];
    let is_default = limit["name"] == "*";
    let [running, today] = match uses {
        [only] if !is_default => numbers(only),
        _ => ["-".to_owned(), "-".to_owned()],
    };
    let member = |name: &str| text(limit, name);
    let first = [
        member("kind"),
        member("name"),
        member("per_second"),
        member("burst"),
        member("concurrent"),
        member("per_day"),
        running,
        today,
        member("refused"),
    ];
    let below = uses.iter().filter(|_| is_default).take(MAX_LISTED_USES).map(|one| {
        let [running, today] = numbers(one);
        let none = String::new;
        let name = format!("  {}", printable(one["name"].as_str().unwrap_or_default()));
        [none(), name, none(), none(), none(), none(), running, today, none()]
    });
    std::iter::once(first).chain(below).collect()
}

fn set(arguments: &SetLimitArguments) -> Result<(), Failure> {
    let SetLimitArguments { subject, per_second, burst, concurrent, per_day, json: as_json, target } = arguments;
    let members = [("per_second", per_second), ("burst", burst), ("concurrent", concurrent), ("per_day", per_day)];
    let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
    let body = Map::from_iter(given);
    let limit = session::block_on(async {
        match target.find_for_change().await? {
            Target::Service(service) => Ok(service.put(&subject.path(), &Value::Object(body)).await?),
            Target::Registry(store) => local_registry::put_limit(&store, subject.kind()?, &subject.name, &body).await,
        }
    })?;
    if *as_json {
        return output::print_json(&limit);
    }
    let bounds: CallLimit = serde_json::from_value(limit.clone())
        .map_err(|error| Failure::new(format!("the limit is unreadable: {error}")))?;
    print_message(format_args!("{}: {bounds}", subject.in_words()));
    if limit["exists"] == false {
        print_message(format_args!("warning: there is no {} now; the limit applies when there is", subject.in_words()));
    }
    Ok(())
}

fn remove(arguments: &RemoveLimitArguments) -> Result<(), Failure> {
    let RemoveLimitArguments { subject, json: as_json, target } = arguments;
    session::block_on(async {
        match target.find_for_change().await? {
            Target::Service(service) => {
                service.delete(&subject.path()).await?;
                Ok(())
            }
            Target::Registry(store) => local_registry::remove_limit(&store, subject.kind()?, &subject.name).await,
        }
    })?;
    if *as_json {
        return output::print_json(&json!({"removed": {"kind": subject.kind, "name": subject.name}}));
    }
    print_message(format_args!("removed the limit of {}", subject.in_words()));
    Ok(())
}

impl SubjectArguments {
    fn kind(&self) -> Result<LimitKind, Failure> {
        self.kind.parse().map_err(|error: registry::UnknownValue| Failure::usage(error.to_string()))
    }

    fn path(&self) -> String {
        format!("/limits/{}/{}", self.kind, encoded(&self.name))
    }

    fn in_words(&self) -> String {
        match self.name.as_str() {
            "*" => format!("each {} by default", self.kind),
            name => format!("{} `{}`", self.kind, printable(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_is_listed_with_what_it_counts() {
        let limit = json!({"kind": "identity", "name": "*", "per_second": 0.5, "burst": null, "per_day": 10, "refused": 3,
            "uses": [{"name": "ann", "running": 1, "today": 2}]});
        let rows = rows(&limit);
        assert_eq!(rows[0], ["identity", "*", "0.5", "-", "-", "10", "-", "-", "3"]);
        assert_eq!(rows[1], ["", "  ann", "", "", "", "", "1", "2", ""]);
        let own = json!({"kind": "tool", "name": "a.b", "concurrent": 1, "refused": 0,
            "uses": [{"name": "a.b", "running": 1, "today": 2}]});
        assert_eq!(super::rows(&own), [["tool", "a.b", "-", "-", "1", "-", "1", "2", "0"]]);
    }

    #[test]
    fn numbers_stay_as_they_were_typed() {
        assert_eq!(number("5").map(|number| number.to_string()), Ok("5".to_owned()));
        assert_eq!(number("0.5").map(|number| number.to_string()), Ok("0.5".to_owned()));
        assert!(number("many").is_err() && number("true").is_err());
    }
}
