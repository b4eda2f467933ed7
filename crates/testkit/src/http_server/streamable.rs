//! Streamable HTTP, as the revisions from 2025-03-26 to 2025-11-25 have it.

use std::io;

use super::answers::{self, Message};
use super::connection::{Connection, Next};
use super::modern;
use super::wire::{Head, Request};

pub(super) fn answer(connection: &mut Connection, request: &Request) -> io::Result<Next> {
    if request.bare_path() != connection.script.path() {
        return connection.refuse(Head::new(404), "Not Found");
    }
    if connection.script.modern {
        return modern::answer(connection, request);
    }
    match request.method.as_str() {
        "POST" => post(connection, request),
        "GET" => get(connection, request),
        "DELETE" => delete(connection, request),
        _ => connection.refuse(Head::new(405).with("Allow", "GET, POST, DELETE"), "Method Not Allowed"),
    }
}

fn post(connection: &mut Connection, request: &Request) -> io::Result<Next> {
    if connection.script.garbage {
        return connection.garbage();
    }
    let Some(message) = Message::read(&request.body) else {
        let body = br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}"#;
        return connection.whole(Head::new(400).json(), body);
    };
    let mut head = Head::new(200);
    if message.is("initialize") {
        if let Some(status) = connection.script.refuse_initialize {
            return connection.refuse(Head::new(status), "This server does not initialize");
        }
        if connection.script.sessions {
            head = head.with("Mcp-Session-Id", connection.shared.issue_session());
        }
    } else if let Some((status, why)) = session_fault(connection, request) {
        return connection.refuse(Head::new(status), why);
    }
    if !message.is_request() {
        connection.shared.rest(connection.script.slow_notices);
        return connection.empty(202);
    }
    if message.is("tools/call") {
        if let Some(refusal) = connection.shared.take_status() {
            return connection.refuse_as_scripted(refusal);
        }
        let drops = connection.shared.script_mut().drops_this_stream();
        if drops {
            return drop_stream(connection, head, message);
        }
    }
    answer_as_scripted(connection, head, &message)
}

pub(super) fn answer_as_scripted(connection: &mut Connection, head: Head, message: &Message) -> io::Result<Next> {
    if connection.script.sse_answers || message.calls("progress") {
        answer_as_events(connection, head, message)
    } else {
        answer_as_json(connection, head, message)
    }
}

fn answer_as_json(connection: &mut Connection, head: Head, message: &Message) -> io::Result<Next> {
    if connection.script.close_after_headers {
        connection.begin(head.json())?;
        return Ok(Next::Close);
    }
    match answers::answer(&connection.shared, message, &mut |_| {}) {
        Some(answer) => {
            let answer = connection.script.render(answer);
            connection.whole(head.json(), answer.as_bytes())
        }
        None => connection.hang(),
    }
}

fn answer_as_events(connection: &mut Connection, head: Head, message: &Message) -> io::Result<Next> {
    connection.begin(head.events())?;
    if connection.script.close_after_headers {
        return Ok(Next::Close);
    }
    let comment = connection.new_event().comment("fake-http-server").finish();
    connection.chunk(&comment)?;
    let shared = connection.shared.clone();
    let mut written = Ok(());
    let answer = answers::answer(&shared, message, &mut |notification| {
        if written.is_ok() {
            written = connection.message_event(notification);
        }
    });
    written?;
    match answer {
        Some(answer) => {
            connection.message_event(answer)?;
            connection.end()
        }
        None => connection.hang(),
    }
}

/// Ends the stream after an event to resume from. The call goes on, and its answer waits for whoever resumes.
fn drop_stream(connection: &mut Connection, head: Head, message: Message) -> io::Result<Next> {
    let id = format!("resume-{}", connection.shared.next_number());
    connection.shared.park(&id);
    let priming = connection.new_event().id(&id).retry("50").data("").finish();
    connection.shared.spawn(move |shared| {
        if let Some(answer) = answers::answer(shared, &message, &mut |_| {}) {
            shared.deliver_parked(&id, answer);
        }
    });
    connection.begin(head.events())?;
    connection.chunk(&priming)?;
    connection.end()
}

fn get(connection: &mut Connection, request: &Request) -> io::Result<Next> {
    if let Some((status, why)) = session_fault(connection, request) {
        return connection.refuse(Head::new(status), why);
    }
    let head = Head::new(200).events();
    if let Some(id) = request.header("last-event-id")
        && connection.shared.is_parked(id)
    {
        return resume(connection, head, id);
    }
    if !connection.script.get_stream {
        return connection.refuse(Head::new(405).with("Allow", "POST, DELETE"), "Method Not Allowed");
    }
    connection.begin(head)?;
    if connection.script.close_after_headers {
        return Ok(Next::Close);
    }
    let stream = format!("stream-{}", connection.shared.next_number());
    let messages = connection.shared.open_stream(&stream);
    let next = connection.pump(&messages);
    connection.shared.close_stream(&stream);
    next
}

fn resume(connection: &mut Connection, head: Head, event_id: &str) -> io::Result<Next> {
    connection.begin(head)?;
    let Some(answer) = connection.shared.parked_answer(event_id) else { return Ok(Next::Close) };
    connection.message_event(answer)?;
    connection.end()
}

fn delete(connection: &mut Connection, request: &Request) -> io::Result<Next> {
    if let Some((status, why)) = session_fault(connection, request) {
        return connection.refuse(Head::new(status), why);
    }
    if let Some(id) = request.header("mcp-session-id") {
        connection.shared.state().sessions.remove(id);
    }
    connection.empty(200)
}

/// What is wrong with the session of a request that needs one.
fn session_fault(connection: &Connection, request: &Request) -> Option<(u16, &'static str)> {
    if !connection.script.sessions {
        return None;
    }
    match request.header("mcp-session-id") {
        None => Some((400, "Bad Request: Mcp-Session-Id header is required")),
        Some(id) if !connection.shared.state().sessions.contains(id) => Some((404, "Session not found")),
        Some(_) => None,
    }
}
