//! The life of the process, which opens the state, waits as a standby, leads, and stops.

use super::observer::Observer;
use super::standby::{self, Standby};
use super::tasks::Tasks;
use super::{Daemon, open};
use crate::Failure;
use crate::config::Config;
use crate::config::doubts::{self, Doubt};
use crate::config::trunk_problem::{self, TrunkProblem};
use callbridge_admin::state_access;
use callbridge_mapping::people::files::Watched;
use callbridge_model::plain_file::is_open_to_all;
use callbridge_model::status::SourceStatus;
use callbridge_model::{Code, ExitCode, clock};
use callbridge_oauth::pair_file;
use callbridge_ops::metrics::Durations;
use callbridge_ops::systemd;
use callbridge_source::Transport;
use callbridge_spool::{Guard, Handle, PostgresUrl};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// A source without an end (AMI, WebSocket, a queue) is idle after this long without a message.
const LINE_QUIET: Duration = Duration::from_secs(5);
/// How long `--until-idle` waits for lead requests after the last call has been settled.
const ERRANDS_LAST: Duration = Duration::from_secs(60);
/// Interval between checks of whether everything is settled (`--until-idle`).
const IDLE_EVERY: Duration = Duration::from_millis(100);
/// How long the process waits at the end for new tokens to be stored.
const STORED_WITHIN: Duration = Duration::from_secs(10);

/// Runs the daemon until `shutdown` resolves, or with `--until-idle`, until all calls have been
/// settled.
///
/// # Errors
/// Returns an error if the state, a listener, or a task fails. Each failure has its own exit
/// status.
pub(crate) async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
    let doubts = doubts::find(&config);
    let mut shutdown = std::pin::pin!(shutdown);
    callbridge_listener::descriptors::raise();
    let durations = Durations::default();
    let opened = tokio::select! {
        opened = open::state(&config, &durations) => opened,
        () = &mut shutdown => return Ok(()),
    };
    let (spool, guard) = opened?;
    // Stores new tokens received while leading earlier or by an earlier process. A standby does
    // this as well.
    let mut storing = Tasks::new(&watch::channel(false).1);
    let place = config.state_place();
    if pair_file::is_left(&place) {
        storing.start(pair_file::store_left(place));
    }
    loop {
        if let Some(url) = config.state_place().database() {
            let leads = tokio::select! {
                waited = wait_to_lead(&config, url, &spool) => {
                    waited?;
                    true
                }
                () = &mut shutdown => false,
            };
            if !leads {
                close(storing, spool, guard).await;
                return Ok(());
            }
        }
        tokio::select! {
            () = systemd::alive_until(storing.join_all(), "storing new tokens") => {}
            () = &mut shutdown => {
                close(storing, spool, guard).await;
                return Ok(());
            }
        }
        // The components stop when another process leads, even if this process is leading again by
        // then.
        let spool = spool.renewed();
        let started = tokio::select! {
            started = Daemon::start(&config, &spool, &durations, |sources| {
                announce(&config, sources, &doubts);
            }) => started,
            () = &mut shutdown => return Ok(()),
        };
        let mut daemon = match started {
            Err(_) if has_lost_leadership(&config, &spool).await => continue,
            started => started?,
        };
        warn_of_open_secrets(&config);
        systemd::ready();
        let settled = wait_until_settled(Arc::clone(&daemon.observer), &config);
        let mut stops = false;
        let ended = tokio::select! {
            () = &mut shutdown => {
                tracing::info!("stopping");
                stops = true;
                Ok(())
            }
            () = settled, if config.until_idle => {
                stops = true;
                Ok(())
            }
            () = spool.leadership_ended() => Ok(()),
            failed = daemon.wait_for_failure() => Err(failed),
        };
        if !stops && has_lost_leadership(&config, &spool).await {
            storing = daemon.abandon().await;
            continue;
        }
        systemd::report_stopping();
        daemon.stop(guard).await;
        return ended.map_err(part_failure);
    }
}

/// Closes the state once new tokens are stored. If that takes too long, the next start stores them
/// from their file.
async fn close(mut storing: Tasks, spool: Handle, guard: Guard) {
    timeout(STORED_WITHIN, storing.join_all()).await.ok();
    state_access::close(spool, guard).await;
}

