//! What could be asked beside the calls, and what the answers change.

use super::backfill;
use super::finish::json;
use super::look_ups;
use super::meta;
use super::shows;
use super::shows::{GIVEN_UP, LEFT_OUT, WRITTEN};
use crate::Db;
use crate::Store;
use crate::lead_log::LeadWarning;
use crate::op::Done;
use crate::{Error, HELD_MAX, QueueQuery, RowId};
use callbridge_call::EventTime;
use callbridge_leads::lead_field::shows::{LOST, NextAction, SOON};
use callbridge_leads::lead_field::{Catalogue, LeadFieldState};
use callbridge_leads::lead_request::due::{DueRequest, DueRequests, LeadRequest, Urgency};
use callbridge_leads::lead_request::lead::{REFUSALS_MAX, REST};
use callbridge_leads::lead_request::{LeadOutcome, RequestKind};
use callbridge_model::LeadId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The CRM's fields, as they were read last.
pub(crate) const CATALOGUE: &str = "lead_field.catalogue";
/// [`RequestMemory`].
pub(crate) const MEMORY: &str = "errand.memory";
/// The catalogue is read anew after so long.
const DAILY: Duration = Duration::from_secs(24 * 3600);
/// Tries of the catalogue without an answer before values are written unchecked.
const CATALOGUE_TRIES: u32 = 5;

/// A kind of errand that rests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// Until when.
    pub until: EventTime,
    /// What the service said.
    pub why: String,
}

/// What is remembered of errands over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestMemory {
    look_ups: Option<Rest>,
    fields: Option<Rest>,
    /// Field writes refused with 400 since one was accepted.
    refused: u32,
    /// When the catalogue is read next, in microseconds.
    catalogue_due: i64,
    catalogue_tries: u32,
    /// The fields it was read for.
    catalogue_for: String,
}

impl RequestMemory {
    fn rest(&mut self, kind: RequestKind) -> &mut Option<Rest> {
        match kind {
            RequestKind::LookUps => &mut self.look_ups,
            RequestKind::Fields => &mut self.fields,
        }
    }
}

const fn job(urgency: Urgency, errand: LeadRequest) -> DueRequest {
    DueRequest { urgency, errand }
}

/// Due, or so far ahead that the clock was set back since; what is not is looked at again then.
fn is_due(due: EventTime, now: EventTime, errands: &mut DueRequests) -> bool {
    if due <= now || due > now.plus(DAILY + HELD_MAX) {
        return true;
    }
    errands.next = errands.next.into_iter().chain([due]).min();
    false
}

fn errand_memory(db: &Db) -> Result<RequestMemory, Error> {
    let text = meta::meta(db, MEMORY)?;
    let memory = text.map(|text| db.read_json(RowId(0), &text)).transpose()?;
    Ok(memory.unwrap_or_default())
}

fn set_errand_memory(db: &Db, memory: &RequestMemory) -> Result<(), Error> {
    meta::set_meta(db, MEMORY, &json("what is remembered of errands", memory)?)?;
    Ok(())
}

/// The kinds that rest now, and why.
pub fn resting(db: &Db, now: EventTime) -> Result<Vec<(RequestKind, Rest)>, Error> {
    let mut memory = errand_memory(db)?;
    let kinds = [RequestKind::LookUps, RequestKind::Fields];
    let rests = kinds.map(|kind| (kind, memory.rest(kind).take()));
    let rests = rests
        .into_iter()
        .filter_map(|(kind, rest)| Some((kind, rest?)));
    Ok(rests.filter(|(_, rest)| !is_over(rest, now)).collect())
}

/// Tells the log of what stands since before this start.
pub fn log_standing(store: &Store, now: EventTime) -> Result<(), Error> {
    let rests = resting(store, now)?.into_iter();
    let rests = rests.map(|(kind, rest)| LeadWarning::Rest(kind, rest.why));
    let fields = shows::doubtful(store)?;
    rests.chain(fields).for_each(|it| it.log());
    Ok(())
}

/// The fields that are asked for: the catalogue is read anew when they change.
fn wanted_fields(store: &Store) -> String {
    let fields = store.settings.shows.iter().flat_map(|it| &it.fields);
    let fields: Vec<String> = fields.map(|(name, id)| format!("{name}={id}")).collect();
    fields.join(",")
}

/// The errands that are due. Costs next to nothing while there are none.
pub fn errands(store: &Store, ask: &QueueQuery) -> Result<DueRequests, Error> {
    let mut errands = DueRequests::default();
    if store.settings.look_up {
        lead_errands(store, ask, &mut errands)?;
    }
    backfill::backfill_errand(store, ask, &mut errands)?;
    Ok(errands)
}

