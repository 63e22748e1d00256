//! The shell of the dispatcher: one cycle a second, and the POSTs it asks for (§6.3, §6.9.2).
//!
//! Nothing is followed, nothing is repeated by the library, no connection is kept. A name is asked
//! for its addresses at the moment of connecting, and none of them may be private (§6.9.4).

use crate::{
    AttemptOutcome, Dispatch, SharedSandbox, webhook::config::is_private, webhook::dispatch,
    webhook::dispatch::CYCLE,
};
use callbridge_call::EventTime;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::CONTENT_TYPE;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Time to make a connection.
pub const CONNECT: Duration = Duration::from_secs(3);
/// Time from the beginning of an attempt to its answer: the connection counts, which is stricter
/// than the document has to be read.
pub const RESPOND: Duration = Duration::from_secs(10);

/// Dispatches until the order to stop; attempts under way then are made again after the next start.
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
            // An error is the sender's end, which is an order to stop as well.
            _ = stopped.wait_for(|stop| *stop) => break,
            _ = cycle.tick() => {}
        }
        while under_way.try_join_next().is_some() {}
        // The state is not kept for what is claimed.
        for dispatch in shared.act(false, dispatch::deliveries).0 {
            let (shared, poster) = (shared.clone(), Arc::clone(&poster));
            under_way.spawn(async move {
                let begun = tokio::time::Instant::now();
                // The machine's own moment: a clock moved by hand must not make every signature
                // stale.
                let outcome = poster.post(&dispatch, (shared.clock)()).await;
                let took = begun.elapsed();
                shared.admin(|core, now| dispatch::delivered(core, now, &dispatch, &outcome, took));
            });
        }
    }
    under_way.shutdown().await;
}

/// Makes attempts; the client is built with the first.
#[derive(Debug)]
pub struct DeliveryClient {
    /// Authorities in PEM, the only ones trusted then; `None`: the system's.
    ca_file: Option<PathBuf>,
    /// Names may lead to private addresses.
    private_targets: bool,
    http: OnceLock<Result<reqwest::Client, String>>,
}

impl DeliveryClient {
    /// A poster that has not opened or read anything yet.
    pub const fn new(ca_file: Option<PathBuf>, private_targets: bool) -> Self {
        Self {
            ca_file,
            private_targets,
            http: OnceLock::new(),
        }
    }

    /// Makes one attempt; the signature is of this moment.
    pub async fn post(&self, dispatch: &Dispatch, now: EventTime) -> AttemptOutcome {
        let http = match self.http.get_or_init(|| self.build()) {
            Ok(http) => http,
            Err(words) => return AttemptOutcome::Broken(words.clone()),
        };
        let request = http.post(dispatch.target.clone());
        let mut request = request.header(CONTENT_TYPE, "application/json");
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
            // The answers are not read, so no compressed ones are asked for.
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
            let failed = |why: &dyn Display| format!("--webhook-ca-file {}: {why}", path.display());
            let pem = std::fs::read(path).map_err(|error| failed(&error))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem);
            builder = builder.tls_certs_only(roots.map_err(|error| failed(&error))?);
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
    let mut words = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        if inner.is::<PrivateAddress>() {
            return AttemptOutcome::Private;
        }
        words = inner.to_string();
        source = inner.source();
    }
    AttemptOutcome::Broken(words)
}

/// Asks the system for addresses, and gives none out when one of them is private, unless `true`
/// says that names may lead there.
#[derive(Debug)]
struct Resolver(bool);

/// A name leads to a private address.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name leads to a private address")]
struct PrivateAddress;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let private_targets = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            if !private_targets && found.iter().any(|address| is_private(address.ip())) {
                return Err(PrivateAddress.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
