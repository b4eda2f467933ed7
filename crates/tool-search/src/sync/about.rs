//! What a server says of itself, in a bounded text.

use registry::ServerRecord;
use serde_json::Value;

/// The maximum length in bytes of the whole, and of each part: the purpose comes first.
const MAX_ABOUT_LEN: usize = 1000;
const MAX_ABOUT_PART_LEN: usize = 400;

/// The self-description of a server: its name, its title and description, and the start of its instructions. Each part
/// and the whole have a bound.
pub(super) fn about(record: &ServerRecord) -> String {
    said(&record.name, record.description.as_deref(), record.server_info.as_ref())
}

fn said(name: &str, description: Option<&str>, info: Option<&Value>) -> String {
    let said = |member: &str| info.and_then(|info| info[member].as_str());
    let own_name = said("name").filter(|own| *own != name);
    let parts = [own_name, said("title"), description, said("description"), said("instructions")];
    let parts = parts.into_iter().flatten().map(|part| &part[..part.floor_char_boundary(MAX_ABOUT_PART_LEN)]);
    let mut about = parts.collect::<Vec<_>>().join(". ");
    about.truncate(about.floor_char_boundary(MAX_ABOUT_LEN));
    about
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_says_of_itself_is_bounded() {
        let long = "ü".repeat(5000);
        let info = json!({"name": "own", "title": long, "description": long, "instructions": "Remember things"});
        let reported = said("mine", Some("what it is for"), Some(&info));
        assert!(reported.starts_with("own. üüü") && reported.len() <= MAX_ABOUT_LEN, "{}", reported.len());
        assert!(reported.contains("what it is for"), "a long title leaves room for the rest");
        let info = json!({"name": "mine", "instructions": "Remember things"});
        assert_eq!(said("mine", None, Some(&info)), "Remember things");
        assert_eq!(said("mine", None, None), "");
    }
}
