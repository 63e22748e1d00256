//! The fields of a message, with the type and limits of each value. The description of an invalid
//! value never contains customer data, only the value's type or length, a number, or a word.

use callbridge_call::call::is_did;
use callbridge_call::units::is_name;
use callbridge_call::{Direction, EventTime, Variable};
use serde_json::Value;
use std::time::Duration;

/// A field of a message, in the order of `docs/call-message.md`.
#[derive(strum::Display, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "camelCase")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageField {
    /// ID of the PBX that handled the call.
    Pbx,
    /// The call's ID on that PBX.
    Id,
    /// The call's direction: `INBOUND`, `OUTBOUND`, or `INTERNAL`.
    Direction,
    /// The name of a `--trunk`.
    Trunk,
    /// The customer's number, or `null` if it's hidden.
    Phone,
    /// The number that the customer dialed.
    Did,
    /// When the call started, in epoch seconds or milliseconds, or in ISO 8601 with a UTC offset.
    StartedAt,
    /// Duration of the call in seconds, at most a week.
    DurationSec,
    /// Whether the customer talked to anyone in the company.
    Answered,
    /// How many seconds the customer talked, or 0 if the call wasn't answered.
    TalkSec,
    /// The extension that the call is credited to.
    Extension,
    /// All extensions that talked to the customer, in order.
    Extensions,
    /// The CRM's ID of the lead.
    LeadId,
    /// The CRM's ID of the employee.
    EmployeeId,
    /// Channel variables, for lead rules.
    Variables,
    /// User fields, for lead rules.
    UserFields,
    /// Whether part of the call is missing.
    Incomplete,
    /// Whether times and durations are estimates.
    Estimate,
    /// Version of the message format, which is 1 if the field is missing.
    Version,
}

impl MessageField {
    /// All fields, in the order of `docs/call-message.md`.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the field's name in the JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns a description of the allowed values that can be appended to "it must be".
    pub const fn allowed_values(self) -> &'static str {
        match self {
            Self::Pbx => {
                "a name of at most 64 letters, digits, `-`, `_` and `.` (a `/` and the name of a \
                 server of that PBX can follow)"
            }
            Self::Id => "a string of 1 to 256 bytes that no other call of this PBX has",
            Self::Direction => "\"INBOUND\", \"OUTBOUND\" or \"INTERNAL\"",
            Self::StartedAt => {
                "epoch seconds (1795151317.52) or milliseconds, or ISO 8601 with a zone \
                 (\"2026-11-20T08:28:37+05:00\")"
            }
            Self::DurationSec => "seconds from 0 to 604800 (a week), whole or fractional",
            Self::Answered => "true or false",
            Self::TalkSec => {
                "seconds from 0 to 604800, at most durationSec; more than 0 if the call was \
                 answered, 0 if not"
            }
            Self::Phone => {
                "the customer's number in E.164 (\"+998901110001\") or as it is dialed in the \
                 trunk's country; null if it is hidden"
            }
            Self::Did => {
                "the company's number that the customer dialed: 2 to 24 digits, with or without a \
                 plus (\"998712001122\"), or null"
            }
            Self::Trunk => "the name of a --trunk, or null",
            Self::Extension => "a string of 1 to 80 bytes (\"101\"), or null",
            Self::Extensions => {
                "a list of at most 256 strings of 1 to 80 bytes ([\"101\",\"102\"])"
            }
            Self::LeadId => "a whole number above 0 (4001), or null",
            Self::EmployeeId => "a whole number above 0 (501), or null",
            Self::Variables => {
                "an object of at most 64 strings ({\"LEAD_ID\":\"4001\"}): names of 1 to 80 bytes, \
                 values of at most 1024"
            }
            Self::UserFields => "a list of at most 16 strings of at most 1024 bytes",
            Self::Incomplete | Self::Estimate => "true or false",
            Self::Version => "1, or left out",
        }
    }
}

/// Maximum length of a call ID in bytes, which is the same for all of a call's IDs.
const ID_BYTES_MAX: usize = 256;
/// Maximum length of an extension in bytes, which is the same as for a channel name in Asterisk.
const EXTENSION_BYTES_MAX: usize = 80;
const EXTENSIONS_MAX: usize = 256;
/// Maximum length of a variable name in bytes, which is the same as in Asterisk.
const VARIABLE_NAME_BYTES_MAX: usize = 80;
pub(crate) const VARIABLES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 1024;
const USER_FIELDS_MAX: usize = 16;
/// Maximum length in bytes of a phone number with a dial prefix, spaces, and punctuation.
const PHONE_BYTES_MAX: usize = 40;
/// Maximum duration of a call in seconds, which is a week.
const DURATION_SEC_MAX: f64 = 604_800.0;
/// Largest number accepted as a time, which is the year 5138 in microseconds.
const EPOCH_MAX: f64 = 1.0e17;

