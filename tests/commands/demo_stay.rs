//! Tests `demo --stay` as a program.

use crate::commands::sidecar::{Place, json_lines, poll_until};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn staying_demo_ends_on_sigterm_and_sigint() {
    let place = Place::new();
    for (name, signal) in [("one", Signal::TERM), ("two", Signal::INT)] {
        let demo = place.start_as(name, &["demo", "--stay", "--json"]);
        poll_until("a demo that stays", async || {
            demo.out()
                .contains("staying until interrupted")
                .then_some(())
        })
        .await;
        let out = place.path(&format!("{name}.out"));
        assert_eq!(demo.log(), "", "a log line would break the table");
        assert_eq!(demo.end(signal).await, 0, "{signal:?}");
        let reports = json_lines(&std::fs::read_to_string(out).expect("the output"));
        let last = reports.last().expect("a line");
        assert_eq!(last["books"]["finished"], json!(7));
    }
}
