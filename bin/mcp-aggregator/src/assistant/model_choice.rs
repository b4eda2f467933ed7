//! Selects the model of an assistant: by options, a config file, or the environment.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use models::{Budget, Limits, Model, Provider, ProviderError, ToolCalling, variables};
use serde_json::{Map, Value};

use super::unanswered;
use crate::config::ConfigSource;
use crate::environment;
use crate::failure::Failure;

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// The name of the model [default: the variable MCP_MODEL]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The API of the model: openai or anthropic [default: by environment variables]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// The base URL of the API, such as http://localhost:11434/v1 [default: OPENAI_BASE_URL or ANTHROPIC_BASE_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// How the model calls tools: `native` uses the API, `text` is for models without tool calls
    #[arg(long, value_name = "native|text")]
    pub(crate) tools: Option<ToolCallingWord>,
}

/// How a model calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolCallingWord {
    Native,
    Text,
}

/// The variable with the key of the model of a service or a config, unless a file has it.
const KEY_VARIABLE: &str = "MCP_ASSISTANT_API_KEY";
/// The member of a config file that defines a model.
const MEMBER: &str = "assistant";

/// The model that answers questions over REST and in the console.
#[derive(Debug, Args)]
#[command(next_help_heading = "Assistant, for REST and the console")]
pub(crate) struct AssistantArguments {
    /// The model that answers `assistant` blocks and POST /assistant/ask; `anthropic:NAME` or `openai:NAME` also
    /// selects the API. Its key is in MCP_ASSISTANT_API_KEY or a file [default: `assistant` in the file of --config]
    #[arg(long, verbatim_doc_comment, value_name = "NAME")]
    assistant_model: Option<String>,
    /// The base URL of the API, such as http://localhost:11434/v1
    #[arg(long, value_name = "URL", requires = "assistant_model")]
    assistant_url: Option<String>,
    /// The API of the model: openai or anthropic
    #[arg(long, value_name = "PROVIDER", requires = "assistant_model")]
    assistant_provider: Option<String>,
    /// The file that contains the key
    #[arg(long, value_name = "FILE", requires = "assistant_model")]
    assistant_key_file: Option<PathBuf>,
    /// How the model calls tools: `native` uses the API, `text` is for models without tool calls
    #[arg(long, value_name = "native|text", requires = "assistant_model")]
    assistant_tools: Option<ToolCallingWord>,
    /// The maximum number of requests per day [default: unlimited]
    #[arg(long, value_name = "COUNT")]
    assistant_budget: Option<u64>,
}

impl AssistantArguments {
    /// The model, if options or the config define one.
    pub(crate) fn model(&self, config: Option<ConfigSource<'_>>) -> Result<Option<Arc<Model>>, Failure> {
        let named = match &self.assistant_model {
            Some(model) => Some(Named {
                model: model.clone(),
                base_url: self.assistant_url.clone(),
                provider: self.assistant_provider.clone(),
                key_file: self.assistant_key_file.clone(),
                key_variable: None,
                is_spoken: self.assistant_tools.map(|word| word == ToolCallingWord::Text),
                place: "--assistant-model".to_owned(),
            }),
            None => config.map(Named::in_config).transpose()?.flatten(),
        };
        let Some(named) = named else { return Ok(None) };
        let model = Model::new(named.provider()?, Limits::default(), Budget::new(self.assistant_budget, None).into());
        model.map(|model| Some(Arc::new(model))).map_err(|failure| unanswered(&failure))
    }
}

/// Checks the model in a config without sending a request.
pub(crate) fn check(config: ConfigSource<'_>) -> Result<(), Failure> {
    match Named::in_config(config)? {
        Some(named) => named.provider().map(drop),
        None => Ok(()),
    }
}

/// The model that options, the config or the environment define, in this order; or why there is none. Sends no request.
pub(crate) fn model(arguments: &ModelArguments, config: Option<ConfigSource<'_>>) -> Result<Model, Failure> {
    let is_said = arguments.model.is_some() || arguments.base_url.is_some() || arguments.provider.is_some();
    let named = if is_said { None } else { config.map(Named::in_config).transpose()?.flatten() };
    let mut provider = match named {
        Some(named) => named.provider()?,
        None => by_environment(arguments)?,
    };
    match arguments.tools {
        Some(ToolCallingWord::Native) => provider.tool_calling = ToolCalling::Native,
        Some(ToolCallingWord::Text) => provider.tool_calling = ToolCalling::Text,
        None => {}
    }
    Model::new(provider, Limits::default(), Budget::unlimited().into()).map_err(|failure| unanswered(&failure))
}

fn by_environment(arguments: &ModelArguments) -> Result<Provider, Failure> {
    let unreadable = Cell::new(None);
    let variable = |name: &str| {
        let said = match name {
            variables::PROVIDER => arguments.provider.clone(),
            variables::OPENAI_BASE_URL | variables::ANTHROPIC_BASE_URL => arguments.base_url.clone(),
            _ => None,
        };
        said.or_else(|| {
            environment::text(name).unwrap_or_else(|failure| {
                unreadable.set(Some(failure));
                None
            })
        })
    };
    let provider = Provider::from_environment(variable, arguments.model.as_deref());
    if let Some(failure) = unreadable.take() {
        return Err(failure);
    }
    provider.map_err(|error| {
        Failure::usage(error.to_string()).with_hint(
            "or pass --model and --base-url; or configure a model for the service: \
             `mcp-aggregator serve --assistant-model NAME`",
        )
    })
}

