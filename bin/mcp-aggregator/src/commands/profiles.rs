//! `profiles`: lists, shows, sets and removes profiles, the named views for some clients.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::shared::REST_JSON;
use crate::client::encoded;
use crate::commands::tools::counted;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::session;
use crate::table::printable;
use crate::target::TargetArguments;

/// The value of an option that hides everything of its kind.
const NONE: &str = "none";

/// List profiles, show one, set one, or remove one. Needs a running service.
///
/// A profile is a named view of what all servers offer: clients at /mcp/@NAME, and tokens that are bound to it, see only
/// that. `set` replaces the whole profile; what no option restricts is visible. Patterns are read in order, and the last
/// one that matches decides: `*` stands for any characters, `!` excludes. docs/profiles.md has the details.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator profiles
  mcp-aggregator profiles set review --server git --tool 'git.*' --tool '!git.push'
  mcp-aggregator profiles set reader --class read_only --prompt none
  mcp-aggregator profiles show review
  mcp-aggregator profiles remove review"
)]
pub(crate) struct ProfilesArguments {
    /// What to do
    #[arg(value_name = "show|set|remove")]
    pub(crate) verb: Option<ProfilesVerb>,
    /// The profile
    #[arg(
        value_name = "NAME",
        required_if_eq_any([("verb", "show"), ("verb", "set"), ("verb", "remove")])
    )]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) members: MemberArguments,
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What `set` restricts.
#[derive(Debug, Args)]
#[command(next_help_heading = "What `set` restricts")]
pub(crate) struct MemberArguments {
    /// Only these servers; may be repeated
    #[arg(long = "server", value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) servers: Vec<String>,
    /// Only these tools, as SERVER.TOOL; may be repeated, `none` hides all
    #[arg(long = "tool", value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) tools: Vec<String>,
    /// Only these prompts, as SERVER.PROMPT; may be repeated, `none` hides all
    #[arg(long = "prompt", value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) prompts: Vec<String>,
    /// Only resources with these URIs; may be repeated, `none` hides all
    #[arg(long = "resource", value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) resources: Vec<String>,
    /// Only tools of this class, by their annotations: `read_only` or `non_destructive`
    #[arg(long = "class", value_name = "CLASS")]
    pub(crate) classes: Vec<String>,
    /// How clients see the tools: `full`, `search`, `grow` or `auto`
    #[arg(long, value_name = "SURFACE")]
    pub(crate) surface: Option<String>,
    /// List this tool on every surface; may be repeated
    #[arg(long = "pin", value_name = "TOOL")]
    pub(crate) pinned: Vec<String>,
}

/// What to do with a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProfilesVerb {
    Show,
    Set,
    Remove,
}

impl MemberArguments {
    /// The profile as JSON.
    fn spec(&self) -> Value {
        let lists = [
            ("servers", &self.servers),
            ("tools", &self.tools),
            ("prompts", &self.prompts),
            ("resources", &self.resources),
            ("classes", &self.classes),
            ("pinned", &self.pinned),
        ];
        let given = lists.into_iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| {
            let value = if values.as_slice() == [NONE] { json!([]) } else { json!(values) };
            (name.to_owned(), value)
        });
        let surface = self.surface.as_ref().map(|surface| ("surface".to_owned(), json!(surface)));
        Value::Object(given.chain(surface).collect::<Map<_, _>>())
    }
}

pub(crate) fn run(arguments: &ProfilesArguments) -> Result<(), Failure> {
    let name = arguments.name.as_deref().unwrap_or_default();
    let spec = arguments.members.spec();
    if arguments.verb != Some(ProfilesVerb::Set) && spec != json!({}) {
        return Err(
            Failure::usage("these options need `set`").with_hint("mcp-aggregator profiles set NAME --tool 'git.*'")
        );
    }
    match arguments.verb {
        None => list(arguments),
        Some(ProfilesVerb::Show) => show(arguments, name),
        Some(ProfilesVerb::Set) => set(arguments, name, &spec),
        Some(ProfilesVerb::Remove) => remove(arguments, name),
    }
}

fn path_of(name: &str) -> String {
    format!("/profiles/{}", encoded(name))
}

/// A failure with the command that lists the profiles, if there is none of that name.
fn explained(failure: Failure) -> Failure {
    match failure.kind.as_deref() {
        Some("PROFILE_NOT_FOUND") => failure.with_hint("`mcp-aggregator profiles` lists all"),
        _ => failure,
    }
}

