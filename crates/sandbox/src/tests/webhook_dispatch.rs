//! Tests of the cycle of the dispatcher: its limits, the meaning of outcomes, and rows that become
//! dead without an attempt (§3.4, §6.9, Limits).

use super::webhook_recording::{
    admin, config, configure, emit_event, event_of_each_name, install, lead_created,
    subscribed_sandbox,
};
use super::{NOW, now_plus};
use crate::webhook::dispatch::AttemptOutcome;
use crate::webhook::dispatch::{CLAIMED_MAX, CLAIMED_OVERALL_MAX, IN_FLIGHT_MAX};
use crate::webhook::event::NAMES;
use crate::webhook::{Dispatch, dispatch};
use crate::{Sandbox, faults, webhook};
use callbridge_call::EventTime;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

const TOOK: Duration = Duration::from_millis(12);

/// Creates this many leads in the first company.
pub(super) fn create_leads(core: &mut Sandbox, now: EventTime, many: i64) {
    for id in 1..=many {
        emit_event(core, now, lead_created(id));
    }
}

/// Ends the attempt `dispatch` with an answer of this status.
pub(super) fn end_attempt(core: &mut Sandbox, now: EventTime, dispatch: &Dispatch, status: u16) {
    dispatch::delivered(core, now, dispatch, &AttemptOutcome::Status(status), TOOK);
}

/// Returns the reason of each dead delivery.
pub(super) fn dead_reasons(core: &Sandbox) -> Vec<String> {
    core.webhooks
        .dead
        .iter()
        .map(|row| row.why.clone())
        .collect()
}

fn overview(core: &mut Sandbox, now: EventTime) -> Value {
    core.handle(now, &crate::Request::get("/sandbox/webhooks"))
        .value()
}

/// Returns whether the attempt failed, and whether the dispatcher retries the delivery.
fn verdict(outcome: &AttemptOutcome) -> (bool, bool) {
    (outcome.error().is_some(), outcome.is_retried())
}

fn status_verdict(status: u16) -> (bool, bool) {
    verdict(&AttemptOutcome::Status(status))
}

#[test]
fn delivery_outcome_decides_between_success_retry_and_dead() {
    for status in 200..=299 {
        assert_eq!(status_verdict(status), (false, false), "{status}");
    }
    for status in (300..=499).filter(|status| ![408, 429].contains(status)) {
        assert_eq!(status_verdict(status), (true, false), "{status}");
    }
    for status in [408, 429].into_iter().chain(500..=599) {
        assert_eq!(status_verdict(status), (true, true), "{status}");
    }
    let broken = AttemptOutcome::Broken("connection refused".to_owned());
    assert_eq!(
        [&AttemptOutcome::TimedOut, &broken].map(verdict),
        [(true, true); 2]
    );
}

#[test]
fn successful_delivery_leaves_queue_and_keeps_attempt() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    let [dispatch] = &dispatch::deliveries(&mut core, NOW)[..] else {
        panic!("one delivery");
    };
    assert!(
        dispatch::deliveries(&mut core, now_plus(1)).is_empty(),
        "it is under way"
    );
    end_attempt(&mut core, now_plus(1), dispatch, 202);
    let reply = overview(&mut core, now_plus(1));
    assert_eq!(reply["queue"], json!([]));
    let attempt = &reply["attempts"][0];
    let shown = [
        &attempt["status"],
        &attempt["error"],
        &attempt["durationMs"],
        &attempt["number"],
    ];
    assert_eq!(shown, [&json!(202), &Value::Null, &json!(12), &json!(1)]);
    end_attempt(&mut core, now_plus(2), dispatch, 500);
    assert_eq!(core.webhooks.attempts.iter().count(), 1, "it ends once");
}

#[test]
fn failed_delivery_retries_after_30s_5m_30m_then_is_dead() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    let mut at = NOW;
    for wait in [30, 300, 1_800] {
        let dispatch = dispatch::deliveries(&mut core, at)
            .pop()
            .expect("it is due");
        end_attempt(&mut core, at, &dispatch, 503);
        let due = at.plus(Duration::from_secs(wait));
        assert!(
            dispatch::deliveries(&mut core, due.minus(Duration::from_millis(1))).is_empty(),
            "{wait}"
        );
        at = due;
    }
    let dispatch = dispatch::deliveries(&mut core, at)
        .pop()
        .expect("the third retry");
    assert!(dead_reasons(&core).is_empty());
    end_attempt(&mut core, at, &dispatch, 408);
    assert_eq!(dead_reasons(&core), ["status 408"]);
    assert!(core.webhooks.rows.is_empty());
    assert_eq!(
        core.webhooks.attempts.iter().count(),
        4,
        "the initial one and three retries"
    );
    assert!(
        dispatch::deliveries(&mut core, at.plus(Duration::from_secs(90_000))).is_empty(),
        "never again"
    );
}

