//! Calls on the small surface: meta tools are answered here, all other calls are routed to their server.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use catalog::{Kind, Missing, Scope};
use protocol::reply;
use protocol::scan::{Span, elements, member};
use protocol::splice::{Edit, in_order, spliced};
use protocol::{Envelope, Lifecycle, RequestEnvelope, text};

use super::meta_tools::{self, one_line};
use super::{Findings, Surface, ToolQuery, render};
use crate::call;
use crate::client::{Client, lifecycle_of};
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::View;
use crate::lists::client_name;
use crate::responder::Responder;

/// How many tools a search returns by default.
const DEFAULT_RESULTS: usize = 8;
const MAX_RESULTS: usize = 50;
/// How many alternatives an error for an unknown tool suggests, and the score they need.
const MAX_SUGGESTIONS: usize = 3;
const MIN_SUGGESTION_SCORE: f32 = 0.05;
/// Results this far below the best score are not relevant, but only next in the index.
const SCORE_CUTOFF_RATIO: f32 = 0.4;
/// If even the best score is lower than this, the response mentions it.
const MIN_FITTING_SCORE: f32 = 0.25;

/// Handles a tool call: of a meta tool, if this client has them, or of a server's tool.
pub(crate) fn take(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope) {
    let name = match aggregator.tool_finder() {
        Some(_) if has_meta_tools(aggregator, message.client) => own_name(aggregator, &message, request),
        _ => None,
    };
    match name {
        Some(meta_tools::CALL) => pass_on(aggregator, message, request),
        Some(meta_tools::SEARCH) => search(aggregator, &message, request),
        Some(_) => describe(aggregator, &message, request),
        None => call::route(aggregator, message, request, Kind::Tool),
    }
}

/// Whether a client may call meta tools.
fn has_meta_tools(aggregator: &Aggregator, client: &Client) -> bool {
    client.surface(&aggregator.fleet.view_of(client)) != Surface::Full
}

/// The meta tool that is called, if any. A server alone in its scope has tools under their own names, which may equal
/// ours: then the listed ones are called.
fn own_name(aggregator: &Aggregator, message: &Incoming<'_>, request: &RequestEnvelope) -> Option<&'static str> {
    let name = text::decode(request.params.name?.of(message.line))?;
    let own = [meta_tools::SEARCH, meta_tools::DESCRIBE, meta_tools::CALL].into_iter().find(|own| *own == name)?;
    let (view, client) = (aggregator.fleet.view_of(message.client), message.client);
    let is_servers = || view.snapshot.resolve(client.scope(), Kind::Tool, &name).is_some();
    (super::is_small(aggregator, client, &view) || !is_servers()).then_some(own)
}

/// The request of a meta tool, without the line it arrived in.
struct MetaToolCall {
    client: Arc<Client>,
    to: Arc<Responder>,
    id: Bytes,
    lifecycle: Lifecycle,
}

impl MetaToolCall {
    fn of(message: &Incoming<'_>, request: &RequestEnvelope) -> Self {
        let id = request.id;
        let lifecycle = lifecycle_of(&request.params);
        if lifecycle == Lifecycle::SelfContained {
            message.client.named(&client_name(message.line, &request.params).unwrap_or_default());
        }
        Self {
            client: Arc::clone(message.client),
            to: Arc::clone(message.to),
            id: message.line.slice(id.start..id.end),
            lifecycle,
        }
    }

    fn answer(&self, text: &str) {
        self.respond(text, false);
    }

    /// Responds with an error text that helps the model to correct the call.
    fn fail(&self, text: &str) {
        self.respond(text, true);
    }

    fn respond(&self, text: &str, is_error: bool) {
        let block = reply::object([("type", reply::string("text")), ("text", reply::string(text))]);
        let content = [&b"["[..], &block, b"]"].concat();
        let mut members = vec![("content", content), ("isError", is_error.to_string().into_bytes())];
        if self.lifecycle == Lifecycle::SelfContained {
            members.push(("resultType", reply::string("complete")));
        }
        self.to.respond(&reply::result(&self.id, &reply::object(members)));
    }
}

/// `params.arguments`, if it is an object.
fn arguments(line: &[u8], request: &RequestEnvelope) -> Option<Span> {
    let arguments = member(line, request.params.span?, "arguments")?;
    (line[arguments.start] == b'{').then_some(arguments)
}

/// A string argument.
fn text_argument<'l>(line: &'l [u8], arguments: Option<Span>, name: &str) -> Option<Cow<'l, str>> {
    text::decode(member(line, arguments?, name)?.of(line))
}

