//! Passes operations to the [`tables`](crate::tables), and runs the transactions around them.

use crate::tables::intake::Intake;
use crate::tables::unreadable;
use crate::tables::{audited, backfill, branches, connection, deliveries, echoes, finish, forward};
use crate::tables::{
    given, hub, lead_requests, letters, look_ups, meta, outbox, purge, resume, slots, step,
};
use crate::{Done, Error, Op, Store};
use callbridge_leads::lead_request::LeadChange;

/// Serializes all operations to JSON. This happens in the caller's thread, since the spool has only
/// one.
pub(super) fn prepare(mut ops: Vec<Op>) -> Result<Vec<Op>, Error> {
    for op in &mut ops {
        if let Op::Finish(finished) = op {
            finished.make_json()?;
        }
    }
    Ok(ops)
}

impl Store {
    /// Stores either all of `ops` in one transaction, or nothing.
    ///
    /// # Errors
    /// Returns the errors of the individual [`Op`]s. [`Error::Full`] and [`Error::Disk`] may be
    /// temporary.
    pub fn write(&mut self, ops: Vec<Op>) -> Result<Vec<Done>, Error> {
        let request = prepare(ops)?;
        let mut answers = self.write_group(std::slice::from_ref(&request));
        answers.pop().unwrap_or(Err(Error::Closed))
    }

    /// Stores each request completely or not at all, with all the successful ones in a single
    /// transaction.
    ///
    /// The first attempt does without savepoints, because a savepoint copies every page that's
    /// changed. If a request fails, which is rare, the group is stored again with one savepoint per
    /// request.
    pub(super) fn write_group(&mut self, requests: &[Vec<Op>]) -> Vec<Result<Vec<Done>, Error>> {
        let whole = self.in_transaction(|store| {
            let mut intake = store.look_ahead(requests)?;
            let mut done = Vec::with_capacity(requests.len());
            for request in requests {
                done.push(store.apply_all(request, &mut intake)?);
            }
            intake.store(store)?;
            Ok(done)
        });
        match whole {
            Ok(all) => return all.into_iter().map(Ok).collect(),
            Err(error) if requests.len() == 1 => return vec![Err(error)],
            Err(_) => {}
        }
        let each = self.in_transaction(|store| {
            let answers = requests.iter().map(|request| store.in_savepoint(request));
            answers.collect()
        });
        each.unwrap_or_else(|error| vec![Err(error); requests.len()])
    }

