//! The hubs, their state, and the CRM, under one virtual clock.

use crate::support::simulated_calls::{Dice, call, epoch};
use callbridge_call::EventTime;
use callbridge_crm::{Address, ApiError, ApiResponse, Request, read};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::{Delivery, Sandbox};
use callbridge_sender::core::Core;
use callbridge_sender::pacer::SEND_WITHIN;
use callbridge_sender::plan::{Decision, Known, Launch, Plan, Settings};
use callbridge_spool as spool;
use callbridge_spool::{Error, Finished, Op, Silence, SilenceReason, Store, tables};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const TOKEN: &str = "svc_pat_one";
const NAMES: [&str; 2] = ["hub1", "hub2"];
const WINDOW: Duration = Duration::from_secs(60);
const LIMIT: usize = 60;
/// The client's time limit for one exchange.
const TIME_OUT: Duration = Duration::from_secs(30);
/// A request can arrive this long after its connection was closed.
const STRAGGLER: Duration = Duration::from_secs(5);
/// A free lock is taken within this time.
const TAKEN_WITHIN: u64 = 15_000;
/// The lock is taken away during this time.
pub const UNREST: Duration = Duration::from_secs(3600);
/// Everything has drained after this time.
pub const DRAINED: Duration = Duration::from_secs(24 * 3600);
const CALLS: u32 = 600;
/// The possible findings of the judge.
pub const TWO_SENDERS: &str = "two senders within a window";
pub const TOO_MANY: &str = "61 requests in a window";

/// A rule that is broken, so the judge must find something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    None,
    /// A hub without the lock can still write.
    WritesWithoutLock,
    /// A hub takes over as if no request had been made.
    NoSilence,
}

/// The lock of the state, as the statements of all hubs see it.
struct Lock {
    /// The hub that holds it, or [`NOBODY`].
    holder: AtomicUsize,
    /// Statements of the holder before it loses the lock.
    left: AtomicU64,
    is_ignored: bool,
}

const NOBODY: usize = usize::MAX;

impl Lock {
    /// Counts a statement of this hub. Returns `false` if it has lost the lock.
    fn allow_statement(&self, hub: usize) -> bool {
        if self.holder.load(Ordering::SeqCst) != hub {
            return self.is_ignored;
        }
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            self.holder.store(NOBODY, Ordering::SeqCst);
            return self.is_ignored;
        }
        self.left.store(left - 1, Ordering::SeqCst);
        true
    }
}

/// A process on its machine.
struct Hub {
    store: Store,
    core: Core,
    /// Time since boot at the first moment of the run.
    boot: Duration,
    /// Microseconds by which its wall clock is ahead.
    ahead: i64,
    /// Whether it works as a leader. It learns of a lost lock from its next statement.
    leads: bool,
    /// The number of its leadership. Answers to requests of earlier ones are ignored.
    life: u64,
    /// Whether the leadership has stored its first values.
    has_begun: bool,
    unwritten: VecDeque<Vec<Op>>,
}

/// A request of a hub.
#[derive(Clone, Debug)]
struct Sent {
    number: u64,
    hub: usize,
    life: u64,
    slot: u32,
    request: Request,
    send_by: Duration,
}

#[derive(Debug)]
enum Event {
    /// The first byte of a request leaves, if its slot is not too old.
    Leaves(Sent),
    Arrives(Sent),
    Answered(Sent, ApiResponse),
    /// This hub takes the lock.
    TakesLock(usize),
    Call(Box<Finished>),
}

/// Events that a run met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    /// How often another hub than the last leader took the lock.
    pub takeovers: u32,
    /// How often the last leader took the lock again.
    pub regained: u32,
    /// Requests that were too late for their slots.
    pub too_late: u32,
}

pub struct World {
    truth: EventTime,
    hubs: Vec<Hub>,
    lock: Arc<Lock>,
    /// The hub that led last and stored it.
    last_leader: Option<usize>,
    control: Control,
    pub sandbox: Sandbox,
    dice: Dice,
    events: BTreeMap<(EventTime, u64), Event>,
    numbered: u64,
    untold: VecDeque<Finished>,
    /// Requests without an answer.
    open: BTreeSet<u64>,
    /// Whether a hub will take the free lock.
    is_promised: bool,
    arrivals: Vec<(EventTime, usize)>,
    address: Address,
    /// The judge's findings.
    pub found: BTreeSet<&'static str>,
    pub met: Met,
}

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        ..Settings::default()
    }
}

