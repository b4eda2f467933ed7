//! PostgreSQL: a pool of connections that come back by themselves, and sessions that have one for a while.

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

/// Connections at most. Statements are short, and recording is batched.
const CONNECTIONS: usize = 8;

/// Statements of a batch that are on the way at once.
const PIPELINED: usize = 256;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// How long sent bytes may stay unacknowledged before a connection counts as dead.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// A PostgreSQL server.
pub(crate) struct Postgres {
    pool: Pool,
    schema: Schema,
}

/// The schema that has our tables. Statements are written for the usual one.
#[derive(Clone)]
struct Schema {
    name: SchemaName,
    /// What stands in statements for that other schema; nothing where it is the usual one.
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
    /// Reads the address; connects to nothing yet.
    pub(crate) fn new(location: &PostgresLocation, shown: &str) -> Result<Self, OpenError> {
        let failed = |source: Cause| OpenError::Location { location: shown.to_owned(), source };
        let (url, security) = tls::split(&location.url).map_err(|error| failed(error.into()))?;
        let mut config: tokio_postgres::Config = url.parse().map_err(|error: tokio_postgres::Error| {
            // The error itself does not quote the address, and so not the password.
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

    /// A session that only reads, each statement by itself.
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

    /// A transaction.
    ///
    /// A connection may have died since it was last used, and nobody has noticed. Beginning is harmless, so it is tried
    /// with the others too, and at last with a new one.
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

/// Whether the connection is gone, so that another may do better.
fn is_connection_lost(error: &tokio_postgres::Error) -> bool {
    let ended_by_operator = error.code().is_some_and(|code| code.code().starts_with("57P"));
    error.is_closed() || ended_by_operator || error.code().is_none()
}

/// Somebody's turn with a connection.
pub(crate) struct Session {
    pool: Pool,
    schema: Schema,
    /// There until it is discarded.
    connection: Option<Object>,
    in_transaction: bool,
    /// An answer is outstanding. A session that ends in this state leaves a connection that nobody else can use.
    is_waiting: bool,
}

impl Session {
    /// The schema that has our tables.
    pub(crate) fn schema(&self) -> &SchemaName {
        &self.schema.name
    }

    /// Does something with the connection, and remembers whether it was waited for until its end.
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
            // Nothing was changed yet and nothing is lost by asking again, on a connection that is alive.
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

    /// Runs a statement once for each list of values; says how many rows it touched.
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

    /// Runs a text of several statements without values.
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

    /// Takes the connection out of the pool and closes it, which undoes what was not committed.
    fn discard(&mut self) {
        self.in_transaction = false;
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}

/// Sends all without waiting for answers in between, then waits for all of them.
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
        // The first poll puts the statement into the connection's queue, in front of whatever comes next. Nobody waits
        // for its answer. If the connection is dead the transaction is undone anyway.
        if let Some(Err(error)) = connection.batch_execute("ROLLBACK").now_or_never() {
            tracing::debug!(%error, "the connection ended before its transaction could be undone");
        }
    }
}
