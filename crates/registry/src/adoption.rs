//! Takes over a PostgreSQL table `tools` that another program created: adds missing columns, refuses a table that does
//! not fit, and drops nothing. Rows of other programs are not changed; ours are those with a `source_server_id`.

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::database::{Database, Session, values};
use crate::error::{Error, OpenError};
use crate::location::SchemaName;
use crate::{ListedTool, RawJson};

/// Which program created the table of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ToolsTable {
    /// The registry did.
    #[default]
    Own,
    /// Another program did: columns may be NOT NULL, and `input_schema` may be JSONB, which does not preserve the text
    /// of the server. `definition` has the whole text.
    Adopted,
}

/// The key in the registry's metadata that records the takeover.
const KEY: &str = "adopted_tools";

const TABLE: &str = "tools";

/// The other tables of the registry, which must not belong to another program.
const OWN_TABLES: [&str; 16] = [
    "registry_meta",
    "external_servers",
    "server_connection_history",
    "settings",
    "executions",
    "section_bindings",
    "audit_log",
    "skills",
    "judgements",
    "skill_suggestions",
    "tool_switches",
    "oauth_grants",
    "tool_uses",
    "client_profiles",
    "call_limits",
    "limit_counts",
];

/// A column that the registry needs.
struct Column {
    name: &'static str,
    /// The definition, if the column is missing.
    definition: &'static str,
    /// The allowed types, if the column exists.
    types: &'static [&'static str],
    /// Whether the registry writes NULL into it.
    is_emptied: bool,
}

const fn column(name: &'static str, definition: &'static str, types: &'static [&'static str]) -> Column {
    Column { name, definition, types, is_emptied: false }
}

const fn emptied(name: &'static str, definition: &'static str, types: &'static [&'static str]) -> Column {
    Column { name, definition, types, is_emptied: true }
}

const TEXTS: &[&str] = &["text", "varchar"];
const NUMBERS: &[&str] = &["int8", "int4"];

const COLUMNS: [Column; 18] = [
    column("id", "BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE", NUMBERS),
    column("name", "TEXT", TEXTS),
    column("original_name", "TEXT", TEXTS),
    column("description", "TEXT", TEXTS),
    column("input_schema", "TEXT", &["jsonb", "json", "text"]),
    column("definition", "TEXT", TEXTS),
    column("source_server_id", "UUID", &["uuid"]),
    column("is_external", "BOOLEAN DEFAULT FALSE", &["bool"]),
    column("is_classified", "BOOLEAN DEFAULT FALSE", &["bool"]),
    column("skills", "JSONB DEFAULT '[]'", &["jsonb", "json"]),
    emptied("primary_skill", "TEXT", TEXTS),
    column("position", "BIGINT DEFAULT 0", NUMBERS),
    column("text_hash", "TEXT", TEXTS),
    emptied("embedding", "BYTEA", &["bytea"]),
    emptied("embedding_model", "TEXT", TEXTS),
    column("enabled", "BOOLEAN DEFAULT TRUE", &["bool"]),
    emptied("classified_by", "TEXT", TEXTS),
    column("confidences", "JSONB DEFAULT '[]'", &["jsonb", "json"]),
];

/// Indexes and constraints for our rows. Rows of other programs have no server, and are not affected.
const AROUND: &str = "
    ALTER TABLE mcp.tools ADD CONSTRAINT mcp_aggregator_source_server FOREIGN KEY (source_server_id)
        REFERENCES mcp.external_servers (id) ON DELETE CASCADE NOT VALID;
    CREATE UNIQUE INDEX mcp_aggregator_tools_of_server ON mcp.tools (source_server_id, original_name);
    CREATE INDEX mcp_aggregator_tools_position ON mcp.tools (source_server_id, position);
    CREATE INDEX mcp_aggregator_tools_original_name ON mcp.tools (original_name);";

/// A column that another program created.
struct Found {
    name: String,
    kind: String,
    is_required: bool,
    has_default: bool,
    is_bounded: bool,
}

/// A table `tools` of another program that fits.
pub(crate) struct Adopted {
    columns: Vec<Found>,
}

