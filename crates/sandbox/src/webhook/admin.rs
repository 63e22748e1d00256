//! What a person does in the CRM with webhooks. The document does not publish these paths (§4.7);
//! they are the sandbox's own, below `/sandbox/admin/`.
//!
//! ```text
//! GET  /sandbox/webhooks    configurations, installations, queue, journal, counts
//! POST …/webhook            {"application": 1, "targetUrl": U, "events": [NAMES or groups],
//!                           "enabled": true}: sets what is given. "regenerateSecret": true;
//!                           "force": true stores what §2.7 refuses
//! POST …/webhook/delete     {"application": 1}
//! POST …/webhook/regenerate {"installation": 7001}: a key of its own, shown once
//! POST …/webhook/revoke     {"installation": 7001}
//! ```

use super::WebhookChange;
use super::config::Config;
use crate::admin::{AdminAnswer, JsonFields, flag, text, whole};
use crate::core::Sandbox;
use crate::webhook;
use callbridge_call::EventTime;
use serde_json::{Value, json};

/// Most applications that can be made.
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
    let done = json!({ "done": act });
    match act {
        "webhook" => return configure(core, now, application, fields),
        "webhook/delete" => {
            webhook::webhook_change(core, now, WebhookChange::Deleted { application });
        }
        "webhook/regenerate" => {
            let installation = installation(core, fields)?;
            let key = webhook::fresh_key(core);
            let answer = json!({ "installation": installation, "webhookSecret": key.expose() });
            let secret = Some(key);
            let change = WebhookChange::Secret {
                installation,
                secret,
            };
            webhook::webhook_change(core, now, change);
            return Ok(answer);
        }
        "webhook/revoke" => {
            let installation = installation(core, fields)?;
            webhook::webhook_change(core, now, WebhookChange::Revoked { installation });
        }
        _ => return Ok(Value::Null),
    }
    Ok(done)
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
        return Err(faults.join("; "));
    }
    let regenerate = flag(fields, "regenerateSecret")?.unwrap_or(false);
    let mut answer = json!({
        "application": application, "targetUrl": config.target_url,
        "events": config.events, "enabled": config.enabled,
    });
    // §2.7: in clear only on creation, or when it is regenerated.
    if let Some(secret) = webhook::configure_webhook(core, now, application, config, regenerate) {
        answer["webhookSecret"] = json!(secret.expose());
    }
    Ok(answer)
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
    let installations = outbox.installations().iter().map(|(id, own)| {
        json!({
            "installation": id, "company": own.company, "application": own.application,
            "ownSecret": own.secret.is_some(), "revoked": webhook::told::is_gone(core, own),
        })
    });
    let queue = outbox.rows().iter().map(|(id, row)| {
        json!({
            "event": id.event, "installation": id.installation,
            "eventType": row.recorded.event.name, "company": row.recorded.company,
            "due": row.due, "attempts": row.attempts, "inFlight": row.in_flight,
        })
    });
    json!({
        "configs": configs.collect::<Vec<_>>(),
        "installations": installations.collect::<Vec<_>>(),
        "queue": queue.take(SHOWN_MAX).collect::<Vec<_>>(),
        "attempts": outbox.attempts().newest(SHOWN_MAX),
        "dead": outbox.dead().newest(SHOWN_MAX),
        "counts": outbox.counts(),
    })
}
