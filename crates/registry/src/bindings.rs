//! Bindings: which server a part of a document uses.

use serde::{Deserialize, Serialize};

use crate::database::{Mismatch, Row, Session, Value, values};
use crate::error::Error;
use crate::select::{Columns, Filter};
use crate::{BindingId, Listed, Page, SectionKind, ServerId, Store, Timestamp, Transaction};

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "section_type", rename_all = "lowercase")]
pub enum Section {
    /// The section of a heading.
    Heading {
        /// The heading's text.
        heading_text: String,
    },
    /// The block with this id.
    Block {
        /// The id, without the `^`.
        block_id: String,
    },
    /// A range of lines, including the last.
    Range {
        /// The first line, from 1.
        start_line: u32,
        /// The last line, after the first.
        end_line: u32,
    },
}

impl Section {
    /// The kind of the section.
    pub fn kind(&self) -> SectionKind {
        match self {
            Self::Heading { .. } => SectionKind::Heading,
            Self::Block { .. } => SectionKind::Block,
            Self::Range { .. } => SectionKind::Range,
        }
    }
}

/// A binding to be created.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NewBinding {
    /// The path of the document, or a pattern.
    pub document: String,
    /// Which part of it.
    #[serde(flatten)]
    pub section: Section,
    /// The server.
    pub server_id: ServerId,
    /// Whether sections inside inherit the binding.
    pub inherit_to_children: bool,
}

/// A stored binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingRecord {
    /// Its id.
    pub id: BindingId,
    /// The binding.
    #[serde(flatten)]
    pub binding: NewBinding,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

const ALL_COLUMNS: &str = "id, document, section_type, heading_text, block_id, start_line, end_line, server_id, \
    inherit_to_children, created_at, updated_at";

const COLUMNS: Columns = Columns { columns: ALL_COLUMNS, tables: "mcp.section_bindings", order: "document, id" };

/// The longest path that fits into an index.
const MAX_DOCUMENT_PATH_LEN: usize = 1024;
/// The limit of bindings, because all are compared with every document that is opened.
const MAX_BINDINGS: u64 = 10_000;
/// The highest line number that every database supports.
const LAST_LINE: u32 = i32::MAX.unsigned_abs();
/// The maximum number of characters of a heading or block id.
const LONGEST_TEXT: usize = 1_000;
/// How many bindings may name the same document or pattern.
pub const MAX_BINDINGS_OF_DOCUMENT: u64 = 1_000;

impl Store {
    /// Creates a binding.
    pub async fn insert_binding(&self, new: NewBinding) -> Result<BindingRecord, Error> {
        let mut transaction = self.transaction("create a binding").await?;
        let record = transaction.insert_binding(new).await?;
        transaction.commit().await?;
        Ok(record)
    }

    /// The binding with an id.
    pub async fn binding(&self, id: BindingId) -> Result<BindingRecord, Error> {
        let mut session = self.read("read a binding").await?;
        let sql = format!("SELECT {ALL_COLUMNS} FROM mcp.section_bindings WHERE id = $1");
        session.first(&sql, values![id], from_row).await?.ok_or_else(|| not_found(id))
    }

    /// Bindings ordered by document, the oldest first: all, those with exactly this document or pattern, or those of
    /// this server. Matching patterns with documents is up to the caller.
    pub async fn bindings(
        &self,
        document: Option<&str>,
        server: Option<ServerId>,
        page: Page,
    ) -> Result<Listed<BindingRecord>, Error> {
        let mut session = self.read("list bindings").await?;
        let wanted = Filter::default().and("document =", document).and("server_id =", server);
        wanted.page(&mut session, COLUMNS, page, from_row).await
    }

    /// Removes a binding.
    pub async fn delete_binding(&self, id: BindingId) -> Result<(), Error> {
        let mut transaction = self.transaction("remove a binding").await?;
        transaction.delete_binding(id).await?;
        transaction.commit().await
    }
}

impl Transaction {
    /// As [`Store::insert_binding`].
    pub async fn insert_binding(&mut self, new: NewBinding) -> Result<BindingRecord, Error> {
        check_number(self.session.number("SELECT count(*) AS n FROM mcp.section_bindings", values![]).await?)?;
        insert(&mut self.session, new).await
    }

    /// As [`Store::delete_binding`].
    pub async fn delete_binding(&mut self, id: BindingId) -> Result<(), Error> {
        let gone = self.session.execute("DELETE FROM mcp.section_bindings WHERE id = $1", values![id]).await?;
        if gone == 0 { Err(not_found(id)) } else { Ok(()) }
    }
}

fn not_found(id: BindingId) -> Error {
    Error::NotFound { what: "binding", key: id.to_string() }
}

