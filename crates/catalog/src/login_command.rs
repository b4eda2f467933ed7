//! The command that signs in to a server, as errors, statuses and hints show it.

/// The command to paste for a server of this name.
pub fn login_command(server: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    if !server.is_empty() && !server.starts_with('-') && server.chars().all(is_plain) {
        return format!("mcp-aggregator login {server}");
    }
    format!("mcp-aggregator login '{}'", server.replace('\'', r"'\''"))
}

/// Why a server cannot be called that waits for a sign-in, and what to do.
pub fn sign_in_sentence(server: &str, why: Option<&str>) -> String {
    let command = login_command(server);
    // The subject of this sentence is the server, too.
    let why = why.map(|why| why.strip_prefix("it requires a sign-in: ").unwrap_or(why));
    match why {
        Some(why) if why.contains(&command) => format!("Server `{server}` requires a sign-in: {why}"),
        Some(why) if !why.is_empty() => format!("Server `{server}` requires a sign-in: {why}; run `{command}`"),
        _ => format!("Server `{server}` requires a sign-in; run `{command}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_shell_would_split_is_quoted() {
        assert_eq!(login_command("notion"), "mcp-aggregator login notion");
        assert_eq!(login_command("my notes"), "mcp-aggregator login 'my notes'");
        let twice = sign_in_sentence("a", Some("it requires a sign-in: it expired; run `mcp-aggregator login a`"));
        assert_eq!(twice, "Server `a` requires a sign-in: it expired; run `mcp-aggregator login a`");
        assert_eq!(login_command("it's"), r"mcp-aggregator login 'it'\''s'");
    }
}
