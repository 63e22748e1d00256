//! A row of SQLite as serde reads it: a tuple by the order of its columns, a struct by their names,
//! anything else from one column, the first where nothing else is said. A struct in a field of
//! another one is read from the same row, where a column has the field's name, and a tuple in a
//! field from that column on.

use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde::de::{IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::cell::OnceCell;

/// Returns a reader for the rows of one statement. If a value does not fit, the error names the
/// row's id, if it has one.
pub(crate) fn reader<T: DeserializeOwned>() -> impl FnMut(&Row<'_>) -> rusqlite::Result<T> {
    let names = OnceCell::new();
    move |row| {
        let (names, at) = (&names, 0);
        T::deserialize(Column { row, names, at }).map_err(|error| {
            let id = row.get::<_, i64>("id");
            let words = id.map_or(error.to_string(), |id| format!("{id}: {error}"));
            rusqlite::Error::ToSqlConversionFailure(words.into())
        })
    }
}

/// A value whose column holds it as JSON.
#[derive(serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Json<T: DeserializeOwned>(#[serde(deserialize_with = "json_column")] pub T);

/// Reads a column that holds JSON. NULL is read as JSON null.
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
    row: &'a Row<'a>,
    /// The names of all columns, read once if a struct asks: SQLite takes a lock for each.
    names: &'a OnceCell<Vec<String>>,
    at: usize,
}

impl<'a> Column<'a> {
    fn value(self) -> Result<ValueRef<'a>, Error> {
        self.row.get_ref(self.at).map_err(Error::custom)
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
            ValueRef::Null => visitor.visit_unit(),
            ValueRef::Integer(number) => visitor.visit_i64(number),
            ValueRef::Real(number) => visitor.visit_f64(number),
            ValueRef::Text(text) => {
                visitor.visit_borrowed_str(str::from_utf8(text).map_err(Error::custom)?)
            }
            ValueRef::Blob(bytes) => visitor.visit_bytes(bytes),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value()? {
            ValueRef::Integer(number) => visitor.visit_bool(number != 0),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value()? {
            ValueRef::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let bytes = self.value()?.as_blob().map_err(Error::custom)?;
        visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let word = self.value()?.as_str().map_err(Error::custom)?;
        visitor.visit_enum(word.into_deserializer())
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, v: V) -> Result<V::Value, Error> {
        let rest = self.at..self.row.as_ref().column_count();
        v.visit_seq(SeqDeserializer::new(rest.map(|at| Self { at, ..self })))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let statement = self.row.as_ref();
        let all = || statement.column_names().map(str::to_owned).collect();
        let names = self.names.get_or_init(all);
        let all = names.iter().map(String::as_str).enumerate();
        let columns = all.map(|(at, name)| (name, Self { at, ..self }));
        visitor.visit_map(MapDeserializer::new(columns))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct tuple_struct map identifier ignored_any
    }
}
