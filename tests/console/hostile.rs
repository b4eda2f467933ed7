//! Text of servers stays text, wherever it is shown.

use testkit::puppet::{Puppet, Spec};

use super::{Visitor, add_puppet};
use crate::rest::Rest;

/// Names, descriptions and results that try to be interpreted.
pub(crate) const EVIL: &str =
    "<img src=x onerror=alert(1)>\"'</textarea></script><script>alert(2)</script>\\u202e\\u0007";

pub(crate) fn hostile() -> Spec {
    let evil = EVIL.replace('"', "\\\"");
    let tool = format!(
        r#"{{"name":"{evil}","title":"{evil}","description":"{evil}","inputSchema":{{"type":"object","properties":{{"{evil}":{{"type":"string","title":"{evil}","description":"{evil}","enum":["{evil}"]}}}}}}}}"#
    );
    let result = format!(
        r#"{{"content":[{{"type":"text","text":"{evil}"}},{{"type":"resource_link","uri":"javascript:alert(3)","name":"{evil}"}}]}}"#
    );
    Spec::legacy().instructions(EVIL).raw_tool(&tool).answers("tools/call", &result)
}

#[test]
fn markup_in_names_descriptions_and_results_is_shown_and_not_obeyed() {
    let rest = Rest::start();
    let puppet = Puppet::over_http(hostile());
    add_puppet(&rest, "evil", &puppet);
    let visitor = Visitor::new(&rest);
    let tools = rest.get("/tools").json();
    let name = tools[0]["name"].as_str().expect("the tool is known").to_owned();
    let original = tools[0]["original_name"].as_str().expect("a name").to_owned();
    let ran = visitor.submit("/playground", &[("tool", &name), ("arguments", "{}")]);
    assert_eq!(ran.status, 200, "{ran:?}");
    assert!(ran.body.contains("on the server"), "it ran: {}", ran.body);
    let definition = format!("/tools/evil/{}", super::encoded(&original));
    let playground = format!("/playground?tool={}", super::encoded(&name));
    let pages = ["/", "/servers/evil", "/tools", "/tools?q=alert", &definition, &playground, "/executions"];
    for page in pages.iter().map(|path| visitor.page(path)).chain([ran.body]) {
        for sign in ["<img src=x", "<script>alert", "</textarea></script>", "href=\"javascript:", "\u{202e}", "\u{7}"] {
            assert!(!page.contains(sign), "{sign} in {page}");
        }
    }
    let switched = visitor.submit("/tools", &[("action", "off"), ("tool", &name), ("tool", "evil.gone")]);
    assert!(switched.body.contains("Disabled: 1 tool."), "its name is sent as it is: {switched:?}");
    assert!(visitor.page("/tools").contains("&lt;img src=x onerror=alert(1)&gt;"), "it is shown as it is");
}