/// Looks for tables with the names of ours. Called before any of our tables exist.
pub(crate) async fn find(session: &mut Session) -> Result<Option<Adopted>, OpenError> {
    let Some(schema) = session.schema().cloned() else { return Ok(None) };
    // Tables, views and other relations. The name of a schema needs no escapes.
    let relations = format!(
        "SELECT c.relname::text AS name, c.relkind::text AS kind FROM pg_class AS c \
         JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = '{}' ORDER BY c.relname",
        schema.as_str()
    );
    let relation = |row: &mut crate::database::Row| Ok((row.take("name")?, row.take("kind")?));
    let relations: Vec<(String, String)> = session.all(&relations, values![], relation).await?;
    if let Some((taken, _)) = relations.iter().find(|(name, _)| OWN_TABLES.contains(&name.as_str())) {
        let why = "another program created it; only a table `tools` can be shared".to_owned();
        return Err(unfit(&schema, taken, why));
    }
    let Some((_, kind)) = relations.iter().find(|(name, _)| name == TABLE) else { return Ok(None) };
    if kind != "r" {
        return Err(unfit(&schema, TABLE, "it is a view or a partitioned table, not an ordinary table".to_owned()));
    }
    let columns = columns(session, &schema).await?;
    for found in &columns {
        if let Some(why) = misfit(found) {
            return Err(unfit(&schema, TABLE, format!("column `{}` {why}", found.name)));
        }
    }
    Ok(Some(Adopted { columns }))
}

async fn columns(session: &mut Session, schema: &SchemaName) -> Result<Vec<Found>, Error> {
    let sql = format!(
        "SELECT column_name::text AS name, udt_name::text AS kind, is_nullable = 'NO' AS is_required, \
         (column_default IS NOT NULL OR is_identity = 'YES' OR is_generated = 'ALWAYS') AS has_default, \
         (character_maximum_length IS NOT NULL) AS is_bounded FROM information_schema.columns \
         WHERE table_schema = '{}' AND table_name = '{TABLE}' ORDER BY ordinal_position",
        schema.as_str()
    );
    let found = |row: &mut crate::database::Row| {
        Ok(Found {
            name: row.take("name")?,
            kind: row.take("kind")?,
            is_required: row.take("is_required")?,
            has_default: row.take("has_default")?,
            is_bounded: row.take("is_bounded")?,
        })
    };
    session.all(&sql, values![], found).await
}

/// Why a column does not fit.
fn misfit(found: &Found) -> Option<String> {
    let Some(column) = COLUMNS.iter().find(|column| column.name == found.name) else {
        let is_in_the_way = found.is_required && !found.has_default;
        return is_in_the_way
            .then(|| "is NOT NULL and has no default, and the registry has no value for it".to_owned());
    };
    if !column.types.contains(&found.kind.as_str()) {
        return Some(format!("has the type {}, but the registry needs {}", found.kind, column.types.join(" or ")));
    }
    if column.is_emptied && found.is_required {
        return Some("is NOT NULL, but the registry sometimes stores NULL".to_owned());
    }
    let needs_default = column.name == "id" && !found.has_default;
    needs_default.then(|| "has no default, but the registry lets the database assign numbers".to_owned())
}

fn unfit(schema: &SchemaName, table: &str, why: String) -> OpenError {
    OpenError::UnfitTable { table: format!("{}.{table}", schema.as_str()), why }
}

impl Adopted {
    /// Adds what is missing, and records the takeover. Called when all other tables exist.
    pub(crate) async fn extend(self, session: &mut Session) -> Result<(), OpenError> {
        let schema = session.schema().cloned().unwrap_or_default();
        let mut added = Vec::new();
        for column in &COLUMNS {
            let Column { name, definition, .. } = column;
            let sql = match self.columns.iter().find(|found| found.name == *name) {
                None => {
                    added.push(*name);
                    format!("ALTER TABLE mcp.tools ADD COLUMN {name} {definition}")
                }
                // Names of tools have no common maximum length.
                Some(found) if found.is_bounded => format!("ALTER TABLE mcp.tools ALTER COLUMN {name} TYPE TEXT"),
                Some(_) => continue,
            };
            let refused = |error: Error| unfit(&schema, TABLE, format!("column `{name}` {}", cause(&error)));
            session.script(&sql).await.map_err(refused)?;
        }
        session.script(AROUND).await.map_err(|error| unfit(&schema, TABLE, cause(&error)))?;
        let note = "INSERT INTO mcp.registry_meta (key, value) VALUES ($1, $2)";
        session.execute(note, values![KEY, &Json::Bool(true)]).await?;
        tracing::info!(
            table = %format!("{}.{TABLE}", schema.as_str()),
            added = added.join(", "),
            "took over an existing table; its rows are not changed"
        );
        Ok(())
    }
}

