//! Tests that the CRM has one record per call, even though collectors and their hub are killed and
//! frozen, responses are lost after the commit, and the hub's state is restored or deleted.
//!
//! `tests/run hub` runs the test for half an hour with 20 collectors and 5,000 calls.

use super::lossy::LossyProxy;
use super::runs::is_long_run;
use super::stage::{add_branch, free_address, message, start_collector, start_hub};
use crate::support::crm;
use crate::support::program::{Place, Program};
use callbridge_call::Linkedid;
use callbridge_mapping::journal::figures::uuid;
use callbridge_sandbox::{Server, ViolationKind};
use callbridge_testbed::wait::{pass, until, until_within};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

struct Length {
    collectors: u32,
    calls: u32,
    /// Time over which the calls end.
    duration: Duration,
    /// Whether the hub's state is deleted as well.
    is_state_deleted: bool,
}

fn chosen_length() -> Length {
    if is_long_run() {
        Length {
            collectors: 20,
            calls: 5_000,
            duration: Duration::from_secs(1_500),
            is_state_deleted: true,
        }
    } else {
        Length {
            collectors: 5,
            calls: 200,
            duration: Duration::from_secs(20),
            is_state_deleted: false,
        }
    }
}

/// A random number generator, whose seed the test prints.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

struct Collector {
    pbx: String,
    place: Place,
    token: String,
    program: Option<Program>,
    /// Number of calls written to the collector's source.
    written: u32,
}

/// A hub, its collectors, a proxy between them that loses responses, and a CRM.
struct Company {
    crm: Server,
    place: Place,
    address: SocketAddr,
    proxy: LossyProxy,
    hub: Option<Program>,
    collectors: Vec<Collector>,
    dice: Dice,
    kills: u32,
    freezes: u32,
}

impl Company {
    async fn start(collectors: u32, seed: u64) -> Self {
        let (place, crm) = (Place::on_disk(), crm::start().await);
        let address = free_address();
        let mut company = Self {
            hub: Some(start_hub(&place, &crm.url(), address)),
            proxy: LossyProxy::start(address).await,
            crm,
            place,
            address,
            collectors: Vec::new(),
            dice: Dice(seed | 1),
            kills: 0,
            freezes: 0,
        };
        company.wait_until_hub_serves().await;
        for n in 0..collectors {
            let pbx = format!("pbx{n}");
            let token = add_branch(&company.place, &pbx, &pbx).await;
            let place = Place::on_disk();
            place.write("calls.jsonl", "");
            let program = start_collector(&place, company.proxy.address, &token);
            company.collectors.push(Collector {
                pbx,
                place,
                token,
                program: Some(program),
                written: 0,
            });
        }
        company
    }

    async fn wait_until_hub_serves(&mut self) {
        let hub = self.hub.as_mut().expect("a running program");
        hub.until("the hub serves", |status| status.hub.is_some())
            .await;
    }

    fn start_hub(&mut self) {
        self.hub = Some(start_hub(&self.place, &self.crm.url(), self.address));
    }

    async fn kill_hub(&mut self) {
        self.hub.take().expect("a running program").kill().await;
        self.kills += 1;
    }

    /// Writes each collector's calls until each of them has written `count`.
    fn write_calls(&mut self, count: u32) {
        for collector in &mut self.collectors {
            while collector.written < count {
                let call = message(&collector.pbx, collector.written);
                let line = format!("{call}\n");
                collector.place.append("calls.jsonl", line.as_bytes());
                collector.written += 1;
            }
        }
    }

    /// Kills or freezes the hub or a collector. A killed process is restarted right away.
    async fn inject_fault(&mut self) {
        let index = usize::try_from(self.dice.roll(self.collectors.len() as u64)).expect("few");
        match self.dice.roll(4) {
            0 => {
                self.kill_hub().await;
                self.start_hub();
                self.wait_until_hub_serves().await;
            }
            1 => {
                let collector = &mut self.collectors[index];
                collector
                    .program
                    .take()
                    .expect("a running program")
                    .kill()
                    .await;
                let proxy = self.proxy.address;
                let program = start_collector(&collector.place, proxy, &collector.token);
                collector.program = Some(program);
                self.kills += 1;
            }
            2 => {
                let hub = self.hub.as_ref().expect("a running program");
                hub.freeze().await;
                pass(Duration::from_secs(1 + self.dice.roll(3))).await;
                hub.signal(Signal::CONT);
                self.freezes += 1;
            }
            _ => {
                let collector = self.collectors[index]
                    .program
                    .as_ref()
                    .expect("a running program");
                collector.freeze().await;
                pass(Duration::from_secs(1 + self.dice.roll(3))).await;
                collector.signal(Signal::CONT);
                self.freezes += 1;
            }
        }
    }

    async fn copy_state(&mut self) {
        self.hub
            .take()
            .expect("a running program")
            .terminate()
            .await;
        let copy = std::fs::copy(self.place.at("state/spool.db"), self.place.at("copy.db"));
        copy.expect("copied");
        self.start_hub();
        self.wait_until_hub_serves().await;
    }

    /// Writes another call, which the copy doesn't have, and waits until the hub has stored it.
    async fn forward_later_call(&mut self) {
        let first = &self.collectors[0];
        self.write_calls(first.written + 1);
        let collector = &mut self.collectors[0];
        let written = u64::from(collector.written);
        let program = collector.program.as_mut().expect("a running program");
        until("the call is forwarded", async || {
            let status = program.status().await;
            status.is_some_and(|status| status.books.forwarded == written)
        })
        .await;
    }

