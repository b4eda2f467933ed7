//! Skills that an administrator changed, disabled or created. Built-in skills are not stored here.

use serde::{Deserialize, Serialize};

use crate::database::{Mismatch, Row, Session, values};
use crate::error::Error;
use crate::{Store, Timestamp, Transaction};

/// A stored skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillRecord {
    /// The id.
    pub id: String,
    /// The display name.
    pub name: String,
    /// What tools with this skill do.
    pub description: String,
    /// Example requests for such tools.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Whether tools can have it.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

impl Store {
    /// All stored skills, by id.
    pub async fn skills(&self) -> Result<Vec<SkillRecord>, Error> {
        all(&mut self.read("read skills").await?).await
    }

    /// Stores a skill, and replaces one with the same id.
    pub async fn put_skill(&self, skill: &SkillRecord) -> Result<(), Error> {
        let mut transaction = self.transaction("store a skill").await?;
        transaction.put_skill(skill).await?;
        transaction.commit().await
    }

    /// Deletes a skill. Returns whether it existed.
    pub async fn delete_skill(&self, id: &str) -> Result<bool, Error> {
        let mut transaction = self.transaction("delete a skill").await?;
        let was_there = transaction.delete_skill(id).await?;
        transaction.commit().await?;
        Ok(was_there)
    }
}

impl Transaction {
    /// As [`Store::put_skill`].
    pub async fn put_skill(&mut self, skill: &SkillRecord) -> Result<(), Error> {
        put(&mut self.session, skill).await
    }

    /// As [`Store::delete_skill`].
    pub async fn delete_skill(&mut self, id: &str) -> Result<bool, Error> {
        Ok(self.session.execute("DELETE FROM mcp.skills WHERE id = $1", values![id]).await? > 0)
    }
}

pub(crate) async fn all(session: &mut Session) -> Result<Vec<SkillRecord>, Error> {
    let sql = "SELECT id, name, description, examples, enabled FROM mcp.skills ORDER BY id";
    session.all(sql, values![], from_row).await
}

pub(crate) async fn put(session: &mut Session, skill: &SkillRecord) -> Result<(), Error> {
    let SkillRecord { id, name, description, examples, enabled } = skill;
    if [id, name, description].iter().any(|text| text.trim().is_empty()) {
        return Err(Error::Invalid { what: "a skill must have an id, a name and a description".to_owned() });
    }
    let sql = "INSERT INTO mcp.skills (id, name, description, examples, enabled, updated_at) \
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET name = excluded.name, \
        description = excluded.description, examples = excluded.examples, enabled = excluded.enabled, \
        updated_at = excluded.updated_at";
    let examples = serde_json::Value::from(examples.as_slice());
    let values = values![id, name, description, &examples, *enabled, Timestamp::now()];
    session.execute(sql, values).await.map(drop)
}

fn from_row(row: &mut Row) -> Result<SkillRecord, Mismatch> {
    let examples = serde_json::from_value(row.take("examples")?);
    Ok(SkillRecord {
        id: row.take("id")?,
        name: row.take("name")?,
        description: row.take("description")?,
        examples: examples.map_err(|_| Mismatch::Value { column: "examples", wanted: "list of texts" })?,
        enabled: row.take("enabled")?,
    })
}
