//! The daemon behind `run`, which starts all components, connects them, and stops them in order.
//!
//! ```text
//! sources ─▶ ring ─▶ intake ─▶ spool ─▶ sender ─▶ CRM
//!    ▲                  │        │
//!    └──── verdicts ◀───┘        ├─▶ notices ─▶ RabbitMQ
//!                                └─▶ handler, metrics, systemd
//! ```
//! | module | what it contains |
//! |---|---|
//! | [`open`] | opens the state, checks its CRM and PBX, and restores open calls |
//! | [`leadership`] | which process leads a state in PostgreSQL |
//! | [`inputs`] | whether a standby has the leader's token and lists |
//! | [`run`](mod@run) | the life of the process, which waits, leads, and stops |
//! | [`standby`] | a process waiting to become the leader |
//! | [`outward`] | the sender, its token's keeper, and notices for the broker |
//! | [`notify`] | runs a command when a problem starts and ends |
//! | [`observer`] | gathers the status of all components |
//! | [`lists`] | current leads and employees; releases waiting calls when there's news |
//! | [`trunks`] | each trunk's calls |
//! | [`webhooks`] | the listener for the CRM's webhooks |
//! | [`collect`] | a hub's listener for calls from branches |
//! | [`forward`] | a collector's connection to its hub |
//! | [`page`] | the administrator's page |
//! | [`lookup`] | the lookup for dialplans |
//! | [`readers`] | other daemons on this machine that read the same source |
//! | [`tasks`] | groups of running tasks, and their stop signal |
//!
//! The sources are stopped first and wait for their verdicts. After that, the intake commits what
//! it has, and the sender finishes the request in flight. The spool is closed last.

pub(crate) mod collect;
pub(crate) mod forward;
mod inputs;
pub(crate) mod leadership;
pub(crate) mod lists;
pub(crate) mod lookup;
pub(crate) mod notify;
pub(crate) mod observer;
pub(crate) mod open;
pub(crate) mod outward;
pub(crate) mod page;
pub(crate) mod readers;
pub(crate) mod run;
pub(crate) mod secret_files;
mod standby;
pub(crate) mod tasks;
pub(crate) mod trunks;
pub(crate) mod webhooks;

use crate::config::{Config, SourceConfig, TokenFrom};
use crate::{Failure, OrFail as _};
use callbridge_admin::{CommandHandler, socket};
use callbridge_intake::run::{SharedPeople, Shell, ShellViews};
use callbridge_intake::written::Files;
use callbridge_model::status::{SourceStatus, Status, findings};
use callbridge_model::{Code, Heartbeat};
use callbridge_ops::{http, metrics::Durations, systemd};
use callbridge_page::{Sessions, page::Page, server};
use callbridge_source::{self as source, FilesAgain, Limits, RingEnds, Source};
use callbridge_spool::{Error, Guard, Handle, Integrity, StatePlace};
use inputs::InputFiles;
use lists::Lists;
use observer::Observer;
use secret_files::SecretFiles;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tasks::Tasks;
use tokio::{net::TcpListener, sync::watch, time::timeout_at};

/// How long after the signal all components must have ended.
const STOP_WITHIN: Duration = Duration::from_secs(9);
/// How long after the signal the spool, which is closed last, must have been closed.
const END_WITHIN: Duration = Duration::from_millis(9_600);
/// How long the components of a process that no longer leads may take to end.
const ABANDON_WITHIN: Duration = Duration::from_millis(500);
/// A loop that hasn't completed a turn for this long is considered stalled. If systemd's watchdog
/// has a longer timeout, that one applies instead.
const STALLED: Duration = Duration::from_secs(10);
/// Interval between checks of the spool's health.
const SPOOL_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Daemon {
    pub(crate) observer: Arc<Observer>,
    stop: watch::Sender<bool>,
    /// The sources and the intake. On the stop signal, the sources end first, followed by the
    /// intake.
    intake: Tasks,
    /// Components that end on the stop signal.
    tasks: Tasks,
    /// Keeps the token. This ends on the stop signal, but completes any refresh in progress first,
    /// because after that, only the new pair of tokens is valid.
    keeper: Tasks,
}

/// The components that the command handler uses, which are the lists and the files that each source
/// is asked to reread.
type AskedParts = (SharedPeople, BTreeMap<String, FilesAgain>);

