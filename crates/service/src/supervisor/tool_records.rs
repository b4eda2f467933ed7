//! Conversion between a server's offer and the registry's records.

use std::sync::Arc;

use bytes::Bytes;
use catalog::{Hints, Item, Kind, Offer};
use protocol::scan::{Span, member, members};
use protocol::{Lifecycle, text};
use registry::{ListedTool, RawJson, ToolRecord};
use serde_json::{Map, Value, json};

/// The tools of an offer, to be stored.
pub(crate) fn tools_of(offer: &Offer) -> Arc<[ListedTool]> {
    offer.items(Kind::Tool).iter().filter_map(listed).collect()
}

fn listed(item: &Item) -> Option<ListedTool> {
    let definition = &item.definition;
    let whole = Span { start: 0, end: definition.len() };
    let raw = |span: Span| RawJson::parse(std::str::from_utf8(span.of(definition)).ok()?).ok();
    let description = member(definition, whole, "description").and_then(|span| text::decode(span.of(definition)));
    Some(ListedTool {
        original_name: item.id.to_string(),
        description: description.map(|text| text.into_owned()),
        input_schema: member(definition, whole, "inputSchema").and_then(raw),
        definition: raw(whole)?,
    })
}

/// The offer of a server that is not running: its stored tools. `None` without any.
pub(crate) fn offer_of(tools: &[ToolRecord]) -> Option<Arc<Offer>> {
    // It may have been stored by an older version, which passed on more.
    let item = |tool: &ToolRecord| {
        Item::read(Kind::Tool, Bytes::copy_from_slice(tool.definition.get().as_bytes()))?.repaired(Kind::Tool).0
    };
    let items: Vec<Item> = tools.iter().filter_map(item).collect();
    if items.is_empty() {
        return None;
    }
    let mut offer = Offer::new(Lifecycle::Session);
    offer.capabilities = Bytes::from_static(br#"{"tools":{"listChanged":true}}"#);
    offer.set_items(Kind::Tool, items, Hints::NONE);
    Some(Arc::new(offer))
}

/// The members of an object. One that a tree cannot represent, such as a number that no double holds, becomes a text and
/// costs no other its place.
fn members_of(object: &[u8]) -> Map<String, Value> {
    let mut found = Map::new();
    members(object, Span { start: 0, end: object.len() }, |key, value| {
        let value = std::str::from_utf8(value.of(object)).map(RawJson::parse);
        if let (Some(key), Ok(Ok(value))) = (text::decode(key.of(object)), value) {
            found.insert(key.into_owned(), value.to_value());
        }
    });
    found
}

/// The server info, to be stored and shown.
pub(crate) fn server_info(offer: &Offer) -> Value {
    let mut info = members_of(&offer.info);
    info.insert("capabilities".to_owned(), Value::Object(members_of(&offer.capabilities)));
    if let Some(instructions) = &offer.instructions {
        info.insert("instructions".to_owned(), json!(&**instructions));
    }
    let notices: Vec<_> = Kind::ALL.into_iter().flat_map(|kind| offer.notices(kind)).collect();
    if !notices.is_empty() {
        info.insert("notices".to_owned(), json!(notices));
    }
    let lifecycle = match offer.lifecycle {
        _ if offer.modern.is_some() => "dual",
        Lifecycle::Session => "legacy",
        Lifecycle::SelfContained => "modern",
    };
    info.insert("era".to_owned(), json!(lifecycle));
    Value::Object(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_tree_holds_hides_nothing_else_that_a_server_says_of_itself() {
        let mut offer = Offer::new(Lifecycle::Session);
        offer.info = Bytes::from_static(br#"{"name":"s","version":"1","x":{"n":1e400},"y":"\ud800"}"#);
        offer.capabilities = Bytes::from_static(br#"{"tools":{},"experimental":{"n":1e400}}"#);
        let info = server_info(&offer);
        assert_eq!((&info["name"], &info["version"]), (&json!("s"), &json!("1")));
        assert_eq!((&info["x"], &info["y"]), (&json!(r#"{"n":1e400}"#), &json!(r#""\ud800""#)));
        assert_eq!(info["capabilities"], json!({ "tools": {}, "experimental": r#"{"n":1e400}"# }));
    }
}
