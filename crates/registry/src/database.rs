//! One interface for both databases: sessions that run statements within a time limit.

mod database_error;
mod dialect;
mod postgres;
mod sqlite;
mod value;

use std::borrow::Cow;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

pub(crate) use database_error::DatabaseError;
pub(crate) use postgres::Postgres;
pub(crate) use sqlite::Sqlite;
pub(crate) use value::{Mismatch, Parameter, Row, Value, values};

use crate::error::Error;
use crate::location::SchemaName;

/// Parameters for a statement that runs several times.
pub(crate) trait Rows: Send + Sync + 'static {
    /// The number of runs.
    fn count(&self) -> usize;
    /// The parameters of one run.
    fn row(&self, at: usize) -> Cow<'_, [Parameter<'_>]>;
}

impl<T: AsRef<[Value]> + Send + Sync + 'static> Rows for Vec<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn row(&self, at: usize) -> Cow<'_, [Parameter<'_>]> {
        self[at].as_ref().into()
    }
}

/// The timeout of an operation, including the wait for a connection.
const LIMIT: Duration = Duration::from_secs(5);

/// Rows that are processed on the thread that requested them; more are processed beside the calls.
pub(crate) const MOST_ROWS_IN_PLACE: usize = 500;
/// The same for their bytes.
const MOST_BYTES_IN_PLACE: usize = 256 * 1024;

/// Whether so many bytes are processed beside the calls.
pub(crate) fn is_large(lengths: impl Iterator<Item = usize>) -> bool {
    lengths
        .scan(0_usize, |sum, length| {
            *sum += length;
            Some(*sum)
        })
        .any(|sum| sum > MOST_BYTES_IN_PLACE)
}

