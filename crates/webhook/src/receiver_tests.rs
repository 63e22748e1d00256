//! The installation of our connection is known by its secret, never by the header only.

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

/// The receiver of a state with a secret from `connect`.
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

/// A signed delivery.
struct Signed {
    event: String,
    at: String,
    body: String,
    signature: String,
}

fn signed(event: &str, company: u32) -> Signed {
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

/// Receives the delivery with this installation in its header, which is not signed.
async fn comes(receiver: &Receiver, signed: &Signed, installation: &str) -> Answer {
    let all = [
        (ID, signed.event.as_str()),
        (INSTALLATION, installation),
        (TIMESTAMP, &signed.at),
        (SIGNATURE, &signed.signature),
    ];
    let headers = Headers::read(all.map(|(name, value)| (name, value.as_bytes())));
    let headers = headers.expect("whole");
    let mut proof = receiver.proof(&headers);
    proof.add(signed.body.as_bytes());
    receiver.take(&headers, proof, signed.body.as_bytes()).await
}

/// Returns the installation in use, and the one that a restart would find.
async fn bound(receiver: &Receiver) -> (Option<String>, Option<String>) {
    let connection = receiver.secrets.current().connection.clone();
    let kept = receiver
        .spool
        .read(|store| tables::meta::meta(store, BOUND))
        .await;
    let kept = kept.expect("readable");
    let kept = kept.and_then(|text| Some(text.split_once(' ')?.1.to_owned()));
    (connection.expect("a connection").installation, kept)
}

fn both(installation: &str) -> (Option<String>, Option<String>) {
    (Some(installation.to_owned()), Some(installation.to_owned()))
}

async fn with_company(receiver: &Receiver) {
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
    let early = signed("e-0", 77);
    assert_eq!(comes(&receiver, &early, "6").await.word, "company_unknown");
    assert_eq!(
        bound(&receiver).await,
        (None, None),
        "nobody knows whose it is"
    );
    with_company(&receiver).await;
    let theirs = signed("e-1", 78);
    assert_eq!(comes(&receiver, &theirs, "6").await.word, "other_company");
    assert_eq!(bound(&receiver).await, (None, None), "another company's");
    let true_one = signed("e-2", 77);
    assert_eq!(comes(&receiver, &true_one, "9001").await.word, "learned");
    assert_eq!(bound(&receiver).await, both("9001"));
    let replayed = comes(&receiver, &true_one, "6").await;
    assert_eq!((replayed.status, replayed.word), (200, "repeat"));
    assert_eq!(bound(&receiver).await, both("9001"));
    drop(receiver);
    let closing = tokio::task::spawn_blocking(move || guard.close());
    closing.await.expect("closed");
}

#[tokio::test]
async fn wrong_binding_is_corrected_by_next_verified_delivery() {
    let folder = tempfile::tempdir().expect("a folder");
    let (receiver, guard) = receiver(folder.path()).await;
    with_company(&receiver).await;
    // An attacker delayed the true delivery and sends it with another header.
    let stolen = signed("e-1", 77);
    assert_eq!(comes(&receiver, &stolen, "6").await.status, 200);
    assert_eq!(bound(&receiver).await, both("6"));
    let next = comes(&receiver, &signed("e-2", 77), "9001").await;
    assert_eq!(next.status, 200, "{next:?}");
    assert_eq!(bound(&receiver).await, both("9001"));
    let mut others = signed("e-3", 77);
    others.signature = format!("sha256={}", "0".repeat(64));
    let missing = comes(&receiver, &others, "7").await;
    assert_eq!(missing.status, 503, "its secret may be given to us yet");
    let forged = comes(&receiver, &others, "9001").await;
    assert_eq!(forged.status, 401);
    drop(receiver);
    let closing = tokio::task::spawn_blocking(move || guard.close());
    closing.await.expect("closed");
}