impl World {
    pub fn new(seed: u64, control: Control) -> Self {
        let mut dice = Dice::new(seed ^ 0x2b0b5);
        let lock = Arc::new(Lock {
            holder: AtomicUsize::new(NOBODY),
            left: AtomicU64::new(0),
            is_ignored: control == Control::WritesWithoutLock,
        });
        let name = format!("hubs-{seed}-{control:?}");
        let mut hubs = Vec::new();
        for at in 0..NAMES.len() {
            let hook = Arc::clone(&lock);
            // No lock is needed to create the tables.
            lock.holder.store(at, Ordering::SeqCst);
            lock.left.store(u64::MAX, Ordering::SeqCst);
            let state = spool::Settings {
                on_statement: Some(Arc::new(move |_| hook.allow_statement(at))),
                ..spool::Settings::default()
            };
            let store = Store::in_shared_memory(&name, state).expect("a store");
            let machine = u64::try_from(at).expect("few");
            let boot = Duration::from_secs(1_000 + 900_000 * machine);
            let ahead = [0, 0, 3_600, -3_600][usize::try_from(dice.below(4)).expect("few")];
            let now = Now {
                wall: epoch(),
                boot,
            };
            hubs.push(Hub {
                store,
                core: Core::start(settings(seed), Known::default(), now).0,
                boot,
                ahead: ahead * 1_000_000,
                leads: false,
                life: 0,
                has_begun: false,
                unwritten: VecDeque::new(),
            });
        }
        lock.holder.store(NOBODY, Ordering::SeqCst);
        let mut crm = sandbox::Settings::default();
        crm.company.leads = sandbox::token::IdSet::parse("4001-4999").expect("ids");
        let mut sandbox = Sandbox::new(crm);
        sandbox.issue_pat(epoch(), TOKEN, None);
        let mut world = Self {
            truth: epoch(),
            hubs,
            lock,
            last_leader: None,
            control,
            sandbox,
            dice,
            events: BTreeMap::new(),
            numbered: 0,
            untold: VecDeque::new(),
            open: BTreeSet::new(),
            is_promised: true,
            arrivals: Vec::new(),
            address: Address::parse("http://127.0.0.1:1").expect("loopback"),
            found: BTreeSet::new(),
            met: Met::default(),
        };
        world.event(Duration::ZERO, Event::TakesLock(0));
        for n in 0..CALLS {
            // First a backlog that uses every slot, then a call every ten seconds.
            let after = u64::from(n.saturating_sub(CALLS / 2)) * 10;
            let lead = 4001 + i64::try_from(world.dice.below(900)).expect("few");
            let is_live = world.dice.chance(50);
            let finished = call(n, epoch().plus(Duration::from_secs(after)), lead, is_live);
            world.event(Duration::from_secs(after), Event::Call(Box::new(finished)));
        }
        world
    }

    fn event(&mut self, after: Duration, event: Event) {
        self.numbered += 1;
        let at = self.truth.plus(after);
        self.events.insert((at, self.numbered), event);
    }

    fn now(&self, hub: usize) -> Now {
        let passed = self.truth.since(epoch());
        let Hub { boot, ahead, .. } = self.hubs[hub];
        Now {
            wall: EventTime::from_micros(self.truth.micros() + ahead),
            boot: boot + passed,
        }
    }

    /// Runs until it is over, or at most this long.
    pub fn run(&mut self, most: Duration, is_over: fn(&Self) -> bool) {
        let end = epoch().plus(most);
        while self.truth < end && !is_over(self) {
            let mut next = end;
            for hub in 0..self.hubs.len() {
                if let Some(wait) = self.turn(hub) {
                    next = next.min(self.truth.plus(wait.max(Duration::from_micros(1))));
                }
                self.promise_lock(hub);
            }
            match self.events.first_entry() {
                Some(entry) if entry.key().0 <= next => {
                    let ((at, _), event) = entry.remove_entry();
                    self.truth = at.max(self.truth);
                    self.happen(event);
                }
                Some(_) | None => self.truth = next,
            }
        }
    }

    /// Plans that the free lock is taken, by the hub that had it or by the other one.
    fn promise_lock(&mut self, last: usize) {
        if self.lock.holder.load(Ordering::SeqCst) != NOBODY || self.is_promised {
            return;
        }
        self.is_promised = true;
        let next = if self.dice.chance(70) { 1 - last } else { last };
        let wait = Duration::from_millis(self.dice.below(TAKEN_WITHIN));
        self.event(wait, Event::TakesLock(next));
    }

    /// Returns the hub that leads and still holds the lock.
    fn leader(&self) -> Option<&Hub> {
        let holder = self.hubs.get(self.lock.holder.load(Ordering::SeqCst));
        holder.filter(|hub| hub.leads)
    }