/// Runs work on a thread that serves no calls if it is long.
pub(crate) async fn beside<T: Send + 'static>(is_long: bool, work: impl FnOnce() -> T + Send + 'static) -> T {
    if !is_long {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// A database.
pub(crate) enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Database {
    /// Starts a read-only session. `operation` describes it in errors: "list servers".
    pub(crate) async fn read(&self, operation: &'static str) -> Result<Session, Error> {
        let deadline = Instant::now() + LIMIT;
        let inner = match self {
            Self::Sqlite(sqlite) => within(deadline, sqlite.read()).await.map(Inner::Sqlite),
            Self::Postgres(postgres) => within(deadline, postgres.read()).await.map(Box::new).map(Inner::Postgres),
        };
        Ok(Session { operation, deadline, inner: inner.map_err(|database_error| database_error.during(operation))? })
    }

    /// Starts a transaction. It is rolled back unless it is committed, also if its future is dropped.
    pub(crate) async fn write(&self, operation: &'static str) -> Result<Session, Error> {
        self.write_within(operation, LIMIT).await
    }

    /// Starts a transaction without a flush to our own disk: it survives the end of this process, but possibly not a
    /// power failure. On PostgreSQL it makes no difference.
    pub(crate) async fn write_lightly(&self, operation: &'static str) -> Result<Session, Error> {
        let deadline = Instant::now() + LIMIT;
        let inner = match self {
            Self::Sqlite(sqlite) => within(deadline, sqlite.write_lightly()).await.map(Inner::Sqlite),
            Self::Postgres(_) => return self.write(operation).await,
        };
        Ok(Session { operation, deadline, inner: inner.map_err(|database_error| database_error.during(operation))? })
    }

    pub(crate) async fn write_within(&self, operation: &'static str, limit: Duration) -> Result<Session, Error> {
        let deadline = Instant::now() + limit;
        let inner = match self {
            Self::Sqlite(sqlite) => within(deadline, sqlite.write()).await.map(Inner::Sqlite),
            Self::Postgres(postgres) => within(deadline, postgres.write()).await.map(Box::new).map(Inner::Postgres),
        };
        Ok(Session { operation, deadline, inner: inner.map_err(|database_error| database_error.during(operation))? })
    }

    /// The problem of the database file, if there is one.
    pub(crate) fn file_error(&self) -> Option<String> {
        match self {
            Self::Sqlite(sqlite) => sqlite.file_error(),
            Self::Postgres(_) => None,
        }
    }

    /// Checks the database file, if there is one.
    pub(crate) async fn check(&self, operation: &'static str) -> Result<(), Error> {
        match self {
            Self::Sqlite(sqlite) => {
                let checked = within(Instant::now() + LIMIT, sqlite.check()).await;
                checked.map_err(|database_error| database_error.during(operation))
            }
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Closes the database after pending operations have ended.
    pub(crate) fn close(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.close(),
            Self::Postgres(postgres) => postgres.close(),
        }
    }
}

async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    match timeout_at(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(DatabaseError::Unavailable("timed out".into())),
    }
}

/// A session with a database.
pub(crate) struct Session {
    operation: &'static str,
    deadline: Instant,
    inner: Inner,
}

enum Inner {
    Sqlite(sqlite::Session),
    Postgres(Box<postgres::Session>),
}

impl Session {
    /// The operation, for errors.
    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.inner, Inner::Postgres(_))
    }

    /// The schema of our tables, if the database has schemas.
    pub(crate) fn schema(&self) -> Option<&SchemaName> {
        match &self.inner {
            Inner::Sqlite(_) => None,
            Inner::Postgres(session) => Some(session.schema()),
        }
    }

    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, Error> {
        let result = match &mut self.inner {
            Inner::Sqlite(session) => within(self.deadline, session.rows(sql, values)).await,
            Inner::Postgres(session) => within(self.deadline, session.rows(sql, values)).await,
        };
        self.finish_statement(result)
    }

    /// All rows, converted.
    pub(crate) async fn all<T>(
        &mut self,
        sql: &str,
        values: Vec<Value>,
        understand: impl Fn(&mut Row) -> Result<T, Mismatch>,
    ) -> Result<Vec<T>, Error> {
        let mut rows = self.rows(sql, values).await?;
        self.understood(rows.iter_mut().map(understand).collect())
    }

    /// The same for lists that may be long: many rows are converted on a thread that serves no calls.
    pub(crate) async fn list<T: Send + 'static>(
        &mut self,
        sql: &str,
        values: Vec<Value>,
        understand: impl Fn(&mut Row) -> Result<T, Mismatch> + Send + 'static,
    ) -> Result<Vec<T>, Error> {
        let mut rows = self.rows(sql, values).await?;
        let is_long = rows.len() > MOST_ROWS_IN_PLACE || is_large(rows.iter().map(Row::len));
        let understood = beside(is_long, move || rows.iter_mut().map(understand).collect()).await;
        self.understood(understood)
    }

    fn understood<T>(&self, understood: Result<Vec<T>, Mismatch>) -> Result<Vec<T>, Error> {
        understood.map_err(|mismatch| match mismatch {
            Mismatch::OtherKey => Error::WrongKey,
            other => Error::Corrupt { operation: self.operation, source: other.into() },
        })
    }

    /// The first row, converted, if there is one.
    pub(crate) async fn first<T>(
        &mut self,
        sql: &str,
        values: Vec<Value>,
        understand: impl Fn(&mut Row) -> Result<T, Mismatch>,
    ) -> Result<Option<T>, Error> {
        Ok(self.all(sql, values, understand).await?.into_iter().next())
    }

    /// The number in the column `n` of the only row.
    pub(crate) async fn number(&mut self, sql: &str, values: Vec<Value>) -> Result<u64, Error> {
        Ok(self.first(sql, values, |row| row.take("n")).await?.unwrap_or(0))
    }

    /// Runs a statement, and returns the number of affected rows.
    pub(crate) async fn execute(&mut self, sql: &str, values: Vec<Value>) -> Result<u64, Error> {
        self.execute_each(sql, vec![values]).await
    }

    /// Runs a statement once for each list of parameters, and returns the number of affected rows.
    pub(crate) async fn execute_each(
        &mut self,
        sql: &str,
        each: Vec<impl AsRef<[Value]> + Send + Sync + 'static>,
    ) -> Result<u64, Error> {
        self.execute_rows(sql, each).await
    }

    /// The same for parameters that are produced on demand.
    pub(crate) async fn execute_rows(&mut self, sql: &str, rows: impl Rows) -> Result<u64, Error> {
        if rows.count() == 0 {
            return Ok(0);
        }
        let result = match &mut self.inner {
            Inner::Sqlite(session) => within(self.deadline, session.execute(sql, rows)).await,
            Inner::Postgres(session) => within(self.deadline, session.execute(sql, rows)).await,
        };
        self.finish_statement(result)
    }

    /// Runs several statements in the dialect of the database.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<(), Error> {
        let result = match &mut self.inner {
            Inner::Sqlite(session) => within(self.deadline, session.script(sql)).await,
            Inner::Postgres(session) => within(self.deadline, session.script(sql)).await,
        };
        self.finish_statement(result)
    }

    /// Commits the transaction.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        let Self { operation, deadline, inner } = self;
        let result = match inner {
            Inner::Sqlite(session) => within(deadline, session.commit()).await,
            Inner::Postgres(session) => within(deadline, session.commit()).await,
        };
        result.map_err(|database_error| database_error.during(operation))
    }

    fn finish_statement<T>(&self, result: Result<T, DatabaseError>) -> Result<T, Error> {
        // A statement that nobody waits for must not block the thread.
        if let Inner::Sqlite(session) = &self.inner
            && Instant::now() >= self.deadline
        {
            session.interrupt();
        }
        result.map_err(|database_error| database_error.during(self.operation))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    /// The threads that converted the rows of a list of numbers. The test's own thread is the runtime's only one.
    async fn threads_for(rows: usize, text: usize) -> Vec<ThreadId> {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::Sqlite(Sqlite::open(&folder.path().join("list.db")).unwrap());
        let mut session = database.read("list numbers").await.unwrap();
        let sql = "WITH RECURSIVE numbers (n, t) AS (SELECT 1, $2 UNION ALL SELECT n + 1, t FROM numbers WHERE n < $1) \
            SELECT n, t FROM numbers";
        let values = values![rows as u64, "x".repeat(text)];
        session.list(sql, values, |row| row.take::<u64>("n").map(|_| thread::current().id())).await.unwrap()
    }

    #[tokio::test]
    async fn long_lists_are_converted_beside_the_calls() {
        let here = thread::current().id();
        for (rows, text) in [(MOST_ROWS_IN_PLACE + 1, 1), (3, 100_000)] {
            let threads = threads_for(rows, text).await;
            assert_eq!(threads.len(), rows);
            assert!(threads.iter().all(|thread| *thread != here), "{rows} rows of {text} bytes");
        }
        assert_eq!(threads_for(3, 1).await, [here; 3], "short lists stay where they are");
    }
}
