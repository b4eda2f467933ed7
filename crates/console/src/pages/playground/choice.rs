//! The choice of a tool: names to choose from, and alternatives for an unknown one.

use executions::Error as CallError;
use http::StatusCode;
use registry::{Page as Part, Status, ToolRecord};
use service::Error;
use tool_search::{DEFAULT_SKILL_THRESHOLD, SearchRequest, Strategy};

use crate::form;
use crate::html::{Html, html};
use crate::pages::overview::clip;
use crate::pages::server_link;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// How many tools are suggested at once; typing part of a name finds others.
const MAX_SUGGESTED: usize = 200;
/// How many alternatives are listed for an unknown tool.
const MAX_ALTERNATIVES: usize = 30;
/// How many tools are listed before one is chosen.
const MAX_LISTED: usize = 100;

/// The tool with a full name, as we or as clients write it.
pub(super) async fn find(request: &PageRequest<'_>, name: &str) -> Result<Option<ToolRecord>, Error> {
    match request.service().tool_by_any_name(name).await {
        Ok(tool) => Ok(Some(tool)),
        Err(Error::Call(CallError::ToolNotFound { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names that contain a text, for the list below the input.
pub(super) fn suggested(request: &PageRequest<'_>, part: &str) -> Html {
    let names = request.service().tool_names_with(part, MAX_SUGGESTED);
    names.iter().map(|name| html!(r#"<option value="{:#}">"#, name)).collect()
}

/// The same, while the user types.
pub(crate) fn suggest(request: &PageRequest<'_>) -> PageResponse {
    PageResponse::Bare(StatusCode::OK, suggested(request, request.query.value_of("part").unwrap_or_default()))
}

/// All tools, if none is named.
pub(super) fn all(request: &PageRequest<'_>) -> Html {
    match listed(request, "") {
        Some(list) => html!(
            r#"<div id="choices"><h2>Choose a tool</h2>{list}<p class="hint">Or <a href="/tools">search by what it does</a>.</p></div>"#,
            list = list,
        ),
        None => html!(
            r#"<div class="empty"><h2>No tools</h2><p>No connected server has a tool. <a href="/">Show the servers</a>, or <a href="/add">add one</a>.</p></div>"#
        ),
    }
}

/// The page for an unknown name: tools that contain it, or similar ones.
pub(super) async fn missing(request: &PageRequest<'_>, name: &str) -> Result<Html, Error> {
    let owner = owner(request, name).await?;
    if let Some(list) = listed(request, name) {
        let why = match &owner {
            Some(server) if server != name => Some(of_server(request, server, name).await?.0),
            _ => None,
        };
        return Ok(html!(
            r#"<div id="choices"><h2>Tools with <code>{name}</code> in their names</h2>{why}{list}</div>"#,
            name = clip(name, 120),
            why = why,
            list = list,
        ));
    }
    let (why, others) = match owner {
        Some(server) => of_server(request, &server, name).await?,
        None => (html!("<p>There is no server with this name either.</p>"), found(request, name).await),
    };
    let list = (!others.is_empty()).then(|| html!("<h3>Did you mean</h3>{}", links(&others)));
    Ok(html!(
        r#"<div class="empty" id="missing"><h2>There is no tool <code>{name}</code></h2>{why}{list}<p><a href="/tools">Search for another tool</a></p></div>"#,
        name = clip(name, 120),
        why = why,
        list = list,
    ))
}

/// The tools whose names contain a text, if any.
fn listed(request: &PageRequest<'_>, part: &str) -> Option<Html> {
    let mut names = request.service().tool_names_with(part, MAX_LISTED + 1);
    let has_more = names.len() > MAX_LISTED;
    names.truncate(MAX_LISTED);
    let more = has_more.then(|| {
        html!(
            r#"<p class="hint">Only the first {} are listed; enter more of the name to find the others.</p>"#,
            MAX_LISTED
        )
    });
    (!names.is_empty()).then(|| html!("{}{}", links(&names), more))
}

fn links(names: &[String]) -> Html {
    let items: Html = names
        .iter()
        .map(|name| {
            let path = form::address("/playground", &[("tool", name)]);
            html!(r#"<li><a href="{path}">{name}</a></li>"#, path = path, name = clip(name, 120))
        })
        .collect();
    html!(r#"<ul class="plain">{}</ul>"#, items)
}

/// In how many ways a full name is split into server and tool. Real names have few dots.
const MAX_CUTS: usize = 64;

/// The server that a name starts with.
async fn owner(request: &PageRequest<'_>, name: &str) -> Result<Option<String>, Error> {
    let ends = name.match_indices("__").chain(name.match_indices(['.', ':', '/'])).map(|(at, _)| at);
    let mut ends: Vec<usize> = ends.chain([name.len()]).collect();
    // The name of a server may be a prefix of another: the longest one is meant.
    ends.sort_unstable_by(|one, other| other.cmp(one));
    // Each split costs a query; a name full of dots would cost many.
    for end in ends.into_iter().take(MAX_CUTS) {
        match request.service().server(&name[..end]).await {
            Ok(server) => return Ok(Some(server.record.name)),
            Err(Error::Call(CallError::ServerNotFound { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The state of a server, and its tools, the most similar names first.
async fn of_server(request: &PageRequest<'_>, server: &str, name: &str) -> Result<(Html, Vec<String>), Error> {
    let record = request.service().server(server).await?.record;
    let why = match record.status {
        status if status.is_up() => html!("<p>{} has no tool with this name.</p>", server_link(server)),
        Status::Disabled => html!("<p>{} is disabled.</p>", server_link(server)),
        status => html!("<p>{} is not connected ({}).</p>", server_link(server), status.as_str()),
    };
    let tools = request.service().tools_page(Some(server), Part::ALL).await?.1.items;
    let mut names: Vec<String> = tools.into_iter().filter(|tool| tool.enabled).map(|tool| tool.name).collect();
    names.sort_by_key(|other| std::cmp::Reverse(alike(other, name)));
    names.truncate(MAX_ALTERNATIVES);
    Ok((why, names))
}

/// The length of the common prefix of two names.
fn alike(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one.eq_ignore_ascii_case(other)).count()
}

/// Tools found by a search.
async fn found(request: &PageRequest<'_>, name: &str) -> Vec<String> {
    let wanted = SearchRequest {
        query: name.chars().take(200).collect(),
        limit: 5,
        servers: Vec::new(),
        skills: Vec::new(),
        strategy: Strategy::default(),
        skill_threshold: DEFAULT_SKILL_THRESHOLD,
        threshold: 0.0,
        include_schemas: false,
        profile: None,
    };
    // Without search there are no suggestions.
    let findings = request.service().search(wanted).await;
    findings.map(|findings| findings.tools.into_iter().map(|tool| tool.name).collect()).unwrap_or_default()
}
