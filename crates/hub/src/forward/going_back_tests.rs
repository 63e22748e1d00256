//! Collectors and a hub, simulated without sockets or clocks. The hub's state goes back to an
//! earlier commit or is deleted, answers are lost, and collectors restart. No call is lost.

use super::core::{BatchCall, ForwardCore, Next, POSITION, Reply};
use crate::protocol::{CallsAnswer, ReportAnswer};
use callbridge_call::{EpochSeconds, EventTime, Linkedid};
use callbridge_model::{CallUuid, Judged};
use callbridge_spool::{
    BranchRequest, Done, Finished, HubAnswer, HubSilence, NewBranch, Op, Settings, Store, tables,
};
use callbridge_testkit::sample;
use proptest::prelude::*;
use std::time::Duration;

const BRANCHES: usize = 3;
/// A branch can cause another incarnation after this time.
const CLAIM_AGAIN: Duration = Duration::from_secs(3_700);

struct Hub {
    store: Store,
    commits: Vec<Vec<Op>>,
    incarnations: u32,
}

impl Hub {
    fn new(incarnation: &str) -> Self {
        let mut hub = Self {
            store: Store::in_memory(Settings::default()).expect("memory"),
            commits: Vec::new(),
            incarnations: 0,
        };
        let incarnation = incarnation.to_owned();
        let at = EventTime::from_seconds(0);
        hub.write(vec![Op::BeginHub { incarnation, at }]);
        for branch in 0..BRANCHES {
            hub.write(vec![Op::AddBranch(NewBranch {
                name: name(branch),
                token: String::new(),
                pbxs: vec![name(branch)],
                at: EpochSeconds::new(0),
            })]);
        }
        hub
    }

    fn write(&mut self, ops: Vec<Op>) -> Vec<Done> {
        let done = self.store.write(ops.clone()).expect("stored");
        self.commits.push(ops);
        done
    }

    /// Loses this many of its last commits, but no branch.
    fn goes_back(&mut self, lost: usize) {
        let kept = self.commits.len().saturating_sub(lost).max(1 + BRANCHES);
        self.commits.truncate(kept);
        self.store = Store::in_memory(Settings::default()).expect("memory");
        for ops in &self.commits {
            self.store.write(ops.clone()).expect("stored before");
        }
    }

    /// Loses its state. The operator adds the branches again.
    fn is_deleted(&mut self, n: usize) {
        let incarnations = self.incarnations;
        *self = Self::new(&format!("deleted {n} {incarnations}"));
        self.incarnations = incarnations;
    }

