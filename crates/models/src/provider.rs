//! The address, credentials and dialect of a model.

use std::fmt;
use std::str::FromStr;

/// A provider and one of its models.
#[derive(Debug, Clone)]
pub struct Provider {
    /// The API it speaks.
    pub dialect: Dialect,
    /// The URL before `/chat/completions` or `/v1/messages`.
    pub base_url: String,
    /// The API key. Local servers need none.
    pub key: Option<Key>,
    /// The name of the model.
    pub model: String,
    /// Whether the model accepts images.
    pub sees_images: bool,
    /// How the model gets tools.
    pub tool_calling: ToolCalling,
}

/// The APIs of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's chat completions, which Ollama, llama.cpp, vLLM and most others support, too.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

/// How a model gets tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolCalling {
    /// Through the API; as text if the provider reports that the model does not support them.
    #[default]
    Native,
    /// As text, see [`crate::text_calls`].
    Text,
}

/// An API key. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

/// Why no model is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// No address is configured.
    #[error(
        "no model is configured; set OPENAI_BASE_URL (such as http://localhost:11434/v1) or OPENAI_API_KEY or ANTHROPIC_API_KEY"
    )]
    NotConfigured,
    /// No model name is configured.
    #[error("no model is named; set MCP_MODEL to a model of {0}")]
    Unnamed(String),
    /// An unknown dialect.
    #[error("`{0}` is not a kind of provider; use openai or anthropic")]
    UnknownDialect(String),
}

/// The environment variables that configure a model.
pub mod variables {
    /// The name of the model.
    pub const MODEL: &str = "MCP_MODEL";
    /// `openai` or `anthropic`, if both are configured.
    pub const PROVIDER: &str = "MCP_MODEL_PROVIDER";
    /// `text` for models without tool support.
    pub const TOOLS: &str = "MCP_MODEL_TOOLS";
    /// `true` if the model accepts images, `false` if not.
    pub const IMAGES: &str = "MCP_MODEL_IMAGES";
    /// The base URL of an OpenAI-compatible server.
    pub const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
    /// The API key for it.
    pub const OPENAI_API_KEY: &str = "OPENAI_API_KEY";
    /// The base URL of Anthropic or a compatible server.
    pub const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
    /// The API key for it.
    pub const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
}

const OPENAI: &str = "https://api.openai.com/v1";
const ANTHROPIC: &str = "https://api.anthropic.com";

impl Provider {
    /// A model with OpenAI's API.
    pub fn openai(base_url: impl Into<String>, key: Option<Key>, model: impl Into<String>) -> Self {
        Self::new(Dialect::OpenAi, base_url, key, model)
    }

    /// A model with Anthropic's API.
    pub fn anthropic(base_url: impl Into<String>, key: Option<Key>, model: impl Into<String>) -> Self {
        Self::new(Dialect::Anthropic, base_url, key, model)
    }

    /// A model with the given API.
    pub fn new(dialect: Dialect, base_url: impl Into<String>, key: Option<Key>, model: impl Into<String>) -> Self {
        Self {
            dialect,
            base_url: base_url.into(),
            key,
            model: model.into(),
            // Many OpenAI-compatible models have no vision, and refuse a conversation with images.
            sees_images: dialect == Dialect::Anthropic,
            tool_calling: ToolCalling::Native,
        }
    }

