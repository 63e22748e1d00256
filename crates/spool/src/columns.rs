//! Reads result rows with serde. A tuple is read in column order, and a struct by column names. Any
//! other type is read from a single column, by default the first one.
//!
//! A struct's field is read from the column with the same name. If the field is itself a struct,
//! it's read from the whole row. If it's a tuple, it's read from that column and the ones after it.

use crate::value::Value;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde::de::{IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::cell::OnceCell;

/// A result row from either engine.
pub(crate) trait ResultRow {
    /// Returns the number of columns.
    fn count(&self) -> usize;
    fn name(&self, at: usize) -> &str;
    /// Returns the value in the column at index `at`, or the reason why it can't be read.
    fn value(&self, at: usize) -> Result<Value<'_>, String>;
}

/// A statement's column names. They're read only once, and only if a struct needs them, because
/// SQLite takes a lock for each name.
pub(crate) type Names = OnceCell<Vec<String>>;

/// Reads a row into `T`. If a value doesn't fit its type, the error starts with the value of the
/// row's `id` column, if it has one.
pub(crate) fn read<T: DeserializeOwned>(row: &dyn ResultRow, names: &Names) -> Result<T, String> {
    let at = 0;
    T::deserialize(Column { row, names, at }).map_err(|error| match id_of(row) {
        Some(id) => format!("{id}: {error}"),
        None => error.to_string(),
    })
}

fn id_of(row: &dyn ResultRow) -> Option<i64> {
    let at = (0..row.count()).find(|at| row.name(*at) == "id")?;
    match row.value(at) {
        Ok(Value::Integer(id)) => Some(id),
        Ok(_) | Err(_) => None,
    }
}

/// A value stored as JSON in a single column.
#[derive(serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Json<T: DeserializeOwned>(#[serde(deserialize_with = "json_column")] pub T);

/// Reads a column that holds JSON, treating NULL as JSON null.
pub(crate) fn json_column<'de, D, T>(column: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let text = Option::<&str>::deserialize(column)?;
    serde_json::from_str(text.unwrap_or("null")).map_err(D::Error::custom)
}

#[derive(Clone, Copy)]
struct Column<'a> {
    row: &'a dyn ResultRow,
    names: &'a Names,
    at: usize,
}

impl<'a> Column<'a> {
    fn value(self) -> Result<Value<'a>, Error> {
        self.row.value(self.at).map_err(Error::custom)
    }
}

impl<'de> IntoDeserializer<'de, Error> for Column<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Column<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value()? {
            Value::Null => visitor.visit_unit(),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Blob(bytes) => visitor.visit_bytes(bytes),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value()? {
            Value::Integer(number) => visitor.visit_bool(number != 0),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value()? {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value()? {
            Value::Blob(bytes) => visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied())),
            other => Err(Error::custom(format!(
                "{other:?} is not a sequence of bytes"
            ))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value()? {
            Value::Text(word) => visitor.visit_enum(word.into_deserializer()),
            other => Err(Error::custom(format!("{other:?} is not a word"))),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, v: V) -> Result<V::Value, Error> {
        let rest = self.at..self.row.count();
        v.visit_seq(SeqDeserializer::new(rest.map(|at| Self { at, ..self })))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let names = self.names.get_or_init(|| {
            let all = (0..self.row.count()).map(|at| self.row.name(at).to_owned());
            all.collect()
        });
        let all = names.iter().map(String::as_str).enumerate();
        let columns = all.map(|(at, name)| (name, Self { at, ..self }));
        visitor.visit_map(MapDeserializer::new(columns))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct tuple_struct map identifier ignored_any
    }
}
