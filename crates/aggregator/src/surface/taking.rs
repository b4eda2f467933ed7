//! Calls on the small surface: those of our own tools are answered here, all others go their way.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use catalog::{Kind, Missing, Scope};
use protocol::reply;
use protocol::scan::{Span, elements, member};
use protocol::splice::{Edit, Piece, in_order, splice};
use protocol::{Envelope, Era, text};

use super::own::{self, one_line};
use super::{Found, Surface, Wish, showing};
use crate::answering::Answering;
use crate::call::{self, id_of};
use crate::client::{Client, era_of};
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::View;
use crate::listing::client_name;

/// How many tools are told of, if nobody says.
const USUAL: usize = 8;
const MOST: usize = 50;
/// How many are offered in place of one that does not exist, and how well they must fit.
const INSTEAD: usize = 3;
const LIKENESS: f32 = 0.05;
/// What fits so much less than the best is no answer to the same question, but only the next in the index.
const FADING: f32 = 0.4;
/// If even the best fits less than this, that is said.
const FITTING: f32 = 0.25;

/// Takes a call of a tool: one of ours, if this client has them, or one of a server's.
pub(crate) fn take(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope) {
    let name = match aggregator.guide() {
        Some(_) if message.client.surface() != Surface::Full => own_name(aggregator, &message, envelope),
        _ => None,
    };
    match name {
        Some(own::CALL) => pass_on(aggregator, message, envelope),
        Some(own::SEARCH) => search(aggregator, &message, envelope),
        Some(_) => describe(aggregator, &message, envelope),
        None => call::route(aggregator, message, envelope, Kind::Tool),
    }
}