    fn answers(
        &mut self,
        branch: usize,
        core: &ForwardCore,
        calls: Vec<Op>,
        now: Duration,
    ) -> HubAnswer {
        self.incarnations += 1;
        let request = Op::BranchRequest(Box::new(BranchRequest {
            branch: name(branch),
            seen: core.seen().cloned(),
            next_incarnation: format!("incarnation {}", self.incarnations),
            silence: HubSilence {
                boot_id: "boot".to_owned(),
                until: now,
            },
            calls: calls.len() as u64,
            report: None,
            at: EventTime::from_seconds(i64::try_from(now.as_secs()).expect("small")),
        }));
        let mut ops = vec![request];
        ops.extend(calls);
        match self.write(ops).remove(0) {
            Done::Hub(answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

/// A call that no other number has.
fn finished(number: u32) -> Finished {
    let id = format!("call.{number}");
    let mut call = sample::call();
    call.linkedid = Linkedid::new(&id).expect("not empty");
    let mut record = sample::record();
    record.uuid = Some(CallUuid(uuid::Uuid::from_u128(number.into())));
    record.linkedid = id;
    Finished::new(Judged::journaled(record, EventTime::from_seconds(1)), call)
}

fn name(branch: usize) -> String {
    format!("branch{branch}")
}

struct Collector {
    branch: usize,
    store: Store,
    core: ForwardCore,
    made: u32,
}

impl Collector {
    fn new(branch: usize) -> Self {
        Self {
            branch,
            store: Store::in_memory(Settings::default()).expect("memory"),
            core: fresh_core(&[], Duration::ZERO),
            made: 0,
        }
    }

    /// A call ends.
    fn call(&mut self) {
        let number = u32::try_from(self.branch).expect("few") * 1_000 + self.made;
        self.made += 1;
        let done = self
            .store
            .write(vec![Op::Finish(Box::new(finished(number)))]);
        assert!(matches!(done.expect("stored")[0], Done::New(_)));
    }

    /// The process is killed and starts again.
    fn restarts(&mut self, now: Duration) {
        let stored = tables::meta::meta(&self.store, POSITION).expect("readable");
        self.core = fresh_core(stored.as_deref().unwrap_or_default().as_bytes(), now);
    }

    /// Makes the next request. Returns the time to wait if there is none.
    fn turns(&mut self, hub: &mut Hub, now: Duration, answer_is_lost: bool) -> Option<Duration> {
        let ready = self.store.books().ready > 0;
        let outcome = match self.core.next(now, ready) {
            Next::WaitUntil(until) => return Some(until),
            Next::Report { .. } => {
                let answer = hub.answers(self.branch, &self.core, Vec::new(), now);
                let position = answer.position;
                let answer = ReportAnswer { position };
                let reply = reply(&answer, answer_is_lost);
                self.core.report_answered(now, reply)
            }
            Next::Calls { .. } => {
                let rows = tables::forward::next_calls(&self.store, 3).expect("readable");
                let mut calls = Vec::new();
                let mut batch = Vec::new();
                for row in rows {
                    let at = row.since;
                    let judged = Judged::journaled(row.record.clone(), at);
                    calls.push(Op::Finish(Box::new(Finished::new(
                        judged,
                        row.call.clone(),
                    ))));
                    batch.push(BatchCall {
                        row: row.id,
                        uuid: row.uuid,
                    });
                }
                let answer = hub.answers(self.branch, &self.core, calls, now);
                let answer = CallsAnswer {
                    position: answer.position,
                    taken: batch.iter().map(|call| call.uuid).collect(),
                    refused: Vec::new(),
                };
                let reply = reply(&answer, answer_is_lost);
                self.core.calls_answered(now, &batch, reply)
            }
        };
        let (mut ops, steps) = outcome.ops(EventTime::from_seconds(1));
        ops.extend(steps);
        self.store.write(ops).expect("stored");
        None
    }
}

fn fresh_core(stored: &[u8], now: Duration) -> ForwardCore {
    let seen = serde_json::from_slice(stored).ok();
    ForwardCore::new(vec!["hub".to_owned()], seen, 7, now)
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

#[derive(Clone, Debug)]
enum Act {
    Call(usize),
    Turn { branch: usize, answer_is_lost: bool },
    Restart(usize),
    GoBack(usize),
    Delete,
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..BRANCHES).prop_map(Act::Call),
        12 => (0..BRANCHES, prop::bool::weighted(0.2)).prop_map(|(branch, answer_is_lost)| {
            Act::Turn { branch, answer_is_lost }
        }),
        1 => (0..BRANCHES).prop_map(Act::Restart),
        2 => (1..5_usize).prop_map(Act::GoBack),
        1 => (5..100_usize).prop_map(Act::GoBack),
        2 => (0..120_u64).prop_map(Act::Pass),
    ]
}

/// One run in four deletes the hub's state once.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    let acts = prop::collection::vec(act(), 1..150);
    (acts, 0..600_usize).prop_map(|(mut acts, at)| {
        if at < acts.len() {
            acts[at] = Act::Delete;
        }
        acts
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Promise: A hub that goes back to any commit is offered each call again.
    #[test]
    fn hub_that_goes_back_to_any_commit_loses_no_call(acts in acts()) {
        let mut hub = Hub::new("first");
        let mut collectors: Vec<Collector> = (0..BRANCHES).map(Collector::new).collect();
        let mut now = Duration::from_secs(10);
        for (n, act) in acts.into_iter().enumerate() {
            match act {
                Act::Call(branch) => collectors[branch].call(),
                Act::Turn { branch, answer_is_lost } => {
                    let waits = collectors[branch].turns(&mut hub, now, answer_is_lost);
                    now = now.max(waits.unwrap_or(now));
                }
                Act::Restart(branch) => collectors[branch].restarts(now),
                Act::GoBack(to) => hub.goes_back(to),
                Act::Delete => hub.is_deleted(n),
                Act::Pass(seconds) => now += Duration::from_secs(seconds),
            }
        }
        // In the first round a claim can still come too soon.
        for _ in 0..3 {
            now += CLAIM_AGAIN;
            for collector in &mut collectors {
                for _ in 0..400 {
                    let waits = collector.turns(&mut hub, now, false);
                    now = now.max(waits.unwrap_or(now));
                    if waits.is_some() && collector.store.books().ready == 0 {
                        break;
                    }
                }
            }
        }
        let mut made = 0;
        for collector in &collectors {
            let books = collector.store.books();
            prop_assert_eq!((books.ready, books.forwarded), (0, u64::from(collector.made)));
            made += u64::from(collector.made);
        }
        let letters = hub.store.books().dead;
        prop_assert_eq!((hub.store.books().finished, letters), (made, 0));
    }
}
