//! Which events are recorded, when, and for which installations (§6.1, §6.2).

use super::{NOW, TOKEN, accepted, after, call, call_with, info, restarted, sandbox};
use crate::lead::Lead;
use crate::webhook::event::{GROUPS, NAMES};
use crate::webhook::{Config, CrmEvent, DeliveryRow, Installation};
use crate::{Request, Sandbox, webhook};
use serde_json::{Value, json};

/// A sandbox whose application 1 is subscribed to these events. Company 1 is its installation 7001.
pub(super) fn subscribed(events: &[&str]) -> Sandbox {
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

/// Installs another private application in a company, and returns the installation.
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

/// An event of a lead of which only the id and the name are known.
pub(super) fn of_lead(name: &'static str, id: i64) -> CrmEvent {
    let lead = Lead {
        id,
        name: "Ali".to_owned(),
        ..Lead::default()
    };
    CrmEvent::of_lead(name, lead.snapshot())
}

pub(super) fn created(id: i64) -> CrmEvent {
    of_lead("LEAD_CREATED", id)
}

/// One event of each name of §6.2.
pub(super) fn one_of_each() -> Vec<CrmEvent> {
    let (call, leads) = NAMES.split_last().expect("seven names");
    assert_eq!(*call, "CALL_COMPLETED");
    let leads = leads.iter().map(|name| of_lead(name, 4001));
    let call = CrmEvent::of_call(json!({ "callId": "oapi-u-9" }));
    leads.chain([call]).collect()
}

pub(super) fn happen(core: &mut Sandbox, now: callbridge_call::EventTime, event: CrmEvent) {
    let company = core.settings.company.id;
    webhook::events::happened(core, now, company, event);
}

#[test]
fn submission_is_reported_only_once_it_is_journaled() {
    let mut core = subscribed(&["CALL_COMPLETED"]);
    accepted(&mut core, NOW, &call());
    assert!(rows(&core).is_empty(), "accepted is not yet written");
    core.tick(after(1));
    let [row] = &rows(&core)[..] else {
        panic!("one row");
    };
    let told = body(&core, row);
    assert_eq!(told["eventType"], "CALL_COMPLETED");
    assert_eq!(told["call"]["callId"], "oapi-u-1");
    assert_eq!(told["call"]["leadIds"], json!([4001]));
}

#[test]
fn failed_or_duplicate_write_emits_no_event() {
    let mut core = subscribed(&["CALL_COMPLETED"]);
    accepted(&mut core, NOW, &call_with("leadId", json!(9_999_999)));
    core.tick(after(2));
    assert!(rows(&core).is_empty(), "FAILED is no conversation");
    accepted(&mut core, after(2), &call());
    accepted(&mut core, after(3), &call());
    core.tick(after(9));
    assert_eq!(rows(&core).len(), 1, "one uuid, one record, one event");
}

#[test]
fn event_is_recorded_only_for_current_subscription() {
    let mut core = sandbox();
    happen(&mut core, NOW, created(1));
    configure(&mut core, 1, &["LEAD_CREATED"]);
    core.tick(after(60));
    assert!(rows(&core).is_empty(), "enabling later does not backfill");
    happen(&mut core, NOW, of_lead("LEAD_DELETED", 1));
    assert!(
        rows(&core).is_empty(),
        "another event than the one asked for"
    );
    happen(&mut core, NOW, created(2));
    assert_eq!(rows(&core).len(), 1);
}

#[test]
fn event_is_not_queued_without_active_configuration() {
    let mut core = subscribed(&["LEAD"]);
    let mut try_it = |act: &str, change: Value| {
        admin(&mut core, act, &change);
        happen(&mut core, NOW, created(1));
        let made = rows(&core).len();
        admin(
            &mut core,
            "webhook",
            &json!({
                "targetUrl": "https://hooks.example.com/", "events": ["LEAD"], "enabled": true,
            }),
        );
        made
    };
    assert_eq!(try_it("webhook", json!({ "enabled": false })), 0);
    assert_eq!(try_it("webhook", json!({ "events": [], "force": true })), 0);
    assert_eq!(try_it("webhook/delete", json!({})), 0);
    assert_eq!(
        try_it("webhook", json!({ "enabled": true })),
        1,
        "and is, when it is back"
    );
}

#[test]
fn two_applications_share_event_id_but_not_installation() {
    let mut core = subscribed(&["LEAD_CREATED"]);
    configure(&mut core, 2, &["LEAD_CREATED"]);
    let second = install(&mut core, 1, 2);
    happen(&mut core, NOW, created(1));
    let ids: Vec<_> = core.webhooks.rows.keys().copied().collect();
    let [one, other] = ids[..] else {
        panic!("two deliveries: {ids:?}");
    };
    assert_eq!(one.event, other.event);
    assert_eq!((one.installation, other.installation), (7001, second));
}

#[test]
fn every_event_of_one_change_has_its_own_id() {
    let mut core = subscribed(&["LEAD", "CALL"]);
    let events = one_of_each();
    assert_eq!(
        events.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        NAMES
    );
    for event in [events.clone(), events].concat() {
        happen(&mut core, NOW, event);
    }
    let ids: std::collections::BTreeSet<_> = core.webhooks.rows.keys().map(|id| id.event).collect();
    // The conversation occurs twice, and its second event is suppressed.
    assert_eq!((ids.len(), core.webhooks.counts.suppressed), (13, 1));
}

#[test]
fn shared_webhook_configuration_names_company_in_body() {
    let mut core = subscribed(&["LEAD_CREATED"]);
    core.issue(NOW, "svc_pat_other", crate::token::TokenKind::Pat, 2, None);
    for company in [1, 2] {
        webhook::events::happened(&mut core, NOW, company, created(1));
    }
    let told: Vec<_> = core
        .webhooks
        .rows
        .iter()
        .map(|(id, row)| (body(&core, row)["companyId"].as_i64(), id.installation))
        .collect();
    let mut told = told;
    told.sort_unstable();
    assert_eq!(told, [(Some(1), 7001), (Some(2), 7002)]);
}

#[test]
fn revoked_installation_and_disconnected_company_get_no_event() {
    let mut core = subscribed(&["LEAD_CREATED"]);
    core.company(NOW, |company| company.disconnected = true);
    happen(&mut core, NOW, created(1));
    core.company(NOW, |company| company.disconnected = false);
    admin(
        &mut core,
        "webhook/revoke",
        &json!({ "installation": 7001 }),
    );
    happen(&mut core, NOW, created(1));
    assert!(rows(&core).is_empty());
}

#[test]
fn conversation_is_reported_again_only_after_24_hours() {
    let mut core = subscribed(&["CALL"]);
    let told = || one_of_each().pop().expect("the last is a call");
    happen(&mut core, NOW, told());
    happen(&mut core, after(86_399), told());
    assert_eq!((rows(&core).len(), core.webhooks.counts.suppressed), (1, 1));
    happen(&mut core, after(86_400), told());
    assert_eq!(
        rows(&core).len(),
        2,
        "a repeat across that boundary is possible"
    );
}

#[test]
fn only_two_of_the_six_groups_publish_events() {
    assert_eq!(GROUPS.len(), 6);
    let publishing: std::collections::BTreeSet<_> =
        one_of_each().iter().map(CrmEvent::group).collect();
    assert_eq!(publishing.into_iter().collect::<Vec<_>>(), ["CALL", "LEAD"]);
    let mut core = subscribed(&GROUPS[2..]);
    for event in one_of_each() {
        happen(&mut core, NOW, event);
    }
    assert!(rows(&core).is_empty(), "the others are reserved");
}

/// At any stop of the sandbox, an event is stored exactly when its change is.
#[test]
fn event_is_kept_exactly_when_its_change_is() {
    let mut core = subscribed(&["CALL", "LEAD"]);
    let mut kept = vec![restarted(&core)];
    for (number, second) in (0..5).zip((0..).step_by(2)) {
        let uuid = json!(format!("u-{number}"));
        accepted(&mut core, after(second), &call_with("uuid", uuid));
        kept.push(restarted(&core));
        let lead = json!({ "name": format!("Lead {number}") });
        let made = Request::post("/sandbox/admin/lead", &lead);
        assert_eq!(core.handle(after(second), &made).status, 200);
        kept.push(restarted(&core));
    }
    core.tick(after(100));
    for (changes, mut again) in kept.into_iter().enumerate() {
        again.tick(after(100));
        assert_eq!(again.webhooks.rows.len(), changes);
        let all = &core.webhooks.rows;
        assert!(
            again.webhooks.rows.keys().all(|id| all.contains_key(id)),
            "the same ids"
        );
    }
    assert_eq!(
        core.handle(after(100), &info()).status,
        200,
        "{TOKEN} works on"
    );
}
