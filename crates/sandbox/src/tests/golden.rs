//! The stored state file: the golden file can be read, and is written in the same way.

use super::lead_fields::{admin, done, post, with_leads};
use super::webhook_recording::{config, install};
use super::{NOW, TOKEN, after, call, call_with, submit};
use crate::oauth::connection;
use crate::webhook::dispatch;
use crate::{Request, Sandbox, Settings, webhook};
use callbridge_testkit::golden::keeps;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn state_file() {
    keeps::<Sandbox>("sandbox-snapshot");
}

/// Collects the keys that lead to values. All ids and positions count as the same key.
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
            let each = |item| places(item, &format!("{above}[]"), found);
            items.iter().for_each(each);
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
    let written = serde_json::to_value(a_life()).expect("JSON");
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

/// A sandbox with a value in every stored field.
fn a_life() -> Sandbox {
    let mut core = with_leads();
    let grants = core.companies[&1].grants.clone();
    let settings = &mut core.settings;
    "Another name".clone_into(&mut settings.company.name);
    settings.company.grants = grants;
    settings.application = Some(super::oauth::application());
    settings.lead_list =
        crate::lead::record::parse_list("leadId,phone,name\n6001,,Vali\n").expect("a list");
    core.begin(NOW, "svc_pat_second", None);
    core.issue_pat(NOW, TOKEN, None);
    calls_and_leads(&mut core);
    consents(&mut core);
    deliveries(&mut core);
    super::oauth::approved(&mut core, after(80));
    admin(&mut core, "clock", &json!({ "aheadSec": 60 }));
    core.handle(after(200), &submit(&call_with("uuid", json!("u-2"))));
    core.revoke(TOKEN);
    core
}

fn calls_and_leads(core: &mut Sandbox) {
    for second in [0, 2] {
        core.handle(after(second), &submit(&call_with("answered", json!("yes"))));
    }
    assert_eq!(done(core, "call-history", &call()), "SUCCESS");
    core.add_foreign(after(3));
    let mut record = core.records()[0].clone();
    let uuid = record.call.uuid.clone();
    record.call.duration_sec = 7;
    core.tick(after(3));
    core.journal.records[0] = record;
    core.delete_record(after(3), &uuid);
    core.company(after(3), |company| company.employees.remove(502));
    let fields = json!([{ "id": 11, "value": "x" }]);
    core.handle(after(3), &post("lead/4001/field/list", &fields));
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

fn consents(core: &mut Sandbox) {
    let (_, token) = super::oauth::connected(core, after(10));
    let request = super::oauth::revoke(&token);
    assert_eq!(core.handle(after(11), &request).status, 200);
    connection::register(core, super::oauth::application());
    super::oauth::connected(core, after(13));
    assert!(connection::disconnect(core, super::oauth::ID, 1));
}

fn deliveries(core: &mut Sandbox) {
    webhook::configure_webhook(core, 1, config(&["LEAD"]), false);
    install(core, 1, 3);
    let regenerate = json!({ "installation": 7001 });
    admin(core, "webhook/regenerate", &regenerate);
    for id in [5003, 5004] {
        admin(core, "lead", &json!({ "id": id, "name": "Ali" }));
    }
    let dispatch = dispatch::deliveries(core, after(21)).pop().expect("due");
    let took = std::time::Duration::from_millis(5);
    dispatch::delivered(
        core,
        after(21),
        &dispatch,
        &webhook::AttemptOutcome::Status(503),
        took,
    );
    core.handle(
        after(22),
        &Request::post(
            "/sandbox/admin/webhook/revoke",
            &json!({ "installation": 7001 }),
        ),
    );
    dispatch::deliveries(core, after(60));
    admin(core, "webhook/delete", &json!({}));
    webhook::configure_webhook(core, 1, config(&["LEAD"]), false);
}
