//! `x-mcp-header`: arguments that calls over HTTP repeat in headers.
//!
//! A property of the input schema may have the annotation if it is a string, an integer or a boolean and is reached
//! through `properties` alone. Anywhere else the annotation is invalid, and so is the tool.

use std::collections::HashSet;
use std::fmt;

use crate::bridge::annotations::{self, ANNOTATION};
use crate::bridge::change::whole;
use crate::bridge::header_arguments;
use crate::bridge::headers;
use crate::envelope::Params;
use crate::scan::member;

pub use crate::bridge::annotations::{MAX_HEADER_PARAM_BYTES, MAX_HEADER_PARAMS};

/// An argument that is repeated in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    /// The name of the header after `Mcp-Param-`.
    pub header: String,
    /// The path to it from `arguments`.
    pub path: Vec<String>,
}

/// Why a tool has no header parameters though it has annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidParams {
    /// An annotation breaks a rule of the protocol: a sentence about it.
    Invalid(String),
    /// The annotations exceed a limit: what the schema has.
    TooMuch(String),
}

impl fmt::Display for InvalidParams {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => out.write_str(why),
            Self::TooMuch(excess) => write!(out, "`inputSchema` {excess}"),
        }
    }
}

impl std::error::Error for InvalidParams {}

/// The arguments that calls of this tool repeat in headers; the error describes an invalid annotation.
pub fn of_tool(definition: &[u8]) -> Result<Vec<HeaderParam>, InvalidParams> {
    let has = |text: &[u8]| memchr::memmem::find(definition, text).is_some();
    // Most tools have no annotation, and every spelling of one contains this text or such an escape.
    if !has(ANNOTATION.as_bytes()) && !has(b"\\u") {
        return Ok(Vec::new());
    }
    let Some(schema) = member(definition, whole(definition), "inputSchema") else { return Ok(Vec::new()) };
    let found = annotations::of_schema(definition, schema)?;
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for param in &found {
        let header = || annotations::shortened(param.header.chars());
        if !names.insert(param.header.to_ascii_lowercase()) {
            return Err(InvalidParams::Invalid(format!("two properties have the {ANNOTATION} `{}`", header())));
        }
        if !paths.insert(&param.path) {
            let why = format!("a property with the {ANNOTATION} `{}` is defined twice", header());
            return Err(InvalidParams::Invalid(why));
        }
    }
    Ok(found)
}

/// The headers of a call: full names, and encoded values of the arguments that are present.
pub fn values(line: &[u8], params: &Params, of: &[HeaderParam]) -> Vec<(String, String)> {
    let arguments = header_arguments::find(line, params, of);
    let with_value = of.iter().zip(arguments).filter_map(|(param, argument)| Some((param, argument?)));
    with_value.map(|(param, argument)| (param.name(), headers::encode(&argument.text))).collect()
}

/// Checks that the headers of a call match its arguments; `header` returns the value of a header by its full name. The
/// error is a sentence.
pub fn check<'h>(
    line: &[u8],
    params: &Params,
    of: &[HeaderParam],
    header: impl Fn(&str) -> Option<&'h str>,
) -> Result<(), String> {
    for (param, argument) in of.iter().zip(header_arguments::find(line, params, of)) {
        let name = param.name();
        match (header(&name), argument) {
            (None, None) => {}
            (Some(_), None) => return Err(format!("header `{name}` repeats an argument that is not there")),
            (None, Some(_)) => return Err(format!("header `{name}` is missing")),
            (Some(header), Some(argument)) => {
                let Some(said) = headers::decode(header) else {
                    return Err(format!("header `{name}` is not valid Base64"));
                };
                if !argument.is(&said) {
                    return Err(format!("header `{name}` is not what the body says"));
                }
            }
        }
    }
    Ok(())
}

impl HeaderParam {
    /// The full name of the header.
    pub fn name(&self) -> String {
        format!("{}{}", headers::PARAM_PREFIX, self.header)
    }