/// Returns `true` if this process no longer leads. This takes seconds if the database is frozen.
/// A process whose state is in a folder always leads.
async fn has_lost_leadership(config: &Config, spool: &Handle) -> bool {
    if config.state_place().database().is_none() {
        return false;
    }
    let asking = spool.has_lost_leadership();
    systemd::alive_until(asking, "finding out which process leads").await
}

/// Waits as a standby if another process is leading.
async fn wait_to_lead(config: &Config, url: &PostgresUrl, spool: &Handle) -> Result<(), Failure> {
    if spool.leadership().borrow().is_leading() {
        return Ok(());
    }
    let mut standby = Standby::start(config, url, spool).await?;
    systemd::ready();
    let ended = tokio::select! {
        () = standby::leads(spool) => Ok(()),
        () = spool.closed() => Err(anyhow::anyhow!("the spool has ended")),
        failed = standby.wait_for_failure() => Err(failed),
    };
    standby.stop().await;
    ended.map_err(part_failure)
}

/// Logs the first line, with the version, the state, and the sources, followed by any doubts about
/// the flags and the trunks.
fn announce(config: &Config, sources: &[SourceStatus], doubts: &[Doubt]) {
    let mut pbxes: Vec<&str> = sources.iter().map(|source| source.pbx.as_str()).collect();
    pbxes.dedup();
    let mut named = Vec::new();
    for source in sources {
        named.push(format!("{} {}", source.name(), source.url));
    }
    tracing::info!(
        version = crate::VERSION,
        commit = crate::COMMIT,
        state = %config.state_place(),
        pbx = pbxes.join(", "),
        source = named.join(", "),
        "callbridge runs"
    );
    for Doubt {
        what,
        kind,
        message,
    } in doubts
    {
        tracing::warn!(id = what, reason = message, "{kind}");
    }
    warn_of_trunks(config);
}

/// Logs each trunk that would fail `check`. Bad rows in the lists are logged where the lists are
/// read.
fn warn_of_trunks(config: &Config) {
    let mut lists = Watched::for_trunks(config.rules.every_trunk());
    lists.reload(clock::now().wall);
    for trunk in config.rules.trunks.iter() {
        if let Some(problem) = trunk_problem::find(config, trunk, lists.people()) {
            let TrunkProblem { message, fix } = problem;
            tracing::warn!(
                trunk = trunk.name,
                reason = message,
                fix,
                "trunk cannot log calls"
            );
        }
    }
}

/// Logs each secret file that's readable by every user on this machine.
fn warn_of_open_secrets(config: &Config) {
    for file in config.secret_files() {
        if is_open_to_all(&file) {
            tracing::warn!(
                file = %file.display(),
                "every user of this machine can read a secret file: run `chmod o-r` on it"
            );
        }
    }
}

/// Resolves when every file has been read, every other source has been up and then quiet for 5 s,
/// and the books are settled. Since a dry run doesn't settle anything, its books don't matter.
async fn wait_until_settled(observer: Arc<Observer>, config: &Config) {
    let sources = config.sources.iter();
    let is_file: Vec<bool> = sources
        .map(|source| matches!(source.url.transport, Transport::File { .. }))
        .collect();
    let dry_run = config.dry_run;
    let mut ticks = tokio::time::interval(IDLE_EVERY);
    let mut received = 0;
    let mut received_at = Instant::now();
    let mut settled_at = None;
    loop {
        ticks.tick().await;
        let now = observer.received_on_lines(&is_file);
        if now != Some(received) {
            received = now.unwrap_or(received);
            received_at = Instant::now();
        }
        let quiet = is_file.iter().all(|is_file| *is_file)
            || (now.is_some() && received_at.elapsed() >= LINE_QUIET);
        if !quiet || !observer.files_are_read(&is_file) {
            continue;
        }
        match observer.status().await {
            Ok(status) if status.books.settled() || dry_run => {
                let since = *settled_at.get_or_insert_with(Instant::now);
                if dry_run || since.elapsed() > ERRANDS_LAST || !observer.has_lead_requests().await
                {
                    return;
                }
            }
            Ok(_) => settled_at = None,
            Err(error) => tracing::debug!(%error, "the books cannot be read"),
        }
    }
}

/// Returns the failure for an error in one of the daemon's components. An error in the spool keeps
/// its exit status.
fn part_failure(error: anyhow::Error) -> Failure {
    let of_spool = error.downcast_ref::<callbridge_spool::Error>();
    let code = of_spool.map_or(Code::Configuration, ExitCode::exit_code);
    Failure::wrap(code, error)
}
