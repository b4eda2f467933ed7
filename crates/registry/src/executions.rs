//! Executions: the records of calls from all sources.

mod batch;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

pub use batch::Batch;

use crate::database::{Mismatch, Row, values};
use crate::error::Error;
use crate::select::{self, Columns, Filter};
use crate::{
    ExecutionId, ExecutionStatus, Listed, Page, RawJson, RetentionPolicy, ServerId, ShortStr, Source, Store, Timestamp,
};

/// The record of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExecutionRecord {
    /// Its id.
    pub id: ExecutionId,
    /// The server. It may have been removed.
    pub server_id: Option<ServerId>,
    /// The name the server had.
    #[serde(serialize_with = "shared")]
    pub server_name: Arc<str>,
    /// The name of the tool on its server.
    #[serde(serialize_with = "shared")]
    pub tool_name: Arc<str>,
    /// Where it comes from.
    pub source: Source,
    /// The name of the token that made it, if there are tokens.
    #[serde(serialize_with = "shared_if_there")]
    pub caller: Option<Arc<str>>,
    /// The name that the MCP client reports.
    #[serde(serialize_with = "shared_if_there")]
    pub client: Option<Arc<str>>,
    /// The document that made it.
    pub document_path: Option<String>,
    /// The line in that document.
    pub section_line: Option<u32>,
    /// Its status.
    pub status: ExecutionStatus,
    /// When it was requested.
    pub submitted_at: Timestamp,
    /// When it was sent to the server.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// The time from sending to the end.
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Option<Duration>,
    /// How often it was retried.
    pub retries: u32,
    /// The error.
    pub error_message: Option<String>,
    /// The request id of the MCP client, as JSON.
    pub request_id: Option<ShortStr>,
    /// The size of the request in bytes, stored or not.
    pub request_bytes: Option<u64>,
    /// The size of the server's response in bytes, stored or not.
    pub response_bytes: Option<u64>,
    /// The arguments. Only stored if that is enabled.
    pub arguments: Option<RawJson>,
    /// The result. Only stored if that is enabled.
    pub result: Option<RawJson>,
}

impl ExecutionRecord {
    /// The record of a new call.
    pub fn submitted(server_name: impl Into<Arc<str>>, tool_name: impl Into<Arc<str>>, source: Source) -> Self {
        Self {
            id: ExecutionId::fresh(),
            server_id: None,
            server_name: server_name.into(),
            tool_name: tool_name.into(),
            source,
            caller: None,
            client: None,
            document_path: None,
            section_line: None,
            status: ExecutionStatus::Pending,
            submitted_at: Timestamp::now(),
            started_at: None,
            completed_at: None,
            duration: None,
            retries: 0,
            error_message: None,
            request_id: None,
            request_bytes: None,
            response_bytes: None,
            arguments: None,
            result: None,
        }
    }
}

#[expect(clippy::ref_option, reason = "serde hands a reference to the field")]
fn milliseconds<S: serde::Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    // Microseconds are precise enough.
    span.map(|span| (span.as_secs_f64() * 1_000_000.0).round() / 1000.0).serialize(serializer)
}

fn shared<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

#[expect(clippy::ref_option, reason = "serde hands a reference to the field")]
fn shared_if_there<S: serde::Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

/// A filter for executions. The default matches all.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    /// Only those of this server, by id.
    pub server_id: Option<ServerId>,
    /// Only those of this server, by the name it had.
    pub server_name: Option<String>,
    /// Only those of tools with this name.
    pub tool_name: Option<String>,
    /// Only those with one of these statuses. Empty matches all.
    pub status: Vec<ExecutionStatus>,
    /// Only those from this source.
    pub source: Option<Source>,
    /// Only those of this document.
    pub document_path: Option<String>,
    /// Only those requested at this time or later.
    pub since: Option<Timestamp>,
    /// Only those requested before this time.
    pub until: Option<Timestamp>,
}

