//! Tests managers that treat filters and classes as old releases do.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::live;
use crate::support::program::Place;
use crate::support::recordings::{self, Recording};
use callbridge_model::Status;
use callbridge_model::status::{OverallState, RightKind, SourceState};
use callbridge_testbed::agents;
use callbridge_testbed::pbx::{FakePbx, Release};
use futures_util::future::join_all;

const TRUNKS: [&str; 2] = [
    "--trunk=city=SIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
    "--trunk=gsm=SIP/gsm,country=UZ,strip=8,lead=var:LEAD_ID",
];
/// AMI 1.8 does not report conferences.
const INCOMPLETE: [(&str, &str); 1] = [("1.8", "conference")];

/// Returns the recordings of a release. Each call has its own id, and queue phones are reported as
/// with the settings that the release ships.
fn told(name: &str) -> Vec<Recording> {
    let mut told = recordings::of_release(name);
    assert_eq!(told.len(), 24, "the recordings of {name}");
    for recording in &mut told {
        recording.ami = agents::called(&recording.ami);
        let several = recording.calls.len() > 1;
        let ids = several.then(|| recording.ids_by_caller());
        for call in &mut recording.calls {
            if let Some(ids) = &ids {
                let caller = call["clientPhone"].as_str().expect("a number");
                call["linkedid"] = ids[caller].as_str().into();
            }
            // From Asterisk 12 on, a channel stays in its bridge when it dials a feature code. That
            // time counts as talk.
            let by_rule = call.get("talkTimeSecByBridgeRule").cloned();
            if let Some(by_rule) = by_rule.filter(|_| name == "13") {
                call["talkTimeSec"] = by_rule;
            }
            if INCOMPLETE.contains(&(name, &recording.name)) {
                call["reason"] = "incomplete".into();
            }
        }
    }
    told
}

/// Plays every recording of a release through a manager of that release.
async fn hears(name: &str, release: Release) {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    pbx.is_of(release);
    pbx.lists_no_channels();
    let source = place.ami(&pbx);
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    pbx.is_asked("Action: CoreShowChannels").await;
    let calls = live::moved_to_soon(&told(name));
    live::send_events(&pbx, &calls).await;
    let expected = recordings::expected(&calls);
    let finished = u64::try_from(expected.len()).expect("few");
    program.settled(finished).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &expected);
}

/// Returns how often this action was requested.
fn asked(pbx: &FakePbx, action: &str) -> usize {
    let asked = pbx.asked().into_iter();
    asked.filter(|it| it.starts_with(action)).count()
}

#[tokio::test]
async fn old_ami_filter_rules_lose_no_recorded_call() {
    let releases = [
        ("1.8", Release::V1_8),
        ("11", Release::V11),
        ("13", Release::V13),
    ];
    join_all(releases.map(|(name, release)| hears(name, release))).await;
}

#[tokio::test]
async fn ami_filter_that_blocks_all_events_is_reported_and_dropped() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    pbx.is_of(Release::Mute);
    pbx.lists_no_channels();
    let source = place.ami(&pbx);
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    pbx.logged_in(2).await;
    // Pings are 20 s apart, the first at once. The third is 40 s after the login.
    assert!(asked(&pbx, "Action: Ping") <= 3, "{:?}", pbx.asked());
    let filters = asked(&pbx, "Action: Filter");
    assert!(filters > 30, "the first login asked for filters");
    let named = |it: &Status| {
        let missing_rights = &it.sources[0].missing_rights;
        missing_rights
            .iter()
            .any(|right| right.kind == RightKind::Filter)
    };
    let status = program.until("the filter named", named).await;
    assert_eq!(status.verdict, OverallState::Ok, "it is mended by itself");
    // Without filters, the manager returns callbridge's own event, even without a call.
    let up = |it: &Status| it.sources[0].state == SourceState::Up && named(it);
    program.until("a line that is up", up).await;
    assert_eq!(asked(&pbx, "Action: Filter"), filters, "and asks for none");
    assert!(place.logs().contains("logged in again without it"));

    let calls = live::moved_to_soon(&told("11"));
    live::send_events(&pbx, &calls).await;
    let expected = recordings::expected(&calls);
    let finished = u64::try_from(expected.len()).expect("few");
    program.settled(finished).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &expected);
}
