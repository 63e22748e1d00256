//! Forged deliveries are wrong in the one way that they are asked for; and the shell's own check of
//! addresses.

use super::webhook_recording::{admin, lead, subscribed};
use super::{NOW, after};
use crate::webhook::dispatch;
use crate::webhook::forge;
use crate::webhook::forge::{FORGERIES, Forgery, ID, SIGNATURE, TIMESTAMP};
use crate::webhook::post::{Names, Poster, Setup};
use crate::webhook::{AttemptOutcome, CrmEvent, Dispatch};
use crate::{Request, ViolationKind};
use callbridge_model::secret::Secret;
use callbridge_model::webhook_signature::{Key, Signature};
use serde_json::{Value, json};
use std::time::Duration;

fn forged(forgery: Forgery) -> (Dispatch, Secret) {
    let mut core = subscribed(&["LEAD"]);
    let key = admin(
        &mut core,
        "webhook/regenerate",
        &json!({ "installation": 7001 }),
    );
    let event = CrmEvent::LeadCreated { lead: lead(1) };
    forge::forge(&mut core, NOW, 7001, forgery, event).expect("forged");
    let mut made = dispatch::deliveries(&mut core, NOW);
    let copies = if forgery == Forgery::Doubled { 2 } else { 1 };
    assert_eq!(made.len(), copies, "{forgery:?}");
    assert!(core.webhooks().rows().is_empty(), "past the queue");
    let secret = Secret::from(key["webhookSecret"].as_str().expect("shown"));
    (made.remove(0), secret)
}

fn value(dispatch: &Dispatch, name: &str) -> Option<String> {
    let headers = dispatch.headers(NOW.floor_seconds());
    headers
        .into_iter()
        .find(|(given, _)| *given == name)
        .map(|(_, value)| value)
}

/// Is it what the holder of the secret would have sent, at this moment?
fn proves(dispatch: &Dispatch, secret: &Secret) -> bool {
    let (Some(timestamp), Some(signature)) =
        (value(dispatch, TIMESTAMP), value(dispatch, SIGNATURE))
    else {
        return false;
    };
    let mut signing = Key::new(secret).begin(&timestamp);
    signing.add(dispatch.body.as_bytes());
    Signature::parse(signature.as_bytes()).is_some_and(|signature| signing.makes(&signature))
}

#[test]
fn a_forged_signature_proves_nothing_and_every_other_forgery_is_rightly_signed() {
    for forgery in FORGERIES {
        let (dispatch, secret) = forged(forgery);
        let unproved = matches!(
            forgery,
            Forgery::WrongSignature
                | Forgery::OtherKey
                | Forgery::OtherBody
                | Forgery::Unsigned
                | Forgery::HalfHeaders
                | Forgery::OtherAlgorithm
        );
        assert_eq!(proves(&dispatch, &secret), !unproved, "{forgery:?}");
    }
}

#[test]
fn each_forgery_is_wrong_in_its_own_way() {
    let now = NOW.floor_seconds().get();
    let stamp = |forgery| value(&forged(forgery).0, TIMESTAMP);
    assert_eq!(stamp(Forgery::Stale), Some((now - 600).to_string()));
    assert_eq!(stamp(Forgery::Future), Some((now + 600).to_string()));
    assert_eq!(stamp(Forgery::HalfHeaders), None);
    let body = |forgery| serde_json::from_str::<Value>(&forged(forgery).0.body);
    assert_eq!(
        body(Forgery::OtherCompany).expect("JSON")["companyId"],
        900_002
    );
    assert_eq!(
        body(Forgery::OtherEvent).expect("JSON")["eventType"],
        "LEAD_TASK_FORGOTTEN"
    );
    assert!(body(Forgery::NotJson).is_err());
    assert!(forged(Forgery::Huge).0.body.len() > 8 * 1024 * 1024);
    let (dispatch, _) = forged(Forgery::OtherId);
    assert_ne!(value(&dispatch, ID), Some(dispatch.id.event.to_string()));
    let (dispatch, _) = forged(Forgery::OtherInstallation);
    let given = value(&dispatch, crate::webhook::forge::INSTALLATION);
    assert_ne!(given, Some("7001".to_owned()));
    for forgery in FORGERIES {
        assert_eq!(Forgery::from_word(forgery.word()), Some(forgery));
    }
}

#[test]
fn forgeries_are_told_with_their_answers_and_enter_no_queue_journal_or_breaker() {
    let mut core = subscribed(&["LEAD"]);
    admin(&mut core, "webhook/forge", &json!({ "how": "all" }));
    let made = dispatch::deliveries(&mut core, NOW);
    assert_eq!(made.len(), FORGERIES.len() + 1, "the doubled one twice");
    for dispatch in &made {
        dispatch::delivered(
            &mut core,
            after(1),
            dispatch,
            &AttemptOutcome::Status(503),
            Duration::ZERO,
        );
    }
    let told = core
        .handle(after(1), &Request::get("/sandbox/webhooks"))
        .value();
    assert_eq!(told["forged"].as_array().map(Vec::len), Some(made.len()));
    assert_eq!(
        (&told["attempts"], &told["queue"]),
        (&json!([]), &json!([]))
    );
    assert!(dispatch::deliveries(&mut core, after(99_999)).is_empty());
}

