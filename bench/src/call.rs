//! One tool call, ready to be sent again and again, and the check of every answer to it.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use bench::payload::Tool;

/// How closely an answer is compared with what the server sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The result must be the server's bytes.
    Exact,
    /// Other aggregators may re-encode: the size must be about right.
    Size,
}

/// A prepared call of one tool.
pub(crate) struct Call {
    /// Everything behind the id.
    rest: Vec<u8>,
    result: Vec<u8>,
    check: Check,
}

impl Call {
    /// `listed` is the tool's name as this contestant lists it, `tool` its name at the server.
    pub(crate) fn new(listed: &str, tool: &str, check: Check) -> Result<Self> {
        let what = Tool::from_name(tool).with_context(|| format!("no tool is called `{tool}`"))?;
        let name = serde_json::to_string(listed)?;
        let arguments = what.arguments();
        let rest = format!(",\"method\":\"tools/call\",\"params\":{{\"name\":{name},\"arguments\":{arguments}}}}}\n");
        Ok(Self { rest: rest.into_bytes(), result: what.result().into_bytes(), check })
    }

    /// The same call with arguments of this many bytes more, for filling pipes.
    pub(crate) fn padded(mut self, bytes: usize) -> Self {
        let key = br#""arguments":{"#;
        if let Some(at) = memchr::memmem::find(&self.rest, key) {
            let padding = format!(r#""padding":"{}","#, "x".repeat(bytes));
            let at = at + key.len();
            self.rest.splice(at..at, padding.into_bytes());
        }
        self
    }

    /// Appends the request line.
    pub(crate) fn write(&self, id: u64, to: &mut Vec<u8>) {
        write!(to, r#"{{"jsonrpc":"2.0","id":{id}"#).expect("writing to a Vec cannot fail");
        to.extend_from_slice(&self.rest);
    }

    /// The size of the answer's payload.
    pub(crate) fn result_size(&self) -> usize {
        self.result.len()
    }

    /// Whether this line is the right answer to request `id`.
    pub(crate) fn verify(&self, line: &[u8], id: u64) -> Result<()> {
        let found = answer_id(line)?;
        ensure!(found == id, "wrong answer: id {found} instead of {id}: {}", start_of(line));
        self.verify_result(line)
    }

    pub(crate) fn verify_result(&self, line: &[u8]) -> Result<()> {
        const KEY: &[u8] = br#""result":"#;
        let head = &line[..line.len().min(100)];
        let Some(at) = memchr::memmem::find(head, KEY) else {
            bail!("wrong answer: no result: {}", start_of(line));
        };
        let right = match self.check {
            Check::Exact => line[at + KEY.len()..].starts_with(&self.result),
            Check::Size => line.len() >= self.result.len() * 8 / 10,
        };
        ensure!(
            right,
            "wrong answer: not the {} bytes the server sent but {}: {}",
            self.result.len(),
            line.len(),
            start_of(line)
        );
        Ok(())
    }
}

/// The id of an answer. It stands at the start or, in some SDKs, at the end; no payload of ours contains `"id"`.
pub(crate) fn answer_id(line: &[u8]) -> Result<u64> {
    const KEY: &[u8] = br#""id":"#;
    let head = &line[..line.len().min(64)];
    let tail = &line[line.len().saturating_sub(64)..];
    let digits = [head, tail].iter().find_map(|part| {
        let behind = memchr::memmem::find(part, KEY)? + KEY.len();
        Some(&part[behind..])
    });
    let id = digits.and_then(|digits| {
        let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&digits[..length]).ok()?.parse().ok()
    });
    id.with_context(|| format!("wrong answer: no id of ours: {}", start_of(line)))
}

/// Requests and notifications name a method; no payload of ours has that word so near the start.
pub(crate) fn is_answer(line: &[u8]) -> bool {
    let head = &line[..line.len().min(64)];
    memchr::memmem::find(head, br#""method""#).is_none()
}

fn start_of(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_at_either_end_of_an_answer() {
        let long = "y".repeat(500);
        assert_eq!(answer_id(br#"{"jsonrpc":"2.0","id":12,"result":{}}"#).unwrap(), 12);
        let last = format!(r#"{{"result":{{"text":"{long}"}},"jsonrpc":"2.0","id":7}}"#);
        assert_eq!(answer_id(last.as_bytes()).unwrap(), 7);
        assert!(answer_id(br#"{"jsonrpc":"2.0","id":null,"error":{}}"#).is_err());
        assert!(answer_id(b"{}").is_err());
    }

    #[test]
    fn only_the_servers_own_bytes_pass_the_exact_check() {
        let call = Call::new("s00:text_100", "text_100", Check::Exact).unwrap();
        let result = String::from_utf8(Tool::Text(100).result().into_bytes()).unwrap();
        let right = format!(r#"{{"jsonrpc":"2.0","id":3,"result":{result}}}"#);
        call.verify(right.as_bytes(), 3).unwrap();
        assert!(call.verify(right.as_bytes(), 4).is_err());
        let changed = right.replace(" after ", " before ");
        assert!(call.verify(changed.as_bytes(), 3).is_err());
        let error = r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}"#;
        assert!(call.verify(error.as_bytes(), 3).is_err());
    }

    #[test]
    fn requests_are_json_lines_with_and_without_padding() {
        for call in [
            Call::new("a\"b", "text_10k", Check::Size).unwrap(),
            Call::new("a\"b", "text_100", Check::Size).unwrap().padded(5_000),
        ] {
            let mut line = Vec::new();
            call.write(9, &mut line);
            assert_eq!(line.pop(), Some(b'\n'));
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(value["id"], 9);
            assert_eq!(value["params"]["name"], "a\"b");
            assert!(line.len() > 5_000);
        }
    }
}
