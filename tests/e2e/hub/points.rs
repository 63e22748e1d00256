//! Tests that each call is logged once if the leader is killed or frozen before its n-th SQL
//! statement. Either the other hub takes over, or the killed one is restarted.
//!
//! Each n is a point. By default, only some of the points are tried. `tests/run hub --points` tries
//! each one until all calls are logged before the n-th statement. Both print a table.

use super::pair::{
    Condition, FULL_RATE, Findings, PATIENCE, Pair, TAKEOVER, WINDOW, source_address, submissions,
};
use super::runs::{is_full_run, report, seconds};
use crate::support::program::Place;
use callbridge_model::status::Role;
use callbridge_testbed::commit_proxy::CommitProxy;
use callbridge_testbed::postgres::{Durability, Postgres};
use callbridge_testbed::wait::{pass, until, until_within};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use rustix::process::Signal;
use std::cell::{Cell, OnceCell};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{JoinSet, LocalSet, spawn_blocking};

/// Number of calls posted.
const CALLS: u32 = 6;
/// Number of posts, among which the calls are evenly distributed.
const BATCHES: u32 = 3;
/// Number of points at which hubs may be working at the same time. Points with silent hubs don't
/// count.
const BUSY_MAX: usize = 4;
/// Number of points for the same fault that may run at the same time.
const RUNS_MAX: usize = 40;
/// Pause before each check of the tables, because a check starts a process, and up to 160 points
/// check at the same time.
const CHECK_PAUSE: Duration = Duration::from_secs(2);
/// If a leader is frozen for this long, PostgreSQL may end its session, because it only waits this
/// long for a transaction's next statement.
const SESSION_ENDS_AFTER: Duration = Duration::from_secs(5);
/// A full run reports its progress each time this many points for a fault have finished.
const PROGRESS_EVERY: u64 = 50;
/// PostgreSQL settings that are sufficient for [`RUNS_MAX`] points per fault.
const SERVER_SETTINGS: &str = "max_connections = 2000\nshared_buffers = 256MB\n";

/// What happens to the leader before the n-th statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// `kill -9`. There's only one hub, which is restarted.
    Restarted,
    /// `kill -9`, after which the other hub takes over.
    Killed,
    /// SIGSTOP, and SIGCONT after this many seconds.
    Frozen(u64),
}

impl Fault {
    const OF_PAIR: [Self; 4] = [
        Self::Killed,
        Self::Frozen(1),
        Self::Frozen(12),
        Self::Frozen(60),
    ];

    fn plan(self, n: u64) -> String {
        match self {
            Self::Killed | Self::Restarted => format!("{n}:kill"),
            Self::Frozen(_) => format!("{n}:stop"),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Restarted => "killed, restarted".to_owned(),
            Self::Killed => "killed".to_owned(),
            Self::Frozen(seconds) => format!("frozen for {seconds} s"),
        }
    }

    /// Returns `true` if the leader loses its session, so that the other hub must lead.
    const fn ends_session(self) -> bool {
        match self {
            Self::Restarted => false,
            Self::Killed => true,
            Self::Frozen(seconds) => seconds > 10,
        }
    }
}

/// What all points use.
struct Stage {
    server: Postgres,
    library: String,
    /// The library's directory.
    _place: Place,
    busy: Semaphore,
}

impl Stage {
    fn start() -> Arc<Self> {
        callbridge_listener::descriptors::raise();
        let place = Place::new();
        Arc::new(Self {
            server: Postgres::start(Durability::Synced, SERVER_SETTINGS),
            library: source_address(&place),
            _place: place,
            busy: Semaphore::new(BUSY_MAX),
        })
    }

    /// Returns the number of statements in a run without any faults.
    async fn count_statements(self: &Arc<Self>) -> u64 {
        let place = Place::new();
        let file = place.path("count");
        let plan = format!("{file}:count");
        let outcome = Arc::clone(self).run_plan(Fault::Restarted, plan).await;
        assert!(!outcome.met);
        let count = std::fs::read_to_string(file).expect("a file");
        count.parse().expect("a number")
    }

    async fn run(self: Arc<Self>, fault: Fault, n: u64) -> Outcome {
        self.run_plan(fault, fault.plan(n)).await
    }

    async fn run_plan(self: Arc<Self>, fault: Fault, plan: String) -> Outcome {
        let permit = self.busy.acquire().await.expect("an open semaphore");
        let point = Point::new(Arc::clone(&self), fault, plan).await;
        point.run(permit).await
    }
}