    pub fn has_drained(&self) -> bool {
        let calls = self.events.values();
        let more = calls
            .filter(|event| matches!(event, Event::Call(_)))
            .count()
            > 0;
        let settled = self.leader().is_some_and(|hub| {
            let books = hub.store.books();
            books.settled() && books.finished == u64::from(CALLS)
        });
        !more && self.untold.is_empty() && settled
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call(finished) => self.untold.push_back(*finished),
            Event::TakesLock(hub) => self.take_lock(hub),
            Event::Leaves(sent) => self.leave(sent),
            Event::Arrives(sent) => self.arrive(&sent),
            Event::Answered(sent, response) => self.record_answer(&sent, response),
        }
    }

    /// Begins a leadership. Everything in memory is read again.
    fn take_lock(&mut self, at: usize) {
        self.is_promised = false;
        self.lock.holder.store(at, Ordering::SeqCst);
        let is_over = self.truth.since(epoch()) >= UNREST;
        let left = if is_over {
            u64::MAX
        } else {
            self.dice.below(20_000)
        };
        self.lock.left.store(left, Ordering::SeqCst);
        if self.last_leader == Some(at) {
            self.met.regained += 1;
        }
        if self.lead(at).is_err() {
            self.hubs[at].leads = false;
        }
    }

    fn lead(&mut self, at: usize) -> Result<(), Error> {
        let now = self.now(at);
        let hub = &mut self.hubs[at];
        hub.life += 1;
        hub.leads = true;
        hub.has_begun = false;
        hub.unwritten.clear();
        hub.store.reload()?;
        let boot_id = format!("boot of {}", NAMES[at]);
        let mut known = Known::read(&hub.store, Some(boot_id))?;
        if let Some(last) = self.last_leader
            && last != at
        {
            self.met.takeovers += 1;
            let why = SilenceReason::TakenOver(NAMES[last].to_owned());
            known.silence = Some(Silence::to_begin(why));
            if self.control == Control::NoSilence {
                known = Known {
                    boot_id: known.boot_id,
                    binding: known.binding,
                    ..Known::default()
                };
            }
        }
        let (core, mut ops) = Core::start(settings(u64::from(self.met.takeovers)), known, now);
        hub.core = core;
        let sending = tables::calls::sending(&hub.store)?;
        ops.extend(hub.core.interrupted(&sending, now));
        ops.extend(hub.core.token(now, Some(TokenFingerprint::of(TOKEN))));
        hub.unwritten.push_back(ops);
        Ok(())
    }

    /// Does all that the hub can do now. Returns the time until its next turn.
    fn turn(&mut self, at: usize) -> Option<Duration> {
        if !self.hubs[at].leads {
            return None;
        }
        let done = self.work(at);
        if self.hubs[at].store.is_lost() {
            self.hubs[at].leads = false;
            return None;
        }
        let until = done.unwrap_or_else(|error| panic!("{}: {error}", NAMES[at]))?;
        Some(until.saturating_sub(self.now(at).boot))
    }

    fn work(&mut self, at: usize) -> Result<Option<Duration>, Error> {
        loop {
            self.write_back(at)?;
            self.take_in(at)?;
            let now = self.now(at);
            let hub = &mut self.hubs[at];
            let ask = hub.core.ask(now);
            let head = tables::work_queue::head(&hub.store, &ask)?;
            match hub.core.next(now, &head) {
                Decision::Send(plan) => self.send(at, plan)?,
                Decision::Settle(call) => {
                    let step = hub.core.settle(now, &call);
                    hub.unwritten
                        .push_back(vec![Op::step(call.row, step, now.wall)]);
                }
                Decision::Commit(ops) => hub.unwritten.push_back(ops),
                Decision::WaitUntil(until) => return Ok(Some(until)),
                Decision::Idle => return Ok(None),
            }
        }
    }

    /// Stores what is not stored yet. Drops a step that no longer fits its row, as the sender does.
    fn write_back(&mut self, at: usize) -> Result<(), Error> {
        let hub = &mut self.hubs[at];
        while let Some(ops) = hub.unwritten.front() {
            match hub.store.write(ops.clone()) {
                Ok(_) => {}
                Err(error) if hub.store.is_lost() => return Err(error),
                Err(_) => {
                    let mut kept = ops.clone();
                    kept.retain(|op| !matches!(op, Op::Step { .. } | Op::FailedCall(_)));
                    assert!(kept.len() < ops.len(), "{ops:?}");
                    hub.unwritten[0] = kept;
                    continue;
                }
            }
            hub.unwritten.pop_front();
            if !std::mem::replace(&mut hub.has_begun, true) {
                self.last_leader = Some(at);
            }
        }
        Ok(())
    }

    /// Stores the calls that have come, if this hub has the lock. A call that is not acknowledged
    /// comes again.
    fn take_in(&mut self, at: usize) -> Result<(), Error> {
        if self.lock.holder.load(Ordering::SeqCst) != at {
            return Ok(());
        }
        while let Some(finished) = self.untold.front() {
            let op = Op::Finish(Box::new(finished.clone()));
            self.hubs[at].store.write(vec![op])?;
            self.untold.pop_front();
        }
        Ok(())
    }

    /// Commits the slot and the step before the request leaves.
    fn send(&mut self, at: usize, plan: Plan) -> Result<(), Error> {
        let now = self.now(at);
        let hub = &mut self.hubs[at];
        let (slot, life) = (plan.slot, hub.life);
        let ask = hub.core.ask(now);
        let inputs = plan.task.work.inputs(&hub.store, &ask)?;
        let Launch { request, ops } = hub.core.launch(now, plan, inputs);
        let Some((request, _)) = request else {
            hub.unwritten.push_back(ops);
            return Ok(());
        };
        if let Err(error) = hub.store.write(ops) {
            hub.core.abort(slot);
            // The other hub has changed the call, though it must not write.
            return match error {
                Error::Refused(..) => Ok(()),
                error => Err(error),
            };
        }
        self.numbered += 1;
        self.open.insert(self.numbered);
        let sent = Sent {
            number: self.numbered,
            hub: at,
            life,
            slot,
            request,
            send_by: now.boot + SEND_WITHIN,
        };
        let stall = if self.dice.chance(5) { 9_000 } else { 50 };
        let stall = Duration::from_millis(self.dice.below(stall));
        self.event(stall, Event::Leaves(sent));
        Ok(())
    }

    fn leave(&mut self, sent: Sent) {
        if self.now(sent.hub).boot > sent.send_by {
            self.met.too_late += 1;
            return self.record_answer(&sent, Err(ApiError::TooLate).into());
        }
        // The latest requests arrive after the client has closed the connection.
        let most = (TIME_OUT + STRAGGLER).as_millis();
        let most = if self.dice.chance(10) { most } else { 40 };
        let way = Duration::from_millis(self.dice.below(u64::try_from(most).expect("short")));
        self.event(
            TIME_OUT,
            Event::Answered(sent.clone(), Err(ApiError::TimedOut).into()),
        );
        self.event(way, Event::Arrives(sent));
    }

    fn arrive(&mut self, sent: &Sent) {
        self.judge_arrival(sent.hub);
        let url = sent.request.url(&self.address);
        let asked = match sent.request.body() {
            Some(body) => sandbox::Request::post(url.path(), &body),
            None => sandbox::Request::get(url.path()),
        };
        let response = self.sandbox.handle(self.truth, &asked.with_token(TOKEN));
        let back = match response.delivery {
            Delivery::Now => Duration::ZERO,
            Delivery::After(time) | Delivery::Slow(time) => time,
            Delivery::Lost => return,
        };
        let answer = read(sent.request.endpoint(), response.status, &response.body);
        self.event(
            back + Duration::from_millis(20),
            Event::Answered(sent.clone(), answer),
        );
    }

    /// Handles the first answer. Ignores answers to requests of an earlier leadership.
    fn record_answer(&mut self, sent: &Sent, response: ApiResponse) {
        let now = self.now(sent.hub);
        let hub = &mut self.hubs[sent.hub];
        if !self.open.remove(&sent.number) || !hub.leads || hub.life != sent.life {
            return;
        }
        if let Some(outcome) = hub.core.judge_answer(now, sent.slot, response) {
            hub.unwritten.push_back(outcome.ops);
        }
    }

    fn judge_arrival(&mut self, hub: usize) {
        let begins = self.truth.minus(WINDOW);
        let mut window = self.arrivals.iter().rev();
        let mut count = 1;
        while let Some((at, other)) = window.next()
            && *at > begins
        {
            count += 1;
            if *other != hub {
                self.found.insert(TWO_SENDERS);
            }
        }
        if count > LIMIT {
            self.found.insert(TOO_MANY);
        }
        self.arrivals.push((self.truth, hub));
    }

    /// Checks that each call is in the journal once, and that the books agree.
    pub fn judge_end(&self) {
        let leader = self.leader().expect("a leader");
        // The judge's own statements never cost the hub its lock.
        self.lock.left.store(u64::MAX, Ordering::SeqCst);
        let books = leader.store.books();
        assert!(books.balance(), "{books:?}");
        assert_eq!(books.journaled, u64::from(CALLS), "{books:?}");
        let wrong = tables::books::recount(&leader.store).expect("readable");
        assert_eq!(wrong, [], "books and rows differ");
        let mut records = BTreeSet::new();
        for record in self.sandbox.records() {
            assert!(records.insert(&record.uuid), "doubled: {}", record.uuid);
        }
        assert_eq!(records.len(), usize::try_from(CALLS).expect("few"), "lost");
    }
}
