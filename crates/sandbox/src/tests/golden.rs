//! Lines of the state file as released versions have written them: read for ever, and written so.

use super::lead_fields::{admin, done, post, with_leads};
use super::webhook_recording::{config, install};
use super::{NOW, TOKEN, after, call, call_with, submit};
use crate::core::{Change, Logged};
use crate::lead::LeadChange;
use crate::oauth::connection;
use crate::webhook::dispatch;
use crate::{Request, Sandbox, oauth, webhook};
use callbridge_testkit::golden::keeps;
use serde_json::json;
use std::collections::BTreeSet;

/// The word of a change. A new one does not compile: name it here, and put a line of it into the
/// newest `tests/golden/sandbox-state….json`, as the next file.
const fn word(change: &Change) -> &'static str {
    match change {
        Change::Issued { .. } => "issued",
        Change::Revoked { .. } => "revoked",
        Change::Expires { .. } => "expires",
        Change::Started(_) => "started",
        Change::Company(_) => "company",
        Change::Counted { .. } => "counted",
        Change::Accepted(_) => "accepted",
        Change::Added(_) => "added",
        Change::Deleted { .. } => "deleted",
        Change::Edited(_) => "edited",
        Change::Ahead(_) => "ahead",
        Change::Broken(_) => "broken",
        Change::Lead(LeadChange::Saved { .. }) => "lead saved",
        Change::Lead(LeadChange::Imported { .. }) => "lead imported",
        Change::Lead(LeadChange::Merged { .. }) => "lead merged",
        Change::Lead(LeadChange::Deleted { .. }) => "lead deleted",
        Change::Lead(LeadChange::Revived { .. }) => "lead revived",
        Change::Lead(LeadChange::Ordered(_)) => "lead ordered",
        Change::Webhook(change) => webhook_word(change),
        Change::Oauth(change) => oauth_word(change),
    }
}

const fn webhook_word(change: &webhook::WebhookChange) -> &'static str {
    match change {
        webhook::WebhookChange::Configured { .. } => "webhook configured",
        webhook::WebhookChange::Deleted { .. } => "webhook deleted",
        webhook::WebhookChange::Installed { .. } => "webhook installed",
        webhook::WebhookChange::Secret { .. } => "webhook secret",
        webhook::WebhookChange::Revoked { .. } => "webhook revoked",
        webhook::WebhookChange::Attempted { .. } => "webhook attempted",
        webhook::WebhookChange::Died { .. } => "webhook died",
        webhook::WebhookChange::Happened(_) => "webhook happened",
    }
}

const fn oauth_word(change: &oauth::OAuthChange) -> &'static str {
    match change {
        oauth::OAuthChange::Started(_) => "oauth started",
        oauth::OAuthChange::Application(_) => "oauth application",
        oauth::OAuthChange::Connection(_) => "oauth connection",
        oauth::OAuthChange::Approved { .. } => "oauth approved",
        oauth::OAuthChange::Paired(_) => "oauth paired",
        oauth::OAuthChange::Disconnected { .. } => "oauth disconnected",
        oauth::OAuthChange::RefreshRevoked { .. } => "oauth refresh revoked",
    }
}

#[test]
fn the_lines_of_the_state_file() {
    keeps::<Vec<Logged>>("sandbox-state");
}

#[test]
fn every_change_that_is_written_stands_in_the_golden_file() {
    let golden = include_bytes!("../../tests/golden/sandbox-state.5.json");
    let golden: Vec<Logged> = serde_json::from_slice(golden).expect("changes");
    let golden: BTreeSet<&str> = golden.iter().map(|logged| word(&logged.change)).collect();
    let log = a_life();
    let written: BTreeSet<&str> = log.iter().map(|logged| word(&logged.change)).collect();
    assert_eq!(written, golden);
    assert_eq!(
        golden.len(),
        32,
        "each word of the three above but `happened`"
    );
}

/// A log in which everything happens that is logged.
fn a_life() -> Vec<Logged> {
    let mut core = with_leads();
    let grants = core.companies[&1].grants.clone();
    let settings = core.settings_mut();
    settings.keep_log = true;
    "Another name".clone_into(&mut settings.company.name);
    settings.company.grants = grants;
    settings.oauth.application = Some(super::oauth::application());
    settings.lead_list =
        crate::lead::list::parse("leadId,phone,name\n6001,,Vali\n").expect("a list");
    core.begin(NOW, "svc_pat_second", None);
    core.issue_pat(NOW, TOKEN, None);
    calls_and_leads(&mut core);
    consents(&mut core);
    deliveries(&mut core);
    core.expire(after(90), TOKEN, None);
    core.revoke(after(90), TOKEN);
    admin(&mut core, "clock", &json!({ "aheadSec": 60 }));
    core.take_log()
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
    core.edit_record(after(3), record);
    core.delete_record(after(3), &uuid);
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
    connection::register(core, after(12), super::oauth::application());
    super::oauth::connected(core, after(13));
    assert!(connection::disconnect(core, after(14), super::oauth::ID, 1));
}

fn deliveries(core: &mut Sandbox) {
    webhook::configure_webhook(core, after(20), 1, config(&["LEAD"]), false);
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
}
