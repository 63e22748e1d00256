//! The senders of each branch: its collector, and possibly a script or a second collector that uses
//! the same token.
//!
//! Each sender has the `seq` of its own last response. With a single one per branch, the requests
//! of one sender would raise it, which would hide from the others that the hub has lost commits.

use crate::db::Asked;
use crate::{BranchRequest, BranchSender, Db, Error, HubPosition};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Maximum number of senders to keep per branch. A new one replaces the sender with the oldest
/// response.
const SENDERS_MAX: usize = 8;

/// A branch along with one of its senders, if it has any.
#[derive(Deserialize)]
pub(super) struct SenderRow {
    branch_seq: u64,
    sender: Option<String>,
    seq: Option<u64>,
    incarnation: Option<String>,
    seen: Option<u64>,
    sent_seq: Option<u64>,
}

/// The last response to a sender, and what the sender had seen by then.
struct LastAnswer {
    seq: u64,
    incarnation: String,
    seen: u64,
    /// The `seq` that the sender sent, of any incarnation.
    sent_seq: Option<u64>,
}

/// A branch's senders before a request.
pub(super) struct Senders {
    /// Senders that aren't known may have seen responses up to this `seq`, which the state knew
    /// then.
    branch_seq: u64,
    known: BTreeMap<String, LastAnswer>,
}

/// Sends the query for a branch and its senders.
pub(super) fn ask(db: &Db, branch: &str) -> Result<Asked<SenderRow>, Error> {
    let text = "SELECT b.seq AS branch_seq, s.sender, s.seq, s.incarnation, s.seen,
             s.sent_seq
         FROM branches b LEFT JOIN branch_senders s ON s.branch = b.name WHERE b.name = ?1";
    db.ask(text, [branch])
}

/// Reads the result of [`ask`], or returns `None` if there's no such branch.
pub(super) fn read(db: &Db, asked: Asked<SenderRow>) -> Result<Option<Senders>, Error> {
    let mut senders = None;
    for row in asked.all(db)? {
        let senders = senders.get_or_insert_with(|| Senders {
            branch_seq: row.branch_seq,
            known: BTreeMap::new(),
        });
        if let (Some(sender), Some(seq), Some(incarnation), Some(seen)) =
            (row.sender, row.seq, row.incarnation, row.seen)
        {
            let last = LastAnswer {
                seq,
                incarnation,
                seen,
                sent_seq: row.sent_seq,
            };
            senders.known.insert(sender, last);
        }
    }
    Ok(senders)
}

/// Returns the key of a request's sender.
fn key(request: &BranchRequest) -> &str {
    request.sender.as_deref().unwrap_or_default()
}

impl Senders {
    /// Returns the highest `seq` that this state may have sent to the request's sender.
    pub(super) fn answered(&self, request: &BranchRequest) -> u64 {
        let last = self.known.get(key(request));
        last.map_or(self.branch_seq, |last| last.seq)
    }

    /// Returns `true` if another database has answered the sender since its last response from
    /// this hub's current incarnation. A sender that never received that response sends the same
    /// position as before, and a script can send any position.
    pub(super) fn has_strayed(&self, request: &BranchRequest, present: &str) -> bool {
        let (Some(sender), Some(seen)) = (&request.sender, &request.seen) else {
            return false;
        };
        let last = self.known.get(sender);
        last.is_some_and(|last| {
            last.incarnation == present
                && seen.incarnation != present
                && last.sent_seq != Some(seen.seq)
        })
    }

    /// Records that the sender was sent a response with this position, whose incarnation is the
    /// current one.
    pub(super) fn note(
        &self,
        db: &Db,
        request: &BranchRequest,
        answer: &HubPosition,
    ) -> Result<(), Error> {
        let sent_seq = request.seen.as_ref().map(|seen| seen.seq);
        let seen = match &request.seen {
            Some(seen) if seen.incarnation == answer.incarnation => Some(seen.seq),
            _ => None,
        };
        let sender = key(request);
        let last = self.known.get(sender);
        if last.is_none() {
            self.make_room(db, &request.branch)?;
        }
        let at = request.at.floor_seconds().get();
        let newest = self.known.values().map(|other| other.seq).max();
        let alternated = last.is_some_and(|last| newest > Some(last.seq));
        // A script may send any position, so this only applies to named senders.
        let went_back = match (last, seen) {
            (Some(last), Some(seen)) => !sender.is_empty() && seen < last.seen,
            _ => false,
        };
        let text = "INSERT INTO branch_senders
                 (branch, sender, seq, incarnation, seen, sent_seq, requests, last_at, alternated,
                 went_back)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8, ?9)
             ON CONFLICT (branch, sender) DO UPDATE SET seq = excluded.seq,
                 incarnation = excluded.incarnation, seen = excluded.seen,
                 sent_seq = excluded.sent_seq,
                 requests = branch_senders.requests + 1, last_at = excluded.last_at,
                 alternated = coalesce(excluded.alternated, branch_senders.alternated),
                 went_back = coalesce(excluded.went_back, branch_senders.went_back)";
        let alternated = alternated.then_some(at);
        let went_back = went_back.then_some(at);
        let seen = seen.unwrap_or(0);
        let values = (
            &request.branch,
            sender,
            answer.seq,
            &answer.incarnation,
            seen,
            sent_seq,
            at,
            alternated,
            went_back,
        );
        db.run(text, values)
    }

    /// Forgets the sender with the oldest response if the branch has too many. If that sender comes
    /// back, it must not look as if its responses had been lost.
    fn make_room(&self, db: &Db, branch: &str) -> Result<(), Error> {
        let oldest = self.known.iter().min_by_key(|(_, last)| last.seq);
        let Some((sender, last)) = oldest.filter(|_| self.known.len() >= SENDERS_MAX) else {
            return Ok(());
        };
        let text = "DELETE FROM branch_senders WHERE branch = ?1 AND sender = ?2";
        db.run(text, (branch, sender))?;
        let text = "UPDATE branches SET seq = ?2 WHERE name = ?1";
        db.run(text, (branch, last.seq.max(self.branch_seq)))
    }
}

/// Forgets what the senders had seen of the previous incarnation.
pub(super) fn begin_again(db: &Db) -> Result<(), Error> {
    db.run("UPDATE branch_senders SET seen = 0", ())
}

/// Forgets which incarnation last answered each sender. The other database may have answered many
/// of them since, which proves nothing once its hub has been stopped.
pub(super) fn forget_answers(db: &Db) -> Result<(), Error> {
    db.run("UPDATE branch_senders SET incarnation = ''", ())
}

/// Returns each branch's senders, ordered by ID.
pub(super) fn by_branch(db: &Db) -> Result<BTreeMap<String, Vec<BranchSender>>, Error> {
    #[derive(Deserialize)]
    struct Row {
        branch: String,
        about: BranchSender,
    }
    let text = "SELECT branch, true AS about, sender, requests, last_at, alternated, went_back
         FROM branch_senders";
    let mut all: BTreeMap<String, Vec<BranchSender>> = BTreeMap::new();
    for Row { branch, about } in db.query_all(text, ())? {
        all.entry(branch).or_default().push(about);
    }
    for senders in all.values_mut() {
        senders.sort_by(|one, other| one.sender.cmp(&other.sender));
    }
    Ok(all)
}
