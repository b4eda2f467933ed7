//! The supported programs, and the paths of their files on each system.

use std::path::{Path, PathBuf};

/// A program whose servers can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    VsCode,
    Windsurf,
}

/// The folder that a path starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The home folder.
    Home,
    /// The folder of settings: `~/.config`, `~/Library/Application Support` or `%APPDATA%`.
    Settings,
    /// The current folder: files of a project.
    Here,
}

/// Every known file, in the order of the programs and, for each, the user's before the project's.
const FILES: &[(Client, Base, &str)] = &[
    (Client::ClaudeDesktop, Base::Settings, "Claude/claude_desktop_config.json"),
    (Client::ClaudeCode, Base::Home, ".claude.json"),
    (Client::ClaudeCode, Base::Here, ".mcp.json"),
    (Client::Cursor, Base::Home, ".cursor/mcp.json"),
    (Client::Cursor, Base::Here, ".cursor/mcp.json"),
    (Client::VsCode, Base::Settings, "Code/User/mcp.json"),
    // Older versions stored servers in their settings.
    (Client::VsCode, Base::Settings, "Code/User/settings.json"),
    (Client::VsCode, Base::Settings, "Code - Insiders/User/mcp.json"),
    (Client::VsCode, Base::Here, ".vscode/mcp.json"),
    (Client::Windsurf, Base::Home, ".codeium/windsurf/mcp_config.json"),
];

impl Client {
    pub(crate) const ALL: [Self; 5] =
        [Self::ClaudeDesktop, Self::ClaudeCode, Self::Cursor, Self::VsCode, Self::Windsurf];

    /// Its name in `--from`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Windsurf => "windsurf",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.as_str() == name)
    }
}

/// The folders of this machine.
#[derive(Debug)]
pub(crate) struct Machine {
    home: Option<PathBuf>,
    settings: Option<PathBuf>,
    here: PathBuf,
}

impl Machine {
    /// This machine.
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

    /// The file of a program that contains servers: the user's, or that of the project in the current folder.
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

    /// The files of a program, whether they exist or not. In the home folder, those of a project are the same.
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
    fn each_system_has_its_own_paths() {
        let desktop = |system| files(system, Client::ClaudeDesktop).remove(0);
        assert_eq!(desktop("linux"), "/home/me/.config/Claude/claude_desktop_config.json");
        assert_eq!(desktop("macos"), "/home/me/Library/Application Support/Claude/claude_desktop_config.json");
        assert_eq!(desktop("windows"), "/me/AppData/Roaming/Claude/claude_desktop_config.json");
        assert_eq!(files("linux", Client::ClaudeCode), ["/home/me/.claude.json", "/project/.mcp.json"]);
        assert_eq!(files("linux", Client::Windsurf), ["/home/me/.codeium/windsurf/mcp_config.json"]);
    }

    #[test]
    fn a_program_has_one_user_file_and_one_project_file() {
        let folder = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/me"));
        let machine = Machine::of("linux", folder, PathBuf::from("/project"));
        let own = |client, of_project| machine.own_file(client, of_project).map(|path| path.display().to_string());
        assert_eq!(own(Client::VsCode, false).unwrap(), "/home/me/.config/Code/User/mcp.json");
        assert_eq!(own(Client::VsCode, true).unwrap(), "/project/.vscode/mcp.json");
        assert_eq!(own(Client::ClaudeDesktop, true), None);
    }

    #[test]
    fn every_program_has_a_name_and_a_file() {
        for client in Client::ALL {
            assert_eq!(Client::of_name(client.as_str()), Some(client));
            assert!(FILES.iter().any(|(whose, _, _)| *whose == client));
        }
        assert_eq!(Client::of_name("emacs"), None);
    }
}
