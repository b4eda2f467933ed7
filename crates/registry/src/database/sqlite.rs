//! SQLite: a thread that owns a connection, and sessions that send it jobs.
//!
//! A store has two such threads: one writes, one reads. With the write-ahead log, readers see the last committed state
//! while a transaction is written, so they do not wait for writers.

mod file;

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, InterruptHandle, OpenFlags, Statement, ToSql, params_from_iter};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use super::dialect::for_sqlite;
use super::{DatabaseError, Parameter, Row, Rows, Value};
use crate::error::OpenError;
use file::OpenFile;

/// How long a statement waits for another process that writes. Shorter than the timeout of an operation.
const BUSY_LIMIT: Duration = Duration::from_secs(4);

/// The number of prepared statements that each connection caches.
const STATEMENT_CACHE_SIZE: usize = 128;

/// A database file and its two threads.
pub(crate) struct Sqlite {
    writer: Arc<Worker>,
    reader: Arc<Worker>,
    file: Arc<OpenFile>,
}

impl Sqlite {
    /// Opens the file. Creates it and its folder if they do not exist, accessible only to their owner.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        file::prepare(path)?;
        Self::by(path, connect)
    }

    /// Opens an existing file for reading; a read-only file or folder is enough.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, OpenError> {
        file::refuse_empty(path)?;
        Self::by(path, connect_existing)
    }

    fn by(path: &Path, connect: Connect) -> Result<Self, OpenError> {
        let worker = |name| Worker::start(path, name, connect).map(Arc::new);
        let (writer, reader) = (worker("writer")?, worker("reader")?);
        let file =
            OpenFile::at(path).map_err(|error| OpenError::File { path: path.to_owned(), source: error.into() })?;
        Ok(Self { writer, reader, file: Arc::new(file) })
    }

    /// The problem of the file, if further writes would be lost.
    pub(crate) fn file_error(&self) -> Option<String> {
        self.file.problem()
    }

    /// Checks the file with a new connection. Open connections may have everything in memory, so they do not show what
    /// is on disk.
    pub(crate) async fn check(&self) -> Result<(), DatabaseError> {
        self.refuse_lost()?;
        let file = Arc::clone(&self.file);
        let checked = tokio::task::spawn_blocking(move || {
            let connection = Connection::open_with_flags(file.path(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            connection.busy_timeout(BUSY_LIMIT)?;
            connection.query_row("SELECT count(*) FROM registry_meta", [], |row| row.get::<_, i64>(0))
        });
        match checked.await.expect("a look does not panic") {
            Ok(_) => Ok(()),
            Err(error) if is_other_content(&error) => {
                let path = self.file.path().display();
                Err(DatabaseError::Lost(format!(
                    "the file {path} is no longer a registry ({error}); stop the service, restore a backup and start it again"
                )))
            }
            // A read-only file needs auxiliary files that cannot be written next to it.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn refuse_lost(&self) -> Result<(), DatabaseError> {
        self.file.problem().map_or(Ok(()), |problem| Err(DatabaseError::Lost(problem)))
    }

    /// A read-only session.
    pub(crate) async fn read(&self) -> Result<Session, DatabaseError> {
        Ok(Session::new(&self.reader).await)
    }

    /// A transaction with an exclusive lock from the start.
    pub(crate) async fn write(&self) -> Result<Session, DatabaseError> {
        // `FULL` makes commits survive a power failure. It costs one flush for each transaction.
        self.begin("PRAGMA synchronous = FULL; BEGIN IMMEDIATE").await
    }

    /// The same without its own flush: the next transaction that flushes, or the next checkpoint, includes it.
    pub(crate) async fn write_lightly(&self) -> Result<Session, DatabaseError> {
        self.begin("PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE").await
    }

    async fn begin(&self, how: &'static str) -> Result<Session, DatabaseError> {
        let mut session = Session::new(&self.writer).await;
        // A write to a file that was removed must not be acknowledged.
        self.refuse_lost()?;
        session.in_transaction = true;
        session.run(move |connection| connection.execute_batch(how)).await?;
        Ok(session)
    }

    /// Waits until both threads have ended and the file is closed. All sessions must have ended.
    pub(crate) fn close(&self) {
        for worker in [&self.writer, &self.reader] {
            worker.close();
        }
    }
}

/// Whether a file contains something else than a registry.
fn is_other_content(error: &rusqlite::Error) -> bool {
    let is_no_database =
        matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt));
    is_no_database || error.to_string().contains("no such table")
}

