//! Tools as servers described them, and what we know about them besides.

mod queries;
mod replace;

use serde::Serialize;

use crate::{RawJson, ServerId, ToolId};

/// A tool as its server lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// The name its server gave it.
    pub original_name: String,
    /// What it does, in its server's words.
    pub description: Option<String>,
    /// What it takes.
    pub input_schema: Option<RawJson>,
    /// The whole definition, byte for byte as the server sent it.
    pub definition: RawJson,
}

fn length<S: serde::Serializer>(definition: &RawJson, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(definition.get().len().try_into().unwrap_or(u64::MAX))
}

/// A tool as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolRecord {
    /// Its id, as long as its server lists it.
    pub id: ToolId,
    /// `server.tool`.
    pub name: String,
    /// The name its server gave it.
    pub original_name: String,
    /// Whose it is.
    #[serde(rename = "server_id")]
    pub source_server_id: ServerId,
    /// Its server's name.
    pub server_name: String,
    /// What it does.
    pub description: Option<String>,
    /// What it takes.
    pub input_schema: Option<RawJson>,
    /// The whole definition, byte for byte as the server sent it. Told is how long it is: what it costs a model.
    #[serde(rename = "definition_bytes", serialize_with = "length")]
    pub definition: RawJson,
    /// It comes from a server and not from ourselves.
    pub is_external: bool,
    /// Whether it may be listed and called.
    pub enabled: bool,
    /// Whether it is known what it is best at, and belongs to what it does today.
    pub is_classified: bool,
    /// What it is good for.
    #[serde(rename = "skill_ids")]
    pub skills: Vec<String>,
    /// How certain each of these is, from 0 to 1. Nothing where it was never told.
    #[serde(rename = "skill_confidences")]
    pub confidences: Vec<f64>,
    /// What it is best at.
    #[serde(rename = "primary_skill_id")]
    pub primary_skill: Option<String>,
    /// What said so, whatever it said; nothing if it was not asked since the tool reads as it does.
    #[serde(skip)]
    pub classified_by: Option<String>,
    /// Its place in its server's list, from 0.
    pub position: u32,
    /// A digest of name, description and schema: what a search index is made of. If it changed, so must the index.
    #[serde(skip)]
    pub text_hash: String,
    /// Which model made the embedding that is kept, if one is.
    #[serde(skip)]
    pub embedding_model: Option<String>,
}

impl ToolRecord {
    /// The record as a tree, whatever its server wrote into its schema.
    pub fn to_value(&self) -> serde_json::Value {
        let schema = self.input_schema.as_ref().map(RawJson::to_value);
        let mut shown = serde_json::json!(Self { input_schema: None, ..self.clone() });
        shown["input_schema"] = schema.unwrap_or_default();
        shown
    }
}

/// Which tools are wanted. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// Only those of this server.
    pub server: Option<ServerId>,
    /// Only those under this name, as in `server.tool`.
    pub name: Option<String>,
    /// Only those that their servers call so.
    pub original_name: Option<String>,
    /// Only those that are switched on, or off.
    pub enabled: Option<bool>,
    /// Only those whose skills are known, or not.
    pub classified: Option<bool>,
}

/// What became different when a server's tools were replaced, by their original names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolChanges {
    /// New ones.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those whose definition reads differently.
    pub changed: Vec<String>,
    /// How many there are now.
    pub total: u32,
    /// How many were left out because nobody could use their names.
    pub left_out: u32,
}

impl ToolChanges {
    /// Whether nothing is different. A new order alone is no difference.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// What a tool is good for.
#[derive(Debug, Clone, PartialEq)]
pub struct Classified {
    /// Which tool.
    pub tool: ToolId,
    /// The digest of what was judged ([`ToolRecord::text_hash`]).
    pub text_hash: String,
    /// All it is good for.
    pub skills: Vec<String>,
    /// How certain each of these is, from 0 to 1.
    pub confidences: Vec<f64>,
    /// What it is best at, if that is certain enough.
    pub primary: Option<String>,
    /// What said so: a model and a set of skills.
    pub by: String,
}

/// A tool's place in a space of meanings.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// Whose.
    pub tool: ToolId,
    /// The digest of what was embedded ([`ToolRecord::text_hash`]).
    pub text_hash: String,
    /// The model's id.
    pub model: String,
    /// The numbers, as the model's owner writes them.
    pub bytes: Vec<u8>,
}

/// How many tools there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToolCounts {
    /// All.
    pub total: u64,
    /// Those whose skills are known.
    pub classified: u64,
}
