//! The tools that an assistant may use: those of a service, or those of the servers of a config, in the same form.

use std::path::PathBuf;

use aggregator::Fleet;
use assistant::OfferedTool;
use catalog::{Kind, NameStyle};
use clap::Args;
use models::{Format, SafeNames, Tool};
use notebook::{Bindings, Document, LineContext, Server};
use serde_json::{Value, json};

use crate::client::Client;
use crate::documents::{file_failed, whole_path};
use crate::failure::Failure;
use crate::output::print_message;
use crate::table::printable;
use crate::tool_cost::{listed_bytes, tokens};

/// Filters for tools.
#[derive(Debug, Args)]
pub(crate) struct NarrowingArguments {
    /// Only tools that may run in this document: those of the server that the line is bound to
    #[arg(long, value_name = "FILE")]
    pub(crate) doc: Option<PathBuf>,
    /// The line in the document, from 1
    #[arg(long, value_name = "N", requires = "doc", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) line: u32,
    /// Only tools of this server; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Vec<String>,
    /// Only tools with this skill, by its id or name; may be repeated
    #[arg(long, value_name = "SKILL", conflicts_with = "config")]
    pub(crate) skill: Vec<String>,
}

/// The maximum number of tools of OpenAI. Anthropic's and local models choose less well among more tools than this.
const MAX_COMFORTABLE_TOOLS: usize = 128;

/// The filters of a request, with their document.
#[derive(Debug, Default)]
pub(crate) struct ToolRequest {
    /// The text and the path of the document.
    pub(crate) document: Option<(String, String)>,
    pub(crate) line: u32,
    pub(crate) servers: Vec<String>,
    pub(crate) skills: Vec<String>,
    pub(crate) format: Option<Format>,
}

/// The tools, in the format of REST.
pub(crate) struct OfferedTools(pub(crate) Value);

impl ToolRequest {
    pub(crate) fn new(arguments: &NarrowingArguments, format: Option<Format>) -> Result<Self, Failure> {
        let document = match &arguments.doc {
            Some(path) => {
                let text = notebook::read(path).map_err(file_failed)?;
                Some((text, whole_path(path).to_string_lossy().into_owned()))
            }
            None => None,
        };
        let NarrowingArguments { line, server, skill, .. } = arguments;
        Ok(Self { document, line: *line, servers: server.clone(), skills: skill.clone(), format })
    }

    /// All tools of one server.
    pub(crate) fn of_server(server: Option<&str>) -> Self {
        Self { line: 1, servers: server.map(str::to_owned).into_iter().collect(), ..Self::default() }
    }

    /// The position in the document, as far as the document alone defines it.
    fn context(&self, servers: &[Server]) -> LineContext {
        let text = self.document.as_ref().map_or("", |(text, _)| text);
        let document = Document::parse(text);
        let line = usize::try_from(self.line).unwrap_or(usize::MAX);
        notebook::line_context(&document, servers, &Bindings::of(&document, &[]), line)
    }

    /// The servers of a config that the request needs.
    pub(crate) fn needed(&self, servers: &[Server]) -> Result<Vec<String>, Failure> {
        let unknown = self.servers.iter().find(|wanted| !servers.iter().any(|server| server.name == **wanted));
        if let Some(unknown) = unknown {
            return Err(Failure::usage(format!("the config has no server `{unknown}`")));
        }
        let mut needed = self.context(servers).allowed_servers;
        needed.retain(|name| self.servers.is_empty() || self.servers.contains(name));
        Ok(needed)
    }
}

/// The warning about many tools. Their definitions are sent in every round.
fn too_many(tools: &[Value]) -> Option<String> {
    let count = tools.len();
    (count > MAX_COMFORTABLE_TOOLS).then(|| {
        // Counted as `doctor` does.
        let bytes = tools.iter().map(|tool| listed_bytes(tool, tool["tool_name"].as_str().unwrap_or_default())).sum();
        let tokens = tokens(bytes);
        format!(
            "warning: {count} tools are sent to the model with every request, about {tokens} tokens; some providers accept at \
             most {MAX_COMFORTABLE_TOOLS}\nhint: --server and --skill select only the tools that the question needs"
        )
    })
}

impl OfferedTools {
    /// The tools of a running service.
    pub(crate) async fn by_service(service: &Client, wanted: &ToolRequest) -> Result<Self, Failure> {
        let mut body = json!({ "line": wanted.line, "servers": wanted.servers, "skills": wanted.skills });
        if let Some((text, path)) = &wanted.document {
            body["text"] = json!(text);
            body["path"] = json!(path);
        }
        if let Some(format) = wanted.format {
            body["format"] = json!(format.as_str());
        }
        Ok(Self(service.post("/assistant/tools", Some(&body)).await?))
    }

