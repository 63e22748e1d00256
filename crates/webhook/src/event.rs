//! The JSON of an event (§6.5 to §6.8), as far as callbridge uses it. Unknown fields and values are
//! ignored, because the CRM can add them at any time (§ Versioning).

use super::lead::{self, id_in, lead_id, seconds};
use callbridge_call::EpochSeconds;
use callbridge_crm::lenient;
use callbridge_leads::directory::FirstPhone;
use callbridge_model::{CallUuid, Country};
use callbridge_spool::{CallEcho, ForeignCall, WebhookEvent};
use serde_json::Value;

/// The keys of the envelope that are read.
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
/// The journal's prefix of the uuid of a call that was submitted over the Open API (§2.6).
const PREFIX: &str = "oapi-";
/// The provider of calls that were submitted over the Open API (§2.6).
const PROVIDER: &str = "OPEN_API";
/// Largest number of characters of a provider or an extension that are kept.
const WORD_MAX: usize = 40;
/// Largest number of leads of one conversation that are read.
const LEADS_MAX: usize = 1_000;

/// The kinds of events in metrics and logs: the events of the catalog (§6.2), and `other`.
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
/// The kind of events that are not in the catalog.
const OTHER: &str = "other";

/// An event of the CRM, read from the body of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `eventId` of the body. A repeated delivery of the event has the same id.
    pub id: String,
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// `companyId` of the body, in digits.
    pub company: String,
    /// The change of a lead, or a call in the journal that can be ours. Otherwise the reason why
    /// the event changes nothing here.
    pub what: Result<WebhookEvent, UnusedReason>,
}

/// Reasons why an event is not used.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum UnusedReason {
    /// An unknown event, or an event of a group other than calls and leads.
    Unknown,
    /// A meeting instead of a call (§6.8 `conversationKind`).
    Meeting,
    /// A call that another provider journaled. It can be one of our calls if its number and start
    /// are known.
    Foreign(Option<ForeignCall>),
    /// The event's block `lead` or `call` is missing, or has no id.
    Incomplete,
}

impl UnusedReason {
    /// Returns the reason as metrics and logs show it, such as `unknown`.
    pub fn word(&self) -> &'static str {
        self.into()
    }
}

/// Parses the body of a delivery. `country` is the country of phones without a country code.
///
/// # Errors
/// A message, if the body is not an event: not JSON, no object, no id, or no company.
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

/// Reads a completed call. It can be ours if it names our provider, or none. A call of any other
/// provider is foreign: a wrong confirmation would lose a call, and a missed confirmation costs
/// only one more request.
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

/// Reads a call of another provider. Returns `None` if the number or the start is not valid,
/// because both are needed to identify the call.
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

/// Returns a trimmed text, or `None` if it is empty or not a text.
fn text(value: &Value) -> Option<&str> {
    let text = value.as_str().map(str::trim);
    text.filter(|text| !text.is_empty())
}

/// Reads the fields of the call as the journal shows them. A field that would be null is left out
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

    /// Reads a call event in which the field `key` of the envelope has this value.
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
