//! Strict clients reject a whole list for one invalid entry. Through us they get everything that is usable.

use serde_json::{Value, json};
use testkit::{Puppet, Spec};

use super::clients::{Client, Mode, Plan};
use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::steps::{list, other_lists};
use crate::definitions::{nested, referring, repetitive, with_input, with_output};
use crate::relay::serving;

/// Each of these tools has one problem.
const TOOLS: [&str; 26] = [
    r#"{"name":"a"}"#,
    r#"{"name":"b","inputSchema":null}"#,
    r#"{"name":"c","inputSchema":{}}"#,
    r#"{"name":"e","inputSchema":{"type":"object"},"annotations":"x"}"#,
    r#"{"name":"f","inputSchema":{"type":"object"},"title":5}"#,
    r#"{"name":"g","inputSchema":{"type":"object"},"description":7}"#,
    r#"{"name":"h","inputSchema":{"type":"object"},"outputSchema":{"type":"string"}}"#,
    r#"{"name":"i","inputSchema":{"type":"object"},"outputSchema":5}"#,
    r#"{"name":"j","inputSchema":{"type":"object","required":"x"}}"#,
    r#"{"name":"k","inputSchema":{"type":"object","properties":[]}}"#,
    r#"{"name":"l","inputSchema":{"type":"object"},"icons":"x"}"#,
    r#"{"name":"m","inputSchema":{"type":"object"},"_meta":5}"#,
    r#"{"name":"n","inputSchema":{"type":"object"},"execution":5}"#,
    r#"{"name":"o","inputSchema":{"type":"object"},"description":null}"#,
    r#"{"name":"p","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}"#,
    r#"{"name":"q","inputSchema":{"type":"object","properties":null}}"#,
    r#"{"name":"r","inputSchema":{"type":"object","required":[1]}}"#,
    r#"{"name":"s","inputSchema":{"type":"object","properties":{"a":5,"b":true}}}"#,
    r#"{"name":"t","inputSchema":{"type":["object","null"]}}"#,
    r##"{"name":"u","inputSchema":{"type":"object"},"outputSchema":{"type":"object","$ref":"#/nowhere"}}"##,
    r#"{"name":"v","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"x":{"type":"strin"}}}}"#,
    r#"{"name":"w","inputSchema":{"type":"object"},"icons":[{"src":5},{"src":"x","sizes":"48x48","theme":"blue"}]}"#,
    r#"{"name":"x","inputSchema":{"type":"object"},"execution":{"taskSupport":"maybe"}}"#,
    r#"{"name":"y","inputSchema":{"type":"object"},"description":"\ud800"}"#,
    r#"{"name":"z","inputSchema":{"type":"object","$schema":5},"outputSchema":{"type":"object","$schema":5}}"#,
    r#"{"name":"d","inputSchema":{"type":"array"}}"#,
];

/// All but the last are usable.
const USABLE_TOOLS: usize = TOOLS.len() - 1;

fn liar() -> Puppet {
    let spec = TOOLS.iter().fold(Spec::legacy(), |spec, tool| spec.raw_tool(tool));
    let prompts = [
        r#"{"name":"p1","arguments":"x"}"#,
        r#"{"name":"p2","arguments":[{"noname":1},{"name":"b","required":"yes"}]}"#,
        r#"{"name":"p3","description":5}"#,
    ];
    let resources = [
        r#"{"uri":"x://noname"}"#,
        r#"{"uri":"x://a","name":"a","mimeType":5,"annotations":{"lastModified":"yesterday","priority":7,"audience":"me"}}"#,
        r#"{"uri":"x://b","name":"b","size":"big"}"#,
        r#"{"uri":"not a uri","name":"n"}"#,
    ];
    let spec = prompts.iter().fold(spec, |spec, prompt| spec.raw_prompt(prompt));
    let spec = resources.iter().fold(spec, |spec, resource| spec.raw_resource(resource));
    Puppet::new(spec.raw_template(r#"{"uriTemplate":"x://{a}"}"#).raw_template(r#"{"name":"n","uriTemplate":5}"#))
}

#[test]
fn one_server_that_lists_nonsense_takes_no_list_from_any_client() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let (liar, honest) =
        (liar(), Puppet::new(Spec::legacy().tool("t").prompt("p").resource("h://1").template("h://{x}")));
    let serve = serving(&[("liar", &liar), ("honest", &honest)]);
    let plan = |mode| Plan {
        server: json!({"type": "http", "url": format!("http://{}/mcp", serve.address())}),
        mode,
        offers: &[],
        steps: [list(["liar", "honest"])].into_iter().chain(other_lists()).collect(),
    };
    for (client, modes) in [
        (Client::Python, [Mode::Legacy, Mode::Modern].as_slice()),
        (Client::TypeScriptV1, &[Mode::Legacy]),
        (Client::TypeScriptV2, &[Mode::Legacy, Mode::Modern]),
    ] {
        let plans: Vec<_> = modes.iter().map(|mode| plan(*mode)).collect();
        for session in client.run(&parts, &sandbox, &plans) {
            let counts: Vec<_> = session.answers.iter().map(|answer| answer.as_array().map(Vec::len)).collect();
            let expected = [USABLE_TOOLS + 1, 4, 2, 4].map(Some);
            assert_eq!(counts, expected, "{client:?}: {}", Value::from(session.answers));
        }
    }
}

/// A schema in which each of so many objects refers to the next.
fn chain(length: usize) -> String {
    let link =
        |n: usize| format!(r##""d{n}":{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d{}"}}}}}}"##, n + 1);
    let links: Vec<_> = (0..length).map(link).collect();
    format!(r##"{{"type":"object","$ref":"#/$defs/d0","$defs":{{{},"d{length}":{{}}}}}}"##, links.join(","))
}

#[test]
fn definitions_beyond_the_limits_take_no_list_from_any_client() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let alternatives = format!(r#"{{"type":"object","anyOf":[{}]}}"#, vec![r#"{"required":["a"]}"#; 5000].join(","));
    let mut tools: Vec<String> = Vec::new();
    for objects in [27, 70, 110, 1000, 100_000] {
        tools.push(with_input(&format!("in{objects}"), &nested(objects)));
        tools.push(with_output(&format!("out{objects}"), &nested(objects)));
    }
    tools.extend([
        with_output("referring", &referring(20_000)),
        with_output("repetitive", &repetitive(40_000)),
        with_output("most", &referring(2000)),
        with_output("chain", &chain(1000)),
        with_output("alternatives", &alternatives),
    ]);
    let hostile = Puppet::new(tools.iter().fold(Spec::legacy(), |spec, tool| spec.raw_tool(tool)));
    let honest = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("hostile", &hostile), ("honest", &honest)]);
    let plan = |mode| Plan {
        server: json!({"type": "http", "url": format!("http://{}/mcp", serve.address())}),
        mode,
        offers: &[],
        steps: vec![list(["hostile", "honest"])],
    };
    for (client, modes) in [
        (Client::Python, [Mode::Legacy, Mode::Modern].as_slice()),
        (Client::TypeScriptV1, &[Mode::Legacy]),
        (Client::TypeScriptV2, &[Mode::Legacy, Mode::Modern]),
    ] {
        let plans: Vec<_> = modes.iter().map(|mode| plan(*mode)).collect();
        for session in client.run(&parts, &sandbox, &plans) {
            let count = session.answers[0].as_array().map(Vec::len);
            assert_eq!(count, Some(tools.len() + 1), "{client:?}: {}", session.answers[0]);
        }
    }
}