    async fn restore_state(&mut self) {
        self.kill_hub().await;
        for file in ["spool.db-wal", "spool.db-shm"] {
            // The log files belong to the state that's being replaced.
            let _ = std::fs::remove_file(self.place.at(&format!("state/{file}")));
        }
        let restored = std::fs::copy(self.place.at("copy.db"), self.place.at("state/spool.db"));
        restored.expect("restored");
        self.start_hub();
        self.wait_until_hub_serves().await;
    }

    async fn delete_state(&mut self) {
        self.kill_hub().await;
        std::fs::remove_dir_all(self.place.at("state")).expect("removed");
        self.start_hub();
        self.wait_until_hub_serves().await;
        for collector in &self.collectors {
            let file = self.place.write("branch-token", &collector.token);
            let pbx = collector.pbx.as_str();
            let add = [
                "branch",
                "add",
                pbx,
                "--pbx",
                pbx,
                "--token-file",
                &file,
                "--json",
            ];
            self.place.lines(&add).await;
        }
    }

    /// Waits until each written call has been forwarded and journaled.
    async fn wait_until_all_journaled(&mut self) {
        let deadline = Duration::from_secs(600);
        for collector in &mut self.collectors {
            let written = u64::from(collector.written);
            let program = collector.program.as_mut().expect("a running program");
            until_within(deadline, "each call is forwarded", async || {
                let status = program.status().await;
                status.is_some_and(|status| status.books.forwarded == written)
            })
            .await;
        }
        let hub = self.hub.as_mut().expect("a running program");
        until_within(deadline, "each call is journaled", async || {
            let status = hub.status().await;
            status.is_some_and(|status| status.books.settled())
        })
        .await;
    }
}

/// Promise: Whatever is killed, frozen, or restored, each call of each branch is journaled once.
#[tokio::test]
async fn each_call_of_each_branch_is_journaled_once_despite_faults() {
    let length = chosen_length();
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    let mut company = Company::start(length.collectors, seed).await;
    let each = length.calls / length.collectors;
    let begin = Instant::now();
    let (mut is_copied, mut is_restored, mut is_deleted) = (false, false, !length.is_state_deleted);
    // On a slow machine, the loop takes longer than the duration, because no fault is skipped.
    while begin.elapsed() < length.duration || !(is_copied && is_restored && is_deleted) {
        let part = begin.elapsed().as_secs_f64() / length.duration.as_secs_f64();
        // Some calls must be left to be written after the restoration.
        let written_part = part.min(if is_restored { 1.0 } else { 0.9 });
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a part of few calls
        company.write_calls((f64::from(each) * written_part) as u32);
        if part > 0.2 && !is_copied {
            company.copy_state().await;
            is_copied = true;
        } else if part > 0.5 && !is_restored {
            company.forward_later_call().await;
            company.restore_state().await;
            is_restored = true;
        } else if part > 0.7 && !is_deleted {
            company.delete_state().await;
            is_deleted = true;
        } else {
            company.inject_fault().await;
        }
        pass(Duration::from_millis(500 + company.dice.roll(1_500))).await;
    }
    company.write_calls(each);
    company.wait_until_all_journaled().await;
    let mut records: BTreeMap<String, u32> = BTreeMap::new();
    until("the CRM has written all", async || {
        records.clear();
        for record in company.crm.journal() {
            *records.entry(record.call.uuid.clone()).or_default() += 1;
        }
        records.len() >= (each * length.collectors) as usize
    })
    .await;
    let mut lost = 0;
    for collector in &company.collectors {
        for n in 0..each {
            let id = Linkedid::new(format!("call.{n}")).expect("an id");
            let call_uuid = uuid(&collector.pbx, &id).to_string();
            lost += u32::from(records.remove(&call_uuid).is_none());
        }
    }
    let journal = company.crm.journal();
    let uuids: std::collections::BTreeSet<&str> = journal
        .iter()
        .map(|record| record.call.uuid.as_str())
        .collect();
    let doubled = journal.len() - uuids.len();
    let violations = company.crm.violations();
    let exceeded = violations
        .iter()
        .filter(|violation| violation.kind == ViolationKind::WindowExceeded);
    let exceeded = exceeded.count();
    let calls = each * length.collectors;
    let highest = company.crm.admin(|crm, _| crm.fullest()).in_a_window;
    println!(
        "hub judge, seed {seed}: {calls} calls, {} kills, {} freezes, {} answers lost, \
         {} records; lost {lost}, doubled {doubled}, invented {}, highest window {highest}",
        company.kills,
        company.freezes,
        company.proxy.count_lost(),
        journal.len(),
        records.len(),
    );
    assert_eq!(
        (lost, doubled, records.len(), exceeded),
        (0, 0, 0, 0),
        "{violations:#?}"
    );
    assert!(highest <= 60, "{highest}");
    let hub = company.hub.as_mut().expect("a running program");
    let status = hub.status().await.expect("a status").hub.expect("a hub");
    assert!(
        status.lost_commits_shown_by.is_some(),
        "the lost commits were noticed"
    );
    for collector in company.collectors {
        collector
            .program
            .expect("a running program")
            .terminate()
            .await;
    }
    company.hub.expect("a running program").terminate().await;
}