/// The description of an invalid value, such as "it is a string". It never contains customer data.
pub(crate) type Wrong = String;

/// Describes a value for an error message, using the value itself for a number or Boolean and the
/// type for anything else.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "it is null".to_owned(),
        Value::Bool(answer) => format!("it is {answer}"),
        Value::Number(number) if number.to_string().len() <= 24 => format!("it is {number}"),
        Value::Number(_) => "it is a number with many digits".to_owned(),
        Value::String(text) if text.is_empty() => "it is an empty string".to_owned(),
        Value::String(_) => "it is a string".to_owned(),
        Value::Array(_) => "it is a list".to_owned(),
        Value::Object(_) => "it is an object".to_owned(),
    }
}

/// Reads a text of at most `bytes_max` bytes without any control characters.
fn text(value: &Value, bytes_max: usize) -> Result<&str, Wrong> {
    let Value::String(text) = value else {
        return Err(describe(value));
    };
    if text.len() > bytes_max {
        return Err(format!("it is a string of {} bytes", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("it has control characters".to_owned());
    }
    Ok(text)
}

/// Reads a nonempty text without leading or trailing whitespace.
fn name(value: &Value, bytes_max: usize) -> Result<&str, Wrong> {
    let text = text(value, bytes_max)?;
    if text.is_empty() {
        return Err(describe(value));
    }
    if text.trim() != text {
        return Err("it begins or ends with white space".to_owned());
    }
    Ok(text)
}

pub(crate) fn pbx(value: &Value) -> Result<String, Wrong> {
    let text = name(value, usize::MAX)?;
    let (own, server) = text.split_once('/').unwrap_or((text, "-"));
    check_name(text, is_name(own) && is_name(server))
}

fn check_name(text: &str, is_one: bool) -> Result<String, Wrong> {
    if !is_one {
        return Err("it is not a valid name".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn id(value: &Value) -> Result<String, Wrong> {
    name(value, ID_BYTES_MAX).map(str::to_owned)
}

pub(crate) fn trunk(value: &Value) -> Result<String, Wrong> {
    let text = name(value, usize::MAX)?;
    check_name(text, is_name(text))
}

pub(crate) fn extension(value: &Value) -> Result<String, Wrong> {
    name(value, EXTENSION_BYTES_MAX).map(str::to_owned)
}

pub(crate) fn extensions(value: &Value) -> Result<Vec<String>, Wrong> {
    list(value, EXTENSIONS_MAX, extension)
}

pub(crate) fn user_fields(value: &Value) -> Result<Vec<String>, Wrong> {
    list(value, USER_FIELDS_MAX, long_text)
}

fn long_text(value: &Value) -> Result<String, Wrong> {
    text(value, TEXT_BYTES_MAX).map(str::to_owned)
}

fn list(
    value: &Value,
    count_max: usize,
    one: impl Fn(&Value) -> Result<String, Wrong>,
) -> Result<Vec<String>, Wrong> {
    let Value::Array(all) = value else {
        return Err(describe(value));
    };
    if all.len() > count_max {
        return Err(format!("it is a list of {} items", all.len()));
    }
    let read = all
        .iter()
        .zip(1..)
        .map(|(value, number)| one(value).map_err(|wrong| format!("item {number}: {wrong}")));
    read.collect()
}

/// Reads the customer's number without changing it. Whether it's valid in the trunk's country is
/// checked later by the mapping.
pub(crate) fn phone(value: &Value) -> Result<String, Wrong> {
    let text = name(value, PHONE_BYTES_MAX)?;
    let marks = [' ', '-', '.', '(', ')'];
    let digits: String = text.chars().filter(|c| !marks.contains(c)).collect();
    let plain = digits.strip_prefix('+').unwrap_or(&digits);
    if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("it has characters other than digits".to_owned());
    }
    let has_plus = digits.len() > plain.len();
    let is_international = (3..=15).contains(&plain.len()) && !plain.starts_with('0');
    if has_plus && !is_international {
        return Err(format!("it has {} digits after the plus", plain.len()));
    }
    // No numbering plan has more than 24 digits, including a dial prefix and an exit code.
    if !(2..=24).contains(&plain.len()) {
        return Err(format!("it has {} digits", plain.len()));
    }
    Ok(text.to_owned())
}

/// Reads the company's number that the customer dialed. It's short if the carrier only sends its
/// last digits.
pub(crate) fn did(value: &Value) -> Result<String, Wrong> {
    let text = name(value, PHONE_BYTES_MAX)?;
    if !is_did(text) {
        return Err("it is not a valid number".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn answer(value: &Value) -> Result<bool, Wrong> {
    value.as_bool().ok_or_else(|| describe(value))
}

/// Reads a CRM ID, which is a positive whole number.
pub(crate) fn number(value: &Value) -> Result<i64, Wrong> {
    let number = value.as_i64().filter(|number| *number > 0);
    number.ok_or_else(|| describe(value))
}

pub(crate) fn seconds(value: &Value) -> Result<Duration, Wrong> {
    let Value::Number(number) = value else {
        return Err(describe(value));
    };
    let seconds = number
        .as_f64()
        .filter(|seconds| (0.0..=DURATION_SEC_MAX).contains(seconds))
        .ok_or_else(|| describe(value))?;
    // A float's rounding error is less than a microsecond here.
    let micros = (seconds * 1e6).round();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a week of microseconds"
    )]
    Ok(Duration::from_micros(micros as u64))
}

/// Parses epoch seconds or milliseconds, or ISO 8601 with a UTC offset. Whether the time is
/// plausible is checked against the clock later, when the call is judged.
pub(crate) fn moment(value: &Value) -> Result<EventTime, Wrong> {
    match value {
        Value::Number(number) => {
            let time = number
                .as_f64()
                .filter(|time| time.abs() <= EPOCH_MAX)
                .ok_or_else(|| describe(value))?;
            let (whole, fraction) = (time.floor(), time.fract().rem_euclid(1.0));
            #[allow(
                clippy::cast_possible_truncation,
                reason = "the limit is below what an integer can hold"
            )]
            let (whole, micros) = (whole as i64, (fraction * 1e6).round() as i64);
            Ok(EventTime::from_epoch(whole, micros))
        }
        Value::String(text) => {
            let found = text.parse::<jiff::Timestamp>();
            let moment = found.map_err(|_| match text.parse::<jiff::civil::DateTime>() {
                Ok(_) => "it has no time zone".to_owned(),
                Err(_) => "it is not a valid time".to_owned(),
            })?;
            Ok(EventTime::from_micros(moment.as_microsecond()))
        }
        other => Err(describe(other)),
    }
}

/// Reads the channel variables. A variable has several values if two of the call's legs have
/// different ones.
pub(crate) fn variables(value: &Value) -> Result<Vec<Variable>, Wrong> {
    let Value::Object(all) = value else {
        return Err(describe(value));
    };
    if all.len() > VARIABLES_MAX {
        return Err(format!("it has {} variables", all.len()));
    }
    let mut found = Vec::with_capacity(all.len());
    for ((name, value), number) in all.iter().zip(1..) {
        let is_named = !name.is_empty() && name.len() <= VARIABLE_NAME_BYTES_MAX;
        if !is_named || name.chars().any(char::is_control) {
            return Err(format!("variable {number}: its name is not valid"));
        }
        let read = match value {
            Value::Array(_) => user_fields(value),
            single => long_text(single).map(|text| vec![text]),
        };
        let values = read.map_err(|wrong| format!("variable {number}: {wrong}"))?;
        if !values.is_empty() {
            found.push(Variable {
                name: name.clone(),
                values,
            });
        }
    }
    Ok(found)
}

/// Reads `INBOUND`, `OUTBOUND`, or `INTERNAL`.
pub(crate) fn direction(value: &Value) -> Result<Direction, Wrong> {
    let word = value.as_str().ok_or_else(|| describe(value))?;
    let all = [Direction::Inbound, Direction::Outbound, Direction::Internal];
    let found = all.into_iter().find(|direction| direction.word() == word);
    found.ok_or_else(|| "it is an unknown word".to_owned())
}

/// Returns an error message in the form `field: what is wrong; it must be …`.
pub(crate) fn message(field: MessageField, wrong: &str) -> String {
    format!("{field}: {wrong}; it must be {}", field.allowed_values())
}
