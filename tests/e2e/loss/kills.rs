//! Tests that every call is journaled once if callbridge is repeatedly killed while it's working.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, LEADS, Recording, TRUNKS, consecutive};
use callbridge_sandbox::{Action, Endpoint, Rule, Server};
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::expected::Expected;
use callbridge_testbed::wait::soon;
use std::time::Duration;

/// Number of calls per test.
const CALLS: usize = 200;
/// Number of kills per test. Before each kill, the PBX reports a tenth of the calls.
const KILLS: usize = 10;

/// When a kill happens. A run lasts from when the program is started until the kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// When the program responds to commands.
    Start,
    /// When this many calls have finished, including those in earlier runs.
    Intake(u64),
    /// When the CRM has accepted this many calls in this run, and has received another one that it
    /// doesn't respond to.
    NoAnswer(u64),
    /// When the CRM has accepted this many calls in this run, before the program stores the
    /// response.
    BeforeCommit(u64),
    /// When this many of this run's calls are in the journal.
    Confirmed(usize),
}

/// The moments of the kills in one test.
const MOMENTS: [Moment; KILLS] = [
    Moment::Intake(2),
    Moment::BeforeCommit(9),
    Moment::NoAnswer(14),
    Moment::Start,
    Moment::BeforeCommit(1),
    Moment::Confirmed(12),
    Moment::NoAnswer(3),
    Moment::Intake(141),
    Moment::BeforeCommit(23),
    Moment::Confirmed(1),
];

/// Returns the number of submissions accepted by the CRM.
fn count_accepted(crm: &Server) -> u64 {
    crm.admin(|core, _| core.journal.accepted())
}

/// Waits for a condition, checking without a pause, so that the kill happens at exactly the right
/// moment. `what` describes the condition for the message in case of a timeout.
async fn spin_until(what: &str, mut condition: impl FnMut() -> bool) {
    let spinning = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    soon(what, spinning).await;
}

/// Waits for the moment and kills the program.
async fn kill_at(moment: Moment, mut program: Program, crm: &Server) {
    let (what, before) = (format!("{moment:?}"), count_accepted(crm));
    let confirmed = crm.journal().len();
    match moment {
        Moment::Start => {
            program.until(&what, |_| true).await;
        }
        Moment::Intake(calls) => {
            let finished = program.until(&what, |status| status.books.finished >= calls);
            finished.await;
        }
        Moment::NoAnswer(calls) => {
            spin_until(&what, || count_accepted(crm) >= before + calls).await;
            let fault = Action::Delay(Duration::from_secs(600));
            let fault = Rule::always(Endpoint::CallHistory, fault);
            let before = crm.admin(|core, _| {
                core.set_faults(vec![fault]);
                core.journal.accepted()
            });
            spin_until(&what, || count_accepted(crm) > before).await;
        }
        Moment::BeforeCommit(calls) => {
            spin_until(&what, || count_accepted(crm) >= before + calls).await;
        }
        Moment::Confirmed(calls) => {
            spin_until(&what, || crm.journal().len() >= confirmed + calls).await;
        }
    }
    program.kill().await;
    crm.admin(|core, _| core.set_faults(Vec::new()));
}

/// Checks that all calls were journaled and sent once. If a kill interrupted a request, callbridge
/// must look for the call in the journal before resending it.
fn judge(place: &Place, crm: &Server, expected: &[Expected]) {
    let mut problems = crm::compare(crm, &[], expected);
    problems.extend(crm::conduct(crm, |_| false));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(crm.journal().len(), CALLS);
    let repeated = count_accepted(crm) - u64::try_from(CALLS).expect("few");
    assert_eq!(repeated, 0, "calls of the journal were sent again");
    let interrupted = place
        .logs()
        .matches("under way when callbridge last stopped")
        .count();
    assert!(
        interrupted >= 2,
        "no kill came between a request and the commit of the answer"
    );
}

/// Promise: `kill -9` loses no call and doubles none.
#[tokio::test]
async fn calls_from_file_survive_ten_kills_and_are_journaled_once() {
    let (place, crm, calls) = (Place::on_disk(), crm::start().await, consecutive(CALLS));
    let text = calls.iter().map(|call| call.ami.as_slice());
    let text = text.collect::<Vec<_>>().concat();
    // A part may end in the middle of a call, an event, or a line.
    let mut parts = text.chunks(text.len().div_ceil(KILLS));
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
    for moment in MOMENTS {
        place.append("recorded", parts.next().unwrap_or_default());
        let program = place.run(&crm.url(), &flags);
        kill_at(moment, program, &crm).await;
    }
    let flags = [&flags[..], &["--until-idle"]].concat();
    place.run(&crm.url(), &flags).expect_success().await;
    let status = place.lines(&["status", "--json"]).await;
    let books = &status[0]["books"];
    assert_eq!(
        (&books["finished"], &books["journaled"]),
        (&200.into(), &200.into())
    );
    judge(&place, &crm, &recordings::expected(&calls));
}

/// Promise: `kill -9` loses no call and doubles none.
#[tokio::test]
async fn calls_from_queue_survive_ten_kills_and_are_journaled_once() {
    let (place, crm, calls) = (Place::on_disk(), crm::start().await, consecutive(CALLS));
    let (broker, queue) = (Broker::shared(), "kills");
    broker.declare(queue).await;
    let bodies: Vec<String> = calls.iter().flat_map(Recording::cel).collect();
    let mut parts = bodies.chunks(bodies.len().div_ceil(KILLS));
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url(broker::ADMINISTRATOR);
    let source = format!("--source={base}?queue={queue}&format=asterisk-cel&secret-file={secret}");
    let leads = place.write("leads.csv", LEADS);
    let trunk = format!("--trunk=city=PJSIP/city,country=UZ,strip=9,lead=csv:{leads}");
    let flags = [&source, &trunk, RATE_FLAG];
    for moment in MOMENTS {
        broker
            .publish(queue, parts.next().unwrap_or_default())
            .await;
        let program = place.run(&crm.url(), &flags);
        kill_at(moment, program, &crm).await;
    }
    let mut program = place.run(&crm.url(), &flags);
    let status = program.settled(200).await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!((status.books.finished, status.books.journaled), (200, 200));
    program.terminate().await;
    assert_eq!(broker.depth(queue).await, 0);
    judge(&place, &crm, &recordings::expected(&calls));
}
