//! Both databases behind one face: sessions that run statements, written once, within a time.

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

/// Values for a statement that is run several times.
pub(crate) trait Rows: Send + Sync + 'static {
    /// How many times.
    fn count(&self) -> usize;
    /// The values of one of these times.
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

/// How long an operation may take, its wait for a connection included.
const LIMIT: Duration = Duration::from_secs(5);

/// A database.
pub(crate) enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Database {
    /// A session that only reads. `operation` says what for, in errors: "list servers".
    pub(crate) async fn read(&self, operation: &'static str) -> Result<Session, Error> {
        let deadline = Instant::now() + LIMIT;
        let inner = match self {
            Self::Sqlite(sqlite) => within(deadline, sqlite.read()).await.map(Inner::Sqlite),
            Self::Postgres(postgres) => within(deadline, postgres.read()).await.map(Box::new).map(Inner::Postgres),
        };
        Ok(Session { operation, deadline, inner: inner.map_err(|database_error| database_error.during(operation))? })
    }

    /// A transaction. What is not committed is undone, also when nobody waits for it any more.
    pub(crate) async fn write(&self, operation: &'static str) -> Result<Session, Error> {
        self.write_within(operation, LIMIT).await
    }

    /// A transaction that is not flushed to our own disk: it survives our end, but perhaps not a power cut. What happens
    /// on PostgreSQL's disk costs us nothing.
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

    /// What happened to the file, if there is one and something did.
    pub(crate) fn file_error(&self) -> Option<String> {
        match self {
            Self::Sqlite(sqlite) => sqlite.file_error(),
            Self::Postgres(_) => None,
        }
    }

    /// Looks at the file, if there is one.
    pub(crate) async fn check(&self, operation: &'static str) -> Result<(), Error> {
        match self {
            Self::Sqlite(sqlite) => {
                let checked = within(Instant::now() + LIMIT, sqlite.check()).await;
                checked.map_err(|database_error| database_error.during(operation))
            }
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Lets go of the database. What is under way ends first.
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
        Err(_) => Err(DatabaseError::Unavailable("it took too long".into())),
    }
}

/// Somebody's turn with a database.
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
    /// What is being done, for errors.
    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.inner, Inner::Postgres(_))
    }

    /// The schema that has our tables, where there are schemas.
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

    /// Every row, understood.
    pub(crate) async fn all<T>(
        &mut self,
        sql: &str,
        values: Vec<Value>,
        understand: impl Fn(&mut Row) -> Result<T, Mismatch>,
    ) -> Result<Vec<T>, Error> {
        let mut rows = self.rows(sql, values).await?;
        let understood: Result<Vec<T>, Mismatch> = rows.iter_mut().map(understand).collect();
        understood.map_err(|mismatch| match mismatch {
            Mismatch::OtherKey => Error::WrongKey,
            other => Error::Corrupt { operation: self.operation, source: other.into() },
        })
    }

    /// The first row, understood, if there is one.
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

    /// Runs a statement; says how many rows it touched.
    pub(crate) async fn execute(&mut self, sql: &str, values: Vec<Value>) -> Result<u64, Error> {
        self.execute_each(sql, vec![values]).await
    }

    /// Runs a statement once for each list of values; says how many rows were touched in all.
    pub(crate) async fn execute_each(
        &mut self,
        sql: &str,
        each: Vec<impl AsRef<[Value]> + Send + Sync + 'static>,
    ) -> Result<u64, Error> {
        self.execute_rows(sql, each).await
    }

    /// The same for values that are made when they are needed.
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

    /// Runs a text of several statements in the database's own dialect.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<(), Error> {
        let result = match &mut self.inner {
            Inner::Sqlite(session) => within(self.deadline, session.script(sql)).await,
            Inner::Postgres(session) => within(self.deadline, session.script(sql)).await,
        };
        self.finish_statement(result)
    }

    /// Keeps everything that was written.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        let Self { operation, deadline, inner } = self;
        let result = match inner {
            Inner::Sqlite(session) => within(deadline, session.commit()).await,
            Inner::Postgres(session) => within(deadline, session.commit()).await,
        };
        result.map_err(|database_error| database_error.during(operation))
    }

    fn finish_statement<T>(&self, result: Result<T, DatabaseError>) -> Result<T, Error> {
        // A statement that nobody waits for any more must not keep the thread from the next.
        if let Inner::Sqlite(session) = &self.inner
            && Instant::now() >= self.deadline
        {
            session.interrupt();
        }
        result.map_err(|database_error| database_error.during(self.operation))
    }
}
