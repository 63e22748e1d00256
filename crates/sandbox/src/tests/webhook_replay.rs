//! Tests that a restart restores the same queue, keys, and journal, whatever happened before.

use super::webhook_recording::{config, install};
use super::{NOW, TOKEN, call_with, restart_sandbox, submit};
use crate::faults::Dice;
use crate::webhook::{AttemptOutcome, Dispatch, dispatch};
use crate::{Request, Sandbox, Settings, webhook};
use callbridge_call::EventTime;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

fn started_sandbox(settings: Settings) -> Sandbox {
    let mut core = Sandbox::new(settings);
    core.begin(NOW, TOKEN, None);
    core
}

/// Does one random step. `flying` has the deliveries whose attempts have not ended.
fn step(core: &mut Sandbox, now: EventTime, dice: &mut Dice, flying: &mut Vec<Dispatch>) {
    core.tick(now);
    let id = i64::try_from(dice.below(5)).unwrap_or(0);
    match dice.below(12) {
        0 | 1 => {
            let made = Request::post("/sandbox/admin/lead", &json!({ "name": "Ali" }));
            core.handle(now, &made);
        }
        2 => {
            let merge = json!({ "into": 4001 + id, "from": [4010 + dice.below(400)] });
            core.handle(now, &Request::post("/sandbox/admin/lead/merge", &merge));
        }
        3 => {
            let uuid = json!(format!("u-{}", dice.below(40)));
            core.handle(now, &submit(&call_with("uuid", uuid)));
        }
        4 => {
            let events = [["LEAD", "CALL"][dice.below(2) as usize], "LEAD_MERGED"];
            webhook::configure_webhook(core, 1 + id % 2, config(&events), id == 4);
        }
        5 if dice.below(6) == 0 => {
            install(core, 1, 2);
        }
        6 if dice.below(9) == 0 => {
            let installations = &mut core.webhooks.installations;
            if let Some(own) = installations.get_mut(&(7001 + id)) {
                own.revoked = true;
            }
        }
        7 if dice.below(9) == 0 => {
            core.webhooks.configs.remove(&2);
        }
        8 => {
            webhook::webhook_connected(core, 1, 2);
        }
        _ => {
            flying.extend(dispatch::deliveries(core, now));
            while !flying.is_empty() && dice.below(4) != 0 {
                let one = flying.swap_remove(dice.below(flying.len() as u64) as usize);
                let outcome = match dice.below(5) {
                    0 => AttemptOutcome::TimedOut,
                    1 => AttemptOutcome::Status(503),
                    2 => AttemptOutcome::Status(400),
                    3 => AttemptOutcome::Private,
                    _ => AttemptOutcome::Status(200),
                };
                dispatch::delivered(core, now, &one, &outcome, Duration::from_millis(5));
            }
        }
    }
}

/// Returns the body of the admin path `/sandbox/webhooks`. Rows whose attempt has not ended count
/// as waiting.
fn queue_overview(core: &mut Sandbox, now: EventTime) -> Value {
    let mut reply = core.handle(now, &Request::get("/sandbox/webhooks")).value();
    for row in reply["queue"].as_array_mut().expect("a list") {
        row["inFlight"] = json!(false);
    }
    reply
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn restart_restores_webhook_queue_keys_and_attempts(seed in any::<u64>()) {
        let settings = Settings {
            persist_after: Duration::from_secs(3),
            persist_jitter: Duration::from_secs(2),
            ..Settings::default()
        };
        let mut core = started_sandbox(settings);
        webhook::configure_webhook(&mut core, 1, config(&["LEAD", "CALL"]), false);
        let (mut dice, mut now, mut flying) = (Dice::new(seed), NOW, Vec::new());
        for _ in 0..400 {
            now = now.plus(Duration::from_millis(dice.below(4_000)));
            step(&mut core, now, &mut dice, &mut flying);
        }
        let mut again = restart_sandbox(&core);
        again.begin(now, TOKEN, None);
        again.tick(now);
        let (restored, lived) = (queue_overview(&mut again, now), queue_overview(&mut core, now));
        for part in [
            "configs", "installations", "attempts", "dead", "queue", "counts",
        ] {
            prop_assert!(restored[part] == lived[part], "{}: {}", part, restored[part]);
        }
        // The overview hides the signing keys, so the stored values are compared too.
        prop_assert!(again.webhooks.configs == core.webhooks.configs);
        prop_assert!(again.webhooks.installations == core.webhooks.installations);
        prop_assert!(core.webhooks.configs.values().any(|config| config.secret.is_some()));
        // Both sandboxes continue in the same way after the open attempts have ended in the first.
        for one in flying {
            dispatch::delivered(&mut core, now, &one, &AttemptOutcome::Status(503), Duration::ZERO);
        }
        let later = now.plus(Duration::from_secs(4_000));
        let one = dispatch::deliveries(&mut core, later);
        let other = dispatch::deliveries(&mut again, later);
        prop_assert!(one.len() <= 10 && other.len() <= 10);
        for dispatch in &other {
            prop_assert!(core.webhooks.rows.contains_key(&dispatch.id)
                || core.webhooks.dead.iter().any(|row| row.id == dispatch.id));
        }
    }
}
