//! One field's value: its type and its limits. What is said of a wrong one holds nothing of a
//! customer's: its type or its length, a number or a word alone.

use crate::message::field::MessageField;
use callbridge_call::call::is_did;
use callbridge_call::{Direction, EventTime, Variable};
use serde_json::Value;
use std::time::Duration;

/// Bytes of a call's id, as of every id that calls are known by.
const ID_BYTES_MAX: usize = 256;
/// Characters of the name of a PBX or a trunk.
const NAME_CHARACTERS_MAX: usize = 64;
/// Bytes of an extension, as of a channel's name in Asterisk.
const EXTENSION_BYTES_MAX: usize = 80;
const EXTENSIONS_MAX: usize = 256;
/// Bytes of a variable's name, as Asterisk has them at most.
const VARIABLE_NAME_BYTES_MAX: usize = 80;
pub(crate) const VARIABLES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 1024;
const USER_FIELDS_MAX: usize = 16;
/// No number of any plan has more digits, dial prefix included.
const PHONE_BYTES_MAX: usize = 40;
/// Seconds of a week: no call is longer.
const DURATION_SEC_MAX: f64 = 604_800.0;
/// Seconds that microseconds since 1970 can hold, with room for a duration.
const EPOCH_SEC_MAX: f64 = 9.0e12;

/// Description of a value that is wrong, as "it is a text"; nothing of a customer's stands in it.
pub(crate) type Wrong = String;

/// A number or a boolean as it is; of all else its type.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "it is null".to_owned(),
        Value::Bool(it) => format!("it is {it}"),
        Value::Number(it) if it.to_string().len() <= 24 => format!("it is {it}"),
        Value::Number(_) => "it is a number of many digits".to_owned(),
        Value::String(it) if it.is_empty() => "it is an empty text".to_owned(),
        Value::String(_) => "it is a text".to_owned(),
        Value::Array(_) => "it is a list".to_owned(),
        Value::Object(_) => "it is an object".to_owned(),
    }
}

/// A text without control characters, of at most so many bytes.
fn text(value: &Value, bytes_max: usize) -> Result<&str, Wrong> {
    let Value::String(text) = value else {
        return Err(shown(value));
    };
    if text.len() > bytes_max {
        return Err(format!("it is a text of {} bytes", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("it holds control characters".to_owned());
    }
    Ok(text)
}

/// A text with something in it, and no white space at its ends.
fn name(value: &Value, bytes_max: usize) -> Result<&str, Wrong> {
    let text = text(value, bytes_max)?;
    if text.is_empty() {
        return Err(shown(value));
    }
    if text.trim() != text {
        return Err("it begins or ends with white space".to_owned());
    }
    Ok(text)
}

/// Returns `true` for a name that the flags take for a PBX or a trunk.
fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.chars().count() <= NAME_CHARACTERS_MAX && text.chars().all(good)
}

pub(crate) fn pbx(value: &Value) -> Result<String, Wrong> {
    let text = name(value, usize::MAX)?;
    let (own, server) = text.split_once('/').unwrap_or((text, "-"));
    such_a_name(text, is_name(own) && is_name(server))
}

fn such_a_name(text: &str, is_one: bool) -> Result<String, Wrong> {
    match is_one {
        true => Ok(text.to_owned()),
        false => Err("it is not such a name".to_owned()),
    }
}

pub(crate) fn id(value: &Value) -> Result<String, Wrong> {
    name(value, ID_BYTES_MAX).map(str::to_owned)
}

pub(crate) fn trunk(value: &Value) -> Result<String, Wrong> {
    let text = name(value, usize::MAX)?;
    such_a_name(text, is_name(text))
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
        return Err(shown(value));
    };
    if all.len() > count_max {
        return Err(format!("it is a list of {}", all.len()));
    }
    let mut found = Vec::with_capacity(all.len());
    for (at, value) in all.iter().enumerate() {
        found.push(one(value).map_err(|wrong| format!("of number {}: {wrong}", at + 1))?);
    }
    Ok(found)
}

/// The number as it is written. Whether it is one of the trunk's country is seen later.
pub(crate) fn phone(value: &Value) -> Result<String, Wrong> {
    let text = name(value, PHONE_BYTES_MAX)?;
    let marks = [' ', '-', '.', '(', ')'];
    let digits: String = text.chars().filter(|c| !marks.contains(c)).collect();
    let plain = digits.strip_prefix('+').unwrap_or(&digits);
    if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("it has other characters than digits".to_owned());
    }
    let plus = digits.len() > plain.len();
    let whole = |number: &str| (3..=15).contains(&number.len()) && !number.starts_with('0');
    if plus && !whole(plain) {
        return Err(format!("{} digits follow its plus", plain.len()));
    }
    // A dial prefix, an exit code and the number: no plan has more.
    if !(2..=24).contains(&plain.len()) {
        return Err(format!("it has {} digits", plain.len()));
    }
    Ok(text.to_owned())
}

