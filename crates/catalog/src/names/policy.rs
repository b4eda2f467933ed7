//! Which of its two names a tool is listed under, by client.

use std::fmt;
use std::str::FromStr;

/// The value of `--names`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum NamePolicy {
    /// Safe names, but canonical ones for clients known to accept them.
    #[default]
    Auto,
    /// Canonical names, but safe ones for clients known to need them: what `mcp-simple-aggregator` means by `auto`.
    AutoCanonical,
    /// Canonical names for everyone.
    Canonical,
    /// Safe names for everyone.
    Safe,
}

/// How the tools of one client are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameStyle {
    /// `server` + separator + `tool`.
    Canonical,
    /// The alias in `[a-zA-Z0-9_-]{1,64}`.
    Safe,
}

impl NamePolicy {
    /// The style for a client with this `clientInfo.name`.
    pub fn style_for(self, client_name: &str) -> NameStyle {
        let is_among = |clients: &[Client]| {
            let client_name = client_name.to_ascii_lowercase();
            clients.iter().any(|client| client.matches(&client_name))
        };
        let is_canonical = match self {
            Self::Safe => false,
            Self::Canonical => true,
            Self::Auto => is_among(CLIENTS_THAT_ACCEPT_CANONICAL_NAMES),
            Self::AutoCanonical => !is_among(CLIENTS_THAT_NEED_SAFE_NAMES),
        };
        if is_canonical { NameStyle::Canonical } else { NameStyle::Safe }
    }

    /// The same, but unknown clients get canonical names.
    #[must_use]
    pub fn canonical_for_unknown(self) -> Self {
        if self == Self::Auto { Self::AutoCanonical } else { self }
    }
}