pub(crate) async fn all(session: &mut Session) -> Result<Vec<BindingRecord>, Error> {
    let sql = format!("SELECT {ALL_COLUMNS} FROM mcp.section_bindings ORDER BY document, id");
    session.list(&sql, values![], from_row).await
}

pub(crate) async fn insert(session: &mut Session, new: NewBinding) -> Result<BindingRecord, Error> {
    check(&new)?;
    check_server_exists(session, new.server_id).await?;
    check_room(session, &new.document).await?;
    let now = Timestamp::now();
    let sql = "INSERT INTO mcp.section_bindings (document, section_type, heading_text, block_id, start_line, end_line, \
        server_id, inherit_to_children, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9) \
        RETURNING id";
    let mut values = as_values(&new);
    values.extend(values![now]);
    let id = session.first(sql, values, |row| row.take("id")).await?;
    let id = id.expect("an insert returns its row");
    Ok(BindingRecord { id, binding: new, created_at: now, updated_at: now })
}

/// Refuses a binding beyond the limit: a document with more is not run.
async fn check_room(session: &mut Session, document: &str) -> Result<(), Error> {
    let sql = "SELECT count(*) AS n FROM mcp.section_bindings WHERE document = $1";
    let count: Option<u64> = session.first(sql, values![document], |row| row.take("n")).await?;
    if count.is_none_or(|count| count < MAX_BINDINGS_OF_DOCUMENT) {
        return Ok(());
    }
    let what = format!(
        "`{document}` has {MAX_BINDINGS_OF_DOCUMENT} bindings, which is the limit for a document; remove one of them \
         first"
    );
    Err(Error::Invalid { what })
}

/// Locks the server, so that it still exists at the end of the transaction.
async fn check_server_exists(session: &mut Session, id: ServerId) -> Result<(), Error> {
    let sql = "SELECT id FROM mcp.external_servers WHERE id = $1 FOR SHARE";
    let found: Option<ServerId> = session.first(sql, values![id], |row| row.take("id")).await?;
    found.map(drop).ok_or_else(|| Error::server_not_found(&id))
}

/// Whether there may be one more binding.
pub(crate) fn check_number(known: u64) -> Result<(), Error> {
    if known < MAX_BINDINGS {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!("there are {known} bindings, and the limit is {MAX_BINDINGS}; remove some first"),
    })
}

fn check(binding: &NewBinding) -> Result<(), Error> {
    let wrong = match &binding.section {
        _ if binding.document.is_empty() => "a binding must name a document",
        _ if binding.document.len() > MAX_DOCUMENT_PATH_LEN => {
            "the path of a document must not be longer than 1024 bytes"
        }
        Section::Heading { heading_text: text } | Section::Block { block_id: text }
            if text.chars().count() > LONGEST_TEXT =>
        {
            "the heading or block of a binding must not be longer than 1000 characters"
        }
        Section::Heading { heading_text } if heading_text.trim().is_empty() => "a heading must have a text",
        Section::Block { block_id } if block_id.trim().is_empty() => "a block must have an id",
        Section::Range { end_line, .. } if *end_line > LAST_LINE => "line numbers end at 2147483647",
        Section::Range { start_line: 0, .. } => "line numbers start at 1",
        Section::Range { start_line, end_line } if start_line >= end_line => {
            "the last line of a range must come after its first line"
        }
        _ => return Ok(()),
    };
    Err(Error::Invalid { what: wrong.to_owned() })
}

fn as_values(binding: &NewBinding) -> Vec<Value> {
    let (heading, block, lines) = match &binding.section {
        Section::Heading { heading_text } => (Some(heading_text), None, None),
        Section::Block { block_id } => (None, Some(block_id), None),
        Section::Range { start_line, end_line } => (None, None, Some((*start_line, *end_line))),
    };
    values![
        &binding.document,
        binding.section.kind(),
        heading,
        block,
        lines.map(|(start, _)| start),
        lines.map(|(_, end)| end),
        binding.server_id,
        binding.inherit_to_children,
    ]
}

fn from_row(row: &mut Row) -> Result<BindingRecord, Mismatch> {
    let section = match row.take("section_type")? {
        SectionKind::Heading => Section::Heading { heading_text: row.take("heading_text")? },
        SectionKind::Block => Section::Block { block_id: row.take("block_id")? },
        SectionKind::Range => Section::Range { start_line: row.take("start_line")?, end_line: row.take("end_line")? },
    };
    let binding = NewBinding {
        document: row.take("document")?,
        section,
        server_id: row.take("server_id")?,
        inherit_to_children: row.take("inherit_to_children")?,
    };
    Ok(BindingRecord {
        id: row.take("id")?,
        binding,
        created_at: row.take("created_at")?,
        updated_at: row.take("updated_at")?,
    })
}