const ALL_COLUMNS: &str = "id, server_id, server_name, tool_name, source, caller, document_path, section_line, status, \
    submitted_at, started_at, completed_at, duration_us, retries, error_message, arguments, result, \
    request_id, request_bytes, response_bytes, client";

const COLUMNS: Columns =
    Columns { columns: ALL_COLUMNS, tables: "mcp.executions", order: "submitted_at DESC, id DESC" };

/// The first search for an execution covers this time before and after the time in its id.
const AROUND: Duration = Duration::from_secs(60);

impl Store {
    /// The execution with an id.
    pub async fn execution(&self, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        let mut session = self.read("read an execution").await?;
        // The id contains the time of the request. All executions are searched only if clocks were changed.
        let about = id.made_at().map(|made_at| (made_at.earlier_by(AROUND), made_at.later_by(AROUND)));
        let is_it = || Filter::default().and("id =", Some(id));
        let near =
            is_it().and("submitted_at >=", about.map(|(from, _)| from)).and("submitted_at <=", about.map(|(_, to)| to));
        let mut found = near.first(&mut session, COLUMNS, from_row).await?;
        if found.is_none() {
            found = is_it().first(&mut session, COLUMNS, from_row).await?;
        }
        found.ok_or_else(|| Error::NotFound { what: "execution", key: id.to_string() })
    }

    /// Executions, the newest first.
    pub async fn executions(&self, filter: &ExecutionFilter, page: Page) -> Result<Listed<ExecutionRecord>, Error> {
        let mut session = self.read("list executions").await?;
        let wanted = Filter::default()
            .and("server_id =", filter.server_id)
            .and("server_name =", filter.server_name.as_ref())
            .and("tool_name =", filter.tool_name.as_ref())
            .and_one_of("status", filter.status.iter().copied())
            .and("source =", filter.source)
            .and("document_path =", filter.document_path.as_ref())
            .and("submitted_at >=", filter.since)
            .and("submitted_at <", filter.until);
        wanted.page(&mut session, COLUMNS, page, from_row).await
    }

    /// Ends unfinished executions that were requested before a time, because the process that made them is gone.
    /// Returns their number.
    pub async fn settle_executions(&self, before: Timestamp, why: &str) -> Result<u64, Error> {
        let mut session = self.write("settle executions").await?;
        let sql = "UPDATE mcp.executions SET status = $1, completed_at = $2, error_message = $3 \
            WHERE completed_at IS NULL AND submitted_at < $4";
        let values = values![ExecutionStatus::Error, Timestamp::now(), why, before];
        let settled = session.execute(sql, values).await?;
        session.commit().await?;
        Ok(settled)
    }

    /// Deletes old executions, and returns their number.
    pub async fn prune_executions(&self, keep: RetentionPolicy) -> Result<u64, Error> {
        select::cut(self, "prune executions", "mcp.executions", "submitted_at", keep).await
    }
}

fn from_row(row: &mut Row) -> Result<ExecutionRecord, Mismatch> {
    Ok(ExecutionRecord {
        id: row.take("id")?,
        server_id: row.take("server_id")?,
        server_name: row.take("server_name")?,
        tool_name: row.take("tool_name")?,
        source: row.take("source")?,
        caller: row.take("caller")?,
        document_path: row.take("document_path")?,
        section_line: row.take("section_line")?,
        status: row.take("status")?,
        submitted_at: row.take("submitted_at")?,
        started_at: row.take("started_at")?,
        completed_at: row.take("completed_at")?,
        duration: row.take("duration_us")?,
        retries: row.take("retries")?,
        error_message: row.take("error_message")?,
        arguments: row.take("arguments")?,
        result: row.take("result")?,
        request_id: row.take("request_id")?,
        request_bytes: row.take("request_bytes")?,
        response_bytes: row.take("response_bytes")?,
        client: row.take("client")?,
    })
}