/// Which tool of ours is meant, if one is. A server alone has tools under their own names, which may be ours: then those
/// are meant that are on the list.
fn own_name(aggregator: &Aggregator, message: &Incoming<'_>, envelope: &Envelope) -> Option<&'static str> {
    let name = text::decode(envelope.params.name?.of(message.line))?;
    let own = [own::SEARCH, own::DESCRIBE, own::CALL].into_iter().find(|own| *own == name)?;
    let (view, client) = (aggregator.fleet.view(), message.client);
    let is_servers = || view.snapshot.resolve(client.scope(), Kind::Tool, &name).is_some();
    (super::is_small(aggregator, client, &view) || !is_servers()).then_some(own)
}

/// The request of one of our tools, apart from the line it came in.
struct Asked {
    client: Arc<Client>,
    to: Arc<Answering>,
    id: Bytes,
    era: Era,
}

impl Asked {
    fn of(message: &Incoming<'_>, envelope: &Envelope) -> Self {
        let id = id_of(envelope);
        let era = era_of(&envelope.params);
        if era == Era::Modern {
            message.client.named(&client_name(message.line, &envelope.params).unwrap_or_default());
        }
        Self {
            client: Arc::clone(message.client),
            to: Arc::clone(message.to),
            id: message.line.slice(id.start..id.end),
            era,
        }
    }

    fn answer(&self, text: &str) {
        self.say(text, false);
    }

    /// What went wrong, for the model to do better.
    fn fail(&self, text: &str) {
        self.say(text, true);
    }

    fn say(&self, text: &str, is_error: bool) {
        let block = reply::object([("type", reply::string("text")), ("text", reply::string(text))]);
        let content = [&b"["[..], &block, b"]"].concat();
        let mut members = vec![("content", content), ("isError", is_error.to_string().into_bytes())];
        if self.era == Era::Modern {
            members.push(("resultType", reply::string("complete")));
        }
        self.to.say(&reply::result(&self.id, &reply::object(members)));
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
    let asked = Asked::of(message, envelope);
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
    let wish = Wish {
        query: query.into_owned(),
        limit: limit.unwrap_or(USUAL).clamp(1, MOST),
        least: 0.0,
        server,
        skill: text_argument(line, arguments, "skill").map(Cow::into_owned),
    };
    let query = wish.query.clone();
    later(aggregator, asked, wish, move |view, asked, mut found| {
        let best = found.first().map_or(0.0, |best| best.score);
        found.retain(|hit| hit.score >= best * FADING);
        let routes = showing::usable(view, &asked.client, &found);
        let among = showing::among(view, &asked.client, server);
        asked.answer(&showing::findings(view, &asked.client, &query, &routes, among, best >= FITTING));
        // One of the modern era hears of changes on a stream that knows nothing of what it asked here.
        if asked.client.surface() == Surface::Grow && asked.era == Era::Legacy {
            asked.client.found(showing::found(view, &routes));
        }
    });
}

/// Looks for what is wished, and goes on with what was found.
fn later(
    aggregator: &Arc<Aggregator>,
    asked: Asked,
    wish: Wish,
    go_on: impl FnOnce(&View, &Asked, Vec<Found>) + Send + 'static,
) {
    let Some(guide) = aggregator.guide() else { return go_on(&aggregator.fleet.view(), &asked, Vec::new()) };
    let finding = guide.find(wish);
    let aggregator = Arc::clone(aggregator);
    let (client, to, id) = (Arc::clone(&asked.client), Arc::clone(&asked.to), asked.id.clone());
    client.park(id, &to, async move {
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
    let asked = Asked::of(message, envelope);
    let Some(name) = text_argument(message.line, arguments(message.line, envelope), "name") else {
        return asked.fail("describe_tool needs `name`: a tool's name as search_tools gives it");
    };
    let view = aggregator.fleet.view();
    match view.snapshot.resolve(asked.client.scope(), Kind::Tool, &name) {
        Some(route) => asked.answer(&showing::definition(&view, &asked.client, asked.era, route)),
        None => suggest(aggregator, asked, name.into_owned()),
    }
}

/// Says that there is no such tool, and which might have been meant.
fn suggest(aggregator: &Arc<Aggregator>, asked: Asked, name: String) {
    let server = asked.client.scope().only();
    let wish = Wish { query: name.clone(), limit: INSTEAD, least: LIKENESS, server, skill: None };
    later(aggregator, asked, wish, move |view, asked, found| {
        let mut text = format!("There is no tool `{}`.", one_line(&name, 200));
        let routes = showing::usable(view, &asked.client, &found);
        let names: Vec<_> =
            routes.iter().map(|&route| format!("`{}`", showing::name(view, &asked.client, route))).collect();
        if !names.is_empty() {
            text += &format!(" Did you mean {}?", names.join(" or "));
        }
        asked.fail(&(text + " search_tools finds names."));
    });
}

/// Makes the call that is asked for inside another: what stands there as name and arguments becomes the call's own.
fn pass_on(aggregator: &Arc<Aggregator>, message: Incoming<'_>, envelope: &Envelope) {
    let Incoming { client, to, line, touched } = message;
    let whole = arguments(line, envelope);
    let inner = |name: &str| whole.and_then(|whole| member(line, whole, name));
    let name_at = inner("name").filter(|name| line[name.start] == b'"');
    let message = Incoming { client, to, line, touched };
    let (Some(whole), Some(name_at), Some(name)) =
        (whole, name_at, name_at.and_then(|name_at| text::decode(name_at.of(line))))
    else {
        return Asked::of(&message, envelope)
            .fail("call_tool needs `name`: a tool's name as search_tools gives it; and `arguments`: the tool's own");
    };
    let view = aggregator.fleet.view();
    let is_there = view.snapshot.resolve(client.scope(), Kind::Tool, &name).is_some();
    let why = || view.snapshot.why_missing(client.scope(), Kind::Tool, &name, client.style());
    if !is_there && (own::is_own(&name) || !matches!(why(), Missing::Starting(_) | Missing::Down(_))) {
        return suggest(aggregator, Asked::of(&message, envelope), name.into_owned());
    }
    let Some(arguments) = inner_arguments(line, inner("arguments")) else {
        return Asked::of(&message, envelope)
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
