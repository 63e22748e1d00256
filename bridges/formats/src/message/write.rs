//! Writes a finished call as a JSON message.

use super::field::{self, MessageField};
use callbridge_call::{EventTime, FinishedCall};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Values of a call that callbridge found, as opposed to the PBX reporting them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolvedIds<'a> {
    /// The customer's number in E.164. If it's `None`, the number reported by the PBX is written.
    pub phone: Option<&'a str>,
    /// The lead found by the lead rules.
    pub lead: Option<i64>,
    /// The extension's employee, from the employee lists.
    pub employee: Option<i64>,
}

/// Returns the message for a finished call, as a single line. `pbx` is the ID of the call's PBX,
/// and `settled` has values that replace those reported by the PBX.
pub fn write(pbx: &str, call: &FinishedCall, settled: ResolvedIds<'_>) -> String {
    let mut fields = Map::new();
    for &field in MessageField::ALL {
        if let Some(value) = value_of(field, pbx, call, settled) {
            fields.insert(field.name().to_owned(), value);
        }
    }
    Value::Object(fields).to_string()
}

/// Returns a field's value, or `None` if the message doesn't contain the field.
fn value_of(
    field: MessageField,
    pbx: &str,
    call: &FinishedCall,
    settled: ResolvedIds<'_>,
) -> Option<Value> {
    let given = call.given.unwrap_or_default();
    Some(match field {
        MessageField::Pbx => json!(pbx),
        MessageField::Id => json!(call.linkedid.as_str()),
        MessageField::Direction => json!(call.direction.word()),
        MessageField::Trunk => json!(call.trunk),
        MessageField::Phone => {
            let raw = call.number.as_ref().map(|number| number.text.as_str());
            // Write `null` for a text that isn't a number, because a reader would reject it.
            let readable = raw.filter(|text| field::phone(&json!(text)).is_ok());
            json!(settled.phone.or(readable))
        }
        MessageField::Did => json!(call.did.as_ref()?),
        MessageField::StartedAt => json!(epoch(call.started)),
        MessageField::DurationSec => json!(seconds(call.ended.since(call.started))),
        MessageField::Answered => json!(call.answered),
        MessageField::TalkSec if call.answered => json!(seconds(call.talk)),
        MessageField::TalkSec => json!(0),
        MessageField::Extension => {
            let employee = call.employee.as_ref();
            let value = employee.map(|extension| json!(extension.as_str()));
            json!(value.filter(|value| field::extension(value).is_ok()))
        }
        MessageField::Extensions => {
            let all = call.employees_in_order.iter();
            let values = all.map(|extension| json!(extension.as_str()));
            readable(values, field::extensions)
        }
        MessageField::LeadId => json!(settled.lead.or(given.lead)),
        MessageField::EmployeeId => json!(settled.employee.or(given.employee)),
        MessageField::Variables => variables(call),
        MessageField::UserFields if call.userfields.is_empty() => return None,
        MessageField::UserFields => {
            let values = call.userfields.iter().map(|text| json!(text));
            readable(values, field::user_fields)
        }
        MessageField::Incomplete => json!(call.incomplete.is_some()),
        MessageField::Estimate => json!(call.estimate),
        MessageField::Version => return None,
    })
}

/// Returns the list of values that a reader accepts. Those exceeding the reader's limits are
/// omitted, so that it doesn't reject the call.
fn readable<T>(all: impl Iterator<Item = Value>, reads: fn(&Value) -> Result<T, String>) -> Value {
    let mut kept = Vec::new();
    for one in all {
        kept.push(one);
        if reads(&json!(kept)).is_err() {
            kept.pop();
        }
    }
    json!(kept)
}

fn variables(call: &FinishedCall) -> Value {
    let mut kept = Map::new();
    for variable in &call.variables {
        let value = match &variable.values[..] {
            [one] => json!(one),
            several => json!(several),
        };
        let full = kept.len() == field::VARIABLES_MAX;
        let alone = json!({ &variable.name: &value });
        if !full && field::variables(&alone).is_ok() {
            kept.insert(variable.name.clone(), value);
        }
    }
    Value::Object(kept)
}

/// Converts microseconds to seconds, as an integer if they're whole seconds or else as a decimal
/// number.
fn number(micros: i64) -> Value {
    match micros % 1_000_000 {
        0 => json!(micros / 1_000_000),
        #[allow(
            clippy::cast_precision_loss,
            reason = "a float holds the microseconds of our time"
        )]
        _ => json!(micros as f64 / 1e6),
    }
}

fn epoch(time: EventTime) -> Value {
    number(time.micros())
}

fn seconds(time: Duration) -> Value {
    number(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}
