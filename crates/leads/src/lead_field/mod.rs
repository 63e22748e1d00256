//! Lead fields that show the lead's calls (`--lead-field`), and values set manually.
//!
//! The CRM only accepts lead-level fields (`infoType` `LED`, §4.4.2) and silently ignores all
//! others. That's why each ID is first compared with the catalog (`GET crm-field`).
//!
//! | module | contents |
//! |---|---|
//! | [`shows`] | the values that one lead must show (the newest call wins), and their progress |
//! | [`catalog`] | the CRM's fields, and whether an ID can be written |
//! | [`item`] | field values, as typed and as sent (§2.4) |
//! | [`refusal`] | values that the CRM rejected, by field |

pub mod catalog;
pub mod item;
pub mod refusal;
pub mod shows;

pub use catalog::{Catalog, CrmField, Fit};
pub use item::Item;
pub use refusal::{Refusal, RefusedFields, RefusedPart};
pub use shows::LeadFieldState;

use callbridge_call::{Direction, EpochSeconds};
use callbridge_model::CallRecord;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The ID of one of the CRM's fields (§2.4 `id`), which is a positive integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldId(i64);

impl FieldId {
    /// Creates an ID, or returns `None` unless it's positive.
    pub fn new(id: i64) -> Option<Self> {
        if id > 0 { Some(Self(id)) } else { None }
    }

    /// Parses an ID that consists only of decimal digits, or returns `None` otherwise.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        text.parse().ok().and_then(Self::new)
    }

    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FieldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fact about a lead's calls that a field can show. The names are those used in the
/// `--lead-field` flag, and they're also stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray, strum::EnumString, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Name {
    /// Start of the lead's newest call.
    LastCall,
    /// Start of the newest call from the customer that nobody answered. Cleared once an employee
    /// has talked to the customer.
    LastMissed,
    /// The employee (§2.6 `employeeId`) in the newest call that has one.
    LastEmployee,
    /// The newest call's trunk.
    Trunk,
    /// The number that the customer dialed in the newest inbound call for which it's known.
    Did,
    /// The newest call's direction, `INBOUND` or `OUTBOUND`.
    Direction,
    /// The extension that answered the newest answered call.
    AnsweredBy,
    /// Number of missed calls from the customer since an employee last talked to them.
    MissedCount,
}

impl Name {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the fact's name in the `--lead-field` flag, such as `last_call`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the kinds of values that the fact can be written as.
    const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::LastCall => &[Kind::Text, Kind::Number, Kind::Date],
            Self::LastMissed => &[Kind::Text, Kind::Number, Kind::Boolean, Kind::Date],
            Self::LastEmployee => &[Kind::Text, Kind::Number],
            Self::MissedCount => &[Kind::Text, Kind::Number, Kind::Boolean],
            Self::Trunk | Self::Did | Self::Direction | Self::AnsweredBy => &[Kind::Text],
        }
    }

    /// Parses a name, which may contain `-` or `_`, or returns `None` for an unknown one.
    pub fn from_word(word: &str) -> Option<Self> {
        word.replace('-', "_").parse().ok()
    }
}

/// The kind of value in a field. The types of the CRM's fields aren't documented (§2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::EnumString, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// A text. Times are in ISO 8601.
    #[default]
    Text,
    /// A whole number. Times are in epoch seconds.
    Number,
    /// Yes or no, which is `false` for a count of 0 and `true` for any other value.
    Boolean,
    /// A date in the PBX's time zone, such as `2026-11-20`.
    Date,
}

/// A field, along with how it's written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    pub id: FieldId,
    pub kind: Kind,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Text => self.id.fmt(f),
            kind => write!(f, "{}:{kind}", self.id),
        }
    }
}

/// The CRM's field for each name in `--lead-field`.
pub type Fields = BTreeMap<Name, Field>;

/// The checked `--lead-field` flag, along with how values are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The value of `--lead-field`, which maps each name to one of the CRM's fields.
    pub fields: Fields,
    /// The PBX's time zone, in which times are shown.
    pub zone: TimeZone,
    /// The value of `--field-list-wrapper`, which is the list's key. With `None`, just the list is
    /// sent.
    pub wrapper: Option<String>,
}

