//! Validates a value, and reports all problems at once with their locations.

use serde_json::Value;
use serde_json::value::RawValue;
use service::Problem;

use super::{Kind, Member, Schema};

/// The location of a value in a request, such as `body`, `connection_config`, `command`.
pub(crate) type Location = Vec<String>;

impl Schema {
    /// Checks an object that was only split into members: members that may be anything are not parsed.
    pub(crate) fn check_members(
        &self,
        location: &[String],
        given: &[(String, Box<RawValue>)],
        problems: &mut Vec<Problem>,
    ) {
        let Kind::Object { members, either_of, is_open } = &self.kind else { return };
        let find = |name: &str| given.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value);
        for Member { name, schema, is_required } in members {
            match find(name) {
                None if *is_required => problems.push(missing(inside(location, name))),
                None => {}
                Some(value) => schema.check_raw(&inside(location, name), value, problems),
            }
        }
        if let [first, ..] = either_of[..]
            && !either_of.iter().any(|name| find(name).is_some())
        {
            problems.push(missing(inside(location, first)));
        }
        if !is_open {
            refuse_unknown(members, given.iter().map(|(name, _)| name.as_str()), location, problems);
        }
    }

    fn check_raw(&self, location: &[String], value: &RawValue, problems: &mut Vec<Problem>) {
        // Values that are passed on to a server are not parsed: they may contain numbers that we cannot represent.
        // Objects with described members are read by us, so they must be readable.
        if matches!(&self.kind, Kind::AnyObject { documented, .. } if documented.is_empty())
            && value.get().starts_with('{')
        {
            return;
        }
        match serde_json::from_str(value.get()) {
            Ok(value) => self.check(location, &value, problems),
            Err(error) => problems.push(problem(location.to_vec(), "json_invalid", error.to_string())),
        }
    }

    /// Adds the problems of `value` to `problems`.
    pub(crate) fn check(&self, location: &[String], value: &Value, problems: &mut Vec<Problem>) {
        if self.is_nullable && value.is_null() {
            return;
        }
        let mut say = |kind, msg: String| problems.push(problem(location.to_vec(), kind, msg));
        match (&self.kind, value) {
            (Kind::Anything | Kind::Named(_) | Kind::Either(_), _)
            | (Kind::Truth, Value::Bool(_))
            | (Kind::Number, Value::Number(_))
            | (Kind::AnyObject { .. }, Value::Object(_)) => {}
            (Kind::Text { pattern, longest, .. }, Value::String(text)) => {
                if let Some(longest) = longest.filter(|&longest| text.chars().count() > longest) {
                    say("string_too_long", format!("at most {longest} characters"));
                } else if let Some(pattern) = pattern.filter(|pattern| !(pattern.fits)(text)) {
                    say("string_pattern_mismatch", pattern.message.to_owned());
                }
            }
            (Kind::Enum(words), Value::String(text)) => {
                if !words.iter().any(|word| word.eq_ignore_ascii_case(text.trim())) {
                    say("enum", format!("`{text}` is not one of {}", words.join(", ")));
                }
            }
            (Kind::Integer { least, most }, Value::Number(number)) => {
                let is_within = number.as_i64().is_some_and(|number| (*least..=*most).contains(&number));
                if !is_within && (number.is_i64() || number.is_u64()) {
                    let is_low = number.as_i64().is_some_and(|number| number < *least);
                    let kind = if is_low { "greater_than_equal" } else { "less_than_equal" };
                    say(kind, between(*least, *most));
                } else if !is_within {
                    say("int_type", "expected a whole number".to_owned());
                }
            }
            (Kind::Share, Value::Number(number)) => {
                if !number.as_f64().is_some_and(|number| (0.0..=1.0).contains(&number)) {
                    let is_low = number.as_f64().is_some_and(|number| number < 0.0);
                    let kind = if is_low { "greater_than_equal" } else { "less_than_equal" };
                    say(kind, "expected 0 to 1".to_owned());
                }
            }
            (Kind::Object { members, is_open, .. }, Value::Object(given)) => {
                for Member { name, schema, is_required } in members {
                    match given.get(*name) {
                        None if *is_required => problems.push(missing(inside(location, name))),
                        None => {}
                        Some(value) => schema.check(&inside(location, name), value, problems),
                    }
                }
                if !is_open {
                    refuse_unknown(members, given.keys().map(String::as_str), location, problems);
                }
            }
            (Kind::List { of: schema, least }, Value::Array(items)) => {
                if items.len() < *least {
                    say("too_short", "the list must not be empty".to_owned());
                }
                for (number, item) in items.iter().enumerate() {
                    schema.check(&inside(location, &number.to_string()), item, problems);
                }
            }
            (kind, _) => {
                let (word, expected) = kind.expected();
                say(word, format!("expected {expected}"));
            }
        }
    }
}

