//! Reading a JSON body: fields taken one by one, each of its type; what was wrong (§7.5).

use super::envelope::{FieldError, Refusal, RefusalReason};
use serde_json::{Map, Value};

/// Before it nothing of ours happened: 2000-01-01.
pub(super) const EPOCH_MIN: i64 = 946_684_800;

/// The fields of a body not yet taken, and what was found wrong.
pub(super) struct BodyFields {
    pub(super) map: Map<String, Value>,
    pub(super) errors: Vec<FieldError>,
    /// Stands before each name in an error: `contacts[0].`
    prefix: String,
}

impl BodyFields {
    pub(super) const fn new(map: Map<String, Value>) -> Self {
        Self {
            map,
            errors: Vec::new(),
            prefix: String::new(),
        }
    }

    /// Of an element of a list in the body.
    pub(super) fn within(map: Map<String, Value>, prefix: String) -> Self {
        Self {
            prefix,
            ..Self::new(map)
        }
    }

    pub(super) fn refuse(&mut self, field: &str, reason: RefusalReason) {
        self.errors.push(FieldError {
            field: format!("{}{field}", self.prefix),
            reason,
        });
    }

    /// Takes a field of this type; null and absent are the same. Anything else is the parser's
    /// refusal.
    fn take<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        match self.map.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(self.wrong_type(name, &value, expected)),
            },
        }
    }

    /// Takes an integer, which has no fraction and is within the type's range.
    pub(super) fn integer(&mut self, name: &str, max: i64) -> Result<Option<i64>, Refusal> {
        let within = |n: &i64| *n <= max && *n >= -max - 1;
        self.take(name, "an integer", |value| value.as_i64().filter(within))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.take(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        self.take(name, "a boolean", Value::as_bool)
    }

    pub(super) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Refusal> {
        self.take(name, "an array", |value| value.as_array().cloned())
    }

    pub(super) fn required<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.refuse(name, RefusalReason::NotNull);
        }
        value
    }

    pub(super) fn check_phone(&mut self, name: &str, phone: &str) {
        if !is_phone(phone) {
            self.refuse(name, RefusalReason::ValidPhone);
        }
    }

    fn wrong_type(&self, name: &str, value: &Value, expected: &str) -> Refusal {
        let name = format!("{}{name}", self.prefix);
        Refusal::Unparsable(format!("{name}: {expected} expected, not {value}"))
    }
}

/// E.164 with its plus sign.
pub(super) fn is_phone(phone: &str) -> bool {
    let digits = phone.strip_prefix('+').unwrap_or_default();
    (7..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}