/// Parses the value of `--lead-field`, such as
/// `last_call=11,last_missed=12:date,last_employee=13:number`.
///
/// # Errors
/// Returns one message per error, which may be an unknown name, an invalid ID, or a duplicate.
pub fn parse(text: &str) -> Result<Fields, Vec<String>> {
    let mut fields = Fields::new();
    let mut errors = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some((word, id)) = part.split_once('=') else {
            errors.push(format!("`{part}` is not NAME=ID"));
            continue;
        };
        let word = word.trim();
        let Some(name) = Name::from_word(word) else {
            let names: Vec<&str> = Name::ALL.iter().map(|name| name.word()).collect();
            let list = names.join(", ");
            errors.push(format!(
                "`{word}` is not a known name; the names are {list}"
            ));
            continue;
        };
        let id = id.trim();
        let (id, kind) = id.split_once(':').unwrap_or((id, "text"));
        let Some(id) = FieldId::parse(id) else {
            errors.push(format!(
                "`{id}` of {name} is not a field id: use digits only"
            ));
            continue;
        };
        let known = kind.parse().ok();
        let Some(kind) = known.filter(|kind| name.kinds().contains(kind)) else {
            let kinds: Vec<&str> = name.kinds().iter().map(|kind| kind.into()).collect();
            let list = kinds.join(", ");
            errors.push(format!("{name} is written as {list}, not as `{kind}`"));
            continue;
        };
        if let Some((other, _)) = fields.iter().find(|(_, known)| known.id == id) {
            errors.push(format!(
                "{name} and {other} are both field {id}: one of them would hide the other"
            ));
        }
        if fields.insert(name, Field { id, kind }).is_some() {
            errors.push(format!("{name} is given twice"));
        }
    }
    if errors.is_empty() {
        Ok(fields)
    } else {
        Err(errors)
    }
}

/// Formats a time in a form that's readable and accepted by every CRM field, which is ISO 8601 in
/// the PBX's time zone including the offset, as in `2026-11-20T17:58:31+05:00`.
pub fn time(at: EpochSeconds, zone: &TimeZone) -> String {
    let moment = jiff::Timestamp::from_second(at.get()).map(|at| at.to_zoned(zone.clone()));
    let text = moment.map(|at| at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string());
    text.unwrap_or_else(|_| at.to_string())
}

/// Returns what a journaled call writes into its lead's fields. A value of `None` clears the field.
/// `tries` is the number of missed calls from the customer since the last conversation, or `None`
/// if the call has no phone number.
pub fn field_values(
    call: &CallRecord,
    settings: &Settings,
    tries: Option<u64>,
) -> Vec<(Name, Option<String>)> {
    let mut values = Vec::new();
    for name in Name::ALL.iter().copied() {
        if !settings.fields.contains_key(&name) {
            continue;
        }
        if name == Name::LastMissed && call.answered {
            values.push((name, None));
        } else if let Some(text) = value_of(name, call, &settings.zone, tries) {
            values.push((name, Some(text)));
        }
    }
    values
}

