//! Tests that valid deliveries are accepted and invalid ones are rejected.

use super::*;
use crate::headers::{ID, INSTALLATION, SIGNATURE, TIMESTAMP};
use crate::keyring::Keyring;
use callbridge_model::Secret;
use callbridge_model::webhook_signature::Key;
use proptest::prelude::*;
use serde_json::json;
use strum::VariantNames;

const SECRET: &str = "4f1a0c9d2b7e6058a3c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071829";
const NOW: i64 = 1_795_151_317;
const EVENT_ID: &str = "7d0c5bb4-5d3f-4a57-9f0b-3a1c2f1d8e10";

/// Returns the body of a `CALL_COMPLETED` event.
fn body() -> Vec<u8> {
    let call = json!({"callId": "oapi-7960997f-d1f6-4443-b29d-16fae6d27ae1", "leadIds": [4001]});
    let event = json!({
        "eventId": EVENT_ID, "eventType": "CALL_COMPLETED", "occurredAt": NOW,
        "companyId": 77, "call": call,
    });
    event.to_string().into_bytes()
}

fn keyring() -> Keyring {
    Keyring {
        application: vec![Key::new(&Secret::from(SECRET))],
        ..Keyring::default()
    }
}

/// Returns the context for a check at this time, in epoch seconds.
fn context_at(seconds: i64) -> VerifyContext {
    VerifyContext {
        now: EventTime::from_seconds(seconds),
        right_from: EventTime::from_seconds(NOW - 86_400),
        country: None,
        could_be_ours: false,
    }
}

/// Returns the headers of a delivery signed at this time with `secret`.
fn headers(signed_at: i64, body: &[u8], secret: &str) -> Headers {
    let timestamp = signed_at.to_string();
    let signature = Key::new(&Secret::from(secret)).sign(&timestamp, body);
    let all = [
        (ID, EVENT_ID),
        (INSTALLATION, "9001"),
        (TIMESTAMP, &timestamp),
        (SIGNATURE, &signature),
    ];
    Headers::read(all.map(|(name, value)| (name, value.as_bytes()))).expect("whole")
}

fn judge_delivery(
    headers: &Headers,
    body: &[u8],
    keyring: &Keyring,
    context: VerifyContext,
) -> Result<Verified, Refusal> {
    let mut proof = keyring.begin(headers);
    proof.add(body);
    judge(headers, body, proof, context)
}

/// Verifies a delivery at [`NOW`] that was signed at this time with `secret`.
fn judge_signed(signed_at: i64, body: &[u8], secret: &str) -> Result<Verified, Refusal> {
    let headers = headers(signed_at, body, secret);
    judge_delivery(&headers, body, &keyring(), context_at(NOW))
}

#[test]
fn signed_and_fresh_event_is_kept_with_its_ids() {
    let Ok(Verified::Keep { delivery }) = judge_signed(NOW - 3, &body(), SECRET) else {
        panic!("kept")
    };
    assert_eq!(delivery.news.kind(), "CALL_COMPLETED");
    assert_eq!(delivery.event, EVENT_ID);
    assert_eq!(
        (&*delivery.installation, &*delivery.company),
        ("9001", "77")
    );
}

#[test]
fn delivery_is_fresh_within_five_minutes_either_way() {
    for (off, fresh) in [(300, true), (301, false), (-300, true), (-301, false)] {
        let judged = judge_signed(NOW + off, &body(), SECRET);
        assert_eq!(judged != Err(Refusal::Stale), fresh, "{off}: {judged:?}");
    }
    assert_eq!(judge_signed(0, &body(), SECRET), Err(Refusal::Stale));
    assert_eq!(
        judge_signed(999_999_999_999, &body(), SECRET),
        Err(Refusal::Stale)
    );
    assert_eq!(judge_signed(0, &body(), "another"), Err(Refusal::Forged));
}

#[test]
fn wrong_local_clock_refuses_no_delivery_for_good() {
    let (body, early) = (body(), context_at(NOW - 90_000));
    for secret in [SECRET, "another"] {
        let signed = headers(NOW, &body, secret);
        let judged = judge_delivery(&signed, &body, &keyring(), early);
        assert_eq!(judged, Err(Refusal::Clock), "{secret}");
    }
}

#[test]
fn mismatch_comes_again_only_if_fresh_and_possibly_ours() {
    let body = body();
    for (signed_at, could_be_ours, refusal) in [
        (NOW + 300, true, Refusal::Mismatch),
        (NOW + 301, true, Refusal::Forged),
        (NOW, false, Refusal::Forged),
    ] {
        let context = VerifyContext {
            could_be_ours,
            ..context_at(NOW)
        };
        let signed = headers(signed_at, &body, "a new secret");
        let judged = judge_delivery(&signed, &body, &keyring(), context);
        assert_eq!(judged, Err(refusal), "{signed_at} {could_be_ours}");
    }
}

