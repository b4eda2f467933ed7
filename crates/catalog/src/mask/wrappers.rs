//! Programs that run another program: which arguments are their own, and the scripts of shells.

use serde_json::Value;

/// Programs for which `-p` is not a password among their own arguments.
const WRAPPERS: [(&str, Wrapper); 17] = [
    ("bun", Wrapper::Script),
    ("bunx", Wrapper::Package),
    ("cargo", Wrapper::Subcommand),
    ("deno", Wrapper::Script),
    ("docker", Wrapper::Container),
    ("go", Wrapper::Subcommand),
    ("mkdir", Wrapper::Nothing),
    ("node", Wrapper::Script),
    ("npm", Wrapper::Subcommand),
    ("npx", Wrapper::Package),
    ("pipx", Wrapper::Subcommand),
    ("pnpm", Wrapper::Subcommand),
    ("podman", Wrapper::Container),
    ("python", Wrapper::Script),
    ("python3", Wrapper::Script),
    ("uvx", Wrapper::Package),
    ("yarn", Wrapper::Subcommand),
];

/// What a program runs.
#[derive(Clone, Copy, PartialEq)]
enum Wrapper {
    /// Nothing at all.
    Nothing,
    /// Its first argument that is not an option.
    Package,
    /// The same, which may also be a subcommand followed by a script.
    Script,
    /// What follows a subcommand.
    Subcommand,
    /// An image or a container after `run` or `exec`.
    Container,
}

/// Subcommands that are followed by what is run.
const RUNNING: [&str; 6] = ["run", "x", "exec", "dlx", "task", "start"];

/// Options of wrappers that take a value. For containers see [`BARE_OF_CONTAINERS`].
const WITH_VALUE: [&str; 18] = [
    "-p",
    "--package",
    "-c",
    "--call",
    "--registry",
    "--from",
    "--with",
    "--python",
    "-w",
    "--workspace",
    "--cache",
    "-e",
    "--eval",
    "-r",
    "--require",
    "--import",
    "--prefix",
    "--index-url",
];

/// Long options of `docker run` and `podman run` without a value. All others have one.
const BARE_OF_CONTAINERS: [&str; 12] = [
    "--rm",
    "--init",
    "--interactive",
    "--tty",
    "--detach",
    "--privileged",
    "--read-only",
    "--publish-all",
    "--quiet",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--replace",
];

/// Shells, including the one on Windows.
const SHELLS: [&str; 12] =
    ["sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "cmd", "cmd.exe", "powershell", "powershell.exe", "pwsh"];

/// The name of a program without its folder.
pub(super) fn file_name(command: &str) -> &str {
    command.rsplit(['/', '\\']).next().unwrap_or(command)
}

/// How many of the arguments are for `command` itself and not for what it runs, if `-p` is not a password for it.
pub(super) fn own_arguments(command: Option<&str>, items: &[Value]) -> usize {
    let wrapper = command.and_then(|command| WRAPPERS.iter().find(|(name, _)| *name == file_name(command)));
    let Some((_, wrapper)) = wrapper else { return 0 };
    let mut seen_positional = 0;
    let mut is_value = false;
    for (index, item) in items.iter().enumerate() {
        let text = item.as_str().unwrap_or_default();
        if std::mem::take(&mut is_value) {
            continue;
        }
        if text == "--" && *wrapper != Wrapper::Nothing {
            return index + 1;
        }
        if text.starts_with('-') && text.len() > 1 {
            is_value = has_value(*wrapper, text);
            // The module is what is run.
            if text == "-m" && *wrapper == Wrapper::Script {
                return index + 2;
            }
            continue;
        }
        seen_positional += 1;
        let is_inner = match wrapper {
            Wrapper::Nothing => false,
            Wrapper::Package => true,
            Wrapper::Script => seen_positional == 2 || !RUNNING.contains(&text),
            Wrapper::Subcommand => seen_positional == 2,
            Wrapper::Container => seen_positional >= 2 && was_running(items, index),
        };
        if is_inner {
            return index + 1;
        }
    }
    items.len()
}

/// Whether an option of a wrapper takes a value.
fn has_value(wrapper: Wrapper, option: &str) -> bool {
    if option.contains('=') {
        return false;
    }
    match wrapper {
        Wrapper::Container if option.starts_with("--") => !BARE_OF_CONTAINERS.contains(&option),
        Wrapper::Container => option.len() == 2 && option.ends_with(['e', 'v', 'p', 'u', 'w', 'h', 'l', 'm', 'a', 'c']),
        _ => WITH_VALUE.contains(&option),
    }
}

/// Whether `run` or `exec` occurs before this position.
fn was_running(items: &[Value], before: usize) -> bool {
    items[..before].iter().any(|item| matches!(item.as_str(), Some("run" | "exec")))
}

/// Whether a script follows an option of a shell.
pub(super) fn announces_script(shell: &str, option: &str) -> bool {
    let is_cluster = |option: &str| {
        option
            .strip_prefix('-')
            .is_some_and(|letters| letters.ends_with('c') && letters.chars().all(|letter| letter.is_ascii_lowercase()))
    };
    let is_windows = || matches!(option.to_ascii_lowercase().as_str(), "/c" | "/k" | "-command");
    SHELLS.contains(&file_name(shell)) && (is_cluster(option) || is_windows())
}

/// A word of a script: its position, including quotes, and its value without them.
pub(super) struct Word {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) text: String,
    /// The quote around all of it.
    pub(super) quote: Option<char>,
    /// Whether it starts a new command.
    pub(super) begins_command: bool,
}

/// The words of a script, roughly as a shell parses them.
pub(super) fn words(script: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut letters = script.char_indices().peekable();
    let mut begins_command = true;
    while let Some(&(start, first)) = letters.peek() {
        if first.is_whitespace() || "|&;()<>".contains(first) {
            begins_command |= "|&;(\n".contains(first);
            letters.next();
            continue;
        }
        let (mut text, mut open, mut end) = (String::new(), None, start);
        let mut quoted_letters = 0;
        while let Some(&(at, letter)) = letters.peek() {
            if open.is_none() && (letter.is_whitespace() || "|&;()<>".contains(letter)) {
                break;
            }
            letters.next();
            end = at + letter.len_utf8();
            match (open, letter) {
                (None, '\'' | '"') => open = Some(letter),
                (Some(quote), letter) if quote == letter => open = None,
                (None | Some('"'), '\\') if letters.peek().is_some() => {
                    if let Some((at, escaped)) = letters.next() {
                        end = at + escaped.len_utf8();
                        text.push(escaped);
                        quoted_letters += usize::from(open.is_some());
                    }
                }
                _ => {
                    text.push(letter);
                    quoted_letters += usize::from(open.is_some());
                }
            }
        }
        let quote = (!text.is_empty() && quoted_letters == text.chars().count())
            .then_some(first)
            .filter(|first| "'\"".contains(*first));
        words.push(Word { start, end, text, quote, begins_command: std::mem::take(&mut begins_command) });
    }
    words
}
