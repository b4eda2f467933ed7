//! Which server the tools of a part of a document come from.

use serde::{Deserialize, Serialize};

use crate::database::{Mismatch, Row, Session, Value, values};
use crate::error::Error;
use crate::select::{Columns, Filter};
use crate::{BindingId, Listed, Page, SectionKind, ServerId, Store, Timestamp, Transaction};

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "section_type", rename_all = "lowercase")]
pub enum Section {
    /// What stands under this heading.
    Heading {
        /// The heading's text.
        heading_text: String,
    },
    /// The block with this id.
    Block {
        /// The id, without the `^`.
        block_id: String,
    },
    /// Lines, the last included.
    Range {
        /// The first line, from 1.
        start_line: u32,
        /// The last line, after the first.
        end_line: u32,
    },
}

impl Section {
    /// What sort of part it is.
    pub fn kind(&self) -> SectionKind {
        match self {
            Self::Heading { .. } => SectionKind::Heading,
            Self::Block { .. } => SectionKind::Block,
            Self::Range { .. } => SectionKind::Range,
        }
    }
}

/// A binding to be made, or what one is to become.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NewBinding {
    /// The document's path, or a pattern for several.
    pub document: String,
    /// Which part of it.
    #[serde(flatten)]
    pub section: Section,
    /// The server.
    pub server_id: ServerId,
    /// Whether it holds for sections inside this one.
    pub inherit_to_children: bool,
}

/// A binding as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingRecord {
    /// Its id.
    pub id: BindingId,
    /// What it says.
    #[serde(flatten)]
    pub binding: NewBinding,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

const ALL_COLUMNS: &str = "id, document, section_type, heading_text, block_id, start_line, end_line, server_id, \
    inherit_to_children, created_at, updated_at";

const COLUMNS: Columns = Columns { columns: ALL_COLUMNS, tables: "mcp.section_bindings", order: "document, id" };

/// Longer paths do not fit into an index.
const MAX_DOCUMENT_PATH_LEN: usize = 1024;
/// All of them are compared with every document that is opened.
const MOST_BINDINGS: u64 = 10_000;
/// The last line that every database can count.
const LAST_LINE: u32 = i32::MAX.unsigned_abs();
/// Characters of a heading or of the id of a block.
const LONGEST_TEXT: usize = 1_000;
/// How many bindings may name the same document or pattern.
pub const MAX_BINDINGS_OF_DOCUMENT: u64 = 1_000;

impl Store {
    /// Makes a binding.
    pub async fn insert_binding(&self, new: NewBinding) -> Result<BindingRecord, Error> {
        let mut transaction = self.transaction("make a binding").await?;
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

    /// Bindings by document, the oldest first: all, or those that name this document, or those of this server. Which
    /// patterns fit a document is for the caller to say.
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

    /// Makes a binding say something else.
    pub async fn update_binding(&self, id: BindingId, new: NewBinding) -> Result<BindingRecord, Error> {
        check(&new)?;
        let mut session = self.write("change a binding").await?;
        check_server_exists(&mut session, new.server_id).await?;
        let sql = format!(
            "UPDATE mcp.section_bindings SET document = $1, section_type = $2, heading_text = $3, block_id = $4, \
             start_line = $5, end_line = $6, server_id = $7, inherit_to_children = $8, updated_at = $9 \
             WHERE id = $10 RETURNING {ALL_COLUMNS}"
        );
        let mut values = as_values(&new);
        values.extend(values![Timestamp::now(), id]);
        let record = session.first(&sql, values, from_row).await?.ok_or_else(|| not_found(id))?;
        session.commit().await?;
        Ok(record)
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
    session.all(&sql, values![], from_row).await
}

pub(crate) async fn insert(session: &mut Session, new: NewBinding) -> Result<BindingRecord, Error> {
    check(&new)?;
    check_server_exists(session, new.server_id).await?;
    must_have_room(session, &new.document).await?;
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

/// A document that has more of them is not run, so no more are kept.
async fn must_have_room(session: &mut Session, document: &str) -> Result<(), Error> {
    let sql = "SELECT count(*) AS n FROM mcp.section_bindings WHERE document = $1";
    let count: Option<u64> = session.first(sql, values![document], |row| row.take("n")).await?;
    if count.is_none_or(|count| count < MAX_BINDINGS_OF_DOCUMENT) {
        return Ok(());
    }
    let what = format!(
        "`{document}` has {MAX_BINDINGS_OF_DOCUMENT} bindings, and a document may have no more; remove one of them first"
    );
    Err(Error::Invalid { what })
}

/// Holds the server, so that it is still there at the end of the transaction.
async fn check_server_exists(session: &mut Session, id: ServerId) -> Result<(), Error> {
    let sql = "SELECT id FROM mcp.external_servers WHERE id = $1 FOR SHARE";
    let found: Option<ServerId> = session.first(sql, values![id], |row| row.take("id")).await?;
    found.map(drop).ok_or_else(|| Error::server_not_found(&id))
}

/// Whether there may be one more.
pub(crate) fn check_number(known: u64) -> Result<(), Error> {
    if known < MOST_BINDINGS {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!("there are {known} bindings, and there may be {MOST_BINDINGS}; remove some first"),
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
        Section::Range { end_line, .. } if *end_line > LAST_LINE => "no line is beyond 2147483647",
        Section::Range { start_line: 0, .. } => "lines are counted from 1",
        Section::Range { start_line, end_line } if start_line >= end_line => "a range must end after its first line",
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