#[test]
fn delivery_with_redirect_or_other_4xx_is_dead_at_once() {
    for status in [
        301, 302, 307, 308, 304, 400, 401, 403, 404, 409, 410, 422, 451,
    ] {
        let mut core = subscribed_sandbox(&["LEAD"]);
        create_leads(&mut core, NOW, 1);
        let dispatch = dispatch::deliveries(&mut core, NOW).pop().expect("due");
        end_attempt(&mut core, NOW, &dispatch, status);
        assert_eq!(dead_reasons(&core).len(), 1, "{status}");
        assert!(
            dispatch::deliveries(&mut core, now_plus(100_000)).is_empty(),
            "{status}"
        );
    }
}

#[test]
fn cycle_claims_at_most_10_rows_per_company_and_100_in_all() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    for company in 2..=15 {
        let token = format!("svc_pat_{company}");
        core.issue(NOW, &token, crate::token::TokenKind::Pat, company, None);
    }
    for id in 1..=30 {
        for company in 1..=15 {
            webhook::events::happened(&mut core, NOW, company, lead_created(id));
        }
    }
    let claimed = dispatch::deliveries(&mut core, NOW);
    assert_eq!((claimed.len(), CLAIMED_OVERALL_MAX), (100, 100));
    for installation in claimed.iter().map(|one| one.id.installation) {
        let own = claimed
            .iter()
            .filter(|one| one.id.installation == installation)
            .count();
        assert!(
            own <= CLAIMED_MAX && CLAIMED_MAX == 10,
            "{installation}: {own}"
        );
    }
}

#[test]
fn company_deliveries_in_flight_are_limited_to_20() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    configure(&mut core, 2, &["LEAD"]);
    install(&mut core, 1, 2);
    create_leads(&mut core, NOW, 40);
    let mut under_way: Vec<Dispatch> = (0..5)
        .flat_map(|n| dispatch::deliveries(&mut core, now_plus(n)))
        .collect();
    assert_eq!((under_way.len(), IN_FLIGHT_MAX), (20, 20));
    for dispatch in under_way.drain(..3) {
        end_attempt(&mut core, now_plus(6), &dispatch, 200);
    }
    assert_eq!(
        dispatch::deliveries(&mut core, now_plus(6)).len(),
        3,
        "as many as ended"
    );
}

/// Returns a change of the configuration to a target that the sandbox would otherwise refuse.
fn forced_target(url: &str) -> Value {
    json!({ "targetUrl": url, "force": true })
}

#[test]
fn undeliverable_event_is_dead_without_an_attempt() {
    let cases = [
        ("webhook/delete", json!({}), "configuration missing"),
        (
            "webhook",
            json!({ "enabled": false }),
            "configuration disabled",
        ),
        (
            "webhook",
            json!({ "events": [], "force": true }),
            "configuration disabled",
        ),
        (
            "webhook/revoke",
            json!({ "installation": 7001 }),
            "installation revoked",
        ),
        (
            "company",
            json!({ "disconnected": true }),
            "installation revoked",
        ),
        (
            "webhook",
            forced_target("http://hooks.example.com/"),
            "target not HTTPS",
        ),
        (
            "webhook",
            forced_target("https://localhost/"),
            "target private or internal",
        ),
        (
            "webhook",
            forced_target("https://10.1.2.3/"),
            "target private or internal",
        ),
    ];
    for (act, change, why) in cases {
        let mut core = subscribed_sandbox(&["LEAD"]);
        create_leads(&mut core, NOW, 1);
        admin(&mut core, act, &change);
        assert!(
            dispatch::deliveries(&mut core, NOW).is_empty(),
            "{act} {change}"
        );
        assert_eq!(dead_reasons(&core), [why], "{act} {change}");
        assert_eq!(core.webhooks.attempts.iter().count(), 0, "{act} {change}");
    }
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    core.webhooks.configs.insert(1, config(&["LEAD"]));
    assert!(dispatch::deliveries(&mut core, NOW).is_empty());
    assert_eq!(dead_reasons(&core), ["signing secret unresolvable"]);
}

#[test]
fn delivery_to_target_turned_private_is_dead_without_attempt() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    let dispatch = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    dispatch::delivered(&mut core, NOW, &dispatch, &AttemptOutcome::Private, TOOK);
    assert_eq!(dead_reasons(&core), ["target private or internal"]);
    assert_eq!(core.webhooks.attempts.iter().count(), 0);
}

#[test]
fn disconnected_company_gets_no_retry() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    let dispatch = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    end_attempt(&mut core, NOW, &dispatch, 503);
    core.company(now_plus(1), |company| company.disconnected = true);
    assert!(dispatch::deliveries(&mut core, now_plus(30)).is_empty());
    assert_eq!(dead_reasons(&core), ["installation revoked"]);
}

