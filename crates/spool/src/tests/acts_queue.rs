//! The acts that read the head of the sender's queue, and those that find what assigning a lead
//! changes.

use super::acts::{Rows, token};
use crate::tests::call::time_at;
use crate::{QueueQuery, Store, SuspendedBranch, SuspendedCalls, Trial, tables};
use callbridge_model::{LeadId, Phone, TokenFingerprint};

pub fn ask(seconds: i64, token: Option<TokenFingerprint>) -> QueueQuery {
    QueueQuery {
        now: time_at(seconds),
        tokens: token.into_iter().collect(),
        confirmable_before: time_at(seconds),
        ending_before: time_at(seconds),
        untried_first: false,
        suspended: SuspendedCalls::default(),
    }
}

/// Runs the query while one branch's calls, or all calls, are suspended.
pub fn suspended_head(store: &mut Store, _: &Rows) {
    for turn in ["pbx1", ""] {
        let mut query = ask(500, Some(token()));
        query.suspended.branches.push(SuspendedBranch {
            turn: turn.to_owned(),
            refused: Vec::new(),
            trial: Trial::AnyCall,
        });
        tables::work_queue::head(store, &query).expect("a head");
    }
}

/// Runs the query with the current token, with a different one, and without any.
pub fn head(store: &Store, seconds: i64) {
    for token in [Some(token()), Some(TokenFingerprint::of("another")), None] {
        tables::work_queue::head(store, &ask(seconds, token)).expect("a head");
    }
}

/// Checks whether a lead is known, and which of a number's dead letters it may affect.
pub fn asked_lead(store: &mut Store, _: &Rows) {
    let lead = LeadId::new(4001).expect("an id");
    tables::directory::has_lead(store, lead).expect("readable");
    let phone = Phone::from_e164("+998900000001").expect("a number");
    tables::letters::refused_calls(store, &phone, 20).expect("readable");
}
