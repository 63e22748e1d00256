//! Tests genuine deliveries of the CRM, and forged ones.

use super::place::{Delivery, Place, SECRET, completed_event, now, uuid};
use callbridge_model::Phone;
use callbridge_spool::{State, tables};
use futures_util::future::join_all;
use serde_json::{Value, json};

async fn state(place: &Place, n: u32) -> State {
    let read = place.spool.read(move |store| {
        let row = tables::calls::row_of(store, uuid(n))?.expect("a call");
        Ok(tables::calls::row(store, row)?.expect("a row").state)
    });
    read.await.expect("readable")
}

/// Promise: A webhook is committed before it is answered.
#[tokio::test]
async fn webhook_journals_call_before_answer_and_repeat_is_ignored() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    assert_eq!(place.post(&Delivery::for_call(1)).await, 200);
    assert_eq!(state(&place, 1).await, State::Journaled);
    let books = place.books().await;
    // The CRM signs a repeated delivery again, and can use another connection.
    let again = Delivery::for_event(&completed_event(1), now() - 30, SECRET);
    for delivery in [Delivery::for_call(1), again] {
        assert_eq!(place.post(&delivery).await, 200);
    }
    assert_eq!(place.books().await, books);
    assert_eq!((place.count("confirmed"), place.count("repeat")), (1, 2));
    assert!(books.balance());
    place.stop().await;
}

#[tokio::test]
async fn unsigned_or_altered_delivery_confirms_no_call() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    let good = Delivery::for_call(1);
    let mut touched = good.clone();
    touched.body[10] ^= 1;
    let other = "another secret";
    let signature = &good.headers[4].1;
    let wrong = [
        (503, touched),
        (503, Delivery::for_event(&completed_event(1), now(), other)),
        (401, with_header(&good, 4, signature.to_uppercase())),
        (
            401,
            with_header(&good, 4, signature.replace("sha256", "sha512")),
        ),
        (
            503,
            with_header(&good, 4, format!("sha256={}", "0".repeat(64))),
        ),
        (401, with_header(&good, 4, "sha256=zz")),
        (503, with_header(&good, 3, (now() + 1).to_string())),
        (401, with_header(&good, 3, "now")),
        (
            401,
            with_header(&good, 1, "7d0c5bb4-5d3f-4a57-9f0b-3a1c2f1d8e10"),
        ),
        (401, without_header(&good, 1)),
        (401, without_header(&good, 2)),
        (401, without_header(&good, 3)),
        (401, without_header(&good, 4)),
        (401, with_header_twice(&good, 2)),
        (401, with_header_twice(&good, 4)),
        (
            503,
            Delivery::for_event(&completed_event(1), now() - 400, SECRET),
        ),
        (
            503,
            Delivery::for_event(&completed_event(1), now() + 400, SECRET),
        ),
        (
            400,
            Delivery::for_body(b"<html>".to_vec(), "x", now(), SECRET),
        ),
        (400, Delivery::for_body(Vec::new(), "x", now(), SECRET)),
    ];
    for (status, delivery) in wrong {
        assert_eq!(place.post(&delivery).await, status, "{delivery:?}");
        assert_eq!(state(&place, 1).await, State::Sending, "{delivery:?}");
    }
    let bare = Delivery {
        headers: Vec::new(),
        ..good.clone()
    };
    assert_eq!(place.post(&bare).await, 400);
    assert_eq!(place.post(&good).await, 200);
    assert_eq!(state(&place, 1).await, State::Journaled);
    place.stop().await;
}

/// Returns the delivery with another value of the header at `index`.
fn with_header(delivery: &Delivery, index: usize, value: impl Into<String>) -> Delivery {
    let mut changed = delivery.clone();
    changed.headers[index].1 = value.into();
    changed
}

fn without_header(delivery: &Delivery, index: usize) -> Delivery {
    let mut changed = delivery.clone();
    changed.headers.remove(index);
    changed
}

fn with_header_twice(delivery: &Delivery, index: usize) -> Delivery {
    let mut changed = delivery.clone();
    changed.headers.push(changed.headers[index].clone());
    changed
}