/// A point's result.
#[derive(Debug)]
struct Outcome {
    /// `false` if all calls had been logged before the n-th statement.
    met: bool,
    /// Time from the fault until the other hub was leading.
    takeover: Option<Duration>,
    findings: Findings,
}

/// Two hubs, their tables, and what happens to the first hub.
struct Point {
    stage: Arc<Stage>,
    fault: Fault,
    plan: String,
    schema: String,
    /// The proxy between the first hub and PostgreSQL.
    proxy: CommitProxy,
    /// Number of commits by the first hub when it was resumed while the second one was leading.
    commits: OnceCell<u64>,
    /// When the first hub was last seen running before its fault.
    ran_until: Cell<Instant>,
    /// The first hub was frozen for no longer than this.
    frozen: Cell<Duration>,
    pair: Pair,
}

impl Point {
    async fn new(stage: Arc<Stage>, fault: Fault, plan: String) -> Self {
        let schema = Postgres::new_schema();
        let proxy = CommitProxy::start(stage.server.port()).await;
        let through = stage.server.url_at(proxy.port(), &schema);
        let direct = stage.server.url(&schema);
        let pair = Pair::new([&through, &direct], FULL_RATE).await;
        Self {
            stage,
            fault,
            plan,
            schema,
            proxy,
            commits: OnceCell::new(),
            ran_until: Cell::new(Instant::now()),
            frozen: Cell::new(Duration::ZERO),
            pair,
        }
    }

    async fn run(self, permit: SemaphorePermit<'_>) -> Outcome {
        let mut permit = Some(permit);
        self.start().await;
        let work = async {
            let met = self.wait_for_fault().await;
            if !met {
                return (met, None);
            }
            if self.fault.ends_session() {
                // From now on, the hubs mostly wait.
                permit.take();
            }
            (met, self.recover().await)
        };
        let ((met, takeover), ()) = tokio::join!(work, self.post_calls());
        until_within(PATIENCE, "the end", async || self.is_done().await).await;
        drop(permit);
        // A hub that has been spared so far may still reach its statement, so its end isn't
        // checked.
        if met {
            let leader = self.leader_at_end().await;
            self.check_end(leader).await;
        }
        Outcome {
            met,
            takeover,
            findings: self.pair.findings(CALLS),
        }
    }

    fn logs(&self) -> String {
        format!("{:?} {}\n{}", self.fault, self.plan, self.pair.logs())
    }

    /// Starts the first hub with the fault. Unless the fault is a restart, also starts the second
    /// hub, and waits until it's a standby.
    async fn start(&self) {
        let [first, second] = &self.pair.hubs;
        first.start(&self.stage.library, &[("FAULT_STATEMENT", &self.plan)]);
        until("the first hub leads", async || {
            first.condition() != Condition::Runs || first.has_served()
        })
        .await;
        if self.fault == Fault::Restarted {
            return;
        }
        second.start(&self.stage.library, &[]);
        until("the second hub waits", async || {
            first.condition() != Condition::Runs || second.role().await == Some(Role::Standby)
        })
        .await;
    }

    /// Posts all calls in batches. After each batch, waits until a call has been sent, or until the
    /// first hub has been stopped or has ended.
    async fn post_calls(&self) {
        let size = CALLS / BATCHES;
        for batch in 0..BATCHES {
            let sent = submissions(&self.pair.judge);
            self.pair.post(batch * size..(batch + 1) * size).await;
            until_within(PATIENCE, "a call is sent", async || {
                let is_disturbed = self.pair.hubs[0].condition() != Condition::Runs;
                is_disturbed || submissions(&self.pair.judge) > sent
            })
            .await;
        }
    }

    /// Waits until the first hub has been stopped or has ended, in which case it returns `true`, or
    /// until all calls have been logged.
    async fn wait_for_fault(&self) -> bool {
        let mut met = false;
        until_within(PATIENCE, "the fault", async || {
            let checked_at = Instant::now();
            met = self.pair.hubs[0].condition() != Condition::Runs;
            if met {
                return true;
            }
            self.ran_until.set(checked_at);
            self.is_done().await
        })
        .await;
        met
    }

