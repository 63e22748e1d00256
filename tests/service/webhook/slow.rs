//! Tests events while the disk is slow.

use super::line::soon;
use super::place::{Delivery, Place};
use std::sync::mpsc;

#[tokio::test]
async fn event_during_disk_hang_gets_503_and_retry_counts_once() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    let books = place.books().await;
    // Writes wait behind this read, as behind a disk that hangs.
    let (free, held) = mpsc::sync_channel::<()>(1);
    let (begun, begins) = tokio::sync::oneshot::channel();
    let spool = place.spool.clone();
    let holding = tokio::spawn(async move {
        let hold = spool.read(move |_| {
            let _ = begun.send(());
            let _ = held.recv();
            Ok(())
        });
        hold.await.expect("readable");
    });
    soon("the disk to hang", begins).await.expect("it hangs");
    let status = soon("an answer", place.post(&Delivery::for_call(1))).await;
    // The disk still hangs. The answer came within the time that the CRM waits (§6.9.2).
    assert_eq!(status, 503, "it comes again");
    free.send(()).expect("it waits");
    soon("the disk", holding).await.expect("no panic");
    assert_eq!(place.post(&Delivery::for_call(1)).await, 200, "come again");
    let now = place.books().await;
    assert_eq!(now.journaled, books.journaled + 1, "{now:?}");
    assert!(now.balance());
    place.stop().await;
}
