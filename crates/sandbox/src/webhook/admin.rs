//! What a person does in the CRM with webhooks, and what a trial needs beyond it. The document does
//! not publish these paths (§4.7); they are the sandbox's own, below `/sandbox/admin/`.
//!
//! ```text
//! GET  /sandbox/webhooks    configurations, installations, queue, journal, breakers, counts
//! POST …/webhook            {"application": 1, "targetUrl": U, "events": [NAMES or groups],
//!                           "enabled": true}: sets what is given. "regenerateSecret": true;
//!                           "force": true stores what §2.7 refuses
//! POST …/webhook/delete     {"application": 1}
//! POST …/webhook/install    {"company": 1, "application": 2}: a further private application
//! POST …/webhook/regenerate {"installation": 7001}: a key of its own, shown once
//! POST …/webhook/forget     {"installation": 7001} or {"application": 1}: the key is gone
//! POST …/webhook/revoke     {"installation": 7001}
//! POST …/webhook/happen     {"event": NAME, "lead": {…}, "call": {…}, "fromId", "merged",
//!                           "changes"}: meetings, foreign calls, whatever a receiver should see;
//!                           "call": {"record": {}} has a recording, whose link ends in five days
//! POST …/webhook/forge      {"how": WORD or "all", "installation": 7001, and as of happen}
//! ```

use super::config::{Config, SigningKey};
use super::event::{
    Attribution, CompletedCall, CrmEvent, LeadSnapshot, Property, PropertyChange, Responsible,
    Stage,
};
use super::forge::{FORGERIES, Forgery};
use super::{Installation, WebhookChange, recording};
use crate::admin::{AdminAnswer, JsonFields, flag, text, whole};
use crate::core::Sandbox;
use crate::webhook;
use crate::webhook::forge;
use callbridge_call::EventTime;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Most applications and installations that can be made.
const MADE_MAX: usize = 10_000;
/// Most rows of each kind that are shown; the newest.
const SHOWN_MAX: usize = 10_000;

/// Answers `admin/webhook` and what lies below it; null for no such path.
pub(crate) fn administer(
    core: &mut Sandbox,
    now: EventTime,
    act: &str,
    fields: &JsonFields,
) -> AdminAnswer {
    let application = whole(fields, "application")?.unwrap_or(core.settings.company.application_id);
    match act {
        "webhook" => configure(core, now, application, fields),
        "webhook/delete" => {
            webhook::webhook_change(core, now, WebhookChange::Deleted { application });
            Ok(json!({ "done": act }))
        }
        "webhook/install" => install(core, now, application, fields),
        "webhook/regenerate" => {
            let installation = installation(core, fields)?;
            let secret = webhook::fresh_key(core);
            let shown = shown(&secret);
            let secret = Some(secret);
            webhook::webhook_change(
                core,
                now,
                WebhookChange::Secret {
                    installation,
                    secret,
                },
            );
            Ok(json!({ "installation": installation, "webhookSecret": shown }))
        }
        "webhook/forget" => forget(core, now, application, fields),
        "webhook/revoke" => {
            let installation = installation(core, fields)?;
            webhook::webhook_change(core, now, WebhookChange::Revoked { installation });
            Ok(json!({ "done": act }))
        }
        "webhook/happen" => {
            let company = whole(fields, "company")?.unwrap_or(core.settings.company.id);
            let event = event(core, now, fields)?;
            let before = core.webhooks.counts().deliveries;
            webhook::webhook_change(core, now, WebhookChange::Happened { company, event });
            let made = core.webhooks.counts().deliveries - before;
            Ok(json!({ "deliveries": made }))
        }
        "webhook/forge" => forge(core, now, fields),
        _ => Ok(Value::Null),
    }
}

fn shown(secret: &SigningKey) -> Value {
    json!(secret.expose())
}

fn installation(core: &Sandbox, fields: &JsonFields) -> Result<i64, String> {
    let id = whole(fields, "installation")?.ok_or("`installation` is missing")?;
    let known = core.webhooks.installations().contains_key(&id);
    known
        .then_some(id)
        .ok_or_else(|| format!("no installation {id}"))
}

