//! Statements put together from what was asked for: filters, pages, and what is cut from the end of a history.

use crate::database::{Mismatch, Row, Session, Value, values};
use crate::error::Error;
use crate::{Listed, Page, RetentionPolicy, Store};

/// Conditions that must all be true.
#[derive(Default)]
pub(crate) struct Filter {
    conditions: String,
    values: Vec<Value>,
}

impl Filter {
    /// Adds a condition if there is a value for it: `.and("status =", Some(..))`.
    pub(crate) fn and(mut self, condition: &str, value: Option<impl Into<Value>>) -> Self {
        let Some(value) = value else { return self };
        self.values.push(value.into());
        let parameter = format!("{condition} ${}", self.values.len());
        self.push(&parameter);
        self
    }

    /// Adds the condition that a column has one of some values, if there are any.
    pub(crate) fn and_one_of(mut self, column: &str, values: impl IntoIterator<Item: Into<Value>>) -> Self {
        let before = self.values.len();
        self.values.extend(values.into_iter().map(Into::into));
        if self.values.len() > before {
            let parameters: Vec<String> = (before..self.values.len()).map(|at| format!("${}", at + 1)).collect();
            self.push(&format!("{column} IN ({})", parameters.join(", ")));
        }
        self
    }

    fn push(&mut self, condition: &str) {
        self.conditions.push_str(if self.conditions.is_empty() { " WHERE " } else { " AND " });
        self.conditions.push_str(condition);
    }

    /// The first match.
    pub(crate) async fn first<T>(
        self,
        session: &mut Session,
        Columns { columns, tables, order }: Columns,
        understand: impl Fn(&mut Row) -> Result<T, Mismatch>,
    ) -> Result<Option<T>, Error> {
        let sql = format!("SELECT {columns} FROM {tables}{} ORDER BY {order} LIMIT 1", self.conditions);
        session.first(&sql, self.values, understand).await
    }

    /// The only row of an aggregate over the matches.
    pub(crate) async fn only<T>(
        self,
        session: &mut Session,
        columns: &str,
        table: &str,
        understand: impl Fn(&mut Row) -> Result<T, Mismatch>,
    ) -> Result<Option<T>, Error> {
        session.first(&format!("SELECT {columns} FROM {table}{}", self.conditions), self.values, understand).await
    }

    /// One page of the matches in an order, and the number of all matches.
    pub(crate) async fn page<T: Send + 'static>(
        self,
        session: &mut Session,
        Columns { columns, tables, order }: Columns,
        page: Page,
        understand: impl Fn(&mut Row) -> Result<T, Mismatch> + Send + 'static,
    ) -> Result<Listed<T>, Error> {
        let Self { conditions, values } = self;
        let next = values.len() + 1;
        let list =
            format!("SELECT {columns} FROM {tables}{conditions} ORDER BY {order} LIMIT ${next} OFFSET ${}", next + 1);
        let mut with_page = values.clone();
        with_page.extend(values![page.limit, page.offset]);
        let items = session.list(&list, with_page, understand).await?;
        // If the page reaches the end, the total is known without another query.
        let is_end = items.len() < page.limit as usize && (!items.is_empty() || page.offset == 0);
        let total = if is_end {
            page.offset + items.len() as u64
        } else {
            session.number(&format!("SELECT count(*) AS n FROM {tables}{conditions}"), values).await?
        };
        Ok(Listed { items, total })
    }
}

/// The columns, the table and the order of a list.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) columns: &'static str,
    pub(crate) tables: &'static str,
    pub(crate) order: &'static str,
}

/// How many rows one transaction deletes. Other writers get a turn between two transactions.
const CUT_AT_ONCE: u32 = 2000;

/// Deletes old rows of a table, and returns their number. A reader finds them, so that writers do not wait.
pub(crate) async fn cut(
    store: &Store,
    operation: &'static str,
    table: &str,
    moment: &str,
    keep: RetentionPolicy,
) -> Result<u64, Error> {
    let mut gone = 0;
    if let Some(since) = keep.since {
        let sql = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {moment} < $1 ORDER BY {moment} LIMIT $2)"
        );
        gone += cut_in_steps(store, operation, &sql, values![since]).await?;
    }
    if let Some(newest) = keep.newest {
        let first_too_many =
            format!("SELECT {moment} AS moment, id FROM {table} ORDER BY {moment} DESC, id DESC LIMIT 1 OFFSET $1");
        let position = |row: &mut Row| Ok(vec![row.take::<Value>("moment")?, row.take::<Value>("id")?]);
        let mut session = store.read(operation).await?;
        let first_too_many = session.first(&first_too_many, values![newest], position).await?;
        drop(session);
        if let Some(first_too_many) = first_too_many {
            let sql = format!(
                "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE ({moment}, id) <= ($1, $2) \
                 ORDER BY {moment}, id LIMIT $3)"
            );
            gone += cut_in_steps(store, operation, &sql, first_too_many).await?;
        }
    }
    Ok(gone)
}

/// Runs a deleting statement until it finds nothing; its last parameter limits how many rows it deletes at once.
pub(crate) async fn cut_in_steps(
    store: &Store,
    operation: &'static str,
    sql: &str,
    mut values: Vec<Value>,
) -> Result<u64, Error> {
    values.extend(values![CUT_AT_ONCE]);
    let mut gone = 0;
    loop {
        let mut session = store.write(operation).await?;
        let step = session.execute(sql, values.clone()).await?;
        session.commit().await?;
        gone += step;
        if step < CUT_AT_ONCE.into() {
            return Ok(gone);
        }
    }
}
