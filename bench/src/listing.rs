//! `tools/list`, followed to the last page.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::call::answer_id;
use crate::client_connection::ClientConnection;

/// The pages of one complete list, and the time spent waiting for them.
pub(crate) struct Listing {
    pages: Vec<Vec<u8>>,
    /// Writing the requests and reading the answers; not the client's own search for cursors.
    pub(crate) elapsed: Duration,
}

/// No list of ours has so many; a server that hands out cursors for ever is stopped here.
const MAX_PAGES: usize = 10_000;

pub(crate) fn list_tools(connection: &mut impl ClientConnection) -> Result<Listing> {
    let mut listing = Listing { pages: Vec::new(), elapsed: Duration::ZERO };
    let mut cursor = None;
    loop {
        let id = connection.next_id();
        let request = list_request(id, cursor.as_deref());
        let start = Instant::now();
        connection.send(request.as_bytes())?;
        let page = connection.answer().context("no answer to tools/list")?;
        listing.elapsed += start.elapsed();
        ensure!(
            answer_id(page)? == id && memchr::memmem::find(page, br#""tools""#).is_some(),
            "wrong answer to tools/list: {}",
            String::from_utf8_lossy(&page[..page.len().min(200)])
        );
        cursor = next_cursor(page);
        listing.pages.push(page.to_vec());
        ensure!(listing.pages.len() < MAX_PAGES, "wrong answer: tools/list has no end");
        if cursor.is_none() {
            return Ok(listing);
        }
    }
}

pub(crate) fn list_request(id: u64, cursor: Option<&str>) -> String {
    let params = cursor.map_or_else(String::new, |cursor| format!(r#","params":{{"cursor":{cursor}}}"#));
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"{params}}}\n")
}

/// Counted by a word that each of our definitions has once.
pub(crate) fn count_tools(page: &[u8]) -> usize {
    memchr::memmem::find_iter(page, br#""inputSchema""#).count()
}

/// The cursor as it stands, quotes included. No tool definition of ours contains the word.
fn next_cursor(page: &[u8]) -> Option<String> {
    const KEY: &[u8] = br#""nextCursor":"#;
    let value = &page[memchr::memmem::find(page, KEY)? + KEY.len()..];
    // `null` is no cursor. Cursors of ours and of others are plain text without escaped quotes.
    let inner = value.strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', inner)?;
    Some(String::from_utf8_lossy(&value[..end + 2]).into_owned())
}

impl Listing {
    pub(crate) fn tool_count(&self) -> usize {
        self.pages.iter().map(|page| count_tools(page)).sum()
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages.iter().map(|page| page.len() as u64).sum()
    }

    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for page in &self.pages {
            let page: serde_json::Value = serde_json::from_slice(page).context("tools/list is not JSON")?;
            let tools = page["result"]["tools"].as_array().context("tools/list has no tools")?;
            names.extend(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned));
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_copied_and_null_is_none() {
        assert_eq!(next_cursor(br#"{"nextCursor":"p2","tools":[]}"#).as_deref(), Some("\"p2\""));
        assert_eq!(next_cursor(br#"{"tools":[],"nextCursor":""}"#).as_deref(), Some("\"\""));
        assert_eq!(next_cursor(br#"{"tools":[],"nextCursor":null}"#), None);
        assert_eq!(next_cursor(br#"{"tools":[]}"#), None);
    }

    #[test]
    fn a_request_carries_the_cursor_it_was_given() {
        let line = list_request(4, Some("\"p2\""));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["params"]["cursor"], "p2");
        assert!(serde_json::from_str::<serde_json::Value>(&list_request(4, None)).is_ok());
    }
}