fn search(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, request: &RequestEnvelope) {
    let meta_call = MetaToolCall::of(message, request);
    let (line, arguments) = (message.line, arguments(message.line, request));
    let Some(query) = text_argument(line, arguments, "query").filter(|query| !query.trim().is_empty()) else {
        return meta_call.fail("search_tools needs `query`: what you want to do, in plain words");
    };
    let limit = arguments.and_then(|arguments| member(line, arguments, "limit"));
    // Some models write numbers as strings.
    let limit = limit.map(|limit| limit.of(line).trim_ascii()).map(|limit| match limit {
        [b'"', inner @ .., b'"'] => inner,
        number => number,
    });
    let limit = limit.and_then(|limit| std::str::from_utf8(limit).ok()?.parse().ok());
    let view = aggregator.fleet.view_of(&meta_call.client);
    let server = match (text_argument(line, arguments, "server"), meta_call.client.scope()) {
        (_, Scope::One(server)) => Some(server),
        (None, Scope::All) => None,
        (Some(name), Scope::All) => match view.snapshot.server_named(&name) {
            Some(server) => Some(server),
            None => return meta_call.fail(&format!("There is no server `{}`", one_line(&name, 100))),
        },
    };
    let tool_query = ToolQuery {
        query: query.into_owned(),
        principal: Arc::clone(meta_call.client.principal().id()),
        limit: limit.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS),
        least: 0.0,
        server,
        skill: text_argument(line, arguments, "skill").map(Cow::into_owned),
        profile: meta_call.client.profile().cloned(),
    };
    let query = tool_query.query.clone();
    let learns = aggregator.tool_finder().is_some_and(|tool_finder| tool_finder.learns());
    later(aggregator, meta_call, tool_query, move |view, meta_call, findings| {
        let Findings { tools: mut found, note } = findings;
        let best = found.first().map_or(0.0, |best| best.score);
        found.retain(|hit| hit.score >= best * SCORE_CUTOFF_RATIO);
        if let Some(connected) = meta_call.client.connected().filter(|_| learns) {
            connected.searches.add(&query, &found);
        }
        let routes = render::usable(view, &meta_call.client, &found);
        let among = render::among(view, &meta_call.client, server);
        let mut text = render::findings(view, &meta_call.client, &query, &routes, among, best >= MIN_FITTING_SCORE);
        if let Some(note) = note {
            text = format!("{}\n\n{note}", text.trim_end());
        }
        meta_call.answer(&text);
        // A modern client receives changes on a listen stream, which is independent of this request.
        if meta_call.client.surface(view) == Surface::Grow && meta_call.lifecycle == Lifecycle::Session {
            meta_call.client.found(render::found(view, &routes));
        }
    });
}

/// Runs the search, and continues with the result.
fn later(
    aggregator: &Arc<Aggregator>,
    meta_call: MetaToolCall,
    tool_query: ToolQuery,
    go_on: impl FnOnce(&View, &MetaToolCall, Findings) + Send + 'static,
) {
    let Some(tool_finder) = aggregator.tool_finder() else {
        return go_on(&aggregator.fleet.view_of(&meta_call.client), &meta_call, Findings::default());
    };
    let finding = tool_finder.find(tool_query);
    let aggregator = Arc::clone(aggregator);
    let (client, to, id) = (Arc::clone(&meta_call.client), Arc::clone(&meta_call.to), meta_call.id.clone());
    client.defer(id, &to, async move {
        match finding.await {
            Ok(findings) => go_on(&aggregator.fleet.view_of(&meta_call.client), &meta_call, findings),
            Err(why) => meta_call.fail(&format!("The search failed: {why}")),
        }
        meta_call.to.flush();
    });
}

fn describe(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, request: &RequestEnvelope) {
    let meta_call = MetaToolCall::of(message, request);
    let Some(name) = text_argument(message.line, arguments(message.line, request), "name") else {
        return meta_call.fail("describe_tool needs `name`: a tool's name as search_tools gives it");
    };
    let view = aggregator.fleet.view_of(&meta_call.client);
    match view.snapshot.resolve(meta_call.client.scope(), Kind::Tool, &name) {
        Some(route) => meta_call.answer(&render::definition(&view, &meta_call.client, meta_call.lifecycle, route)),
        None => suggest(aggregator, meta_call, name.into_owned()),
    }
}