    /// Returns `true` if all calls have been journaled. This reads the tables, because the hub
    /// would need statements for a status report as well.
    async fn is_done(&self) -> bool {
        if self.pair.crm.journal().len() < CALLS as usize {
            return false;
        }
        pass(CHECK_PAUSE).await;
        let count = format!(
            "SELECT count(*) FROM {}.calls WHERE state = 'journaled'",
            self.schema
        );
        // The other points are running on this thread too.
        let stage = Arc::clone(&self.stage);
        let counting = spawn_blocking(move || stage.server.sql(&count));
        counting.await.expect("a count") == CALLS.to_string()
    }

    /// Restarts or resumes the first hub after the fault, and returns how long the takeover took.
    async fn recover(&self) -> Option<Duration> {
        let [first, second] = &self.pair.hubs;
        let begin = Instant::now();
        if self.fault == Fault::Restarted {
            first.kill().await;
            first.start(&self.stage.library, &[]);
            return None;
        }
        let mut takeover = None;
        if self.fault.ends_session() {
            until("the second hub leads", async || second.has_served()).await;
            let took = begin.elapsed();
            assert!(took < TAKEOVER, "{took:?}\n{}", self.logs());
            takeover = Some(took);
        }
        if let Fault::Frozen(seconds) = self.fault {
            pass(Duration::from_secs(seconds).saturating_sub(begin.elapsed())).await;
            if takeover.is_some() {
                self.commits.get_or_init(|| self.proxy.commits());
            }
            first.signal(Signal::CONT);
            self.frozen.set(self.ran_until.get().elapsed());
        }
        takeover
    }

    /// Returns the index of the hub that's leading after the fault.
    async fn leader_at_end(&self) -> usize {
        if self.fault.ends_session() {
            return 1;
        }
        if self.frozen.get() < SESSION_ENDS_AFTER {
            return 0;
        }
        // On a busy machine, a one-second pause may take so long that the other hub takes over.
        let mut leader = 0;
        until("one hub leads", async || {
            let first = self.pair.hubs[0].role().await;
            let second = self.pair.hubs[1].role().await;
            leader = usize::from(second == Some(Role::Leader));
            matches!(
                (first, second),
                (Some(Role::Leader), Some(Role::Standby))
                    | (Some(Role::Standby), Some(Role::Leader))
            )
        })
        .await;
        leader
    }

    /// Checks the hubs at the end, and terminates them. `leader` is the index of the leading hub.
    async fn check_end(&self, leader: usize) {
        let [first, second] = &self.pair.hubs;
        let (recent, status) = self.pair.slots_of(leader).await;
        let used = status.budget.used as usize;
        assert!(used >= recent, "{used} of {recent} slots\n{}", self.logs());
        assert_eq!(status.books.finished, u64::from(CALLS), "{}", self.logs());
        assert!(status.books.balance(), "{:?}", status.books);
        if self.fault == Fault::Restarted {
            let logs = self.logs();
            let waited = logs.contains("no longer paused");
            assert_eq!(waited, logs.contains("paused reason=takeover"), "{logs}");
        } else if leader == 0 {
            assert!(!first.has_taken_over(), "{}", self.logs());
        } else if self.fault != Fault::Killed || second.place.logs().contains("hub1 leads") {
            // Otherwise, the first hub ended before the second one started.
            let pause = self.pair.findings(CALLS).pause;
            assert!(pause.is_none_or(|pause| pause >= WINDOW), "{pause:?}");
        }
        if matches!(self.fault, Fault::Frozen(_)) {
            let roles = [Role::Leader, Role::Standby];
            first.wait_for_role(roles[leader]).await;
        }
        if let Some(commits) = self.commits.get() {
            let late_commits = self.proxy.commits() - commits;
            assert_eq!(late_commits, 0, "commits without the lock\n{}", self.logs());
        }
        self.pair.terminate().await;
        let drop_schema = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.stage.server.sql(&drop_schema);
    }
}

/// A row in the printed table, which contains the outcomes of all points for one fault.
#[derive(Default)]
struct Summary {
    points: u64,
    lost: usize,
    doubled: usize,
    fullest: usize,
    takeovers: Vec<Duration>,
    errors: Vec<String>,
}

impl Summary {
    fn add(&mut self, n: u64, outcome: &Outcome) {
        let findings = &outcome.findings;
        self.points += u64::from(outcome.met);
        self.lost += findings.lost;
        self.doubled += findings.doubled;
        self.fullest = self.fullest.max(findings.fullest);
        self.takeovers.extend(outcome.takeover);
        for rule in findings.broken_rules() {
            self.errors.push(format!("{n}: {rule}"));
        }
    }

