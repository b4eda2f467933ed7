//! Tools: search, enable and disable them, and what each costs a model.

mod definition;
mod schema;

use std::collections::HashMap;

use http::Method;
use registry::{Page as Part, Status, ToolRecord};
use service::{Error, ServerView, ToolList, ToolSelection};
use tool_search::{DEFAULT_SKILL_THRESHOLD, FoundTool, SearchRequest, Strategy};

use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::pages::{error_text, options, pager, server_link_for, tool_path};
use crate::request::PageRequest;
use crate::response::PageResponse;

pub(crate) use definition::{cut, hints, long, show};

/// Tools per page.
const PAGE: u32 = 50;
/// How many tools a search shows.
const FOUND: usize = 30;

/// The filters of the list.
struct Filters<'v> {
    query: &'v str,
    server: &'v str,
    skill: &'v str,
    state: &'v str,
    offset: u64,
}

impl<'v> Filters<'v> {
    fn of(request: &'v PageRequest<'_>) -> Self {
        let value = |name: &str| request.query.value_of(name).unwrap_or_default();
        let offset = value("offset").parse().unwrap_or(0);
        Self { query: value("q"), server: value("server"), skill: value("skill"), state: value("state"), offset }
    }

    fn address(&self, offset: u64) -> String {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        form::address(
            "/tools",
            &[
                ("q", self.query),
                ("server", self.server),
                ("skill", self.skill),
                ("state", self.state),
                ("offset", &offset),
            ],
        )
    }
}

/// One line of the list.
struct Line {
    name: String,
    server: String,
    original: String,
    description: Option<String>,
    skills: Vec<String>,
    enabled: bool,
    bytes: Option<u64>,
    found: Option<Html>,
}

/// The list.
pub(crate) async fn list(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let filters = Filters::of(request);
    let (lines, total, note) = match filters.query {
        "" => known(request, &filters).await?,
        _ => found(request, &filters).await?,
    };
    let servers = request.service().servers(None, Part::ALL).items;
    let weights = request.service().weights();
    let (tools, bytes) = weights.iter().fold((0, 0), |(tools, bytes), one| (tools + one.tools, bytes + one.bytes));
    let body = html!(
        r#"<h1>Tools</h1><p class="muted" id="weight" data-live="tools. server.">A client that lists everything sees {tools}, which cost {tokens} tokens. At <code>/mcp?surface=search</code> it sees only the search tools and finds the others with them.</p>
{filters}<div id="found" data-live="tools. server.">{note}{table}{pager}</div>"#,
        tools = display::several(tools, "tool"),
        tokens = display::tokens(bytes),
        filters = filter_form(request, &filters, &servers),
        note = note,
        table = table(request, &filters, &lines, &unavailable(&servers)),
        pager = pager(lines.len(), filters.offset, PAGE, total, |offset| filters.address(offset)),
    );
    Ok(PageResponse::page(Page { title: "Tools".into(), place: "/tools", body, script: None }))
}

/// The servers whose tools cannot be called now, and their status. A server that is asleep starts when it is called.
fn unavailable(servers: &[ServerView]) -> HashMap<&str, Status> {
    let is_away = |server: &&ServerView| {
        let sleeps = server.lazy && server.record.enabled && server.record.status == Status::Disconnected;
        !server.record.status.is_up() && !sleeps
    };
    servers.iter().filter(is_away).map(|server| (server.record.name.as_str(), server.record.status)).collect()
}

fn filter_form(request: &PageRequest<'_>, filters: &Filters<'_>, servers: &[ServerView]) -> Html {
    let every = |word: &str| std::iter::once(("", word.to_owned()));
    let names = servers.iter().map(|server| server.record.name.as_str());
    let of_server = every("all servers").chain(names.map(|name| (name, name.to_owned())));
    let skills = request.service().skills();
    let named = skills.iter().filter(|skill| skill.tool_count > 0);
    let named = named.map(|skill| (skill.id.as_str(), format!("{} ({})", skill.name, skill.tool_count)));
    let states =
        [("", "enabled and disabled".to_owned()), ("on", "enabled".to_owned()), ("off", "disabled".to_owned())];
    html!(
        r#"<form class="filters" method="get" action="/tools" role="search"><label class="grow">What do you want to do?<input type="search" name="q" value="{query:#}" placeholder="create an issue, read a file, …"></label>
<label>Server<select name="server">{servers}</select></label><label>Skill<select name="skill">{skills}</select></label>
<label>State<select name="state">{states}</select></label><button>Find</button></form>"#,
        query = filters.query,
        servers = options(of_server, filters.server),
        skills = options(every("any skill").chain(named), filters.skill),
        states = options(states, filters.state),
    )
}

