//! A profile as it is written: in a config file, in the registry, and over REST.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::{MAX_PATTERN_BYTES, MAX_PATTERNS};
use crate::config::path::JsonPath;
use crate::config::{Config, ConfigError, Problem, ProblemKind};

/// How many profiles there may be. Each has a view of its own, in memory.
pub const MAX_PROFILES: usize = 100;
/// Bytes of a profile's name.
pub const MAX_PROFILE_NAME_BYTES: usize = 64;
/// The values of `surface`.
pub const SURFACES: [&str; 4] = ["full", "search", "grow", "auto"];
/// The members of a profile.
pub const MEMBERS: [&str; 7] = ["servers", "tools", "prompts", "resources", "classes", "surface", "pinned"];

/// A profile as it is written. A member that is left out restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileSpec {
    /// Patterns of the names of servers.
    pub servers: Option<Vec<String>>,
    /// Patterns of the names of tools, `server.tool`.
    pub tools: Option<Vec<String>>,
    /// Patterns of the names of prompts, `server.prompt`.
    pub prompts: Option<Vec<String>>,
    /// Patterns of URIs.
    pub resources: Option<Vec<String>>,
    /// Only tools of one of these classes.
    pub classes: Option<Vec<ToolClass>>,
    /// How its clients see the tools, one of [`SURFACES`]; otherwise as they or the service choose.
    pub surface: Option<String>,
    /// The tools that are listed on every surface, by their full names; otherwise those of the service.
    pub pinned: Option<Vec<String>>,
}

/// What a tool does to its surroundings, according to the annotations of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolClass {
    /// `readOnlyHint` is true.
    ReadOnly,
    /// The same, or `destructiveHint` is false.
    NonDestructive,
}

impl ToolClass {
    /// All classes, from the one with the fewest tools.
    pub const ALL: [Self; 2] = [Self::ReadOnly, Self::NonDestructive];

    /// Its name in profiles.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::NonDestructive => "non_destructive",
        }
    }
}

impl FromStr for ToolClass {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|class| class.as_str() == text).ok_or(())
    }
}

/// What is wrong with a profile, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileProblem {
    /// Where: `["tools", "2"]`.
    pub member: Vec<String>,
    /// What.
    pub what: String,
}

impl fmt::Display for ProfileProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.member.is_empty() {
            write!(out, "`{}`: ", self.member.join("."))?;
        }
        out.write_str(&self.what)
    }
}

/// Whether a profile may be called that: its name is a part of addresses.
pub fn is_profile_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_PROFILE_NAME_BYTES).contains(&name.len())
        && name.bytes().all(is_of_name)
        && name.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// The problem with a name that is none of a profile.
pub(super) fn name_problem() -> String {
    format!("is not a name of a profile; use 1 to {MAX_PROFILE_NAME_BYTES} letters, digits, `_`, `-` and `.`")
}

impl ProfileSpec {
    /// The profile in a JSON value, or everything that is wrong with it.
    pub fn read(value: &Value) -> Result<Self, Vec<ProfileProblem>> {
        let mut reader = Reader::default();
        let Value::Object(members) = value else {
            return Err(vec![reader.problem(&[], format!("must be an object, not {}", kind_of(value)))]);
        };
        for name in members.keys().filter(|name| !MEMBERS.contains(&name.as_str())) {
            let what = format!("is no member of a profile; use {}", enumeration(&MEMBERS));
            reader.add(&[name], what);
        }
        let spec = Self {
            servers: reader.patterns(members, "servers"),
            tools: reader.patterns(members, "tools"),
            prompts: reader.patterns(members, "prompts"),
            resources: reader.patterns(members, "resources"),
            classes: reader.classes(members),
            surface: reader.surface(members),
            pinned: reader.pinned(members),
        };
        if reader.0.is_empty() { Ok(spec) } else { Err(reader.0) }
    }

    /// The same as JSON. Members that restrict nothing are left out.
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        let lists = [
            ("servers", &self.servers),
            ("tools", &self.tools),
            ("prompts", &self.prompts),
            ("resources", &self.resources),
        ];
        for (name, list) in lists {
            if let Some(list) = list {
                members.insert(name.to_owned(), json!(list));
            }
        }
        if let Some(classes) = &self.classes {
            let classes: Vec<_> = classes.iter().map(|class| class.as_str()).collect();
            members.insert("classes".to_owned(), json!(classes));
        }
        if let Some(surface) = &self.surface {
            members.insert("surface".to_owned(), json!(surface));
        }
        if let Some(pinned) = &self.pinned {
            members.insert("pinned".to_owned(), json!(pinned));
        }
        Value::Object(members)
    }
}

