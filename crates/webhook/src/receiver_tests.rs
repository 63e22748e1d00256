//! Tests that the receiver only learns its installations from verified deliveries rather than from
//! a header alone, and that only these installations may use a secret that isn't known yet.

use super::*;
use crate::headers::{ID, INSTALLATION, SIGNATURE, TIMESTAMP};
use crate::secrets::Places;
use callbridge_call::EventTime;
use callbridge_model::Secret;
use callbridge_model::webhook_signature::Key;
use callbridge_spool as spool;
use callbridge_spool::{Guard, Settings, tables};
use serde_json::json;
use std::path::Path;

const SECRET: &str = "4f1a0c9d2b7e6058a3c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071829";

/// Returns the receiver for the state in `folder`. The connection's secret is [`SECRET`].
async fn receiver(folder: &Path) -> (Receiver, Guard) {
    let (spool, guard) = spool::open(folder, Settings::default()).expect("a spool");
    let stored = spool.read(|store| tables::meta::meta(store, STORED)).await;
    let receiver = Receiver {
        spool,
        secrets: Secrets::new(Places::default(), Some(Secret::from(SECRET))).0,
        installations: Installations::new(stored.expect("readable").as_deref()),
        country: None,
        clock_right_from: EventTime::from_seconds(0),
        tally: Arc::new(Tally::new()),
    };
    (receiver, guard)
}

/// A delivery with a valid signature.
struct Signed {
    event: String,
    at: String,
    body: String,
    signature: String,
}

/// Returns a signed delivery of an event about this company.
fn sign_delivery(event: &str, company: u32) -> Signed {
    let at = clock::now().wall.floor_seconds().get().to_string();
    let body = json!({
        "eventId": event, "eventType": "LEAD_CREATED", "occurredAt": 1_795_151_317,
        "companyId": company, "lead": {"id": 4001, "phone": "+998901110001"},
    });
    let body = body.to_string();
    let signature = Key::new(&Secret::from(SECRET)).sign(&at, body.as_bytes());
    Signed {
        event: event.to_owned(),
        at,
        body,
        signature,
    }
}

/// Passes a delivery to the receiver. The header that identifies the installation isn't signed.
async fn receive(receiver: &Receiver, signed: &Signed, installation: &str) -> Answer {
    let all = [
        (ID, signed.event.as_str()),
        (INSTALLATION, installation),
        (TIMESTAMP, &signed.at),
        (SIGNATURE, &signed.signature),
    ];
    let headers = Headers::read(all.map(|(name, value)| (name, value.as_bytes())));
    let headers = headers.expect("complete headers");
    let mut proof = receiver.proof(&headers);
    proof.add(signed.body.as_bytes());
    receiver.take(&headers, proof, signed.body.as_bytes()).await
}

/// Returns the stored installations.
async fn stored_installations(receiver: &Receiver) -> Option<String> {
    let spool = &receiver.spool;
    let stored = spool.read(|store| tables::meta::meta(store, STORED)).await;
    stored.expect("readable")
}

/// Returns the status of a fresh delivery that wasn't signed with any known secret.
async fn receive_mismatch(receiver: &Receiver, installation: &str) -> u16 {
    let mut delivery = sign_delivery("e-9", 77);
    delivery.signature = format!("sha256={}", "0".repeat(64));
    receive(receiver, &delivery, installation).await.status
}

async fn close(receiver: Receiver, guard: Guard) {
    drop(receiver);
    let closing = tokio::task::spawn_blocking(move || guard.close());
    closing.await.expect("closed");
}

/// Stores the connection's company 77 and application 5.
async fn bind_company(receiver: &Receiver) {
    let (company, application) = ("77".to_owned(), "5".to_owned());
    let bind = Op::BindCompany {
        company,
        application,
    };
    receiver.spool.write(vec![bind]).await.expect("bound");
}

#[tokio::test]
async fn only_new_deliveries_of_our_company_teach_an_installation() {
    let folder = tempfile::tempdir().expect("a folder");
    let (receiver, guard) = receiver(folder.path()).await;
    let early = sign_delivery("e-0", 77);
    assert_eq!(
        receive(&receiver, &early, "6").await.word,
        "company_unknown"
    );
    bind_company(&receiver).await;
    let theirs = sign_delivery("e-1", 78);
    assert_eq!(receive(&receiver, &theirs, "6").await.word, "other_company");
    assert_eq!(stored_installations(&receiver).await, None);
    let true_one = sign_delivery("e-2", 77);
    assert_eq!(receive(&receiver, &true_one, "9001").await.word, "learned");
    let replayed = receive(&receiver, &true_one, "6").await;
    assert_eq!((replayed.status, replayed.word), (200, "repeat"));
    let stored = stored_installations(&receiver).await;
    assert_eq!(stored.as_deref(), Some("9001"));
    close(receiver, guard).await;
}

#[tokio::test]
async fn mismatch_gets_503_if_ours_also_after_restart_else_401() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, guard) = receiver(folder.path()).await;
    bind_company(&first).await;
    assert_eq!(receive_mismatch(&first, "7").await, 503, "none is known");
    let verified = sign_delivery("e-1", 77);
    assert_eq!(receive(&first, &verified, "9001").await.status, 200);
    assert_eq!(receive_mismatch(&first, "7").await, 401);
    assert_eq!(receive_mismatch(&first, "9001").await, 503);
    let now = clock::now().wall;
    assert!(first.tally.mismatch(now).is_some());
    close(first, guard).await;
    let (second, guard) = receiver(folder.path()).await;
    assert_eq!(receive_mismatch(&second, "7").await, 401);
    assert_eq!(second.tally.mismatch(now), None);
    assert_eq!(receive_mismatch(&second, "9001").await, 503);
    assert!(second.tally.mismatch(now).is_some());
    let next = sign_delivery("e-2", 77);
    assert_eq!(receive(&second, &next, "9001").await.status, 200);
    assert_eq!(second.tally.mismatch(now), None);
    close(second, guard).await;
}
