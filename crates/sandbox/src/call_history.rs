//! `POST call-history`: the synchronous rules (§2.6, §4.5, §7.5).

use super::body::{BodyFields, EPOCH_MIN};
use super::envelope::{Refusal, RefusalReason, json_object};
use super::journal::{PREFIX, Submission};
use callbridge_call::EventTime;
use std::time::Duration;

/// Longest uuid, in UTF-16 units (§2.6, Limits).
pub const UUID_LENGTH_MAX: usize = 128;
/// Names under which a client might send what the service derives (§2.6), in lower case without
/// underscores.
const DERIVED: [&str; 11] = [
    "end",
    "endat",
    "endedat",
    "endtime",
    "endtimestamp",
    "finishedat",
    "hangup",
    "hangupcause",
    "hangupreason",
    "provider",
    "conversationkind",
];

/// Names that the document does not publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNames {
    /// The talk time.
    pub talk: String,
    /// The customer's number; `None`: no such field.
    pub phone: Option<String>,
    /// The operator's extension.
    pub extension: String,
    /// The key of the lead field upsert's list, where it is wrapped (§4.4).
    pub list: String,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self {
            talk: "talkTimeSec".to_owned(),
            phone: Some("clientPhone".to_owned()),
            extension: "operatorExtension".to_owned(),
            list: "fields".to_owned(),
        }
    }
}

/// Reads and judges a body. The names of derived fields that stood in it come along: they are
/// tolerated, and a breach.
///
/// # Errors
/// The refusal to answer with.
pub fn read(
    body: &[u8],
    names: &FieldNames,
    now: EventTime,
    ahead_max: Duration,
) -> Result<(Submission, Vec<String>), Refusal> {
    let mut fields = BodyFields::new(json_object(body)?);
    let lead_id = fields.integer("leadId", i64::MAX)?;
    let employee_id = fields.integer("employeeId", i64::MAX)?;
    let uuid = fields.text("uuid")?;
    let started_at = fields.integer("startedAt", i64::MAX)?;
    let duration_sec = fields.integer("durationSec", i64::from(i32::MAX))?;
    let answered = fields.boolean("answered")?;
    let direction = fields.text("direction")?;
    let talk = fields.integer(&names.talk, i64::from(i32::MAX))?;
    let phone = match &names.phone {
        Some(name) => fields.text(name)?,
        None => None,
    };
    let extension = fields.text(&names.extension)?;
    check_direction(direction.as_deref())?;
    check_uuid(&mut fields, uuid.as_deref());
    check_epoch(&mut fields, started_at, now, ahead_max);
    if let (Some(name), Some(phone)) = (&names.phone, &phone) {
        fields.check_phone(name, phone);
    }
    if talk.is_some_and(|talk| talk < 0) {
        fields.refuse(&names.talk, RefusalReason::Min);
    }
    let lead_id = fields.required("leadId", lead_id).unwrap_or_default();
    let uuid = fields.required("uuid", uuid).unwrap_or_default();
    let started_at = fields.required("startedAt", started_at).unwrap_or_default();
    let duration_sec = fields
        .required("durationSec", duration_sec)
        .unwrap_or_default();
    let answered = fields.required("answered", answered).unwrap_or_default();
    let direction = fields.required("direction", direction).unwrap_or_default();
    if !fields.errors.is_empty() {
        return Err(Refusal::Invalid(fields.errors));
    }
    if duration_sec < 1 {
        return Err(Refusal::Business("Qo‘ng‘iroq davomiyligi noto‘g‘ri"));
    }
    if talk.is_some_and(|talk| talk > duration_sec) {
        return Err(Refusal::Business(
            "Suhbat vaqti umumiy davomiylikdan oshmasligi kerak",
        ));
    }
    let derived = derived(&fields.map, &uuid);
    let call = Submission {
        lead_id,
        employee_id,
        uuid,
        started_at,
        duration_sec,
        talk_time_sec: talk,
        answered,
        direction,
        client_phone: phone,
        operator_extension: extension,
        others: fields.map,
    };
    Ok((call, derived))
}

fn check_direction(direction: Option<&str>) -> Result<(), Refusal> {
    match direction {
        None | Some("INBOUND" | "OUTBOUND") => Ok(()),
        Some(way) => Err(Refusal::Unparsable(format!(
            "direction: no enum constant {way}, one of [INBOUND, OUTBOUND]"
        ))),
    }
}

/// What a client must not send, as far as it stands in the body.
fn derived(map: &serde_json::Map<String, serde_json::Value>, uuid: &str) -> Vec<String> {
    let mut derived: Vec<String> = map.keys().filter(|key| is_derived(key)).cloned().collect();
    if uuid.starts_with(PREFIX) {
        derived.push("uuid with the prefix oapi-".to_owned());
    }
    derived
}

fn is_derived(key: &str) -> bool {
    let plain: String = key.chars().filter(|c| !matches!(c, '_' | '-')).collect();
    DERIVED.contains(&plain.to_ascii_lowercase().as_str())
}

fn check_uuid(fields: &mut BodyFields, uuid: Option<&str>) {
    let Some(uuid) = uuid else { return };
    if uuid.trim().is_empty() {
        fields.refuse("uuid", RefusalReason::NotBlank);
    }
    if uuid.encode_utf16().count() > UUID_LENGTH_MAX {
        fields.refuse("uuid", RefusalReason::Length);
    }
}

fn check_epoch(fields: &mut BodyFields, at: Option<i64>, now: EventTime, ahead_max: Duration) {
    let latest = now.plus(ahead_max).floor_seconds().get();
    if at.is_some_and(|at| at < EPOCH_MIN || at > latest) {
        fields.refuse("startedAt", RefusalReason::ValidEpochSec);
    }
}
