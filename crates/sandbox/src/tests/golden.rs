//! Tests that the sandbox can read the golden state file, and that it writes the same JSON.

use super::lead_fields::{admin, post, run_write, sandbox_with_lead_grants};
use super::webhook_recording::{config, install};
use super::{NOW, TOKEN, call, call_with, now_plus, submit};
use crate::oauth::connection;
use crate::webhook::dispatch;
use crate::{Request, Sandbox, Settings, webhook};
use callbridge_testkit::golden::keeps;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn golden_state_file_is_read_and_written_unchanged() {
    keeps::<Sandbox>("sandbox-snapshot");
}

/// Adds the path of each value in `value` to `found`, such as `.leads.*.name`. `above` is the path
/// of `value`. All ids count as the key `*`, and all positions in lists as `[]`.
fn places(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let named = key.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
                let key = if named { key } else { "*" };
                places(value, &format!("{above}.{key}"), found);
            }
        }
        Value::Array(items) => {
            for item in items {
                places(item, &format!("{above}[]"), found);
            }
        }
        _ => {
            found.insert(above.to_owned());
        }
    }
}

#[test]
fn golden_file_contains_every_written_field() {
    let golden = include_bytes!("../../tests/golden/sandbox-snapshot.json");
    let golden: Value = serde_json::from_slice(golden).expect("JSON");
    let written = serde_json::to_value(sandbox_with_all_values()).expect("JSON");
    let [mut known, mut found] = [BTreeSet::new(), BTreeSet::new()];
    places(&golden, "", &mut known);
    places(&written, "", &mut found);
    assert_eq!(found, known, "put it into the next golden file: {written}");
}

#[test]
fn invalid_state_is_refused() {
    for text in [&b"{}"[..], b"no JSON"] {
        assert!(Sandbox::restore(text, Settings::default()).is_err());
    }
}

/// Returns a sandbox with a value in every stored field.
fn sandbox_with_all_values() -> Sandbox {
    let mut core = sandbox_with_lead_grants();
    let grants = core.companies[&1].grants.clone();
    let settings = &mut core.settings;
    "Another name".clone_into(&mut settings.company.name);
    settings.company.grants = grants;
    settings.application = Some(super::oauth::application());
    settings.lead_list =
        crate::lead::record::parse_list("leadId,phone,name\n6001,,Vali\n").expect("a list");
    core.begin(NOW, "svc_pat_second", None);
    core.issue_pat(NOW, TOKEN, None);
    add_calls_and_leads(&mut core);
    add_consents(&mut core);
    add_deliveries(&mut core);
    super::oauth::approve(&mut core, now_plus(80));
    admin(&mut core, "clock", &json!({ "aheadSec": 60 }));
    core.handle(now_plus(200), &submit(&call_with("uuid", json!("u-2"))));
    core.revoke(TOKEN);
    core
}

fn add_calls_and_leads(core: &mut Sandbox) {
    for second in [0, 2] {
        core.handle(
            now_plus(second),
            &submit(&call_with("answered", json!("yes"))),
        );
    }
    assert_eq!(run_write(core, "call-history", &call()), "SUCCESS");
    core.add_foreign(now_plus(3));
    let mut record = core.records()[0].clone();
    let uuid = record.call.uuid.clone();
    record.call.duration_sec = 7;
    core.tick(now_plus(3));
    core.journal.records[0] = record;
    core.delete_record(now_plus(3), &uuid);
    core.company(now_plus(3), |company| company.employees.remove(502));
    let fields = json!([{ "id": 11, "value": "x" }]);
    core.handle(now_plus(3), &post("lead/4001/field/list", &fields));
    for (act, body) in [
        (
            "lead",
            json!({ "id": 5001, "name": "Ali", "phone": "+998901112233" }),
        ),
        ("lead/merge", json!({ "into": 5001, "from": [4002] })),
        ("lead/delete", json!({ "id": 4003 })),
        ("leads", json!({ "add": [4003] })),
    ] {
        admin(core, act, &body);
    }
}

fn add_consents(core: &mut Sandbox) {
    let (_, token) = super::oauth::connect(core, now_plus(10));
    let request = super::oauth::revoke(&token);
    assert_eq!(core.handle(now_plus(11), &request).status, 200);
    connection::register(core, super::oauth::application());
    super::oauth::connect(core, now_plus(13));
    assert!(connection::disconnect(core, super::oauth::ID, 1));
}

fn add_deliveries(core: &mut Sandbox) {
    webhook::configure_webhook(core, 1, config(&["LEAD"]), false);
    install(core, 1, 3);
    let regenerate = json!({ "installation": 7001 });
    admin(core, "webhook/regenerate", &regenerate);
    for id in [5003, 5004] {
        admin(core, "lead", &json!({ "id": id, "name": "Ali" }));
    }
    let dispatch = dispatch::deliveries(core, now_plus(21)).pop().expect("due");
    let took = std::time::Duration::from_millis(5);
    dispatch::delivered(
        core,
        now_plus(21),
        &dispatch,
        &webhook::AttemptOutcome::Status(503),
        took,
    );
    core.handle(
        now_plus(22),
        &Request::post(
            "/sandbox/admin/webhook/revoke",
            &json!({ "installation": 7001 }),
        ),
    );
    dispatch::deliveries(core, now_plus(60));
    admin(core, "webhook/delete", &json!({}));
    webhook::configure_webhook(core, 1, config(&["LEAD"]), false);
}
