//! The listener for the CRM's webhooks, and the task that reloads its files when they change. The
//! listener is started after the spool has been opened. Calls are also journaled without webhooks.

use super::tasks::Tasks;
use crate::config::{Config, Webhooks as Settings};
use crate::{Failure, OrFail as _, build_time};
use callbridge_call::shell::quoted;
use callbridge_model::status::{SecretFile, WebhookMismatch, Webhooks};
use callbridge_model::{Code, SecretKind, SecretPlace, clock};
use callbridge_spool::Handle;
use callbridge_webhook::installations::{Installations, STORED};
use callbridge_webhook::receiver::Receiver;
use callbridge_webhook::secrets::{self, Places, Secrets};
use callbridge_webhook::tally::{Mismatch, Tally};
use callbridge_webhook::{http, tls};
use futures_util::FutureExt as _;
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

/// A view of the receiver for `status` and metrics.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverView {
    address: SocketAddr,
    tls: bool,
    secrets: Arc<Secrets>,
    places: Places,
    pub(crate) tally: Arc<Tally>,
}

impl ReceiverView {
    /// Returns the errors in the files with the secrets used to sign events.
    pub(crate) fn secret_files(&self) -> Vec<SecretFile> {
        let mut files = Vec::new();
        for reason in self.secrets.errors() {
            let flag = "webhook secrets".to_owned();
            files.push(SecretFile { flag, reason });
        }
        files
    }

    /// Returns the receiver's part of `status`, with the events by result.
    pub(crate) fn status(&self) -> Webhooks {
        let mut events = BTreeMap::new();
        for ((_, result), count) in self.tally.events() {
            *events.entry(result.to_owned()).or_insert(0) += count;
        }
        let no_secret = self.secrets.current().is_empty();
        Webhooks {
            address: self.address.to_string(),
            tls: self.tls,
            state: if no_secret { "no_secret" } else { "listening" }.to_owned(),
            last_event_at: self.tally.last().map(|at| at.floor_seconds().get()),
            events,
            mismatch: self.mismatch(),
        }
    }

    fn mismatch(&self) -> Option<WebhookMismatch> {
        let Mismatch { installation, at } = self.tally.mismatch(clock::now().wall)?;
        Some(WebhookMismatch {
            fix: secret_fix(&self.places, &installation),
            installation,
            at: at.floor_seconds().get(),
        })
    }
}

/// Returns where to write this installation's new secret, or how to provide it.
fn secret_fix(places: &Places, installation: &str) -> String {
    match places
        .installations
        .get(installation)
        .or(places.application.as_ref())
    {
        Some(SecretPlace::File(path)) => {
            format!("write the new one to the first line of {}", path.display())
        }
        Some(SecretPlace::Variable(_)) => format!(
            "set {} to the new one and restart callbridge",
            SecretKind::Webhook.variable()
        ),
        // The header isn't signed, so it may contain anything.
        None => format!(
            "add --installation-secret={} with the new one",
            quoted(&format!("{installation}=FILE"))
        ),
    }
}

/// Returns `true` if events arrive unencrypted from other machines, so that others can read numbers
/// and names. A TLS proxy in front of the listener can't be detected.
pub(crate) fn is_open_to_readers(settings: &Settings) -> bool {
    settings.tls.is_none() && !settings.listen.ip().is_loopback()
}

/// Starts the receiver if `--webhook-listen` is given.
///
/// # Errors
/// Returns an error if the address is in use or the certificate can't be used.
pub(crate) async fn start(
    config: &Config,
    spool: &Handle,
    tasks: &mut Tasks,
) -> Result<Option<ReceiverView>, Failure> {
    let Some(settings) = &config.webhooks else {
        return Ok(None);
    };
    let kept_tls = settings
        .tls
        .clone()
        .map(|files| tls::keep("webhooks", files));
    let kept_tls = kept_tls.transpose();
    let tls = kept_tls.or_fail_at(Code::Configuration, "--webhook-cert")?;
    let asked = super::listen_at("--webhook-listen", settings.listen);
    let (listener, address) = asked.await?;
    let installations = spool.meta(STORED).await?;
    let places = Places {
        application: settings.application.clone(),
        installations: settings.installations.clone(),
    };
    let connection = secrets::connection_secret(spool).await;
    let (secrets, errors) = Secrets::new(places.clone(), connection);
    for error in errors {
        tracing::warn!(%error, "a webhook secret cannot be used");
    }
    let shown = ReceiverView {
        address,
        tls: tls.is_some(),
        secrets: Arc::clone(&secrets),
        places,
        tally: Arc::new(Tally::new()),
    };
    tracing::info!(address = %shown.address, tls = shown.tls, "webhooks are received");
    if is_open_to_readers(settings) {
        tracing::warn!(
            address = %shown.address,
            "webhooks from other machines arrive over plain HTTP, so others on the network can \
             read them"
        );
    }
    let receiver = Arc::new(Receiver {
        spool: spool.clone(),
        secrets: Arc::clone(&secrets),
        installations: Installations::new(installations.as_deref()),
        country: config.rules.country,
        clock_right_from: build_time::right_from(),
        tally: Arc::clone(&shown.tally),
    });
    let (current, keeping) = tls.unzip();
    if let Some(keeping) = keeping {
        tasks.start_until_stop(keeping.map(Ok));
    }
    tasks.start_until_stop(secrets.keep(spool.clone()).map(Ok));
    let stop = tasks.stop();
    tasks.start(async move {
        let current = current.map(|kept| kept.server);
        http::serve(listener, current, receiver, http::CONNECTIONS_MAX, stop).await;
    });
    Ok(Some(shown))
}