/// The company's own number, as it is written at the PBX's door: short where the carrier sends its
/// last digits alone.
pub(crate) fn did(value: &Value) -> Result<String, Wrong> {
    let text = name(value, PHONE_BYTES_MAX)?;
    match is_did(text) {
        true => Ok(text.to_owned()),
        false => Err("it is no such number".to_owned()),
    }
}

pub(crate) fn answer(value: &Value) -> Result<bool, Wrong> {
    value.as_bool().ok_or_else(|| shown(value))
}

/// Reads an id of the CRM, a positive whole number.
pub(crate) fn number(value: &Value) -> Result<i64, Wrong> {
    let number = value.as_i64().filter(|it| *it > 0);
    number.ok_or_else(|| shown(value))
}

pub(crate) fn seconds(value: &Value) -> Result<Duration, Wrong> {
    let Value::Number(number) = value else {
        return Err(shown(value));
    };
    let seconds = number.as_f64().filter(|it| it.is_finite());
    let seconds = seconds.filter(|it| (0.0..=DURATION_SEC_MAX).contains(it));
    let seconds = seconds.ok_or_else(|| shown(value))?;
    // What a float cannot hold exactly is less than a microsecond here.
    let micros = (seconds * 1e6).round();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a week of microseconds"
    )]
    Ok(Duration::from_micros(micros as u64))
}

/// Epoch seconds, or ISO 8601 with a zone. Whether it can be true is seen later, with a clock.
pub(crate) fn moment(value: &Value) -> Result<EventTime, Wrong> {
    match value {
        Value::Number(number) => {
            let seconds = number.as_f64().filter(|it| it.abs() <= EPOCH_SEC_MAX);
            let seconds = seconds.ok_or_else(|| shown(value))?;
            #[allow(
                clippy::cast_possible_truncation,
                reason = "within what microseconds can hold"
            )]
            let micros = (seconds * 1e6).round() as i64;
            Ok(EventTime::from_micros(micros))
        }
        Value::String(text) => {
            let found = text.parse::<jiff::Timestamp>();
            let moment = found.map_err(|_| match text.parse::<jiff::civil::DateTime>() {
                Ok(_) => "it has no zone".to_owned(),
                Err(_) => "it is a text that is not such a time".to_owned(),
            })?;
            Ok(EventTime::from_micros(moment.as_microsecond()))
        }
        other => Err(shown(other)),
    }
}

/// Each name with its value, or its values where two legs of the call disagree.
pub(crate) fn variables(value: &Value) -> Result<Vec<Variable>, Wrong> {
    let Value::Object(all) = value else {
        return Err(shown(value));
    };
    if all.len() > VARIABLES_MAX {
        return Err(format!("it holds {} variables", all.len()));
    }
    let mut found = Vec::with_capacity(all.len());
    for (at, (name, value)) in all.iter().enumerate() {
        let place = |wrong: Wrong| format!("of number {}: {wrong}", at + 1);
        let named = !name.is_empty() && name.len() <= VARIABLE_NAME_BYTES_MAX;
        if !named || name.chars().any(char::is_control) {
            return Err(place("its name is none".to_owned()));
        }
        let values = match value {
            Value::Array(_) => user_fields(value),
            one => long_text(one).map(|it| vec![it]),
        };
        let values = values.map_err(place)?;
        if !values.is_empty() {
            found.push(Variable {
                name: name.clone(),
                values,
            });
        }
    }
    Ok(found)
}

/// Reads `INBOUND`, `OUTBOUND` or `INTERNAL`.
pub(crate) fn direction(value: &Value) -> Result<Direction, Wrong> {
    let word = value.as_str().ok_or_else(|| shown(value))?;
    let all = [Direction::Inbound, Direction::Outbound, Direction::Internal];
    let found = all.into_iter().find(|it| it.word() == word);
    found.ok_or_else(|| "it is another word".to_owned())
}

/// `field: what it is; it may be …`
pub(crate) fn words(field: MessageField, wrong: &str) -> String {
    format!("{field}: {wrong}; it may be {}", field.may_be())
}
