//! HTTP+SSE of 2024-11-05: one stream per client, and messages posted beside it.

use std::io;

use super::answers::{self, Message};
use super::connection::{Connection, Next};
use super::wire::{Head, Request};

/// Where clients post, as the first event of the stream tells them.
const MESSAGES: &str = "/message";

pub(super) fn answer(connection: &mut Connection, request: &Request) -> io::Result<Next> {
    let path = request.bare_path();
    let at_the_stream = path == connection.script.path();
    match request.method.as_str() {
        "GET" if at_the_stream => stream(connection),
        "POST" if at_the_stream => {
            let status = connection.script.refuse_initialize.unwrap_or(405);
            connection.refuse(Head::new(status), "This server has the old transport")
        }
        "POST" if path == MESSAGES => message(connection, request),
        _ if at_the_stream => connection.refuse(Head::new(405).with("Allow", "GET"), "Method Not Allowed"),
        _ => connection.refuse(Head::new(404), "Not Found"),
    }
}

fn stream(connection: &mut Connection) -> io::Result<Next> {
    if connection.script.garbage {
        return connection.garbage();
    }
    connection.begin(Head::new(200).events())?;
    if connection.script.close_after_headers {
        return Ok(Next::Close);
    }
    let session = connection.shared.issue_session();
    let messages = connection.shared.open_stream(&session);
    let endpoint = format!("{MESSAGES}?sessionId={session}");
    let endpoint = connection.new_event().comment("fake-http-server").kind("endpoint").data(&endpoint).finish();
    let next = connection.chunk(&endpoint).and_then(|()| connection.pump(&messages));
    connection.shared.close_stream(&session);
    connection.shared.state().sessions.remove(&session);
    next
}

fn message(connection: &mut Connection, request: &Request) -> io::Result<Next> {
    if connection.script.garbage {
        return connection.garbage();
    }
    let session = request.query("sessionId").unwrap_or_default();
    let outbox = {
        let state = connection.shared.state();
        state.streams.iter().find(|stream| stream.id == session).map(|stream| stream.outbox.clone())
    };
    let Some(outbox) = outbox else { return connection.refuse(Head::new(404), "Session not found") };
    let Some(message) = Message::read(&request.body) else {
        return connection.refuse(Head::new(400), "Parse error");
    };
    if message.is("tools/call")
        && let Some(refusal) = connection.shared.take_status()
    {
        return connection.refuse_as_scripted(refusal);
    }
    let next = connection.empty(202)?;
    if message.is_request() {
        // A thread, as a call that takes long must not hold up the next message on this connection.
        connection.shared.spawn(move |shared| {
            // Whoever closed the stream does not want the answer any more.
            let mut send = |message| outbox.send(message).unwrap_or_default();
            let answer = answers::answer(shared, &message, &mut send);
            answer.into_iter().for_each(send);
        });
    }
    Ok(next)
}
