//! Tests that `explain --call` describes a call in the spool, both with and without a daemon.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, TRUNKS};
use serde_json::Value;

/// The recorded call's linkedid.
const CALL: &str = "1795163537.6";

/// Returns the timeline of the call that `explain` reads from the recording.
async fn timeline_from_recording(place: &Place) -> Value {
    let recorded = place.path("recorded");
    let format = "--format=ami";
    let flags = ["explain", format, "--json", "--call", CALL, &recorded];
    let flags = [&flags[..], &[TRUNKS[0], TRUNKS[1], "--pbx-id=pbx1"]].concat();
    let mut answer = place.lines(&flags).await;
    answer.remove(0)["timeline"].take()
}

#[tokio::test]
async fn stored_call_is_explained_and_drawn_with_and_without_daemon() {
    let place = Place::new();
    let crm = crm::start().await;
    place.write("recorded", recordings::one("attended_transfer").ami);
    let source = place.file("recorded", "ami");
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    program.settled(1).await;
    let recorded = timeline_from_recording(&place).await;
    assert!(
        recorded["talk"]
            .as_array()
            .is_some_and(|talk| talk.len() == 2)
    );
    let by_daemon = explain_stored_call(&place, CALL).await;
    assert_eq!(by_daemon["timeline"], recorded);
    program.terminate().await;
    let uuid = by_daemon["uuid"].as_str().expect("a uuid").to_owned();
    for id in [CALL, "1795163541.10", uuid.as_str(), &uuid[..6]] {
        assert_eq!(explain_stored_call(&place, id).await, by_daemon, "{id}");
    }
    let svg = std::fs::read_to_string(place.at("call.svg")).expect("a picture");
    assert_eq!(svg.matches("<g class=\"lane\">").count(), 5);
    let none = place.command(&["explain", "--call=1.1"]).await;
    assert_eq!(none.status.code(), Some(65));
}

/// Returns what `explain` reports about a call from the daemon, or from the spool if no daemon is
/// running. Also writes the call's picture to `call.svg`. `id` is a channel ID, a UUID, or the
/// start of a UUID.
async fn explain_stored_call(place: &Place, id: &str) -> Value {
    let picture = format!("--picture={}", place.path("call.svg"));
    let mut answer = place
        .lines(&["explain", "--json", "--call", id, &picture])
        .await;
    assert_eq!(answer.len(), 1, "{id}");
    answer.remove(0)
}
