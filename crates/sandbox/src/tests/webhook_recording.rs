//! Tests of the recording of events: which events, when, and for which installations (§6.1, §6.2).

use super::{
    NOW, TOKEN, call, call_with, info, now_plus, restart_sandbox, sandbox, submit_accepted,
};
use crate::lead::Lead;
use crate::webhook::event::{GROUPS, NAMES};
use crate::webhook::{Config, CrmEvent, DeliveryRow, Installation};
use crate::{Request, Sandbox, webhook};
use serde_json::{Value, json};

/// Returns a sandbox whose application 1 is subscribed to these events. The installation of the
/// application in company 1 is 7001.
pub(super) fn subscribed_sandbox(events: &[&str]) -> Sandbox {
    let mut core = sandbox();
    configure(&mut core, 1, events);
    core
}

pub(super) fn config(events: &[&str]) -> Config {
    Config {
        target_url: "https://hooks.example.com/webhooks".to_owned(),
        events: events.iter().map(|name| (*name).to_owned()).collect(),
        enabled: true,
        secret: None,
    }
}

pub(super) fn configure(core: &mut Sandbox, application: i64, events: &[&str]) {
    webhook::configure_webhook(core, application, config(events), false);
}

/// Installs an application in a company, and returns the id of the installation.
pub(super) fn install(core: &mut Sandbox, company: i64, application: i64) -> i64 {
    let installation = 7_001 + i64::try_from(core.webhooks.installations.len()).expect("few");
    let record = Installation {
        company,
        application,
        secret: None,
        revoked: false,
    };
    core.webhooks.installations.insert(installation, record);
    installation
}

/// Sends `body` to the admin path `act`, and returns the body of the answer.
pub(super) fn admin(core: &mut Sandbox, act: &str, body: &Value) -> Value {
    let request = crate::Request::post(&format!("/sandbox/admin/{act}"), body);
    let answer = core.handle(NOW, &request);
    assert_eq!(answer.status, 200, "{act}: {}", answer.value());
    answer.value()
}

pub(super) fn rows(core: &Sandbox) -> Vec<DeliveryRow> {
    core.webhooks.rows.values().cloned().collect()
}

pub(super) fn body(core: &Sandbox, row: &DeliveryRow) -> Value {
    row.recorded.body(&core.settings.shapes)
}

/// Returns an event with this name about a lead that has only an id and a name.
pub(super) fn lead_event(name: &'static str, id: i64) -> CrmEvent {
    let lead = Lead {
        id,
        name: "Ali".to_owned(),
        ..Lead::default()
    };
    CrmEvent::of_lead(name, lead.snapshot())
}

pub(super) fn lead_created(id: i64) -> CrmEvent {
    lead_event("LEAD_CREATED", id)
}

/// Returns one event of each name of §6.2.
pub(super) fn event_of_each_name() -> Vec<CrmEvent> {
    let (call, leads) = NAMES.split_last().expect("seven names");
    assert_eq!(*call, "CALL_COMPLETED");
    let leads = leads.iter().map(|name| lead_event(name, 4001));
    let call = CrmEvent::of_call(json!({ "callId": "oapi-u-9" }));
    leads.chain([call]).collect()
}

/// Records an event of the sandbox's company at the time `now`.
pub(super) fn emit_event(core: &mut Sandbox, now: callbridge_call::EventTime, event: CrmEvent) {
    let company = core.settings.company.id;
    webhook::events::happened(core, now, company, event);
}

#[test]
fn submission_emits_event_only_after_it_is_journaled() {
    let mut core = subscribed_sandbox(&["CALL_COMPLETED"]);
    submit_accepted(&mut core, NOW, &call());
    assert!(rows(&core).is_empty(), "accepted is not yet written");
    core.tick(now_plus(1));
    let [row] = &rows(&core)[..] else {
        panic!("one row");
    };
    let event_body = body(&core, row);
    assert_eq!(event_body["eventType"], "CALL_COMPLETED");
    assert_eq!(event_body["call"]["callId"], "oapi-u-1");
    assert_eq!(event_body["call"]["leadIds"], json!([4001]));
}

