//! Tests of the HTTP client of the dispatcher: its check of addresses, and its timeouts.

use super::NOW;
use super::webhook_dispatch::create_leads;
use super::webhook_recording::subscribed_sandbox;
use crate::webhook::post::DeliveryClient;
use crate::webhook::{AttemptOutcome, Dispatch, dispatch};
use crate::{Request, ViolationKind};
use serde_json::json;
use std::time::Duration;

/// Returns a due delivery to the URL `target`.
fn due_delivery(target: &str) -> Dispatch {
    let mut core = subscribed_sandbox(&["LEAD"]);
    create_leads(&mut core, NOW, 1);
    let dispatch = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    Dispatch {
        target: target.parse().expect("a URL"),
        ..dispatch
    }
}

#[test]
fn invalid_admin_requests_are_refused_with_a_message() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    for (act, body) in [
        ("webhook/revoke", json!({ "installation": 5 })),
        ("webhook/regenerate", json!({})),
        ("webhook", json!({ "application": "one" })),
        ("webhook", json!({ "events": "LEAD" })),
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

/// The core accepts the name `localhost`. The client checks the addresses of a name when the client
/// connects.
#[tokio::test]
async fn target_name_with_private_address_is_not_connected() {
    // An error means that another test has installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let dispatch = due_delivery(&format!("https://localhost:{port}/"));
    let poster = DeliveryClient::new(None, false);
    assert_eq!(poster.post(&dispatch, NOW).await, AttemptOutcome::Private);
    let connected = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(connected.is_err(), "nobody came");
}

/// The limit for a connection is three seconds, including the handshake.
#[tokio::test]
async fn receiver_without_handshake_times_out_before_10_seconds() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let dispatch = due_delivery(&format!("https://127.0.0.1:{port}/"));
    let poster = DeliveryClient::new(None, true);
    let begun = tokio::time::Instant::now();
    assert_eq!(poster.post(&dispatch, NOW).await, AttemptOutcome::TimedOut);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2_900), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