fn attempt_count(core: &Sandbox) -> usize {
    core.webhooks.attempts.iter().count()
}

#[test]
fn attempts_are_kept_for_seven_days() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    let dispatch = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    end_attempt(&mut core, NOW, &dispatch, 401);
    dispatch::deliveries(&mut core, now_plus(7 * 86_400));
    assert_eq!(attempt_count(&core), 1);
    dispatch::deliveries(&mut core, now_plus(7 * 86_400 + 1));
    assert_eq!(attempt_count(&core), 0);
}

#[test]
fn dead_deliveries_are_not_resent_after_a_config_fix() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    admin(&mut core, "webhook", &json!({ "enabled": false }));
    dispatch::deliveries(&mut core, NOW);
    admin(&mut core, "webhook", &json!({ "enabled": true }));
    assert!(
        dispatch::deliveries(&mut core, now_plus(100_000)).is_empty(),
        "there is no replay"
    );
}

/// Creates ten leads in a sandbox with these `shape` rules. Every delivery arrives. Returns the
/// second and the event of each delivery, in their order.
fn deliveries_in_shapes(shapes: &str) -> Vec<(u64, Uuid)> {
    let mut core = subscribed_sandbox(&["LEAD"]);
    core.settings.shapes = faults::parse(shapes).expect("shapes").1;
    create_leads(&mut core, NOW, 10);
    let mut made = Vec::new();
    for second in 0..20 {
        for dispatch in dispatch::deliveries(&mut core, now_plus(second)) {
            made.push((second, dispatch.id.event));
            end_attempt(&mut core, now_plus(second), &dispatch, 200);
        }
    }
    assert!(dispatch::deliveries(&mut core, now_plus(9_999)).is_empty());
    assert_eq!(core.webhooks.counts.delivered, 10);
    made
}

/// Returns the number of deliveries of each event.
fn count_by_event(made: &[(u64, Uuid)]) -> BTreeMap<Uuid, u32> {
    let mut counts = BTreeMap::new();
    for (_, event) in made {
        *counts.entry(*event).or_default() += 1;
    }
    counts
}

#[test]
fn shapes_double_and_reorder_deliveries() {
    let plain = deliveries_in_shapes("");
    assert!(plain.iter().all(|(second, _)| *second == 0), "{plain:?}");
    let once = count_by_event(&plain);
    assert_eq!((plain.len(), once.len()), (10, 10));
    let doubled = deliveries_in_shapes("shape webhook-twice 100%");
    let twice = count_by_event(&doubled);
    assert!(twice.keys().eq(once.keys()), "the same events: {twice:?}");
    assert!(twice.values().all(|count| *count == 2), "{twice:?}");
    let shuffled = deliveries_in_shapes("shape webhook-shuffled yes");
    assert!(
        shuffled.iter().all(|(second, _)| *second == 0),
        "{shuffled:?}"
    );
    assert_eq!(count_by_event(&shuffled), once);
    assert_ne!(shuffled, plain, "another order than they happened in");
}

#[test]
fn late_shape_delays_deliveries_up_to_its_time() {
    let late = deliveries_in_shapes("shape webhook-late 5s");
    assert_eq!(late.len(), 10);
    assert!(late.iter().any(|(second, _)| *second > 0), "{late:?}");
    assert!(late.iter().all(|(second, _)| *second <= 5), "{late:?}");
}

#[test]
fn failed_repeat_of_a_delivery_is_not_retried() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    core.settings.shapes = faults::parse("shape webhook-twice 100%").expect("shapes").1;
    create_leads(&mut core, NOW, 1);
    let dispatch = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    end_attempt(&mut core, NOW, &dispatch, 200);
    let again = dispatch::deliveries(&mut core, now_plus(5))
        .pop()
        .expect("once more");
    assert_eq!(again.id, dispatch.id);
    end_attempt(&mut core, now_plus(5), &again, 503);
    assert!(core.webhooks.rows.is_empty() && dead_reasons(&core).is_empty());
}

#[test]
fn each_of_the_seven_events_is_delivered() {
    let mut core = subscribed_sandbox(&["LEAD", "CALL"]);
    for event in event_of_each_name() {
        emit_event(&mut core, NOW, event);
    }
    let mut delivered = BTreeSet::new();
    for dispatch in dispatch::deliveries(&mut core, NOW) {
        let body: Value = serde_json::from_str(&dispatch.body).expect("JSON");
        delivered.insert(body["eventType"].as_str().expect("a name").to_owned());
        end_attempt(&mut core, NOW, &dispatch, 200);
    }
    assert_eq!(delivered, BTreeSet::from(NAMES.map(str::to_owned)));
    assert_eq!(core.webhooks.counts.delivered, 7);
    assert!(core.webhooks.rows.is_empty());
}
