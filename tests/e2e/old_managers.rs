//! Are calls heard from a manager that treats filters and classes as old releases do?

use crate::crm::{self, RATE_FLAG};
use crate::pbx::{self, Pbx, Release};
use crate::program::Place;
use crate::recordings::{self, Recording};
use futures_util::future::join_all;

const TRUNKS: [&str; 2] = [
    "--trunk=city=SIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
    "--trunk=gsm=SIP/gsm,country=UZ,strip=8,lead=var:LEAD_ID",
];
/// Of these AMI 1.x does not tell all, or the story gives one id to three calls or the talk by
/// another rule: `tests/old_releases.rs` has them.
const APART: [&str; 7] = [
    "callback_customer_first",
    "queue_abandoned",
    "conference",
    "blonde_transfer_dtmf",
    "attended_transfer_dtmf",
    "blind_transfer_dtmf",
    "three_at_once",
];

/// Every recording of a release, told by a manager of it.
async fn hears(name: &str, release: Release) {
    let (place, crm, pbx) = (Place::new(), crm::start().await, Pbx::ami().await);
    pbx.is_of(release);
    pbx.lists_no_channels();
    let secret = place.write("secret", pbx::SECRET);
    let source = format!("--source=ami://bridge@{}?secret-file={secret}", pbx.addr());
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    pbx.is_asked("Action: CoreShowChannels").await;
    let mut told = recordings::of_release(name);
    told.retain(|recording| !APART.contains(&recording.name.as_str()));
    assert!(told.len() >= 17, "only {} recordings", told.len());
    for recording in &told {
        let events: Vec<u8> = Recording::events(recording).collect::<Vec<_>>().concat();
        pbx.say(&events).await;
    }
    let expected = recordings::expected(&told);
    let finished = u64::try_from(expected.len()).expect("few");
    program.settled(finished).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &expected);
}

#[tokio::test]
async fn every_recording_is_journaled_from_a_manager_that_treats_filters_as_its_release_does() {
    let releases = [
        ("1.8", Release::V1_8),
        ("11", Release::V11),
        ("13", Release::V13),
    ];
    join_all(releases.map(|(name, release)| hears(name, release))).await;
}
