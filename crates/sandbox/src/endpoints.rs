//! The endpoints of tokens and calls, called after the checks of token, window, address, and grant:
//! `token/info` (§2.2), `call-history` (§2.6, §4.5, §7.5), `call-history/filter` (§4.5, §4.7), and
//! `request` (§4.6).
//!
//! Without `orders`, the oldest record comes first. The document promises no order.

use crate::{
    Asked, BodyFields, Content, EPOCH_MIN, Grant, Record, Refusal, RefusalReason, Registered, Rows,
    STATUS_KEPT, Sandbox, Shapes, Submission, Success, TokenKind, ViolationKind, body::is_phone,
    body::read_page, envelope::json_object, journal::PREFIX, journal::Status,
    oauth::connection::connection_of, shapes::StatusShape, writes::accept,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Longest uuid, in UTF-16 units (§2.6, Limits).
pub const UUID_LENGTH_MAX: usize = 128;
/// How far `startedAt` can be ahead of the sandbox's clock.
const AHEAD_MAX: Duration = Duration::from_secs(300);
/// Names under which a client might send a field that the CRM derives (§2.6), in lower case without
/// underscores.
const DERIVED: &str = "end endat endedat endtime endtimestamp finishedat hangup hangupcause \
                       hangupreason provider conversationkind";

/// Reads and validates the body of `POST call-history`. Also returns the names of fields that the
/// CRM derives and a client must not send. The caller records these fields as a violation.
///
/// # Errors
/// The refusal to answer with.
fn read_call(core: &Sandbox, body: &[u8]) -> Result<(Submission, Vec<String>), Refusal> {
    let names = &core.settings.names;
    let latest = core.now.plus(AHEAD_MAX).floor_seconds().get();
    let mut fields = BodyFields::new(json_object(body)?, String::new());
    let lead_id = fields.integer("leadId", i64::MAX)?;
    let employee_id = fields.integer("employeeId", i64::MAX)?;
    let uuid = fields.text("uuid")?;
    let started_at = fields.integer("startedAt", i64::MAX)?;
    let duration_sec = fields.integer("durationSec", i64::from(i32::MAX))?;
    let answered = fields.boolean("answered")?;
    let direction = fields.text("direction")?;
    let talk = fields.integer(&names.talk, i64::from(i32::MAX))?;
    let mut phone = None;
    if let Some(name) = &names.phone {
        phone = fields.text(name)?;
    }
    let extension = fields.text(&names.extension)?;
    if let Some(way) = direction.as_deref()
        && !["INBOUND", "OUTBOUND"].contains(&way)
    {
        let message = format!("direction: no enum constant {way}, one of [INBOUND, OUTBOUND]");
        return Err(Refusal::Unparsable(message));
    }
    if uuid.as_ref().is_some_and(|uuid| uuid.trim().is_empty()) {
        fields.refuse("uuid", RefusalReason::NotBlank);
    }
    if (uuid.as_ref()).is_some_and(|uuid| uuid.encode_utf16().count() > UUID_LENGTH_MAX) {
        fields.refuse("uuid", RefusalReason::Length);
    }
    if started_at.is_some_and(|at| at < EPOCH_MIN || at > latest) {
        fields.refuse("startedAt", RefusalReason::ValidEpochSec);
    }
    if let (Some(name), Some(phone)) = (&names.phone, &phone)
        && !is_phone(phone)
    {
        fields.refuse(name, RefusalReason::ValidPhone);
    }
    if talk.is_some_and(|talk| talk < 0) {
        fields.refuse(&names.talk, RefusalReason::Min);
    }
    let lead_id = fields.required("leadId", lead_id);
    let uuid = fields.required("uuid", uuid);
    let started_at = fields.required("startedAt", started_at);
    let duration_sec = fields.required("durationSec", duration_sec);
    let answered = fields.required("answered", answered);
    let direction = fields.required("direction", direction);
    if !fields.errors.is_empty() {
        return Err(Refusal::Invalid(fields.errors));
    }
    if duration_sec < 1 {
        return Err(Refusal::Plain(400, "Qo‘ng‘iroq davomiyligi noto‘g‘ri"));
    }
    if talk.is_some_and(|talk| talk > duration_sec) {
        let message = "Suhbat vaqti umumiy davomiylikdan oshmasligi kerak";
        return Err(Refusal::Plain(400, message));
    }
    let mut derived: Vec<String> = fields
        .map
        .keys()
        .filter(|key| is_derived(key))
        .cloned()
        .collect();
    if uuid.starts_with(PREFIX) {
        derived.push("uuid with the prefix oapi-".to_owned());
    }
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

/// Returns `true` if this field is one that the CRM derives and a client must not send.
fn is_derived(key: &str) -> bool {
    let plain = key.replace(['_', '-'], "").to_ascii_lowercase();
    DERIVED.split(' ').any(|name| name == plain)
}

/// Answers `GET token/info` (§2.2) with the token's application, company, and grants.
/// `expiresInDays` cannot be null, so it is 0 for a token without an expiry date.
pub(super) fn token_info(core: &Sandbox, asked: &Asked<'_>) -> Success {
    let token = &asked.token;
    let Some((company, grants)) = connection_of(core, token) else {
        return Success::default();
    };
    let public = token
        .application
        .and_then(|id| core.oauth.applications.get(&id));
    let (id, name) = match public {
        Some(public) => (public.id, &public.name),
        None => (company.application_id, &company.application_name),
    };
    let kind = match token.kind {
        TokenKind::Pat => "PRIVATE",
        TokenKind::Access => "PUBLIC",
    };
    let permissions: Vec<Value> = (grants.iter().map(Grant::parts))
        .map(|(permission, scope)| json!({ "permission": permission, "scope": scope }))
        .collect();
    Success::from_data(json!({
        "application": { "id": id, "name": name, "type": kind },
        "company": { "id": company.id, "name": company.name },
        "kind": token.kind,
        "expiresAt": token.expires_at,
        "expiresInDays": token.days_left(core.now).unwrap_or(0),
        "permissions": permissions,
    }))
}

pub(super) fn submit(core: &mut Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let (call, derived) = read_call(core, &asked.request.body)?;
    if !derived.is_empty() {
        let message = format!("sent: {}", derived.join(", "));
        core.record_violation(ViolationKind::DerivedField, "§2.6", message);
    }
    judge_repeat(core, asked.token.company, &call);
    accept(core, asked, Content::Call(call))
}

/// Records a violation if a write with this uuid was accepted before and has not FAILED (§4.5.4):
/// the uuid of another call, or a repeat although the client received the 200.
fn judge_repeat(core: &mut Sandbox, company: i64, call: &Submission) {
    let uuid = &call.uuid;
    let earlier = core.journal.earlier(company, call);
    let Some(earlier) = earlier.filter(|earlier| earlier.status != Status::Failed) else {
        return;
    };
    if earlier.content != Content::Call(call.clone()) {
        let message = format!("{uuid} is another call's: this one makes no record");
        core.record_violation(ViolationKind::UuidReused, "§4.5.4", message);
    } else if earlier.answered {
        let message = format!("{uuid} again after its 200, now {:?}", earlier.status);
        core.record_violation(ViolationKind::RepeatAfter200, "§4.5.4", message);
    }
}

/// Answers `GET request/{requestId}` with the status of a write, for 24 hours after its acceptance
/// and only to the token that created the write (§4.6, §3.2).
pub(super) fn request_status(core: &mut Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let missing = Refusal::Plain(404, "So‘rov topilmadi");
    let Some(write) = core.journal.writes.get(asked.id) else {
        let message = "a requestId never given";
        core.record_violation(ViolationKind::UnknownPoll, "§4.6", message);
        return Err(missing);
    };
    if write.token != asked.key {
        let message = "a requestId that another token created";
        core.record_violation(ViolationKind::ForeignPoll, "§3.2", message);
        return Err(missing);
    }
    if core.now.since(write.accepted_at) >= STATUS_KEPT {
        return Err(missing);
    }
    let shapes = &core.settings.shapes;
    let word = match write.status {
        Status::Pending => &shapes.pending,
        Status::Success => "SUCCESS",
        Status::Failed => "FAILED",
    };
    Ok(Success::from_data(match shapes.status {
        StatusShape::Object => json!({ "status": word }),
        StatusShape::Bare => json!(word),
    }))
}

const REGISTERED: &str = "registeredTimestamp";

/// Answers `POST call-history/filter` with a page of the company's records. Without `orders`, the
/// oldest record is first.
pub(super) fn filter(core: &Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let records = core.records();
    let shapes = &core.settings.shapes;
    let query = read_page(&asked.request.body, shapes.size_max, shapes, &[REGISTERED])?;
    // Records are in the order they were written, so a binary search skips those before the range.
    // The range is usually near the end.
    let begin = match query.range(REGISTERED)[0] {
        Some(from) if shapes.registered == Registered::Stored => {
            records.partition_point(|record| registered_at(record, shapes) < from)
        }
        Some(_) | None => 0,
    };
    let mut rows: Vec<&Record> = (records[begin..].iter())
        .filter(|record| record.company_id == asked.token.company)
        .filter(|record| query.holds(REGISTERED, Some(registered_at(record, shapes))))
        .collect();
    query.sort(&mut rows, |one, two, key| {
        sort_value(one, key, shapes).cmp(&sort_value(two, key, shapes))
    });
    Ok(query.answer(&rows, shapes, |record| match shapes.rows {
        Rows::Strings => json!(record.uuid),
        Rows::Objects => object(record, registered_at(record, shapes)),
    }))
}

const fn registered_at(record: &Record, shapes: &Shapes) -> i64 {
    match shapes.registered {
        Registered::Stored => record.registered_at.floor_seconds().get(),
        Registered::Started => record.call.started_at,
    }
}

fn sort_value(record: &Record, key: &str, shapes: &Shapes) -> i64 {
    match key {
        "startedAt" => record.call.started_at,
        "durationSec" => record.call.duration_sec,
        _ => registered_at(record, shapes),
    }
}

/// Returns a journal record as a row of a page. `registered` is the value of `registeredTimestamp`.
pub(super) fn object(record: &Record, registered: i64) -> Value {
    let call = &record.call;
    json!({
        "uuid": record.uuid, "leadId": call.lead_id, "employeeId": call.employee_id,
        "startedAt": call.started_at, "endedAt": record.ended_at,
        "durationSec": call.duration_sec, "talkTimeSec": call.talk_time_sec,
        "answered": call.answered, "direction": call.direction,
        "hangupCause": record.hangup_cause, "provider": record.provider,
        "registeredTimestamp": registered,
    })
}
