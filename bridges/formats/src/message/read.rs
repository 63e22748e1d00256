//! Reads a finished call from a JSON message.

use super::field::{self, MessageField};
use super::{VERSION, newer_version, version_problem};
use callbridge_call::framing::without_byte_order_mark;
use callbridge_call::{
    Direction, EventTime, Extension, FinishedCall, GivenIds, Linkedid, RawNumber, ReportedCall,
    WrongCall,
};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Maximum number of errors to report for a message.
const ERRORS_MAX: usize = 5;

/// Reads one message. `content_type` is `None` if it doesn't come from a broker.
///
/// # Errors
///
/// Returns an error that lists the invalid fields and their allowed values.
pub fn read(bytes: &[u8], content_type: Option<&str>) -> Result<ReportedCall, WrongCall> {
    if let Some(problem) = content_type.and_then(version_problem) {
        return Err(unnamed_error(problem));
    }
    let fields = fields(without_byte_order_mark(bytes))
        .map_err(|broken| unnamed_error(broken.to_string()))?;
    let mut reading = MessageReading {
        fields: &fields,
        errors: Vec::new(),
    };
    reading.version();
    if reading.errors.is_empty()
        && let Some(call) = reading.call()
        && reading.errors.is_empty()
    {
        return Ok(call);
    }
    Err(reading.refuse())
}

fn unnamed_error(message: String) -> WrongCall {
    WrongCall {
        pbx: None,
        id: None,
        message,
    }
}

struct MessageReading<'a> {
    fields: &'a FieldValues,
    errors: Vec<String>,
}

