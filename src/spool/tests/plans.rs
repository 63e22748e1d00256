//! Does every question of the hot path find its index? A backlog of a million calls must not be
//! walked for one request.

use crate::spool::{Settings, Store};

/// The question, and the index that answers it.
const PLANS: [(&str, &str); 10] = [
    (
        "SELECT id FROM calls WHERE state = 'ready' AND not_before = 0 AND live = ?1
         ORDER BY id LIMIT 1",
        "calls_fresh (live=?)",
    ),
    (
        "SELECT id FROM calls WHERE state = 'ready' AND not_before > 0 AND live = ?1
         AND not_before <= ?2 ORDER BY not_before LIMIT 1",
        "calls_held (live=? AND not_before>? AND not_before<?)",
    ),
    (
        "SELECT id FROM calls WHERE state = 'submitted' AND next_poll <= ?1
         ORDER BY next_poll LIMIT ?2",
        "calls_poll (next_poll<?)",
    ),
    (
        "SELECT id FROM calls WHERE state = 'submitted' AND absent < 2
         ORDER BY submitted_at LIMIT ?1",
        "calls_sweep",
    ),
    (
        "SELECT id FROM calls WHERE state = 'sending' ORDER BY id",
        "calls_sending",
    ),
    (
        "SELECT id FROM calls WHERE uuid = ?1",
        "calls_uuid (uuid=?)",
    ),
    (
        "SELECT id FROM calls WHERE state IN ('dead', 'parked') AND id > ? ORDER BY id LIMIT 9",
        "calls_letter (id>?)",
    ),
    (
        "SELECT reason, count(*) FROM calls WHERE state IN ('dead', 'parked') GROUP BY reason",
        "calls_reason",
    ),
    (
        "SELECT id FROM calls WHERE state = 'parked' AND phone = ?1 ORDER BY id",
        "calls_parked (phone=?)",
    ),
    (
        "SELECT id FROM calls WHERE state IN ('journaled', 'discarded') AND state = ?1
         AND since < ?2 ORDER BY since LIMIT ?3",
        "calls_closed (since<?)",
    ),
];

#[test]
fn every_question_of_the_hot_path_finds_its_index() {
    let store = Store::in_memory(Settings::default()).expect("memory");
    for (question, index) in PLANS {
        let plan = store.plan(question);
        assert!(plan.contains(index), "{question}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{question}\n{plan}");
    }
}
