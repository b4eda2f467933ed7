//! Which servers may have a tool with a given name.
//!
//! Names are never split to route a call: the aggregator looks the whole name up. But a name shows which servers cannot
//! have the tool, and those need not be started.

use aggregator::Separator;
use catalog::names::sanitised;

/// Separates server and tool in a safe alias.
const NAME_SEPARATOR: &str = "__";
/// A safe alias contains at least this much of its server's name.
const ALIAS_SHOWS: usize = 16;

/// Whether `name` may be the canonical name or the safe alias of a tool of `server`.
///
/// Several servers may match: `a.b.c` is `b.c` of `a` or `c` of `a.b`. Then only the aggregator can decide, with all of
/// them started.
pub(crate) fn fits(name: &str, server: &str, separator: &Separator) -> bool {
    let is_canonical = name.strip_prefix(server).is_some_and(|rest| rest.starts_with(separator.as_str()));
    is_canonical || fits_alias(name, &sanitised(server))
}

/// Whether `name` can be an alias under `server`, a name in safe characters. Long names are truncated.
fn fits_alias(name: &str, server: &str) -> bool {
    let joints = (0..name.len()).filter(|&at| name.as_bytes()[at..].starts_with(NAME_SEPARATOR.as_bytes()));
    let mut shown = joints.filter_map(|at| name.get(..at));
    shown.any(|shown| shown == server || (shown.len() >= ALIAS_SHOWS && server.starts_with(shown)))
}

/// Whether `name` looks like a tool of `server` with another separator: `git:log`, `git/log`.
pub(crate) fn nearly_fits(name: &str, server: &str) -> bool {
    let next = name.strip_prefix(server).and_then(|rest| rest.chars().next());
    next.is_some_and(|next| !next.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::names::{canonical, safe_alias, safe_alias_long};

    fn dot() -> Separator {
        ".".parse().unwrap()
    }

    #[test]
    fn every_name_of_a_tool_fits_its_server() {
        let long = "s".repeat(80);
        for server in ["git", "my server", "a__b", "a_", "a.b", "日本", "_", long.as_str()] {
            for tool in ["log", "", "a.b", "x__y", &"t".repeat(70)] {
                assert!(fits(&canonical(server, &dot(), tool), server, &dot()));
                assert!(fits(&safe_alias(server, tool), server, &dot()), "{server} {tool}");
                assert!(fits(&safe_alias_long(server, tool), server, &dot()), "{server} {tool}");
            }
        }
    }

    #[test]
    fn other_servers_do_not_fit() {
        for name in ["git.log", "git__log", "git"] {
            for server in ["gi", "gitlab", "g", "log", "github"] {
                assert!(!fits(name, server, &dot()), "{name} {server}");
            }
        }
        assert!(!fits("git:log", "git", &dot()));
        assert!(fits("a.b.c", "a", &dot()) && fits("a.b.c", "a.b", &dot()));
    }

    #[test]
    fn another_separator_nearly_fits() {
        assert!(nearly_fits("git:log", "git") && nearly_fits("git/log", "git") && nearly_fits("git_log", "git"));
        assert!(!nearly_fits("github:log", "git") && !nearly_fits("git", "git"));
    }
}