/// How a file is opened.
type Connect = fn(&Path) -> rusqlite::Result<Connection>;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// A thread that owns a connection.
struct Worker {
    /// The channel is unbounded, but a session sends one job and waits for it.
    jobs: std::sync::Mutex<Option<mpsc::Sender<Job>>>,
    interrupt: InterruptHandle,
    turn: Arc<Mutex<()>>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    fn start(path: &Path, name: &str, connect: Connect) -> Result<Self, OpenError> {
        let failed = |source| OpenError::File { path: path.to_owned(), source };
        let mut connection = connect(path).map_err(|error| failed(error.into()))?;
        let interrupt = connection.get_interrupt_handle();
        let (jobs, inbox) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new()
            .name(format!("sqlite-{name}"))
            .spawn(move || {
                for job in inbox {
                    job(&mut connection);
                }
            })
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            jobs: std::sync::Mutex::new(Some(jobs)),
            interrupt,
            turn: Arc::new(Mutex::new(())),
            thread: std::sync::Mutex::new(Some(thread)),
        })
    }

    fn send(&self, job: Job) -> Result<(), DatabaseError> {
        let jobs = self.jobs.lock().expect("nothing panics while it holds this");
        let sent = jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(DatabaseError::Unavailable("the database is closed".into())) }
    }

    fn close(&self) {
        self.jobs.lock().expect("nothing panics while it holds this").take();
        let thread = self.thread.lock().expect("nothing panics while it holds this").take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the database thread panicked");
        }
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    prepared(Connection::open(path)?)
}

/// Opens the file normally; if nothing can be written, read-only.
fn connect_existing(path: &Path) -> rusqlite::Result<Connection> {
    let usual = || {
        let connection = prepared(Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?)?;
        readable(&connection).map(|()| connection)
    };
    let in_the_way = [ErrorCode::CannotOpen, ErrorCode::ReadOnly, ErrorCode::PermissionDenied];
    usual().or_else(|error| {
        let is_protected = error.sqlite_error_code().is_some_and(|code| in_the_way.contains(&code));
        if is_protected { open_read_only(path).map_err(|_| error) } else { Err(error) }
    })
}

/// Opens a file that cannot be written. Even readers write auxiliary files, unless they know that nobody writes.
fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let connection = if Path::new(&log).exists() {
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?
    } else {
        let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)?
    };
    connection.busy_timeout(BUSY_LIMIT)?;
    readable(&connection).map(|()| connection)
}

/// Whether the contents can be read: SQLite reads the file only then.
fn readable(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))
}

fn prepared(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY_LIMIT)?;
    // With a write-ahead log, a killed process leaves a consistent database.
    use_write_ahead_log(&connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    Ok(connection)
}

/// Programs that start with a new file at the same time may find it locked here, and SQLite does not wait by itself.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_LIMIT;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Binds the parameters of a statement. It keeps those of its last run, and in a batch most stay the same, so only
/// changes are bound.
fn bind(statement: &mut Statement<'_>, bound: &[Parameter<'_>], values: &[Parameter<'_>]) -> rusqlite::Result<()> {
    let expected = statement.parameter_count();
    if values.len() != expected {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), expected));
    }
    for (at, value) in values.iter().enumerate() {
        if bound.get(at).unwrap_or(&Parameter::Null) != value {
            match value {
                Parameter::Uuid(it) => {
                    let mut text = uuid::Uuid::encode_buffer();
                    statement.raw_bind_parameter(at + 1, &*it.hyphenated().encode_lower(&mut text))?;
                }
                value => statement.raw_bind_parameter(at + 1, value)?,
            }
        }
    }
    Ok(())
}

/// A session with a connection.
pub(crate) struct Session {
    worker: Arc<Worker>,
    in_transaction: bool,
    _turn: OwnedMutexGuard<()>,
}

