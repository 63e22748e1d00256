//! Runs the webhook dispatcher: claims due deliveries once a second, and sends them with POST
//! (§6.3, §6.9.2).
//!
//! Redirects are not followed, the HTTP library repeats nothing, and no connection is kept open. A
//! name is resolved when connecting, and none of its addresses must be private (§6.9.4).

use crate::{
    AttemptOutcome, Dispatch, SharedSandbox, webhook::config::is_private, webhook::dispatch,
    webhook::dispatch::CYCLE,
};
use callbridge_call::EventTime;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::CONTENT_TYPE;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Time limit of a connection attempt.
pub const CONNECT: Duration = Duration::from_secs(3);
/// Time limit from the start of an attempt to its answer. The time includes connecting, which is
/// the strictest reading of the document.
pub const RESPOND: Duration = Duration::from_secs(10);

/// Sends due deliveries until the order to stop. Attempts that are under way at the stop are made
/// again after the next start.
pub(crate) async fn dispatch(
    shared: SharedSandbox,
    poster: Arc<DeliveryClient>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut cycle = tokio::time::interval(CYCLE);
    cycle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            // An error means that the sender is gone, which is also an order to stop.
            _ = stopped.wait_for(|stop| *stop) => break,
            _ = cycle.tick() => {}
        }
        while under_way.try_join_next().is_some() {}
        // A claim is not part of the saved state, so nothing is saved here.
        for dispatch in shared.act(false, dispatch::deliveries).0 {
            let shared = shared.clone();
            let poster = Arc::clone(&poster);
            under_way.spawn(async move {
                let begun = tokio::time::Instant::now();
                // This is the machine's time. The sandbox's clock can be ahead, which would make
                // every signature stale.
                let outcome = poster.post(&dispatch, (shared.clock)()).await;
                let took = begun.elapsed();
                shared.admin(|core, now| dispatch::delivered(core, now, &dispatch, &outcome, took));
            });
        }
    }
    under_way.shutdown().await;
}

/// The HTTP client that sends deliveries. It is built at the first attempt.
#[derive(Debug)]
pub struct DeliveryClient {
    /// PEM file with the only certificate authorities that are trusted. `None` means the system's
    /// authorities.
    ca_file: Option<PathBuf>,
    /// `true` if names can lead to private addresses.
    private_targets: bool,
    http: OnceLock<Result<reqwest::Client, String>>,
}

impl DeliveryClient {
    /// Creates a client. The CA file is read later, at the first attempt.
    pub const fn new(ca_file: Option<PathBuf>, private_targets: bool) -> Self {
        Self {
            ca_file,
            private_targets,
            http: OnceLock::new(),
        }
    }

    /// Makes one attempt to deliver. `now` is the time of the signature.
    pub async fn post(&self, dispatch: &Dispatch, now: EventTime) -> AttemptOutcome {
        let http = match self.http.get_or_init(|| self.build()) {
            Ok(http) => http,
            Err(message) => return AttemptOutcome::Broken(message.clone()),
        };
        let mut request =
            (http.post(dispatch.target.clone())).header(CONTENT_TYPE, "application/json");
        for (name, value) in dispatch.headers(now.floor_seconds()) {
            request = request.header(name, value);
        }
        match request.body(dispatch.body.clone()).send().await {
            Ok(response) => AttemptOutcome::Status(response.status().as_u16()),
            Err(error) => outcome(error),
        }
    }

    fn build(&self) -> Result<reqwest::Client, String> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            // Answers are not read, so compressed ones are not requested.
            .no_gzip()
            .no_deflate()
            .no_brotli()
            .no_zstd()
            .http1_only()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT)
            .timeout(RESPOND)
            .dns_resolver(Arc::new(Resolver(self.private_targets)))
            .user_agent(concat!("callbridge-sandbox/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &self.ca_file {
            let flag = format!("--webhook-ca-file {}", path.display());
            let pem = std::fs::read(path).map_err(|error| format!("{flag}: {error}"))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|error| format!("{flag}: {error}"))?;
            builder = builder.tls_certs_only(roots);
        }
        let built = builder.build();
        built.map_err(|error| format!("TLS cannot be set up: {error}"))
    }
}

fn outcome(error: reqwest::Error) -> AttemptOutcome {
    if error.is_timeout() {
        return AttemptOutcome::TimedOut;
    }
    let error = error.without_url();
    let mut message = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        if inner.is::<PrivateAddress>() {
            return AttemptOutcome::Private;
        }
        message = inner.to_string();
        source = inner.source();
    }
    AttemptOutcome::Broken(message)
}

/// Resolves names with the system's resolver. A name with a private address is an error, unless the
/// flag is `true`.
#[derive(Debug)]
struct Resolver(bool);

/// The error of a name that leads to a private address.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name leads to a private address")]
struct PrivateAddress;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let private_targets = self.0;
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if !private_targets && found.iter().any(|address| is_private(address.ip())) {
                return Err(PrivateAddress.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
