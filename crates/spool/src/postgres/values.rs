//! Values and rows in PostgreSQL's binary form.

use crate::columns::ResultRow;
use crate::value::Value;
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Replacement for NUL characters, which PostgreSQL can't store in text.
const NUL: &str = "\u{fffd}";

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (*self, kind) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Integer(number), &Type::INT4) => i32::try_from(number)?.to_sql(kind, out),
            (Value::Integer(number), &Type::BOOL) => (number != 0).to_sql(kind, out),
            (Value::Integer(number), _) => number.to_sql(&Type::INT8, out),
            (Value::Text(text), _) if text.contains('\0') => {
                text.replace('\0', NUL).to_sql(&Type::TEXT, out)
            }
            (Value::Text(text), _) => text.to_sql(&Type::TEXT, out),
            (Value::Blob(bytes), _) => bytes.to_sql(&Type::BYTEA, out),
        }
    }

    /// Accepts every type, because the server infers it from the statement. A value of the wrong
    /// type is a bug in callbridge, which the server reports.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value received from the server.
struct Received<'a>(Value<'a>);

impl<'a> FromSql<'a> for Received<'a> {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let value = match *kind {
            Type::INT8 => Value::Integer(i64::from_sql(kind, raw)?),
            Type::INT4 => Value::Integer(i32::from_sql(kind, raw)?.into()),
            Type::INT2 => Value::Integer(i16::from_sql(kind, raw)?.into()),
            Type::OID => Value::Integer(u32::from_sql(kind, raw)?.into()),
            Type::BOOL => Value::Integer(bool::from_sql(kind, raw)?.into()),
            Type::BYTEA => Value::Blob(raw),
            Type::TEXT | Type::VARCHAR | Type::NAME | Type::UNKNOWN => {
                Value::Text(str::from_utf8(raw)?)
            }
            _ => return Err(format!("a column has the type {kind}").into()),
        };
        Ok(Self(value))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ResultRow for Row {
    fn count(&self) -> usize {
        self.len()
    }

    fn name(&self, at: usize) -> &str {
        self.columns()[at].name()
    }

    fn value(&self, at: usize) -> Result<Value<'_>, String> {
        let received = self.try_get(at).map(|Received(value)| value);
        received.map_err(|error| error.to_string())
    }
}
