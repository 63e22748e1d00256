//! Queries that choose which ready call to try for a branch whose calls the CRM has refused several
//! times in a row.

use super::ready::{READY, ReadyCall};
use crate::db::Asked;
use crate::{Db, Due, Error, QueueQuery, SuspendedBranch, Trial};

/// Maximum number of ready calls that each query searches. If a customer or an employee has more
/// calls than that, they hide everyone else's, and a trial has to wait for the next call.
const SEARCHED_MAX: u32 = 200;

/// Queries for a branch's ready calls, whose results are read later.
#[derive(Default)]
pub(super) struct TrialQuestions(Vec<Asked<ReadyCall>>);

impl TrialQuestions {
    /// Sends the queries for each suspended branch, except for branches that aren't to try any
    /// call.
    pub(super) fn ask(db: &Db, ask: &QueueQuery) -> Result<Vec<Self>, Error> {
        let mut all = Vec::new();
        for branch in &ask.suspended.branches {
            let mut questions = Self::default();
            if branch.trial != Trial::None {
                for live in [true, false] {
                    questions.0.push(ask_newest(db, live, &branch.turn)?);
                    questions.0.push(ask_held_back(db, live, ask)?);
                }
            }
            all.push(questions);
        }
        Ok(all)
    }

    /// Returns the call to try, if any.
    pub(super) fn choose(self, db: &Db, branch: &SuspendedBranch) -> Result<Option<Due>, Error> {
        let (mut unsuspected, mut any) = (None, None);
        for asked in self.0 {
            for call in asked.all(db)? {
                if !branch.turn.is_empty() && call.turn != branch.turn {
                    continue;
                }
                if !call.parties.are_shared_with(&branch.refused) {
                    return Ok(Some(call.due));
                }
                if !call.parties.are_suspected_with(&branch.refused) {
                    unsuspected.get_or_insert(call.due);
                }
                any.get_or_insert(call.due);
            }
        }
        Ok(unsuspected.or(any.filter(|_| branch.trial == Trial::AnyCall)))
    }
}

/// Sends the query for the newest calls that were never held back.
fn ask_newest(db: &Db, live: bool, turn: &str) -> Result<Asked<ReadyCall>, Error> {
    let fresh = format!("{READY} AND not_before = 0");
    // This order matches the index. With `live = …` or `turn = …`, PostgreSQL would scan all calls
    // backward.
    if turn.is_empty() {
        let text =
            format!("{fresh} AND live >= ?1 AND live <= ?1 ORDER BY live DESC, id DESC LIMIT ?2");
        return db.ask(&text, (live, SEARCHED_MAX));
    }
    let text = format!(
        "{fresh} AND live = ?1 AND turn >= ?2 AND turn <= ?2 ORDER BY turn, id DESC LIMIT ?3"
    );
    db.ask(&text, (live, turn, SEARCHED_MAX))
}

/// Sends the query for calls that were held back but can be sent now.
fn ask_held_back(db: &Db, live: bool, ask: &QueueQuery) -> Result<Asked<ReadyCall>, Error> {
    let text = format!(
        "{READY} AND not_before <= ?2 AND not_before > 0 AND live = ?1
         ORDER BY not_before LIMIT ?3"
    );
    db.ask(&text, (live, ask.now.micros(), SEARCHED_MAX))
}