/// Recognises a client by its name, in lower case.
enum Client {
    Named(&'static str),
    NameBegins(&'static str),
}

impl Client {
    fn matches(&self, lower_case_name: &str) -> bool {
        match self {
            Self::Named(name) => lower_case_name == *name,
            Self::NameBegins(start) => lower_case_name.starts_with(start),
        }
    }
}

/// Clients that accept a name such as `server.tool` and call it as it is: they show it to a person, or convert it for
/// their model. Other clients may pass names to a model API, most of which refuse a dot.
const CLIENTS_THAT_ACCEPT_CANONICAL_NAMES: &[Client] = &[
    // `mcp-inspector`, `inspector-cli`, `inspector-client`: shows tools to a person.
    Client::Named("mcp-inspector"),
    Client::NameBegins("inspector-"),
    // A command line for tools.
    Client::NameBegins("mcporter"),
    // `gemini-cli-mcp-client`: Gemini's alphabet includes `.`; other characters are replaced before the model sees
    // them.
    Client::NameBegins("gemini-cli"),
    // Our own programs and console: the clients in front of them get names that they can use.
    Client::NameBegins("mcp-aggregator"),
    Client::Named("mcp-simple-aggregator"),
];

/// Clients that pass tool names to a model API, or rewrite them, without making them safe first.
///
/// `claude-desktop` is missing on purpose: the real Claude Desktop reports `claude-ai`, and the specification shows
/// canonical names to a client of that name.
const CLIENTS_THAT_NEED_SAFE_NAMES: &[Client] = &[
    // Claude Desktop and claude.ai: `[a-zA-Z0-9_-]{1,64}`; one bad name fails every request.
    Client::Named("claude-ai"),
    // Claude Code: the Anthropic API's alphabet, up to 128 with its own prefix.
    Client::NameBegins("claude-code"),
    // `cursor-vscode` and kin: rewrites `.` to `_`, then calls the rewritten name.
    Client::NameBegins("cursor"),
    // Also `Visual Studio Code - Insiders`: warns about names outside the alphabet; Copilot allows 64.
    Client::NameBegins("visual studio code"),
    // Copilot CLI and coding agent, `github-copilot-developer`: OpenAI's alphabet, 64.
    Client::NameBegins("github-copilot"),
    // `codex-mcp-client`: OpenAI's alphabet, 64.
    Client::NameBegins("codex"),
    // `openai-mcp` (ChatGPT, Responses API): OpenAI's alphabet, 64.
    Client::NameBegins("openai"),
    // `windsurf-client`: passes names to the Anthropic and OpenAI APIs.
    Client::NameBegins("windsurf"),
    // Passes names to the model API that the user chose, most of them with this alphabet.
    Client::NameBegins("cline"),
];

/// An invalid value of `--names`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a naming policy; use `auto`, `canonical` or `safe`")]
pub struct UnknownNamePolicy(String);

impl FromStr for NamePolicy {
    type Err = UnknownNamePolicy;

    fn from_str(text: &str) -> Result<Self, UnknownNamePolicy> {
        match text {
            "auto" => Ok(Self::Auto),
            "canonical" => Ok(Self::Canonical),
            "safe" => Ok(Self::Safe),
            _ => Err(UnknownNamePolicy(text.to_owned())),
        }
    }
}

impl fmt::Display for NamePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto | Self::AutoCanonical => "auto",
            Self::Canonical => "canonical",
            Self::Safe => "safe",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED_SAFE_NAMES: [&str; 11] = [
        "claude-ai",
        "claude-code",
        "cursor-vscode",
        "Cursor",
        "Visual Studio Code",
        "Visual Studio Code - Insiders",
        "github-copilot-developer",
        "codex-mcp-client",
        "openai-mcp",
        "Windsurf",
        "Cline",
    ];

    const ACCEPT_CANONICAL_NAMES: [&str; 7] = [
        "mcp-inspector",
        "inspector-cli",
        "mcporter",
        "gemini-cli-mcp-client",
        "mcp-aggregator",
        "mcp-aggregator console",
        "mcp-simple-aggregator",
    ];

    const UNKNOWN: [&str; 6] = ["claude-desktop", "claude-ai-2", "mcp", "client", "my cursor", ""];

    #[test]
    fn only_clients_known_to_accept_canonical_names_get_them() {
        for client in ACCEPT_CANONICAL_NAMES {
            assert_eq!(NamePolicy::Auto.style_for(client), NameStyle::Canonical, "{client}");
        }
        for client in NEED_SAFE_NAMES.into_iter().chain(UNKNOWN) {
            assert_eq!(NamePolicy::Auto.style_for(client), NameStyle::Safe, "{client}");
        }
    }

    #[test]
    fn in_the_small_program_only_clients_known_to_need_safe_names_get_them() {
        let policy = NamePolicy::Auto.canonical_for_unknown();
        for client in NEED_SAFE_NAMES {
            assert_eq!(policy.style_for(client), NameStyle::Safe, "{client}");
        }
        for client in ACCEPT_CANONICAL_NAMES.into_iter().chain(UNKNOWN) {
            assert_eq!(policy.style_for(client), NameStyle::Canonical, "{client}");
        }
        assert_eq!(NamePolicy::Safe.canonical_for_unknown(), NamePolicy::Safe);
    }

    #[test]
    fn a_fixed_policy_does_not_look_at_the_client() {
        assert_eq!(NamePolicy::Canonical.style_for("claude-ai"), NameStyle::Canonical);
        assert_eq!(NamePolicy::Safe.style_for("mcp-inspector"), NameStyle::Safe);
    }

    #[test]
    fn the_tables_are_written_in_lower_case() {
        for client in CLIENTS_THAT_NEED_SAFE_NAMES.iter().chain(CLIENTS_THAT_ACCEPT_CANONICAL_NAMES) {
            let (Client::Named(name) | Client::NameBegins(name)) = client;
            assert_eq!(*name, name.to_ascii_lowercase());
        }
    }

    #[test]
    fn a_policy_round_trips_as_text() {
        for policy in [NamePolicy::Auto, NamePolicy::Canonical, NamePolicy::Safe] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "Safe".parse::<NamePolicy>().unwrap_err().to_string();
        assert_eq!(error, "`Safe` is not a naming policy; use `auto`, `canonical` or `safe`");
    }
}
