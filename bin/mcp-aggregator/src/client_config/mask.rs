//! Masks the secrets in a client's config, because users paste screen output into reports.

use std::ops::Range;

use serde_json::Value;

use super::scan::{Object, object_at, skip_blank};

/// Replaces a secret.
const MASK: &str = "***";
/// Members of a server whose values are secrets.
const SECRETIVE: [&str; 2] = ["env", "headers"];

/// The text with every value in `env` and `headers` of a server masked, and every credential elsewhere. Lines keep
/// their positions. `None` if secrets cannot be recognised in the text.
pub(crate) fn masked(text: &str, group: &str) -> Option<String> {
    let start = skip_blank(text, 0);
    if start == text.len() {
        return Some(text.to_owned());
    }
    let mut places = Vec::new();
    for servers in members(text, &object_at(text, start)?, group) {
        for server in &servers.members {
            let Some(entry) = object_at(text, server.value.start) else { continue };
            for name in SECRETIVE {
                let secretive = members(text, &entry, name);
                places.extend(secretive.iter().flat_map(|object| object.members.iter().map(|one| one.value.clone())));
            }
        }
    }
    Some(with_masks(text, &places))
}

/// The objects with this name: it may occur twice.
fn members(text: &str, object: &Object, name: &str) -> Vec<Object> {
    let named = object.members.iter().filter(|member| member.key == name);
    named.filter_map(|member| object_at(text, member.value.start)).collect()
}

fn with_masks(text: &str, places: &[Range<usize>]) -> String {
    let mut places = places.to_vec();
    places.sort_by_key(|place| place.start);
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    for place in places {
        shown.push_str(&without_bearers(text.get(at..place.start).unwrap_or_default()));
        shown.push_str(&without_secret(&text[place.clone()]));
        at = place.end;
    }
    shown + &without_bearers(&text[at..])
}

/// A value for display. A reference to a variable is not a secret.
fn without_secret(written: &str) -> String {
    let value: Value = serde_json::from_str(written).unwrap_or_default();
    let mask = match value.as_str() {
        Some(text) if text.contains("${") => return written.to_owned(),
        Some(text) if text.starts_with("Bearer ") => format!("Bearer {MASK}"),
        _ => MASK.to_owned(),
    };
    // A value of several lines keeps its line breaks.
    format!("\"{mask}\"{}", "\n".repeat(written.matches('\n').count()))
}

/// Masks credentials in arguments, such as those of a bridge.
fn without_bearers(text: &str) -> String {
    let mut parts = text.split("Bearer ");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['"', '\'', ' ', '\n', '\\']).unwrap_or(part.len());
        let (credential, rest) = part.split_at(end);
        let credential = if credential.starts_with("${") || credential.is_empty() { credential } else { MASK };
        shown.push_str(&format!("Bearer {credential}{rest}"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_anybody_is_shown_and_lines_stay() {
        let text = "// mine\n{\"mcpServers\": {\n  \"gh\": {\"command\": \"gh\", \"env\": {\"T\": \"ghp_SECRET\", \"N\": 5}},\n  \
                    \"web\": {\"headers\": {\"Authorization\": \"Bearer SECRET\", \"X\": \"${env:X}\"}},\n  \
                    \"b\": {\"args\": [\"--header\", \"Authorization: Bearer SECRET\"]}\n}}\n";
        let shown = masked(text, "mcpServers").unwrap();
        assert!(!shown.contains("SECRET") && !shown.contains('5'), "{shown}");
        for kept in ["\"Bearer ***\"", "${env:X}", "\"gh\"", "\"T\": \"***\"", "// mine", "Authorization: Bearer ***\""]
        {
            assert!(shown.contains(kept), "{kept} in {shown}");
        }
        assert_eq!(shown.lines().count(), text.lines().count());
        assert_eq!(masked("", "mcpServers").unwrap(), "");
        assert_eq!(masked("{\"mcpServers\": {", "mcpServers"), None);
    }
}