/// The profiles in the bytes of a config file, in its order, or everything that is wrong with them.
pub fn profiles_of_config(bytes: &[u8]) -> Result<Vec<(String, ProfileSpec)>, ConfigError> {
    let document = Config::document(bytes)?;
    let mut reader = Reader::default();
    let mut profiles = Vec::new();
    match document.get("profiles") {
        None => {}
        Some(Value::Object(written)) => {
            if written.len() > MAX_PROFILES {
                reader.add(&[], format!("are {}, and at most {MAX_PROFILES} are allowed", written.len()));
            }
            for (name, value) in written {
                if !is_profile_name(name) {
                    reader.add(&[name], name_problem());
                }
                match ProfileSpec::read(value) {
                    Ok(spec) => profiles.push((name.clone(), spec)),
                    Err(problems) => reader.0.extend(problems.into_iter().map(|mut problem| {
                        problem.member.insert(0, name.clone());
                        problem
                    })),
                }
            }
        }
        Some(other) => reader.add(&[], format!("must be an object, not {}", kind_of(other))),
    }
    if reader.0.is_empty() {
        Ok(profiles)
    } else {
        Err(ConfigError::Problems(reader.0.iter().map(of_config).collect()))
    }
}

/// A problem with `profiles` as one of the config file.
fn of_config(problem: &ProfileProblem) -> Problem {
    let path = problem.member.iter().fold(JsonPath::root().member("profiles"), |path, part| match part.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.member(part),
    });
    Problem { kind: ProblemKind::Schema, path: path.to_string(), message: problem.what.clone(), hint: None }
}

/// Collects problems.
#[derive(Default)]
struct Reader(Vec<ProfileProblem>);

impl Reader {
    fn problem(&self, member: &[&str], what: String) -> ProfileProblem {
        ProfileProblem { member: member.iter().map(|&part| part.to_owned()).collect(), what }
    }

    fn add(&mut self, member: &[&str], what: String) {
        let problem = self.problem(member, what);
        self.0.push(problem);
    }

    /// A list of texts, each with its position.
    fn texts<'v>(&mut self, members: &'v Map<String, Value>, name: &str) -> Option<Vec<(String, &'v str)>> {
        let value = members.get(name)?;
        let Value::Array(values) = value else {
            self.add(&[name], format!("must be an array of strings, not {}", kind_of(value)));
            return None;
        };
        if values.len() > MAX_PATTERNS {
            self.add(&[name], format!("has {} entries, and at most {MAX_PATTERNS} are allowed", values.len()));
            return None;
        }
        let mut texts = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            let index = index.to_string();
            match value {
                Value::String(text) => texts.push((index, text.as_str())),
                other => self.add(&[name, &index], format!("must be a string, not {}", kind_of(other))),
            }
        }
        Some(texts)
    }

    fn patterns(&mut self, members: &Map<String, Value>, name: &str) -> Option<Vec<String>> {
        let texts = self.texts(members, name)?;
        for (index, text) in &texts {
            let what = match text.strip_prefix('!').unwrap_or(text) {
                "" => "is empty; use a name, or a pattern with `*`".to_owned(),
                pattern if pattern.starts_with('!') => "begins with `!` twice; one excludes".to_owned(),
                _ if text.len() > MAX_PATTERN_BYTES => {
                    format!("has {} bytes, and at most {MAX_PATTERN_BYTES} are allowed", text.len())
                }
                _ => continue,
            };
            self.add(&[name, index], what);
        }
        Some(texts.into_iter().map(|(_, text)| text.to_owned()).collect())
    }

    fn classes(&mut self, members: &Map<String, Value>) -> Option<Vec<ToolClass>> {
        let texts = self.texts(members, "classes")?;
        if texts.is_empty() {
            self.add(&["classes"], "is empty; leave it out, or use `tools` to hide all tools".to_owned());
        }
        let mut classes = Vec::new();
        for (index, text) in texts {
            match text.parse() {
                Ok(class) if classes.contains(&class) => {}
                Ok(class) => classes.push(class),
                Err(()) => {
                    let known = ToolClass::ALL.map(ToolClass::as_str);
                    self.add(
                        &["classes", &index],
                        format!("`{text}` is no class of tools; use {}", enumeration(&known)),
                    );
                }
            }
        }
        Some(classes)
    }

    fn surface(&mut self, members: &Map<String, Value>) -> Option<String> {
        match members.get("surface")? {
            Value::String(text) if SURFACES.contains(&text.as_str()) => Some(text.clone()),
            _ => {
                self.add(&["surface"], format!("must be {}", enumeration(&SURFACES)));
                None
            }
        }
    }

    fn pinned(&mut self, members: &Map<String, Value>) -> Option<Vec<String>> {
        let texts = self.texts(members, "pinned")?;
        for (index, text) in &texts {
            if text.is_empty() || text.len() > MAX_PATTERN_BYTES {
                self.add(&["pinned", index], "is not the full name of a tool, such as `git.log`".to_owned());
            }
        }
        Some(texts.into_iter().map(|(_, text)| text.to_owned()).collect())
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn enumeration(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