/// Refuses unknown members.
fn refuse_unknown<'n>(
    members: &[Member],
    given: impl Iterator<Item = &'n str>,
    location: &[String],
    problems: &mut Vec<Problem>,
) {
    let is_known = |name: &str| members.iter().any(|member| member.name == name);
    for name in given.filter(|name| !is_known(name)) {
        problems.push(problem(inside(location, name), "extra_forbidden", "unknown member".to_owned()));
    }
}

impl Kind {
    /// The error kind and the expectation if the value has another type.
    fn expected(&self) -> (&'static str, &'static str) {
        match self {
            Self::Text { .. } | Self::Enum(_) => ("string_type", "a text"),
            Self::Integer { .. } => ("int_type", "a whole number"),
            Self::Number | Self::Share => ("float_type", "a number"),
            Self::Truth => ("bool_type", "true or false"),
            Self::AnyObject { .. } | Self::Object { .. } => ("dict_type", "an object"),
            Self::List { .. } => ("list_type", "a list"),
            Self::Anything | Self::Either(_) | Self::Named(_) => ("value_error", "something else"),
        }
    }
}

fn between(least: i64, most: i64) -> String {
    if most == i64::MAX { format!("expected {least} or more") } else { format!("expected {least} to {most}") }
}

pub(crate) fn problem(loc: Location, kind: &'static str, msg: String) -> Problem {
    Problem { loc, msg, kind }
}

fn missing(loc: Location) -> Problem {
    let msg = format!("`{}` is required", loc.last().map_or("", String::as_str));
    problem(loc, "missing", msg)
}

fn inside(location: &[String], name: &str) -> Location {
    [location, &[name.to_owned()]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(schema: &Schema, value: &Value) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        schema.check(&["body".to_owned()], value, &mut found);
        found.into_iter().map(|problem| (problem.loc.join("."), problem.kind)).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_reported_at_once_with_its_place() {
        let schema = Schema::object()
            .with("name", Schema::text().at_most(3))
            .with("kind", Schema::one_of(["a", "b"]))
            .with("count", Schema::integer(1, 5))
            .with_optional("list", Schema::list(Schema::truth()))
            .with_optional("nothing", Schema::text().or_null());
        let good = json!({"name": "abc", "kind": "A", "count": 5, "list": [true], "nothing": null, "other": 1});
        assert_eq!(problems(&schema, &good), []);
        let bad = json!({"name": "abcd", "kind": "c", "list": [true, 1], "nothing": 1});
        let expected = [
            ("body.name", "string_too_long"),
            ("body.kind", "enum"),
            ("body.count", "missing"),
            ("body.list.1", "bool_type"),
            ("body.nothing", "string_type"),
        ];
        assert_eq!(problems(&schema, &bad), expected.map(|(location, kind)| (location.to_owned(), kind)));
        assert_eq!(problems(&schema, &json!([])), [("body".to_owned(), "dict_type")]);
    }

    #[test]
    fn an_object_inside_another_has_no_unknown_members_either() {
        let server = Schema::object().with("name", Schema::text()).and_no_more();
        let schema = Schema::object().with("servers", Schema::list(server));
        let given = json!({"servers": [{"name": "a"}, {"name": "b", "nmae": "c"}], "open": 1});
        assert_eq!(problems(&schema, &given), [("body.servers.1.nmae".to_owned(), "extra_forbidden")]);
    }

    #[test]
    fn an_object_that_we_read_holds_no_number_that_we_cannot_hold() {
        let check = |schema: Schema| {
            let mut found = Vec::new();
            let raw = RawValue::from_string(r#"{"timeout":1e400}"#.to_owned()).unwrap();
            schema.check_raw(&["body".to_owned()], &raw, &mut found);
            found.into_iter().map(|problem| problem.kind).collect::<Vec<_>>()
        };
        assert_eq!(check(Schema::any_object().with_optional("timeout", Schema::text())), ["json_invalid"]);
        assert_eq!(check(Schema::any_object()), Vec::<&str>::new(), "it goes to a server as it came");
    }

    #[test]
    fn numbers_are_whole_and_within_their_limits() {
        let kind = |value| problems(&Schema::integer(0, 9), &value).first().map(|(_, kind)| *kind);
        assert_eq!(kind(json!(9)), None);
        assert_eq!(kind(json!(10)), Some("less_than_equal"));
        assert_eq!(kind(json!(-1)), Some("greater_than_equal"));
        assert_eq!(kind(json!(u64::MAX)), Some("less_than_equal"));
        assert_eq!(kind(json!(1.5)), Some("int_type"));
        assert_eq!(kind(json!("1")), Some("int_type"));
    }

    #[test]
    fn a_text_holds_no_nul_because_no_database_keeps_it() {
        assert_eq!(problems(&Schema::storable_text(), &json!("a\0")).len(), 1);
        assert_eq!(problems(&Schema::storable_text(), &json!("a")).len(), 0);
    }
}
