//! Lists tools, and stores what is known about them.

use std::collections::HashMap;

use crate::adoption::{self, ToolsTable};
use crate::database::{Mismatch, Row, values};
use crate::error::Error;
use crate::select::{Columns, Filter};
use crate::{
    Classified, Embedding, Listed, Location, NameConflicts, Page, RawJson, ServerId, Store, ToolCounts, ToolFilter,
    ToolId, ToolRecord, Transaction,
};

const COLUMNS: Columns = Columns {
    columns: "t.id, t.name, t.original_name, t.source_server_id, s.name AS server_name, t.description, t.input_schema, \
        t.definition, t.is_external, t.enabled, t.is_classified, t.skills, t.confidences, t.primary_skill, \
        t.classified_by, t.position, t.text_hash, t.embedding_model",
    tables: "mcp.tools AS t JOIN mcp.external_servers AS s ON s.id = t.source_server_id",
    order: "s.name, t.position, t.id",
};

impl Store {
    /// Tools, grouped by server name, in the order of each server's list.
    pub async fn tools(&self, filter: &ToolFilter, page: Page) -> Result<Listed<ToolRecord>, Error> {
        let mut session = self.read("list tools").await?;
        let wanted = Filter::default()
            .and("t.source_server_id =", filter.server)
            .and_one_of("t.source_server_id", filter.servers.iter().copied())
            .and("t.name =", filter.name.as_ref())
            .and("t.original_name =", filter.original_name.as_ref())
            .and("t.enabled =", filter.enabled)
            .and("t.is_classified =", filter.classified);
        let table = self.tools_table();
        wanted.page(&mut session, COLUMNS, page, move |row| from_row(row, table)).await
    }

    /// The tool with an id.
    pub async fn tool(&self, id: ToolId) -> Result<ToolRecord, Error> {
        let mut session = self.read("read a tool").await?;
        let Columns { columns, tables, .. } = COLUMNS;
        let sql = format!("SELECT {columns} FROM {tables} WHERE t.id = $1");
        let table = self.tools_table();
        session.first(&sql, values![id], |row| from_row(row, table)).await?.ok_or_else(|| not_found(id))
    }

    /// The numbers of tools.
    pub async fn tool_counts(&self) -> Result<ToolCounts, Error> {
        let mut session = self.read("count tools").await?;
        let sql = "SELECT is_classified, count(*) AS n FROM mcp.tools WHERE source_server_id IS NOT NULL \
            GROUP BY is_classified";
        let counted = session.all(sql, values![], |row| Ok((row.take("is_classified")?, row.take("n")?))).await?;
        let mut counts = ToolCounts::default();
        for (is_classified, n) in counted {
            counts.total += n;
            counts.classified += if is_classified { n } else { 0 };
        }
        Ok(counts)
    }

    /// The number of stored tools of each server that has any.
    pub async fn tool_counts_of_servers(&self) -> Result<HashMap<ServerId, u64>, Error> {
        let mut session = self.read("count the tools of servers").await?;
        let sql = "SELECT source_server_id, count(*) AS n FROM mcp.tools WHERE source_server_id IS NOT NULL \
            GROUP BY source_server_id";
        let counted = session.all(sql, values![], |row| Ok((row.take("source_server_id")?, row.take("n")?))).await?;
        Ok(counted.into_iter().collect())
    }

    /// Tools of registered servers that cannot be stored because another program's rows in the table of tools have their
    /// names. Needs no database access.
    pub fn name_conflicts(&self, is_registered: impl Fn(ServerId) -> bool) -> Option<NameConflicts> {
        let tools = {
            let mut conflicts = self.name_conflicts_of_servers();
            conflicts.retain(|server, _| is_registered(*server));
            conflicts.values().sum()
        };
        let schema = match self.location() {
            Location::Postgres(place) => place.schema.as_str().to_owned(),
            Location::File(_) => return None,
        };
        (tools > 0).then(|| NameConflicts { tools, table: format!("{schema}.tools") })
    }

    /// Enables or disables tools, all or none. A disabled tool stays disabled, even if its server removes it and lists
    /// it again.
    pub async fn set_tools_enabled(&self, ids: &[ToolId], enabled: bool) -> Result<(), Error> {
        let mut transaction = self.transaction("enable or disable tools").await?;
        transaction.set_tools_enabled(ids, enabled).await?;
        transaction.commit().await
    }

    /// The disabled tools of a server by their original names, including those that it does not list now.
    pub async fn disabled_tools(&self, server: ServerId) -> Result<Vec<String>, Error> {
        let mut session = self.read("read disabled tools").await?;
        let sql = "SELECT original_name FROM mcp.tool_switches WHERE source_server_id = $1 ORDER BY original_name";
        session.all(sql, values![server], |row| row.take("original_name")).await
    }

    /// The number of tools of these servers, enabled or not if that is given, and the length of their definitions in
    /// bytes. Reads no definition.
    pub async fn measure_tools(&self, servers: &[ServerId], enabled: Option<bool>) -> Result<(u64, u64), Error> {
        if servers.is_empty() {
            return Ok((0, 0));
        }
        let mut session = self.read("measure tools").await?;
        let length = match session.is_postgres() {
            true => "octet_length(definition)",
            false => "length(CAST(definition AS BLOB))",
        };
        let wanted =
            Filter::default().and_one_of("source_server_id", servers.iter().copied()).and("enabled =", enabled);
        let columns = format!("count(*) AS n, CAST(COALESCE(SUM({length}), 0) AS BIGINT) AS bytes");
        let measured = wanted.only(&mut session, &columns, "mcp.tools", |row| Ok((row.take("n")?, row.take("bytes")?)));
        Ok(measured.await?.unwrap_or_default())
    }

