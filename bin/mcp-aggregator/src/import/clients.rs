//! The programs whose files are known, and where those are on each system.

use std::path::{Path, PathBuf};

/// A program whose servers can be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    VsCode,
    Windsurf,
}

/// What a path begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The user's folder.
    Home,
    /// Where programs keep their settings: `~/.config`, `~/Library/Application Support` or `%APPDATA%`.
    Settings,
    /// The folder the command was given in: files of a project.
    Here,
}

/// Every file that is looked for, in the order of the programs and, for each, the user's own before the project's.
const FILES: &[(Client, Base, &str)] = &[
    (Client::ClaudeDesktop, Base::Settings, "Claude/claude_desktop_config.json"),
    (Client::ClaudeCode, Base::Home, ".claude.json"),
    (Client::ClaudeCode, Base::Here, ".mcp.json"),
    (Client::Cursor, Base::Home, ".cursor/mcp.json"),
    (Client::Cursor, Base::Here, ".cursor/mcp.json"),
    (Client::VsCode, Base::Settings, "Code/User/mcp.json"),
    // Where servers stood before they had a file of their own.
    (Client::VsCode, Base::Settings, "Code/User/settings.json"),
    (Client::VsCode, Base::Settings, "Code - Insiders/User/mcp.json"),
    (Client::VsCode, Base::Here, ".vscode/mcp.json"),
    (Client::Windsurf, Base::Home, ".codeium/windsurf/mcp_config.json"),
];

impl Client {
    pub(crate) const ALL: [Self; 5] =
        [Self::ClaudeDesktop, Self::ClaudeCode, Self::Cursor, Self::VsCode, Self::Windsurf];

    /// As it is written behind `--from`.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Windsurf => "windsurf",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.word() == word)
    }
}

/// This machine, as far as files are concerned.
#[derive(Debug)]
pub(crate) struct Machine {
    home: Option<PathBuf>,
    settings: Option<PathBuf>,
    here: PathBuf,
}

impl Machine {
    /// The one we are on.
    pub(crate) fn this() -> Self {
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self::of(std::env::consts::OS, folder, PathBuf::from("."))
    }

    fn of(system: &str, folder: impl Fn(&str) -> Option<PathBuf>, here: PathBuf) -> Self {
        let home = folder("HOME").or_else(|| folder("USERPROFILE"));
        let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let settings = match system {
            "macos" => below_home("Library/Application Support"),
            "windows" => folder("APPDATA").or_else(|| below_home("AppData/Roaming")),
            _ => folder("XDG_CONFIG_HOME").or_else(|| below_home(".config")),
        };
        Self { home, settings, here }
    }

    /// The file in which a program is told of servers: the user's own, or that of the project here.
    pub(crate) fn own_file(&self, client: Client, of_project: bool) -> Option<PathBuf> {
        let places = FILES.iter().filter(|(whose, base, _)| *whose == client && (*base == Base::Here) == of_project);
        let (_, base, path) = places.into_iter().next()?;
        self.base(*base).map(|folder| folder.join(path))
    }

    fn base(&self, base: Base) -> Option<&Path> {
        match base {
            Base::Home => self.home.as_deref(),
            Base::Settings => self.settings.as_deref(),
            Base::Here => Some(self.here.as_path()),
        }
    }

    /// The files of a program, whether they exist or not. In the user's own folder, those of a project are the same.
    pub(crate) fn files(&self, client: Client) -> Vec<PathBuf> {
        let of_client = FILES.iter().filter(|(whose, _, _)| *whose == client);
        of_client.filter_map(|(_, at, path)| self.base(*at).map(|folder| folder.join(path))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(system: &str, client: Client) -> Vec<String> {
        let folder = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/me")),
            "APPDATA" => Some(PathBuf::from("/me/AppData/Roaming")),
            _ => None,
        };
        let machine = Machine::of(system, folder, PathBuf::from("/project"));
        machine.files(client).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn each_system_has_its_own_places() {
        let desktop = |system| files(system, Client::ClaudeDesktop).remove(0);
        assert_eq!(desktop("linux"), "/home/me/.config/Claude/claude_desktop_config.json");
        assert_eq!(desktop("macos"), "/home/me/Library/Application Support/Claude/claude_desktop_config.json");
        assert_eq!(desktop("windows"), "/me/AppData/Roaming/Claude/claude_desktop_config.json");
        assert_eq!(files("linux", Client::ClaudeCode), ["/home/me/.claude.json", "/project/.mcp.json"]);
        assert_eq!(files("linux", Client::Windsurf), ["/home/me/.codeium/windsurf/mcp_config.json"]);
    }

    #[test]
    fn a_program_is_told_of_servers_in_one_file_of_the_user_and_one_of_the_project() {
        let folder = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/me"));
        let machine = Machine::of("linux", folder, PathBuf::from("/project"));
        let own = |client, of_project| machine.own_file(client, of_project).map(|path| path.display().to_string());
        assert_eq!(own(Client::VsCode, false).unwrap(), "/home/me/.config/Code/User/mcp.json");
        assert_eq!(own(Client::VsCode, true).unwrap(), "/project/.vscode/mcp.json");
        assert_eq!(own(Client::ClaudeDesktop, true), None);
    }

    #[test]
    fn every_program_has_a_word_and_a_file() {
        for client in Client::ALL {
            assert_eq!(Client::of_word(client.word()), Some(client));
            assert!(FILES.iter().any(|(whose, _, _)| *whose == client));
        }
        assert_eq!(Client::of_word("emacs"), None);
    }
}