#[test]
fn delivery_without_a_configured_secret_is_refused() {
    let (body, none) = (body(), Keyring::default());
    let headers = headers(NOW, &body, SECRET);
    let judged = judge_delivery(&headers, &body, &none, context_at(NOW));
    assert_eq!(judged, Err(Refusal::NoSecret));
}

#[test]
fn reserialized_body_is_forged() {
    let signed = headers(NOW, &body(), SECRET);
    let reserialized = serde_json::from_slice::<serde_json::Value>(&body()).expect("JSON");
    let reserialized = serde_json::to_vec_pretty(&reserialized).expect("JSON");
    let judged = judge_delivery(&signed, &reserialized, &keyring(), context_at(NOW));
    assert_eq!(judged, Err(Refusal::Forged));
}

#[test]
fn mismatched_event_id_and_unreadable_body_are_refused() {
    let body = body();
    let mut other = headers(NOW, &body, SECRET);
    other.id = "7d0c5bb4-5d3f-4a57-9f0b-3a1c2f1d8e11".into();
    let refused = judge_delivery(&other, &body, &keyring(), context_at(NOW));
    assert_eq!(refused, Err(Refusal::OtherId));
    other.id = EVENT_ID.to_uppercase();
    assert!(judge_delivery(&other, &body, &keyring(), context_at(NOW)).is_ok());
    let refused = judge_signed(NOW, b"not json", SECRET);
    assert!(
        matches!(refused, Err(Refusal::Unreadable(_))),
        "{refused:?}"
    );
}

/// Returns the time of the news about a lead in an event that occurred at this time.
fn news_time(occurred_at: i64) -> i64 {
    let lead = json!({"id": 4001, "phone": "+998901110001"});
    let event = json!({
        "eventId": EVENT_ID, "eventType": "LEAD_CREATED", "occurredAt": occurred_at,
        "companyId": 77, "lead": lead,
    });
    match judge_signed(NOW, event.to_string().as_bytes(), SECRET) {
        Ok(Verified::Keep { delivery }) => match delivery.news {
            WebhookEvent::Learn(news) => news.at.get(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn lead_news_time_is_capped_at_now() {
    assert_eq!(news_time(NOW - 3_600), NOW - 3_600);
    assert_eq!(news_time(NOW + 3_600), NOW);
}

#[test]
fn temporary_refusals_answer_503_and_others_4xx() {
    for (refusal, status) in [
        (Refusal::NoHeaders, 400),
        (Refusal::Malformed, 401),
        (Refusal::Forged, 401),
        (Refusal::OtherId, 401),
        (Refusal::Unreadable(String::new()), 400),
        (Refusal::NoSecret, 503),
        (Refusal::Mismatch, 503),
        (Refusal::Stale, 503),
        (Refusal::Clock, 503),
    ] {
        assert_eq!(refusal.status(), status, "{refusal:?}");
        assert!(Refusal::VARIANTS.contains(&refusal.word()));
    }
}

proptest! {
    #[test]
    fn delivery_is_accepted_only_if_signed_by_the_secret(
        flip in 0..200_usize, bit in 0..8_u8, at in -400_i64..400, by in "[0-9a-f]{64}",
    ) {
        let body = body();
        let mut wrong = body.clone();
        let place = flip % wrong.len();
        wrong[place] ^= 1 << bit;
        let signed = headers(NOW + at, &body, SECRET);
        let judged_wrong = judge_delivery(&signed, &wrong, &keyring(), context_at(NOW));
        prop_assert_eq!(judged_wrong, Err(Refusal::Forged));
        prop_assert_eq!(judge_signed(NOW + at, &body, &by), Err(Refusal::Forged));
        let taken = judge_delivery(&signed, &body, &keyring(), context_at(NOW)).is_ok();
        prop_assert_eq!(taken, at.abs() <= 300);
    }

    #[test]
    fn any_headers_and_bodies_are_judged_without_panic(
        values in prop::collection::vec(any::<Vec<u8>>(), 4), body in any::<Vec<u8>>(),
    ) {
        let names = [ID, INSTALLATION, TIMESTAMP, SIGNATURE];
        let all = names.into_iter().zip(values.iter().map(Vec::as_slice));
        if let Ok(headers) = Headers::read(all) {
            prop_assert!(judge_delivery(&headers, &body, &keyring(), context_at(NOW)).is_err());
        }
        let signed = headers(NOW, &body, SECRET);
        let _ = judge_delivery(&signed, &body, &keyring(), context_at(NOW));
    }
}