fn configure(
    core: &mut Sandbox,
    now: EventTime,
    application: i64,
    fields: &JsonFields,
) -> AdminAnswer {
    let earlier = core.webhooks.config(application).cloned();
    let known = earlier.is_some() || core.webhooks.configs().len() < MADE_MAX;
    let mut config = earlier.unwrap_or(Config {
        target_url: String::new(),
        events: Vec::new(),
        enabled: true,
        secret: None,
    });
    if let Some(url) = text(fields, "targetUrl")? {
        url.clone_into(&mut config.target_url);
    }
    if let Some(events) = fields.get("events") {
        config.events = serde_json::from_value(events.clone())
            .map_err(|_| "`events`: a list of names expected")?;
    }
    config.enabled = flag(fields, "enabled")?.unwrap_or(config.enabled);
    let faults = config.faults(core.settings.private_targets);
    let force = flag(fields, "force")?.unwrap_or(false);
    if !known || (!force && !faults.is_empty()) {
        let words: Vec<String> = (faults.iter())
            .map(|fault| format!("{}: {}", fault.field, fault.reason))
            .collect();
        return Err(words.join("; "));
    }
    let regenerate = flag(fields, "regenerateSecret")?.unwrap_or(false);
    let mut answer = json!({
        "application": application, "targetUrl": config.target_url,
        "events": config.events, "enabled": config.enabled,
    });
    // §2.7: in clear only on creation, or when it is regenerated.
    if let Some(secret) = webhook::configure_webhook(core, now, application, config, regenerate) {
        answer["webhookSecret"] = shown(&secret);
    }
    Ok(answer)
}

fn install(
    core: &mut Sandbox,
    now: EventTime,
    application: i64,
    fields: &JsonFields,
) -> AdminAnswer {
    let company = whole(fields, "company")?.unwrap_or(core.settings.company.id);
    if !core.companies.contains_key(&company) {
        return Err(format!("no company {company}"));
    }
    if core.webhooks.installations().len() >= MADE_MAX {
        return Err(format!("{MADE_MAX} installations are enough"));
    }
    let installation = core.webhooks.next_installation();
    let record = Installation {
        company,
        application,
        secret: None,
        revoked: false,
    };
    webhook::webhook_change(
        core,
        now,
        WebhookChange::Installed {
            installation,
            record,
        },
    );
    Ok(json!({ "installation": installation }))
}

fn forget(
    core: &mut Sandbox,
    now: EventTime,
    application: i64,
    fields: &JsonFields,
) -> AdminAnswer {
    if fields.contains_key("installation") {
        let installation = installation(core, fields)?;
        let secret = None;
        webhook::webhook_change(
            core,
            now,
            WebhookChange::Secret {
                installation,
                secret,
            },
        );
    } else {
        let config = core.webhooks.config(application).cloned();
        let mut config = config.ok_or_else(|| format!("no configuration of {application}"))?;
        config.secret = None;
        webhook::webhook_change(
            core,
            now,
            WebhookChange::Configured {
                application,
                config,
            },
        );
    }
    Ok(json!({ "done": "webhook/forget" }))
}

fn forge(core: &mut Sandbox, now: EventTime, fields: &JsonFields) -> AdminAnswer {
    let how = text(fields, "how")?.ok_or("`how` is missing")?;
    let all: Vec<Forgery> = match how {
        "all" => FORGERIES.to_vec(),
        word => vec![Forgery::from_word(word).ok_or_else(|| {
            let words: Vec<&str> = FORGERIES.iter().map(|one| one.word()).collect();
            format!("`how`: one of all, {}", words.join(", "))
        })?],
    };
    let to: Vec<i64> = match whole(fields, "installation")? {
        Some(id) => vec![id],
        None => webhook::installations(core)
            .iter()
            .filter(|own| !own.gone)
            .map(|own| own.id)
            .collect(),
    };
    let event = event(core, now, fields)?;
    let mut made = Vec::new();
    for installation in to {
        for forgery in &all {
            let id = forge::forge(core, now, installation, *forgery, event.clone())?;
            made.push(json!({ "how": forgery, "installation": installation, "event": id }));
        }
    }
    Ok(Value::Array(made))
}

/// The event of a trial: a sample, with the fields of `lead` and `call` put over it.
fn event(core: &Sandbox, now: EventTime, fields: &JsonFields) -> Result<CrmEvent, String> {
    let name = text(fields, "event")?.unwrap_or("CALL_COMPLETED");
    let lead = Box::new(over(fields, "lead", &sample_lead(now))?);
    let pair = |field: &str| format!("{field}Id");
    let id = |field: &str| whole(fields, &pair(field));
    Ok(match name {
        "LEAD_CREATED" => CrmEvent::LeadCreated { lead },
        "LEAD_DELETED" => CrmEvent::LeadDeleted { lead },
        "LEAD_ASSIGNED" => CrmEvent::LeadAssigned {
            from: Responsible {
                id: id("from")?,
                name: None,
            },
            to: Responsible {
                id: lead.responsible_id,
                name: lead.responsible_name.clone(),
            },
            lead,
        },
        "LEAD_STAGE_CHANGED" => CrmEvent::LeadStageChanged {
            from: Stage {
                id: id("from")?,
                name: None,
            },
            to: Stage {
                id: lead.status_id,
                name: lead.status_name.clone(),
            },
            lead,
        },
        "LEAD_PROPERTIES_UPDATED" => CrmEvent::LeadPropertiesUpdated {
            lead,
            changes: match fields.get("changes") {
                Some(list) => serde_json::from_value(list.clone()).map_err(|e| e.to_string())?,
                None => vec![PropertyChange {
                    kind: Property::Contact(31),
                    from: None,
                    to: Some("Ali [+998901112233, +998935556677]".to_owned()),
                }],
            },
        },
        "LEAD_MERGED" => CrmEvent::LeadMerged {
            lead,
            merged: match fields.get("merged") {
                Some(list) => serde_json::from_value(list.clone()).map_err(|e| e.to_string())?,
                None => vec![4002],
            },
        },
        "CALL_COMPLETED" => {
            let fields = recording::filled(core, now, fields)?;
            let mut call: CompletedCall = over(&fields, "call", &sample_call(core, now))?;
            if call.conversation_kind != "CALL" {
                // §6.8: always, for meetings.
                "INBOUND".clone_into(&mut call.direction);
            }
            CrmEvent::CallCompleted {
                call: Box::new(call),
            }
        }
        other => return Err(format!("`event`: `{other}` is none of §6.2")),
    })
}

