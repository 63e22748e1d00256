//! Tests `demo --stay` as a program.

use crate::commands::sidecar::{Place, json_lines, until};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn staying_demo_ends_on_sigterm_and_sigint() {
    let place = Place::new();
    for (name, signal) in [("one", Signal::TERM), ("two", Signal::INT)] {
        let demo = place.start_as(name, &["demo", "--stay", "--json"]);
        let staying = async || {
            demo.out()
                .contains("staying until interrupted")
                .then_some(())
        };
        until("a demo that stays", staying).await;
        let out = place.path(&format!("{name}.out"));
        assert_eq!(demo.log(), "", "the log would run through the table");
        assert_eq!(demo.end(signal).await, 0, "{signal:?}");
        let said = json_lines(&std::fs::read_to_string(out).expect("its output"));
        let last = said.last().expect("a line");
        assert_eq!(last["books"]["finished"], json!(7));
    }
}
