//! Stores the finished calls from a group of requests in PostgreSQL, using one query and one insert
//! per table for all of them, so that the number of round trips doesn't grow with the number of
//! calls.
//!
//! Only new and repeated calls are stored together. When a call changes an earlier one, the calls
//! collected so far are stored first, and then that call is stored on its own, which is how SQLite
//! stores every call.

use super::call_row::{self, CANDIDATE, DuplicateCandidate, WAITS, ids_of};
use super::intake_customers::Customers;
use super::missed::{self, KEPT_OUT_MAX, contact};
use super::outbox;
use super::seen_calls::SeenRows;
use super::senders::{self, SenderRow};
use super::trunk_calls::TrunkSums;
use crate::db::Asked;
use crate::value::{Columns, values};
use crate::{
    Db, Done, Error, Finished, INTERNAL_KEPT, Letter, Op, RowId, Store, called_extensions,
};
use callbridge_model::{Outcome, Reason};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// What a search for earlier calls with a finished call's IDs or UUID has found.
pub(crate) enum Traces {
    /// There is no earlier call with any of these IDs or this UUID.
    None,
    /// The same call has been stored before. Contains its row, if it has one.
    Repeat(Option<RowId>),
    /// Either earlier calls weren't queried, or this call might change one of them.
    Unknown,
}

/// The finished calls of a group, along with the queries about earlier calls. By default there are
/// no queries, in which case each call is stored separately.
#[derive(Default)]
pub(crate) struct Intake {
    questions: Option<Questions>,
    /// What was found for each call, in the same order as the calls.
    traces: VecDeque<FoundTraces>,
    /// Queries for each branch's senders, by branch name.
    senders: BTreeMap<String, Asked<SenderRow>>,
    customers: Customers,
    rows: Rows,
}

/// Queries about all calls in a group. Every row of the results contains a call's number within the
/// group.
struct Questions {
    own_ids: Option<Asked<(usize, i64)>>,
    same_uuids: Option<Asked<SameUuid>>,
    parts: Option<Asked<usize>>,
}

#[derive(Deserialize)]
struct SameUuid {
    number: usize,
    known: DuplicateCandidate,
    /// Whether the stored call is a dead letter that a more complete report of the call may
    /// replace.
    waits: bool,
}

/// What the database knows about earlier calls with a finished call's IDs or UUID.
#[derive(Default)]
struct FoundTraces {
    /// Whether the call shares an ID with another call in its group, which may be stored first.
    is_entangled: bool,
    /// When the earlier call with the same linkedid started, if there is one.
    started: Option<i64>,
    same_uuid: Option<SameUuid>,
    has_parts: bool,
}

impl FoundTraces {
    fn compare_with(self, new: &Finished) -> Traces {
        if self.is_entangled {
            return Traces::Unknown;
        }
        let is_same_start = self.started.is_some_and(|started| new.same_start(started));
        match (self.started, self.same_uuid) {
            (None, None) if !self.has_parts => Traces::None,
            (None, _) => Traces::Unknown,
            (Some(_), _) if !new.judged.outcome.is_kept() => {
                if is_same_start {
                    Traces::Repeat(None)
                } else {
                    Traces::Unknown
                }
            }
            (Some(_), None) if is_same_start => Traces::Repeat(None),
            (Some(_), Some(SameUuid { known, waits, .. }))
                if !waits && known.conflict_with(new).is_none() =>
            {
                Traces::Repeat(Some(known.id))
            }
            (Some(_), _) => Traces::Unknown,
        }
    }
}

impl Intake {
    /// Sends the queries about all calls and branches in these requests, whose results arrive in a
    /// single round trip.
    pub(crate) fn ask<R: AsRef<[Op]>>(db: &Db, requests: &[R]) -> Result<Self, Error> {
        let mut calls: Vec<&Finished> = Vec::new();
        let mut intake = Self::default();
        for op in requests.iter().flat_map(AsRef::as_ref) {
            match op {
                Op::Finish(finished) => calls.push(finished),
                Op::BranchRequest(request) if !intake.senders.contains_key(&request.branch) => {
                    let asked = senders::ask(db, &request.branch)?;
                    intake.senders.insert(request.branch.clone(), asked);
                }
                _ => {}
            }
        }
        if calls.is_empty() {
            return Ok(intake);
        }
        intake.traces = entangled(&calls);
        intake.questions = Some(Questions::ask(db, &calls, &intake.traces)?);
        intake.customers = Customers::ask(db, &calls)?;
        Ok(intake)
    }

    /// Returns the query for a branch's senders. Only the branch's first request in the group gets
    /// it.
    pub(super) fn take_senders(&mut self, branch: &str) -> Option<Asked<SenderRow>> {
        self.senders.remove(branch)
    }

    /// Returns what was found for `new`, which must be the group's next call.
    pub(super) fn traces_of(&mut self, db: &Db, new: &Finished) -> Result<Traces, Error> {
        if let Some(questions) = self.questions.take() {
            questions.answer(db, &mut self.traces)?;
        }
        match self.traces.pop_front() {
            Some(found) => Ok(found.compare_with(new)),
            None => Ok(Traces::Unknown),
        }
    }