fn lead_errands(store: &Store, ask: &QueueQuery, errands: &mut DueRequests) -> Result<(), Error> {
    let memory = errand_memory(store)?;
    let rests = |rest: &Option<Rest>| match rest {
        Some(rest) if !is_over(rest, ask.now) => rest.until,
        Some(_) | None => ask.now,
    };
    if let Some((lead, at)) = shows::next_shows(store, NextAction::Poll)?
        && is_due(at, ask.now, errands)
        && let Some(poll) = shows::field_poll(store, lead)?
    {
        let place = ask.tokens.iter().position(|token| *token == poll.token);
        errands.due.push(match place {
            Some(0) => job(Urgency::Spare, LeadRequest::FieldPoll(poll)),
            // the token before: nobody can ask when it ends
            Some(_) => job(Urgency::Ending, LeadRequest::FieldPoll(poll)),
            // nobody can ask any more: written once more, which changes nothing
            None => job(Urgency::Spare, LeadRequest::FieldWrite(lead)),
        });
    }
    if let Some((lead, at)) = look_ups::next_look_up(store)?
        && is_due(at.max(rests(&memory.look_ups)), ask.now, errands)
    {
        errands
            .due
            .push(job(Urgency::Soon, LeadRequest::LookUp(lead)));
    }
    if store.settings.shows.is_none() {
        return Ok(());
    }
    let known = memory.catalogue_for == wanted_fields(store);
    let at = EventTime::from_micros(memory.catalogue_due);
    if (!known && memory.catalogue_tries == 0) || is_due(at, ask.now, errands) {
        errands
            .due
            .push(job(Urgency::Spare, LeadRequest::Catalogue));
    }
    if let Some((lead, at)) = shows::next_shows(store, NextAction::Write)?.filter(|_| known)
        && is_due(at.max(rests(&memory.fields)), ask.now, errands)
    {
        errands
            .due
            .push(job(Urgency::Spare, LeadRequest::FieldWrite(lead)));
    }
    Ok(())
}

/// An errand leaves, or has its answer.
pub(crate) fn told(store: &mut Store, told: &LeadOutcome, at: EventTime) -> Result<Done, Error> {
    match told {
        LeadOutcome::Sent(errand) => match errand {
            LeadRequest::LookUp(lead) => look_ups::look_up_sent(store, *lead, at)?,
            LeadRequest::Catalogue => catalogue_at(store, at.plus(LOST), 1)?,
            // a kill keeps its answer from us: asked again, not at once
            LeadRequest::FieldPoll(poll) => {
                change_shows(store, poll.lead, |shows| shows.asked(at))?;
            }
            LeadRequest::FieldWrite(_) | LeadRequest::Backfill(_) | LeadRequest::Asked(..) => {}
        },
        LeadOutcome::Writes(lead, write) => {
            let left_out = change_shows(store, *lead, |shows| shows.sent(write, at))?;
            store.tally.count(LEFT_OUT, left_out);
        }
        LeadOutcome::LookedUp(lead, found) => return look_ups::looked_up(store, *lead, *found, at),
        LeadOutcome::Catalogue(catalogue) => catalogue_read(store, catalogue, at)?,
        LeadOutcome::Accepted(lead, request_id, token) => {
            change_shows(store, *lead, |shows| {
                shows.accepted(request_id.clone(), token.clone(), at);
            })?;
            refused_in_a_row(store, |_| 0)?;
        }
        LeadOutcome::NotYet(lead) => change_shows(store, *lead, |shows| shows.not_yet(at))?,
        LeadOutcome::Written(lead) => {
            let written = change_shows(store, *lead, |shows| shows.written(at))?;
            store.tally.count(WRITTEN, written);
        }
        LeadOutcome::Refused(lead, why) => fields_refused(store, *lead, why, at)?,
        LeadOutcome::Again(errand, why) => errand_again(store, errand, why, at)?,
        LeadOutcome::Back(errand) => errand_back(store, errand, at)?,
        LeadOutcome::Granted => granted(store)?,
        LeadOutcome::Rest(kind, errand, why) => {
            errand_back(store, errand, at)?;
            rest(store, *kind, why, at)?;
        }
    }
    Ok(Done::Stored)
}

fn change_shows<T: Default>(
    db: &Db,
    lead: LeadId,
    change: impl FnOnce(&mut LeadFieldState) -> T,
) -> Result<T, Error> {
    let Some(mut shows) = shows::shows(db, lead)? else {
        return Ok(T::default());
    };
    let done = change(&mut shows);
    shows::set_shows(db, lead, &shows)?;
    Ok(done)
}

/// What one lead is refused may be its own fault; what several are is not.
fn fields_refused(store: &mut Store, lead: LeadId, why: &str, at: EventTime) -> Result<(), Error> {
    let polled = |shows: &mut LeadFieldState| {
        let polled = shows.asks() == Some(NextAction::Poll);
        (polled, shows.refused(at))
    };
    let (polled, given_up) = change_shows(store, lead, polled)?;
    store.tally.count(GIVEN_UP, given_up);
    // FAILED comes after an acceptance: the request itself was right
    if !polled && refused_in_a_row(store, |before| before + 1)? >= REFUSALS_MAX {
        refused_in_a_row(store, |_| 0)?;
        let why = format!("{REFUSALS_MAX} writes of fields in a row were refused: {why}");
        rest(store, RequestKind::Fields, &why, at)?;
    }
    Ok(())
}

