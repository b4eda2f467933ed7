//! Server-sent events as bytes.

use super::script::LineEnd;

/// One event, built field by field.
#[derive(Debug)]
pub(super) struct Event {
    text: String,
    line_end: &'static str,
}

impl Event {
    pub(super) fn new(line_end: LineEnd) -> Self {
        let line_end = match line_end {
            LineEnd::Lf => "\n",
            LineEnd::CrLf => "\r\n",
            LineEnd::Cr => "\r",
        };
        Self { text: String::new(), line_end }
    }

    pub(super) fn comment(self, comment: &str) -> Self {
        self.line(&[": ", comment])
    }

    pub(super) fn kind(self, kind: &str) -> Self {
        self.line(&["event: ", kind])
    }

    /// Without the space after the colon, which is optional: readers must take both.
    pub(super) fn id(self, id: &str) -> Self {
        self.line(&["id:", id])
    }

    pub(super) fn retry(self, milliseconds: &str) -> Self {
        self.line(&["retry: ", milliseconds])
    }

    /// One line for each line of `data`.
    pub(super) fn data(self, data: &str) -> Self {
        let data = data.replace("\r\n", "\n").replace('\r', "\n");
        data.split('\n').fold(self, |event, line| event.line(&["data: ", line]))
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.line(&[]).text.into_bytes()
    }

    fn line(mut self, parts: &[&str]) -> Self {
        self.text.extend(parts.iter().copied());
        self.text.push_str(self.line_end);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_data_gets_its_own_field() {
        let event = Event::new(LineEnd::CrLf).comment("hi").id("7").data("{\n1\r\n}").finish();
        assert_eq!(String::from_utf8(event).unwrap(), ": hi\r\nid:7\r\ndata: {\r\ndata: 1\r\ndata: }\r\n\r\n");
    }
}