    /// Collects a call that isn't known yet, for [`Intake::store`] to store.
    pub(super) fn take(&mut self, store: &mut Store, new: &Finished) -> Result<Done, Error> {
        self.rows.is_empty = false;
        self.rows.seen.add(new);
        let mut done = Done::Counted;
        if new.judged.outcome.is_kept() {
            done = Done::New(self.take_row(store, new)?);
        } else {
            call_row::count_without_row(store, new);
            if new.judged.outcome == Outcome::Internal {
                let internal = &mut self.rows.internal;
                internal.push((new.started(), &new.record_json));
            }
        }
        if new.judged.kept_out_unanswered {
            self.rows.leave_out(new);
        }
        self.rows.trunks.add(new);
        self.note_customer(store, new)?;
        Ok(done)
    }

    fn take_row(&mut self, store: &mut Store, new: &Finished) -> Result<RowId, Error> {
        let id = store.new_id();
        let state = new.state();
        call_row::add_row(id, new, &mut self.rows.calls);
        call_row::count_in_books(store, id, state, new.judged.reason)?;
        if state.is_letter() {
            let letter = letter(store, id, new)?;
            if outbox::queue_notice_of(store, letter)? {
                self.rows.reported.push([id.0]);
            }
        }
        Ok(id)
    }

    fn note_customer(&mut self, db: &Db, new: &Finished) -> Result<(), Error> {
        let Some((phone, contact)) = contact(new) else {
            return Ok(());
        };
        if !self.customers.are_known(db)? {
            self.store(db)?;
            self.customers.ask_again(db)?;
        }
        if !self.customers.note(new, phone, contact) {
            self.begin_alone(db)?;
            missed::apply(db, new)?;
        }
        Ok(())
    }

    /// Stores the calls collected so far, because the next one will be stored separately.
    pub(super) fn begin_alone(&mut self, db: &Db) -> Result<(), Error> {
        self.store(db)?;
        self.customers.forget();
        Ok(())
    }

    /// Stores the calls collected so far, along with any changes to their customers.
    pub(crate) fn store(&mut self, db: &Db) -> Result<(), Error> {
        if !self.rows.is_empty {
            std::mem::take(&mut self.rows).store(db)?;
        }
        self.customers.store(db)
    }
}

/// Builds the dead letter or waiting call that a new row will contain.
fn letter(db: &Db, id: RowId, new: &Finished) -> Result<Letter, Error> {
    let state = new.state();
    let judged = &new.judged;
    let reason = judged.reason;
    Ok(Letter {
        id,
        uuid: judged.record.uuid,
        reason: reason
            .ok_or_else(|| db.damaged(format!("{id} is a dead letter without a reason")))?,
        waiting: state == crate::State::Waiting,
        since: judged.judged_at,
        message: judged.message.clone(),
        finding: None,
        errors: Value::Null,
        attempts: Vec::new(),
        actions: Vec::new(),
        times_dead: 1,
        call: Some(db.read_json(id, &new.record_json)?),
        bytes: None,
    })
}

/// Returns the initial findings for each call, which only say whether it shares an ID with another
/// call in the group.
fn entangled(calls: &[&Finished]) -> VecDeque<FoundTraces> {
    let mut counts = BTreeMap::new();
    for new in calls {
        for id in ids_of(new) {
            *counts
                .entry((new.judged.record.pbx.as_str(), id))
                .or_insert(0) += 1;
        }
    }
    let mut traces = VecDeque::with_capacity(calls.len());
    for new in calls {
        let pbx = new.judged.record.pbx.as_str();
        traces.push_back(FoundTraces {
            is_entangled: ids_of(new).any(|id| counts[&(pbx, id)] > 1),
            ..FoundTraces::default()
        });
    }
    traces
}

impl Questions {
    fn ask(db: &Db, calls: &[&Finished], traces: &VecDeque<FoundTraces>) -> Result<Self, Error> {
        let mut own_ids = Columns::default();
        let mut uuids = Columns::default();
        let mut parts = Columns::default();
        for (number, (new, found)) in calls.iter().zip(traces).enumerate() {
            if found.is_entangled {
                continue;
            }
            let number = number as u64;
            let record = &new.judged.record;
            own_ids.push((number, &record.pbx, &record.linkedid));
            uuids.push((number, new.uuid()));
            if record.uuid.is_some() && new.judged.reason != Some(Reason::Incomplete) {
                for id in ids_of(new) {
                    parts.push((number, &record.pbx, id, new.uuid()));
                }
            }
        }
        Ok(Self {
            own_ids: ask(db, OWN_IDS, own_ids)?,
            same_uuids: ask(db, &same_uuids(), uuids)?,
            parts: ask(db, &parts_of_calls(), parts)?,
        })
    }

