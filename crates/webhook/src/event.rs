//! An event's JSON (§6.5 to §6.8), as far as callbridge uses it. Unknown fields and values are
//! ignored, because the CRM may add new ones at any time (§ Versioning).

use super::lead::{self, id_in, lead_id, seconds};
use callbridge_call::EpochSeconds;
use callbridge_crm::lenient;
use callbridge_leads::directory::FirstPhone;
use callbridge_model::{CallUuid, Country};
use callbridge_spool::{CallEcho, ForeignCall, WebhookEvent};
use serde_json::Value;

/// The keys to read from the envelope.
const KEYS: [&str; 8] = [
    "eventId",
    "eventType",
    "occurredAt",
    "companyId",
    "lead",
    "mergedLeadIds",
    "propertyChanges",
    "call",
];
/// The prefix in the journal of the UUID of a call submitted over the Open API (§2.6).
const PREFIX: &str = "oapi-";
/// The provider of calls submitted over the Open API (§2.6).
const PROVIDER: &str = "OPEN_API";
/// Maximum length in characters of a provider or an extension. Anything longer is cut off.
const WORD_MAX: usize = 40;
/// Maximum number of leads to read per conversation.
const LEADS_MAX: usize = 1_000;

/// The kinds of events used in metrics and logs, which are the events in the catalog (§6.2) and
/// `other`.
pub const KINDS: [&str; 8] = [
    "LEAD_CREATED",
    "LEAD_ASSIGNED",
    "LEAD_STAGE_CHANGED",
    "LEAD_PROPERTIES_UPDATED",
    "LEAD_MERGED",
    "LEAD_DELETED",
    "CALL_COMPLETED",
    OTHER,
];
/// The kind used for events that aren't in the catalog.
const OTHER: &str = "other";

/// An event from the CRM, as read from a delivery's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The body's `eventId`, which is the same if the event is delivered again.
    pub id: String,
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// The body's `companyId`, in digits.
    pub company: String,
    /// A change to a lead, or a journaled call that may be ours, or else why the event isn't used
    /// here.
    pub what: Result<WebhookEvent, UnusedReason>,
}

/// Why an event isn't used.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum UnusedReason {
    /// An unknown event, or one that's not about calls or leads.
    Unknown,
    /// A meeting rather than a call (§6.8 `conversationKind`).
    Meeting,
    /// A call journaled by another provider. Its number and start, if known, are used to check
    /// whether it's one of our calls.
    Foreign(Option<ForeignCall>),
    /// The event's `lead` or `call` block is missing or has no ID.
    Incomplete,
}

impl UnusedReason {
    /// Returns the reason's name in metrics and logs, such as `unknown`.
    pub fn word(&self) -> &'static str {
        self.into()
    }
}

/// Parses a delivery's body. `country` is the country of phone numbers without a country code.
///
/// # Errors
/// Returns a message if the body isn't an event, i.e., if it isn't JSON or an object, or lacks an
/// ID or a company.
pub fn read(body: &[u8], country: Option<Country>) -> Result<Event, String> {
    let json = lenient::read_keys(body, &KEYS)?;
    if !json.is_object() {
        return Err("the body is not an object".to_owned());
    }
    let id = text(&json["eventId"]).ok_or("it has no eventId")?;
    let company = id_in(&json["companyId"]).ok_or("it has no companyId")?;
    let event_type = text(&json["eventType"]).unwrap_or_default();
    let kind = (KINDS.into_iter())
        .find(|kind| *kind == event_type)
        .unwrap_or(OTHER);
    let at = seconds(&json["occurredAt"]);
    Ok(Event {
        id: id.to_owned(),
        kind,
        company: company.to_string(),
        what: match kind {
            "CALL_COMPLETED" => read_completed(&json["call"], country),
            OTHER => Err(UnusedReason::Unknown),
            _ => lead::news(kind, &json, at, country)
                .map(|news| WebhookEvent::Learn(Box::new(news)))
                .ok_or(UnusedReason::Incomplete),
        },
    })
}

/// Reads a completed call. It may be ours if its provider is us or isn't given. A call from any
/// other provider is foreign, because a wrong confirmation would lose a call, whereas a missed one
/// only costs an additional request.
fn read_completed(call: &Value, country: Option<Country>) -> Result<WebhookEvent, UnusedReason> {
    let id = optional_word(&call["callId"])?.ok_or(UnusedReason::Incomplete)?;
    if optional_word(&call["conversationKind"])?.is_some_and(|kind| kind != "CALL") {
        return Err(UnusedReason::Meeting);
    }
    if let Some(provider) = optional_word(&call["provider"])?
        && provider != PROVIDER
    {
        return Err(UnusedReason::Foreign(read_foreign(provider, call, country)));
    }
    let bare = id.strip_prefix(PREFIX).unwrap_or(id);
    if bare.len() != uuid::fmt::Hyphenated::LENGTH {
        return Err(UnusedReason::Foreign(None));
    }
    let uuid = uuid::Uuid::try_parse(bare).map_err(|_| UnusedReason::Foreign(None))?;
    let lead_ids = call["leadIds"].as_array().into_iter().flatten();
    Ok(WebhookEvent::Completed {
        uuid: CallUuid(uuid),
        leads: lead_ids.take(LEADS_MAX).filter_map(lead_id).collect(),
        shown: Box::new(call_echo(call)),
    })
}

