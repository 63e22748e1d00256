//! Tests of the stored silence.

use super::call::time_at;
use crate::{Op, Settings, Silence, SilenceReason, SlotRow, Store};
use callbridge_model::TokenFingerprint;
use callbridge_testkit::Wait as _;
use std::time::Duration;

fn silence(boot_id: &str, until: u64) -> Op {
    Op::Silence(Silence {
        boot_id: boot_id.to_owned(),
        until: Duration::from_secs(until),
        why: SilenceReason::LostCommits,
    })
}

fn slot(sent: u64) -> Op {
    Op::Slot(SlotRow {
        slot: 0,
        token: TokenFingerprint::of("token"),
        boot_id: "boot".into(),
        sent: Duration::from_secs(sent),
        answered: None,
        wall_sent: time_at(1),
    })
}

/// Returns when the stored silence ends, in seconds, or `None` if there's none.
fn stored_end(store: &Store) -> Option<u64> {
    store.silence().map(|silence| silence.until.as_secs())
}

fn end_after(store: &mut Store, op: Op) -> Option<u64> {
    store.write(vec![op]).expect("stored");
    stored_end(store)
}

#[test]
fn silence_ends_with_first_slot_after_its_later_end() {
    let mut store = super::store(Settings::default());
    assert_eq!(end_after(&mut store, silence("boot", 105)), Some(105));
    assert_eq!(end_after(&mut store, silence("boot", 65)), Some(105));
    assert_eq!(end_after(&mut store, silence("boot", 170)), Some(170));
    // This is the response to a request that was in flight when the silence began.
    assert_eq!(end_after(&mut store, slot(169)), Some(170));
    assert_eq!(end_after(&mut store, slot(170)), None);
    assert_eq!(end_after(&mut store, silence("boot", 200)), Some(200));
    assert_eq!(end_after(&mut store, silence("next boot", 90)), Some(90));
}

#[test]
fn refused_request_stores_no_silence() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    let [own, other] =
        ["https://crm.example.uz", "https://other.example.uz"].map(|address| Op::BindAddress {
            address: address.to_owned(),
            rebind: false,
        });
    handle.write(vec![own]).wait().expect("stored");
    let refused = handle.write(vec![silence("boot", 105), other]).wait();
    refused.expect_err("another CRM");
    let end = handle.read(|store| Ok(stored_end(store))).wait();
    assert_eq!(end, Ok(None));
    handle
        .write(vec![silence("boot", 105)])
        .wait()
        .expect("stored");
    guard.close();
    let (handle, _guard) = place.open(Settings::default());
    let kept = handle.read(|store| Ok(store.silence().is_some())).wait();
    assert_eq!(kept, Ok(true));
}