    fn answer(self, db: &Db, traces: &mut VecDeque<FoundTraces>) -> Result<(), Error> {
        for (number, started) in answer(db, self.own_ids)? {
            traces[number].started = Some(started);
        }
        for same in answer(db, self.same_uuids)? {
            let number = same.number;
            traces[number].same_uuid = Some(same);
        }
        for number in answer(db, self.parts)? {
            traces[number].has_parts = true;
        }
        Ok(())
    }
}

/// Sends the query `text` for the rows in `columns`, or returns `None` if there are none.
fn ask<T: DeserializeOwned>(
    db: &Db,
    text: &str,
    columns: Columns,
) -> Result<Option<Asked<T>>, Error> {
    if columns.is_empty() {
        return Ok(None);
    }
    db.ask_many(text, columns).map(Some)
}

fn answer<T: DeserializeOwned>(db: &Db, asked: Option<Asked<T>>) -> Result<Vec<T>, Error> {
    asked.map_or_else(|| Ok(Vec::new()), |asked| asked.all(db))
}

// The LIMIT in each lookup makes PostgreSQL run it once per array row, using the index.

/// Query for earlier calls with a new call's linkedid.
const OWN_IDS: &str = "SELECT new.number, seen.started
     FROM unnest(?1::bigint[], ?2::text[], ?3::text[]) AS new(number, pbx, id)
     CROSS JOIN LATERAL (SELECT started FROM seen_calls
         WHERE pbx = new.pbx AND id = new.id AND is_linkedid = 1 LIMIT 1) AS seen";

/// Returns the query for earlier calls with a new call's UUID.
fn same_uuids() -> String {
    format!(
        "SELECT new.number, true AS known, old.id, old.started, old.phone, old.raw, old.call,
             old.waits
         FROM unnest(?1::bigint[], ?2::bytea[]) AS new(number, uuid)
         CROSS JOIN LATERAL (SELECT {CANDIDATE}, coalesce({WAITS}, false) AS waits
             FROM calls WHERE uuid = new.uuid LIMIT 1) AS old"
    )
}

/// Returns the query for new calls that have already been stored in part, as an `incomplete` dead
/// letter with a different UUID.
fn parts_of_calls() -> String {
    format!(
        "SELECT new.number
         FROM unnest(?1::bigint[], ?2::text[], ?3::text[], ?4::bytea[])
             AS new(number, pbx, id, uuid)
         CROSS JOIN LATERAL (SELECT uuid FROM seen_calls
             WHERE pbx = new.pbx AND id = new.id LIMIT 1) AS seen
         CROSS JOIN LATERAL (SELECT 1 FROM calls
             WHERE uuid = seen.uuid AND uuid <> new.uuid AND {WAITS} LIMIT 1) AS part"
    )
}

/// Rows of new calls that haven't been inserted yet, by table.
struct Rows {
    is_empty: bool,
    seen: SeenRows,
    calls: Columns,
    /// The IDs of the calls for which a notification was queued.
    reported: Columns,
    internal: Columns,
    left_out: Columns,
    trunks: TrunkSums,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            is_empty: true,
            seen: SeenRows::default(),
            calls: Columns::default(),
            reported: Columns::default(),
            internal: Columns::default(),
            left_out: Columns::default(),
            trunks: TrunkSums::default(),
        }
    }
}

impl Rows {
    /// Collects a missed call that `unanswered=no` keeps out of the journal.
    fn leave_out(&mut self, new: &Finished) {
        let rang = called_extensions(new.call.timeline.as_ref()).join(" ");
        let record = &new.judged.record;
        self.left_out.push(values![
            record.pbx,
            new.trunk(),
            new.phone(),
            new.started(),
            rang
        ]);
    }

    fn store(self, db: &Db) -> Result<(), Error> {
        self.seen.store(db)?;
        if !self.calls.is_empty() {
            call_row::insert_rows(db, self.calls)?;
        }
        if !self.reported.is_empty() {
            let text = "UPDATE calls SET reported = 1 WHERE id = ANY(?1::bigint[])";
            db.run_many(text, self.reported, None)?;
        }
        if !self.internal.is_empty() {
            let text = "INSERT INTO internal_calls (started, record)
                 SELECT * FROM unnest(?1::bigint[], ?2::text[])";
            db.run_many(text, self.internal, None)?;
            let text = "DELETE FROM internal_calls
                 WHERE id <= (SELECT max(id) FROM internal_calls) - ?1::bigint";
            db.run(text, [INTERNAL_KEPT])?;
        }
        if !self.left_out.is_empty() {
            let text = "INSERT INTO left_out_calls (pbx, trunk, phone, started, rang)
                 SELECT * FROM unnest(?1::text[], ?2::text[], ?3::text[], ?4::bigint[],
                     ?5::text[])";
            db.run_many(text, self.left_out, None)?;
            let text = "DELETE FROM left_out_calls
                 WHERE id <= (SELECT max(id) FROM left_out_calls) - ?1::bigint";
            db.run(text, [KEPT_OUT_MAX])?;
        }
        self.trunks.store(db)
    }
}
