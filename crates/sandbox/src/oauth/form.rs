//! Form-encoded fields (`application/x-www-form-urlencoded`), of a body or a query.

use super::problem::{Code, Problem};
use std::fmt;
use url::form_urlencoded;

/// Most fields looked at; more is a malformed request.
const FIELDS_MAX: usize = 100;

/// The fields in the order they were sent.
#[derive(Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl fmt::Debug for Form {
    /// Names alone: the values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Form {
    /// Reads any bytes; what is no UTF-8 is replaced, and so equal to nothing that was given out.
    ///
    /// # Errors
    /// More than a hundred fields.
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let fields: Vec<(String, String)> = form_urlencoded::parse(bytes)
            .take(FIELDS_MAX + 1)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        if fields.len() > FIELDS_MAX {
            let words = format!("more than {FIELDS_MAX} fields");
            return Err(Problem::new(Code::InvalidRequest, words));
        }
        Ok(Self(fields))
    }

    /// A field that may be missing; an empty one counts as missing (RFC 6749 §3.1).
    ///
    /// # Errors
    /// It stands twice.
    pub fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Problem> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() {
            let words = format!("{name} stands twice");
            return Err(Problem::new(Code::InvalidRequest, words));
        }
        Ok(first.filter(|value| !value.is_empty()))
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is missing, empty, or stands twice.
    pub fn needed<'a>(&'a self, name: &'a str) -> Result<&'a str, Problem> {
        let missing = || Problem::new(Code::InvalidRequest, format!("{name} is missing or empty"));
        self.one(name)?.ok_or_else(missing)
    }

    /// Every value of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(given, _)| given == name);
        named.map(|(_, value)| value.as_str())
    }
}