fn optional_word(value: &Value) -> Result<Option<&str>, UnusedReason> {
    match value {
        Value::Null => Ok(None),
        Value::String(word) => Ok(Some(word)),
        _ => Err(UnusedReason::Incomplete),
    }
}

/// Reads another provider's call, returning `None` unless both the number and the start are valid,
/// since both are needed to identify the call.
fn read_foreign(provider: &str, call: &Value, country: Option<Country>) -> Option<ForeignCall> {
    let FirstPhone::Is(phone) = FirstPhone::parse(call["clientPhone"].as_str(), country) else {
        return None;
    };
    Some(ForeignCall {
        provider: provider.chars().take(WORD_MAX).collect(),
        phone,
        started: seconds(&call["startedAt"])?,
    })
}

/// Returns a trimmed string, or `None` if it's empty or not a string.
fn text(value: &Value) -> Option<&str> {
    let text = value.as_str().map(str::trim);
    text.filter(|text| !text.is_empty())
}

/// Reads the call's fields as shown in the journal. The CRM omits any field that would be null
/// (§6.5).
fn call_echo(call: &Value) -> CallEcho {
    CallEcho {
        direction: short_word(&call["direction"]),
        answered: call["answered"].as_bool(),
        started_at: seconds(&call["startedAt"]).map(EpochSeconds::get),
        duration_sec: id_in(&call["durationSec"]),
        talk_time_sec: id_in(&call["talkTimeSec"]),
        has_phone: text(&call["clientPhone"]).is_some(),
        extension: short_word(&call["operatorExtension"]),
        employee_id: id_in(&call["employeeId"]),
    }
}

