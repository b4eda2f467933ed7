//! What the last word of a command line stands for, while it is being typed.

use clap::{Arg, Command};

/// Where somebody is typing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The verb, and the verb below it.
    pub(super) verbs: Vec<String>,
    /// The option or the argument that the word is a value of.
    pub(super) argument: String,
    /// Words that it can be, if those are always the same.
    pub(super) values: Vec<String>,
    /// What was said of the service and the registry so far: options with their values.
    pub(super) target: Vec<String>,
}

/// The options that say which service is meant, or which registry.
const TARGET: [&str; 4] = ["url", "token_file", "data_dir", "database"];

impl Place {
    /// Reads what was typed, as far as it goes. Nothing if the word is a verb, an option, or what nobody expects there.
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
    use crate::arguments::whole_command;

    fn place(words: &[&str]) -> Option<Place> {
        let mut whole = whole_command();
        whole.build();
        Place::of(&whole, &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    fn argument(words: &[&str]) -> Option<String> {
        place(words).map(|place| place.argument)
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
        let strategy = place(&["search", "x", "--strategy", ""]).unwrap();
        assert_eq!(strategy.values, ["direct", "hierarchical"]);
    }

    #[test]
    fn the_service_that_is_meant_is_asked() {
        let place = place(&["tools", "off", "--data-dir", "d", "--token-file=t", ""]).unwrap();
        assert_eq!((place.verbs.join(" ").as_str(), place.argument.as_str()), ("tools off", "names"));
        assert_eq!(place.target, ["--data-dir", "d", "--token-file=t"]);
    }
}