    /// The whole names of the tools of a server, in the order of its list.
    pub async fn tool_names(&self, server: ServerId) -> Result<Vec<String>, Error> {
        let mut session = self.read("list the names of tools").await?;
        let sql = "SELECT name FROM mcp.tools WHERE source_server_id = $1 ORDER BY position, id";
        session.list(sql, values![server], |row| row.take("name")).await
    }

    /// Stores classifications, all or none. Skips tools that were removed or changed in the meantime. Returns how many
    /// were stored.
    pub async fn put_classified(&self, classified: Vec<Classified>) -> Result<u64, Error> {
        let mut session = self.write("classify tools").await?;
        let sql = "UPDATE mcp.tools SET skills = $1, primary_skill = $2, is_classified = $3, classified_by = $4, \
            confidences = $7 WHERE id = $5 AND text_hash = $6";
        let each = classified.into_iter().map(|it| {
            let (skills, is_classified) = (serde_json::Value::from(it.skills), it.primary.is_some());
            let confidences = serde_json::Value::from(it.confidences);
            values![&skills, it.primary, is_classified, it.by, it.tool, it.text_hash, &confidences]
        });
        let kept = session.execute_each(sql, each.collect()).await?;
        session.commit().await?;
        Ok(kept)
    }

    /// Stores embeddings, all or none. Skips tools that were removed or changed in the meantime. Returns how many were
    /// stored.
    pub async fn put_embeddings(&self, embeddings: Vec<Embedding>) -> Result<u64, Error> {
        let mut session = self.write("store embeddings").await?;
        let sql = "UPDATE mcp.tools SET embedding = $1, embedding_model = $2 WHERE id = $3 AND text_hash = $4";
        let each = embeddings.into_iter().map(|it| values![it.bytes, it.model, it.tool, it.text_hash]).collect();
        let kept = session.execute_each(sql, each).await?;
        session.commit().await?;
        Ok(kept)
    }

    /// The embeddings of a model.
    pub async fn embeddings(&self, model: &str) -> Result<Vec<Embedding>, Error> {
        let mut session = self.read("read embeddings").await?;
        let sql = "SELECT id, text_hash, embedding_model, embedding FROM mcp.tools \
            WHERE embedding_model = $1 AND embedding IS NOT NULL ORDER BY id";
        session
            .list(sql, values![model], |row| {
                Ok(Embedding {
                    tool: row.take("id")?,
                    text_hash: row.take("text_hash")?,
                    model: row.take("embedding_model")?,
                    bytes: row.take("embedding")?,
                })
            })
            .await
    }
}

impl Transaction {
    /// As [`Store::set_tools_enabled`].
    pub async fn set_tools_enabled(&mut self, ids: &[ToolId], enabled: bool) -> Result<(), Error> {
        let session = &mut self.session;
        for id in ids {
            let found =
                session.execute("UPDATE mcp.tools SET enabled = $1 WHERE id = $2", values![enabled, *id]).await?;
            if found == 0 {
                return Err(not_found(*id));
            }
        }
        let remember = if enabled {
            "DELETE FROM mcp.tool_switches WHERE EXISTS (SELECT 1 FROM mcp.tools AS t WHERE t.id = $1 \
             AND t.source_server_id = tool_switches.source_server_id AND t.original_name = tool_switches.original_name)"
        } else {
            "INSERT INTO mcp.tool_switches (source_server_id, original_name) \
             SELECT source_server_id, original_name FROM mcp.tools WHERE id = $1 ON CONFLICT DO NOTHING"
        };
        session.execute_each(remember, ids.iter().map(|id| values![*id]).collect()).await.map(drop)
    }
}

fn not_found(id: ToolId) -> Error {
    Error::NotFound { what: "tool", key: id.to_string() }
}

fn from_row(row: &mut Row, table: ToolsTable) -> Result<ToolRecord, Mismatch> {
    let definition: RawJson = row.take("definition")?;
    let (description, input_schema) = match table {
        ToolsTable::Own => (row.take("description")?, row.take("input_schema")?),
        ToolsTable::Adopted => adoption::described(&definition),
    };
    let skills = serde_json::from_value(row.take("skills")?);
    let confidences = serde_json::from_value(row.take("confidences")?);
    Ok(ToolRecord {
        id: row.take("id")?,
        name: row.take("name")?,
        original_name: row.take("original_name")?,
        source_server_id: row.take("source_server_id")?,
        server_name: row.take("server_name")?,
        description,
        input_schema,
        definition,
        is_external: row.take("is_external")?,
        enabled: row.take("enabled")?,
        is_classified: row.take("is_classified")?,
        skills: skills.map_err(|_| Mismatch::Value { column: "skills", wanted: "list of words" })?,
        confidences: confidences.map_err(|_| Mismatch::Value { column: "confidences", wanted: "list of numbers" })?,
        primary_skill: row.take("primary_skill")?,
        classified_by: row.take("classified_by")?,
        position: row.take("position")?,
        text_hash: row.take("text_hash")?,
        embedding_model: row.take("embedding_model")?,
    })
}