impl Daemon {
    /// Starts all components on an open state. Calls `announce` with the sources before the first
    /// one runs.
    ///
    /// # Errors
    /// Returns an error if the state can't be used or a listener can't be opened.
    pub(crate) async fn start(
        config: &Config,
        spool: &Handle,
        durations: &Durations,
        announce: impl FnOnce(&[SourceStatus]),
    ) -> Result<Self, Failure> {
        let durations = durations.clone();
        let opened = open::open(config, spool.clone()).await?;
        let spool = opened.spool;
        let (stop, stopped) = watch::channel(false);
        let views = ShellViews::new(opened.intake.statuses());
        announce(&views.statuses.borrow());
        let sources = views.statuses.subscribe();
        let seen_up = views.seen_up.subscribe();
        let mut intake = Tasks::new(&stopped);
        let mut tasks = Tasks::new(&stopped);
        let mut keeper = Tasks::new(&stopped);
        let others = readers::start(config, &sources.borrow(), &mut tasks);
        let rules = &config.rules;
        let leads = &opened.directory;
        let lists = Lists::load(rules, leads.clone());
        let people: SharedPeople = Arc::new(RwLock::new(Arc::new(lists.people().clone())));
        let live = opened.sources.iter().filter(|source| source.is_live());
        let live = u32::try_from(live.count()).unwrap_or(u32::MAX);
        let (ring_ends, ring) = source::ring(Limits::default(), live);
        let urls = config.sources.iter().map(|flag| flag.url.public());
        let again = opened.sources.iter().map(Source::files_again);
        let files_again = urls.zip(again).collect();
        let counts = opened.sources.iter().map(Source::counts).collect();
        let verdicts = start_sources(opened.sources, &ring_ends, &mut intake);
        let shell = Shell {
            intake: opened.intake,
            ring,
            verdicts,
            counts,
            spool: spool.clone(),
            memory: opened.memory,
            people: Arc::clone(&people),
            views,
            stopped,
            mask_phones: !config.log.phones,
            pulse: Heartbeat::new("the intake"),
            files: Files::from_sources(config.sources.iter().map(|flag| &flag.url)),
        };
        let vital = shell.pulse.vital();
        intake.start_fallible(shell.run());
        let secret_files = SecretFiles::default();
        let started = lookup::start(
            config,
            &people,
            leads,
            &durations,
            &secret_files,
            &mut tasks,
        );
        let lookups = started.await?;
        let shown = lists.shown.subscribe();
        let met = lists.met.subscribe();
        let kept = lists::keep(lists, people.clone(), rules.clone(), spool.clone());
        tasks.start_until_stop(kept);
        let learned =
            lists::keep_learned(leads.clone(), people.clone(), rules.clone(), spool.clone());
        tasks.start_until_stop(learned);
        tasks.start_until_stop(lists::keep_up(spool.clone()));
        tasks.start_until_stop(watch_spool(spool.clone()));
        let mut outward =
            outward::start_sender(config, &spool, &durations, &mut tasks, &mut keeper);
        if config.state_place().database().is_some() {
            let files = InputFiles::from_config(config);
            let sender = outward.sender.clone();
            tasks.start_until_stop(inputs::publish(files, spool.clone(), sender));
        }
        outward.vitals.insert(0, vital);
        if let Some(dead_letters) = &config.dead_letters {
            let queue = outward::queue(dead_letters);
            outward.dead_letter_queue = Some(queue.problem());
            tasks.start(queue.run(spool.clone(), tasks.stop()));
        }
        let webhooks = webhooks::start(config, &spool, &mut tasks).await?;
        let hub = collect::start(config, &spool, &people, &mut tasks).await?;
        let forward = forward::view(config);
        outward
            .vitals
            .extend(forward.as_ref().map(forward::ForwardChannel::vital));
        let observer = Arc::new(Observer {
            spool,
            sources,
            others,
            source_paths: config.sources.iter().map(SourceConfig::path).collect(),
            seen_up,
            outward,
            durations,
            page_sessions: config.page.as_ref().map(|_| Sessions::default()),
            webhooks,
            hub,
            forward: forward.as_ref().map(forward::ForwardChannel::view),
            lookups,
            lists: shown,
            secret_files,
            employees: met,
            forward_hubs: forward::addresses(config),
            trunks: opened.trunks,
            state: config.state_place().flag(),
            notify_problem: watch::Sender::new(None),
            check_command: check_command(config, std::env::args()),
            token_place: config.crm.as_ref().map(|crm| {
                outward::token_place(crm.token.as_ref(), outward::directory_of).to_string()
            }),
        });
        if let Some(forward) = forward {
            forward::start(config, forward, &observer, &mut tasks);
        }
        let daemon = Self {
            observer,
            stop,
            intake,
            tasks,
            keeper,
        };
        let asked = (people, files_again);
        daemon.listen(config, asked, opened.assembling).await
    }