#[test]
fn failed_or_duplicate_write_emits_no_event() {
    let mut core = subscribed_sandbox(&["CALL_COMPLETED"]);
    submit_accepted(&mut core, NOW, &call_with("leadId", json!(9_999_999)));
    core.tick(now_plus(2));
    assert!(rows(&core).is_empty(), "FAILED is no conversation");
    submit_accepted(&mut core, now_plus(2), &call());
    submit_accepted(&mut core, now_plus(3), &call());
    core.tick(now_plus(9));
    assert_eq!(rows(&core).len(), 1, "one uuid, one record, one event");
}

#[test]
fn event_is_recorded_only_for_current_subscription() {
    let mut core = sandbox();
    emit_event(&mut core, NOW, lead_created(1));
    configure(&mut core, 1, &["LEAD_CREATED"]);
    core.tick(now_plus(60));
    assert!(rows(&core).is_empty(), "enabling later does not backfill");
    emit_event(&mut core, NOW, lead_event("LEAD_DELETED", 1));
    assert!(
        rows(&core).is_empty(),
        "another event than the one asked for"
    );
    emit_event(&mut core, NOW, lead_created(2));
    assert_eq!(rows(&core).len(), 1);
}

#[test]
fn event_is_not_queued_without_active_configuration() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    let active = json!({
        "targetUrl": "https://hooks.example.com/", "events": ["LEAD"], "enabled": true,
    });
    for (act, change) in [
        ("webhook", json!({ "enabled": false })),
        ("webhook", json!({ "events": [], "force": true })),
        ("webhook/delete", json!({})),
    ] {
        admin(&mut core, act, &change);
        emit_event(&mut core, NOW, lead_created(1));
        assert_eq!(rows(&core).len(), 0, "{act} {change}");
        admin(&mut core, "webhook", &active);
    }
    admin(&mut core, "webhook", &json!({ "enabled": true }));
    emit_event(&mut core, NOW, lead_created(1));
    assert_eq!(rows(&core).len(), 1, "and is, when it is back");
}

#[test]
fn two_applications_share_event_id_but_not_installation() {
    let mut core = subscribed_sandbox(&["LEAD_CREATED"]);
    configure(&mut core, 2, &["LEAD_CREATED"]);
    let second = install(&mut core, 1, 2);
    emit_event(&mut core, NOW, lead_created(1));
    let ids: Vec<_> = core.webhooks.rows.keys().copied().collect();
    let [one, other] = ids[..] else {
        panic!("two deliveries: {ids:?}");
    };
    assert_eq!(one.event, other.event);
    assert_eq!((one.installation, other.installation), (7001, second));
}

#[test]
fn every_event_has_its_own_id() {
    let mut core = subscribed_sandbox(&["LEAD", "CALL"]);
    let events = event_of_each_name();
    assert_eq!(
        events
            .iter()
            .map(|event| event.name.as_str())
            .collect::<Vec<_>>(),
        NAMES
    );
    for event in [events.clone(), events].concat() {
        emit_event(&mut core, NOW, event);
    }
    let ids: std::collections::BTreeSet<_> = core.webhooks.rows.keys().map(|id| id.event).collect();
    // The conversation occurs twice, and its second event is suppressed.
    assert_eq!((ids.len(), core.webhooks.counts.suppressed), (13, 1));
}

#[test]
fn events_of_shared_configuration_name_their_company() {
    let mut core = subscribed_sandbox(&["LEAD_CREATED"]);
    core.issue(NOW, "svc_pat_other", crate::token::TokenKind::Pat, 2, None);
    for company in [1, 2] {
        webhook::events::happened(&mut core, NOW, company, lead_created(1));
    }
    let mut companies: Vec<_> = core
        .webhooks
        .rows
        .iter()
        .map(|(id, row)| (body(&core, row)["companyId"].as_i64(), id.installation))
        .collect();
    companies.sort_unstable();
    assert_eq!(companies, [(Some(1), 7001), (Some(2), 7002)]);
}

