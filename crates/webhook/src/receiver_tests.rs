//! Tests that the receiver finds the installation of callbridge's connection by its secret, never
//! by the header only.

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

/// Returns the receiver of the state in `folder`. The secret of the connection is [`SECRET`].
async fn receiver(folder: &Path) -> (Receiver, Guard) {
    let (spool, guard) = spool::open(folder, Settings::default()).expect("a spool");
    let bound = spool.read(|store| tables::meta::meta(store, BOUND)).await;
    let receiver = Receiver {
        spool,
        secrets: Secrets::new(
            Places::default(),
            Some(Secret::from(SECRET)),
            bound.expect("readable"),
        )
        .0,
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

/// Returns a signed delivery of an event about the company.
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

/// Passes a delivery to the receiver. The header that names the installation is not signed.
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

/// Returns the installation of the connection that the receiver uses, and the installation that the
/// state has for the next start.
async fn installations(receiver: &Receiver) -> (Option<String>, Option<String>) {
    let connection = receiver.secrets.current().connection.clone();
    let kept = receiver
        .spool
        .read(|store| tables::meta::meta(store, BOUND))
        .await;
    let kept = kept.expect("readable");
    let kept = kept.and_then(|text| Some(text.split_once(' ')?.1.to_owned()));
    (connection.expect("a connection").installation, kept)
}

/// Returns the expected result of [`installations`] if both are `installation`.
fn both_installations(installation: &str) -> (Option<String>, Option<String>) {
    (Some(installation.to_owned()), Some(installation.to_owned()))
}

/// Stores the company 77 and the application 5 of the connection.
async fn bind_company(receiver: &Receiver) {
    let (company, application) = ("77".to_owned(), "5".to_owned());
    let bind = Op::BindCompany {
        company,
        application,
    };
    receiver.spool.write(vec![bind]).await.expect("bound");
}

#[tokio::test]
async fn replay_under_other_header_counts_and_binds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (receiver, guard) = receiver(folder.path()).await;
    let early = sign_delivery("e-0", 77);
    assert_eq!(
        receive(&receiver, &early, "6").await.word,
        "company_unknown"
    );
    assert_eq!(
        installations(&receiver).await,
        (None, None),
        "the company of the connection is not known"
    );
    bind_company(&receiver).await;
    let theirs = sign_delivery("e-1", 78);
    assert_eq!(receive(&receiver, &theirs, "6").await.word, "other_company");
    assert_eq!(
        installations(&receiver).await,
        (None, None),
        "another company's"
    );
    let true_one = sign_delivery("e-2", 77);
    assert_eq!(receive(&receiver, &true_one, "9001").await.word, "learned");
    assert_eq!(installations(&receiver).await, both_installations("9001"));
    let replayed = receive(&receiver, &true_one, "6").await;
    assert_eq!((replayed.status, replayed.word), (200, "repeat"));
    assert_eq!(installations(&receiver).await, both_installations("9001"));
    drop(receiver);
    let closing = tokio::task::spawn_blocking(move || guard.close());
    closing.await.expect("closed");
}

#[tokio::test]
async fn wrong_binding_is_corrected_by_next_verified_delivery() {
    let folder = tempfile::tempdir().expect("a folder");
    let (receiver, guard) = receiver(folder.path()).await;
    bind_company(&receiver).await;
    // An attacker has delayed a valid delivery, and sends the delivery with another header.
    let stolen = sign_delivery("e-1", 77);
    assert_eq!(receive(&receiver, &stolen, "6").await.status, 200);
    assert_eq!(installations(&receiver).await, both_installations("6"));
    let next = receive(&receiver, &sign_delivery("e-2", 77), "9001").await;
    assert_eq!(next.status, 200, "{next:?}");
    assert_eq!(installations(&receiver).await, both_installations("9001"));
    let mut others = sign_delivery("e-3", 77);
    others.signature = format!("sha256={}", "0".repeat(64));
    let missing = receive(&receiver, &others, "7").await;
    assert_eq!(missing.status, 503, "its secret may be given to us yet");
    let forged = receive(&receiver, &others, "9001").await;
    assert_eq!(forged.status, 401);
    drop(receiver);
    let closing = tokio::task::spawn_blocking(move || guard.close());
    closing.await.expect("closed");
}
