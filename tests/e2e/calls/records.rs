//! Tests calls that are only reported by call detail records, which come from a queue, from a file,
//! or from an AMI account that doesn't receive anything else. In one test, callbridge is killed
//! between two records of the same call.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, Recording};
use callbridge_sandbox::Server;
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::wait::until;

/// Trunks whose leads are in the CDRs.
const TRUNKS: [&str; 2] = [
    r"--trunk=city=PJSIP/city,country=UZ,strip=9,lead=userfield:lead=(\d+)",
    r"--trunk=gsm=PJSIP/gsm,country=UZ,strip=9,lead=userfield:lead=(\d+)",
];

/// Returns calls that are described correctly by CDRs. Most of them have several records.
fn calls_in_cdrs() -> Vec<Recording> {
    [
        "inbound_answered",
        "inbound_no_answer",
        "ring_group",
        "queue_second_agent",
        "outbound_answered",
        "blind_transfer",
        "carrier_failover",
        "queue_local_members",
        "attended_transfer",
        "voicemail",
    ]
    .map(recordings::one)
    .to_vec()
}

/// Declares a CDR queue, and returns the flags for a daemon whose only source it is.
async fn declare_queue(place: &Place, name: &str) -> Vec<String> {
    let broker = Broker::shared();
    broker.declare(name).await;
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url(broker::ADMINISTRATOR);
    let source = format!("--source={base}?queue={name}&format=asterisk-cdr&secret-file={secret}");
    let flags = [
        source.as_str(),
        TRUNKS[0],
        TRUNKS[1],
        RATE_FLAG,
        "--cdr-wait=1s",
    ];
    flags.map(str::to_owned).to_vec()
}

fn count_calls(calls: &[Recording]) -> u64 {
    u64::try_from(recordings::expected(calls).len()).expect("few")
}

async fn assert_journal(crm: &Server, place: &Place, calls: &[Recording]) {
    let letters = place.letters().await;
    crm::judge(crm, &letters, &recordings::expected(calls));
}

#[tokio::test]
async fn cdrs_from_a_queue_as_the_only_source_are_journaled_as_calls() {
    let (place, crm) = (Place::new(), crm::start().await);
    let flags = declare_queue(&place, "records-alone").await;
    let calls = calls_in_cdrs();
    let bodies: Vec<String> = calls.iter().flat_map(Recording::cdrs).collect();
    assert!(
        bodies.len() > calls.len() + 5,
        "only {} records",
        bodies.len()
    );
    Broker::shared().publish("records-alone", &bodies).await;
    let mut program = place.run(&crm.url(), &flags);
    let status = program.settled(count_calls(&calls)).await;
    assert!(status.books.balance(), "{:?}", status.books);
    program.terminate().await;
    assert_eq!(Broker::shared().depth("records-alone").await, 0);
    assert_journal(&crm, &place, &calls).await;
}

#[tokio::test]
async fn kill_between_two_records_of_one_call_leaves_one_call() {
    let (place, crm) = (Place::new(), crm::start().await);
    let mut flags = declare_queue(&place, "records-killed").await;
    let calls = vec![recordings::one("queue_second_agent")];
    let bodies = calls[0].cdrs();
    assert_eq!(bodies.len(), 2);
    flags.retain(|flag| flag != "--cdr-wait=1s");
    // The wait for more records is longer than all kills together take.
    let patient_flags = [&flags[..], &["--cdr-wait=10m".to_owned()]].concat();
    for body in bodies.chunks(1) {
        Broker::shared().publish("records-killed", body).await;
        // A record that wasn't acknowledged before the kill is in the queue again.
        while Broker::shared().depth("records-killed").await > 0 {
            let mut program = place.run(&crm.url(), &patient_flags);
            program
                .until("a record", |status| status.sources[0].read > 0)
                .await;
            program.kill().await;
            until("the end of the connection", async || {
                Broker::shared().consumers("records-killed").await == 0
            })
            .await;
        }
    }
    assert!(crm.journal().is_empty());
    flags.push("--cdr-wait=1s".to_owned());
    let mut program = place.run(&crm.url(), &flags);
    program.settled(1).await;
    program.terminate().await;
    assert_journal(&crm, &place, &calls).await;
}

#[tokio::test]
async fn ami_source_with_only_cdr_events_journals_calls() {
    let (place, crm) = (Place::new(), crm::start().await);
    let calls = calls_in_cdrs();
    let events = calls.iter().flat_map(Recording::events);
    let cdrs = events.filter(|event| event.starts_with(b"Event: Cdr"));
    let text: Vec<u8> = cdrs.flat_map(|cdr| [cdr, b"\r\n\r\n"].concat()).collect();
    place.write("recorded", text);
    let source = place.file("recorded", "ami");
    let zone = "--pbx-timezone=UTC";
    let flags = [
        &source,
        TRUNKS[0],
        TRUNKS[1],
        RATE_FLAG,
        zone,
        "--until-idle",
    ];
    place.run(&crm.url(), &flags).expect_success().await;
    assert_journal(&crm, &place, &calls).await;
}