    /// The memory it takes, in bytes.
    pub fn size(&self) -> usize {
        let path: usize = self.path.iter().map(|name| name.len() + size_of::<String>()).sum();
        size_of::<Self>() + self.header.len() + path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Envelope;

    fn tool(schema: &str) -> Result<Vec<HeaderParam>, InvalidParams> {
        of_tool(format!(r#"{{"name":"t","inputSchema":{schema}}}"#).as_bytes())
    }

    fn properties(properties: &str) -> Result<Vec<HeaderParam>, InvalidParams> {
        tool(&format!(r#"{{"type":"object","properties":{properties}}}"#))
    }

    fn param(header: &str, path: &[&str]) -> HeaderParam {
        HeaderParam { header: header.to_owned(), path: path.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn annotated_properties_are_found_at_any_depth() {
        let found = properties(
            r#"{"a":{"type":"string","x-mcp-header":"A"},"p":true,"o":{"type":"object","properties":{"i":{"x-mcp-header":"In","type":"integer"}}},"b":{"type":"boolean","\u0078-mcp-header":"B"},"plain":{"type":"string"}}"#,
        );
        assert_eq!(found.unwrap(), [param("A", &["a"]), param("In", &["o", "i"]), param("B", &["b"])]);
    }

    #[test]
    fn tools_without_annotations_have_no_headers() {
        assert_eq!(of_tool(b"{}"), Ok(vec![]));
        assert_eq!(of_tool(b"7"), Ok(vec![]));
        assert_eq!(tool("true"), Ok(vec![]));
        assert_eq!(tool("[{\"x-mcp-header\":1}]"), Ok(vec![]));
        assert_eq!(properties(r#"{"x-mcp-header":{"type":"string"}}"#), Ok(vec![]), "a property of that name");
        assert_eq!(
            properties(
                r#"{"a":{"default":{"x-mcp-header":"A"},"enum":[{"x-mcp-header":1}],"examples":[{"x-mcp-header":1}]}}"#
            ),
            Ok(vec![]),
            "data, not schemas"
        );
        assert_eq!(tool(r#"{"description":"\n"}"#), Ok(vec![]));
    }

    #[test]
    fn an_annotation_that_breaks_a_rule_is_refused() {
        for header in [r#""""#, r#""a b""#, r#""a:b""#, r#""é""#, r#""a\nb""#, "7", "null", "{}", "[]"] {
            let found = properties(&format!(r#"{{"a":{{"type":"string","x-mcp-header":{header}}}}}"#));
            assert!(found.is_err(), "{header}");
        }
        for kind in [r#""number""#, r#""object""#, r#""array""#, r#""null""#, r#"["string","null"]"#, "7"] {
            let found = properties(&format!(r#"{{"a":{{"type":{kind},"x-mcp-header":"A"}}}}"#));
            assert!(found.is_err(), "{kind}");
        }
        assert!(properties(r#"{"a":{"x-mcp-header":"A"}}"#).is_err(), "no type at all");
    }

    #[test]
    fn an_annotation_is_for_properties_that_are_reached_by_name() {
        let annotated = r#"{"type":"string","x-mcp-header":"A"}"#;
        for schema in [
            annotated.to_owned(),
            format!(r#"{{"items":{annotated}}}"#),
            format!(r#"{{"anyOf":[{{"properties":{{"a":{annotated}}}}}]}}"#),
            format!(r#"{{"$defs":{{"a":{annotated}}}}}"#),
            format!(r#"{{"patternProperties":{{"a":{annotated}}}}}"#),
            format!(r#"{{"if":{{"properties":{{"a":{annotated}}}}}}}"#),
            format!(r#"{{"properties":{{"a":{{"items":{{"properties":{{"b":{annotated}}}}}}}}}}}"#),
        ] {
            assert!(tool(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn two_properties_never_share_a_header() {
        let two = |second: &str| {
            properties(&format!(
                r#"{{"a":{{"type":"string","x-mcp-header":"Region"}},"b":{{"type":"string","x-mcp-header":"{second}"}}}}"#
            ))
        };
        assert!(two("Region").is_err());
        assert!(two("rEGION").is_err());
        assert!(two("Regio").is_ok());
    }

    #[test]
    fn a_schema_of_any_depth_is_walked_in_one_go() {
        let annotated = |depth: usize| {
            r#"{"properties":{"a":"#.repeat(depth) + r#"{"x-mcp-header":"A","type":"string"}"# + &"}}".repeat(depth)
        };
        assert_eq!(tool(&annotated(1_000)).unwrap()[0].path.len(), 1_000);
        let depth = 100_000;
        assert!(matches!(tool(&annotated(depth)), Err(InvalidParams::TooMuch(_))));
        let elsewhere = r#"{"items":["#.repeat(depth) + r#"{"x-mcp-header":"A"}"# + &"]}".repeat(depth);
        assert!(tool(&elsewhere).is_err());
    }

    #[test]
    fn annotations_are_bounded_by_their_number_and_by_the_size_of_their_paths() {
        let leaves = |count: usize| {
            let leaf = |index: usize| format!(r#""l{index}":{{"type":"string","x-mcp-header":"H{index}"}}"#);
            (0..count).map(leaf).collect::<Vec<_>>().join(",")
        };
        let below = |name: &str, count| properties(&format!(r#"{{"{name}":{{"properties":{{{}}}}}}}"#, leaves(count)));
        assert_eq!(below("o", MAX_HEADER_PARAMS).unwrap().len(), MAX_HEADER_PARAMS);
        assert!(matches!(below("o", MAX_HEADER_PARAMS + 1), Err(InvalidParams::TooMuch(_))));
        // Every path repeats the name of the outer property.
        let name = "n".repeat(MAX_HEADER_PARAM_BYTES / 10);
        assert_eq!(below(&name, 9).unwrap().len(), 9);
        let refused = below(&name, 11).unwrap_err();
        assert!(matches!(refused, InvalidParams::TooMuch(_)));
        assert!(refused.to_string().starts_with("`inputSchema` has x-mcp-header annotations whose paths"), "{refused}");
        let kept: usize = below(&name, 9).unwrap().iter().map(HeaderParam::size).sum();
        assert!(kept < 2 * MAX_HEADER_PARAM_BYTES, "{kept} bytes");
        let wrong = properties(&format!(r#"{{"{name}":{{"type":"number","x-mcp-header":"A"}}}}"#)).unwrap_err();
        assert!(wrong.to_string().len() < 400, "the error does not repeat the name");
    }

    #[test]
    fn a_property_that_is_defined_twice_has_no_header() {
        let twice = r#"{"a":{"type":"string","x-mcp-header":"A"},"a":{"type":"string","x-mcp-header":"B"}}"#;
        assert!(matches!(properties(twice), Err(InvalidParams::Invalid(_))));
    }

    fn call(arguments: &str) -> (String, Params) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
        );
        let params = Envelope::scan(line.as_bytes()).unwrap().params;
        (line, params)
    }

    #[test]
    fn arguments_become_headers() {
        let of = [param("S", &["s"]), param("I", &["o", "i"]), param("B", &["b"])];
        let headers = |arguments: &str| {
            let (line, params) = call(arguments);
            let values = values(line.as_bytes(), &params, &of);
            values.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        assert_eq!(
            headers(r#"{"s":"é\n","o":{"i":42},"b":false,"other":1}"#),
            ["Mcp-Param-S: =?base64?w6kK?=", "Mcp-Param-I: 42", "Mcp-Param-B: false"]
        );
        assert_eq!(headers(r#"{"s":"","o":{"i":-1.5e1}}"#), ["Mcp-Param-S: ", "Mcp-Param-I: -15"]);
        assert_eq!(headers(r#"{"o":{"i":9007199254740993}}"#), ["Mcp-Param-I: 9007199254740993"]);
        assert_eq!(headers(r#"{"o":{"i":1e400}}"#), ["Mcp-Param-I: 1e400"]);
        let none: [&str; 0] = [];
        assert_eq!(headers(r#"{"s":null,"o":[1],"b":{},"i":3}"#), none);
        assert_eq!(headers("null"), none);
        assert_eq!(values(b"{}", &Params::default(), &of), []);
    }

    #[test]
    fn headers_must_match_the_arguments() {
        let of = [param("S", &["s"]), param("I", &["i"])];
        let checked = |arguments: &str, headers: &[(&str, &'static str)]| {
            let (line, params) = call(arguments);
            let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            check(line.as_bytes(), &params, &of, header)
        };
        let (s, i) = ("Mcp-Param-S", "Mcp-Param-I");
        assert_eq!(checked(r#"{"s":"Hello","i":42}"#, &[(s, "=?base64?SGVsbG8=?="), (i, "42.0")]), Ok(()));
        assert_eq!(checked(r#"{"s":"=?base64?SGVsbG8=","i":4.2e1}"#, &[(s, "=?base64?SGVsbG8="), (i, "42")]), Ok(()));
        assert_eq!(checked(r#"{"s":null}"#, &[]), Ok(()));
        assert!(checked(r#"{"s":"Hello"}"#, &[]).is_err());
        assert!(checked("{}", &[(s, "Hello")]).is_err());
        assert!(checked(r#"{"s":"Hello"}"#, &[(s, "=?base64?SGVsbG8?=")]).is_err());
        assert!(checked(r#"{"s":"Hello"}"#, &[(s, "hello")]).is_err());
        assert!(checked(r#"{"i":42}"#, &[(i, "43")]).is_err());
        assert!(checked(r#"{"s":"42"}"#, &[(s, "42.0")]).is_err(), "a text has one spelling");
    }
}
