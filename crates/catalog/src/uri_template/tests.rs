//! Which URIs match a template, and which do not.

use super::*;
use proptest::prelude::*;

#[track_caller]
fn check(template: &str, matching: &[&str], others: &[&str]) {
    let parsed = UriTemplate::parse(template).unwrap_or_else(|| panic!("{template} is refused"));
    for uri in matching {
        assert!(parsed.matches(uri), "{template} should match {uri}");
    }
    for uri in others {
        assert!(!parsed.matches(uri), "{template} should not match {uri}");
    }
}

#[test]
fn text_without_variables_matches_itself() {
    check("test://a/b", &["test://a/b"], &["test://a/b/", "test://a/", "test://a/B", ""]);
    check("", &[""], &["a"]);
}

#[test]
fn a_simple_variable_is_within_one_segment() {
    let template = "test://template/{id}/data";
    check(
        template,
        &["test://template/123/data", "test://template/a%2Fb/data", "test://template/a:b@c/data"],
        &["test://template/1/2/data", "test://template/1/data/", "test://template/1?/data", "other://template/1/data"],
    );
    check("{scheme}:{rest}", &["a:b", "a:b:c"], &["ab", "a:b/c"]);
    check("x{a}{b}{c}", &["x", "xabc"], &["y", "xa/b"]);
    check("a{x,y}", &["a1,2", "a"], &["a1/2"]);
}

#[test]
fn reserved_and_fragment_values_may_be_anything() {
    check("file:///{+path}", &["file:///a/b?c#d", "file:///"], &["file://", "files:///a"]);
    check("doc{#part}", &["doc", "doc#", "doc#a/b,c"], &["docs", "doc?x"]);
}

#[test]
fn labels_and_segments_require_their_prefix() {
    check("x{.ext}", &["x", "x.tar", "x.tar.gz"], &["xtar", "x/y", "x.a/b"]);
    check("x{/a,b}", &["x", "x/1", "x/1/2", "x//"], &["x/1/2/3", "x1"]);
    check("x{/rest*}", &["x", "x/1", "x/1/2/3"], &["x1", "x/1?"]);
    check("x{/a}/end", &["x/1/end", "x/end", "x//end"], &["x/1/2/end"]);
}

#[test]
fn parameters_and_queries_take_the_names_they_know_in_any_order() {
    check("x{;p,q}", &["x", "x;p=1", "x;q=2;p=1", "x;p"], &["x;r=1", "x;p=1/2", "x?p=1"]);
    check("x{?q,r}", &["x", "x?q=1", "x?r=2&q=1", "x?q=a/b?c"], &["x?s=1", "x?q=1&s=2", "x&q=1", "x?q=1#f"]);
    check("x?fixed=1{&q}", &["x?fixed=1", "x?fixed=1&q=2"], &["x", "x?q=2", "x?fixed=1&z=2"]);
    check("x{?map*}", &["x?a=1&b=2", "x"], &["x?a=1#f"]);
    check("x{?a}{&b}", &["x?a=1&b=2", "x?a=1"], &["x?b=1"]);
}

#[test]
fn a_prefix_limits_the_characters_of_a_value() {
    check("x{v:3}", &["x", "xab", "xabc", "x%20%20%20", "x%C3%A9%C3%A9%C3%A9", "xééé"], &["xabcd", "x%20%20%20%20"]);
    check("x{+v:2}y", &["xy", "x//y"], &["x///y"]);
    check("{v:9999}", &["abc"], &["a/b"]);
}

#[test]
fn the_path_variables_of_fastmcp_span_segments() {
    check("files://{path*}", &["files://a/b/c.txt", "files://a"], &["files:/a", "files://a?b"]);
}

#[test]
fn encoding_matters_only_where_it_changes_the_meaning() {
    check("x/é/A{v}", &["x/%C3%A9/A1", "x/é/A1", "x/%c3%a9/%411"], &["x%2Fé/A", "x/e/A"]);
    check("x%2Fy", &["x%2Fy", "x%2fy"], &["x/y"]);
    check("100%{v}", &["100%", "100%z", "100%%"], &["100"]);
}