/// The tools that match a query, best first.
async fn found(request: &PageRequest<'_>, filters: &Filters<'_>) -> Result<(Vec<Line>, u64, Html), Error> {
    let one = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    let wanted = SearchRequest {
        query: filters.query.to_owned(),
        limit: FOUND,
        servers: one(filters.server),
        skills: one(filters.skill),
        strategy: Strategy::default(),
        skill_threshold: DEFAULT_SKILL_THRESHOLD,
        threshold: 0.0,
        include_schemas: false,
        profile: None,
    };
    let findings = request.service().search(wanted).await?;
    let how = if findings.metadata.by_meaning { "by words and by meaning" } else { "by words" };
    let note = html!(
        r#"<p class="muted">{count} of {all}, found {how} in {time}. Disabled tools are not included. {note} <a href="/tools">Show all</a></p>"#,
        count = findings.tools.len(),
        all = display::several(findings.metadata.total_tools_searched as u64, "tool"),
        how = how,
        note = findings.metadata.note,
        time = display::took(std::time::Duration::from_secs_f64(findings.metadata.total_time_ms / 1000.0)),
    );
    let lines: Vec<Line> = findings.tools.into_iter().map(line_of_found).collect();
    let total = lines.len() as u64;
    Ok((lines, total, note))
}

fn line_of_found(tool: FoundTool) -> Line {
    let words_found = tool.why.matched_words.join(", ");
    let meaning = tool.why.vector_score.map(|score| format!("meaning {score:.2}"));
    let why = html!(
        r#"<span class="nowrap"><meter min="0" max="1" value="{score:#}" aria-label="score"></meter> {score}</span><span class="sub">words {lexical}{matched}{meaning}</span>"#,
        score = format!("{:.2}", tool.score),
        lexical = format!("{:.2}", tool.why.lexical_score),
        matched = (!words_found.is_empty()).then(|| format!(" ({words_found})")),
        meaning = meaning.map(|meaning| format!(", {meaning}")),
    );
    Line {
        name: tool.name,
        server: tool.source_server.name,
        original: tool.original_name,
        description: tool.description,
        skills: tool.skill_ids,
        enabled: true,
        bytes: None,
        found: Some(why),
    }
}

/// The tools, in order.
async fn known(request: &PageRequest<'_>, filters: &Filters<'_>) -> Result<(Vec<Line>, u64, Html), Error> {
    let server = Some(filters.server).filter(|server| !server.is_empty());
    let part = Part { limit: PAGE, offset: filters.offset };
    if filters.skill.is_empty() && filters.state.is_empty() {
        let (_, listed) = request.service().tools_page(server, part).await?;
        return Ok((listed.items.into_iter().map(line_of_known).collect(), listed.total, Html::default()));
    }
    let skills: Vec<String> = Some(filters.skill.to_owned()).filter(|skill| !skill.is_empty()).into_iter().collect();
    let enabled = (!filters.state.is_empty()).then_some(filters.state == "on");
    let hint = "choose a server or a skill";
    let wanted = ToolSelection { server, skills: &skills, enabled, hint, ..ToolSelection::default() };
    let ToolList { place, mut tools } = request.service().list_tools(&wanted).await?;
    let (offset, total) = (usize::try_from(filters.offset).unwrap_or(usize::MAX), tools.len());
    // The others are freed there: that takes long as well.
    let lines = place.run(move |_| {
        let rest = tools.split_off(offset.min(total));
        Ok(rest.into_iter().take(PAGE as usize).map(line_of_known).collect())
    });
    Ok((lines.await?, total as u64, Html::default()))
}

fn line_of_known(tool: ToolRecord) -> Line {
    Line {
        bytes: Some(tool.definition.get().len() as u64),
        name: tool.name,
        server: tool.server_name,
        original: tool.original_name,
        description: tool.description,
        skills: tool.skills,
        enabled: tool.enabled,
        found: None,
    }
}

