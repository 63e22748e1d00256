//! A PBX's finished calls, the spool, the sender, a network, and the CRM, under one virtual clock.
//!
//! The loop around the core is the same as in `callbridge run`: `turn`, `send`, `land`, and
//! `write_back` correspond to the sender's shell. Random numbers provide the time and the faults.

use crate::simulation::disk::Disk;
use crate::simulation::hooks::Hooks;
use crate::simulation::log::Log;
use crate::simulation::paths::{Hardship, Met, Path};
use crate::simulation::strikes::{Moment, Trap};
use crate::simulation::way::{Event, Network, PendingRequest};
use crate::simulation::witness::OutcomeSource;
use crate::support::simulated_calls::{self, Dice};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{Address, ApiResponse};
use callbridge_model::status::Pause;
use callbridge_model::{Now, TokenFingerprint};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::{Sandbox, ViolationKind};
use callbridge_sender::core::Core;
use callbridge_sender::pacer::SEND_WITHIN;
use callbridge_sender::plan::{Decision, Known, Launch, Plan, Settings};
use callbridge_sender::queue::Work;
use callbridge_sender::status::SenderStatus;
use callbridge_spool::{Finished, Op, State, Step, WorkQueue, tables};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time until the spool is tried again after a failed write.
const SPOOL_AGAIN: Duration = Duration::from_secs(1);

/// The longest time between two turns of the shell, even if the core asks for none.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// After this many turns without any time passing, the run is stuck.
const TURNS_MAX: u32 = 10_000;

/// The state of the whole simulation.
pub struct World {
    /// The clock of callbridge's machine.
    pub now: Now,
    /// The clock of the CRM.
    pub truth: EventTime,
    pub disk: Disk,
    pub core: Core,
    pub sandbox: Sandbox,
    pub network: Network,
    /// The content of the token file, or an empty text without a file.
    pub token: String,
    /// The previous token and its expiry, after a refresh.
    pub older: Option<(String, EpochSeconds)>,
    /// When each request left, and its kind.
    pub sent: Vec<(EventTime, &'static str)>,
    pub met: Met,
    pub log: Log,
    pub witness: OutcomeSource,
    pub dice: Dice,
    /// The failure at the next moment of its kind.
    pub trap: Option<Trap>,
    pub settings: Settings,
    /// The id of the current boot, or `None` if the kernel has no boot id.
    pub boot_id: Option<String>,
    pub(crate) boots: u32,
    /// The tokens that the sender uses: the current one and the previous one.
    pub(crate) secrets: Vec<String>,
    pub(crate) numbered: u64,
    pub(crate) events: BTreeMap<(EventTime, u64), Event>,
    pub(crate) waits: BTreeMap<u64, PendingRequest>,
    pub(crate) landed: VecDeque<(u64, ApiResponse)>,
    pub(crate) unwritten: VecDeque<Vec<Op>>,
    pub(crate) trouble: bool,
    /// Calls that the intake could not store yet. Their sources will report them again.
    pub(crate) untold: VecDeque<Finished>,
    pub(crate) address: Address,
    pub(crate) lives: u32,
    /// Webhooks, if the CRM sends any.
    pub hooks: Option<Hooks>,
}

impl World {
    /// Creates an empty state and a CRM with one token.
    pub fn new(seed: u64, settings: Settings, sandbox: sandbox::Settings) -> Self {
        let now = Now {
            wall: simulated_calls::epoch(),
            boot: Duration::from_secs(1000),
        };
        let witness = OutcomeSource::new(&sandbox);
        let mut sandbox = Sandbox::new(sandbox);
        let token = "svc_pat_one".to_owned();
        sandbox.issue_pat(now.wall, &token, None);
        let (core, _) = Core::start(settings.clone(), Known::default(), now);
        let mut world = Self {
            now,
            truth: now.wall,
            disk: Disk::new(),
            core,
            sandbox,
            network: Network {
                delay: Duration::from_millis(20),
                ..Network::default()
            },
            token,
            older: None,
            sent: Vec::new(),
            met: Met::default(),
            log: Log::new(),
            witness,
            dice: Dice::new(seed),
            trap: None,
            settings,
            boot_id: Some("boot-1".to_owned()),
            boots: 1,
            secrets: Vec::new(),
            numbered: 0,
            events: BTreeMap::new(),
            waits: BTreeMap::new(),
            landed: VecDeque::new(),
            unwritten: VecDeque::new(),
            trouble: false,
            untold: VecDeque::new(),
            address: Address::parse("http://127.0.0.1:1").expect("loopback"),
            lives: 0,
            hooks: None,
        };
        world.start();
        world
    }

    /// Finishes a call. The call's source reports the call again until it is stored.
    pub fn finish(&mut self, call: Finished) {
        self.untold.push_back(call);
        self.take_in();
    }