/// Returns the text that a call writes into the field with this name, or `None` if the call has no
/// such value.
fn value_of(name: Name, call: &CallRecord, zone: &TimeZone, tries: Option<u64>) -> Option<String> {
    match name {
        Name::LastCall => Some(time(call.started_at, zone)),
        Name::LastMissed => {
            let is_missed = !call.answered && call.direction == Direction::Inbound;
            is_missed.then(|| time(call.started_at, zone))
        }
        Name::LastEmployee => call.employee_id.map(|id| id.to_string()),
        Name::Trunk => call.trunk.clone(),
        Name::Did => call.did.clone(),
        Name::Direction => match call.direction {
            Direction::Inbound => Some("INBOUND".to_owned()),
            Direction::Outbound => Some("OUTBOUND".to_owned()),
            Direction::Internal | Direction::Unknown => None,
        },
        Name::AnsweredBy if call.answered => call.employee.clone(),
        Name::AnsweredBy => None,
        Name::MissedCount => tries.map(|tries| tries.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::{EmployeeId, LeadId};

    fn call(direction: Direction, answered: bool, employee: Option<i64>) -> CallRecord {
        CallRecord {
            uuid: None,
            linkedid: "1.2".to_owned(),
            pbx: "main".to_owned(),
            direction,
            answered,
            lead_id: LeadId::new(4001),
            lead_from: None,
            trunk: None,
            client_phone: None,
            employee: Some("101".to_owned()),
            employee_id: employee.and_then(EmployeeId::new),
            employees_in_order: Vec::new(),
            started_at: EpochSeconds::new(1_795_151_317),
            duration_sec: 5,
            talk_time_sec: 0,
            incomplete: false,
            estimate: false,
            by_hand: None,
            did: None,
        }
    }

    fn settings(text: &str) -> Settings {
        Settings {
            fields: parse(text).expect("good"),
            zone: TimeZone::get("Asia/Tashkent").expect("a zone"),
            wrapper: None,
        }
    }

    /// Returns the values that a call's fields show, as `name=value`.
    fn value_texts(call: &CallRecord, settings: &Settings) -> Vec<String> {
        field_values(call, settings, Some(2))
            .into_iter()
            .map(|(name, text)| format!("{name}={}", text.as_deref().unwrap_or("null")))
            .collect()
    }

    #[test]
    fn each_field_name_shows_its_own_value_of_a_call() {
        let all = settings("last_call=11,last_missed=12,last_employee=13");
        let at = "2026-11-20T10:08:37+05:00";
        assert_eq!(
            value_texts(&call(Direction::Inbound, true, Some(501)), &all),
            [
                format!("last_call={at}"),
                "last_missed=null".to_owned(),
                "last_employee=501".to_owned()
            ]
        );
        assert_eq!(
            value_texts(&call(Direction::Inbound, false, None), &all),
            [format!("last_call={at}"), format!("last_missed={at}")]
        );
        assert_eq!(
            value_texts(&call(Direction::Outbound, false, None), &all),
            [format!("last_call={at}")],
            "a customer who did not pick up missed nothing of ours"
        );
        let one = settings("last_missed=12");
        assert!(value_texts(&call(Direction::Outbound, false, None), &one).is_empty());
        let more = settings("trunk=14,direction=15,answered-by=16,missed-count=17:number,did=18");
        let mut city = call(Direction::Outbound, true, None);
        city.trunk = Some("city".to_owned());
        assert_eq!(
            value_texts(&city, &more),
            [
                "trunk=city",
                "direction=OUTBOUND",
                "answered_by=101",
                "missed_count=2"
            ]
        );
        let mut nobody = call(Direction::Inbound, false, None);
        assert_eq!(
            value_texts(&nobody, &more),
            ["direction=INBOUND", "missed_count=2"]
        );
        nobody.did = Some("998712001122".to_owned());
        assert_eq!(
            value_texts(&nobody, &more),
            ["did=998712001122", "direction=INBOUND", "missed_count=2"]
        );
    }

    #[test]
    fn wrong_names_wrong_ids_and_duplicates_are_all_reported() {
        let faults = parse("last_call=11,last=1,last_missed=x,last_employee=11,last_call=12,z")
            .expect_err("wrong");
        let names = "last_call, last_missed, last_employee, trunk, did, direction, answered_by, \
                     missed_count";
        let faults = faults.join("\n").replace(names, "NAMES");
        insta::assert_snapshot!(faults, @r"
        `last` is not a known name; the names are NAMES
        `x` of last_missed is not a field id: use digits only
        last_employee and last_call are both field 11: one of them would hide the other
        last_call is given twice
        `z` is not NAME=ID
        ");
        assert!(parse("").is_err());
        assert!(parse("last_call=0").is_err());
        let faults = parse("last_call=11:boolean,trunk=12:color,did=13:number").expect_err("wrong");
        insta::assert_snapshot!(faults.join("\n"), @r"
        last_call is written as text, number, date, not as `boolean`
        trunk is written as text, not as `color`
        did is written as text, not as `number`
        ");
        let kinds = parse("last_call=11:date,missed-count=12:number,trunk=13:text");
        let kinds = kinds.expect("good").into_iter();
        let kinds: Vec<String> = kinds
            .map(|(name, field)| format!("{name}={field}"))
            .collect();
        assert_eq!(
            kinds,
            ["last_call=11:date", "trunk=13", "missed_count=12:number"]
        );
    }
}
