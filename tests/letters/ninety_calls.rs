//! 90 calls of which every third has a lead that the CRM does not know: the rest is journaled,
//! the 30 are dead letters, and after a retry with another lead they are journaled, too.

use crate::calls::{Call, recording};
use crate::sidecar::{PBX, Place, crm};
use callbridge::sandbox::Server;
use callbridge::sandbox::window::Rate;
use std::collections::BTreeSet;
use std::time::Duration;

const CALLS: u32 = 90;
const UNKNOWN_LEAD: i64 = 9001;

fn calls() -> Vec<Call> {
    let lead = |n: u32| {
        if n.is_multiple_of(3) {
            UNKNOWN_LEAD
        } else {
            4002
        }
    };
    (1..=CALLS).map(|n| Call::new(n, lead(n))).collect()
}

fn uuids<'a>(calls: impl IntoIterator<Item = &'a Call>) -> BTreeSet<String> {
    calls.into_iter().map(|call| call.uuid(PBX)).collect()
}

/// 60 requests in 6 s: the service's rate, ten times as fast.
async fn strict_crm() -> Server {
    crm(|config| {
        config.settings.rate = Rate {
            requests: 60,
            window: Duration::from_secs(6),
        };
        config.settings.persist_after = Duration::from_millis(200);
    })
    .await
}

fn flags(place: &Place, crm: &Server) -> Vec<String> {
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push("--rate=60/6s".to_owned());
    flags
}

/// Every call once under its own uuid, those retried with their new lead; the limit was kept.
fn all_is_journaled(crm: &Server, calls: &[Call]) {
    let journal = crm.journal();
    let sent: BTreeSet<String> = journal
        .iter()
        .map(|record| record.call.uuid.clone())
        .collect();
    assert_eq!((journal.len(), sent), (calls.len(), uuids(calls)));
    for call in calls {
        let uuid = call.uuid(PBX);
        let record = journal
            .iter()
            .find(|record| record.call.uuid == uuid)
            .expect("a record");
        let lead = if call.lead == Some(UNKNOWN_LEAD) {
            4001
        } else {
            4002
        };
        assert_eq!(record.call.lead_id, lead, "{call:?}");
        assert_eq!(record.call.started_at, call.begins);
        assert_eq!(record.call.talk_time_sec, Some(4));
    }
    let fullest = crm.admin(|core, _| core.fullest());
    assert!(fullest.in_a_window <= 60, "{fullest:?}");
    assert_eq!(crm.breaches(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_of_ninety_calls_die_and_are_journaled_after_a_retry_while_the_daemon_runs() {
    let (place, crm, calls) = (Place::new(), strict_crm().await, calls());
    place.write("calls.ami", recording(&calls));
    let daemon = place.run(&flags(&place, &crm)).await;
    place.reaches("/books/journaled", 60).await;
    place.reaches("/books/dead", 30).await;
    let letters = place.letters("--reason failed").await;
    let dead: BTreeSet<String> = letters
        .iter()
        .map(|letter| letter["uuid"].as_str().expect("a uuid").to_owned())
        .collect();
    let unknown = calls.iter().filter(|call| call.lead == Some(UNKNOWN_LEAD));
    assert_eq!((letters.len(), dead), (30, uuids(unknown)));
    let retried = place
        .ask("dead retry --reason failed --lead 4001")
        .await
        .well();
    assert_eq!(retried.lines().count(), 30, "{retried}");
    assert!(
        retried
            .lines()
            .all(|line| line.ends_with("ready, lead 4001")),
        "{retried}"
    );
    place.reaches("/books/journaled", 90).await;
    assert_eq!(place.letters("").await, [] as [serde_json::Value; 0]);
    daemon.stop().await;
    all_is_journaled(&crm, &calls);
}