impl MessageReading<'_> {
    fn refuse(mut self) -> WrongCall {
        let rest = self.errors.len().saturating_sub(ERRORS_MAX);
        self.errors.truncate(ERRORS_MAX);
        if rest > 0 {
            self.errors.push(format!("and {rest} more"));
        }
        WrongCall {
            pbx: self.read_text(MessageField::Pbx, field::pbx),
            id: self.read_text(MessageField::Id, field::id),
            message: self.errors.join(". "),
        }
    }

    /// Returns a field's text as read by `one`, or `None` if the field is missing or invalid.
    fn read_text(
        &self,
        field: MessageField,
        one: fn(&Value) -> Result<String, String>,
    ) -> Option<String> {
        one(self.fields.get(&field)?).ok()
    }

    fn add_error(&mut self, field: MessageField, what: &str) {
        self.errors.push(field::message(field, what));
    }

    fn version(&mut self) {
        match self.fields.get(&MessageField::Version).map(Value::as_u64) {
            None | Some(Some(VERSION)) => {}
            Some(Some(newer)) if newer > VERSION => self.errors.push(newer_version(newer)),
            Some(_) => self.add_error(MessageField::Version, "there is no such version"),
        }
    }

    /// Reads an optional field with `one`, adding an error if the value is invalid. `null` is
    /// treated as a missing field.
    fn read_optional<T>(
        &mut self,
        field: MessageField,
        one: fn(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.fields.get(&field).filter(|value| !value.is_null())?;
        self.note_error(field, one(value))
    }

    fn note_error<T>(&mut self, field: MessageField, read: Result<T, String>) -> Option<T> {
        read.map_err(|wrong| self.add_error(field, &wrong)).ok()
    }

    /// Reads a required field with `one`, adding an error if it's missing or invalid.
    fn read_required<T>(
        &mut self,
        field: MessageField,
        one: fn(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let Some(value) = self.fields.get(&field) else {
            self.add_error(field, "it is missing");
            return None;
        };
        self.note_error(field, one(value))
    }

    fn call(&mut self) -> Option<ReportedCall> {
        let pbx = self.read_required(MessageField::Pbx, field::pbx);
        let id = self.read_required(MessageField::Id, field::id);
        let direction = self.read_required(MessageField::Direction, field::direction);
        let started = self.read_required(MessageField::StartedAt, field::moment);
        let lengths = self.lengths();
        let given = GivenIds {
            lead: self.read_optional(MessageField::LeadId, field::number),
            employee: self.read_optional(MessageField::EmployeeId, field::number),
        };
        let number = self.number(direction, given.lead.is_some());
        let trunk = self.read_optional(MessageField::Trunk, field::trunk);
        let did = self.read_optional(MessageField::Did, field::did);
        let employee = self.read_optional(MessageField::Extension, field::extension);
        let in_order = self.read_optional(MessageField::Extensions, field::extensions);
        let variables = self.read_optional(MessageField::Variables, field::variables);
        let userfields = self.read_optional(MessageField::UserFields, field::user_fields);
        let incomplete = self.read_optional(MessageField::Incomplete, field::answer);
        let estimate = self.read_optional(MessageField::Estimate, field::answer);
        let (answered, lasted, talk) = lengths?;
        let started: EventTime = started?;
        let linkedid = Linkedid::new(id?)?;
        let did = if direction == Some(Direction::Inbound) {
            did
        } else {
            None
        };
        let incomplete = incomplete.unwrap_or_default();
        let in_order = in_order.unwrap_or_default().into_iter();
        Some(ReportedCall {
            pbx: pbx?,
            call: FinishedCall {
                linkedid,
                also_known_as: Vec::new(),
                direction: direction?,
                answered,
                trunk,
                number,
                more_numbers: Vec::new(),
                shown_number: None,
                did,
                employee: employee.map(Extension::new),
                employees_in_order: in_order.map(Extension::new).collect(),
                started,
                ended: started.plus(lasted),
                talk,
                variables: variables.unwrap_or_default(),
                userfields: userfields.unwrap_or_default(),
                incomplete: incomplete.then(|| INCOMPLETE.to_owned()),
                estimate: estimate.unwrap_or_default(),
                by_arrival: false,
                live: false,
                remarks: Vec::new(),
                decided_by: Vec::new(),
                timeline: None,
                unmatched: Vec::new(),
                unknown_channels: Vec::new(),
                given: Some(given),
            },
        })
    }

    /// Returns whether the call was answered, its duration, and its talk time, or adds an error and
    /// returns `None` if these contradict each other. Whether the talk time exceeds the duration is
    /// checked by the code that judges the call, because both may be rounded.
    fn lengths(&mut self) -> Option<(bool, Duration, Duration)> {
        let whole = self.read_required(MessageField::DurationSec, field::seconds);
        let answered = self.read_required(MessageField::Answered, field::answer);
        let talk_value = self.fields.get(&MessageField::TalkSec);
        let is_talk_given = talk_value.is_some_and(|value| !value.is_null());
        let talk = self.read_optional(MessageField::TalkSec, field::seconds);
        let whole = whole?;
        let answered = answered?;
        let wrong = match (answered, talk) {
            (_, None) if is_talk_given => return None,
            (true, None) => "it is missing, and answered is true".to_owned(),
            (true, Some(Duration::ZERO)) => "it is 0, and answered is true".to_owned(),
            (false, Some(talk)) if talk > Duration::ZERO => {
                format!("it is {}, and answered is false", talk.as_secs_f64())
            }
            (_, talk) => return Some((answered, whole, talk.unwrap_or_default())),
        };
        self.add_error(MessageField::TalkSec, &wrong);
        None
    }

    /// Reads the customer's number. The field may only be missing if the message has a lead
    /// (`lead`) or the call is internal. A hidden number is `null`.
    fn number(&mut self, direction: Option<Direction>, lead: bool) -> Option<RawNumber> {
        let with_customer = direction.is_some_and(|direction| direction != Direction::Internal);
        if with_customer && !lead && !self.fields.contains_key(&MessageField::Phone) {
            self.add_error(MessageField::Phone, "it is missing, and no leadId is given");
            return None;
        }
        let text = self.read_optional(MessageField::Phone, field::phone)?;
        // Treat the number like one from a dial string, so that it has no dial prefix if it's valid
        // as is.
        Some(RawNumber::new(text, true))
    }
}

/// Why a call is incomplete if its message sets `incomplete`, which comes without any details.
const INCOMPLETE: &str = "incomplete: the message says that facts of the call are missing";

/// The known fields of a message. Unknown fields are ignored.
type FieldValues = BTreeMap<MessageField, Value>;

/// An error in the bytes, before any field's value has been read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum BytesFault {
    /// The bytes aren't a JSON object.
    #[error(
        "the message is not a JSON object; it must be like {{\"pbx\":…, \"id\":…, \"direction\":…, \
         \"startedAt\":…, \"durationSec\":…, \"answered\":…}}"
    )]
    NotAnObject,
    /// The bytes aren't valid JSON. The error is in or after this field.
    #[error("{}", field::message(*.0, "the text after it is not JSON"))]
    At(MessageField),
    /// The bytes aren't valid JSON, and there's no known field before the error.
    #[error("the message is not JSON; it must be one JSON object in UTF-8")]
    NotJson,
    /// A field appears twice in the message, so there's no telling which value is right.
    #[error("{}", field::message(*.0, "it is in the message twice"))]
    Twice(MessageField),
}

