//! Lists whose meaning costs more than their bytes.

/// URIs that two servers have in common. As each is reported, more than are remembered would prove less.
pub(crate) const SHARED_URIS: u32 = 9_000;

/// Annotated properties of the tool that is called with large arguments: as many as are allowed.
const HEADER_PARAMS: u32 = 100;

/// Tools with annotated properties below a property with a very long name, which is part of every path: too many of
/// them, or only too long ones.
pub(crate) fn tools_with_header_paths(version: u64) -> String {
    let count = if version.is_multiple_of(2) { 60 } else { 6_000 };
    let long = "n".repeat(700_000);
    format!(
        r#"{{"name":"t{version}","inputSchema":{{"type":"object","properties":{{"{long}":{{"type":"object","properties":{{{}}}}}}}}}}}"#,
        annotated_properties(count)
    )
}

pub(crate) fn tool_with_header_params() -> String {
    format!(
        r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{{}}}}}}}"#,
        annotated_properties(HEADER_PARAMS)
    )
}

fn annotated_properties(count: u32) -> String {
    let property = |index| format!(r#""p{index}":{{"type":"string","x-mcp-header":"P{index}"}}"#);
    (0..count).map(property).collect::<Vec<_>>().join(",")
}

/// Each tool is within the limits of one definition. Each property becomes another one for legacy clients, and each
/// number is replaced.
pub(crate) fn tools_with_edits() -> String {
    let properties = r#""":true,"#.repeat(15_000);
    let numbers = "1e400,".repeat(4_000);
    let tool = |index: u32| {
        format!(
            r#"{{"name":"t{index}","inputSchema":{{"type":"object","enum":[{numbers}1],"properties":{{{properties}"a":{{}}}}}}}}"#
        )
    };
    (0..60).map(tool).collect::<Vec<_>>().join(",")
}

/// A list of so many resources, complete.
pub(crate) fn resources(scheme: &str, count: u32) -> String {
    let resource = |index: u32| format!(r#"{{"uri":"{scheme}://{index}","name":"n"}}"#);
    format!(r#"{{"resources":[{}]}}"#, (0..count).map(resource).collect::<Vec<_>>().join(","))
}
