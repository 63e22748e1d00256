//! Collectors and a hub. The hub sends to the CRM while its state goes back to an earlier commit or
//! is deleted, answers to collectors are lost, and collectors restart.

use crate::simulation::campaign;
use crate::simulation::scenario::Length;
use crate::simulation::world::World;
use crate::support::simulated_calls::{Dice, call, epoch};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_hub::forward::core::{BatchCall, ForwardCore, Next, POSITION, Reply};
use callbridge_hub::protocol::{CallsAnswer, ReportAnswer};
use callbridge_model::Judged;
use callbridge_sandbox as sandbox;
use callbridge_sender::Settings;
use callbridge_spool::{
    BranchRequest, Done, Finished, HubAnswer, HubPosition, NewBranch, Op, Silence, SilenceReason,
    Store, tables,
};
use std::collections::BTreeSet;
use std::time::Duration;

const BRANCHES: usize = 3;
/// Number of events in a run before it drains.
const EVENTS: u32 = 200;
/// The silence after lost commits: a window and 45 s.
const SILENCE: Duration = Duration::from_secs(105);
/// A branch can cause another incarnation after this time.
const CLAIM_AGAIN: Duration = Duration::from_secs(3_700);
/// The operator takes longer than a window to delete the state and to add the branches again.
const DELETED_WITHIN: Duration = Duration::from_secs(120);

/// A hub, its collectors, and the CRM.
struct Run {
    world: World,
    dice: Dice,
    collectors: Vec<Collector>,
    incarnations: u32,
    /// Each silence after lost commits: its begin, and its end or an earlier restart of the hub.
    silences: Vec<(EventTime, EventTime)>,
    made: u32,
}

/// A collector with its own state.
struct Collector {
    store: Store,
    core: ForwardCore,
}

impl Collector {
    fn new() -> Self {
        Self {
            store: Store::in_memory(callbridge_spool::Settings::default()).expect("memory"),
            core: fresh_core(&[], Duration::ZERO),
        }
    }

    /// Kills the process and starts it again.
    fn restart(&mut self, now: Duration) {
        let stored = tables::meta::meta(&self.store, POSITION).expect("readable");
        self.core = fresh_core(stored.as_deref().unwrap_or_default().as_bytes(), now);
    }
}

fn fresh_core(stored: &[u8], now: Duration) -> ForwardCore {
    let seen = serde_json::from_slice(stored).ok();
    ForwardCore::new(vec!["hub".to_owned()], seen, 7, now)
}