/// Reads a JSON object and returns its known fields.
fn fields(bytes: &[u8]) -> Result<FieldValues, BytesFault> {
    let mut object = Object::default();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = json.deserialize_map(&mut object);
    match (read.and_then(|()| json.end()), object.twice) {
        (Ok(()), None) => Ok(object.fields),
        (Ok(()), Some(field)) => Err(BytesFault::Twice(field)),
        (Err(error), _) if error.is_data() => Err(BytesFault::NotAnObject),
        (Err(_), _) => Err(object.last.map_or(BytesFault::NotJson, BytesFault::At)),
    }
}

#[derive(Default)]
struct Object {
    fields: FieldValues,
    twice: Option<MessageField>,
    /// The last field whose name was read, to locate an error after it, or `None` after an unknown
    /// name.
    last: Option<MessageField>,
}

impl<'de> Visitor<'de> for &mut Object {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            self.last = name.parse().ok();
            let Some(field) = self.last else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.fields.insert(field, map.next_value()?).is_some() {
                self.twice.get_or_insert(field);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_error_names_the_field_where_it_breaks() {
        for (text, wants) in [
            (
                r#"{"pbx":"a","durationSec":NaN}"#,
                BytesFault::At(MessageField::DurationSec),
            ),
            (
                r#"{"pbx":"a","talkSec":-Infinity,"id":"1"}"#,
                BytesFault::At(MessageField::TalkSec),
            ),
            (
                r#"{"startedAt":1e999}"#,
                BytesFault::At(MessageField::StartedAt),
            ),
            (
                "{\n\"pbx\":\"a\",\n \"id\":'1'}",
                BytesFault::At(MessageField::Id),
            ),
            (
                r#"{"variables":{"id":"x","pbx":"#,
                BytesFault::At(MessageField::Variables),
            ),
            (r#"{"pbx":"a\":"#, BytesFault::At(MessageField::Pbx)),
            (r#"{"color":NaN}"#, BytesFault::NotJson),
            ("", BytesFault::NotJson),
            ("{", BytesFault::NotJson),
            ("[1]", BytesFault::NotAnObject),
            ("4", BytesFault::NotAnObject),
            (
                r#"{"id":"1","id":"2"}"#,
                BytesFault::Twice(MessageField::Id),
            ),
        ] {
            assert_eq!(
                fields(text.as_bytes()).expect_err("broken"),
                wants,
                "{text}"
            );
        }
    }

    #[test]
    fn unknown_fields_are_ignored_whatever_their_value() {
        let text = br#"{"x":[{"id":"no"}],"id":"1","X-Id":null,"x":2}"#;
        let read = fields(text).expect("an object");
        assert_eq!(read.into_keys().collect::<Vec<_>>(), [MessageField::Id]);
    }
}