#[test]
fn requests_of_admin_that_make_no_sense_are_refused_in_words() {
    let mut core = subscribed(&["LEAD"]);
    for (act, body) in [
        ("webhook/forge", json!({ "how": "kindly" })),
        (
            "webhook/forge",
            json!({ "how": "stale", "installation": 5 }),
        ),
        ("webhook/revoke", json!({ "installation": 5 })),
        ("webhook/regenerate", json!({})),
        ("webhook/install", json!({ "company": 99 })),
        ("webhook/happen", json!({ "event": "LEAD_SOLD" })),
        ("webhook/happen", json!({ "lead": 5 })),
        ("webhook/happen", json!({ "call": { "callId": 5 } })),
        (
            "webhook/happen",
            json!({ "event": "LEAD_MERGED", "merged": "all" }),
        ),
        ("webhook/forget", json!({ "application": 77 })),
    ] {
        let answer = core.handle(NOW, &Request::post(&format!("/sandbox/admin/{act}"), &body));
        assert_eq!(answer.status, 400, "{act} {body}");
        assert!(
            answer.value()["error"]
                .as_str()
                .is_some_and(|words| words.len() > 5)
        );
    }
    let answer = core.handle(
        NOW,
        &Request::post("/sandbox/admin/webhook/none", &json!({})),
    );
    assert_eq!(answer.status, 404);
    assert_eq!(core.violations().count(ViolationKind::UnknownPath), 0);
}

/// The core has let a name pass; where it leads is looked at by the shell as it connects.
#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_not_connected_to() {
    // Whoever comes second finds it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (dispatch, _) = forged(Forgery::Doubled);
    let dispatch = Dispatch {
        target: format!("https://localhost:{port}/").parse().expect("a URL"),
        ..dispatch
    };
    let poster = Poster::new(Setup::default());
    assert_eq!(poster.post(&dispatch, NOW).await, AttemptOutcome::Private);
    let connected = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(connected.is_err(), "nobody came");
}

/// A public name when it was configured and at the first attempt; the second finds it private.
#[tokio::test]
async fn a_name_that_turns_private_between_two_attempts_is_looked_at_again_and_dies() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut core = subscribed(&["LEAD"]);
    let target = format!("https://hooks.example.com:{port}/");
    admin(&mut core, "webhook", &json!({ "targetUrl": target }));
    super::webhook_recording::happen(&mut core, NOW, CrmEvent::LeadCreated { lead: lead(1) });
    let names = Names::default();
    let poster = Poster::new(Setup {
        names: names.clone(),
        ..Setup::default()
    });
    // A network for documents: nobody answers there.
    names.set(
        "hooks.example.com",
        "192.0.2.1".parse().expect("an address"),
    );
    let first = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    let outcome = poster.post(&first, NOW).await;
    assert!(
        matches!(
            outcome,
            AttemptOutcome::TimedOut | AttemptOutcome::Broken(_)
        ),
        "{outcome:?}"
    );
    dispatch::delivered(&mut core, NOW, &first, &outcome, Duration::from_secs(3));
    assert!(!core.webhooks().rows().is_empty(), "it goes again");
    names.set(
        "hooks.example.com",
        "127.0.0.1".parse().expect("an address"),
    );
    let second = dispatch::deliveries(&mut core, after(30))
        .pop()
        .expect("due again");
    let outcome = poster.post(&second, after(30)).await;
    assert_eq!(outcome, AttemptOutcome::Private);
    dispatch::delivered(&mut core, after(30), &second, &outcome, Duration::ZERO);
    let dead: Vec<_> = (core.webhooks().dead().iter())
        .map(|dead| dead.why.clone())
        .collect();
    assert_eq!(dead, ["target private or internal"]);
    assert_eq!(
        core.webhooks().attempts().iter().count(),
        1,
        "the first alone"
    );
    let connected = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(connected.is_err(), "nobody came");
}

/// Three seconds to connect, the handshake among them.
#[tokio::test]
async fn a_receiver_that_shakes_no_hands_is_a_timeout_before_the_ten_seconds() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (dispatch, _) = forged(Forgery::Doubled);
    let dispatch = Dispatch {
        target: format!("https://127.0.0.1:{port}/").parse().expect("a URL"),
        ..dispatch
    };
    let poster = Poster::new(Setup {
        private_targets: true,
        ..Setup::default()
    });
    let begun = tokio::time::Instant::now();
    assert_eq!(poster.post(&dispatch, NOW).await, AttemptOutcome::TimedOut);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2_900), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