#[test]
fn a_malformed_or_monstrous_template_is_refused() {
    for template in ["{", "}", "{}", "{a", "a}", "{{a}}", "{a,}", "{+}", "{=a}", "{|a}", "{a:}", "{a:x}", "{a:-1}"] {
        assert_eq!(UriTemplate::parse(template), None, "{template}");
    }
    assert_eq!(UriTemplate::parse(&"a".repeat(3000)), None);
    assert_eq!(UriTemplate::parse(&"{a}".repeat(65)), None);
}

#[test]
fn a_hostile_template_costs_no_more_than_its_length_times_that_of_the_uri() {
    let uri = "a".repeat(LONGEST_URI - 1) + "!";
    for template in ["{a}".repeat(64), "{+a}a".repeat(64), "{a:32}".repeat(64), "{?a,aa,aaa}{&a*}".repeat(16)] {
        let parsed = UriTemplate::parse(&(template.clone() + "z")).unwrap();
        assert!(parsed.steps.len() < 16_000, "{template} has {} steps", parsed.steps.len());
        assert!(!parsed.matches(&uri));
    }
    assert!(!UriTemplate::parse("{+a}").unwrap().matches(&"a".repeat(LONGEST_URI + 1)));
}

/// The encoding of a value in the RFC: reserved characters are encoded, unless the operator keeps them.
fn encoded(value: &str, keeps_reserved: bool) -> String {
    let mut out = String::new();
    for byte in value.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let is_reserved = b":/?#[]@!$&'()*+,;=".contains(&byte);
        if is_plain || (keeps_reserved && is_reserved) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Parts of a template with their expansions.
fn piece() -> impl Strategy<Value = (String, String)> {
    let value = "[a-z0-9/?#&;=,. é%]{0,6}";
    let operator = prop::sample::select(vec!["", "+", "#", ".", "/", ";", "?", "&"]);
    let expression = (operator, "[a-z]{1,4}", prop::option::of(value)).prop_map(|(operator, name, value)| {
        let template = format!("{{{operator}{name}}}");
        let Some(value) = value else { return (template, String::new()) };
        let value = encoded(&value, matches!(operator, "+" | "#"));
        let expanded = match operator {
            "" | "+" => value,
            ";" if value.is_empty() => format!(";{name}"),
            ";" | "?" | "&" => format!("{operator}{name}={value}"),
            _ => format!("{operator}{value}"),
        };
        (template, expanded)
    });
    let literal = "[a-z:/.-]{1,5}".prop_map(|literal| (literal.clone(), literal));
    prop_oneof![literal, expression]
}

proptest! {
    #[test]
    fn whatever_a_template_expands_to_matches_it(pieces in prop::collection::vec(piece(), 0..8)) {
        let (templates, uris): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        let parsed = UriTemplate::parse(&templates.concat()).unwrap();
        prop_assert!(parsed.matches(&uris.concat()), "{} {}", templates.concat(), uris.concat());
    }

    #[test]
    fn another_beginning_or_ending_does_not_match(
        start in "[a-z]{1,6}://", variable in "[a-z]{1,5}", end in "/[a-z]{1,6}", value in "[a-z0-9]{0,8}",
    ) {
        let parsed = UriTemplate::parse(&format!("{start}{{{variable}}}{end}")).unwrap();
        prop_assert!(parsed.matches(&[&start, &*value, &end].concat()));
        prop_assert!(!parsed.matches(&["x", &start, &*value, &end].concat()));
        prop_assert!(!parsed.matches(&[&start, &*value, &end, "/x"].concat()));
        prop_assert!(!parsed.matches(&[&start, &*value, "/", &value, &end].concat()));
        prop_assert!(!parsed.matches(&[&*start, &value].concat()));
    }

    #[test]
    fn any_text_is_read_or_refused_but_never_panics(
        template in "(\\{|\\}|[+#./;?&,:*%=]|[0-9]|[a-z]|\\PC){0,40}", uri in "(%|[a-f0-9/?#]|\\PC){0,40}",
    ) {
        if let Some(parsed) = UriTemplate::parse(&template) {
            parsed.matches(&uri);
        }
    }
}
