//! `subscriptions/listen`: a request that stays open and reports changes. Legacy clients get these notifications
//! without a subscription.

use bytes::Bytes;

use crate::bridge::change::{Change, is_object, whole};
use crate::bridge::meta::{self, SUBSCRIPTION_ID};
use crate::envelope::Params;
use crate::reply;
use crate::scan::{count_elements, elements, member};
use crate::text;

/// The request that opens a subscription.
pub const METHOD: &str = "subscriptions/listen";
/// The first message of every subscription.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

const TOOLS: &str = "toolsListChanged";
const PROMPTS: &str = "promptsListChanged";
const RESOURCES: &str = "resourcesListChanged";
const URIS: &str = "resourceSubscriptions";

/// Resources of one subscription: each takes many times the bytes of a short URI.
const MAX_URIS: usize = 100_000;

/// The changes that a client subscribes to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Of the list of tools.
    pub tools: bool,
    /// Of the list of prompts.
    pub prompts: bool,
    /// Of the list of resources.
    pub resources: bool,
    /// Of the contents of these resources.
    pub uris: Vec<String>,
}

/// The subscription in a listen request, or in an acknowledgement; both have the same form.
pub fn read(line: &[u8], params: &Params) -> Result<Filter, &'static str> {
    let notifications = params.span.and_then(|params| member(line, params, "notifications"));
    let notifications = notifications.ok_or("`notifications` is missing")?;
    if !is_object(line, notifications) {
        return Err("`notifications` must be an object");
    }
    let flag = |name| match member(line, notifications, name).map(|value| value.of(line)) {
        None | Some(b"false" | b"null") => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err("what to listen for must be true or false"),
    };
    let wrong_uris = "`resourceSubscriptions` must be an array of strings";
    let uris = match member(line, notifications, URIS) {
        None => Vec::new(),
        Some(uris) if uris.of(line) == b"null" => Vec::new(),
        Some(uris) => {
            if count_elements(line, uris).is_some_and(|count| count > MAX_URIS) {
                return Err("`resourceSubscriptions` must have at most 100,000 entries");
            }
            let uris = elements(line, uris).ok_or(wrong_uris)?;
            let decoded = uris.iter().map(|uri| text::decode(uri.of(line)).map(|uri| uri.into_owned()));
            decoded.collect::<Option<_>>().ok_or(wrong_uris)?
        }
    };
    Ok(Filter { tools: flag(TOOLS)?, prompts: flag(PROMPTS)?, resources: flag(RESOURCES)?, uris })
}

/// The parameters of a listen request, without the `_meta` that every modern request needs.
pub fn request(filter: &Filter) -> Vec<u8> {
    reply::object([("notifications", filter.to_json())])
}

impl Filter {
    /// Whether the subscription is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn to_json(&self) -> Vec<u8> {
        let flags = [(TOOLS, self.tools), (PROMPTS, self.prompts), (RESOURCES, self.resources)];
        let wanted = flags.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| (name, b"true".to_vec()));
        let uris: Vec<_> = self.uris.iter().map(|uri| reply::string(uri)).collect();
        let uris = (!uris.is_empty()).then(|| (URIS, [b"[".as_slice(), &uris.join(&b','), b"]"].concat()));
        reply::object(wanted.chain(uris))
    }
}

/// The acknowledgement of the subscription that the request `id` opened.
pub fn acknowledged(id: &[u8], honoured: &Filter) -> Vec<u8> {
    tagged(ACKNOWLEDGED, Some(&request(honoured)), id)
}

/// The response that ends the subscription normally.
pub fn ended(id: &[u8]) -> Vec<u8> {
    let meta = reply::object([(SUBSCRIPTION_ID, id.to_vec())]);
    reply::result(id, &reply::object([("resultType", reply::string("complete")), ("_meta", meta)]))
}

/// A notification on the subscription that the request `id` opened.
pub fn tagged(method: &str, params: Option<&[u8]>, id: &[u8]) -> Vec<u8> {
    let params = Bytes::copy_from_slice(params.unwrap_or(b"{}"));
    let mut change = Change::new(&params);
    let object = whole(&params);
    match member(&params, object, "_meta").filter(|meta| is_object(&params, *meta)) {
        Some(meta) => change.set_member(meta, SUBSCRIPTION_ID, id),
        None => change.set_member(object, "_meta", &reply::object([(SUBSCRIPTION_ID, id.to_vec())])),
    }
    reply::notification(method, Some(&change.apply()))
}

