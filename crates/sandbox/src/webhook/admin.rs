//! Admin paths for webhooks: what a person does with them in the CRM, and how that changes
//! configurations and signing keys (§2.7, §6.4). The document does not publish these paths (§4.7),
//! so the sandbox has its own below `/sandbox/admin/`.
//!
//! ```text
//! GET  /sandbox/webhooks    configurations, installations, queue, journal, counts
//! POST …/webhook            {"application": 1, "targetUrl": U, "events": [NAMES or groups],
//!                           "enabled": true}: sets what is given. "regenerateSecret": true;
//!                           "force": true stores what §2.7 refuses
//! POST …/webhook/delete     {"application": 1}
//! POST …/webhook/regenerate {"installation": 7001}: makes the installation's own key, shown once
//! POST …/webhook/revoke     {"installation": 7001}
//! ```

use crate::{
    AdminAnswer, Installation, Sandbox, SigningKey, body::needed, body::read,
    webhook::config::Config, webhook::events,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The fields of a request body of the paths below `/sandbox/admin/webhook`. Each path reads only
/// some of the fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Order {
    application: Option<i64>,
    enabled: Option<bool>,
    events: Option<Vec<String>>,
    force: bool,
    installation: Option<i64>,
    regenerate_secret: bool,
    target_url: Option<String>,
}

/// Answers `admin/webhook` and the paths below it. Returns null if there is no such path.
pub(crate) fn administer(core: &mut Sandbox, act: &str, body: &[u8]) -> AdminAnswer {
    let order: Order = read(body)?;
    let first = core.settings.company.application_id;
    let application = order.application.unwrap_or(first);
    match act {
        "webhook" => return configure(core, application, order),
        "webhook/delete" => {
            core.webhooks.configs.remove(&application);
        }
        "webhook/regenerate" => {
            let key = fresh_key(core);
            installation(core, &order)?.secret = Some(key.clone());
            let id = order.installation;
            return Ok(json!({ "installation": id, "webhookSecret": key.expose() }));
        }
        "webhook/revoke" => installation(core, &order)?.revoked = true,
        _ => return Ok(Value::Null),
    }
    Ok(json!({ "done": act }))
}

fn installation<'a>(core: &'a mut Sandbox, order: &Order) -> Result<&'a mut Installation, String> {
    let id = needed(order.installation, "installation")?;
    let known = core.webhooks.installations.get_mut(&id);
    known.ok_or_else(|| format!("no installation {id}"))
}

fn configure(core: &mut Sandbox, application: i64, order: Order) -> AdminAnswer {
    let known = core.webhooks.configs.get(&application).cloned();
    let enabled = known.as_ref().is_none_or(|known| known.enabled);
    let earlier = known.unwrap_or_default();
    let config = Config {
        target_url: order.target_url.unwrap_or(earlier.target_url),
        events: order.events.unwrap_or(earlier.events),
        enabled: order.enabled.unwrap_or(enabled),
        secret: earlier.secret,
    };
    let errors = config.errors(core.settings.private_targets);
    if !order.force && !errors.is_empty() {
        return Err(errors.join("; "));
    }
    let mut answer = json!({
        "application": application, "targetUrl": config.target_url,
        "events": config.events, "enabled": config.enabled,
    });
    // §2.7: the key is shown only when it is made, or made again.
    let regenerate = order.regenerate_secret;
    if let Some(secret) = configure_webhook(core, application, config, regenerate) {
        answer["webhookSecret"] = json!(secret.expose());
    }
    Ok(answer)
}

/// Stores an application's configuration, even one that §2.7 refuses. With the first configuration,
/// or with `regenerate`, makes an application-level key and returns it. The key is shown only then.
pub fn configure_webhook(
    core: &mut Sandbox,
    application: i64,
    config: Config,
    regenerate: bool,
) -> Option<SigningKey> {
    let earlier = core.webhooks.configs.get(&application);
    let kept = earlier.and_then(|config| config.secret.clone());
    let fresh = (earlier.is_none() || regenerate).then(|| fresh_key(core));
    let secret = fresh.clone().or(kept);
    let configs = &mut core.webhooks.configs;
    configs.insert(application, Config { secret, ..config });
    fresh
}

/// Makes a new key for the installation of a company that consented to an application. The token
/// response shows it once (§4.1.1 `webhook_secret`). Returns `None` if the application has no
/// configuration.
pub fn webhook_connected(core: &mut Sandbox, company: i64, application: i64) -> Option<SigningKey> {
    let configured = core.webhooks.configs.contains_key(&application);
    let secret = configured.then(|| fresh_key(core));
    let installation = core.webhooks.installation(company, application);
    installation.secret = secret.clone().or(installation.secret.take());
    secret
}

fn fresh_key(core: &mut Sandbox) -> SigningKey {
    SigningKey::new(core.mint_key())
}

/// Returns the answer of `GET /sandbox/webhooks`: everything about webhooks except the keys.
pub(crate) fn overview(core: &Sandbox) -> Value {
    let outbox = &core.webhooks;
    let configs = outbox.configs.iter().map(|(application, config)| {
        json!({
            "application": application, "targetUrl": config.target_url, "events": config.events,
            "enabled": config.enabled, "secret": config.secret.is_some(),
        })
    });
    let installations = outbox.installations.iter().map(|(id, own)| {
        json!({
            "installation": id, "company": own.company, "application": own.application,
            "ownSecret": own.secret.is_some(), "revoked": events::is_gone(core, own),
        })
    });
    let queue = outbox.rows.iter().map(|(id, row)| {
        json!({
            "event": id.event, "installation": id.installation,
            "eventType": row.recorded.event.name, "company": row.recorded.company,
            "due": row.due, "attempts": row.attempts, "inFlight": row.in_flight,
        })
    });
    json!({
        "configs": configs.collect::<Vec<_>>(),
        "installations": installations.collect::<Vec<_>>(),
        "queue": queue.collect::<Vec<_>>(),
        "attempts": outbox.attempts.iter().collect::<Vec<_>>(),
        "dead": outbox.dead.iter().collect::<Vec<_>>(),
        "counts": outbox.counts,
    })
}