/// A sample with given fields put over it.
fn over<T: DeserializeOwned>(fields: &JsonFields, name: &str, sample: &Value) -> Result<T, String> {
    let mut value = sample.clone();
    match fields.get(name) {
        None | Some(Value::Null) => {}
        Some(Value::Object(given)) => {
            for (field, given) in given {
                value[field] = given.clone();
            }
        }
        Some(_) => return Err(format!("`{name}`: an object expected")),
    }
    serde_json::from_value(value).map_err(|error| format!("`{name}`: {error}"))
}

fn sample_lead(now: EventTime) -> Value {
    let second = now.floor_seconds().get();
    let lead = LeadSnapshot {
        id: 4001,
        name: "Ali Valiyev".to_owned(),
        status_id: Some(21),
        status_name: Some("New".to_owned()),
        pipe_id: Some(2),
        pipe_name: Some("Sales".to_owned()),
        responsible_id: Some(501),
        balance: 1_500.5,
        currency: Some("USD".to_owned()),
        phone: Some("+998901112233".to_owned()),
        attributions: vec![Attribution {
            channel_id: 3,
            source: "WEBSITE".to_owned(),
            channel_value: "example.com".to_owned(),
            attached_timestamp: second,
        }],
        created_timestamp: Some(second),
        updated_timestamp: Some(second),
        ..LeadSnapshot::default()
    };
    json!(lead)
}

fn sample_call(core: &Sandbox, now: EventTime) -> Value {
    let second = now.floor_seconds().get();
    let call = CompletedCall {
        call_id: format!("foreign-{}-{}", now.micros(), core.webhooks.counts().events),
        provider: Some("ONLINE_PBX".to_owned()),
        started_at: Some(second - 60),
        ended_at: Some(second),
        duration_sec: Some(60),
        talk_time_sec: Some(50),
        hangup_cause: Some("ANSWER".to_owned()),
        client_phone: Some("+998901112233".to_owned()),
        operator_extension: Some("101".to_owned()),
        lead_ids: vec![4001],
        ..CompletedCall::default()
    };
    json!(call)
}

/// Everything about webhooks but the keys.
pub(crate) fn overview(core: &Sandbox) -> Value {
    let outbox = &core.webhooks;
    let configs = outbox.configs().iter().map(|(application, config)| {
        json!({
            "application": application, "targetUrl": config.target_url, "events": config.events,
            "enabled": config.enabled, "secret": config.secret.is_some(),
        })
    });
    let installations = webhook::installations(core);
    let installations = installations.iter().map(|own| {
        json!({
            "installation": own.id, "company": own.company, "application": own.application,
            "ownSecret": own.secret.is_some(), "revoked": own.gone,
        })
    });
    let queue = outbox.rows().iter().map(|(id, row)| {
        json!({
            "event": id.event, "installation": id.installation,
            "eventType": row.recorded.event.name(), "company": row.recorded.company,
            "due": row.due, "attempts": row.attempts, "inFlight": row.in_flight,
        })
    });
    let breakers = outbox.breakers().iter().map(|(id, breaker)| {
        let (failures, of) = breaker.failures();
        json!({
            "installation": id, "failures": failures, "of": of,
            "pausedUntil": breaker.paused_until(),
        })
    });
    json!({
        "configs": configs.collect::<Vec<_>>(),
        "installations": installations.collect::<Vec<_>>(),
        "queue": queue.take(SHOWN_MAX).collect::<Vec<_>>(),
        "breakers": breakers.collect::<Vec<_>>(),
        "attempts": outbox.attempts().newest(SHOWN_MAX),
        "dead": outbox.dead().newest(SHOWN_MAX),
        "forged": outbox.forged().newest(SHOWN_MAX),
        "counts": outbox.counts(),
    })
}
