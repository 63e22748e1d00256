//! Configurations and signing keys as they change (§2.7, §6.4).

use super::config::{Config, Installation, SigningKey};
use super::outbox::WebhookChange;
use crate::core::{Change, Sandbox};
use crate::token_gen;
use callbridge_call::EventTime;

/// Sets an application's configuration, whatever §2.7 says of it; an application-level key is
/// made with the first one (shown then alone), and with `regenerate`.
pub fn configure_webhook(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: i64,
    config: Config,
    regenerate: bool,
) -> Option<SigningKey> {
    let earlier = sandbox.webhooks.config(application);
    let fresh = (earlier.is_none() || regenerate).then(|| fresh_key(sandbox));
    let kept = earlier.and_then(|config| config.secret.clone());
    let secret = fresh.clone().or(kept);
    let config = Config { secret, ..config };
    let change = WebhookChange::Configured {
        application,
        config,
    };
    webhook_change(sandbox, now, change);
    fresh
}

/// A company consented to an application: its installation has a new key, which the token
/// response shows once (§4.1.1 `webhook_secret`). `None`: the application has no configuration.
pub fn webhook_connected(
    sandbox: &mut Sandbox,
    now: EventTime,
    company: i64,
    application: i64,
) -> Option<SigningKey> {
    let secret = (sandbox.webhooks.config(application).is_some()).then(|| fresh_key(sandbox));
    let change = match (sandbox.webhooks.installed(company, application), &secret) {
        (Some(_), None) => return None,
        (Some(installation), Some(_)) => WebhookChange::Secret {
            installation,
            secret: secret.clone(),
        },
        (None, _) => WebhookChange::Installed {
            installation: sandbox.webhooks.next_installation(),
            record: Installation {
                company,
                application,
                secret: secret.clone(),
                revoked: false,
            },
        },
    };
    webhook_change(sandbox, now, change);
    secret
}

/// The connection ended: its deliveries stop (§3.1, §6.1.6).
pub fn webhook_disconnected(sandbox: &mut Sandbox, now: EventTime, company: i64, application: i64) {
    if let Some(installation) = sandbox.webhooks.installed(company, application) {
        webhook_change(sandbox, now, WebhookChange::Revoked { installation });
    }
}

pub(crate) fn fresh_key(sandbox: &Sandbox) -> SigningKey {
    SigningKey::new(token_gen::mint_key(sandbox, "webhook"))
}

pub(crate) fn webhook_change(sandbox: &mut Sandbox, now: EventTime, change: WebhookChange) {
    sandbox.change(now, Change::Webhook(Box::new(change)));
}