/// A model as the user defined it.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    model: String,
    base_url: Option<String>,
    provider: Option<String>,
    key_file: Option<PathBuf>,
    key_variable: Option<String>,
    is_spoken: Option<bool>,
    /// Where it is defined, for errors.
    place: String,
}

impl Named {
    /// The model in a config file, if it defines one.
    fn in_config(config: ConfigSource<'_>) -> Result<Option<Self>, Failure> {
        match config.document()?.get(MEMBER) {
            Some(Value::Object(members)) => Self::of(members, config.path).map(Some),
            Some(_) => Err(Failure::new(format!("{}: `{MEMBER}` must be an object", config.path.display()))),
            None => Ok(None),
        }
    }

    fn of(members: &Map<String, Value>, path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::new(format!("{}: {what}", path.display()));
        let mut texts = Map::new();
        for (name, value) in members {
            match name.as_str() {
                "model" | "baseUrl" | "provider" | "apiKeyFile" | "apiKeyVariable" | "tools" if value.is_string() => {
                    texts.insert(name.clone(), value.clone());
                }
                "apiKey" => {
                    let why = "`assistant.apiKey`: a key must not be in a config; name a file with `apiKeyFile`, \
                               or a variable with `apiKeyVariable`";
                    return Err(wrong(why.to_owned()));
                }
                "model" | "baseUrl" | "provider" | "apiKeyFile" | "apiKeyVariable" | "tools" => {
                    return Err(wrong(format!("`{MEMBER}.{name}` must be a string")));
                }
                other => return Err(wrong(format!("`{MEMBER}.{other}` is unknown"))),
            }
        }
        let text = |name: &str| texts.get(name).and_then(Value::as_str).map(str::to_owned);
        let is_spoken = match text("tools").as_deref() {
            None => None,
            Some("native") => Some(false),
            Some("text") => Some(true),
            Some(_) => return Err(wrong(format!("`{MEMBER}.tools` must be native or text"))),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        Ok(Self {
            model: text("model").ok_or_else(|| wrong(format!("`{MEMBER}.model` is missing")))?,
            base_url: text("baseUrl"),
            provider: text("provider"),
            key_file: text("apiKeyFile").map(|file| folder.join(file)),
            key_variable: text("apiKeyVariable"),
            is_spoken,
            place: format!("`{MEMBER}` in {}", path.display()),
        })
    }

    fn provider(&self) -> Result<Provider, Failure> {
        let (key, images) = (self.key()?, environment::text(variables::IMAGES)?);
        let variable = |name: &str| match name {
            variables::PROVIDER => self.provider.clone(),
            variables::OPENAI_BASE_URL | variables::ANTHROPIC_BASE_URL => self.base_url.clone(),
            variables::OPENAI_API_KEY | variables::ANTHROPIC_API_KEY => key.clone(),
            variables::TOOLS => self.is_spoken.filter(|&is_spoken| is_spoken).map(|_| "text".to_owned()),
            variables::IMAGES => images.clone(),
            _ => None,
        };
        Provider::from_environment(variable, Some(&self.model)).map_err(|error| {
            let why = match error {
                ProviderError::NotConfigured => "neither a base URL nor a provider is set".to_owned(),
                other => other.to_string(),
            };
            Failure::usage(format!("{}: {why}", self.place))
        })
    }

    fn key(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.key_file else {
            return environment::text(self.key_variable.as_deref().unwrap_or(KEY_VARIABLE));
        };
        let read = fs::read_to_string(file);
        let text =
            read.map_err(|error| Failure::new(format!("could not read the key in {}: {error}", file.display())))?;
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use models::Dialect;
    use serde_json::json;

    use super::*;

    fn named(members: &Value) -> Result<Named, Failure> {
        Named::of(members.as_object().unwrap(), Path::new("/etc/mcp.json"))
    }

    #[test]
    fn a_config_names_a_model() {
        let local = named(&json!({"model": "qwen3", "baseUrl": "http://localhost:11434/v1", "tools": "text"})).unwrap();
        let provider = local.provider().unwrap();
        assert_eq!((provider.dialect, provider.model.as_str()), (Dialect::OpenAi, "qwen3"));
        assert_eq!(
            (provider.base_url.as_str(), provider.tool_calling),
            ("http://localhost:11434/v1", ToolCalling::Text)
        );
        let other = named(&json!({"model": "anthropic:claude-x", "apiKeyFile": "key"})).unwrap();
        assert_eq!(other.key_file.as_deref(), Some(Path::new("/etc/key")));
        assert!(other.provider().unwrap_err().message.contains("could not read the key in /etc/key"));
    }

    #[test]
    fn invalid_values_are_reported_and_a_key_on_the_command_line_is_refused() {
        for (members, part) in [
            (json!({}), "`assistant.model` is missing"),
            (json!({"model": 1}), "`assistant.model` must be a string"),
            (json!({"model": "m", "modle": "m"}), "`assistant.modle`"),
            (json!({"model": "m", "tools": "x"}), "native or text"),
            (json!({"model": "m", "apiKey": "sk-1"}), "must not be in a config"),
        ] {
            let message = named(&members).unwrap_err().message;
            assert!(message.contains(part) && !message.contains("sk-1"), "{message}");
        }
        let nowhere = named(&json!({"model": "m", "apiKeyVariable": "MCP_TEST_NEVER_SET"})).unwrap();
        assert!(nowhere.provider().unwrap_err().message.contains("neither a base URL"), "{nowhere:?}");
    }
}
