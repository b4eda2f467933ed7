//! SQLite: a thread with a connection that does what it is told, and sessions that tell it.
//!
//! Two such threads serve a store: one writes, one reads. The write-ahead log lets readers see the last whole state
//! while a transaction is being written, so nobody who lists waits for somebody who registers.

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

/// How long a statement waits for another process that writes. Shorter than the time an operation has.
const BUSY_LIMIT: Duration = Duration::from_secs(4);

/// Statements kept ready by each connection.
const STATEMENT_CACHE_SIZE: usize = 128;

/// A database file and the two threads that have it open.
pub(crate) struct Sqlite {
    writer: Arc<Worker>,
    reader: Arc<Worker>,
    file: Arc<OpenFile>,
}

impl Sqlite {
    /// Opens the file, and makes it and its folder where they are missing, for nobody but their owner.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        file::prepare(path)?;
        Self::by(path, connect)
    }

    /// Opens a file that is there, to look at it: one that can only be read will do, and so will its folder.
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

    /// What happened to the file, if something did by which everything written from now on is lost.
    pub(crate) fn file_error(&self) -> Option<String> {
        self.file.trouble()
    }

    /// Looks at the file as somebody would who opens it now. What the connections that are open have in memory says
    /// nothing about what is on the disk.
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
                    "the file {path} is no registry any more ({error}); stop the service, restore a backup and start it again"
                )))
            }
            // One that may only be read needs what cannot be written beside it.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn refuse_lost(&self) -> Result<(), DatabaseError> {
        self.file.trouble().map_or(Ok(()), |trouble| Err(DatabaseError::Lost(trouble)))
    }

    /// A session that only reads.
    pub(crate) async fn read(&self) -> Result<Session, DatabaseError> {
        Ok(Session::new(&self.reader).await)
    }

    /// A transaction, alone with the database from the start.
    pub(crate) async fn write(&self) -> Result<Session, DatabaseError> {
        // `FULL` keeps what was said to be kept when the power goes, too. It costs one flush for each transaction.
        self.begin("PRAGMA synchronous = FULL; BEGIN IMMEDIATE").await
    }

    /// The same without a flush of its own: the next one that has one, or the log's return to the file, flushes it.
    pub(crate) async fn write_lightly(&self) -> Result<Session, DatabaseError> {
        self.begin("PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE").await
    }

    async fn begin(&self, how: &'static str) -> Result<Session, DatabaseError> {
        let mut session = Session::new(&self.writer).await;
        // What goes into a file that nobody will find again must not be acknowledged.
        self.refuse_lost()?;
        session.in_transaction = true;
        session.run(move |connection| connection.execute_batch(how)).await?;
        Ok(session)
    }

    /// Waits until both threads have ended and the file is closed. Sessions must be over.
    pub(crate) fn close(&self) {
        for worker in [&self.writer, &self.reader] {
            worker.close();
        }
    }
}

/// Whether a file has something else in it than a registry.
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
    /// Unbounded in type, not in fact: whoever has the turn sends one job and waits for it.
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
            tracing::error!("the thread of the database ended in a panic");
        }
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    prepared(Connection::open(path)?)
}

/// As everybody opens it; or, where nothing may be written, so that nothing has to be.
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

/// Opens a file that cannot be written. Even readers write beside it, unless they are told that nobody does.
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

/// Whether what is in a file can be read: SQLite opens it only then.
fn readable(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))
}

fn prepared(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY_LIMIT)?;
    // With a write-ahead log a killed process leaves a whole database.
    use_write_ahead_log(&connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    Ok(connection)
}

/// Programs that meet at a fresh file may find it locked here, and SQLite does not wait by itself.
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

/// Gives a statement its values. It keeps those of its last run, and in a batch most stay the same: they are left alone.
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

/// Somebody's turn with a connection.
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
            // Whoever asked may have gone; then nobody misses the answer.
            drop(answer.send(job(connection)));
        }))?;
        let result =
            answered.await.map_err(|_| DatabaseError::Unavailable("the thread of the database has ended".into()))?;
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

    /// Runs a statement once for each list of values; says how many rows it touched.
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

    /// Runs a text of several statements without values.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let sql = sql.to_owned();
        self.run(move |connection| connection.execute_batch(&sql)).await
    }

    pub(crate) async fn commit(mut self) -> Result<(), DatabaseError> {
        self.run(|connection| connection.execute_batch("COMMIT")).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Makes the connection stop what it is doing for this session.
    pub(crate) fn interrupt(&self) {
        self.worker.interrupt.interrupt();
    }
}

impl Drop for Session {
    /// Whatever was not committed is undone before the next session gets its turn: jobs are done in order.
    fn drop(&mut self) {
        if !self.in_transaction {
            return;
        }
        let undone = self.worker.send(Box::new(|connection| {
            if !connection.is_autocommit()
                && let Err(error) = connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "could not undo a transaction");
            }
        }));
        if undone.is_err() {
            tracing::debug!("the database was closed during a transaction, which undoes it");
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
            // We keep no fractions; the column that asks will say what it wanted.
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
    fn a_file_that_cannot_be_written_is_read_and_nothing_is_put_beside_it() {
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