#[test]
fn revoked_installation_and_disconnected_company_get_no_event() {
    let mut core = subscribed_sandbox(&["LEAD_CREATED"]);
    core.company(NOW, |company| company.disconnected = true);
    emit_event(&mut core, NOW, lead_created(1));
    core.company(NOW, |company| company.disconnected = false);
    admin(
        &mut core,
        "webhook/revoke",
        &json!({ "installation": 7001 }),
    );
    emit_event(&mut core, NOW, lead_created(1));
    assert!(rows(&core).is_empty());
}

fn call_event() -> CrmEvent {
    event_of_each_name().pop().expect("the last is a call")
}

#[test]
fn conversation_is_reported_again_only_after_24_hours() {
    let mut core = subscribed_sandbox(&["CALL"]);
    emit_event(&mut core, NOW, call_event());
    emit_event(&mut core, now_plus(86_399), call_event());
    assert_eq!((rows(&core).len(), core.webhooks.counts.suppressed), (1, 1));
    emit_event(&mut core, now_plus(86_400), call_event());
    assert_eq!(
        rows(&core).len(),
        2,
        "a repeat across that boundary is possible"
    );
}

#[test]
fn groups_other_than_lead_and_call_publish_no_events() {
    assert_eq!(GROUPS.len(), 6);
    let publishing: std::collections::BTreeSet<_> =
        event_of_each_name().iter().map(CrmEvent::group).collect();
    assert_eq!(publishing.into_iter().collect::<Vec<_>>(), ["CALL", "LEAD"]);
    let mut core = subscribed_sandbox(&GROUPS[2..]);
    for event in event_of_each_name() {
        emit_event(&mut core, NOW, event);
    }
    assert!(rows(&core).is_empty(), "the others are reserved");
}

/// Returns the number of all leads, as the path `/sandbox/leads` shows them.
fn lead_count(core: &mut Sandbox) -> usize {
    let leads = core.handle(now_plus(100), &Request::get("/sandbox/leads"));
    leads.value().as_array().expect("rows").len()
}

/// Whenever the sandbox stops, the state has the event exactly if it has the change.
#[test]
fn event_and_its_change_survive_a_restart_together() {
    let mut core = subscribed_sandbox(&["CALL", "LEAD"]);
    let leads_before = lead_count(&mut restart_sandbox(&core));
    let mut kept = vec![restart_sandbox(&core)];
    for (number, second) in (0..5).zip((0..).step_by(2)) {
        let uuid = json!(format!("u-{number}"));
        submit_accepted(&mut core, now_plus(second), &call_with("uuid", uuid));
        kept.push(restart_sandbox(&core));
        let lead = json!({ "name": format!("Lead {number}") });
        let made = Request::post("/sandbox/admin/lead", &lead);
        assert_eq!(core.handle(now_plus(second), &made).status, 200);
        kept.push(restart_sandbox(&core));
    }
    core.tick(now_plus(100));
    for (changes, mut again) in kept.into_iter().enumerate() {
        again.tick(now_plus(100));
        assert_eq!(again.webhooks.rows.len(), changes);
        // The changes take turns: a call, a lead, a call, and so on.
        assert_eq!(again.records().len(), changes.div_ceil(2));
        assert_eq!(lead_count(&mut again), leads_before + changes / 2);
        let all = &core.webhooks.rows;
        assert!(
            again.webhooks.rows.keys().all(|id| all.contains_key(id)),
            "the same ids"
        );
    }
    assert_eq!(
        core.handle(now_plus(100), &info()).status,
        200,
        "{TOKEN} works on"
    );
}