fn short_word(value: &Value) -> Option<String> {
    Some(text(value)?.chars().take(WORD_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::LeadId;
    use proptest::prelude::*;
    use serde_json::json;

    const UUID: &str = "7960997f-d1f6-4443-b29d-16fae6d27ae1";

    fn call(changes: Value) -> Value {
        let mut call = json!({
            "callId": format!("oapi-{UUID}"), "provider": "OPEN_API", "conversationKind": "CALL",
            "direction": "INBOUND", "answered": true, "startedAt": 1_795_151_317,
            "endedAt": null, "clientPhone": "+998901110001", "leadIds": [4001],
        });
        for (key, value) in changes.as_object().expect("changes") {
            call[key] = value.clone();
        }
        json!({
            "eventId": "e-1", "eventType": "CALL_COMPLETED", "occurredAt": 1_795_151_330,
            "companyId": 77, "call": call,
        })
    }

    fn read_webhook_event(event: &Value) -> Result<WebhookEvent, UnusedReason> {
        read(event.to_string().as_bytes(), None)
            .expect("an event")
            .what
    }

    fn own_lead() -> Vec<LeadId> {
        LeadId::new(4001).into_iter().collect()
    }

    fn completed_call(leads: Vec<LeadId>) -> Result<WebhookEvent, UnusedReason> {
        Ok(WebhookEvent::Completed {
            uuid: CallUuid(UUID.parse().expect("a uuid")),
            leads,
            shown: Box::new(CallEcho {
                direction: Some("INBOUND".to_owned()),
                answered: Some(true),
                started_at: Some(1_795_151_317),
                has_phone: true,
                ..CallEcho::default()
            }),
        })
    }

    #[test]
    fn own_call_is_recognized_with_or_without_its_uuid_prefix() {
        for same in [
            json!({}),
            json!({"callId": UUID}),
            json!({"callId": UUID.to_uppercase()}),
            json!({"provider": null}),
            json!({"conversationKind": null}),
            json!({"leadIds": ["4001"]}),
            json!({"leadIds": [4001, null, {}, -3], "record": {"url": "https://x"}}),
        ] {
            assert_eq!(
                read_webhook_event(&call(same.clone())),
                completed_call(own_lead()),
                "{same}"
            );
        }
        let nowhere = completed_call(Vec::new());
        assert_eq!(read_webhook_event(&call(json!({"leadIds": null}))), nowhere);
    }

    #[test]
    fn call_echo_reads_valid_fields_and_ignores_invalid_values() {
        let echo = json!({
            "durationSec": 5, "talkTimeSec": "4", "operatorExtension": " 101 ",
            "employeeId": 501, "clientPhone": "", "direction": null, "answered": "yes",
            "startedAt": 1_795_151_317_000_i64,
        });
        let Ok(WebhookEvent::Completed { shown, .. }) = read_webhook_event(&call(echo)) else {
            panic!("a call")
        };
        let expected = CallEcho {
            duration_sec: Some(5),
            talk_time_sec: Some(4),
            extension: Some("101".to_owned()),
            employee_id: Some(501),
            ..CallEcho::default()
        };
        assert_eq!(*shown, expected);
    }

    #[test]
    fn foreign_call_is_reported_with_its_number_and_start() {
        let foreign = json!({"provider": "ONLINE_PBX", "callId": "1795151317.146"});
        let Err(UnusedReason::Foreign(Some(foreign_call))) = read_webhook_event(&call(foreign))
        else {
            panic!("a foreign call")
        };
        assert_eq!(
            (foreign_call.provider.as_str(), foreign_call.started.get()),
            ("ONLINE_PBX", 1_795_151_317)
        );
        assert_eq!(foreign_call.phone.as_str(), "+998901110001");
    }

    #[test]
    fn meetings_foreign_calls_and_broken_blocks_are_unused() {
        for (changes, why) in [
            (
                json!({"conversationKind": "OFFLINE_MEET"}),
                UnusedReason::Meeting,
            ),
            (
                json!({"conversationKind": "HOLOGRAM"}),
                UnusedReason::Meeting,
            ),
            (
                json!({"provider": "ASTERISK", "clientPhone": null}),
                UnusedReason::Foreign(None),
            ),
            (
                json!({"provider": "ONLINE_PBX", "startedAt": null}),
                UnusedReason::Foreign(None),
            ),
            (
                json!({"callId": "oapi-oapi-x"}),
                UnusedReason::Foreign(None),
            ),
            (
                json!({"callId": UUID.replace('-', "")}),
                UnusedReason::Foreign(None),
            ),
            (json!({"callId": null}), UnusedReason::Incomplete),
            (json!({"callId": 7}), UnusedReason::Incomplete),
        ] {
            assert_eq!(
                read_webhook_event(&call(changes.clone())),
                Err(why),
                "{changes}"
            );
        }
        let mut gone = call(json!({}));
        gone["call"] = json!([1]);
        assert_eq!(read_webhook_event(&gone), Err(UnusedReason::Incomplete));
        gone["eventType"] = json!("LEAD_NOTE_ADDED");
        assert_eq!(read_webhook_event(&gone), Err(UnusedReason::Unknown));
    }

    /// Reads a call event in which the envelope's field `key` has this value.
    fn read_with_field(key: &str, value: Value) -> Result<Event, String> {
        let mut event = call(json!({}));
        event[key] = value;
        read(event.to_string().as_bytes(), None)
    }

    fn epoch_seconds(value: &Value) -> Option<i64> {
        seconds(value).map(EpochSeconds::get)
    }

    #[test]
    fn envelope_requires_id_and_company_and_ignores_bad_times() {
        for (key, value) in [
            ("eventId", json!(null)),
            ("eventId", json!(" ")),
            ("eventId", json!(7)),
            ("companyId", json!(null)),
            ("companyId", json!("Alpha")),
            ("companyId", json!(7.5)),
        ] {
            assert!(
                read_with_field(key, value.clone()).is_err(),
                "{key} {value}"
            );
        }
        let event = read_with_field("companyId", json!("77")).expect("one");
        assert_eq!(event.company, "77");
        assert_eq!(epoch_seconds(&json!(1_795_151_330.9)), Some(1_795_151_330));
        assert_eq!(
            epoch_seconds(&json!(1_795_151_330_000_i64)),
            None,
            "milliseconds"
        );
        assert_eq!(epoch_seconds(&json!("yesterday")), None);
    }

    #[test]
    fn unknown_field_with_an_unreadable_value_is_ignored() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for odd in ["1e400", deep.as_str()] {
            let body = call(json!({})).to_string();
            let body = body.replacen('{', &format!("{{\"news\":{odd},"), 1);
            assert_eq!(
                read(body.as_bytes(), None).expect("an event").what,
                completed_call(own_lead())
            );
        }
        for body in [&b""[..], b"[]", b"7", b"{", b"\xff\xfe", b"null"] {
            assert!(read(body, None).is_err(), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_none_without_panic(
            body in any::<Vec<u8>>(), key in 0..KEYS.len(), text in "\\PC{0,20}",
        ) {
            let _ = read(&body, None);
            let mut event = call(json!({}));
            for value in [json!(text), json!({"id": text}), json!([text]), json!(-1)] {
                event[KEYS[key]] = value;
                let _ = read(event.to_string().as_bytes(), None);
            }
        }
    }
}