fn table(
    request: &PageRequest<'_>,
    filters: &Filters<'_>,
    lines: &[Line],
    unavailable: &HashMap<&str, Status>,
) -> Html {
    if lines.is_empty() {
        let word = if filters.query.is_empty() && filters.server.is_empty() {
            html!(
                r#"<h3>No tools</h3><p>Tools appear when a server with tools is connected. <a href="/add">Add a server</a></p>"#
            )
        } else {
            html!(r#"<h3>No matching tools</h3><p>Try other words, or <a href="/tools">show all tools</a>.</p>"#)
        };
        return html!(r#"<div class="empty">{}</div>"#, word);
    }
    let is_search = !filters.query.is_empty();
    let rows: Html = lines.iter().map(|line| row(request, line, unavailable.get(line.server.as_str()))).collect();
    let whole = (!filters.server.is_empty() && !is_search).then(|| {
        html!(
            r#"<button name="action" value="on-all" class="quiet small">Enable all of {server}</button><button name="action" value="off-all" class="quiet small">Disable all of {server}</button>"#,
            server = filters.server,
        )
    });
    html!(
        r#"<form method="post" action="/tools">{csrf}<input type="hidden" name="back" value="{back:#}"><input type="hidden" name="server" value="{server:#}">
{switches}<div class="scroll"><table class="tools-table cards"><thead><tr><th><input type="checkbox" data-all="tool" aria-label="Select all" data-script hidden></th><th>Tool</th><th>What it does</th><th>{third}</th><td></td></tr></thead><tbody>{rows}</tbody></table></div></form>"#,
        csrf = request.csrf(),
        back = filters.address(filters.offset),
        server = filters.server,
        switches = request.may(&Method::POST, "/tools").then(|| {
            html!(
                r#"<div class="actions"><button name="action" value="on" class="quiet small">Enable</button><button name="action" value="off" class="quiet small">Disable</button>{whole}<span class="hint">the selected tools; disabled tools cannot be listed, found or called over MCP</span></div>
<p></p>"#,
                whole = whole,
            )
        }),
        third = if is_search { "Score and why" } else { "Tokens" },
        rows = rows,
    )
}

fn row(request: &PageRequest<'_>, line: &Line, unavailable: Option<&Status>) -> Html {
    let skills: Html = line.skills.iter().map(|skill| html!(r#"<span class="tag">{}</span>"#, skill)).collect();
    let third = match (&line.found, line.bytes) {
        (Some(found), _) => found.clone(),
        (None, Some(bytes)) => html!("{}", display::tokens(bytes)),
        (None, None) => Html::default(),
    };
    html!(
        r#"<tr{off}><td><input type="checkbox" name="tool" value="{name:#}" aria-label="{name}"></td><th scope="row"><a href="{path}">{original}</a><span class="sub">{server}{state}{standing}</span></th>
<td class="wide">{description}<span class="sub">{skills}</span></td><td>{third}</td><td><a class="button quiet small" href="{play}">Try</a></td></tr>"#,
        off = (!line.enabled).then(|| html!(r#" class="off-row""#)),
        name = line.name,
        path = tool_path(&line.server, &line.original),
        original = clip(&line.original, 120),
        server = server_link_for(request, &line.server),
        state = (!line.enabled).then(|| html!(" {}", display::badge("idle", "disabled"))),
        standing = unavailable.map(|status| html!(" {}", display::status(*status))),
        description = line.description.as_deref().map(|text| clip(text, 220)),
        skills = skills,
        third = third,
        play = form::address("/playground", &[("tool", &line.name)]),
    )
}

/// Enables or disables tools.
pub(crate) async fn switch(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let form = &request.form;
    // Only go back to a page of the console.
    let back = form.value_of("back").filter(|back| back.starts_with("/tools")).unwrap_or("/tools").to_owned();
    let (enabled, names) = match (form.text("action"), form.value_of("server")) {
        ("on", _) => (true, form.all("tool").map(str::to_owned).collect()),
        ("off", _) => (false, form.all("tool").map(str::to_owned).collect()),
        ("on-all", Some(server)) => (true, names_of(request, server).await?),
        ("off-all", Some(server)) => (false, names_of(request, server).await?),
        _ => return Ok(request.failed("Unknown action.", back)),
    };
    if names.is_empty() {
        return Ok(request.failed("Select at least one tool.", back));
    }
    // A tool that was removed in the meantime does not prevent changing the others.
    let mut there = Vec::with_capacity(names.len());
    let mut gone = None;
    for name in names {
        match request.service().tool_by_name(&name).await {
            Ok(_) => there.push(name),
            Err(error) => gone = Some(error),
        }
    }
    if let Some(error) = gone.as_ref().filter(|_| there.is_empty()) {
        return Ok(request.failed(error_text(error), back));
    }
    Ok(match request.service().set_tools_enabled(&request.actor, &there, enabled).await {
        Ok(number) => {
            let state = if enabled { "Enabled" } else { "Disabled" };
            let but = gone.map(|error| format!(" But {}.", error_text(&error))).unwrap_or_default();
            request.done(format!("{state}: {}.{but}", display::several(number, "tool")), back)
        }
        Err(error) => request.failed(error_text(&error), back),
    })
}

async fn names_of(request: &PageRequest<'_>, server: &str) -> Result<Vec<String>, Error> {
    request.service().tool_names(server).await
}
