//! What is recorded, when and for whom (§6.1, §6.2).

use super::{NOW, TOKEN, accepted, after, call, call_with, info, sandbox};
use crate::webhook;
use crate::webhook::event::{GROUPS, NAMES};
use crate::webhook::{
    CompletedCall, Config, CrmEvent, DeliveryRow, LeadSnapshot, Property, PropertyChange,
    Responsible, Stage, WebhookChange,
};
use crate::{Sandbox, core};
use serde_json::{Value, json};

/// A sandbox whose application 1 is subscribed to these; company 1 is its installation 7001.
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
    webhook::configure_webhook(core, NOW, application, config(events), false);
}

/// Installs a further private application in a company; gives the installation.
pub(super) fn install(core: &mut Sandbox, company: i64, application: i64) -> i64 {
    let act = json!({ "company": company, "application": application });
    let answer = admin(core, "webhook/install", &act);
    answer["installation"].as_i64().expect("a number")
}

pub(super) fn admin(core: &mut Sandbox, act: &str, body: &Value) -> Value {
    let request = crate::Request::post(&format!("/sandbox/admin/{act}"), body);
    let answer = core.handle(NOW, &request);
    assert_eq!(answer.status, 200, "{act}: {}", answer.value());
    answer.value()
}

pub(super) fn rows(core: &Sandbox) -> Vec<DeliveryRow> {
    core.webhooks().rows().values().cloned().collect()
}

pub(super) fn body(core: &Sandbox, row: &DeliveryRow) -> Value {
    row.recorded.body(&core.settings().shapes.webhook)
}

pub(super) fn lead(id: i64) -> Box<LeadSnapshot> {
    Box::new(LeadSnapshot {
        id,
        name: "Ali".to_owned(),
        ..LeadSnapshot::default()
    })
}

/// One event of each name of §6.2.
pub(super) fn one_of_each() -> Vec<CrmEvent> {
    let lead = || lead(4001);
    vec![
        CrmEvent::LeadCreated { lead: lead() },
        CrmEvent::LeadAssigned {
            lead: lead(),
            from: Responsible::default(),
            to: Responsible {
                id: Some(501),
                name: Some("Vali".to_owned()),
            },
        },
        CrmEvent::LeadStageChanged {
            lead: lead(),
            from: Stage {
                id: Some(21),
                name: Some("New".to_owned()),
            },
            to: Stage {
                id: Some(22),
                name: Some("Called".to_owned()),
            },
        },
        CrmEvent::LeadPropertiesUpdated {
            lead: lead(),
            changes: vec![PropertyChange {
                kind: Property::Name,
                from: Some("Al".to_owned()),
                to: Some("Ali".to_owned()),
            }],
        },
        CrmEvent::LeadMerged {
            lead: lead(),
            merged: vec![4002, 4003],
        },
        CrmEvent::LeadDeleted { lead: lead() },
        CrmEvent::CallCompleted {
            call: Box::new(CompletedCall {
                call_id: "oapi-u-9".to_owned(),
                ..CompletedCall::default()
            }),
        },
    ]
}

pub(super) fn happen(core: &mut Sandbox, now: callbridge_call::EventTime, event: CrmEvent) {
    let company = core.settings().company.id;
    webhook::webhook_change(core, now, WebhookChange::Happened { company, event });
}

