//! Replaces the tools of a server with a new list; unchanged tools keep everything that is known about them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::adoption::ToolsTable;
use crate::database::{MOST_ROWS_IN_PLACE, Session, Value, beside, is_large, values};
use crate::error::Error;
use crate::servers::SEPARATOR;
use crate::{ListedTool, ServerId, Store, Timestamp, ToolChanges, ToolId};

/// Longer names do not fit into an index, and no client could use them.
const MAX_NAME_LEN: usize = 1024;

/// What is known of a tool before its server's list is processed.
struct Known {
    id: ToolId,
    original_name: String,
    definition: String,
    text_hash: String,
    position: i64,
}

impl Store {
    /// Replaces the tools of a server, all or nothing.
    ///
    /// An unchanged tool keeps its id, skills, embedding and enabled state. A changed one keeps its id, skills and
    /// enabled state; if its searchable text changed, it must be classified and embedded again. A tool that is listed
    /// again after it was removed is disabled if it was disabled before. A duplicate name counts once, and names of
    /// more than 1024 bytes are skipped.
    pub async fn replace_tools(
        &self,
        server: ServerId,
        tools: impl Into<Arc<[ListedTool]>>,
    ) -> Result<ToolChanges, Error> {
        let tools = tools.into();
        let mut session = self.write("store the tools of a server").await?;
        let sql = "SELECT name FROM mcp.external_servers WHERE id = $1 FOR UPDATE";
        let name: Option<String> = session.first(sql, values![server], |row| row.take("name")).await?;
        let name = name.ok_or_else(|| Error::server_not_found(&server))?;
        let known = known(&mut session, server).await?;
        let table = self.tools_table();
        let is_long = tools.len() + known.len() > MOST_ROWS_IN_PLACE
            || is_large(tools.iter().map(|tool| tool.definition.get().len()));
        let plan = beside(is_long, move || ReplacePlan::new(server, &name, &known, &tools, table)).await;
        let (changes, taken) = plan.carry_out(&mut session, server).await?;
        session.commit().await?;
        let mut conflicts = self.name_conflicts_of_servers();
        match taken {
            0 => conflicts.remove(&server),
            taken => conflicts.insert(server, taken),
        };
        Ok(changes)
    }
}

async fn known(session: &mut Session, server: ServerId) -> Result<Vec<Known>, Error> {
    let sql = "SELECT id, original_name, definition, text_hash, position FROM mcp.tools WHERE source_server_id = $1";
    session
        .list(sql, values![server], |row| {
            Ok(Known {
                id: row.take("id")?,
                original_name: row.take("original_name")?,
                definition: row.take("definition")?,
                text_hash: row.take("text_hash")?,
                position: row.take("position")?,
            })
        })
        .await
}

/// What to write, as parameters of statements.
#[derive(Default)]
struct ReplacePlan {
    table: ToolsTable,
    changes: ToolChanges,
    added: Vec<Vec<Value>>,
    /// Changed tools whose searchable text changed.
    rewritten: Vec<Vec<Value>>,
    /// Changed tools whose searchable text is the same.
    touched: Vec<Vec<Value>>,
    moved: Vec<Vec<Value>>,
    removed: Vec<Vec<Value>>,
}

impl ReplacePlan {
    fn new(server: ServerId, server_name: &str, known: &[Known], tools: &[ListedTool], table: ToolsTable) -> Self {
        let mut plan = Self { table, ..Self::default() };
        let by_name: HashMap<&str, &Known> = known.iter().map(|known| (known.original_name.as_str(), known)).collect();
        let mut seen = HashSet::new();
        for tool in tools {
            let name = tool.original_name.as_str();
            if name.len() > MAX_NAME_LEN || name.contains('\0') {
                plan.changes.left_out += 1;
                continue;
            }
            if !seen.insert(name) {
                continue;
            }
            let position = i64::try_from(seen.len() - 1).expect("a list in memory can be counted");
            match by_name.get(name) {
                None => plan.add(server, server_name, tool, position),
                Some(known) => plan.compare(known, tool, position),
            }
        }
        for gone in known.iter().filter(|known| !seen.contains(known.original_name.as_str())) {
            plan.changes.removed.push(gone.original_name.clone());
            plan.removed.push(values![gone.id]);
        }
        plan.changes.total = u32::try_from(seen.len()).unwrap_or(u32::MAX);
        plan
    }

