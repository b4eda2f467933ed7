//! Writes executions in batches. Every record costs time here, so records are read once and borrowed.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use super::{ALL_COLUMNS, ExecutionRecord};
use crate::database::{Parameter, Rows, Value};
use crate::error::Error;
use crate::{Store, Timestamp};

/// Executions to be recorded.
#[derive(Debug, Default)]
pub struct Batch {
    /// Records that may have been written before: they are inserted or updated.
    pub known: VecDeque<ExecutionRecord>,
    /// Records that were not written before: they are inserted unless they exist, which is cheaper.
    pub fresh: VecDeque<ExecutionRecord>,
}

impl Batch {
    /// A batch of these.
    pub fn of<'r>(
        known: impl IntoIterator<Item = &'r ExecutionRecord>,
        fresh: impl IntoIterator<Item = &'r ExecutionRecord>,
    ) -> Arc<Self> {
        Arc::new(Self { known: known.into_iter().cloned().collect(), fresh: fresh.into_iter().cloned().collect() })
    }

    /// The number of executions.
    pub fn len(&self) -> usize {
        self.known.len() + self.fresh.len()
    }

    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.fresh.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &ExecutionRecord> {
        self.known.iter().chain(&self.fresh)
    }
}

/// A late report does not change a finished execution. But one that was only assumed to be lost, because another
/// service started with this database, may still get its real end.
const BRING_UP_TO_DATE: &str = "DO UPDATE SET server_id = excluded.server_id, status = excluded.status, \
    started_at = excluded.started_at, completed_at = excluded.completed_at, duration_us = excluded.duration_us, \
    retries = excluded.retries, error_message = excluded.error_message, arguments = excluded.arguments, \
    result = excluded.result, request_id = excluded.request_id, request_bytes = excluded.request_bytes, \
    response_bytes = excluded.response_bytes WHERE kept.completed_at IS NULL OR (kept.status = 'ERROR' AND kept.duration_us IS NULL AND \
    excluded.completed_at IS NOT NULL)";

/// The number of columns of an execution.
const WIDTH: usize = 21;

/// How many executions one statement inserts, to share its fixed cost.
const ROWS_PER_INSERT: usize = 32;

/// The statements that record executions; they are long, and built once.
struct RecordStatements {
    bring_up_to_date: String,
    add: String,
    add_together: String,
}

impl RecordStatements {
    fn of(key: &str) -> Self {
        Self {
            bring_up_to_date: format!("{} ({key}) {BRING_UP_TO_DATE}", addition(1)),
            add: format!("{} ({key}) DO NOTHING", addition(1)),
            add_together: format!("{} ({key}) DO NOTHING", addition(ROWS_PER_INSERT)),
        }
    }
}

static IN_SQLITE: LazyLock<RecordStatements> = LazyLock::new(|| RecordStatements::of("submitted_at, id"));
static IN_POSTGRES: LazyLock<RecordStatements> = LazyLock::new(|| RecordStatements::of("id"));

/// The statement that inserts this many executions.
fn addition(count: usize) -> String {
    let row = |row: usize| {
        let places = (1..=WIDTH).map(|column| format!("${}", row * WIDTH + column)).collect::<Vec<_>>();
        format!("({})", places.join(", "))
    };
    let rows = (0..count).map(row).collect::<Vec<_>>().join(", ");
    format!("INSERT INTO mcp.executions AS kept ({ALL_COLUMNS}) VALUES {rows} ON CONFLICT")
}

/// A part of a batch, with a number of records for each run of a statement.
struct Part {
    batch: Arc<Batch>,
    of: fn(&Batch) -> &VecDeque<ExecutionRecord>,
    from: usize,
    together: usize,
    runs: usize,
}

impl Rows for Part {
    fn count(&self) -> usize {
        self.runs
    }

    fn row(&self, at: usize) -> Cow<'_, [Parameter<'_>]> {
        let from = self.from + at * self.together;
        let mut values = Vec::with_capacity(self.together * WIDTH);
        for record in (self.of)(&self.batch).range(from..from + self.together) {
            values.extend(as_values(record));
        }
        values.into()
    }
}

impl Store {
    /// Records executions, all or none.
    ///
    /// Meant for a writer that collects many: the same records may be given again if it is unknown whether they were
    /// written. A power failure may lose the last ones, and nothing else.
    pub async fn record(&self, batch: &Arc<Batch>) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut session = self.write_lightly("record executions").await?;
        let sql: &RecordStatements = if session.is_postgres() { &IN_POSTGRES } else { &IN_SQLITE };
        let part = |of, from, together, runs| Part { batch: Arc::clone(batch), of, from, together, runs };
        session.execute_rows(&sql.bring_up_to_date, part(|batch| &batch.known, 0, 1, batch.known.len())).await?;
        let (full, rest) = (batch.fresh.len() / ROWS_PER_INSERT, batch.fresh.len() % ROWS_PER_INSERT);
        session.execute_rows(&sql.add_together, part(|batch| &batch.fresh, 0, ROWS_PER_INSERT, full)).await?;
        session.execute_rows(&sql.add, part(|batch| &batch.fresh, full * ROWS_PER_INSERT, 1, rest)).await?;
        session.commit().await
    }
}

fn as_values(execution: &ExecutionRecord) -> [Parameter<'_>; WIDTH] {
    // This column tells whether an execution has ended.
    let completed_at = execution.completed_at.or_else(|| execution.status.is_final().then(Timestamp::now));
    [
        Value::from(execution.id),
        Value::from(execution.server_id),
        Parameter::text(Some(&execution.server_name)),
        Parameter::text(Some(&execution.tool_name)),
        Value::from(execution.source),
        Parameter::text(execution.caller.as_deref()),
        Parameter::text(execution.document_path.as_deref()),
        Value::from(execution.section_line),
        Value::from(execution.status),
        Value::from(execution.submitted_at),
        Value::from(execution.started_at),
        Value::from(completed_at),
        Value::from(execution.duration),
        Value::from(execution.retries),
        Parameter::text(execution.error_message.as_deref()),
        Parameter::json(execution.arguments.as_ref()),
        Parameter::json(execution.result.as_ref()),
        Parameter::text(execution.request_id.as_deref()),
        Value::from(execution.request_bytes),
        Value::from(execution.response_bytes),
        Parameter::text(execution.client.as_deref()),
    ]
}