    /// Starts the command handler, the HTTP listener, and the notifications to systemd.
    async fn listen(
        mut self,
        config: &Config,
        (people, files_again): AskedParts,
        assembling: callbridge_intake::Settings,
    ) -> Result<Self, Failure> {
        let tasks = &mut self.tasks;
        let observer = &self.observer;
        let shown = match &config.page {
            Some(page) => Some(page::open(page, config, &observer.secret_files, tasks).await?),
            None => None,
        };
        let asked = Arc::clone(observer);
        let crm = config.crm.as_ref();
        let handler = Arc::new(CommandHandler {
            spool: observer.spool.clone(),
            rules: config.rules.clone(),
            people,
            asking: crm.map(|_| observer.outward.asking.clone()),
            zone: open::zone_name(config),
            field_list_wrapper: crm.and_then(|crm| crm.field_list_wrapper.clone()),
            status: Box::new(move || {
                let observer = Arc::clone(&asked);
                Box::pin(async move { observer.status().await })
            }),
            page: shown.as_ref().map(|(_, door, _)| Arc::clone(door)),
            branches: observer.hub.as_ref().map(|hub| Arc::clone(&hub.branches)),
            files_again,
        });
        tasks.start(Arc::clone(&handler).read_newer_again());
        if let Some((listener, _, settings)) = shown {
            let backend = Arc::new(page::backend::DaemonBackend {
                observer: Arc::clone(observer),
                handler: Arc::clone(&handler),
                intake: assembling,
                zone: settings.zone.clone(),
                fields: open::field_names(config),
                week: Mutex::default(),
                changes: watch::Sender::default(),
            });
            tasks.start_until_stop(Arc::clone(&backend).watch_changes());
            let sessions = observer.page_sessions.clone().unwrap_or_default();
            let page = Page::new(settings, backend, sessions);
            tasks.start(server::serve(listener, page, tasks.stop()));
        }
        let folder = config.state_place().socket_folder().to_path_buf();
        let what = format_args!("cannot listen for commands in {}", folder.display());
        let listener = socket::listen(&folder).or_fail_at(Code::CannotWrite, what)?;
        tasks.start(socket::keep(folder, listener, handler, tasks.stop()));
        if let Some(addr) = config.listen {
            let (listener, address) = listen_at("--listen", addr).await?;
            tracing::info!(%address, "health and metrics");
            tasks.start(http::serve(listener, Arc::clone(observer), tasks.stop()));
        }
        if let Some(settings) = config.notify.clone() {
            let spool = observer.spool.clone();
            tasks.start_until_stop(notify::keep(settings, Arc::clone(observer), spool));
        }
        tasks.start_until_stop(keep_alive(Arc::clone(observer)));
        Ok(self)
    }

    /// Resolves when any of the daemon's components has failed.
    pub(crate) async fn wait_for_failure(&mut self) -> anyhow::Error {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.intake.next_ended() => ended,
                Some(ended) = self.tasks.next_ended() => ended,
                else => return anyhow::anyhow!("every part has ended"),
            };
            if let Err(error) = ended {
                return error;
            }
        }
    }

    /// Ends all components, because this process no longer leads, so they can't store anything.
    /// Unacknowledged messages will be redelivered to the sources. Returns the token's keeper,
    /// which may still have to store a new pair of tokens.
    async fn abandon(mut self) -> Tasks {
        self.stop.send_replace(true);
        let ends = async {
            self.tasks.join_all().await;
            self.intake.join_all().await;
        };
        if tokio::time::timeout(ABANDON_WITHIN, ends).await.is_err() {
            self.intake.shutdown().await;
            self.tasks.shutdown().await;
        }
        self.keeper
    }

    /// Stops everything in order: the sources, the intake, the sender and listeners, and the spool.
    /// A component that hangs is abandoned after 10 s, even if it's the disk that hangs, in which
    /// case the state is that of the last commit.
    pub(crate) async fn stop(mut self, guard: Guard) {
        let begun = tokio::time::Instant::now();
        self.stop.send_replace(true);
        let ends = async {
            self.intake.join_all().await;
            self.tasks.join_all().await;
            self.keeper.join_all().await;
        };
        if timeout_at(begun + STOP_WITHIN, ends).await.is_err() {
            tracing::warn!("some parts did not stop in time; committed data is kept");
            self.intake.abort();
            self.tasks.abort();
            self.keeper.abort();
        }
        let end = begun + END_WITHIN;
        let books = timeout_at(end, self.observer.status()).await;
        let closing = tokio::task::spawn_blocking(move || guard.close());
        match timeout_at(end, closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the spool was not closed properly"),
            Err(_) => {
                tracing::error!("the disk does not respond: ended without closing the state")
            }
        }
        if let Ok(Ok(Status { books, .. })) = books {
            tracing::info!(
                finished = books.finished,
                journaled = books.journaled,
                queued = books.ready + books.sending + books.submitted,
                dead = books.dead,
                waiting = books.waiting,
                "stopped"
            );
        }
    }
}

