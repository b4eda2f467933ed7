//! What the last word of an unfinished command line stands for.

use clap::{Arg, Command};

/// The position of the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The command and its subcommands.
    pub(super) verbs: Vec<String>,
    /// The option or argument that the word is a value of.
    pub(super) argument: String,
    /// Its possible values, if they are fixed.
    pub(super) values: Vec<String>,
    /// The options that select the service or the registry, with their values.
    pub(super) target: Vec<String>,
}

/// The names of these options.
const TARGET: [&str; 4] = ["url", "token_file", "data_dir", "database"];

impl Position {
    /// Parses the words. `None` if the last one is a command, an option, or not expected.
    pub(super) fn of(whole: &Command, words: &[String]) -> Option<Self> {
        let (current, before) = words.split_last()?;
        let (mut command, mut verbs, mut target) = (whole, Vec::new(), Vec::new());
        let (mut arguments, mut takes_options) = (0, true);
        let mut before = before.iter();
        while let Some(word) = before.next() {
            if takes_options && word == "--" {
                takes_options = false;
            } else if let Some(option) = option(command, word).filter(|_| takes_options) {
                let takes_value = option.get_action().takes_values() && !word.contains('=');
                let value = if takes_value { before.next() } else { None };
                if takes_value && value.is_none() {
                    return Some(Self::at(option, verbs, target));
                }
                if TARGET.contains(&option.get_id().as_str()) {
                    target.extend([Some(word), value].into_iter().flatten().cloned());
                }
            } else if takes_options && word.starts_with('-') {
                return None;
            } else if let Some(below) = command.find_subcommand(word).filter(|_| arguments == 0) {
                verbs.push(word.clone());
                command = below;
            } else {
                arguments += 1;
            }
        }
        if takes_options && current.starts_with('-') {
            return None;
        }
        let all: Vec<&Arg> = command.get_positionals().collect();
        let several = |last: &&&Arg| last.get_num_args().is_some_and(|count| count.max_values() > 1);
        let argument = all.get(arguments).or_else(|| all.last().filter(several))?;
        Some(Self::at(argument, verbs, target))
    }

    fn at(argument: &Arg, verbs: Vec<String>, target: Vec<String>) -> Self {
        let values = argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
        let values = values.map(|value| value.get_name().to_owned()).collect();
        Self { verbs, argument: argument.get_id().to_string(), values, target }
    }
}

/// The option that a word is.
fn option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let name = word.strip_prefix("--")?;
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    command.get_opts().chain(command.get_arguments()).find(|argument| argument.get_long() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::whole_command;

    fn position(words: &[&str]) -> Option<Position> {
        let mut whole = whole_command();
        whole.build();
        Position::of(&whole, &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    fn argument(words: &[&str]) -> Option<String> {
        position(words).map(|position| position.argument)
    }

    #[test]
    fn an_argument_is_found_behind_options_and_verbs_below_verbs() {
        assert_eq!(argument(&["show", ""]).as_deref(), Some("server"));
        assert_eq!(argument(&["show", "--json", "me"]).as_deref(), Some("server"));
        assert_eq!(argument(&["show", "memory", ""]), None, "there is one server");
        assert_eq!(argument(&["tools", "off", "a.b", ""]).as_deref(), Some("names"), "and as many tools as you like");
        assert_eq!(argument(&["call", "a.b", ""]).as_deref(), Some("arguments"));
        assert_eq!((argument(&["sh"]), argument(&["show", "--js"]), argument(&[])), (None, None, None));
    }

    #[test]
    fn the_value_of_an_option_is_found() {
        assert_eq!(argument(&["search", "x", "--skill", ""]).as_deref(), Some("skill"));
        assert_eq!(argument(&["search", "x", "--limit", "5", "--server", "g"]).as_deref(), Some("server"));
        let strategy = position(&["search", "x", "--strategy", ""]).unwrap();
        assert_eq!(strategy.values, ["direct", "hierarchical"]);
    }

    #[test]
    fn the_options_that_select_the_service_are_passed_on() {
        let position = position(&["tools", "off", "--data-dir", "d", "--token-file=t", ""]).unwrap();
        assert_eq!((position.verbs.join(" ").as_str(), position.argument.as_str()), ("tools off", "names"));
        assert_eq!(position.target, ["--data-dir", "d", "--token-file=t"]);
    }
}
