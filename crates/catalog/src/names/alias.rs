//! Safe aliases: names that every client and model API accepts.
//!
//! An alias depends only on the names of server and tool, never on the rest of the catalog: a second server must not
//! rename the tools of the first during a conversation.

/// The shortest limit among the clients we know (Claude Desktop, OpenAI, Codex, Copilot).
const MAX_LENGTH: usize = 64;

/// Separates server and tool. The server part of a plain alias must not contain it.
const NAME_SEPARATOR: &str = "__";

/// How much of the server's name stays readable next to a long tool name.
const SERVER_KEEPS: usize = 16;

/// `server__tool` if that is safe and unambiguous; otherwise a readable part of it and a hash.
///
/// Always matches `^[a-zA-Z0-9_-]{1,64}$`.
pub fn safe_alias(server: &str, tool: &str) -> String {
    if is_plain(server, tool) {
        return [server, NAME_SEPARATOR, tool].concat();
    }
    let hash = fnv1a(server, tool);
    // Folding both halves keeps the influence of all bits.
    let folded = (hash >> 32) ^ (hash & 0xffff_ffff);
    with_hash(server, tool, &format!("{folded:08x}"))
}

/// The fallback if [`safe_alias`] of two tools were the same: always hashed, with 64 bits.
pub fn safe_alias_long(server: &str, tool: &str) -> String {
    with_hash(server, tool, &format!("{:016x}", fnv1a(server, tool)))
}

/// Whether `server__tool` is a valid name that no other pair of names produces.
///
/// The first separator in it must be ours: the server's name must neither contain one nor, by ending with `_`, start
/// one.
fn is_plain(server: &str, tool: &str) -> bool {
    let safe = |name: &str| name.chars().all(is_safe);
    safe(server)
        && safe(tool)
        && !server.contains(NAME_SEPARATOR)
        && !server.ends_with('_')
        && server.len() + NAME_SEPARATOR.len() + tool.len() <= MAX_LENGTH
}

fn is_safe(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '-'
}

/// `server__tool_hash`, truncated to fit. The tool's name is more important, so the server's name is truncated first.
fn with_hash(server: &str, tool: &str, hash: &str) -> String {
    let room = MAX_LENGTH - "_".len() - hash.len();
    let tool = sanitised(tool);
    let server_room = (room - NAME_SEPARATOR.len()).saturating_sub(tool.len()).max(SERVER_KEEPS);
    // Sanitised text is ASCII: it can be truncated anywhere.
    let mut alias = sanitised(server);
    alias.truncate(server_room);
    alias.push_str(NAME_SEPARATOR);
    alias.push_str(&tool);
    alias.truncate(room);
    alias.push('_');
    alias.push_str(hash);
    alias
}

/// `name` with every unsafe character replaced by `_`. An alias starts with the server's name in this form, truncated
/// if it is long.
pub fn sanitised(name: &str) -> String {
    name.chars().map(|character| if is_safe(character) { character } else { '_' }).collect()
}

/// 64-bit FNV-1a. Implemented here because aliases must be the same in every build, forever: users allow tools by name.
fn fnv1a(server: &str, tool: &str) -> u64 {
    // The NUL marks the end of the server's name; the config refuses a server name that contains one.
    let bytes = server.bytes().chain([0]).chain(tool.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_accepted_everywhere(alias: &str) -> bool {
        (1..=64).contains(&alias.len()) && alias.chars().all(is_safe)
    }

    #[test]
    fn ordinary_names_are_simply_joined() {
        assert_eq!(safe_alias("git", "log"), "git__log");
        assert_eq!(safe_alias("my-server", "get_time"), "my-server__get_time");
        assert_eq!(safe_alias("a_b", "_c__d"), "a_b___c__d");
        assert_eq!(safe_alias("s", &"t".repeat(61)).len(), 64);
    }

    // These must never change: users have written such names into their permissions.
    #[test]
    fn hashed_aliases_are_the_same_for_ever() {
        assert_eq!(safe_alias("my server", "log"), "my_server__log_ece835e3");
        assert_eq!(safe_alias("git", "log.all"), "git__log_all_7419a637");
        assert_eq!(safe_alias_long("git", "log"), "git__log_3c96bbe6cff0236d");
    }

    #[test]
    fn the_hash_is_fnv1a() {
        // The published value for a single NUL, which is all that is hashed of two empty names.
        assert_eq!(fnv1a("", ""), 0xaf63_bd4c_8601_b7df);
    }

    #[test]
    fn a_server_name_that_would_blur_the_joint_gets_a_hash() {
        assert_ne!(safe_alias("a__b", "c"), safe_alias("a", "b__c"));
        assert_ne!(safe_alias("a_", "b"), safe_alias("a", "_b"));
        assert!(safe_alias("a_", "b").len() > "a___b".len());
    }

    #[test]
    fn names_that_differ_only_in_unsafe_characters_stay_apart() {
        let aliases = ["a.b", "a b", "a:b", "a/b", "aéb"].map(|tool| safe_alias("s", tool));
        for (at, alias) in aliases.iter().enumerate() {
            assert!(alias.starts_with("s__a_b_"), "{alias}");
            assert!(!aliases[at + 1..].contains(alias), "{alias}");
        }
    }

    #[test]
    fn a_long_tool_name_leaves_the_server_recognisable_and_the_other_way_round() {
        let alias = safe_alias("my-postgres-server-in-production", &"x".repeat(100));
        assert!(alias.starts_with("my-postgres-serv__xxxx"), "{alias}");
        assert_eq!(alias.len(), 64);

        let alias = safe_alias(&"s".repeat(100), "read_file");
        assert!(alias.contains("sss__read_file_"), "{alias}");
        assert_eq!(alias.len(), 64);
    }

    proptest! {
        #[test]
        fn every_alias_is_accepted_everywhere(server in "\\PC{1,90}", tool in "\\PC{0,90}") {
            for alias in [safe_alias(&server, &tool), safe_alias_long(&server, &tool)] {
                prop_assert!(is_accepted_everywhere(&alias), "{}", alias);
            }
        }

        // A tiny alphabet makes near misses likely.
        #[test]
        fn different_tools_have_different_aliases(
            one in ("[a_.]{1,5}", "[a_.]{0,5}"), other in ("[a_.]{1,5}", "[a_.]{0,5}"),
        ) {
            prop_assume!(one != other);
            prop_assert_ne!(safe_alias(&one.0, &one.1), safe_alias(&other.0, &other.1));
            prop_assert_ne!(safe_alias_long(&one.0, &one.1), safe_alias_long(&other.0, &other.1));
        }

        #[test]
        fn long_names_that_differ_at_the_end_have_different_aliases(
            head in "[a-z]{60,80}", one in "[a-z]{1,3}", other in "[a-z]{1,3}",
        ) {
            prop_assume!(one != other);
            prop_assert_ne!(safe_alias("s", &(head.clone() + &one)), safe_alias("s", &(head + &other)));
        }
    }
}
