//! Calls on the small surface: those of our own tools are answered here, all others go their way.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use catalog::{Kind, Missing, Scope};
use protocol::reply;
use protocol::scan::{Span, elements, member};
use protocol::splice::{Edit, Piece, in_order, splice};
use protocol::{Envelope, Lifecycle, text};

use super::meta_tools::{self, one_line};
use super::{Found, Surface, ToolQuery, render};
use crate::call::{self, id_of};
use crate::client::{Client, lifecycle_of};
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::View;
use crate::lists::client_name;
use crate::responder::Responder;

/// How many tools are told of, if nobody says.
const DEFAULT_RESULTS: usize = 8;
const MAX_RESULTS: usize = 50;
/// How many are offered in place of one that does not exist, and how well they must fit.
const MAX_SUGGESTIONS: usize = 3;
const MIN_SUGGESTION_SCORE: f32 = 0.05;
/// What fits so much less than the best is no answer to the same question, but only the next in the index.
const FADING: f32 = 0.4;
/// If even the best fits less than this, that is said.
const FITTING: f32 = 0.25;

/// Takes a call of a tool: one of ours, if this client has them, or one of a server's.
pub(crate) fn take(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope) {
    let name = match aggregator.tool_finder() {
        Some(_) if message.client.surface() != Surface::Full => own_name(aggregator, &message, envelope),
        _ => None,
    };
    match name {
        Some(meta_tools::CALL) => pass_on(aggregator, message, envelope),
        Some(meta_tools::SEARCH) => search(aggregator, &message, envelope),
        Some(_) => describe(aggregator, &message, envelope),
        None => call::route(aggregator, message, envelope, Kind::Tool),
    }
}