fn branch_name(branch: usize) -> String {
    format!("branch{branch}")
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed, Settings::default(), sandbox::Settings::default());
        // The CRM accepts each call again that the hub has forgotten.
        world.witness.strict = false;
        world.disk.history = Some(Vec::new());
        let mut run = Self {
            world,
            dice: Dice::new(seed),
            collectors: (0..BRANCHES).map(|_| Collector::new()).collect(),
            incarnations: 0,
            silences: Vec::new(),
            made: 0,
        };
        run.begin("first".to_owned());
        run
    }

    /// Returns the time of the collectors' clocks.
    fn now(&self) -> Duration {
        self.world.truth.since(epoch())
    }

    /// Starts the hub with an empty state, and adds the branches.
    fn begin(&mut self, incarnation: String) {
        let at = self.world.truth;
        self.write(vec![Op::BeginHub { incarnation, at }]);
        for branch in 0..BRANCHES {
            self.write(vec![Op::AddBranch(NewBranch {
                name: branch_name(branch),
                token: branch_name(branch),
                pbxs: vec![branch_name(branch)],
                at: EpochSeconds::new(0),
            })]);
        }
    }

    fn write(&mut self, ops: Vec<Op>) -> Vec<Done> {
        let World { disk, met, .. } = &mut self.world;
        disk.write(ops, met).expect("stored")
    }

    /// Removes the last `lost` commits of the hub, but no branch.
    fn go_back(&mut self, lost: usize) {
        let history = self.world.disk.history.clone().expect("a history");
        let kept = history.len().saturating_sub(lost).max(1 + BRANCHES);
        self.end_silences();
        self.world.restore(kept);
        self.world.disk.history = Some(history[..kept.min(history.len())].to_vec());
    }

    fn delete_state(&mut self) {
        self.end_silences();
        self.world.delete_state(DELETED_WITHIN);
        self.incarnations += 1;
        self.begin(format!("deleted {}", self.incarnations));
    }

    /// Ends all silences so far, because the hub restarts. In this simulation, a restart has its
    /// own silence, or the hub is down for longer than a silence.
    fn end_silences(&mut self) {
        for (_, end) in &mut self.silences {
            *end = (*end).min(self.world.truth);
        }
    }

    /// Ends a call at the PBX of this branch.
    fn end_call(&mut self, branch: usize) {
        let finished = call(self.made, self.world.truth, 4001, self.dice.chance(70));
        self.made += 1;
        let store = &mut self.collectors[branch].store;
        let done = store.write(vec![Op::Finish(Box::new(finished))]);
        assert!(matches!(done.expect("stored")[0], Done::New(_)));
    }

    /// Lets the hub handle a request of a branch in one commit.
    fn answer_from_hub(&mut self, branch: usize, calls: Vec<Op>) -> HubAnswer {
        let sender = format!("collector of {}", branch_name(branch));
        let seen = self.collectors[branch].core.seen().cloned();
        self.answer_sender(branch, (Some(sender), seen), calls)
    }

    /// Lets the hub handle a request that a script makes with the token of this branch.
    fn answer_script(&mut self, branch: usize) {
        let answer = self.answer_sender(branch, (None, None), Vec::new());
        assert!(!answer.lost_commits);
    }

    fn answer_sender(
        &mut self,
        branch: usize,
        (sender, seen): (Option<String>, Option<HubPosition>),
        calls: Vec<Op>,
    ) -> HubAnswer {
        self.incarnations += 1;
        let at = self.world.truth;
        let request = Op::BranchRequest(Box::new(BranchRequest {
            branch: branch_name(branch),
            sender,
            seen,
            next_incarnation: format!("incarnation {}", self.incarnations),
            silence: Silence {
                boot_id: self.world.boot_id.clone().unwrap_or_default(),
                until: self.world.now.boot + SILENCE,
                why: SilenceReason::LostCommits,
            },
            calls: calls.len() as u64,
            refused: 0,
            refusal: None,
            report: None,
            at,
        }));
        let mut ops = vec![request];
        ops.extend(calls);
        let Done::Hub(answer) = self.write(ops).remove(0) else {
            panic!("no answer of a hub");
        };
        if answer.lost_commits && self.world.boot_id.is_some() {
            self.silences.push((at, at.plus(SILENCE)));
        }
        answer
    }

    /// Lets a collector make its next request. Returns the time to wait if there is none.
    fn make_request(&mut self, branch: usize, answer_is_lost: bool) -> Option<Duration> {
        let now = self.now();
        let collector = &mut self.collectors[branch];
        let ready = collector.store.books().ready > 0;
        let outcome = match collector.core.next(now, ready) {
            Next::WaitUntil(until) => return Some(until),
            Next::Report { .. } => {
                let position = self.answer_from_hub(branch, Vec::new()).position;
                let reply = reply(&ReportAnswer { position }, answer_is_lost);
                self.collectors[branch].core.report_answered(now, reply)
            }
            Next::Calls { .. } => {
                let rows = tables::forward::next_calls(&collector.store, 3).expect("readable");
                let mut calls = Vec::new();
                let mut batch = Vec::new();
                for row in rows {
                    let judged = Judged::journaled(row.record.clone(), row.since);
                    let finished = Finished::new(judged, row.call.clone());
                    calls.push(Op::Finish(Box::new(finished)));
                    batch.push(BatchCall {
                        row: row.id,
                        uuid: row.uuid,
                    });
                }
                let answer = CallsAnswer {
                    position: self.answer_from_hub(branch, calls).position,
                    taken: batch.iter().map(|call| call.uuid).collect(),
                    refused: Vec::new(),
                };
                let reply = reply(&answer, answer_is_lost);
                let core = &mut self.collectors[branch].core;
                core.calls_answered(now, &batch, reply)
            }
        };
        let (mut ops, steps) = outcome.ops(self.world.truth);
        ops.extend(steps);
        let store = &mut self.collectors[branch].store;
        store.write(ops).expect("stored");
        None
    }

    fn take_random_step(&mut self) {
        let branch = usize::try_from(self.dice.below(3)).expect("few");
        match self.dice.below(26) {
            0..6 => self.end_call(branch),
            6..18 => {
                let answer_is_lost = self.dice.chance(20);
                self.make_request(branch, answer_is_lost);
            }
            18 => {
                let now = self.now();
                self.collectors[branch].restart(now);
            }
            19 => {
                let most = if self.dice.chance(70) { 5 } else { 200 };
                let lost = usize::try_from(1 + self.dice.below(most)).expect("few");
                self.go_back(lost);
            }
            20..22 => self.answer_script(branch),
            _ => {
                let seconds = self.dice.below(60);
                self.world.run_for(Duration::from_secs(seconds));
            }
        }
    }

    /// Lets every collector forward its calls, and the hub send all of them.
    fn drain(&mut self) {
        // In the first round, a branch can still ask for another incarnation too soon.
        for _ in 0..3 {
            self.world.run_for(CLAIM_AGAIN);
            for branch in 0..BRANCHES {
                self.drain_collector(branch);
            }
        }
        for _ in 0..48 {
            self.world.run_for(Duration::from_secs(3_600));
            if self.world.disk.store.books().settled() {
                return;
            }
        }
        panic!("not drained: {:?}", self.world.disk.store.books());
    }

    fn drain_collector(&mut self, branch: usize) {
        for _ in 0..400 {
            let Some(until) = self.make_request(branch, false) else {
                continue;
            };
            if self.collectors[branch].store.books().ready == 0 {
                return;
            }
            self.world.run(epoch().plus(until));
        }
        panic!("{} still has ready calls", branch_name(branch));
    }

    fn judge(&self) {
        for collector in &self.collectors {
            let books = collector.store.books();
            assert_eq!((books.ready, books.forwarded), (0, books.finished));
        }
        let books = self.world.disk.store.books();
        assert_eq!(books.journaled, u64::from(self.made), "{books:?}");
        let mut journal = BTreeSet::new();
        for record in self.world.sandbox.records() {
            assert!(journal.insert(&record.uuid), "doubled: {}", record.uuid);
        }
        assert_eq!(journal.len(), usize::try_from(self.made).expect("few"));
        for (begin, end) in &self.silences {
            let mut sent = self.world.sent.iter();
            let broken = sent.find(|(at, _)| begin < at && at < end);
            assert_eq!(broken, None, "silent from {begin} to {end}");
        }
    }
}

fn reply(answer: &impl serde::Serialize, is_lost: bool) -> Reply {
    if is_lost {
        return Reply::Lost("the connection was cut".to_owned());
    }
    Reply::Answer {
        status: 200,
        retry_after: None,
        body: serde_json::to_vec(answer).expect("JSON"),
    }
}

/// Promise: A hub that goes back to any commit is offered each call again and journals it once.
#[test]
fn hub_that_goes_back_to_any_commit_loses_no_call() {
    let mut silences = 0;
    for seed in campaign::seeds(Length::default()) {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        let deleted_at = run.dice.below(4 * u64::from(EVENTS));
        for n in 0..u64::from(EVENTS) {
            if n == deleted_at {
                run.delete_state();
            }
            run.take_random_step();
        }
        run.drain();
        run.judge();
        silences += run.silences.len();
    }
    assert!(silences > 0, "no hub noticed that it lost commits");
}