impl Session {
    async fn new(worker: &Arc<Worker>) -> Self {
        let turn = Arc::clone(&worker.turn).lock_owned().await;
        Self { worker: Arc::clone(worker), in_transaction: false, _turn: turn }
    }

    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (answer, answered) = oneshot::channel();
        self.worker.send(Box::new(move |connection| {
            // The caller may be gone; then nobody needs the result.
            drop(answer.send(job(connection)));
        }))?;
        let result = answered.await.map_err(|_| DatabaseError::Unavailable("the database thread has ended".into()))?;
        result.map_err(DatabaseError::from)
    }

    pub(crate) async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>, DatabaseError> {
        let sql = for_sqlite(sql);
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let columns: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
            let mut rows = statement.query(params_from_iter(values))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let values = (0..columns.len()).map(|at| row.get_ref(at).map(Value::from)).collect::<Result<_, _>>()?;
                found.push(Row::new(Arc::clone(&columns), values));
            }
            Ok(found)
        })
        .await
    }

    /// Runs a statement once for each list of parameters, and returns the number of affected rows.
    pub(crate) async fn execute(&mut self, sql: &str, rows: impl Rows) -> Result<u64, DatabaseError> {
        let sql = for_sqlite(sql);
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let mut touched = 0;
            let mut bound = Cow::default();
            for values in (0..rows.count()).map(|at| rows.row(at)) {
                bind(&mut statement, &bound, &values)?;
                touched += statement.raw_execute()? as u64;
                bound = values;
            }
            Ok(touched)
        })
        .await
    }

    /// Runs several statements without parameters.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let sql = sql.to_owned();
        self.run(move |connection| connection.execute_batch(&sql)).await
    }

    pub(crate) async fn commit(mut self) -> Result<(), DatabaseError> {
        self.run(|connection| connection.execute_batch("COMMIT")).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Interrupts the current statement of this session.
    pub(crate) fn interrupt(&self) {
        self.worker.interrupt.interrupt();
    }
}

impl Drop for Session {
    /// Rolls back what was not committed before the next session starts: jobs run in order.
    fn drop(&mut self) {
        if !self.in_transaction {
            return;
        }
        let undone = self.worker.send(Box::new(|connection| {
            if !connection.is_autocommit()
                && let Err(error) = connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "failed to roll back a transaction");
            }
        }));
        if undone.is_err() {
            tracing::debug!("the database was closed during a transaction, which rolls it back");
        }
    }
}

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Bool(it) => ToSqlOutput::Borrowed(ValueRef::Integer((*it).into())),
            Self::Int(it) => ToSqlOutput::Borrowed(ValueRef::Integer(*it)),
            Self::Text(it) | Self::Json(it) => ToSqlOutput::Borrowed(ValueRef::Text(it.as_bytes())),
            Self::Word(it) => ToSqlOutput::Borrowed(ValueRef::Text(it.as_bytes())),
            Self::Uuid(it) => {
                let mut text = uuid::Uuid::encode_buffer();
                ToSqlOutput::Owned(it.hyphenated().encode_lower(&mut text).to_owned().into())
            }
            Self::Time(it) => ToSqlOutput::Borrowed(ValueRef::Integer(it.as_micros())),
            Self::Bytes(it) => ToSqlOutput::Borrowed(ValueRef::Blob(it)),
        })
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            // We store no fractions; the column reports the type it expected.
            ValueRef::Null | ValueRef::Real(_) => Self::Null,
            ValueRef::Integer(it) => Self::Int(it),
            ValueRef::Text(it) => Self::Text(String::from_utf8_lossy(it).into_owned().into()),
            ValueRef::Blob(it) => Self::Bytes(it.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_file_is_read_without_creating_others() {
        let folder = tempfile::tempdir().unwrap();
        let (path, taken) = (folder.path().join("odd ?#%.db"), folder.path().join("taken.db"));
        let written = connect(&path).unwrap();
        written.execute_batch("CREATE TABLE kept (n); INSERT INTO kept VALUES (7)").unwrap();
        let count = || std::fs::read_dir(folder.path()).unwrap().count();
        let kept = |connection: &Connection| connection.query_row("SELECT n FROM kept", [], |row| row.get::<_, i64>(0));
        // One that was left as it was when its program was killed: what is only in the log counts.
        for ending in ["", "-wal", "-shm"] {
            let name = |path: &Path| format!("{}{ending}", path.display());
            std::fs::copy(name(&path), name(&taken)).unwrap();
        }
        assert_eq!(kept(&open_read_only(&taken).unwrap()), Ok(7));
        drop(written);
        let before = count();
        assert_eq!(kept(&open_read_only(&path).unwrap()), Ok(7));
        assert_eq!(count(), before);
    }
}
