//! The `Accept` and `Content-Type` headers: what a client can read and what it sends.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};

/// The response formats that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

impl Accepts {
    /// Reads the headers. A client without `Accept` takes everything.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let mut accepts = Self { json: false, events: false };
        let mut says_something = false;
        for value in headers.get_all(ACCEPT) {
            says_something = true;
            // The value of nearly every client.
            if value == "application/json, text/event-stream" {
                return Self { json: true, events: true };
            }
            for range in value.as_bytes().split(|&byte| byte == b',') {
                accepts.add(range);
            }
        }
        if says_something { accepts } else { Self { json: true, events: true } }
    }

    fn add(&mut self, range: &[u8]) {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default();
        let is_refused = parts.any(|part| matches!(part, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"));
        if is_refused {
            return;
        }
        let is = |text: &str| kind.eq_ignore_ascii_case(text.as_bytes());
        let is_any = is("*/*");
        self.json |= is_any || is("application/json") || is("application/*");
        self.events |= is_any || is("text/event-stream") || is("text/*");
    }
}

/// Whether the body is declared as JSON.
pub(crate) fn sends_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(value: &str) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, value.parse().unwrap());
        let Accepts { json, events } = Accepts::read(&headers);
        (json, events)
    }

    #[test]
    fn each_form_is_recognised_in_any_spelling() {
        assert_eq!(accepts("application/json, text/event-stream"), (true, true));
        assert_eq!(accepts("Text/Event-Stream;q=0.5,APPLICATION/JSON ; charset=utf-8"), (true, true));
        assert_eq!(accepts("application/json"), (true, false));
        assert_eq!(accepts("text/event-stream"), (false, true));
        assert_eq!(accepts("*/*"), (true, true));
        assert_eq!(accepts("text/html, application/json;q=0"), (false, false));
        assert_eq!(Accepts::read(&HeaderMap::new()), Accepts { json: true, events: true });
    }

    #[test]
    fn json_is_json_with_or_without_parameters() {
        for (value, expected) in
            [("application/json", true), ("Application/JSON; charset=utf-8", true), ("text/plain", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(sends_json(&headers), expected, "{value}");
        }
        assert!(!sends_json(&HeaderMap::new()));
    }
}
