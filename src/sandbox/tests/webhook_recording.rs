//! What is recorded, when, for whom, and what the body says (§6.1, §6.5–6.8).

use super::{NOW, accepted, after, call, sandbox};
use crate::sandbox::Sandbox;
use crate::sandbox::webhook::{Config, Row};
use serde_json::{Value, json};

/// A sandbox whose application 1 is subscribed to these.
pub(super) fn subscribed(events: &[&str]) -> Sandbox {
    let mut core = sandbox();
    configure(&mut core, 1, events);
    core
}

pub(super) fn configure(core: &mut Sandbox, application: i64, events: &[&str]) {
    let config = Config {
        target_url: "https://hooks.example.com/webhooks".to_owned(),
        events: events.iter().map(|name| (*name).to_owned()).collect(),
        enabled: true,
        secret: None,
    };
    core.configure_webhook(NOW, application, config, false);
}

pub(super) fn rows(core: &Sandbox) -> Vec<&Row> {
    core.webhooks().rows().values().collect()
}

pub(super) fn body(core: &Sandbox, row: &Row) -> Value {
    row.recorded.body(&core.settings().shapes.webhook)
}

#[test]
fn a_submission_is_told_when_it_is_journaled_and_not_before() {
    let mut core = subscribed(&["CALL_COMPLETED"]);
    accepted(&mut core, NOW, &call());
    assert!(rows(&core).is_empty(), "accepted is not yet written");
    core.tick(after(1));
    let [row] = rows(&core)[..] else {
        panic!("one row");
    };
    let told = body(&core, row);
    assert_eq!(told["eventType"], "CALL_COMPLETED");
    assert_eq!(told["call"]["callId"], "oapi-u-1");
    assert_eq!(told["call"]["leadIds"], json!([4001]));
}