/// A server's notification, assigned to the subscription that the request `id` opened, or to none.
pub fn retag(line: &Bytes, params: &Params, id: Option<&[u8]>) -> Bytes {
    match id {
        Some(id) => meta::add(line, params, vec![(SUBSCRIPTION_ID, id.to_vec())]),
        None => meta::remove(line, params, &[SUBSCRIPTION_ID]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;

    fn scanned(params: &str) -> (Bytes, Envelope) {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"n","params":{params}}}"#));
        let envelope = Envelope::scan(&line).unwrap();
        (line, envelope)
    }

    fn filter(notifications: &str) -> Result<Filter, &'static str> {
        let (line, envelope) = scanned(&format!(r#"{{"notifications":{notifications}}}"#));
        read(&line, &envelope.params)
    }

    #[test]
    fn a_filter_is_read_as_it_is_written() {
        let all = Filter { tools: true, prompts: true, resources: true, uris: vec!["a:b".into(), "c\"d".into()] };
        let written = String::from_utf8(request(&all)).unwrap();
        assert_eq!(
            written,
            r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:b","c\"d"]}}"#
        );
        let (line, envelope) = scanned(&written);
        assert_eq!(read(&line, &envelope.params), Ok(all));
        assert_eq!(filter("{}"), Ok(Filter::default()));
        assert_eq!(request(&Filter::default()), br#"{"notifications":{}}"#);
        assert_eq!(
            filter(r#"{"promptsListChanged":true,"toolsListChanged":false,"resourceSubscriptions":[],"later":1}"#),
            Ok(Filter { prompts: true, ..Filter::default() })
        );
    }

    #[test]
    fn a_filter_of_the_wrong_shape_is_refused() {
        for notifications in [
            "[]",
            "null",
            r#"{"toolsListChanged":1}"#,
            r#"{"resourceSubscriptions":"a"}"#,
            r#"{"resourceSubscriptions":[1]}"#,
            r#"{"resourceSubscriptions":["\ud800"]}"#,
        ] {
            assert!(filter(notifications).is_err(), "{notifications}");
        }
        let many = |count: usize| filter(&format!(r#"{{"resourceSubscriptions":[{}""]}}"#, r#""","#.repeat(count - 1)));
        assert_eq!(many(MAX_URIS).unwrap().uris.len(), MAX_URIS);
        assert_eq!(many(MAX_URIS + 1), Err("`resourceSubscriptions` must have at most 100,000 entries"));
        let (line, envelope) = scanned("{}");
        assert_eq!(read(&line, &envelope.params), Err("`notifications` is missing"));
        assert_eq!(read(b"{}", &Params::default()), Err("`notifications` is missing"));
    }

    #[test]
    fn every_message_of_a_subscription_names_it() {
        let honoured = Filter { tools: true, ..Filter::default() };
        assert_eq!(
            String::from_utf8(acknowledged(b"\"x\"", &honoured)).unwrap(),
            concat!(
                r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":"#,
                r#"{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"x"}}}"#,
                "\n"
            )
        );
        assert_eq!(
            String::from_utf8(tagged("n", None, b"7")).unwrap(),
            "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":7}}}\n"
        );
        assert_eq!(
            String::from_utf8(tagged("n", Some(br#"{"uri":"a","_meta":{"x":1}}"#), b"7")).unwrap(),
            "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{\"uri\":\"a\",\"_meta\":{\"x\":1,\"io.modelcontextprotocol/subscriptionId\":7}}}\n"
        );
        assert_eq!(
            String::from_utf8(ended(b"7")).unwrap(),
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"resultType\":\"complete\",\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":7}}}\n"
        );
    }

    #[test]
    fn a_tag_is_added_replaced_and_removed() {
        let tag =
            |value: &str| format!(r#"{{"uri":"a","_meta":{{"io.modelcontextprotocol/subscriptionId":{value}}}}}"#);
        let (plain, envelope) = scanned(r#"{"uri":"a"}"#);
        let first = retag(&plain, &envelope.params, Some(b"1"));
        assert_eq!(first, scanned(&tag("1")).0);
        let second = retag(&first, &Envelope::scan(&first).unwrap().params, Some(b"\"two\""));
        assert_eq!(second, scanned(&tag("\"two\"")).0);
        assert_eq!(retag(&second, &Envelope::scan(&second).unwrap().params, None), plain);
        let bare = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"n"}"#);
        let tagged = retag(&bare, &Envelope::scan(&bare).unwrap().params, Some(b"1"));
        assert_eq!(
            tagged,
            r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#
        );
    }
}