fn start_sources(
    sources: Vec<Source>,
    ring_ends: &RingEnds,
    tasks: &mut Tasks,
) -> Vec<source::Verdicts> {
    let mut ways_back = Vec::new();
    for source in sources {
        let (verdicts, reader) = source::verdicts();
        ways_back.push(verdicts);
        tasks.start(source.run(ring_ends.open(), reader, tasks.stop()));
    }
    ways_back
}

/// Returns the `check` command with the arguments of `run`, which don't contain any secrets. Paths
/// that systemd passes to a service are added as flags, because they aren't available in a user's
/// shell.
fn check_command(config: &Config, arguments: impl Iterator<Item = String>) -> Option<String> {
    let mut given = arguments.skip(1).skip_while(|argument| argument != "run");
    given.next()?;
    let mut flags: Vec<String> = given.map(|flag| findings::quoted(&flag)).collect();
    let folder = config.state.as_ref().and_then(StatePlace::folder);
    let state =
        outward::directory_of("STATE_DIRECTORY").filter(|dir| folder == Some(dir.as_path()));
    let token_file = match config.crm.as_ref().and_then(|crm| crm.token.as_ref()) {
        Some(TokenFrom::Place(place)) => place.file().map(Path::to_path_buf),
        _ => None,
    };
    let credentials = outward::directory_of("CREDENTIALS_DIRECTORY");
    let token = token_file.filter(|file| credentials.is_some_and(|dir| file.starts_with(dir)));
    for (flag, path) in [("--state", state), ("--token-file", token)] {
        let path = path.map(|path| findings::quoted(&path.display().to_string()));
        flags.extend(path.map(|path| format!("{flag}={path}")));
    }
    Some(format!("callbridge check {}", flags.join(" ")))
}

/// Checks the state every second, and logs any findings about its file. Returns an error if the
/// state directory has disappeared, the file is damaged, or the spool's thread has ended, since no
/// call can be kept after that.
async fn watch_spool(spool: Handle) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(SPOOL_EVERY);
    let mut reported = Integrity::NotNeeded;
    loop {
        tokio::select! {
            () = spool.closed() => anyhow::bail!("the spool has ended"),
            _ = ticks.tick() => {}
        }
        // An empty write checks that the directory is in place and whether the disk can be written
        // to again.
        if let Err(error @ Error::Gone(..)) = spool.write(Vec::new()).await {
            return Err(error.into());
        }
        let integrity = spool.health().integrity;
        if integrity == reported {
            continue;
        }
        match &integrity {
            Integrity::NotNeeded => {}
            Integrity::Checking => {
                tracing::info!(
                    "the last stop was not clean, or the state was changed: checking the state"
                )
            }
            Integrity::Sound => tracing::info!("checked the state and found no damage"),
            // Data written to a damaged file may be lost, and may damage more of it.
            Integrity::Damaged(error) => return Err(error.clone().into()),
            Integrity::Unknown(error) => {
                tracing::warn!(%error, "the state could not be checked");
            }
        }
        reported = integrity;
    }
}

/// Listens on this flag's address, and returns the address with the port chosen by the system.
async fn listen_at(flag: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let bound = TcpListener::bind(address).await;
    let what = format_args!("{flag} {address}: cannot listen");
    let listener = bound.or_fail_at(Code::Usage, what)?;
    let address = listener.local_addr().unwrap_or(address);
    Ok((listener, address))
}

/// Notifies systemd's watchdog as long as the spool responds and every loop is running. If a loop
/// stalls, its name is logged and the notifications stop, so that the watchdog can restart the
/// service.
async fn keep_alive(observer: Arc<Observer>) -> anyhow::Result<()> {
    let mut tick = tokio::time::interval(systemd::interval());
    let longest = systemd::watchdog().map_or(STALLED, |watchdog| watchdog.max(STALLED));
    let mut reported = Vec::new();
    loop {
        tick.tick().await;
        let stalled = observer.stalled(longest);
        if stalled != reported {
            let names = stalled.join(", ");
            if stalled.is_empty() {
                tracing::info!("every part responds again");
            } else {
                tracing::error!(stalled = %names, "a part does not respond; the watchdog of \
                                                   systemd is not notified");
                systemd::report_stalled(&names);
            }
            reported.clone_from(&stalled);
        }
        // If the spool doesn't respond, this blocks, so the watchdog isn't notified either.
        if let (Ok(status), true) = (observer.status().await, stalled.is_empty()) {
            systemd::alive(&status);
        }
    }
}
