//! Two hubs that share a PostgreSQL, and a judge between the hubs and the CRM.
//!
//! ```text
//! script ──▶ hub 1 ──┬──▶ judge ──▶ CRM
//!    └─────▶ hub 2 ──┘
//!              │
//!          PostgreSQL
//! ```

use super::runs::{report, seconds};
use super::stage::{Answer, add_branch, free_address, message, messages, post, post_within};
use crate::support::crm;
use crate::support::judge::seen::{Purpose, Seen};
use crate::support::judge::{Judge, rules};
use crate::support::program::{Place, Program, preload};
use callbridge_call::Linkedid;
use callbridge_mapping::journal::figures::uuid;
use callbridge_model::status::Role;
use callbridge_model::{Status, clock};
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{Server, ViolationKind};
use callbridge_testbed::wait::{pass, until};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The branch that the script's calls belong to. Its PBX has the same name.
pub const BRANCH: &str = "city";
/// A leader that has been killed or frozen is replaced within this time.
pub const TAKEOVER: Duration = Duration::from_secs(15);
/// The CRM's window.
pub const WINDOW: Duration = Duration::from_secs(60);
/// How many requests the CRM's window can hold.
pub const LIMIT: usize = 60;
/// The CRM's rate.
pub const FULL_RATE: Rate = Rate {
    requests: 60,
    window: WINDOW,
};
/// A takeover, its silence, and the work after the silence take less time than this.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// If a hub doesn't respond within this time, the test asks again later.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// How long the script pauses between two requests.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Runs,
    Stopped,
    Ended,
}

/// One of the two hubs. `program` is `None` before it's started, and after it has been killed or
/// terminated.
pub struct Hub {
    name: &'static str,
    pub place: Place,
    pub collect: SocketAddr,
    /// The source address of the hub's requests to the CRM.
    address: IpAddr,
    crm: String,
    rate: Rate,
    program: Mutex<Option<Program>>,
    /// The hub's process ID, which is 0 until it's started for the first time.
    id: AtomicU32,
}

impl Hub {
    fn new(name: &'static str, address: IpAddr, url: &str, crm: &str, rate: Rate) -> Self {
        Self {
            name,
            place: Place::in_database(url),
            collect: free_address(),
            address,
            crm: crm.to_owned(),
            rate,
            program: Mutex::default(),
            id: AtomicU32::new(0),
        }
    }

    /// Starts the hub with these environment variables. The `library` comes from
    /// [`source_address`].
    pub fn start(&self, library: &str, variables: &[(&str, &str)]) {
        let port = self.crm.rsplit_once(':').expect("a port").1;
        let address = self.address.to_string();
        let mut all = vec![
            ("LD_PRELOAD", library),
            ("TEST_PORT", port),
            ("TEST_ADDRESS", &address),
        ];
        all.extend(variables);
        let Rate { requests, window } = self.rate;
        let arguments = [
            "run".to_owned(),
            format!("--state={}", self.place.state()),
            format!("--instance={}", self.name),
            format!("--collect={}", self.collect),
            format!("--crm-url={}", self.crm),
            format!("--token-file={}", self.place.path("token")),
            "--country=UZ".to_owned(),
            format!("--rate={requests}/{}s", window.as_secs()),
        ];
        let program = self.place.start(&arguments, &all);
        self.id.store(program.id(), Ordering::Relaxed);
        *self.program() = Some(program);
    }