/// Which tool of ours is meant, if one is. A server alone has tools under their own names, which may be ours: then those
/// are meant that are on the list.
fn own_name(aggregator: &Aggregator, message: &Incoming<'_>, envelope: &Envelope) -> Option<&'static str> {
    let name = text::decode(envelope.params.name?.of(message.line))?;
    let own = [meta_tools::SEARCH, meta_tools::DESCRIBE, meta_tools::CALL].into_iter().find(|own| *own == name)?;
    let (view, client) = (aggregator.fleet.view(), message.client);
    let is_servers = || view.snapshot.resolve(client.scope(), Kind::Tool, &name).is_some();
    (super::is_small(aggregator, client, &view) || !is_servers()).then_some(own)
}

/// The request of one of our tools, apart from the line it came in.
struct MetaToolCall {
    client: Arc<Client>,
    to: Arc<Responder>,
    id: Bytes,
    lifecycle: Lifecycle,
}

impl MetaToolCall {
    fn of(message: &Incoming<'_>, envelope: &Envelope) -> Self {
        let id = id_of(envelope);
        let lifecycle = lifecycle_of(&envelope.params);
        if lifecycle == Lifecycle::SelfContained {
            message.client.named(&client_name(message.line, &envelope.params).unwrap_or_default());
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

    /// What went wrong, for the model to do better.
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
fn arguments(line: &[u8], envelope: &Envelope) -> Option<Span> {
    let arguments = member(line, envelope.params.span?, "arguments")?;
    (line[arguments.start] == b'{').then_some(arguments)
}

/// A text among the arguments.
fn text_argument<'l>(line: &'l [u8], arguments: Option<Span>, name: &str) -> Option<Cow<'l, str>> {
    text::decode(member(line, arguments?, name)?.of(line))
}

fn search(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, envelope: &Envelope) {
    let asked = MetaToolCall::of(message, envelope);
    let (line, arguments) = (message.line, arguments(message.line, envelope));
    let Some(query) = text_argument(line, arguments, "query").filter(|query| !query.trim().is_empty()) else {
        return asked.fail("search_tools needs `query`: what you want to do, in plain words");
    };
    let limit = arguments.and_then(|arguments| member(line, arguments, "limit"));
    // Some models write numbers as texts.
    let limit = limit.map(|limit| limit.of(line).trim_ascii()).map(|limit| match limit {
        [b'"', inner @ .., b'"'] => inner,
        number => number,
    });
    let limit = limit.and_then(|limit| std::str::from_utf8(limit).ok()?.parse().ok());
    let view = aggregator.fleet.view();
    let server = match (text_argument(line, arguments, "server"), asked.client.scope()) {
        (_, Scope::One(server)) => Some(server),
        (None, Scope::All) => None,
        (Some(name), Scope::All) => match view.snapshot.server_named(&name) {
            Some(server) => Some(server),
            None => return asked.fail(&format!("There is no server `{}`", one_line(&name, 100))),
        },
    };
    let tool_query = ToolQuery {
        query: query.into_owned(),
        limit: limit.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS),
        least: 0.0,
        server,
        skill: text_argument(line, arguments, "skill").map(Cow::into_owned),
    };
    let query = tool_query.query.clone();
    later(aggregator, asked, tool_query, move |view, asked, mut found| {
        let best = found.first().map_or(0.0, |best| best.score);
        found.retain(|hit| hit.score >= best * FADING);
        let routes = render::usable(view, &asked.client, &found);
        let among = render::among(view, &asked.client, server);
        asked.answer(&render::findings(view, &asked.client, &query, &routes, among, best >= FITTING));
        // One of the modern lifecycle hears of changes on a stream that knows nothing of what it asked here.
        if asked.client.surface() == Surface::Grow && asked.lifecycle == Lifecycle::Session {
            asked.client.found(render::found(view, &routes));
        }
    });
}

/// Looks for what is wished, and goes on with what was found.
fn later(
    aggregator: &Arc<Aggregator>,
    asked: MetaToolCall,
    tool_query: ToolQuery,
    go_on: impl FnOnce(&View, &MetaToolCall, Vec<Found>) + Send + 'static,
) {
    let Some(tool_finder) = aggregator.tool_finder() else {
        return go_on(&aggregator.fleet.view(), &asked, Vec::new());
    };
    let finding = tool_finder.find(tool_query);
    let aggregator = Arc::clone(aggregator);
    let (client, to, id) = (Arc::clone(&asked.client), Arc::clone(&asked.to), asked.id.clone());
    client.defer(id, &to, async move {
        match finding.await {
            Ok(found) => {
                go_on(&aggregator.fleet.view(), &asked, found);
            }
            Err(why) => asked.fail(&format!("The search failed: {why}")),
        }
        asked.to.flush();
    });
}

fn describe(aggregator: &Arc<Aggregator>, message: &Incoming<'_>, envelope: &Envelope) {
    let asked = MetaToolCall::of(message, envelope);
    let Some(name) = text_argument(message.line, arguments(message.line, envelope), "name") else {
        return asked.fail("describe_tool needs `name`: a tool's name as search_tools gives it");
    };
    let view = aggregator.fleet.view();
    match view.snapshot.resolve(asked.client.scope(), Kind::Tool, &name) {
        Some(route) => asked.answer(&render::definition(&view, &asked.client, asked.lifecycle, route)),
        None => suggest(aggregator, asked, name.into_owned()),
    }
}

/// Says that there is no such tool, and which might have been meant.
fn suggest(aggregator: &Arc<Aggregator>, asked: MetaToolCall, name: String) {
    let server = asked.client.scope().only();
    let tool_query =
        ToolQuery { query: name.clone(), limit: MAX_SUGGESTIONS, least: MIN_SUGGESTION_SCORE, server, skill: None };
    later(aggregator, asked, tool_query, move |view, asked, found| {
        let mut text = format!("There is no tool `{}`.", one_line(&name, 200));
        let routes = render::usable(view, &asked.client, &found);
        let names: Vec<_> =
            routes.iter().map(|&route| format!("`{}`", render::name(view, &asked.client, route))).collect();
        if !names.is_empty() {
            text += &format!(" Did you mean {}?", names.join(" or "));
        }
        asked.fail(&(text + " search_tools finds names."));
    });
}

/// Makes the call that is asked for inside another: what stands there as name and arguments becomes the call's own.
fn pass_on(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope) {
    let Incoming { client, to, line, flush_set } = message;
    let whole = arguments(line, envelope);
    let inner = |name: &str| whole.and_then(|whole| member(line, whole, name));
    let name_at = inner("name").filter(|name| line[name.start] == b'"');
    let message = Incoming { client, to, line, flush_set };
    let (Some(whole), Some(name_at), Some(name)) =
        (whole, name_at, name_at.and_then(|name_at| text::decode(name_at.of(line))))
    else {
        return MetaToolCall::of(&message, envelope)
            .fail("call_tool needs `name`: a tool's name as search_tools gives it; and `arguments`: the tool's own");
    };
    let view = aggregator.fleet.view();
    let is_there = view.snapshot.resolve(client.scope(), Kind::Tool, &name).is_some();
    let why = || view.snapshot.why_missing(client.scope(), Kind::Tool, &name, client.style());
    if !is_there && (meta_tools::is_own(&name) || !matches!(why(), Missing::Starting(_) | Missing::Down(_))) {
        return suggest(aggregator, MetaToolCall::of(&message, envelope), name.into_owned());
    }
    let Some(arguments) = inner_arguments(line, inner("arguments")) else {
        return MetaToolCall::of(&message, envelope)
            .fail("`arguments` of call_tool must be an object: the tool's own arguments");
    };
    let outer_name = envelope.params.name.expect("a call without a name is none of ours");
    let mut edits = [Edit { span: outer_name, with: name_at.of(line) }, Edit { span: whole, with: &arguments }];
    let line = Bytes::from(spliced(line, in_order(&mut edits)));
    let scanned = Envelope::scan(&line).expect("values were put in the place of values");
    call::route(aggregator, Incoming { line: &line, ..message }, &scanned, Kind::Tool);
}

/// The arguments for the server. Some models write them as a text; what that says is meant.
fn inner_arguments(line: &Bytes, at: Option<Span>) -> Option<Cow<'_, [u8]>> {
    let token = match at.map(|at| at.of(line)) {
        None | Some(b"null") => return Some(Cow::Borrowed(b"{}")),
        Some(token) => token,
    };
    if token.starts_with(b"{") {
        return Some(Cow::Borrowed(token));
    }
    let text = text::decode(token)?;
    // Only one whole value may come in: it is checked as the single element of a list.
    let wrapped = format!(r#"{{"jsonrpc":"2.0","method":"x","params":[{}]}}"#, text.trim());
    let envelope = Envelope::scan(wrapped.as_bytes()).ok()?;
    let list = elements(wrapped.as_bytes(), envelope.params.span?)?;
    let is_one = list.len() == 1 && text.trim_start().starts_with('{') && !text.contains('\n');
    is_one.then(|| Cow::Owned(text.trim().as_bytes().to_vec()))
}

fn spliced(line: &[u8], edits: &[Edit<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    splice(line.len(), edits, |piece| match piece {
        Piece::Kept(span) => out.extend_from_slice(span.of(line)),
        Piece::New(bytes) => out.extend_from_slice(bytes),
    });
    out
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
    fn arguments_pass_as_they_are_and_texts_as_what_they_say() {
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
