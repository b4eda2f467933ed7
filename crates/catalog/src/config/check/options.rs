//! Options of a server: whether it is enabled, its lifecycle, its timeouts, and who shares it.

use super::super::path::JsonPath;
use super::super::tree::{self, Member, Node};
use super::report::Wanted;
use super::{Check, Entry};
use crate::sharing::{Share, Sharing};
use protocol::Lifecycle;
use std::time::Duration;

/// Longer timeouts are cut to this: a larger number would overflow a clock.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

impl Check<'_> {
    /// Some clients write `"disabled": true`, others `"enabled": false`.
    pub(super) fn read_disabled(&mut self, path: &JsonPath, members: &[Member]) -> bool {
        let disabled = self.flag(path, members, "disabled");
        let enabled = self.flag(path, members, "enabled");
        if disabled.is_some() && disabled == enabled {
            let hint = Some("keep only one of the two");
            self.problem_with_hint(&path.member("enabled"), "contradicts \"disabled\"", hint);
        }
        disabled == Some(true) || enabled == Some(false)
    }

    pub(super) fn flag(&mut self, path: &JsonPath, members: &[Member], key: &str) -> Option<bool> {
        match tree::get(members, key)? {
            Node::Bool(flag) => Some(*flag),
            other => {
                self.wrong_kind(&path.member(key), other, Wanted::Flag);
                None
            }
        }
    }

    /// The configured lifecycle, if any.
    pub(super) fn lifecycle(&mut self, server: &Entry<'_>) -> Option<Lifecycle> {
        let word = self.word(server, "era")?;
        match word.value.trim().to_ascii_lowercase().as_str() {
            "legacy" => Some(Lifecycle::Session),
            "modern" => Some(Lifecycle::SelfContained),
            "auto" => None,
            _ => {
                let message = "must be \"auto\", \"legacy\" or \"modern\"";
                let hint = Some("2026-07-28 is \"modern\", every earlier revision \"legacy\"");
                self.problem_with_hint(&server.path.member("era"), message, hint);
                None
            }
        }
    }

    /// Which clients share the server, and how many instances it may have.
    pub(super) fn sharing(&mut self, server: &Entry<'_>) -> Sharing {
        let share = self.share(server).unwrap_or_default();
        Sharing { share, max_instances: self.max_instances(server).unwrap_or(Sharing::DEFAULT_MAX_INSTANCES) }
    }

    fn share(&mut self, server: &Entry<'_>) -> Option<Share> {
        let word = self.word(server, "share")?;
        let share = Share::named(word.value.trim().to_ascii_lowercase().as_str());
        if share.is_none() {
            let message = "must be \"all\", \"user\" or \"session\"";
            let hint = Some("\"user\" starts an instance for each identity, \"session\" one for each session");
            self.problem_with_hint(&server.path.member("share"), message, hint);
        }
        share
    }

    fn max_instances(&mut self, server: &Entry<'_>) -> Option<usize> {
        const MOST: usize = Sharing::MAX_MAX_INSTANCES;
        let path = server.path.member("max_instances");
        let number = match server.get("max_instances")? {
            Node::Number(number) => *number,
            other => {
                self.wrong_kind(&path, other, Wanted::Number);
                return None;
            }
        };
        if number.fract() != 0.0 || !(1.0..=MOST as f64).contains(&number) {
            self.problem(&path, format!("must be a whole number from 1 to {MOST}"));
            return None;
        }
        if server.get("share").is_none() {
            let message = "has no effect, because all clients share the server; set `share` to \"user\" or \"session\"";
            self.warning(&path, message.to_owned());
        }
        Some(number as usize)
    }

    /// A timeout in milliseconds, as Claude Code and Cursor write `timeout`.
    pub(super) fn milliseconds(&mut self, server: &Entry<'_>, key: &str) -> Option<Duration> {
        let path = server.path.member(key);
        let milliseconds = match server.get(key)? {
            Node::Number(number) => *number,
            other => {
                self.wrong_kind(&path, other, Wanted::Milliseconds);
                return None;
            }
        };
        if milliseconds <= 0.0 {
            let hint = Some("remove the key to use the default limit");
            self.problem_with_hint(&path, "must be more than 0 milliseconds", hint);
            return None;
        }
        let given = Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or(LONGEST_TIMEOUT);
        Some(given.clamp(Duration::from_millis(1), LONGEST_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accepted, Config, ServerSpec};

    fn parse(server: &str) -> Result<Config, String> {
        let text = format!(r#"{{"mcpServers": {{"s": {server}}}}}"#);
        let lookup = |name: &str| (name == "ERA").then(|| "Modern".to_owned());
        Config::parse(text.as_bytes(), Accepted::StdioOnly, lookup).map_err(|error| error.to_string())
    }

    fn server(members: &str) -> ServerSpec {
        let config = parse(&format!(r#"{{"command": "a", {members}}}"#)).unwrap();
        config.servers.into_iter().next().expect("the server is not disabled")
    }

    #[track_caller]
    fn is_refused(server: &str, path: &str, message: &str, hint: &str) {
        let error = parse(server).unwrap_err();
        let expected = ["1 problem", &format!("  $.mcpServers.s.{path}  {message}"), &format!("  hint: {hint}")];
        assert_eq!(error, expected.join("\n"), "{server}");
    }

    #[test]
    fn a_lifecycle_is_one_of_three_values_in_any_case() {
        for (members, lifecycle) in [
            (r#""era": "legacy""#, Some(Lifecycle::Session)),
            (r#""era": "MODERN""#, Some(Lifecycle::SelfContained)),
            (r#""era": "Auto""#, None),
            (r#""era": "${ERA}""#, Some(Lifecycle::SelfContained)),
            (r#""era": "${NOPE:-legacy}""#, Some(Lifecycle::Session)),
            (r#""x": 1"#, None),
        ] {
            assert_eq!(server(members).lifecycle, lifecycle, "{members}");
        }
        let hint = r#"2026-07-28 is "modern", every earlier revision "legacy""#;
        for lifecycle in ["2026-07-28", "", "old"] {
            let entry = format!(r#"{{"command": "a", "era": "{lifecycle}"}}"#);
            is_refused(&entry, "era", r#"must be "auto", "legacy" or "modern""#, hint);
        }
        is_refused(
            r#"{"command": "a", "era": 2026}"#,
            "era",
            "must be a string, not a number",
            "put the value in quotes",
        );
    }

    #[test]
    fn a_timeout_is_a_positive_number_of_milliseconds() {
        for (members, timeout) in [
            (r#""timeout": 30000"#, Some(Duration::from_secs(30))),
            (r#""timeout": 1.5e3"#, Some(Duration::from_millis(1500))),
            (r#""timeout": 0.001"#, Some(Duration::from_millis(1))),
            (r#""timeout": 1e300"#, Some(LONGEST_TIMEOUT)),
            (r#""x": 1"#, None),
        ] {
            assert_eq!(server(members).timeout, timeout, "{members}");
        }
        let usual = "remove the key to use the default limit";
        for number in ["0", "-5", "-0.0"] {
            let entry = format!(r#"{{"command": "a", "timeout": {number}}}"#);
            is_refused(&entry, "timeout", "must be more than 0 milliseconds", usual);
        }
        let entry = r#"{"command": "a", "timeout": "30000"}"#;
        is_refused(entry, "timeout", "must be a number of milliseconds, not a string", "remove the quotes");
    }

    #[test]
    fn a_start_timeout_is_read_like_a_timeout() {
        let spec = server(r#""startTimeout": 2500, "timeout": 30000"#);
        assert_eq!(
            (spec.start_timeout, spec.timeout),
            (Some(Duration::from_millis(2500)), Some(Duration::from_secs(30)))
        );
        assert_eq!(server(r#""timeout": 1"#).start_timeout, None);
        let usual = "remove the key to use the default limit";
        is_refused(r#"{"command": "a", "startTimeout": 0}"#, "startTimeout", "must be more than 0 milliseconds", usual);
        let entry = r#"{"command": "a", "startTimeout": "60000"}"#;
        is_refused(entry, "startTimeout", "must be a number of milliseconds, not a string", "remove the quotes");
    }

    #[test]
    fn a_server_is_shared_by_all_or_has_an_instance_for_each_user_or_session() {
        let sharing = |share, max_instances| Sharing { share, max_instances };
        for (members, expected) in [
            (r#""x": 1"#, sharing(Share::All, 100)),
            (r#""share": "all""#, sharing(Share::All, 100)),
            (r#""share": "User""#, sharing(Share::User, 100)),
            (r#""share": "session", "max_instances": 7"#, sharing(Share::Session, 7)),
            (r#""share": "${NOPE:-user}""#, sharing(Share::User, 100)),
        ] {
            assert_eq!(server(members).sharing, expected, "{members}");
        }
        let hint = r#""user" starts an instance for each identity, "session" one for each session"#;
        for share in ["", "users", "none"] {
            let entry = format!(r#"{{"command": "a", "share": "{share}"}}"#);
            is_refused(&entry, "share", r#"must be "all", "user" or "session""#, hint);
        }
        for number in ["0", "-1", "1.5", "10001", "1e300"] {
            let error =
                parse(&format!(r#"{{"command": "a", "share": "user", "max_instances": {number}}}"#)).unwrap_err();
            assert!(error.ends_with("$.mcpServers.s.max_instances  must be a whole number from 1 to 10000"), "{error}");
        }
        let entry = r#"{"command": "a", "share": "user", "max_instances": "5"}"#;
        is_refused(entry, "max_instances", "must be a number, not a string", "remove the quotes");
        let config = parse(r#"{"command": "a", "max_instances": 5}"#).unwrap();
        assert!(config.warnings[0].message.starts_with("has no effect"), "{:?}", config.warnings);
    }

    #[test]
    fn a_server_is_disabled_by_either_member() {
        for (members, is_off) in [
            (r#""enabled": false"#, true),
            (r#""enabled": true"#, false),
            (r#""disabled": true, "enabled": false"#, true),
            (r#""disabled": false, "enabled": true"#, false),
        ] {
            let config = parse(&format!(r#"{{"command": "a", {members}}}"#)).unwrap();
            assert_eq!((config.disabled.len() == 1, config.servers.is_empty()), (is_off, is_off), "{members}");
        }
        for members in [r#""disabled": true, "enabled": true"#, r#""enabled": false, "disabled": false"#] {
            let entry = format!(r#"{{"command": "a", {members}}}"#);
            is_refused(&entry, "enabled", r#"contradicts "disabled""#, "keep only one of the two");
        }
        let entry = r#"{"command": "a", "enabled": "no"}"#;
        is_refused(entry, "enabled", "must be true or false, not a string", "remove the quotes");
    }

    #[test]
    fn a_server_that_is_off_must_still_be_well_formed_but_may_lack_variables() {
        assert!(parse(r#"{"command": "a", "enabled": false, "era": "$NOPE", "type": "${NOPE}"}"#).is_ok());
        let error = parse(r#"{"command": "a", "enabled": false, "era": "old", "timeout": 0}"#).unwrap_err();
        assert!(error.starts_with("2 problems"), "{error}");
    }
}
