//! Classifications of tools by a language model, and the skills it suggests.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::database::{Mismatch, Row, values};
use crate::error::Error;
use crate::{Store, Timestamp, Transaction};

/// Classifications that were not used for this long are deleted.
const CLASSIFICATION_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// The classification of a tool by a language model.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmClassification {
    /// The name of the tool's server.
    pub server: String,
    /// The digest of the classified text ([`crate::ToolRecord::text_hash`]).
    pub text_hash: String,
    /// The classifier: a model and a set of skills.
    pub classifier: String,
    /// Skills with their confidence, highest first.
    pub skills: Vec<(String, f64)>,
}

/// A skill that a language model suggests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SuggestionRecord {
    /// The id the skill would have.
    pub id: String,
    /// The display name.
    pub name: String,
    /// What tools with this skill would do.
    pub description: String,
    /// Tools that would have it, such as `server.tool`.
    pub tools: Vec<String>,
    /// Whether it was rejected.
    pub rejected: bool,
    /// When it was first suggested.
    pub suggested_at: Timestamp,
}

impl Store {
    /// All classifications of a classifier.
    pub async fn llm_classifications(&self, classifier: &str) -> Result<Vec<LlmClassification>, Error> {
        let mut session = self.read("read classifications").await?;
        let sql = "SELECT server, text_hash, judge, skills FROM mcp.judgements WHERE judge = $1 \
            ORDER BY server, text_hash";
        session.list(sql, values![classifier], from_row).await
    }

    /// Stores classifications, all or none, and replaces earlier ones of the same classifier.
    pub async fn put_llm_classifications(&self, llm_classifications: Vec<LlmClassification>) -> Result<(), Error> {
        let mut session = self.write("store classifications").await?;
        let now = Timestamp::now();
        let old = values![now.earlier_by(CLASSIFICATION_LIFETIME)];
        session.execute("DELETE FROM mcp.judgements WHERE judged_at < $1", old).await?;
        let sql = "INSERT INTO mcp.judgements (server, text_hash, judge, skills, judged_at) VALUES ($1, $2, $3, $4, $5) \
            ON CONFLICT (server, text_hash, judge) DO UPDATE SET skills = excluded.skills, judged_at = excluded.judged_at";
        let each = llm_classifications.into_iter().map(|it| {
            let skills = serde_json::json!(it.skills);
            values![it.server, it.text_hash, it.classifier, &skills, now]
        });
        session.execute_each(sql, each.collect()).await?;
        session.commit().await
    }

    /// All suggestions, including rejected ones, by id.
    pub async fn suggestions(&self) -> Result<Vec<SuggestionRecord>, Error> {
        let mut session = self.read("read suggestions").await?;
        let sql = "SELECT id, name, description, tools, rejected, suggested_at FROM mcp.skill_suggestions ORDER BY id";
        session.list(sql, values![], suggestion_from_row).await
    }

    /// Stores a suggestion, and replaces one with the same id.
    pub async fn put_suggestion(&self, suggestion: &SuggestionRecord) -> Result<(), Error> {
        let mut transaction = self.transaction("store a suggestion").await?;
        transaction.put_suggestion(suggestion).await?;
        transaction.commit().await
    }

    /// Deletes a suggestion. Returns whether it existed.
    pub async fn delete_suggestion(&self, id: &str) -> Result<bool, Error> {
        let mut transaction = self.transaction("delete a suggestion").await?;
        let was_there = transaction.delete_suggestion(id).await?;
        transaction.commit().await?;
        Ok(was_there)
    }
}

impl Transaction {
    /// As [`Store::put_suggestion`].
    pub async fn put_suggestion(&mut self, suggestion: &SuggestionRecord) -> Result<(), Error> {
        let SuggestionRecord { id, name, description, tools, rejected, suggested_at } = suggestion;
        let sql = "INSERT INTO mcp.skill_suggestions (id, name, description, tools, rejected, suggested_at) \
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET name = excluded.name, \
            description = excluded.description, tools = excluded.tools, rejected = excluded.rejected";
        let tools = Value::from(tools.as_slice());
        self.session.execute(sql, values![id, name, description, &tools, *rejected, *suggested_at]).await.map(drop)
    }

    /// As [`Store::delete_suggestion`].
    pub async fn delete_suggestion(&mut self, id: &str) -> Result<bool, Error> {
        Ok(self.session.execute("DELETE FROM mcp.skill_suggestions WHERE id = $1", values![id]).await? > 0)
    }
}

fn from_row(row: &mut Row) -> Result<LlmClassification, Mismatch> {
    let skills = serde_json::from_value(row.take("skills")?);
    Ok(LlmClassification {
        server: row.take("server")?,
        text_hash: row.take("text_hash")?,
        classifier: row.take("judge")?,
        skills: skills.map_err(|_| Mismatch::Value { column: "skills", wanted: "list of skills" })?,
    })
}

fn suggestion_from_row(row: &mut Row) -> Result<SuggestionRecord, Mismatch> {
    let tools = serde_json::from_value(row.take("tools")?);
    Ok(SuggestionRecord {
        id: row.take("id")?,
        name: row.take("name")?,
        description: row.take("description")?,
        tools: tools.map_err(|_| Mismatch::Value { column: "tools", wanted: "list of names" })?,
        rejected: row.take("rejected")?,
        suggested_at: row.take("suggested_at")?,
    })
}