#[tokio::test]
async fn irrelevant_deliveries_are_accepted_and_dropped() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    for (changes, result) in [
        (json!({"eventType": "LEAD_NOTE_ADDED"}), "unknown"),
        (json!({"eventType": "CONTRACT_SIGNED_BY_PIGEON"}), "unknown"),
        (json!({"conversationKind": "ONLINE_MEET"}), "meeting"),
        (json!({"provider": "ASTERISK"}), "foreign"),
        (json!({"companyId": 78}), "other_company"),
        (
            json!({"callId": uuid(2).to_string(), "eventId": "other"}),
            "not_ours",
        ),
    ] {
        let before = place.count(result);
        let delivery = changed_delivery(&changes);
        assert_eq!(place.post(&delivery).await, 200, "{changes}");
        assert_eq!(place.count(result), before + 1, "{changes}");
        assert_eq!(state(&place, 1).await, State::Sending, "{changes}");
    }
    let news = json!({"mood": "good", "record": {"url": "https://x"}, "callId": uuid(1)});
    assert_eq!(place.post(&changed_delivery(&news)).await, 200);
    assert_eq!(
        state(&place, 1).await,
        State::Journaled,
        "unknown fields spoil nothing"
    );
    place.stop().await;
}

/// Returns a delivery for the call 1 whose event has these other values.
fn changed_delivery(changes: &Value) -> Delivery {
    let mut event = completed_event(1);
    for (key, value) in changes.as_object().expect("changes") {
        if event.get(key).is_some() {
            event[key] = value.clone();
        } else {
            event["call"][key] = value.clone();
        }
    }
    Delivery::for_event(&event, now(), SECRET)
}

#[tokio::test]
async fn lead_event_is_applied_once_and_late_one_is_ignored() {
    let place = Place::start().await;
    let lead = json!({"id": 4001, "phone": "+998901110001"});
    let created = lead_delivery("e-1", "LEAD_CREATED", now() - 60, &lead);
    for result in ["learned", "repeat"] {
        assert_eq!(place.post(&created).await, 200);
        assert_eq!(place.count(result), 1);
    }
    assert!(holders(&place).await.contains("4001"));
    let gone = lead_delivery("e-2", "LEAD_DELETED", now() - 30, &lead);
    assert_eq!(place.post(&gone).await, 200);
    let late = lead_delivery("e-3", "LEAD_ASSIGNED", now() - 40, &lead);
    assert_eq!(place.post(&late).await, 200);
    assert!(
        !holders(&place).await.contains("4001"),
        "deleted after that"
    );
    let no_id = json!({"phone": "+998901110001"});
    let nobody = lead_delivery("e-4", "LEAD_CREATED", now(), &no_id);
    assert_eq!(place.post(&nobody).await, 200);
    assert_eq!(place.count("incomplete"), 1);
    place.stop().await;
}

/// Returns a delivery for an event about a lead.
fn lead_delivery(id: &str, kind: &str, at: i64, lead: &Value) -> Delivery {
    let event = json!({
        "eventId": id, "eventType": kind, "occurredAt": at, "companyId": 77, "lead": lead,
        "mood": {"unknown": [1]},
    });
    Delivery::for_event(&event, now(), SECRET)
}

/// Returns the debug output of the leads that have the number +998901110001.
async fn holders(place: &Place) -> String {
    let phone = Phone::from_e164("+998901110001").expect("a number");
    let found = place
        .spool
        .read(move |store| tables::directory::holders(store, &phone))
        .await;
    format!("{:?}", found.expect("readable").leads())
}

#[tokio::test]
async fn webhook_before_company_is_known_is_answered_503() {
    let place = Place::start_unbound(None).await;
    place.store_sent_call(1).await;
    assert_eq!(place.post(&Delivery::for_call(1)).await, 503);
    place.bind().await;
    assert_eq!(place.post(&Delivery::for_call(1)).await, 200);
    assert_eq!(state(&place, 1).await, State::Journaled);
    place.stop().await;
}

#[tokio::test]
async fn concurrent_deliveries_count_once_and_close_connections() {
    let place = Place::start().await;
    for n in 0..40 {
        place.store_sent_call(n).await;
    }
    let (twice, once): (Vec<Delivery>, Vec<Delivery>) = (
        (0..10).map(Delivery::for_call).collect(),
        (0..40).map(Delivery::for_call).collect(),
    );
    let all = twice.iter().chain(&once);
    let statuses = join_all(all.map(|delivery| place.post(delivery))).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(place.books().await.journaled, 40);
    assert_eq!((place.count("confirmed"), place.count("repeat")), (40, 10));
    let mut line = place.line().await;
    assert_eq!(line.exchange(&Delivery::for_call(1).request()).await, 200);
    line.wait_for_end().await;
    place.stop().await;
}

#[tokio::test]
async fn same_delivery_under_another_installation_is_a_repeat() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    let delivery = Delivery::for_call(1);
    assert_eq!(place.post(&delivery).await, 200);
    let mut replayed = delivery;
    replayed.headers[2].1 = "9002".into();
    assert_eq!(place.post(&replayed).await, 200);
    assert_eq!((place.count("confirmed"), place.count("repeat")), (1, 1));
    place.stop().await;
}
