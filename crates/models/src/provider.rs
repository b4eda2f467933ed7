//! Where a model is, and how it is spoken to.

use std::fmt;
use std::str::FromStr;

/// Where a model is.
#[derive(Debug, Clone)]
pub struct Provider {
    /// How it is spoken to.
    pub dialect: Dialect,
    /// Everything before `/chat/completions` or `/v1/messages`.
    pub base_url: String,
    /// What lets us in. Local servers want none.
    pub key: Option<Key>,
    /// Which of its models.
    pub model: String,
    /// It can look at pictures.
    pub sees_images: bool,
    /// How it is told of tools.
    pub tool_calling: ToolCalling,
}

/// How models are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's chat completions, which Ollama, llama.cpp, vLLM and most others speak, too.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

/// How a model is told of tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolCalling {
    /// In the way of its provider; in words, if the provider says that the model cannot.
    #[default]
    Native,
    /// In words, see [`crate::text_calls`].
    Text,
}

/// What lets us in. It is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

/// Why there is no model to be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Nothing says where.
    #[error(
        "no model is configured; set OPENAI_BASE_URL (such as http://localhost:11434/v1) or OPENAI_API_KEY or ANTHROPIC_API_KEY"
    )]
    Nowhere,
    /// Nothing says which.
    #[error("no model is named; set MCP_MODEL to one that {0} has")]
    Unnamed(String),
    /// A word that is no way to speak.
    #[error("`{0}` is no kind of provider; there are openai and anthropic")]
    UnknownDialect(String),
}

/// The environment variables that say where a model is.
pub mod variables {
    /// Which model.
    pub const MODEL: &str = "MCP_MODEL";
    /// `openai` or `anthropic`, where both could be meant.
    pub const PROVIDER: &str = "MCP_MODEL_PROVIDER";
    /// `text` for models that cannot call tools by themselves.
    pub const TOOLS: &str = "MCP_MODEL_TOOLS";
    /// `true` if the model looks at pictures, `false` if not.
    pub const IMAGES: &str = "MCP_MODEL_IMAGES";
    /// Where something is that speaks like OpenAI.
    pub const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
    /// What lets us in there.
    pub const OPENAI_API_KEY: &str = "OPENAI_API_KEY";
    /// Where something is that speaks like Anthropic.
    pub const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
    /// What lets us in there.
    pub const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
}

const OPENAI: &str = "https://api.openai.com/v1";
const ANTHROPIC: &str = "https://api.anthropic.com";

impl Provider {
    /// A model that speaks like OpenAI's.
    pub fn openai(base_url: impl Into<String>, key: Option<Key>, model: impl Into<String>) -> Self {
        Self::new(Dialect::OpenAi, base_url, key, model)
    }

    /// A model that speaks like Anthropic's.
    pub fn anthropic(base_url: impl Into<String>, key: Option<Key>, model: impl Into<String>) -> Self {
        Self::new(Dialect::Anthropic, base_url, key, model)
    }

    /// A model.
    pub fn new(dialect: Dialect, base_url: impl Into<String>, key: Option<Key>, model: impl Into<String>) -> Self {
        Self {
            dialect,
            base_url: base_url.into(),
            key,
            model: model.into(),
            // Among those who speak like OpenAI many see nothing, and refuse a conversation with pictures in it.
            sees_images: dialect == Dialect::Anthropic,
            tool_calling: ToolCalling::Native,
        }
    }

    /// The model that the environment names, see [`variables`]; `model` is what the user said elsewhere, and counts more.
    /// With `MCP_MODEL=anthropic:NAME` or `openai:NAME` the model says whose it is.
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
            _ => return Err(ProviderError::Nowhere),
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

    /// The address of something below.
    pub(crate) fn url(&self, path: &str) -> String {
        let base = self.base_url.trim_end_matches('/');
        // People write Anthropic's with and without the version.
        let base = if path.starts_with("/v1/") { base.strip_suffix("/v1").unwrap_or(base) } else { base };
        format!("{base}{path}")
    }

    /// What every request says beside its body.
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

    /// For people: which model, and where.
    pub fn shown(&self) -> String {
        let place = self.base_url.split(['?', '#']).next().unwrap_or_default();
        // Whoever puts a password into an address does not want to read it in a message.
        let place = match (place.split_once("://"), place.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => place.to_owned(),
        };
        format!("`{}` at {place}", self.model)
    }

    /// A text without the key, which some providers repeat.
    pub(crate) fn hide(&self, text: &str) -> String {
        match &self.key {
            Some(Key(key)) if !key.is_empty() => text.replace(key.as_str(), "[key]"),
            _ => text.to_owned(),
        }
    }
}

impl Key {
    /// A key. White space around it, as in files, is none of it.
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
        let told = provider(&both, None).unwrap();
        assert_eq!((told.dialect, told.model.as_str()), (Dialect::Anthropic, "claude-x"));
    }

    #[test]
    fn what_is_missing_is_reported() {
        assert_eq!(provider(&[], Some("x")).unwrap_err(), ProviderError::Nowhere);
        let unnamed = provider(&[("OPENAI_API_KEY", "o")], None).unwrap_err();
        assert!(unnamed.to_string().contains("MCP_MODEL"), "{unnamed}");
        assert!(provider(&[("MCP_MODEL_PROVIDER", "x")], None).is_err());
    }

    #[test]
    fn a_key_is_shown_to_nobody() {
        let provider = Provider::openai("http://user:secret@host/v1", Some(Key::new("sk-123")), "m");
        assert!(!format!("{:?}", provider.key).contains("sk-123"));
        assert_eq!(provider.shown(), "`m` at http://host/v1");
        assert_eq!(provider.hide("Incorrect API key provided: sk-123."), "Incorrect API key provided: [key].");
    }
}
