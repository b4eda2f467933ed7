//! Values in the wire format of PostgreSQL.

use std::error::Error;
use std::sync::Arc;

use bytes::BytesMut;
use tokio_postgres::Statement;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::super::{Parameter, Row, Value};
use crate::Timestamp;

/// PostgreSQL counts time from the year 2000.
const MICROS_TO_2000: i64 = 946_684_800_000_000;

/// The first byte of binary JSONB.
const JSONB_VERSION: u8 = 1;

pub(super) fn parameters<'v>(values: &'v [Parameter<'v>]) -> Vec<&'v (dyn ToSql + Sync)> {
    values.iter().map(|value| value as _).collect()
}

pub(super) fn rows(statement: &Statement, rows: &[tokio_postgres::Row]) -> Result<Vec<Row>, tokio_postgres::Error> {
    let columns: Arc<[String]> = statement.columns().iter().map(|column| column.name().to_owned()).collect();
    let understood = |row: &tokio_postgres::Row| {
        let values: Result<Vec<Value>, _> = (0..columns.len()).map(|at| row.try_get(at)).collect();
        Ok(Row::new(Arc::clone(&columns), values?))
    };
    rows.iter().map(understood).collect()
}

type Boxed = Box<dyn Error + Sync + Send>;

impl ToSql for Parameter<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        match (self, kind) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Int(it), &Type::INT4) => i32::try_from(*it)?.to_sql(kind, out),
            (Self::Int(it), &Type::INT8) => it.to_sql(kind, out),
            (Self::Bool(it), &Type::BOOL) => it.to_sql(kind, out),
            (Self::Uuid(it), &Type::UUID) => it.to_sql(kind, out),
            (Self::Bytes(it), &Type::BYTEA) => it.to_sql(kind, out),
            (Self::Time(it), &Type::TIMESTAMPTZ) => (it.as_micros() - MICROS_TO_2000).to_sql(&Type::INT8, out),
            (Self::Text(it), &Type::TEXT | &Type::VARCHAR) => it.to_sql(kind, out),
            (Self::Word(it), &Type::TEXT | &Type::VARCHAR) => it.to_sql(kind, out),
            (Self::Json(it), &Type::JSON | &Type::TEXT) => it.to_sql(&Type::TEXT, out),
            (Self::Json(it), &Type::JSONB) => {
                out.extend_from_slice(&[JSONB_VERSION]);
                it.to_sql(&Type::TEXT, out)
            }
            _ => Err(format!("this value does not fit a {kind}").into()),
        }
    }

    /// Whether a value fits is decided when it is known.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl std::fmt::Debug for Parameter<'_> {
    /// Values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Value(..)")
    }
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(match *kind {
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::BOOL => Self::Bool(bool::from_sql(kind, raw)?),
            Type::UUID => Self::Uuid(Uuid::from_sql(kind, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_owned()),
            Type::TIMESTAMPTZ => {
                let micros = i64::from_sql(&Type::INT8, raw)?;
                Self::Time(Timestamp::from_micros(micros.saturating_add(MICROS_TO_2000)))
            }
            Type::TEXT | Type::VARCHAR | Type::NAME => Self::Text(String::from_sql(&Type::TEXT, raw)?.into()),
            Type::JSON => Self::Json(String::from_sql(&Type::TEXT, raw)?.into()),
            Type::JSONB => Self::Json(String::from_sql(&Type::TEXT, raw.get(1..).ok_or("empty JSONB")?)?.into()),
            _ => return Err(format!("a {kind} is not expected").into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Boxed> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
