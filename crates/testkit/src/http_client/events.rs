//! Server-sent events, read one by one.

use serde_json::Value;

use super::body::Body;

/// One event of a stream. A lone comment is an event without anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The value of `id`.
    pub id: Option<String>,
    /// The value of `event`.
    pub kind: Option<String>,
    /// The lines of `data`, joined.
    pub data: String,
    /// The value of `retry`.
    pub retry: Option<String>,
    /// The text of a comment.
    pub comment: Option<String>,
}

impl Event {
    /// The data as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in the data of {self:?}"))
    }

    fn add(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.comment = Some(value.to_owned()),
            "id" => self.id = Some(value.to_owned()),
            "event" => self.kind = Some(value.to_owned()),
            "retry" => self.retry = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
    }
}

/// The next event. `None` if the body ends, or breaks, before one is complete.
pub(super) fn next(body: &mut Body<'_>) -> Option<Event> {
    let mut event = Event::default();
    let mut is_begun = false;
    loop {
        let line = next_line(body)?;
        if !line.is_empty() {
            is_begun = true;
            event.add(&line);
        } else if is_begun {
            return Some(event);
        }
    }
}

fn next_line(body: &mut Body<'_>) -> Option<String> {
    loop {
        if let Some(end) = body.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = body.pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            return Some(line.trim_end_matches(['\r', '\n']).to_owned());
        }
        let piece = body.next_piece().ok()??;
        body.pending.extend(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_an_event_are_read() {
        let mut event = Event::default();
        ["id: 7", "event:message", "data: {", "data:  1", "retry: 50", ": note"]
            .iter()
            .for_each(|line| event.add(line));
        assert_eq!(event.id.as_deref(), Some("7"));
        assert_eq!(event.kind.as_deref(), Some("message"));
        assert_eq!(event.data, "{\n 1");
        assert_eq!((event.retry.as_deref(), event.comment.as_deref()), (Some("50"), Some("note")));
    }
}
