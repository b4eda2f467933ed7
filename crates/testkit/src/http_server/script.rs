//! The script of the server.

use std::collections::VecDeque;
use std::time::Duration;

/// What an [`HttpServer`](super::HttpServer) does. The default is a well-behaved server at `/mcp` that answers in JSON.
///
/// Every method returns the script, so that they chain. What is counted (statuses, dropped streams) is used up.
#[derive(Clone, Debug, Default)]
pub struct Script {
    legacy: bool,
    pub(super) modern: bool,
    pub(super) region_header: String,
    path: Option<String>,
    pub(super) sse_answers: bool,
    pub(super) pretty: bool,
    pub(super) line_end: LineEnd,
    pub(super) chunk_size: Option<usize>,
    pub(super) sessions: bool,
    pub(super) get_stream: bool,
    pub(super) required_headers: Vec<(String, String)>,
    pub(super) statuses: VecDeque<Refusal>,
    pub(super) streams_to_drop: usize,
    pub(super) refuse_initialize: Option<u16>,
    pub(super) slow_headers: Duration,
    pub(super) slow_notices: Duration,
    pub(super) garbage: bool,
    pub(super) close_after_headers: bool,
}

/// How the lines of a stream of events end. The standard allows all three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// `\n`
    #[default]
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r`
    Cr,
}

/// An HTTP answer that is not the one the client hoped for.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) header: Option<(&'static str, String)>,
}

impl Script {
    /// Streamable HTTP at `/mcp`: the default.
    pub fn streamable(mut self) -> Self {
        self.legacy = false;
        self
    }

    /// HTTP+SSE of 2024-11-05: a stream at `/sse`, messages to `/message`. A POST to `/sse` gets 405, or what
    /// [`refuse_initialize`](Self::refuse_initialize) says.
    pub fn sse(mut self) -> Self {
        self.legacy = true;
        self
    }

    /// Streamable HTTP at `/mcp` as 2026-07-28 has it, and nothing older. There are two more tools: `region` wants its
    /// argument `region` repeated in a header, and `wrong` wants it in a way that is not allowed.
    pub fn modern(mut self) -> Self {
        self.modern = true;
        self.region_header("Region")
    }

    /// The tool `region` wants its argument repeated in this header, behind `Mcp-Param-`.
    pub fn region_header(mut self, name: &str) -> Self {
        self.region_header = name.to_owned();
        self
    }

    /// Puts the endpoint elsewhere than `/mcp` or `/sse`.
    pub fn at(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Answers requests with streams of events: a comment first, ids on all events. With [`pretty`](Self::pretty),
    /// or if a result has line breaks, the data of an event takes several lines.
    pub fn answers_as_sse(mut self) -> Self {
        self.sse_answers = true;
        self
    }

    /// Writes JSON over many lines. Only space between tokens is added; the tokens stay as they are.
    pub fn pretty(mut self) -> Self {
        self.pretty = true;
        self
    }

    /// Ends the lines of events this way.
    pub fn line_end(mut self, line_end: LineEnd) -> Self {
        self.line_end = line_end;
        self
    }

    /// Writes all bodies as chunks of at most this many bytes, so that lines and characters are torn.
    pub fn chunks_of(mut self, bytes: usize) -> Self {
        self.chunk_size = Some(bytes.max(1));
        self
    }

    /// Issues an `Mcp-Session-Id` at `initialize` and requires it afterwards: 400 without, 404 if unknown.
    pub fn with_session(mut self) -> Self {
        self.sessions = true;
        self
    }

    /// Answers a GET with a stream for [`push`](super::HttpServer::push), not with 405.
    pub fn with_get_stream(mut self) -> Self {
        self.get_stream = true;
        self
    }

    /// Answers 401 to every request that does not carry this header with this value.
    pub fn require_header(mut self, name: &str, value: &str) -> Self {
        self.required_headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// Answers the next `tools/call` with this status. Several of these queue up.
    pub fn status_once(mut self, status: u16, retry_after: Option<u64>) -> Self {
        let header = retry_after.map(|seconds| ("Retry-After", seconds.to_string()));
        self.statuses.push_back(Refusal { status, header });
        self
    }

    /// Answers the next `tools/call` with a redirect (307 or 308 keep the method) to a path or a whole URL.
    pub fn redirect_once(mut self, status: u16, location: impl Into<String>) -> Self {
        self.statuses.push_back(Refusal { status, header: Some(("Location", location.into())) });
        self
    }

    /// Answers the next `count` `tools/call`s with a stream that ends after a first event with an id and
    /// `retry: 50`. The answer comes to a GET with that id as `Last-Event-ID`.
    pub fn drop_stream_before_answer(mut self, count: usize) -> Self {
        self.streams_to_drop += count;
        self
    }

    /// Answers `initialize` with this status. With [`sse`](Self::sse): every POST to the address of the stream.
    pub fn refuse_initialize(mut self, status: u16) -> Self {
        self.refuse_initialize = Some(status);
        self
    }

    /// Lets every answer wait this long before its first byte.
    pub fn slow_headers(mut self, milliseconds: u64) -> Self {
        self.slow_headers = Duration::from_millis(milliseconds);
        self
    }

    /// Lets everything that is no request wait this long for its 202.
    pub fn slow_notices(mut self, milliseconds: u64) -> Self {
        self.slow_notices = Duration::from_millis(milliseconds);
        self
    }

    /// Answers every POST, and the GET of a legacy stream, with 200 and a web page.
    pub fn garbage(mut self) -> Self {
        self.garbage = true;
        self
    }

    /// Writes the headers of every answer to a request, and of every stream, and breaks the connection.
    pub fn close_after_headers(mut self) -> Self {
        self.close_after_headers = true;
        self
    }

    /// A server that behaves again: no faults, nothing left of what is counted.
    pub fn healed(mut self) -> Self {
        self.statuses.clear();
        self.streams_to_drop = 0;
        self.refuse_initialize = None;
        self.slow_headers = Duration::ZERO;
        self.slow_notices = Duration::ZERO;
        self.garbage = false;
        self.close_after_headers = false;
        self
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.legacy
    }

    pub(super) fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(if self.legacy { "/sse" } else { "/mcp" })
    }

    /// Uses up one stream to drop, if there is one.
    pub(super) fn drops_this_stream(&mut self) -> bool {
        let drops = self.streams_to_drop > 0;
        self.streams_to_drop = self.streams_to_drop.saturating_sub(1);
        drops
    }

    /// A message as it goes on the wire.
    pub(super) fn render(&self, message: String) -> String {
        if self.pretty { spread(&message) } else { message }
    }
}

/// The same JSON over many lines, indented; no token is changed.
fn spread(json: &str) -> String {
    let mut spread = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for character in json.chars() {
        let structural = !in_string;
        match character {
            '"' if !escaped => in_string = !in_string,
            '}' | ']' if structural => {
                depth = depth.saturating_sub(1);
                break_line(&mut spread, depth);
            }
            _ => {}
        }
        escaped = in_string && character == '\\' && !escaped;
        spread.push(character);
        if structural && matches!(character, '{' | '[' | ',') {
            depth += usize::from(character != ',');
            break_line(&mut spread, depth);
        }
    }
    spread
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_json_leaves_its_tokens_alone() {
        let spread = spread(r#"{"a":[1e2,"\\\",{"],"b":{}}"#);
        assert_eq!(spread, "{\n  \"a\":[\n    1e2,\n    \"\\\\\\\",{\"\n  ],\n  \"b\":{\n    \n  }\n}");
    }

    #[test]
    fn what_is_counted_is_used_up() {
        let mut script = Script::default().drop_stream_before_answer(2);
        assert_eq!([(); 3].map(|()| script.drops_this_stream()), [true, true, false]);
    }
}