fn list(arguments: &ProfilesArguments) -> Result<(), Failure> {
    let profiles = session::block_on(async { Ok(arguments.target.service().await?.list("/profiles").await?) })?;
    if arguments.json {
        return output::print_json(&Value::Array(profiles));
    }
    if profiles.is_empty() {
        print_message("there are no profiles: all clients see everything");
        return Ok(());
    }
    let header = ["PROFILE", "ORIGIN", "SERVERS", "TOOLS", "PROMPTS", "RESOURCES", "WARNINGS"];
    output::print_lines(&table(header, profiles.iter().map(row).collect()))
}

fn row(profile: &Value) -> [String; 7] {
    let count = |name: &str| profile["sees"][name].to_string();
    let warnings = profile["warnings"].as_array().map_or(0, Vec::len);
    [
        text(profile, "name"),
        text(profile, "origin"),
        count("servers"),
        count("tools"),
        count("prompts"),
        count("resources"),
        warnings.to_string(),
    ]
}

fn show(arguments: &ProfilesArguments, name: &str) -> Result<(), Failure> {
    let shown = session::block_on(async { Ok(arguments.target.service().await?.get(&path_of(name)).await?) });
    let profile = shown.map_err(explained)?;
    if arguments.json {
        return output::print_json(&profile);
    }
    output::print_lines(&lines(&profile))?;
    print_warnings(&profile);
    Ok(())
}

/// The members of a profile, and what its clients see.
fn lines(profile: &Value) -> Vec<String> {
    let members = ["servers", "tools", "prompts", "resources", "classes", "surface", "pinned", "bound"];
    let is_given = |member: &&str| !profile[*member].is_null() && (*member != "bound" || profile["bound"] != json!([]));
    let given = members.into_iter().filter(is_given);
    let written = given.map(|member| {
        let value = match &profile[member] {
            Value::Array(items) if items.is_empty() => NONE.to_owned(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{member:<10} {}", printable(&value))
    });
    let sees = &profile["sees"];
    let nouns =
        [("servers", "server"), ("tools", "tool"), ("prompts", "prompt"), ("resources", "resource")].into_iter();
    let nouns = nouns.chain([("resource_templates", "resource template")]);
    let seen: Vec<String> = nouns.map(|(member, noun)| many(&sees[member], noun)).collect();
    let seen = format!("{:<10} {}", "sees", seen.join(", "));
    written.chain([seen]).collect()
}

fn many(count: &Value, noun: &str) -> String {
    counted(count.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default(), noun)
}

fn print_warnings(profile: &Value) {
    for warning in profile["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print_message(format_args!("warning: {}", printable(warning)));
    }
}

fn set(arguments: &ProfilesArguments, name: &str, spec: &Value) -> Result<(), Failure> {
    let profile = session::block_on(async { Ok(arguments.target.service().await?.put(&path_of(name), spec).await?) })?;
    if arguments.json {
        return output::print_json(&profile);
    }
    let sees = &profile["sees"];
    print_message(format_args!(
        "profile `{}` is in effect at /mcp/@{}: {} of {}",
        printable(name),
        printable(name),
        many(&sees["tools"], "tool"),
        many(&sees["servers"], "server")
    ));
    print_warnings(&profile);
    Ok(())
}

fn remove(arguments: &ProfilesArguments, name: &str) -> Result<(), Failure> {
    let removed = session::block_on(async { Ok(arguments.target.service().await?.delete(&path_of(name)).await?) });
    removed.map_err(explained)?;
    if arguments.json {
        return output::print_json(&json!({ "removed": name }));
    }
    print_message(format_args!("profile `{}` is removed", printable(name)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_members_and_none_an_empty_list() {
        let members = MemberArguments {
            servers: vec!["git".to_owned()],
            tools: vec!["git.*".to_owned(), "!git.push".to_owned()],
            prompts: vec![NONE.to_owned()],
            resources: Vec::new(),
            classes: Vec::new(),
            surface: Some("search".to_owned()),
            pinned: Vec::new(),
        };
        let expected = json!({"servers": ["git"], "tools": ["git.*", "!git.push"], "prompts": [], "surface": "search"});
        assert_eq!(members.spec(), expected);
    }
}