    fn line(&mut self, fault: Fault) -> String {
        self.takeovers.sort();
        let median = self.takeovers.get(self.takeovers.len() / 2);
        format!(
            "{:18} {:6} points, lost {}, doubled {}, {:2} requests in 60 s, takeover {} (worst \
             {})\n",
            fault.name(),
            self.points,
            self.lost,
            self.doubled,
            self.fullest,
            seconds(median),
            seconds(self.takeovers.last()),
        )
    }
}

/// Returns the distance between two points, which is N in `tests/run hub --points N`, and otherwise
/// 1.
fn step() -> u64 {
    let value = std::env::var("CALLBRIDGE_HUB_STEP");
    value.map_or(1, |value| value.parse().expect("a number of statements"))
}

/// Runs the chosen points for this fault, and returns the errors. `tests/run hub --points` runs all
/// of them. `statements` is the number of statements in a run without any faults.
async fn run_points(
    stage: &Arc<Stage>,
    fault: Fault,
    statements: u64,
    chosen: &[u64],
) -> Vec<String> {
    let mut summary = Summary::default();
    let mut runs = JoinSet::new();
    let mut next = 1;
    let mut ended: u64 = 0;
    let mut is_end_reached = false;
    let mut chosen = chosen.iter().copied();
    loop {
        loop {
            // Most runs end after about this many statements, so any further points are mostly
            // spared.
            let runs_max = if next > statements {
                BUSY_MAX
            } else {
                RUNS_MAX
            };
            if is_end_reached || runs.len() >= runs_max {
                break;
            }
            let n = if is_full_run() {
                Some(next)
            } else {
                chosen.next()
            };
            let Some(n) = n else {
                break;
            };
            next = n + step();
            let stage = Arc::clone(stage);
            runs.spawn_local(async move {
                let outcome = AssertUnwindSafe(stage.run(fault, n)).catch_unwind();
                (n, outcome.await)
            });
        }
        let Some(run) = runs.join_next().await else {
            break;
        };
        let (n, outcome) = run.expect("no panic");
        ended += 1;
        if is_full_run() && ended.is_multiple_of(PROGRESS_EVERY) {
            let all = statements / step();
            report(&format!(
                "{}: {ended} of about {all} points\n",
                fault.name()
            ));
        }
        match outcome {
            Ok(outcome) => {
                assert!(outcome.met || is_full_run(), "{fault:?} {n} was never met");
                is_end_reached |= !outcome.met;
                summary.add(n, &outcome);
            }
            // The panic hook has printed the reason.
            Err(_) => summary.errors.push(format!("{n}: the run failed")),
        }
    }
    report(&summary.line(fault));
    let errors = summary.errors.into_iter();
    errors.map(|error| format!("{fault:?} {error}")).collect()
}

/// Returns the points at these percentages of a run's statements.
fn points_at(statements: u64, percentages: &[u64]) -> Vec<u64> {
    let points = percentages.iter();
    let points = points.map(|percentage| statements * percentage / 100);
    points.collect()
}

/// Promise: Two hubs lose no call and log none twice, whenever the leader is killed or frozen.
#[tokio::test(flavor = "multi_thread")]
async fn killed_or_frozen_leader_is_replaced_and_loses_no_call() {
    let stage = Stage::start();
    let count = stage.count_statements().await;
    let chosen = [
        points_at(count, &[30, 55]),
        points_at(count, &[35, 60]),
        points_at(count, &[5, 10, 25, 50]),
        points_at(count, &[10, 40, 65]),
    ];
    report(&format!("{count} statements\n"));
    let all = Fault::OF_PAIR.iter().zip(&chosen);
    let runs = all.map(|(fault, chosen)| run_points(&stage, *fault, count, chosen));
    let errors = LocalSet::new().run_until(join_all(runs)).await.concat();
    assert_eq!(errors, [""; 0]);
}

/// Promise: A hub that was killed waits at its next start until its requests no longer count.
#[tokio::test(flavor = "multi_thread")]
async fn killed_hub_started_again_waits_and_sends_each_call_once() {
    let stage = Stage::start();
    let count = stage.count_statements().await;
    let chosen = points_at(count, &[2, 10, 20, 30, 40, 50, 60, 70]);
    let runs = run_points(&stage, Fault::Restarted, count, &chosen);
    let errors = LocalSet::new().run_until(runs).await;
    assert_eq!(errors, [""; 0]);
}