    pub(crate) fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.begin()?;
        let mark = self.tally.clone();
        let before = (self.hub.clone(), self.silence.clone());
        let answer = work(self).and_then(|answer| {
            self.tally.write(self, &mark)?;
            hub::advance(self)?;
            self.commit()?;
            Ok(answer)
        });
        if answer.is_ok() {
            self.tally.log(&mark);
            self.appeared.add(self.tally.letters.drain(..));
            self.moved.add(self.tally.moved.drain(..));
        } else {
            self.rollback();
            self.tally = mark;
            (self.hub, self.silence) = before;
        }
        answer
    }

    /// Runs a request in a savepoint. Returns `Err` if the whole transaction failed, or `Ok(Err)`
    /// if only this request did.
    fn in_savepoint(&mut self, request: &[Op]) -> Result<Result<Vec<Done>, Error>, Error> {
        let mark = self.tally.clone();
        let before = (self.hub.clone(), self.silence.clone());
        self.savepoint()?;
        let answer = self.apply_alone(request);
        if let Err(error) = &answer {
            self.tally = mark;
            (self.hub, self.silence) = before;
            if !self.is_in_transaction() {
                return Err(error.clone());
            }
            self.rollback_to_savepoint()?;
        }
        self.release_savepoint()?;
        Ok(answer)
    }

    fn apply_alone(&mut self, request: &[Op]) -> Result<Vec<Done>, Error> {
        let mut intake = self.look_ahead(std::slice::from_ref(&request))?;
        let done = self.apply_all(request, &mut intake)?;
        intake.store(self)?;
        self.flush()?;
        Ok(done)
    }

    /// Sends all queries that a group's calls need, so that a single round trip brings all the
    /// results. Sends nothing with SQLite, which has no round trips, or if other operations in the
    /// group could change a result.
    fn look_ahead<R: AsRef<[Op]>>(&self, requests: &[R]) -> Result<Intake, Error> {
        let mut ops = requests.iter().flat_map(AsRef::as_ref);
        if self.session().is_none() || !ops.all(Op::is_intake) {
            return Ok(Intake::default());
        }
        Intake::ask(self, requests)
    }

    fn apply_all(&mut self, request: &[Op], intake: &mut Intake) -> Result<Vec<Done>, Error> {
        let is_limited = request.iter().any(|op| matches!(op, Op::OnlyRepeats));
        let mut all = Vec::with_capacity(request.len());
        for op in request {
            let done = self.apply(op, intake)?;
            if is_limited && done.is_new_call() {
                return Err(Error::NewCalls);
            }
            all.push(done);
        }
        Ok(all)
    }

    fn apply(&mut self, op: &Op, intake: &mut Intake) -> Result<Done, Error> {
        match op {
            Op::Finish(finished) => return finish::finish(self, finished, intake),
            Op::Forget { pbx, ids } => audited::forget(self, pbx, ids)?,
            Op::Open { pbx, key, snapshot } => {
                resume::set_open(self, pbx, *key, snapshot.as_deref())?
            }
            Op::Position { source, position } => resume::set_position(self, source, position)?,
            Op::Unreadable(unread) => return unreadable::keep_unreadable(self, unread),
            Op::FileRead { source, file, at } => {
                unreadable::settle_file(self, source, file, *at)?;
            }
            Op::Step { row, step, at } => return step::step(self, *row, step, *at),
            Op::FailedCall(failure) => return look_ups::call_failed(self, failure),
            Op::Slot(slot) => slots::set_slot(self, slot)?,
            Op::SlotGone(slot) => slots::drop_slot(self, *slot)?,
            Op::Silence(silence) => slots::begin_silence(self, silence)?,
            Op::Action { row, action } => letters::note_act(self, *row, action)?,
            Op::Give(given) => given::give(self, given)?,
            Op::Take(phone) => given::take(self, phone)?,
            Op::Meta { key, value } => meta::set_meta(self, key, value)?,
            Op::MetaGone(key) => meta::drop_meta(self, key)?,
            Op::Count { counter, by } => self.tally.count(counter, *by),
            Op::NoticeSent(notice) => outbox::drop_notice(self, *notice)?,
            Op::BindAddress { address, rebind } => meta::bind_address(self, address, *rebind)?,
            Op::BindCompany {
                company,
                application,
            } => {
                return meta::bind_company(self, company, application);
            }
            Op::Delivery(delivery) => {
                return deliveries::deliver(self, delivery).map(Done::Delivered);
            }
            Op::Foreign { company, call, at } => echoes::foreign(self, company, call, *at)?,
            Op::Lead(LeadChange::Request { outcome, at }) => {
                return lead_requests::apply(self, outcome, *at);
            }
            Op::Lead(LeadChange::Backfill { page, answer, at }) => {
                backfill::apply_page(self, page, answer, *at)?;
            }
            Op::Shown { calls, at } => deliveries::note_shown(self, calls, *at)?,
            Op::Purge(now) => return purge::purge(self, *now).map(Done::PurgeCounts),
            Op::Learn(news) => return look_ups::learn(self, news).map(Done::Learned),
            Op::BeginHub { incarnation, at } => hub::begin(self, incarnation, *at)?,
            Op::BranchRequest(request) => return hub::request(self, request, intake),
            // `apply_all` checks the calls.
            Op::OnlyRepeats => {}
            Op::AddBranch(branch) => return branches::add(self, branch).map(Done::Branch),
            Op::RotateToken(rotation) => return branches::rotate(self, rotation).map(Done::Branch),
            Op::RemoveBranch(name) => return branches::remove(self, name).map(Done::Branch),
            Op::ResumeSending => return hub::resume_sending(self),
            Op::Offer { offer, at } => forward::offer(self, *offer, *at)?,
            Op::Connection(change) => {
                return connection::change(self, change).map(Done::Connection);
            }
        }
        Ok(Done::Stored)
    }
}
