//! Tests that every operation and every query works on this engine.

use super::acts::{ACTS, filled_store};
use super::acts_hub::HUB;
use super::acts_lead_requests::LEAD_ACTS;
use super::acts_listed::LISTED;
use crate::tables;

#[test]
fn every_operation_keeps_the_books_balanced() {
    let (mut store, rows) = filled_store(8);
    for (_, act) in ACTS.iter().chain(LEAD_ACTS).chain(LISTED).chain(HUB) {
        act(&mut store, &rows);
    }
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
}