    /// Stores the calls that have come.
    pub(crate) fn take_in(&mut self) {
        while let Some(call) = self.untold.front() {
            let op = Op::Finish(Box::new(call.clone()));
            if self.write(vec![op]).is_err() {
                break;
            }
            self.untold.pop_front();
        }
    }

    /// Runs an operation of a person.
    pub fn command(&mut self, op: Op) {
        self.write(vec![op]).ok();
    }

    /// Runs until this time of the CRM's clock.
    pub fn run(&mut self, until: EventTime) {
        let (mut last, mut turns) = (self.truth, 0);
        while self.truth < until {
            self.step(until);
            turns = if self.truth > last { 0 } else { turns + 1 };
            last = self.truth;
            assert!(turns < TURNS_MAX, "busy without end at {last}");
        }
    }

    /// Runs for this time of the CRM's clock.
    pub fn run_for(&mut self, time: Duration) {
        self.run(self.truth.plus(time));
    }

    /// Returns the sender's status.
    pub fn status(&self) -> SenderStatus {
        let head = tables::work_queue::head(&self.disk.store, &self.core.ask(self.now));
        let head = head.expect("a head");
        self.core.status(self.now, &head)
    }

    /// Returns the sender's pause. It does not depend on the work.
    pub fn pause(&self) -> Option<Pause> {
        self.core.status(self.now, &WorkQueue::default()).pause
    }

    /// Makes one turn of the shell's loop. Then advances to the next event that the shell notices:
    /// an answer, a write, a new token, or the time of its next turn.
    fn step(&mut self, until: EventTime) {
        let wait = self.turn();
        let mut at = wait.unwrap_or(self.now.boot + LOOK_AGAIN);
        if !self.untold.is_empty() {
            at = at.min(self.now.boot + SPOOL_AGAIN);
        }
        // The CRM's clock counts whole microseconds.
        let micros = at.saturating_sub(self.now.boot).as_nanos().div_ceil(1000);
        let wait = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let end = self.truth.plus(wait).min(until);
        let known = (self.disk.writes, self.unwritten.len());
        loop {
            if let Some((number, received)) = self.landed.pop_front() {
                self.land(number, received);
                return;
            }
            let next = self.events.keys().next().map_or(end, |(at, _)| *at);
            self.pass_to(end.min(next.max(self.truth)));
            let changed = (self.disk.writes, self.unwritten.len()) != known;
            if self.truth >= end || changed {
                return;
            }
        }
    }

    /// Does all that can be done now. Returns the time since boot of the next turn.
    fn turn(&mut self) -> Option<Duration> {
        for _ in 0..TURNS_MAX {
            self.take_in();
            if !self.write_back() {
                return Some(self.now.boot + SPOOL_AGAIN);
            }
            let now = self.now;
            let ask = self.core.ask(now);
            let Ok(head) = self
                .disk
                .read(|store| tables::work_queue::head(store, &ask))
            else {
                self.begin_disk_problem();
                return Some(now.boot + SPOOL_AGAIN);
            };
            let decision = self.core.next(now, &head);
            self.log
                .event(self.truth, format_args!("decided {decision:?}"));
            match decision {
                Decision::Send(plan) => {
                    self.send(plan);
                    if self.trouble {
                        return Some(self.now.boot + SPOOL_AGAIN);
                    }
                }
                Decision::Settle(call) => {
                    let (row, step, at) = (call.row, self.core.settle(self.now, &call), now.wall);
                    self.unwritten.push_back(vec![Op::Step { row, step, at }]);
                }
                Decision::Commit(ops) => self.unwritten.push_back(ops),
                Decision::WaitUntil(at) => {
                    if now.wall < self.settings.clock_right_from.unwrap_or(now.wall) {
                        self.met.count_pause("clock");
                    }
                    return Some(at);
                }
                Decision::Idle => return None,
            }
        }
        panic!("busy without end at {}", self.truth);
    }

    /// Commits the slot and the step before the request leaves.
    fn send(&mut self, plan: Plan) {
        if self.strike(Moment::Chosen) {
            return;
        }
        let (slot, lane) = (plan.slot, plan.task.lane);
        let ask = self.core.ask(self.now);
        let Ok(about) = self.disk.read(|store| plan.task.work.inputs(store, &ask)) else {
            self.core.abort(slot);
            self.begin_disk_problem();
            return;
        };
        let uuid = match (&plan.task.work, &about.row) {
            (Work::Poll(call), _) => Some(call.uuid.to_string()),
            (Work::Submit(_), Some(row)) => Some(row.uuid.to_string()),
            (Work::Submit(_) | Work::Page { .. }, _) => None,
            (Work::TokenInfo | Work::Lead(_) | Work::Settle(_), _) => None,
        };
        let send_by = self.now.boot + SEND_WITHIN;
        let Launch { request, ops } = self.core.launch(self.now, plan, about);
        let Some((request, token)) = request else {
            self.unwritten.push_back(ops);
            return;
        };
        let Some(secret) = self.secret_of(&token) else {
            self.core.abort(slot);
            return;
        };
        if self.strike_while_writing(&ops) {
            return;
        }
        if self.write(ops).is_err() {
            self.core.abort(slot);
            self.begin_disk_problem();
            return;
        }
        if self.strike(Moment::Committed) {
            return;
        }
        let too_late = self.now.boot > send_by;
        self.fly(slot, lane, uuid, request, &secret, too_late);
    }

