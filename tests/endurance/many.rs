//! Many servers with many tools. `bench --only registry` measures the speed.

use serde_json::json;
use testkit::ClientSession as _;

use crate::rest::{Rest, expect, names};

const SERVERS: usize = 12;
/// All of them fit on one page.
const TOOLS: usize = 80;

#[test]
fn many_servers_with_many_tools_are_registered_listed_called_and_there_again() {
    let mut rest = Rest::start();
    let count = TOOLS.to_string();
    for number in 0..SERVERS {
        rest.register(&format!("s{number}"), &["--only-generated", "--tools", &count]);
    }
    for restarts in 0..2 {
        let state = expect(200, &rest.get("/state"));
        assert_eq!((&state["connected_servers"], &state["total_tools"]), (&json!(SERVERS), &json!(SERVERS * TOOLS)));
        assert_eq!(expect(200, &rest.get("/servers?limit=1000")).as_array().unwrap().len(), SERVERS);
        let tools = expect(200, &rest.get("/tools"));
        let mut found = names(&tools);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), SERVERS * TOOLS);
        let listed = rest.serve.session("/mcp").ask("tools/list", json!({}));
        assert_eq!(names(&listed["result"]["tools"]).len(), SERVERS * TOOLS);
        for number in 0..SERVERS {
            let name = format!("s{number}.tool_{}", TOOLS - 1 - number);
            let result = expect(200, &rest.call(&name, &json!({"text": name})));
            assert_eq!(result["content"][0]["text"], name);
        }
        if restarts == 0 {
            rest = rest.restarted(false);
            for number in 0..SERVERS {
                rest.wait_for_status(&format!("s{number}"), "connected");
            }
        }
    }
}
