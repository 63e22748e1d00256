//! A sandbox at work: the core under its lock, with the clock and the state file.

use super::config::Config;
use super::core::Sandbox;
use super::envelope::{Refusal, Request, Response, Role};
use super::error::Error;
use super::http;
use super::journal::Record;
use super::state_file::StateFile;
use super::webhook;
use callbridge_call::EventTime;
use callbridge_model::secret::ExposeSecret;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::error;

/// Tells the moment; it must not go back.
pub type SandboxClock = Arc<dyn Fn() -> EventTime + Send + Sync>;

/// A clock that starts at the wall clock's moment and then runs with the time since boot, so that
/// a step of the wall clock neither opens nor shuts a window.
pub fn steady_clock() -> SandboxClock {
    let start = callbridge_model::clock::now();
    Arc::new(move || {
        start.wall.plus(
            callbridge_model::clock::now()
                .boot
                .saturating_sub(start.boot),
        )
    })
}

/// The core with its state file.
#[derive(Debug)]
struct PersistedCore {
    core: Sandbox,
    state: Option<StateFile>,
}

impl PersistedCore {
    /// Does something with the core and keeps what it changed; false when it could not be kept.
    fn act<R>(&mut self, act: impl FnOnce(&mut Sandbox) -> R) -> (R, bool) {
        let result = act(&mut self.core);
        let kept = match &mut self.state {
            Some(state) => state.keep(&mut self.core),
            None => Ok(()),
        };
        if let Err(error) = &kept {
            error!(%error, "the sandbox cannot keep its state");
        }
        (result, kept.is_ok())
    }
}

/// A sandbox that others in the process may look into.
#[derive(Clone)]
pub struct SharedSandbox {
    held: Arc<Mutex<PersistedCore>>,
    clock: SandboxClock,
}

impl SharedSandbox {
    /// A core without a state file.
    pub fn new(core: Sandbox, clock: SandboxClock) -> Self {
        Self {
            held: Arc::new(Mutex::new(PersistedCore { core, state: None })),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PersistedCore> {
        // A panic under the lock leaves the core as it was after its last change.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the core at the clock's moment, after what is due by then.
    pub fn admin<R>(&self, act: impl FnOnce(&mut Sandbox, EventTime) -> R) -> R {
        let mut held = self.lock();
        let now = held.core.moment((self.clock)());
        let (result, _) = held.act(|core| {
            core.tick(now);
            act(core, now)
        });
        result
    }

    /// The machine's moment, whatever the core's clock was set to.
    pub(super) fn machine_time(&self) -> EventTime {
        (self.clock)()
    }

    pub(super) fn handle(&self, request: &Request) -> Response {
        let mut held = self.lock();
        // Under the lock, so that moments reach the core in order.
        let now = held.core.moment((self.clock)());
        let (response, kept) = held.act(|core| core.handle(now, request));
        if kept {
            response
        } else {
            Refusal::Status(500).respond()
        }
    }
}

/// A running sandbox.
pub struct Server {
    addr: SocketAddr,
    auth: SocketAddr,
    shared: SharedSandbox,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<Result<(), Error>>>,
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
            let result = task.await;
            ended = ended.and(result.unwrap_or_else(|error| Err(Error::Http(error.into()))));
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
    let setup = webhook::post::Setup {
        ca_file: config.webhook_ca_file.clone(),
        private_targets: config.settings.private_targets,
    };
    let (addr, auth) = (config.listen, config.auth_listen);
    let held = prepare(config, clock())?;
    let (api, addr) = listen(addr).await?;
    let mut listeners = Vec::new();
    let auth = match auth {
        None => {
            listeners.push((api, Role::Whole));
            addr
        }
        Some(auth) => {
            let (own, auth) = listen(auth).await?;
            listeners.extend([(api, Role::Api), (own, Role::Auth)]);
            auth
        }
    };
    let shared = SharedSandbox {
        held: Arc::new(Mutex::new(held)),
        clock,
    };
    let (stop, stopped) = watch::channel(false);
    let serving = |(listener, role)| {
        let mut stopped = stopped.clone();
        let shutdown = async move {
            // An error is the sender's end, which is an order to stop as well.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        tokio::spawn(http::serve(listener, shared.clone(), role, shutdown))
    };
    let mut tasks: Vec<_> = listeners.into_iter().map(serving).collect();
    let dispatching = webhook::post::dispatch(shared.clone(), setup, stop.subscribe());
    tasks.push(tokio::spawn(async move {
        dispatching.await;
        Ok(())
    }));
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

fn prepare(config: Config, now: EventTime) -> Result<PersistedCore, Error> {
    let mut settings = config.settings;
    settings.keep_log = config.state.is_some();
    let mut core = Sandbox::new(settings);
    core.set_faults(config.rules);
    let state = config
        .state
        .map(|path| StateFile::open(&path, &mut core))
        .transpose()?;
    let now = core.moment(now);
    core.begin(now, config.token.expose_secret(), config.expires_at);
    let mut held = PersistedCore { core, state };
    if let Some(state) = &mut held.state {
        state.keep(&mut held.core)?;
    }
    Ok(held)
}
