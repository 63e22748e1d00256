//! Selects the installations that get an event of the CRM (§6.1).

use crate::{
    CrmEvent, Installation, Lead, OPEN_API, Record, Recorded, Sandbox, lead::catalog::employee_name,
};
use callbridge_call::EventTime;
use serde_json::{Value, json};

/// Returns `true` if the installation was revoked, or its company disconnected the application.
pub(crate) fn is_gone(core: &Sandbox, own: &Installation) -> bool {
    let company = core.companies.get(&own.company);
    let has_left = company
        .is_none_or(|company| company.application_id == own.application && company.disconnected);
    own.revoked || has_left
}

/// Records an event of the time `at` for all installations of the company that are subscribed now
/// (§6.1). Does nothing if the event repeats a conversation within 24 hours (§6.8).
pub(crate) fn happened(core: &mut Sandbox, at: EventTime, company: i64, event: CrmEvent) {
    let own = core.webhooks.installations.iter();
    let subscribers: Vec<i64> = own
        .filter(|(_, own)| own.company == company && !is_gone(core, own))
        .filter(|(_, own)| {
            let config = core.webhooks.configs.get(&own.application);
            config.is_some_and(|config| config.subscribes(&event))
        })
        .map(|(id, _)| *id)
        .collect();
    let outbox = &mut core.webhooks;
    if subscribers.is_empty() || outbox.suppress_repeat(at, company, &event) {
        return;
    }
    outbox.counts.events += 1;
    let recorded = Recorded {
        event_id: outbox.event_id(at, company, &event),
        at,
        company,
        event,
    };
    for installation in subscribers {
        outbox.push(installation, recorded.clone(), &core.settings);
    }
}

/// Records the event of a call that was journaled.
pub(crate) fn journaled(core: &mut Sandbox, record: &Record) {
    let company = core.companies.get(&record.company_id);
    let lead = company.and_then(|own| core.leads.get(own, record.call.lead_id));
    let mut call = completed(record, lead.as_ref());
    if record.provider == OPEN_API {
        for field in &core.settings.shapes.journal_without {
            call[field] = Value::Null;
        }
    }
    let event = CrmEvent::of_call(call);
    happened(core, record.registered_at, record.company_id, event);
}

/// Returns the block `call` of the event of a journal record (§6.8). The contact is the contact of
/// the lead that has the customer's number.
fn completed(record: &Record, lead: Option<&Lead>) -> Value {
    let call = &record.call;
    let contact = lead.and_then(|lead| {
        let phone = call.client_phone.as_ref()?;
        lead.contacts
            .iter()
            .find(|contact| contact.phones.contains(phone))
    });
    // A call with talk time counts as answered, even if `answered` is `false` (§6.8).
    let answered = call.answered || call.talk_time_sec.is_some_and(|talk| talk > 0);
    json!({
        "callId": record.uuid, "provider": record.provider, "conversationKind": "CALL",
        "direction": call.direction, "answered": answered, "startedAt": call.started_at,
        "endedAt": record.ended_at, "durationSec": call.duration_sec,
        "talkTimeSec": call.talk_time_sec, "hangupCause": record.hangup_cause,
        "clientPhone": call.client_phone, "operatorExtension": call.operator_extension,
        "employeeId": call.employee_id, "employeeName": call.employee_id.map(employee_name),
        "contactId": contact.map(|contact| contact.id),
        "contactName": contact.map(|contact| &contact.name), "leadIds": [call.lead_id],
    })
}
