//! The file of a client without our changes, whatever else was edited in the meantime.

use serde_json::{Map, Value};

use super::edit::{self, EditError, entries};
use super::merge::merged;
use crate::import::jsonc;
use crate::import::plan::is_ours;

/// What was written.
pub(crate) struct Made {
    /// The original, if there was one.
    pub(crate) before: Option<String>,
    /// What we wrote.
    pub(crate) written: String,
}

/// The file without our changes.
#[derive(Debug, PartialEq)]
pub(crate) struct Undone {
    pub(crate) text: String,
    /// Our entries that were removed.
    pub(crate) taken_out: Vec<String>,
    /// Servers that were restored.
    pub(crate) put_back: Vec<String>,
}

impl Made {
    /// The names of the entries that we wrote.
    pub(crate) fn ours(&self, group: &str) -> Result<Vec<String>, EditError> {
        let before = self.entries_before(group)?;
        let written = entries(&self.written, group)?;
        Ok(written.into_iter().filter(|(name, entry)| before.get(name) != Some(entry)).map(|(name, _)| name).collect())
    }

    fn entries_before(&self, group: &str) -> Result<Map<String, Value>, EditError> {
        entries(self.before.as_deref().unwrap_or_default(), group)
    }

    /// `now` without our changes. Edits by others stay: an entry of ours that they pointed elsewhere, and a server with
    /// the name of one that we removed.
    pub(crate) fn undone(&self, now: &str, group: &str) -> Result<Undone, EditError> {
        let (before, written, there) =
            (self.entries_before(group)?, entries(&self.written, group)?, entries(now, group)?);
        let is_still_ours = |name: &String| match (there.get(name), written.get(name)) {
            (Some(entry), Some(written)) => entry == written || leads_to_same(entry, written),
            _ => false,
        };
        let taken_out: Vec<String> = self.ours(group)?.into_iter().filter(is_still_ours).collect();
        let is_missing = |name: &&String| !written.contains_key(*name) && !there.contains_key(*name);
        let put_back: Vec<String> = before.keys().filter(is_missing).cloned().collect();
        let mut wanted = there;
        for name in taken_out.iter().chain(&put_back) {
            match before.get(name) {
                Some(entry) => wanted.insert(name.clone(), entry.clone()),
                None => wanted.shift_remove(name),
            };
        }
        let text = match self.merged(now, group, &wanted)? {
            Some(text) => text,
            None => self.edited(now, group, taken_out.iter().chain(&put_back))?,
        };
        Ok(Undone { text, taken_out, put_back })
    }

    /// Keeps every line at its position, if that is possible and gives the expected result.
    fn merged(&self, now: &str, group: &str, wanted: &Map<String, Value>) -> Result<Option<String>, EditError> {
        let before = self.before.as_deref().unwrap_or_default();
        let Some(text) = merged(&self.written, before, now) else { return Ok(None) };
        let rest = |text: &str| {
            let mut whole = jsonc::read(text).ok()?;
            whole.as_object_mut()?.remove(group);
            Some(whole)
        };
        let is_right = rest(&text).is_some_and(|merged| Some(merged) == rest(now))
            && entries(&text, group).is_ok_and(|entries| entries == *wanted);
        Ok(is_right.then_some(text))
    }

    /// Removes or restores one member after another.
    fn edited<'n>(
        &self,
        now: &str,
        group: &str,
        mut names: impl Iterator<Item = &'n String>,
    ) -> Result<String, EditError> {
        let before = self.before.as_deref().unwrap_or_default();
        names.try_fold(now.to_owned(), |text, name| match edit::written(before, group, name)? {
            Some(written) => edit::set_written(&text, group, name, written),
            None => edit::take_out(&text, group, name),
        })
    }
}

/// Whether two entries have the same target, whatever else differs.
fn leads_to_same(entry: &Value, written: &Value) -> bool {
    let is_same_program = entry["command"].is_string() && entry["command"] == written["command"];
    is_ours(entry, url_of(written)) || (is_same_program && entry["args"] == written["args"])
}

/// The target of an entry, for comparisons.
pub(crate) fn url_of(entry: &Value) -> Option<&str> {
    entry["url"].as_str().map(|url| url.trim_end_matches("/mcp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const BEFORE: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"git\": { \"command\": \"git\" /* why */ }, // keep\n    \"b\": {\n      \"command\": \"b\"\n    }\n  },\n  \"theme\": \"dark\"\n}\n";

    fn made(before: Option<&str>, removed: &[&str]) -> Made {
        let entry = json!({"url": "http://127.0.0.1:9/mcp"});
        let text = edit::set(before.unwrap_or_default(), "mcpServers", "all", &entry).unwrap();
        let text = removed.iter().fold(text, |text, name| edit::take_out(&text, "mcpServers", name).unwrap());
        Made { before: before.map(str::to_owned), written: text }
    }

    fn undone(made: &Made, now: &str) -> Undone {
        made.undone(now, "mcpServers").unwrap()
    }

    #[test]
    fn an_unedited_file_is_restored_exactly() {
        for removed in [&[][..], &["git"], &["b"], &["git", "b"]] {
            let made = made(Some(BEFORE), removed);
            let undone = undone(&made, &made.written);
            assert_eq!(
                (undone.text.as_str(), undone.put_back),
                (BEFORE, removed.iter().map(|&n| n.to_owned()).collect())
            );
        }
    }

    #[test]
    fn what_others_have_changed_stays_and_everything_else_is_where_it_was() {
        let made = made(Some(BEFORE), &["git"]);
        let now = made.written.replace("dark", "light").replace("\"command\": \"b\"", "\"command\": \"c\"");
        let wanted = BEFORE.replace("dark", "light").replace("\"command\": \"b\"", "\"command\": \"c\"");
        assert_eq!(undone(&made, &now).text, wanted);
    }

    #[test]
    fn a_file_rewritten_by_the_client_gets_its_servers_back_verbatim() {
        let made = made(Some(BEFORE), &["git"]);
        let now = json!({"mcpServers": {"all": {"url": "http://localhost:9/mcp", "disabled": true}, "b": {"command": "b"},
            "new": {}}, "theme": "dark"});
        let undone = undone(&made, &format!("{now:#}\n"));
        assert!(undone.text.contains("\"git\": { \"command\": \"git\" /* why */ }"), "{}", undone.text);
        let names: Vec<String> = entries(&undone.text, "mcpServers").unwrap().keys().cloned().collect();
        assert_eq!(names, ["b", "new", "git"]);
    }

    #[test]
    fn entries_with_another_target_are_not_ours_and_new_ones_with_an_old_name_stay() {
        let made = made(Some(BEFORE), &["git"]);
        for other in [json!({"command": "another"}), json!({"url": "http://example.com/mcp"})] {
            let text = json!({"mcpServers": {"all": other, "git": {"command": "git2"}}}).to_string();
            let expected = Undone { text: text.clone(), taken_out: vec![], put_back: vec![] };
            assert_eq!(undone(&made, &text), expected);
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let made = made(Some(BEFORE), &["git"]);
        for now in ["{", "[]", "{\"mcpServers\": 1}"] {
            assert!(made.undone(now, "mcpServers").is_err(), "{now}");
        }
    }
}