/// The message of the database.
fn cause(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let causes = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    format!("could not be changed: {causes}")
}

/// A migration without its statements on the table `tools`, which exists already and is extended separately.
pub(crate) fn without_tools(migration: &str) -> String {
    let is_about_tools = |statement: &&str| {
        let ends = |rest: &str| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        statement.split("mcp.tools").skip(1).any(ends)
    };
    let statements = migration.split(';').filter(|statement| !is_about_tools(statement));
    statements.collect::<Vec<_>>().join(";")
}

/// Which program created the table of tools.
pub(crate) async fn tools_table(database: &Database) -> Result<ToolsTable, Error> {
    let mut session = database.read("inspect the table of tools").await?;
    let count = "SELECT count(*) AS n FROM mcp.registry_meta WHERE key = $1";
    Ok(if session.number(count, values![KEY]).await? > 0 { ToolsTable::Adopted } else { ToolsTable::Own })
}

impl ToolsTable {
    /// The values of the columns `description` and `input_schema`.
    pub(crate) fn columns_of(self, tool: &ListedTool) -> (Option<String>, Option<RawJson>) {
        let (description, schema) = (tool.description.clone(), tool.input_schema.clone());
        match self {
            Self::Own => (description, schema),
            Self::Adopted => {
                let empty = || RawJson::parse("{}").expect("an empty object is JSON");
                (Some(description.unwrap_or_default()), Some(schema.filter(fits_jsonb).unwrap_or_else(empty)))
            }
        }
    }
}

/// Whether JSONB accepts the value: no escaped NUL, no lone surrogate, no number out of range.
fn fits_jsonb(json: &RawJson) -> bool {
    fn has_nul(value: &Json) -> bool {
        match value {
            Json::String(text) => text.contains('\0'),
            Json::Array(items) => items.iter().any(has_nul),
            Json::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
            Json::Null | Json::Bool(_) | Json::Number(_) => false,
        }
    }
    serde_json::from_str(json.get()).is_ok_and(|value| !has_nul(&value))
}

/// The description and the schema in the definition of a tool.
pub(crate) fn described(definition: &RawJson) -> (Option<String>, Option<RawJson>) {
    #[derive(Deserialize)]
    struct Definition<'d> {
        #[serde(borrow)]
        description: Option<&'d RawValue>,
        #[serde(borrow, rename = "inputSchema")]
        input_schema: Option<&'d RawValue>,
    }
    let Ok(Definition { description, input_schema }) = serde_json::from_str(definition.get()) else {
        return (None, None);
    };
    let text = description.and_then(|text| serde_json::from_str(text.get()).ok());
    (text, input_schema.and_then(|schema| RawJson::parse(schema.get()).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_the_migrations_is_known_as_ours() {
        let created = crate::migrations::of_postgres().flat_map(|text| {
            text.split("CREATE TABLE mcp.").skip(1).map(|rest| rest.split([' ', '(']).next().unwrap_or_default())
        });
        let mut count = 0;
        for table in created.filter(|table| *table != TABLE) {
            assert!(OWN_TABLES.contains(&table), "`{table}` is missing");
            count += 1;
        }
        assert_eq!(count, OWN_TABLES.len(), "no other table is ours");
    }

    #[test]
    fn a_migration_keeps_everything_that_is_not_about_tools() {
        let text = "-- About.\nCREATE TABLE mcp.a (x TEXT);\nCREATE TABLE mcp.tools (y TEXT);\nCREATE INDEX i ON mcp.tools (y);\
            \nCREATE TABLE mcp.tools_of_others (z TEXT);\n";
        let expected = "-- About.\nCREATE TABLE mcp.a (x TEXT);\nCREATE TABLE mcp.tools_of_others (z TEXT);\n";
        assert_eq!(without_tools(text), expected);
    }

    #[test]
    fn what_jsonb_does_not_take_is_known() {
        let fits = |text: &str| fits_jsonb(&RawJson::parse(text).unwrap());
        assert!(fits(r#"{"type":"object","a":[1.5e3,"é"]}"#));
        for text in [r#"{"a":"\u0000"}"#, r#"{"\u0000":1}"#, r#"["\ud800"]"#, "[1e400]"] {
            assert!(!fits(text), "{text}");
        }
    }
}
