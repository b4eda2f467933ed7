//! Tools as servers describe them, and what is known about them.

mod queries;
mod replace;

use serde::Serialize;

use crate::{RawJson, ServerId, ToolId};

/// A tool as its server lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// The name on its server.
    pub original_name: String,
    /// The description of the server.
    pub description: Option<String>,
    /// The schema of the arguments.
    pub input_schema: Option<RawJson>,
    /// The whole definition, byte for byte as the server sent it.
    pub definition: RawJson,
}

fn length<S: serde::Serializer>(definition: &RawJson, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(definition.get().len().try_into().unwrap_or(u64::MAX))
}

/// A stored tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolRecord {
    /// The id, which stays the same while the server lists the tool.
    pub id: ToolId,
    /// `server.tool`.
    pub name: String,
    /// The name on its server.
    pub original_name: String,
    /// The server.
    #[serde(rename = "server_id")]
    pub source_server_id: ServerId,
    /// The name of the server.
    pub server_name: String,
    /// The description.
    pub description: Option<String>,
    /// The schema of the arguments.
    pub input_schema: Option<RawJson>,
    /// The whole definition, byte for byte as the server sent it. Serialized as its length, which is what it costs a
    /// model.
    #[serde(rename = "definition_bytes", serialize_with = "length")]
    pub definition: RawJson,
    /// Whether it comes from a server.
    pub is_external: bool,
    /// Whether it may be listed and called.
    pub enabled: bool,
    /// Whether its best skill is known for its current definition.
    pub is_classified: bool,
    /// Its skills.
    #[serde(rename = "skill_ids")]
    pub skills: Vec<String>,
    /// The confidence of each skill, from 0 to 1. Empty if unknown.
    #[serde(rename = "skill_confidences")]
    pub confidences: Vec<f64>,
    /// Its best skill.
    #[serde(rename = "primary_skill_id")]
    pub primary_skill: Option<String>,
    /// The classifier of its current definition; None if it was not classified yet.
    #[serde(skip)]
    pub classified_by: Option<String>,
    /// The position in the server's list, from 0.
    pub position: u32,
    /// A digest of name, description and schema, from which the search index is built. If it changes, the index must be
    /// updated.
    #[serde(skip)]
    pub text_hash: String,
    /// The model of the stored embedding, if there is one.
    #[serde(skip)]
    pub embedding_model: Option<String>,
}

impl ToolRecord {
    /// The record as a tree, for any content of the schema.
    pub fn to_value(&self) -> serde_json::Value {
        let schema = self.input_schema.as_ref().map(RawJson::to_value);
        let mut shown = serde_json::json!(Self { input_schema: None, ..self.clone() });
        shown["input_schema"] = schema.unwrap_or_default();
        shown
    }
}

/// A filter for tools. The default matches all.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// Only those of this server.
    pub server: Option<ServerId>,
    /// Only those of these servers, if there are any.
    pub servers: Vec<ServerId>,
    /// Only those with this name, such as `server.tool`.
    pub name: Option<String>,
    /// Only those with this name on their server.
    pub original_name: Option<String>,
    /// Only enabled ones, or only disabled ones.
    pub enabled: Option<bool>,
    /// Only those whose skills are known, or not.
    pub classified: Option<bool>,
}

/// How a new list of tools differs from the previous one, by original name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolChanges {
    /// Added tools.
    pub added: Vec<String>,
    /// Removed tools.
    pub removed: Vec<String>,
    /// Tools with a changed definition.
    pub changed: Vec<String>,
    /// The number of tools now.
    pub total: u32,
    /// The number of tools that were skipped because their names are unusable.
    pub left_out: u32,
}

impl ToolChanges {
    /// Whether nothing changed. A new order is not a change.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Tools that cannot be stored, because another program's rows in the table of tools have their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameConflicts {
    /// How many tools.
    pub tools: u64,
    /// The table, with its schema.
    pub table: String,
}

/// The classification of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Classified {
    /// The tool.
    pub tool: ToolId,
    /// The digest of the classified text ([`ToolRecord::text_hash`]).
    pub text_hash: String,
    /// Its skills.
    pub skills: Vec<String>,
    /// The confidence of each skill, from 0 to 1.
    pub confidences: Vec<f64>,
    /// Its best skill, if the confidence is high enough.
    pub primary: Option<String>,
    /// The classifier: a model and a set of skills.
    pub by: String,
}

/// The embedding of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// The tool.
    pub tool: ToolId,
    /// The digest of the embedded text ([`ToolRecord::text_hash`]).
    pub text_hash: String,
    /// The model's id.
    pub model: String,
    /// The vector in the encoding of its user.
    pub bytes: Vec<u8>,
}

/// The numbers of tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToolCounts {
    /// All tools.
    pub total: u64,
    /// Those whose skills are known.
    pub classified: u64,
}
