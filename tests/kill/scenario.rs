//! Sends ten calls from a file to a CRM that checks them. A supervisor restarts the program.

use crate::kill::fault::{Action, Fault, Plan};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording, TRUNKS, consecutive};
use callbridge_model::Status;
use callbridge_sandbox::Server;
use callbridge_spool as spool;
use callbridge_spool::tables;
use callbridge_testbed::wait::{pause_after, soon};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Calls of a scenario.
pub const CALLS: usize = 10;
/// Time between two calls.
const CALL_EVERY: Duration = Duration::from_millis(25);
/// The exit code of `run` if it cannot write at its start.
const NOT_WRITABLE: i32 = 73;

/// The result of a run.
#[derive(Debug)]
enum Seen {
    /// All calls are journaled.
    Settled,
    /// `status` shows that the disk fails, and the fix.
    Paused,
    Ended(ExitStatus),
}

/// A place, a CRM and ten calls.
pub struct Scenario {
    place: Place,
    crm: Server,
    calls: Vec<Recording>,
    /// Number of calls that are in the source file so far.
    reported: usize,
}

impl Scenario {
    async fn new() -> Self {
        let place = Place::on_disk();
        place.append("recorded", b"");
        Self {
            place,
            crm: crm::start().await,
            calls: consecutive(CALLS),
            reported: 0,
        }
    }

    fn start(&self, plan: Option<&Plan>) -> Program {
        let source = self.place.file("recorded", "ami");
        let state = self.place.at("state");
        let variables = plan.map(|plan| plan.variables(&state)).unwrap_or_default();
        let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
        self.place.run_with(&self.crm.url(), &flags, &variables)
    }

    /// Reports the remaining calls one by one, and waits until all calls are journaled or the
    /// program ends. If `pauses` is set, a pause ends the wait, too.
    async fn watch(&mut self, program: &mut Program, pauses: bool) -> Seen {
        let mut last = None;
        let begun = Instant::now();
        let what = "the end of ten calls";
        let watching = async {
            loop {
                let pause = if self.reported < CALLS {
                    CALL_EVERY
                } else {
                    pause_after(begun.elapsed())
                };
                sleep(pause).await;
                if let Some(ended) = program.has_ended() {
                    return Seen::Ended(ended);
                }
                if let Some(call) = self.calls.get(self.reported) {
                    self.place.append("recorded", &call.ami);
                    self.reported += 1;
                }
                let Some(status) = program.status().await else {
                    continue;
                };
                if is_settled(&status) {
                    return Seen::Settled;
                }
                if pauses && is_disk_pause_reported(&status) {
                    return Seen::Paused;
                }
                last = Some(status);
            }
        };
        match tokio::time::timeout(callbridge_testbed::wait::DEADLINE, watching).await {
            Ok(seen) => seen,
            Err(_) => panic!("{what} did not come: {last:?}\n{}", program.log()),
        }
    }

    /// Runs once with a fault, including the stop. Returns whether the fault took place, and
    /// whether the run ended well.
    async fn run_with_fault(&mut self, fault: Fault) -> (bool, bool) {
        let plan = Plan::create(&self.place.at("plan"), fault);
        let mut program = self.start(Some(&plan));
        let mut seen = self.watch(&mut program, fault.on).await;
        if matches!(seen, Seen::Paused) {
            plan.lift();
            seen = self.watch(&mut program, false).await;
        }
        let log = program.log();
        let ended = match seen {
            Seen::Settled | Seen::Paused => {
                program.signal(Signal::TERM);
                program.ended().await
            }
            Seen::Ended(ended) => ended,
        };
        let met = plan.times_met() > 0;
        let settled = matches!(seen, Seen::Settled | Seen::Paused);
        match (ended.code(), ended.signal()) {
            (Some(0), None) if settled => {}
            (None, Some(9)) if met && fault.action.is_kill() => {}
            (Some(NOT_WRITABLE), None) if met && !log.contains("the source is up") => {}
            _ => panic!("{fault:?} ended it with {ended}\n{}", self.place.logs()),
        }
        (met, ended.success())
    }

    /// Runs without a fault until all calls are journaled, and checks the result.
    async fn finish(mut self) {
        let mut program = self.start(None);
        let seen = self.watch(&mut program, false).await;
        assert!(matches!(seen, Seen::Settled), "{seen:?}\n{}", program.log());
        program.terminate().await;
        self.judge().await;
    }

    /// Checks that all calls are journaled once with the right fields, the file is undamaged, the
    /// books balance, and the client followed the document. Not even the exceptions for a crash
    /// (§4.5.4) are allowed.
    async fn judge(&self) {
        let expected = recordings::expected(&self.calls);
        let mut wrong = crm::compare(&self.crm, &[], &expected);
        wrong.extend(crm::conduct(&self.crm, |_| false));
        assert!(
            wrong.is_empty(),
            "{}\n{}",
            wrong.join("\n"),
            self.place.logs()
        );
        assert_eq!(self.crm.journal().len(), CALLS);
        let state = self.place.at("state");
        let file = rusqlite::Connection::open(state.join("spool.db")).expect("opens");
        let words: String = file
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .expect("an answer");
        assert_eq!(words, "ok");
        drop(file);
        let (handle, guard) = spool::open(&state, spool::Settings::default()).expect("opens");
        let read = handle.read(|store| Ok((store.books(), tables::books::recount(store)?)));
        let (books, recount) = read.await.expect("readable");
        assert!(books.balance(), "{books:?}");
        assert_eq!(
            (books.finished, books.journaled),
            (CALLS as u64, CALLS as u64)
        );
        assert_eq!(recount, []);
        guard.close();
    }
}

fn is_settled(status: &Status) -> bool {
    status.books.finished >= CALLS as u64 && status.books.settled()
}

/// Returns `true` if the status shows a pause because of the disk, with a fix.
fn is_disk_pause_reported(status: &Status) -> bool {
    let pause = status.pause.as_ref();
    pause.is_some_and(|pause| pause.reason == "disk" && pause.fix.contains("disk"))
}

/// Runs the scenario with one fault per run, and then once without a fault. Returns how many of the
/// faults took place.
pub async fn run(faults: &[Fault]) -> usize {
    let mut scenario = Scenario::new().await;
    let mut met = 0;
    for fault in faults {
        let (took_place, ended_well) = scenario.run_with_fault(*fault).await;
        met += usize::from(took_place);
        if ended_well {
            break;
        }
    }
    soon("the judgment", scenario.finish()).await;
    met
}

/// Returns the number of writes and syncs of a run without a fault, from its start to its stop.
pub async fn count_operations() -> (u64, u64) {
    let mut scenario = Scenario::new().await;
    let fault = Fault {
        action: Action::Nothing,
        nth: 0,
        on: false,
    };
    let plan = Plan::create(&scenario.place.at("plan"), fault);
    let mut program = scenario.start(Some(&plan));
    let seen = scenario.watch(&mut program, false).await;
    assert!(matches!(seen, Seen::Settled), "{seen:?}");
    program.terminate().await;
    (plan.writes(), plan.syncs())
}
