//! Configurations and signing keys as they change (§2.7, §6.4).

use super::config::{Config, SigningKey};
use crate::core::Sandbox;

/// Sets an application's configuration, also one that §2.7 refuses; an application-level key is
/// made with the first one (shown then alone), and with `regenerate`.
pub fn configure_webhook(
    sandbox: &mut Sandbox,
    application: i64,
    config: Config,
    regenerate: bool,
) -> Option<SigningKey> {
    let earlier = sandbox.webhooks.config(application);
    let kept = earlier.and_then(|config| config.secret.clone());
    let fresh = (earlier.is_none() || regenerate).then(|| fresh_key(sandbox));
    let secret = fresh.clone().or(kept);
    let configs = &mut sandbox.webhooks.configs;
    configs.insert(application, Config { secret, ..config });
    fresh
}

/// A company consented to an application: its installation has a new key, which the token
/// response shows once (§4.1.1 `webhook_secret`). `None`: the application has no configuration.
pub fn webhook_connected(
    sandbox: &mut Sandbox,
    company: i64,
    application: i64,
) -> Option<SigningKey> {
    let configured = sandbox.webhooks.config(application).is_some();
    let secret = configured.then(|| fresh_key(sandbox));
    let installation = sandbox.webhooks.installation(company, application);
    installation.secret = secret.clone().or(installation.secret.take());
    secret
}

pub(super) fn fresh_key(sandbox: &mut Sandbox) -> SigningKey {
    SigningKey::new(sandbox.mint_key())
}