    fn add(&mut self, server: ServerId, server_name: &str, tool: &ListedTool, position: i64) {
        self.changes.added.push(tool.original_name.clone());
        let (description, schema) = self.table.columns_of(tool);
        self.added.push(values![
            format!("{server_name}{SEPARATOR}{}", tool.original_name),
            &tool.original_name,
            description,
            schema.as_ref(),
            &tool.definition,
            server,
            position,
            text_hash(tool),
        ]);
    }

    fn compare(&mut self, known: &Known, tool: &ListedTool, position: i64) {
        if known.definition == tool.definition.get() {
            if known.position != position {
                self.moved.push(values![known.id, position]);
            }
            return;
        }
        self.changes.changed.push(tool.original_name.clone());
        let (description, schema) = self.table.columns_of(tool);
        let text_hash = text_hash(tool);
        let is_searched_the_same = known.text_hash == text_hash;
        let values = values![known.id, position, description, schema.as_ref(), &tool.definition, text_hash];
        if is_searched_the_same { self.touched.push(values) } else { self.rewritten.push(values) }
    }

    /// Writes the plan. Returns the differences, and how many tools were not stored because rows of another program have
    /// their names.
    async fn carry_out(self, session: &mut Session, server: ServerId) -> Result<(ToolChanges, u64), Error> {
        let is_same = self.changes.is_empty();
        session.execute_each("DELETE FROM mcp.tools WHERE id = $1", self.removed).await?;
        let uses = "DELETE FROM mcp.tool_uses WHERE server_id = $1 AND tool = $2";
        let removed = self.changes.removed.iter().map(|tool| values![server, tool]).collect();
        session.execute_each(uses, removed).await?;
        session.execute_each("UPDATE mcp.tools SET position = $2 WHERE id = $1", self.moved).await?;
        let touch = "UPDATE mcp.tools SET position = $2, description = $3, input_schema = $4, definition = $5, \
            text_hash = $6 WHERE id = $1";
        session.execute_each(touch, self.touched).await?;
        let rewrite = "UPDATE mcp.tools SET position = $2, description = $3, input_schema = $4, definition = $5, \
            text_hash = $6, is_classified = FALSE, classified_by = NULL, embedding = NULL, embedding_model = NULL \
            WHERE id = $1";
        session.execute_each(rewrite, self.rewritten).await?;
        let add = "INSERT INTO mcp.tools (name, original_name, description, input_schema, definition, \
            source_server_id, position, text_hash, is_external, is_classified, skills, confidences, enabled) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, TRUE, FALSE, '[]', '[]', NOT EXISTS \
            (SELECT 1 FROM mcp.tool_switches AS off WHERE off.source_server_id = $6 AND off.original_name = $2)) \
            ON CONFLICT DO NOTHING";
        let mut changes = self.changes;
        let wanted = self.added.len() as u64;
        let added = session.execute_each(add, self.added).await?;
        let taken = wanted.saturating_sub(added);
        if taken > 0 {
            // Only in a table of another program, where names are unique among all tools.
            tracing::error!(
                %server,
                left_out = taken,
                "some tools were not stored: rows of other programs in the table `tools` have the same names"
            );
            changes.left_out += u32::try_from(taken).unwrap_or(u32::MAX);
        }
        if is_same {
            return Ok((changes, taken));
        }
        let count = "UPDATE mcp.external_servers SET tool_count = $1, updated_at = $2 WHERE id = $3";
        session.execute(count, values![changes.total, Timestamp::now(), server]).await?;
        Ok((changes, taken))
    }
}

/// A digest of the searchable text of a tool.
fn text_hash(tool: &ListedTool) -> String {
    let schema = tool.input_schema.as_ref().map_or("", |schema| schema.get());
    let mut digest = Sha256::new();
    for part in [&tool.original_name, tool.description.as_deref().unwrap_or_default(), schema] {
        digest.update(part.len().to_le_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