    /// The tools of the running servers of a config. Only servers that the request needs were started.
    pub(crate) fn by_config(fleet: &Fleet, servers: &[Server], wanted: &ToolRequest) -> Result<Self, Failure> {
        let needed = wanted.needed(servers)?;
        let context = wanted.context(servers);
        let view = fleet.view();
        let snapshot = &view.snapshot;
        let mut remarks = context.remarks;
        let described = snapshot.listed(Kind::Tool, NameStyle::Canonical).filter_map(|route| {
            let server = snapshot.servers()[route.server].name.as_str();
            if !needed.iter().any(|name| name == server) {
                return None;
            }
            let item = snapshot.item(Kind::Tool, route);
            let definition: Value = match serde_json::from_slice(&item.definition) {
                Ok(definition) => definition,
                Err(error) => {
                    let name = snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical);
                    remarks.push(format!("`{name}` is left out: its definition cannot be read: {error}"));
                    return None;
                }
            };
            let says = |hint: &str| definition["annotations"][hint] == true;
            Some(json!({
                "server_name": server,
                "tool_name": item.id.to_string(),
                "name": snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical),
                "description": definition["description"],
                "input_schema": definition["inputSchema"],
                "definition_bytes": item.definition.len(),
                "is_read_only": says("readOnlyHint"),
                "is_idempotent": says("idempotentHint"),
                "is_destructive": says("destructiveHint") && !says("readOnlyHint"),
            }))
        });
        let mut tools: Vec<Value> = described.collect();
        let models: Vec<Tool> = tools.iter().map(tool).collect();
        let names = SafeNames::of(models.iter().map(|tool| tool.name.as_str()));
        for (shown, tool) in tools.iter_mut().zip(&models) {
            shown["safe_name"] = json!(names.safe(&tool.name));
        }
        // The user waits for the command, and Ctrl-C ends it.
        let forms = wanted.format.map(|format| format.tools_until(models.into_iter(), &names, &|| false)).transpose();
        let forms = forms.map_err(|error| Failure::new(error.to_string()))?;
        for name in forms.iter().flat_map(|forms| &forms.cut) {
            remarks.push(format!("the schema of `{name}` is too large for this format; some parameters are missing"));
        }
        Ok(Self(json!({
            "tools": tools,
            "enabled_servers": needed,
            "section_binding": context.bound.as_ref().map(|bound| &bound.binding.server),
            "why": context.why,
            "remarks": remarks,
            "format": wanted.format.map(Format::as_str),
            "provider_tools": forms.map(|forms| forms.tools),
        })))
    }

    /// Prints warnings: about invalid bindings, and if there are no tools.
    pub(crate) fn print_remarks(&self) {
        for remark in self.0["remarks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            print_message(format_args!("warning: {}", printable(remark)));
        }
        if self.tools().is_empty() {
            print_message(format_args!("warning: there are no tools to use: {}", printable(self.why_none())));
        }
    }

    /// Warns about many tools, for a command that sends them all. `ask` does not.
    pub(crate) fn print_cost(&self) {
        if let Some(warning) = too_many(self.tools()) {
            print_message(format_args!("{warning}"));
        }
    }

    fn why_none(&self) -> &str {
        let servers = self.0["enabled_servers"].as_array().map_or(0, Vec::len);
        let is_bound = !self.0["section_binding"].is_null();
        match self.0["why"].as_str() {
            Some(why) if is_bound || servers == 0 => why,
            _ => "no server that may be used has tools",
        }
    }

    /// The description of each tool.
    pub(crate) fn tools(&self) -> &[Value] {
        self.0["tools"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The tools in the form that the assistant needs.
    pub(crate) fn offers(&self) -> Vec<OfferedTool> {
        let offer = |described: &Value| OfferedTool {
            tool: tool(described),
            is_read_only: described["is_read_only"] == true,
            is_idempotent: described["is_idempotent"] == true,
            is_destructive: described["is_destructive"] == true,
        };
        self.tools().iter().map(offer).collect()
    }
}

fn tool(described: &Value) -> Tool {
    let text = |member: &str| described[member].as_str().unwrap_or_default();
    let schema = match &described["input_schema"] {
        Value::Null => json!({}),
        schema => schema.clone(),
    };
    Tool::new(text("name"), text("description"), schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor;

    #[test]
    fn more_tools_than_a_model_chooses_from_with_ease_are_reported_with_what_they_cost() {
        let tool = json!({"name": "a.b", "tool_name": "b", "definition_bytes": 218});
        assert_eq!(too_many(&vec![tool.clone(); 128]), None);
        let warning = too_many(&vec![tool.clone(); 400]).unwrap();
        assert!(
            warning.contains("400 tools") && warning.contains("about 22000 tokens") && warning.contains("--server"),
            "{warning}"
        );
        let listed = vec![doctor::tool_checks::Tool { name: "a.b".to_owned(), size: listed_bytes(&tool, "b") }; 400];
        let findings = doctor::tool_checks::examine(&listed);
        assert!(findings.iter().any(|finding| finding.message.contains("about 22000 tokens")), "{findings:?}");
    }
}