    fn program(&self) -> MutexGuard<'_, Option<Program>> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn condition(&self) -> Condition {
        let id = self.id.load(Ordering::Relaxed);
        match process_state(Path::new(&format!("/proc/{id}/stat"))) {
            Some('T' | 't') => Condition::Stopped,
            // A process that has ended but hasn't been waited for is a zombie.
            None | Some('Z' | 'X') => Condition::Ended,
            Some(_) => Condition::Runs,
        }
    }

    /// Returns the hub's status, or `None` if it doesn't respond.
    pub async fn status(&self) -> Option<Status> {
        if self.condition() != Condition::Runs {
            return None;
        }
        timeout(ANSWERS_WITHIN, self.place.status()).await.ok()?
    }

    /// Returns the hub's role, or `None` if it doesn't respond or no process is leading.
    pub async fn role(&self) -> Option<Role> {
        let leadership = self.status().await?.leadership?;
        leadership.leader?;
        Some(leadership.role)
    }

    /// Waits until the hub has this role.
    pub async fn wait_for_role(&self, role: Role) {
        let what = format!("{} as {}", self.name, role.word());
        until(&what, async || {
            assert_ne!(self.condition(), Condition::Ended, "{}", self.place.logs());
            self.role().await == Some(role)
        })
        .await;
    }

    /// Posts these calls from the branch once.
    pub async fn post(&self, token: &str, numbers: Range<u32>) -> Answer {
        let body = messages(BRANCH, numbers);
        post(self.collect, "/v1/calls", token, body).await
    }

    /// Returns `true` if the log shows that the hub has started to serve.
    pub fn has_served(&self) -> bool {
        self.place.logs().contains("receiving calls of branches")
    }

    /// Returns `true` if the log shows that another process was leading before this hub.
    pub fn has_taken_over(&self) -> bool {
        self.place.logs().contains("previous=")
    }

    /// Waits until SIGSTOP has reached all of the hub's threads.
    pub async fn wait_until_stopped(&self) {
        let threads = format!("/proc/{}/task", self.id.load(Ordering::Relaxed));
        until("each thread has stopped", async || {
            let mut threads = std::fs::read_dir(&threads).expect("threads").flatten();
            threads.all(|thread| process_state(&thread.path().join("stat")) == Some('T'))
        })
        .await;
    }

    pub fn signal(&self, signal: Signal) {
        self.program()
            .as_ref()
            .expect("a running program")
            .signal(signal);
    }

    /// Sends SIGKILL to the hub, even if the process has already ended.
    pub async fn kill(&self) {
        let program = self.program().take();
        program.expect("a started program").kill().await;
    }

    /// If the hub is running, sends SIGTERM and waits for the process to end.
    pub async fn terminate(&self) {
        if self.condition() == Condition::Runs {
            let program = self.program().take();
            program.expect("a running program").terminate().await;
        }
    }
}