fn refused_in_a_row(db: &Db, change: impl FnOnce(u32) -> u32) -> Result<u32, Error> {
    let mut memory = errand_memory(db)?;
    let before = memory.refused;
    memory.refused = change(before);
    if memory.refused != before {
        set_errand_memory(db, &memory)?;
    }
    Ok(memory.refused)
}

fn rest(store: &mut Store, kind: RequestKind, why: &str, at: EventTime) -> Result<(), Error> {
    store.tally.warn(LeadWarning::Rest(kind, why.to_owned()));
    let mut memory = errand_memory(store)?;
    *memory.rest(kind) = Some(Rest {
        until: at.plus(REST),
        why: why.to_owned(),
    });
    set_errand_memory(store, &memory)
}

/// What rests may be granted now.
fn granted(db: &Db) -> Result<(), Error> {
    let mut memory = errand_memory(db)?;
    let rested = [RequestKind::LookUps, RequestKind::Fields].map(|kind| memory.rest(kind).take());
    if rested.iter().any(Option::is_some) {
        set_errand_memory(db, &memory)?;
    }
    backfill::backfill_granted(db)
}

fn errand_again(
    store: &mut Store,
    errand: &LeadRequest,
    why: &str,
    at: EventTime,
) -> Result<(), Error> {
    let lead = match errand {
        LeadRequest::LookUp(lead) => return look_ups::look_up_again(store, *lead, at),
        LeadRequest::Catalogue => {
            if errand_memory(store)?.catalogue_tries >= CATALOGUE_TRIES {
                let unread = Catalogue::unread(why.to_owned(), at);
                return catalogue_read(store, &unread, at);
            }
            return catalogue_at(store, at.plus(SOON), 0);
        }
        LeadRequest::FieldWrite(lead) => *lead,
        LeadRequest::FieldPoll(poll) => poll.lead,
        LeadRequest::Backfill(_) | LeadRequest::Asked(..) => return Ok(()),
    };
    let given_up = change_shows(store, lead, |shows| shows.again(at))?;
    store.tally.count(GIVEN_UP, given_up);
    Ok(())
}

fn errand_back(db: &Db, errand: &LeadRequest, at: EventTime) -> Result<(), Error> {
    match errand {
        LeadRequest::LookUp(lead) => look_ups::look_up_at(db, *lead, at.plus(SOON)),
        LeadRequest::Catalogue => catalogue_at(db, at.plus(SOON), 0),
        LeadRequest::FieldWrite(lead) => change_shows(db, *lead, |shows| shows.back(at)),
        LeadRequest::FieldPoll(poll) => change_shows(db, poll.lead, |shows| shows.not_yet(at)),
        LeadRequest::Backfill(_) | LeadRequest::Asked(..) => Ok(()),
    }
}

fn catalogue_at(db: &Db, due: EventTime, tries: u32) -> Result<(), Error> {
    let mut memory = errand_memory(db)?;
    memory.catalogue_due = due.micros();
    memory.catalogue_tries += tries;
    set_errand_memory(db, &memory)
}

fn catalogue_read(store: &mut Store, catalogue: &Catalogue, at: EventTime) -> Result<(), Error> {
    let before = shows::doubtful(store)?;
    let mut memory = errand_memory(store)?;
    let again = match catalogue.unread {
        None => DAILY,
        Some(_) => REST,
    };
    memory.catalogue_due = at.plus(again).micros();
    memory.catalogue_tries = 0;
    memory.catalogue_for = wanted_fields(store);
    set_errand_memory(store, &memory)?;
    meta::set_meta(store, CATALOGUE, &json("the CRM's fields", catalogue)?)?;
    let mut news = shows::doubtful(store)?;
    news.retain(|it| !before.contains(it));
    news.into_iter().for_each(|it| store.tally.warn(it));
    Ok(())
}

/// Look-ups, and leads with something to show, that wait, due or not; none of a kind that
/// rests, and none without a sender.
pub fn errands_waiting(store: &Store, now: EventTime) -> Result<(u64, u64), Error> {
    if !store.settings.look_up {
        return Ok((0, 0));
    }
    let resting = resting(store, now)?;
    let rests = |kind| resting.iter().any(|(it, _)| *it == kind);
    let mut waiting = (0, 0);
    if !rests(RequestKind::LookUps) {
        let look_ups: i64 =
            store.value("SELECT count(*) FROM lookups WHERE due IS NOT NULL", [])?;
        waiting.0 = u64::try_from(look_ups).unwrap_or(0);
    }
    if store.settings.shows.is_some() && !rests(RequestKind::Fields) {
        waiting.1 = shows::leads_to_show(store)?;
    }
    Ok(waiting)
}

fn is_over(rest: &Rest, now: EventTime) -> bool {
    rest.until <= now || rest.until > now.plus(REST + HELD_MAX)
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn is_read_and_written_as_released_versions_have_it() {
        callbridge_testkit::golden::keeps::<RequestMemory>("errand-memory");
    }
}