    /// Judges an answer. The result is written at the next turn.
    fn land(&mut self, number: u64, received: ApiResponse) {
        let Some(waits) = self.waits.remove(&number) else {
            return; // of an earlier life
        };
        self.log
            .event(self.truth, format_args!("heard {number} {received:?}"));
        let (slot, lane) = (waits.slot, waits.lane);
        let answer = Path::answer(waits.request.endpoint(), &received.answer);
        let outcome = self.core.judge_answer(self.now, slot, received);
        let outcome = outcome.expect("its slot");
        let kind = outcome.kind.expect("no request about leads");
        let state: Option<State> = outcome
            .row
            .and_then(|id| self.disk.states.get(&id).copied());
        self.met.count(answer);
        if state == Some(State::Journaled) {
            // A webhook came before the answer.
            self.met.count_hardship(Hardship::AnswerOvertaken);
        } else {
            self.met.count(Path::Verdict {
                lane,
                endpoint: outcome.endpoint,
                kind,
                state,
            });
        }
        self.met.add_word(outcome.verdict);
        self.witness
            .record_verdict(number, &waits, kind, self.truth);
        self.unwritten.push_back(outcome.ops);
        if let Some(pause) = self.pause() {
            self.met.count_pause(&pause.reason);
        }
        self.strike(Moment::Answered);
    }

    /// Writes what is not written. Returns `false` if the spool cannot store it now.
    fn write_back(&mut self) -> bool {
        while let Some(ops) = self.unwritten.front() {
            match self.write(ops.clone()) {
                Ok(()) => self.trouble = false,
                Err(trouble) if trouble.is_retryable() => {
                    self.begin_disk_problem();
                    return false;
                }
                Err(refused) => panic!("the spool refuses {:?}: {refused}", self.unwritten[0]),
            }
            self.unwritten.pop_front();
        }
        !self.trouble
    }

    /// Judges all answers that came.
    pub(crate) fn land_all(&mut self) {
        while let Some((number, received)) = self.landed.pop_front() {
            self.land(number, received);
        }
    }

    /// Writes everything in an orderly stop, if the disk allows it.
    pub(crate) fn write_all(&mut self) {
        self.write_back();
    }

    fn begin_disk_problem(&mut self) {
        // An empty write finds out whether the disk works again.
        if self.unwritten.is_empty() {
            self.unwritten.push_back(Vec::new());
        }
        self.trouble = true;
        self.met.count_pause("spool");
    }

    /// Writes operations, and checks the books and each step.
    pub(crate) fn write(&mut self, ops: Vec<Op>) -> Result<(), callbridge_spool::Error> {
        if !ops.is_empty() {
            self.log.event(self.truth, format_args!("writes {ops:?}"));
        }
        for op in &ops {
            if let Op::Step {
                row,
                step: Step::Resubmit { .. },
                ..
            } = op
            {
                self.witness.excuse(&self.disk.uuids[row]);
            }
        }
        let written = self.disk.write(ops, &mut self.met);
        if let Err(error) = &written {
            self.log.event(self.truth, format_args!("{error}"));
        }
        written.map(drop)
    }

    /// Gives the sender the current token.
    pub fn use_token(&mut self) {
        let older = self.older.iter().map(|(token, _)| token);
        let current = Some(&self.token).filter(|token| !token.is_empty());
        let print = current.map(|token| TokenFingerprint::of(token));
        self.secrets = current.into_iter().chain(older).cloned().collect();
        self.log
            .event(self.truth, format_args!("takes up the token {print:?}"));
        self.witness.record_token(&self.token);
        let ops = self.core.token(self.now, print);
        self.unwritten.push_back(ops);
        let before = self
            .older
            .as_ref()
            .map(|(token, until)| (TokenFingerprint::of(token), *until));
        self.core.set_previous_token(before);
    }

    /// Returns the token with this fingerprint.
    fn secret_of(&self, print: &TokenFingerprint) -> Option<String> {
        let mut secrets = self.secrets.iter();
        let secret = secrets.find(|token| TokenFingerprint::of(token) == *print);
        secret.cloned()
    }

    /// Checks that no window, wherever it begins, held more arrivals than the limit, and that the
    /// CRM found no violations except those in `but`.
    pub fn assert_never_wrong(&self, but: &[ViolationKind]) {
        let breaches = self.sandbox.violations();
        let wrong: Vec<_> = breaches
            .all()
            .iter()
            .filter(|breach| !but.contains(&breach.kind))
            .collect();
        assert!(wrong.is_empty(), "breaches: {wrong:#?}");
        self.disk.recount();
    }
}