/// Returns the kernel's letter for the state of a process or thread. `stat` is a file in `/proc`.
fn process_state(stat: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(stat).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Compiles the library that sets the source address of a hub's requests to the CRM, and returns
/// its path.
pub fn source_address(place: &Place) -> String {
    preload(place, "source_address.c")
}

/// Two hubs, which haven't been started yet, with their CRM and judge.
pub struct Pair {
    pub crm: Server,
    pub judge: Judge,
    pub hubs: [Hub; 2],
    pub token: String,
    rate: Rate,
}

impl Pair {
    /// Creates the tables and the branch. Each hub connects to the database using one of these
    /// URLs. `rate` applies to both the CRM and the hubs.
    pub async fn new(urls: [&str; 2], rate: Rate) -> Self {
        let mut settings = crm::settings();
        settings.settings.rate = rate;
        let crm = callbridge_sandbox::start(settings).await;
        let crm = crm.expect("a sandbox");
        let judge = Judge::start(crm.addr(), 1).await;
        let hubs = [("hub1", 1, urls[0]), ("hub2", 2, urls[1])].map(|(name, last, url)| {
            let address = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
            Hub::new(name, address, url, &judge.url(), rate)
        });
        let token = add_branch(&hubs[1].place, BRANCH, BRANCH).await;
        Self {
            crm,
            judge,
            hubs,
            token,
            rate,
        }
    }

    /// Starts both hubs, with the first one leading.
    pub async fn start(&self, library: &str) {
        let [first, second] = &self.hubs;
        first.start(library, &[]);
        first.wait_for_role(Role::Leader).await;
        second.start(library, &[]);
        second.wait_for_role(Role::Standby).await;
    }

    /// Posts these calls to the running hubs until one of them has stored the calls.
    pub async fn post(&self, numbers: Range<u32>) {
        let calls = numbers.len();
        self.post_body(&messages(BRANCH, numbers), calls).await;
    }

    /// Posts this many calls from the last minute, since the hub sends recent calls right away if
    /// slots are available.
    pub async fn post_live(&self, calls: u32) {
        let now = clock::now().wall.floor_seconds().get();
        let mut body = String::new();
        for n in 0..calls {
            let mut call = message(BRANCH, n);
            call["startedAt"] = (now - 60).into();
            body.push_str(&format!("{call}\n"));
        }
        self.post_body(&body, calls as usize).await;
    }

    async fn post_body(&self, body: &str, calls: usize) {
        let begin = Instant::now();
        loop {
            for hub in &self.hubs {
                if hub.condition() != Condition::Runs {
                    continue;
                }
                let posted = post_within(ANSWERS_WITHIN, hub.collect, &self.token, body);
                if has_taken(posted.await.as_ref(), calls) {
                    return;
                }
            }
            assert!(begin.elapsed() < PATIENCE, "no hub takes {body}");
            pass(ASK_EVERY).await;
        }
    }

    /// Starts only the first hub.
    pub async fn start_first(&self, library: &str) {
        let hub = &self.hubs[0];
        hub.start(library, &[]);
        until("the hub serves", async || hub.has_served()).await;
    }

    /// Stops the running hubs.
    pub async fn terminate(&self) {
        for hub in &self.hubs {
            hub.terminate().await;
        }
    }

    /// Waits until the CRM has `calls` records.
    pub async fn wait_until_journaled(&self, calls: usize) {
        let all = async {
            while self.crm.journal().len() < calls {
                pass(ASK_EVERY).await;
            }
        };
        let in_time = timeout(PATIENCE, all).await;
        assert!(in_time.is_ok(), "calls are missing\n{}", self.logs());
    }

    /// Returns the hubs' logs.
    pub fn logs(&self) -> String {
        let logs = self.hubs.iter().map(|hub| hub.place.logs());
        logs.collect::<Vec<String>>().join("\n")
    }

    /// Returns a hub's status, and the number of requests whose slots must be shown as used in the
    /// status.
    pub async fn slots_of(&self, hub: usize) -> (usize, Status) {
        let begin = Instant::now();
        loop {
            // Slots may become available while the status is being read.
            let recent = self.requests_within(WINDOW - 2 * ANSWERS_WITHIN);
            // The limit is 0 until the sender has reported its slots for the first time.
            if let Some(status) = self.hubs[hub].status().await
                && status.budget.limit > 0
            {
                return (recent, status);
            }
            assert!(begin.elapsed() < PATIENCE, "no status\n{}", self.logs());
            // The status of a hub that has ended is returned immediately.
            pass(ASK_EVERY).await;
        }
    }

    fn requests_within(&self, time: Duration) -> usize {
        let since = self.judge.elapsed().saturating_sub(time);
        let seen = self.judge.seen();
        seen.iter().filter(|seen| seen.at >= since).count()
    }

    /// Checks the requests and the CRM's records. `calls` is the number of calls posted.
    pub fn findings(&self, calls: u32) -> Findings {
        let seen = self.judge.seen();
        let mut records: BTreeMap<String, usize> = BTreeMap::new();
        for record in self.crm.journal() {
            *records.entry(record.call.uuid.clone()).or_default() += 1;
        }
        let doubled = records.values().map(|count| count - 1).sum();
        let lost = (0..calls).filter(|n| records.remove(&call_uuid(*n)).is_none());
        let lost = lost.count();
        Findings {
            lost,
            doubled,
            invented: records.len(),
            fullest: self.fullest(&seen),
            rate: self.rate,
            pause: shortest_pause(&seen),
            senders: seen
                .iter()
                .map(|seen| seen.from)
                .collect::<BTreeSet<_>>()
                .len(),
            violations: self.violations(),
        }
    }

    /// Returns the highest number of requests in any span as long as the window, when the judge got
    /// them and when the CRM counted them.
    fn fullest(&self, seen: &[Seen]) -> usize {
        let counted = self.crm.admin(|core, _| core.fullest().in_any_span);
        max_requests_in_window(seen, self.rate.window).max(counted as usize)
    }

    fn violations(&self) -> BTreeSet<ViolationKind> {
        let violations = self.crm.violations();
        violations.iter().map(|violation| violation.kind).collect()
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    pub lost: usize,
    pub doubled: usize,
    pub invented: usize,
    /// The highest number of requests in any span as long as the window.
    pub fullest: usize,
    rate: Rate,
    /// Shortest time between a request from one hub and a later one from the other, or `None` if
    /// only one hub sent requests.
    pub pause: Option<Duration>,
    /// Number of hubs that sent requests.
    pub senders: usize,
    /// Violations found by the CRM.
    pub violations: BTreeSet<ViolationKind>,
}

impl Findings {
    /// Returns those of the rules for every test that were broken.
    pub fn broken_rules(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (what, count) in [
            ("lost", self.lost),
            ("doubled", self.doubled),
            ("invented", self.invented),
        ] {
            if count > 0 {
                broken.push(format!("{what}: {count}"));
            }
        }
        if self.fullest > self.rate.requests as usize {
            broken.push(format!(
                "{} requests in {:?}",
                self.fullest, self.rate.window
            ));
        }
        for kind in &self.violations {
            broken.push(format!("{kind:?}"));
        }
        broken
    }

    /// Fails if a rule was broken or two hubs sent requests within the same window.
    pub fn assert_sound(&self) {
        assert_eq!(self.broken_rules(), [""; 0], "{self:?}");
        assert!(!self.has_two_senders(), "{self:?}");
    }

    /// Prints a row of the drill's table. `pause` is the longest time in which a collector got no
    /// call confirmed.
    pub fn report(&self, fault: &str, pause: Duration) {
        report(&format!(
            "{fault:45} lost {}, duplicated {}, at most {} of {} requests in {} s, longest pause \
             of a collector {}\n",
            self.lost,
            self.doubled,
            self.fullest,
            self.rate.requests,
            self.rate.window.as_secs(),
            seconds(Some(&pause)),
        ));
    }

    /// Returns `true` if both hubs sent requests within the same window.
    pub fn has_two_senders(&self) -> bool {
        self.pause.is_some_and(|pause| pause < WINDOW)
    }
}

/// Returns the UUID of the script's n-th call.
pub fn call_uuid(n: u32) -> String {
    let id = Linkedid::new(format!("call.{n}")).expect("an id");
    uuid(BRANCH, &id).to_string()
}

/// Returns `true` if the response says that the hub has stored this many calls.
fn has_taken(answer: Option<&Answer>, calls: usize) -> bool {
    let Some((200, answer)) = answer else {
        return false;
    };
    assert_eq!(answer["refused"], serde_json::json!([]));
    let taken = answer["taken"].as_array();
    taken.is_some_and(|taken| taken.len() == calls)
}

/// Returns the requests in chronological order.
fn requests_in_order(seen: &[Seen]) -> Vec<&Seen> {
    let mut order: Vec<&Seen> = seen.iter().filter(|seen| !seen.method.is_empty()).collect();
    order.sort_by_key(|seen| seen.at);
    order
}

/// Returns the highest number of requests in any span of this length.
fn max_requests_in_window(seen: &[Seen], window: Duration) -> usize {
    rules::fullest(&requests_in_order(seen), window)
}

fn shortest_pause(seen: &[Seen]) -> Option<Duration> {
    let order = requests_in_order(seen);
    let pairs = order.windows(2).filter(|pair| pair[0].from != pair[1].from);
    pairs.map(|pair| pair[1].at - pair[0].at).min()
}

/// Returns the number of submissions so far, including repeated ones.
pub fn submissions(judge: &Judge) -> usize {
    let seen = judge.seen();
    let sent = seen.iter().filter(|seen| seen.purpose() == Purpose::Submit);
    sent.count()
}

#[test]
fn pause_is_shortest_time_between_requests_of_two_hubs() {
    let mut seen = Vec::new();
    for (second, last) in [(0, 1), (5, 1), (70, 2), (71, 2), (180, 1)] {
        seen.push(Seen {
            at: Duration::from_secs(second),
            from: Some(IpAddr::from([127, 0, 0, last])),
            method: "POST".to_owned(),
            ..Seen::default()
        });
    }
    assert_eq!(shortest_pause(&seen[..2]), None);
    assert_eq!(shortest_pause(&seen), Some(Duration::from_secs(65)));
    assert_eq!(max_requests_in_window(&seen, WINDOW), 2);
}