    /// The model that the environment configures, see [`variables`]; `model` takes precedence.
    /// `MCP_MODEL=anthropic:NAME` or `openai:NAME` also chooses the provider.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
        model: Option<&str>,
    ) -> Result<Self, ProviderError> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let named = model.map(str::to_owned).or_else(|| set(variables::MODEL));
        let prefixed = named.as_deref().and_then(|named| {
            let (dialect, model) = named.split_once(':')?;
            Some((dialect.parse::<Dialect>().ok()?, model.to_owned()))
        });
        let said = set(variables::PROVIDER).map(|word| word.parse()).transpose()?;
        let has = |names: [&str; 2]| names.iter().any(|name| set(name).is_some());
        let dialect = match (&prefixed, said) {
            (Some((dialect, _)), _) => *dialect,
            (None, Some(dialect)) => dialect,
            _ if has([variables::OPENAI_BASE_URL, variables::OPENAI_API_KEY]) => Dialect::OpenAi,
            _ if has([variables::ANTHROPIC_BASE_URL, variables::ANTHROPIC_API_KEY]) => Dialect::Anthropic,
            _ => return Err(ProviderError::NotConfigured),
        };
        let (url, key, usual) = match dialect {
            Dialect::OpenAi => (variables::OPENAI_BASE_URL, variables::OPENAI_API_KEY, OPENAI),
            Dialect::Anthropic => (variables::ANTHROPIC_BASE_URL, variables::ANTHROPIC_API_KEY, ANTHROPIC),
        };
        let base_url = set(url).unwrap_or_else(|| usual.to_owned());
        let model =
            prefixed.map(|(_, model)| model).or(named).ok_or_else(|| ProviderError::Unnamed(base_url.clone()))?;
        let mut provider = Self::new(dialect, base_url, set(key).map(Key::new), model);
        if set(variables::TOOLS).is_some_and(|word| word == "text") {
            provider.tool_calling = ToolCalling::Text;
        }
        if let Some(word) = set(variables::IMAGES) {
            provider.sees_images = matches!(word.as_str(), "true" | "1" | "yes");
        }
        Ok(provider)
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        let base = self.base_url.trim_end_matches('/');
        // Base URLs of Anthropic are written with and without the version.
        let base = if path.starts_with("/v1/") { base.strip_suffix("/v1").unwrap_or(base) } else { base };
        format!("{base}{path}")
    }

    /// The headers of every request.
    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        let header = |name: &str, value: String| (name.to_owned(), value);
        let key = self.key.as_ref().map(|Key(key)| key);
        match self.dialect {
            Dialect::OpenAi => key.map(|key| header("authorization", format!("Bearer {key}"))).into_iter().collect(),
            Dialect::Anthropic => {
                let version = header("anthropic-version", "2023-06-01".to_owned());
                key.map(|key| header("x-api-key", key.clone())).into_iter().chain([version]).collect()
            }
        }
    }

    /// The model and its address, for messages.
    pub fn shown(&self) -> String {
        let place = self.base_url.split(['?', '#']).next().unwrap_or_default();
        // A password in the URL must not appear in messages.
        let place = match (place.split_once("://"), place.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => place.to_owned(),
        };
        format!("`{}` at {place}", self.model)
    }

    /// Removes the key from a text, because some providers repeat it.
    pub(crate) fn hide(&self, text: &str) -> String {
        match &self.key {
            Some(Key(key)) if !key.is_empty() => text.replace(key.as_str(), "[key]"),
            _ => text.to_owned(),
        }
    }
}

impl Key {
    /// A key. White space around it, as in files, is removed.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl FromStr for Dialect {
    type Err = ProviderError;

    fn from_str(word: &str) -> Result<Self, ProviderError> {
        match word {
            "openai" => Ok(Self::OpenAi),
            "anthropic" => Ok(Self::Anthropic),
            _ => Err(ProviderError::UnknownDialect(word.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(set: &[(&str, &str)], model: Option<&str>) -> Result<Provider, ProviderError> {
        let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Provider::from_environment(variable, model)
    }

    #[test]
    fn the_environment_names_a_model() {
        let local = provider(&[("OPENAI_BASE_URL", "http://localhost:11434/v1/"), ("MCP_MODEL", "llama3:8b")], None);
        let local = local.unwrap();
        assert_eq!(local.url("/chat/completions"), "http://localhost:11434/v1/chat/completions");
        assert_eq!((local.model.as_str(), local.headers().len(), local.sees_images), ("llama3:8b", 0, false));

        let claude = provider(&[("ANTHROPIC_API_KEY", " k \n")], Some("claude-x")).unwrap();
        assert_eq!(claude.url("/v1/messages"), "https://api.anthropic.com/v1/messages");
        assert_eq!(claude.headers()[0], ("x-api-key".to_owned(), "k".to_owned()));

        let both = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o"), ("MCP_MODEL", "anthropic:claude-x")];
        let chosen = provider(&both, None).unwrap();
        assert_eq!((chosen.dialect, chosen.model.as_str()), (Dialect::Anthropic, "claude-x"));
    }

    #[test]
    fn what_is_missing_is_reported() {
        assert_eq!(provider(&[], Some("x")).unwrap_err(), ProviderError::NotConfigured);
        let unnamed = provider(&[("OPENAI_API_KEY", "o")], None).unwrap_err();
        assert!(unnamed.to_string().contains("MCP_MODEL"), "{unnamed}");
        assert!(provider(&[("MCP_MODEL_PROVIDER", "x")], None).is_err());
    }

    #[test]
    fn a_key_is_never_displayed() {
        let provider = Provider::openai("http://user:secret@host/v1", Some(Key::new("sk-123")), "m");
        assert!(!format!("{:?}", provider.key).contains("sk-123"));
        assert_eq!(provider.shown(), "`m` at http://host/v1");
        assert_eq!(provider.hide("Incorrect API key provided: sk-123."), "Incorrect API key provided: [key].");
    }
}
