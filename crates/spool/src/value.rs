//! Engine-independent SQL values, used as statement parameters and in rows.

use serde::de::{Deserialize, Deserializer, Visitor};
use std::fmt;

/// A value in a statement or a row. A `bool` is stored as the integer 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Blob(&'a [u8]),
}

/// A [`Value`] that owns its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedValue {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl OwnedValue {
    pub(crate) fn from_value(value: &Value<'_>) -> Self {
        match *value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Text(text) => Self::Text(text.to_owned()),
            Value::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }

    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Integer(number) => Value::Integer(*number),
            Self::Text(text) => Value::Text(text),
            Self::Blob(bytes) => Value::Blob(bytes),
        }
    }
}

/// The values of many rows, stored by column. All values in a column have the same type.
#[derive(Debug, Default)]
pub(crate) struct Columns(Vec<Vec<OwnedValue>>);

impl Columns {
    /// Adds a row, which must have as many values as the first one.
    pub(crate) fn push(&mut self, row: impl Values) {
        let values = row.to_values();
        if self.0.is_empty() {
            self.0 = vec![Vec::new(); values.len()];
        }
        for (column, value) in self.0.iter_mut().zip(&values) {
            column.push(OwnedValue::from_value(value));
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    pub(crate) fn into_columns(self) -> Vec<Vec<OwnedValue>> {
        self.0
    }
}

impl<'de> Deserialize<'de> for OwnedValue {
    fn deserialize<D: Deserializer<'de>>(column: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl Visitor<'_> for AnyValue {
            type Value = OwnedValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a column")
            }

            fn visit_unit<E>(self) -> Result<OwnedValue, E> {
                Ok(OwnedValue::Null)
            }

            fn visit_i64<E>(self, number: i64) -> Result<OwnedValue, E> {
                Ok(OwnedValue::Integer(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<OwnedValue, E> {
                Ok(OwnedValue::Text(text.to_owned()))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<OwnedValue, E> {
                Ok(OwnedValue::Blob(bytes.to_vec()))
            }
        }
        column.deserialize_any(AnyValue)
    }
}

/// A type that can be bound to a statement.
pub(crate) trait ToValue {
    fn to_value(&self) -> Value<'_>;
}

/// The parameters of a statement, in the order of their numbers (`?1`, `?2`, and so on). `()`
/// stands for no parameters.
pub(crate) trait Values {
    fn to_values(&self) -> Vec<Value<'_>>;
}

impl ToValue for Value<'_> {
    fn to_value(&self) -> Value<'_> {
        *self
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value<'_> {
        (**self).to_value()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

impl ToValue for str {
    fn to_value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl ToValue for String {
    fn to_value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl ToValue for [u8] {
    fn to_value(&self) -> Value<'_> {
        Value::Blob(self)
    }
}

impl ToValue for Vec<u8> {
    fn to_value(&self) -> Value<'_> {
        Value::Blob(self)
    }
}

impl<const N: usize> ToValue for [u8; N] {
    fn to_value(&self) -> Value<'_> {
        Value::Blob(self)
    }
}

macro_rules! integers {
    ($($small:ty),*) => {$(
        impl ToValue for $small {
            fn to_value(&self) -> Value<'_> {
                Value::Integer(i64::from(*self))
            }
        }
    )*};
}

integers!(bool, u8, u16, u32, i32, i64);

impl ToValue for u64 {
    /// Converts a counter, none of which ever gets near `i64::MAX`.
    fn to_value(&self) -> Value<'_> {
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl Values for () {
    fn to_values(&self) -> Vec<Value<'_>> {
        Vec::new()
    }
}

impl<T: ToValue, const N: usize> Values for [T; N] {
    fn to_values(&self) -> Vec<Value<'_>> {
        self.iter().map(ToValue::to_value).collect()
    }
}

impl<T: ToValue> Values for &[T] {
    fn to_values(&self) -> Vec<Value<'_>> {
        self.iter().map(ToValue::to_value).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident),+))*) => {$(
        impl<$($name: ToValue),+> Values for ($($name,)+) {
            #[allow(non_snake_case, reason = "the names of the types name the fields")]
            fn to_values(&self) -> Vec<Value<'_>> {
                let ($($name,)+) = self;
                vec![$($name.to_value()),+]
            }
        }
    )*};
}

tuples! {
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
    (A, B, C, D, E, F, G, H, I)
}

/// Builds an array of values of different types, for statements with more columns than the tuples
/// support. The array implements [`Values`].
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        [$(&$value as &dyn $crate::value::ToValue),*]
    };
}

pub(crate) use values;