/// Responds that the tool does not exist, with similar ones.
fn suggest(aggregator: &Arc<Aggregator>, meta_call: MetaToolCall, name: String) {
    let server = meta_call.client.scope().only();
    let tool_query = ToolQuery {
        query: name.clone(),
        principal: Arc::clone(meta_call.client.principal().id()),
        limit: MAX_SUGGESTIONS,
        least: MIN_SUGGESTION_SCORE,
        server,
        skill: None,
        profile: meta_call.client.profile().cloned(),
    };
    later(aggregator, meta_call, tool_query, move |view, meta_call, findings| {
        let mut text = format!("There is no tool `{}`.", one_line(&name, 200));
        let routes = render::usable(view, &meta_call.client, &findings.tools);
        let names: Vec<_> =
            routes.iter().map(|&route| format!("`{}`", render::name(view, &meta_call.client, route))).collect();
        if !names.is_empty() {
            text += &format!(" Did you mean {}?", names.join(" or "));
        }
        meta_call.fail(&(text + " search_tools finds names."));
    });
}

/// Makes the inner call: its `name` and `arguments` become those of the request.
fn pass_on(aggregator: &Arc<Aggregator>, message: Incoming<'_>, request: &RequestEnvelope) {
    let Incoming { client, to, line, flush_set } = message;
    let whole = arguments(line, request);
    let inner = |name: &str| whole.and_then(|whole| member(line, whole, name));
    let name_at = inner("name").filter(|name| line[name.start] == b'"');
    let message = Incoming { client, to, line, flush_set };
    let (Some(whole), Some(name_at), Some(name)) =
        (whole, name_at, name_at.and_then(|name_at| text::decode(name_at.of(line))))
    else {
        return MetaToolCall::of(&message, request)
            .fail("call_tool needs `name`: a tool's name as search_tools gives it; and `arguments`: the tool's own");
    };
    let view = aggregator.fleet.view_of(client);
    let is_there = view.snapshot.resolve(client.scope(), Kind::Tool, &name).is_some();
    let why = || view.snapshot.why_missing(client.scope(), Kind::Tool, &name, client.style());
    if !is_there && (meta_tools::is_own(&name) || !matches!(why(), Missing::Starting(_) | Missing::Down(_))) {
        return suggest(aggregator, MetaToolCall::of(&message, request), name.into_owned());
    }
    let Some(arguments) = inner_arguments(line, inner("arguments")) else {
        return MetaToolCall::of(&message, request)
            .fail("`arguments` of call_tool must be an object: the tool's own arguments");
    };
    let outer_name = request.params.name.expect("a call without a name is none of ours");
    let mut edits = [Edit { span: outer_name, with: name_at.of(line) }, Edit { span: whole, with: &arguments }];
    let line = Bytes::from(spliced(line, in_order(&mut edits)));
    let request = Envelope::scan(&line).ok().and_then(Envelope::into_request);
    let request = request.expect("a request with values in the place of values is a request");
    call::route(aggregator, Incoming { line: &line, ..message }, &request, Kind::Tool);
}

/// The arguments for the server. Some models write them as a JSON string, which is decoded.
fn inner_arguments(line: &Bytes, at: Option<Span>) -> Option<Cow<'_, [u8]>> {
    let token = match at.map(|at| at.of(line)) {
        None | Some(b"null") => return Some(Cow::Borrowed(b"{}")),
        Some(token) => token,
    };
    if token.starts_with(b"{") {
        return Some(Cow::Borrowed(token));
    }
    let text = text::decode(token)?;
    // It must be a single value: it is checked as the only element of a list.
    let wrapped = format!(r#"{{"jsonrpc":"2.0","method":"x","params":[{}]}}"#, text.trim());
    let envelope = Envelope::scan(wrapped.as_bytes()).ok()?;
    let list = elements(wrapped.as_bytes(), envelope.params.span?)?;
    let is_one = list.len() == 1 && text.trim_start().starts_with('{') && !text.contains('\n');
    is_one.then(|| Cow::Owned(text.trim().as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments_of(token: &str) -> Option<String> {
        let line = Bytes::copy_from_slice(token.as_bytes());
        let found = inner_arguments(&line, Some(Span { start: 0, end: line.len() }))?;
        Some(String::from_utf8(found.into_owned()).unwrap())
    }

    #[test]
    fn structured_arguments_pass_verbatim_and_texts_by_value() {
        assert_eq!(arguments_of(r#"{"a": 1.0 }"#).unwrap(), r#"{"a": 1.0 }"#);
        assert_eq!(arguments_of(r#""{\"a\":1.0}""#).unwrap(), r#"{"a":1.0}"#);
        assert_eq!(arguments_of("null").unwrap(), "{}");
        assert_eq!(inner_arguments(&Bytes::new(), None).unwrap(), &b"{}"[..]);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for token in ["7", "[]", r#""7""#, r#""{""#, r#""{},{}""#, r#""{}],\"id\":[{}""#, r#""""#] {
            assert_eq!(arguments_of(token), None, "{token}");
        }
    }
}
