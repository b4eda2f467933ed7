//! Finds id, method and tool name in a request line, and stops as soon as it has them.
//!
//! It trusts the line to be JSON (the benchmark's clients send nothing else) but not the order of the members:
//! some SDKs write `params` before `id`. Nested members called `id` or `name` are not mistaken for the real ones.

/// The parts of a request that decide the answer, as they stand in the line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// The raw id, quotes included; `None` in a notification.
    pub id: Option<&'a [u8]>,
    /// The method, without quotes.
    pub method: &'a [u8],
    /// `params.name`, without quotes.
    pub tool: Option<&'a [u8]>,
}

/// Reads the envelope of one line; `None` if it is not an object.
pub fn request(line: &[u8]) -> Option<Request<'_>> {
    let mut found = Request::default();
    let mut members = Members::of_object(line, skip_space(line, 0))?;
    while let Some((key, start)) = members.next_key() {
        match key {
            b"params" if line.get(start) == Some(&b'{') => {
                let mut params = Members::of_object(line, start)?;
                while let Some((key, start)) = params.next_key() {
                    let end = skip_value(line, start)?;
                    if key == b"name" && line[start] == b'"' {
                        found.tool = Some(&line[start + 1..end - 1]);
                        break;
                    }
                    params.at = end;
                }
                // The usual order puts everything we need before the arguments: do not read those.
                if found.id.is_some() && !found.method.is_empty() && found.tool.is_some() {
                    return Some(found);
                }
                members.at = skip_value(line, start)?;
            }
            _ => {
                let end = skip_value(line, start)?;
                match key {
                    b"id" => found.id = Some(&line[start..end]),
                    b"method" if line[start] == b'"' => found.method = &line[start + 1..end - 1],
                    _ => {}
                }
                members.at = end;
            }
        }
    }
    Some(found)
}

/// Walks the members of one object; the caller moves `at` past each value.
struct Members<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    fn of_object(line: &'a [u8], start: usize) -> Option<Self> {
        (line.get(start)? == &b'{').then_some(Self { line, at: start + 1 })
    }

    /// The next key and where its value starts; `None` at the end of the object.
    fn next_key(&mut self) -> Option<(&'a [u8], usize)> {
        let mut start = skip_space(self.line, self.at);
        if self.line.get(start) == Some(&b',') {
            start = skip_space(self.line, start + 1);
        }
        if self.line.get(start) != Some(&b'"') {
            return None;
        }
        let end = skip_string(self.line, start)?;
        let colon = skip_space(self.line, end);
        (self.line.get(colon)? == &b':').then(|| (&self.line[start + 1..end - 1], skip_space(self.line, colon + 1)))
    }
}

fn skip_space(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// From an opening quote to just behind the closing one.
fn skip_string(line: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', line.get(at..)?)?;
        if line[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// From the first byte of a value to just behind its last.
fn skip_value(line: &[u8], start: usize) -> Option<usize> {
    match line.get(start)? {
        b'"' => skip_string(line, start),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut at = start;
            loop {
                match line.get(at)? {
                    b'"' => {
                        at = skip_string(line, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.checked_sub(1)?,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let rest = &line[start..];
            let length = rest.iter().position(|byte| b",}] \t\r\n".contains(byte))?;
            Some(start + length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> (Option<&str>, &str, Option<&str>) {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let found = request(line.as_bytes()).unwrap();
        (found.id.map(text), text(found.method), found.tool.map(text))
    }

    #[test]
    fn the_usual_order_is_read_up_to_the_name() {
        // What follows the name is not even JSON: nobody looks at it.
        let line = r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"text_100","arguments":@@@"#;
        assert_eq!(parts(line), (Some("17"), "tools/call", Some("text_100")));
    }

    #[test]
    fn an_id_behind_the_params_is_found_and_nested_ones_are_not() {
        let line = r#"{"method":"tools/call","params":{"arguments":{"id":1,"name":"no","t":"}\"]\\"},"name":"yes","_meta":{"id":2}},"jsonrpc":"2.0","id":"a\"b"}"#;
        assert_eq!(parts(line), (Some(r#""a\"b""#), "tools/call", Some("yes")));
    }

    #[test]
    fn white_space_and_odd_ids_survive() {
        assert_eq!(parts(" { \"id\" : -1.5e3 , \"method\" : \"ping\" } "), (Some("-1.5e3"), "ping", None));
        assert_eq!(parts(r#"{"id":null,"method":"x","params":[{"name":"n"}]}"#), (Some("null"), "x", None));
    }

    #[test]
    fn a_notification_has_no_id() {
        assert_eq!(
            parts(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            (None, "notifications/initialized", None)
        );
    }

    #[test]
    fn broken_lines_end_without_a_panic() {
        for line in [
            "",
            "[]",
            "1",
            "{",
            r#"{"id"#,
            r#"{"id":"#,
            r#"{"id":1"#,
            r#"{"id":"x\"#,
            r#"{"params":{"a":[}"#,
            r#"{"a":}"#,
        ] {
            let _outcome = request(line.as_bytes());
        }
        assert_eq!(request(b"[1]"), None);
    }
}
