//! A sandbox at work: its addresses, its dispatcher, its end.

use super::config::Config;
use super::core::Sandbox;
use super::envelope::Role;
use super::error::Error;
use super::http;
use super::journal::Record;
use super::shared::{SandboxClock, SharedSandbox, StateFile, steady_clock};
use super::webhook::post;
use callbridge_call::EventTime;
use callbridge_model::secret::ExposeSecret;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running sandbox.
pub struct Server {
    addr: SocketAddr,
    auth: SocketAddr,
    shared: SharedSandbox,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where the token and the revoke endpoint are; the same, unless they have their own address.
    pub fn auth_url(&self) -> String {
        format!("http://{}", self.auth)
    }

    /// Does something with the core.
    pub fn admin<R>(&self, act: impl FnOnce(&mut Sandbox, EventTime) -> R) -> R {
        self.shared.admin(act)
    }

    /// A handle that outlives this one.
    pub fn shared(&self) -> SharedSandbox {
        self.shared.clone()
    }

    /// The journal's records.
    pub fn journal(&self) -> Vec<Record> {
        self.admin(|core, _| core.records().to_vec())
    }

    /// What clients did against the document.
    pub fn violations(&self) -> Vec<super::Violation> {
        self.admin(|core, _| core.violations().all().to_vec())
    }

    /// Ends it and waits for its end.
    ///
    /// # Errors
    /// The listener had ended before.
    pub async fn stop(self) -> Result<(), Error> {
        self.stop.send_replace(true);
        let mut ended = Ok(());
        for task in self.tasks {
            ended = ended.and(task.await.map_err(|error| Error::Http(error.into())));
        }
        ended
    }
}

/// Starts a sandbox: state, token, listener.
///
/// # Errors
/// The state file or the address cannot be used.
pub async fn start(config: Config) -> Result<Server, Error> {
    start_with(config, steady_clock()).await
}

/// The same with a clock of the caller's.
///
/// # Errors
/// The state file or the address cannot be used.
pub async fn start_with(config: Config, clock: SandboxClock) -> Result<Server, Error> {
    let setup = post::Setup {
        ca_file: config.webhook_ca_file.clone(),
        private_targets: config.settings.private_targets,
    };
    let (addr, auth) = (config.listen, config.auth_listen);
    let (core, state) = prepare(config, clock())?;
    let (api, addr) = listen(addr).await?;
    let (listeners, auth) = match auth {
        None => (vec![(api, Role::Whole)], addr),
        Some(auth) => {
            let (own, auth) = listen(auth).await?;
            (vec![(api, Role::Api), (own, Role::Auth)], auth)
        }
    };
    let shared = SharedSandbox::new(core, state, clock);
    let stop = watch::Sender::new(false);
    let serving = |(listener, role)| {
        let serving = http::serve(listener, shared.clone(), role, stop.subscribe());
        tokio::spawn(serving)
    };
    let mut tasks: Vec<_> = listeners.into_iter().map(serving).collect();
    let dispatching = post::dispatch(shared.clone(), setup, stop.subscribe());
    tasks.push(tokio::spawn(dispatching));
    Ok(Server {
        addr,
        auth,
        shared,
        stop,
        tasks,
    })
}

async fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Listen { addr, source };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    Ok((listener, addr))
}

/// The core as its state file left it, with what the flags say now.
fn prepare(config: Config, now: EventTime) -> Result<(Sandbox, Option<StateFile>), Error> {
    let (mut state, mut core) = match &config.state {
        Some(path) => {
            let (state, core) = StateFile::open(path, config.settings)?;
            (Some(state), core)
        }
        None => (None, Sandbox::new(config.settings)),
    };
    core.set_faults(config.rules);
    let now = core.moment(now);
    core.begin(now, config.token.expose_secret(), config.expires_at);
    if let Some(state) = &mut state {
        state.keep(&core)?;
    }
    Ok((core, state))
}