#[test]
fn a_submission_is_told_when_it_is_journaled_and_not_before() {
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
fn a_write_that_fails_and_one_that_makes_no_second_record_emit_nothing() {
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
fn an_event_is_recorded_only_for_who_is_subscribed_at_that_moment() {
    let mut core = sandbox();
    happen(&mut core, NOW, CrmEvent::LeadCreated { lead: lead(1) });
    configure(&mut core, 1, &["LEAD_CREATED"]);
    core.tick(after(60));
    assert!(rows(&core).is_empty(), "enabling later does not backfill");
    happen(&mut core, NOW, CrmEvent::LeadDeleted { lead: lead(1) });
    assert!(
        rows(&core).is_empty(),
        "another event than the one asked for"
    );
    happen(&mut core, NOW, CrmEvent::LeadCreated { lead: lead(2) });
    assert_eq!(rows(&core).len(), 1);
}

#[test]
fn nothing_is_queued_while_the_configuration_is_disabled_emptied_or_deleted() {
    let mut core = subscribed(&["LEAD"]);
    let mut try_it = |act: &str, change: Value| {
        admin(&mut core, act, &change);
        happen(&mut core, NOW, CrmEvent::LeadCreated { lead: lead(1) });
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
fn two_applications_of_a_company_get_the_same_event_id_and_their_own_installation() {
    let mut core = subscribed(&["LEAD_CREATED"]);
    configure(&mut core, 2, &["LEAD_CREATED"]);
    let second = install(&mut core, 1, 2);
    happen(&mut core, NOW, CrmEvent::LeadCreated { lead: lead(1) });
    let ids: Vec<_> = core.webhooks().rows().keys().copied().collect();
    let [one, other] = ids[..] else {
        panic!("two deliveries: {ids:?}");
    };
    assert_eq!(one.event, other.event);
    assert_eq!((one.installation, other.installation), (7001, second));
}

#[test]
fn every_event_of_one_change_has_an_id_of_its_own() {
    let mut core = subscribed(&["LEAD", "CALL"]);
    let events = one_of_each();
    assert_eq!(events.iter().map(CrmEvent::name).collect::<Vec<_>>(), NAMES);
    for event in [events.clone(), events].concat() {
        happen(&mut core, NOW, event);
    }
    let ids: std::collections::BTreeSet<_> =
        core.webhooks().rows().keys().map(|id| id.event).collect();
    // The conversation, told twice, is suppressed the second time.
    assert_eq!((ids.len(), core.webhooks().counts().suppressed), (13, 1));
}

#[test]
fn one_configuration_serves_every_company_and_the_body_tells_them_apart() {
    let mut core = subscribed(&["LEAD_CREATED"]);
    core.issue(NOW, "svc_pat_other", crate::token::TokenKind::Pat, 2, None);
    for company in [1, 2] {
        let event = CrmEvent::LeadCreated { lead: lead(1) };
        webhook::webhook_change(&mut core, NOW, WebhookChange::Happened { company, event });
    }
    let told: Vec<_> = core
        .webhooks()
        .rows()
        .iter()
        .map(|(id, row)| (body(&core, row)["companyId"].as_i64(), id.installation))
        .collect();
    let mut told = told;
    told.sort_unstable();
    assert_eq!(told, [(Some(1), 7001), (Some(2), 7002)]);
}

#[test]
fn a_revoked_installation_and_a_disconnected_company_are_not_told() {
    let mut core = subscribed(&["LEAD_CREATED"]);
    core.company(NOW, |company| company.disconnected = true);
    happen(&mut core, NOW, CrmEvent::LeadCreated { lead: lead(1) });
    core.company(NOW, |company| company.disconnected = false);
    admin(
        &mut core,
        "webhook/revoke",
        &json!({ "installation": 7001 }),
    );
    happen(&mut core, NOW, CrmEvent::LeadCreated { lead: lead(1) });
    assert!(rows(&core).is_empty());
}

#[test]
fn a_conversation_is_told_again_after_24_hours_and_not_before() {
    let mut core = subscribed(&["CALL"]);
    let told = || one_of_each().pop().expect("the last is a call");
    happen(&mut core, NOW, told());
    happen(&mut core, after(86_399), told());
    assert_eq!(
        (rows(&core).len(), core.webhooks().counts().suppressed),
        (1, 1)
    );
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

/// The log of a sandbox at work, cut anywhere: an event is there exactly when its change is.
#[test]
fn an_event_stands_or_falls_with_its_change() {
    let mut core = subscribed(&["CALL", "LEAD"]);
    core.settings_mut().keep_log = true;
    for (number, second) in (0..5).zip((0..).step_by(2)) {
        let uuid = json!(format!("u-{number}"));
        accepted(&mut core, after(second), &call_with("uuid", uuid));
        happen(
            &mut core,
            after(second),
            CrmEvent::LeadCreated { lead: lead(number) },
        );
    }
    let log = core.take_log();
    core.tick(after(100));
    for kept in 0..=log.len() {
        let mut again = subscribed(&["CALL", "LEAD"]);
        log[..kept]
            .iter()
            .cloned()
            .for_each(|logged| again.replay(logged));
        again.tick(after(100));
        let writes = |change: &core::Change| matches!(change, core::Change::Accepted(_));
        let leads = |change: &core::Change| matches!(change, core::Change::Webhook(_));
        let made = log[..kept]
            .iter()
            .filter(|one| writes(&one.change) || leads(&one.change));
        assert_eq!(again.webhooks().rows().len(), made.count());
        let all = core.webhooks().rows();
        assert!(
            again
                .webhooks()
                .rows()
                .keys()
                .all(|id| all.contains_key(id)),
            "the same ids"
        );
    }
    assert_eq!(
        core.handle(after(100), &info()).status,
        200,
        "{TOKEN} works on"
    );
}
