//! PostgreSQL: a pool of connections, and sessions that hold one of them.

mod tls;
mod wire;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use tokio_postgres::Statement;

use super::{DatabaseError, Row, Rows, Value};
use crate::error::{Cause, OpenError};
use crate::location::{PostgresLocation, SchemaName};

/// The maximum number of connections. Statements are short, and recording is batched.
const CONNECTIONS: usize = 8;

/// How many statements of a batch are pipelined.
const PIPELINED: usize = 256;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// How long sent bytes may stay unacknowledged before a connection counts as dead.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// A PostgreSQL server.
pub(crate) struct Postgres {
    pool: Pool,
    schema: Schema,
}

/// The schema of our tables. Statements are written for the default one.
#[derive(Clone)]
struct Schema {
    name: SchemaName,
    /// The prefix for another schema; None for the default one.
    prefix: Option<Arc<str>>,
}

impl Schema {
    fn new(name: &SchemaName) -> Self {
        let prefix = (*name != SchemaName::default()).then(|| format!("\"{}\".", name.as_str()).into());
        Self { name: name.clone(), prefix }
    }

    /// A statement for this schema.
    fn within<'s>(&self, sql: &'s str) -> Cow<'s, str> {
        match &self.prefix {
            Some(prefix) => sql.replace("mcp.", prefix).into(),
            None => sql.into(),
        }
    }
}

impl Postgres {
    /// Parses the address; does not connect yet.
    pub(crate) fn new(location: &PostgresLocation, shown: &str) -> Result<Self, OpenError> {
        let failed = |source: Cause| OpenError::Location { location: shown.to_owned(), source };
        let (url, security) = tls::split(&location.url).map_err(|error| failed(error.into()))?;
        let mut config: tokio_postgres::Config = url.parse().map_err(|error: tokio_postgres::Error| {
            // The error does not contain the address, and so not the password.
            failed(error.into())
        })?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("mcp-aggregator");
        }
        config.keepalives_idle(SILENCE_LIMIT).tcp_user_timeout(SILENCE_LIMIT).ssl_mode(security.mode());
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connector = security.connector().map_err(failed)?;
        let manager = Manager::from_config(config, connector, recycling);
        let pool = Pool::builder(manager).max_size(CONNECTIONS).build().map_err(|error| failed(error.into()))?;
        Ok(Self { pool, schema: Schema::new(&location.schema) })
    }

    /// A read-only session; each statement is on its own.
    pub(crate) async fn read(&self) -> Result<Session, DatabaseError> {
        let connection = self.pool.get().await?;
        Ok(Session {
            pool: self.pool.clone(),
            schema: self.schema.clone(),
            connection: Some(connection),
            in_transaction: false,
            is_waiting: false,
        })
    }

    /// Starts a transaction.
    ///
    /// A pooled connection may have died unnoticed. Starting a transaction has no effect, so it is retried with the
    /// other connections, and finally with a new one.
    pub(crate) async fn write(&self) -> Result<Session, DatabaseError> {
        let mut tries_left = CONNECTIONS + 1;
        loop {
            let mut session = self.read().await?;
            session.in_transaction = true;
            let begun = session.waiting(async |connection| connection.batch_execute("BEGIN").await).await;
            tries_left -= 1;
            match begun {
                Ok(()) => return Ok(session),
                Err(error) if is_connection_lost(&error) && tries_left > 0 => session.discard(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

/// Whether the connection is lost, so that another one may work.
fn is_connection_lost(error: &tokio_postgres::Error) -> bool {
    let ended_by_operator = error.code().is_some_and(|code| code.code().starts_with("57P"));
    error.is_closed() || ended_by_operator || error.code().is_none()
}

/// A session with a connection.
pub(crate) struct Session {
    pool: Pool,
    schema: Schema,
    /// None after it was discarded.
    connection: Option<Object>,
    in_transaction: bool,
    /// Whether a response is pending. The connection of a session that ends in this state cannot be reused.
    is_waiting: bool,
}

impl Session {
    /// The schema of our tables.
    pub(crate) fn schema(&self) -> &SchemaName {
        &self.schema.name
    }

    /// Uses the connection, and records whether the operation ran to its end.
    async fn waiting<T>(
        &mut self,
        work: impl AsyncFnOnce(&Object) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, tokio_postgres::Error> {
        let connection = self.connection.as_ref().expect("a session has a connection until it ends");
        self.is_waiting = true;
        let result = work(connection).await;
        self.is_waiting = false;
        result
    }

    pub(crate) async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, DatabaseError> {
        let schema = self.schema.clone();
        let sql = &*schema.within(sql);
        match self.rows_once(sql, &values).await {
            // Nothing has changed yet, so the statement can be repeated on a live connection.
            Err(error) if !self.in_transaction && is_connection_lost(&error) => {
                self.discard();
                self.connection = Some(self.pool.get().await?);
                Ok(self.rows_once(sql, &values).await?)
            }
            result => Ok(result?),
        }
    }

    async fn rows_once(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.waiting(async |connection| {
            let statement = connection.prepare_cached(sql).await?;
            let rows = connection.query(&statement, &wire::parameters(values)).await?;
            wire::rows(&statement, &rows)
        })
        .await
    }

    /// Runs a statement once for each list of parameters, and returns the number of affected rows.
    pub(crate) async fn execute(&mut self, sql: &str, rows: impl Rows) -> Result<u64, DatabaseError> {
        let schema = self.schema.clone();
        let sql = &*schema.within(sql);
        let touched = self.waiting(async |connection| {
            let statement = connection.prepare_cached(sql).await?;
            let mut touched = 0;
            for from in (0..rows.count()).step_by(PIPELINED) {
                let some = from..rows.count().min(from + PIPELINED);
                touched += pipeline(connection, &statement, &rows, some).await?;
            }
            Ok(touched)
        });
        Ok(touched.await?)
    }

    /// Runs several statements without parameters.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let schema = self.schema.clone();
        let sql = &*schema.within(sql);
        Ok(self.waiting(async |connection| connection.batch_execute(sql).await).await?)
    }

    pub(crate) async fn commit(mut self) -> Result<(), DatabaseError> {
        self.waiting(async |connection| connection.batch_execute("COMMIT").await).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Removes the connection from the pool and closes it, which rolls back the transaction.
    fn discard(&mut self) {
        self.in_transaction = false;
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}

/// Sends all statements without waiting in between, then waits for all responses.
async fn pipeline(
    connection: &Object,
    statement: &Statement,
    rows: &impl Rows,
    some: Range<usize>,
) -> Result<u64, tokio_postgres::Error> {
    let sent = some.map(async |at| connection.execute(statement, &wire::parameters(&rows.row(at))).await);
    Ok(try_join_all(sent).await?.into_iter().sum())
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_waiting {
            self.discard();
        }
        let Some(connection) = self.connection.as_ref().filter(|_| self.in_transaction) else { return };
        // The first poll queues the statement on the connection, before any later one. Nobody waits for its response.
        // If the connection is dead, the transaction is rolled back anyway.
        if let Some(Err(error)) = connection.batch_execute("ROLLBACK").now_or_never() {
            tracing::debug!(%error, "the connection ended before its transaction could be rolled back");
        }
    }
}
