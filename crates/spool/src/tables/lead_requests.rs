//! The lead requests that are due, and the effects of their responses.

use super::meta::{change_memory, memory};
use super::shows::{self, LEFT_OUT, NextPoll, WRITTEN};
use super::{backfill, directory, look_ups, meta};
use crate::db::Asked;
use crate::{Db, Done, Error, GIVEN_UP, LeadWarning, QueueQuery, Store};
use callbridge_call::EventTime;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_leads::lead_field::shows::{LOST, NextAction, SOON};
use callbridge_leads::lead_field::{Catalog, LeadFieldState, Refusal, RefusedPart};
use callbridge_leads::lead_request::due::{DueRequests, LeadRequest, Urgency};
use callbridge_leads::lead_request::memory::{CATALOG_TRIES, RequestMemory};
use callbridge_leads::lead_request::{Finding, LeadOutcome, RequestKind};
use callbridge_model::{LeadId, Phone};

/// Maximum number of phone numbers with several leads that are checked together.
const CLAIMED_MAX: u32 = 1_000;

/// Logs problems from before the process started: paused requests, and doubtful `--lead-field`
/// fields.
pub fn log_standing(store: &Store, now: EventTime) -> Result<(), Error> {
    let memory = memory(store)?;
    for kind in [RequestKind::LookUps, RequestKind::Fields] {
        if let Some(rest) = memory.current_pause(kind, now) {
            LeadWarning::Rest(kind, rest.reason.clone()).log();
        }
    }
    shows::doubtful(store)?.iter().for_each(LeadWarning::log);
    Ok(())
}

/// Returns the `--lead-field` fields as text. When this text changes, the CRM's field catalog is
/// read again.
fn wanted_fields(store: &Store) -> String {
    let mut wanted = Vec::new();
    if let Some(shows) = &store.settings.shows {
        for (name, field) in &shows.fields {
            wanted.push(format!("{name}={}", field.id));
        }
    }
    wanted.join(",")
}

/// Schedules lookups for phone numbers with several leads and `ambiguous_lead` dead letters, which
/// finds merged and deleted leads even without webhooks. Each lead is looked up once a day per
/// number.
pub(crate) fn check_claims(store: &Store, now: EventTime) -> Result<(), Error> {
    if !store.settings.look_up {
        return Ok(());
    }
    let text = "SELECT DISTINCT phone FROM calls
         WHERE state = 'dead' AND reason = 'ambiguous_lead' AND phone IS NOT NULL LIMIT ?1";
    let phones = store.query_known(text, [CLAIMED_MAX], |phone: String| {
        Phone::from_e164(&phone)
    })?;
    let mut claims = Vec::new();
    for phone in phones {
        let leads = directory::holders(store, &phone)?.leads();
        claims.push((phone, leads));
    }
    change_memory(store, |memory| {
        for (phone, leads) in claims {
            memory.claim(phone, leads, now);
        }
    })
}

/// Returns the lead requests that are due, which is cheap if there are none.
pub fn lead_requests(store: &Store, ask: &QueueQuery) -> Result<DueRequests, Error> {
    lead_requests_of(store, ask_due(store)?, ask)
}

/// Queries for lead requests that may be due, whose results are read later.
pub(super) struct Questions {
    about_leads: Option<LeadQuestions>,
    /// The backfill's progress, or `None` without `--lead-directory`.
    backfill: Option<Asked<String>>,
}

struct LeadQuestions {
    memory: Asked<String>,
    poll: Asked<NextPoll>,
    look_up: Asked<(LeadId, EventTime)>,
    write: Asked<(LeadId, EventTime)>,
}

pub(super) fn ask_due(store: &Store) -> Result<Questions, Error> {
    let mut about_leads = None;
    if store.settings.look_up {
        about_leads = Some(LeadQuestions {
            memory: meta::ask_meta(store, meta::MEMORY)?,
            poll: shows::ask_next_poll(store)?,
            look_up: look_ups::ask_next_look_up(store)?,
            write: shows::ask_next_write(store)?,
        });
    }
    Ok(Questions {
        about_leads,
        backfill: backfill::ask_backfill(store)?,
    })
}

pub(super) fn lead_requests_of(
    store: &Store,
    questions: Questions,
    ask: &QueueQuery,
) -> Result<DueRequests, Error> {
    let mut due = DueRequests::default();
    if let Some(questions) = questions.about_leads {
        add_lead_questions(store, questions, ask, &mut due)?;
    }
    if let Some(backfill) = questions.backfill {
        backfill::add_page(store, backfill, ask, &mut due)?;
    }
    Ok(due)
}

fn add_lead_questions(
    store: &Store,
    questions: LeadQuestions,
    ask: &QueueQuery,
    due: &mut DueRequests,
) -> Result<(), Error> {
    let now = ask.now;
    let memory: RequestMemory = meta::read_asked(store, questions.memory)?.unwrap_or_default();
    if let Some(next) = questions.poll.first(store)?
        && due.is_due(next.due, now)
        && let Some(poll) = next.field_poll(store)?
    {
        due.push_poll(poll, &ask.tokens);
    }
    if let Some((lead, at)) = questions.look_up.first(store)?
        && due.is_due(memory.after_rest(RequestKind::LookUps, at, now), now)
    {
        due.push(Urgency::Soon, LeadRequest::LookUp(lead));
    }
    if let Some(lead) = memory.claimants.first().copied()
        && memory.current_pause(RequestKind::LookUps, now).is_none()
    {
        due.push(Urgency::Spare, LeadRequest::LookUp(lead));
    }
    let write = questions.write.first(store)?;
    if store.settings.shows.is_none() {
        return Ok(());
    }
    let fields = wanted_fields(store);
    if memory.check_catalog_due(&fields, now, due) {
        due.push(Urgency::Spare, LeadRequest::Catalog);
    }
    if memory.catalog_for == fields
        && let Some((lead, at)) = write
        && due.is_due(memory.after_rest(RequestKind::Fields, at, now), now)
    {
        due.push(Urgency::Spare, LeadRequest::FieldWrite(lead));
    }
    Ok(())
}

pub(crate) fn apply(
    store: &mut Store,
    outcome: &LeadOutcome,
    at: EventTime,
) -> Result<Done, Error> {
    match outcome {
        LeadOutcome::Sent(lead_request) => match lead_request {
            LeadRequest::LookUp(lead) => look_ups::look_up_at(store, *lead, at.plus(LOST))?,
            LeadRequest::Catalog => change_memory(store, |memory| memory.catalog_sent(at))?,
            // The response may be lost if the process is killed, so the write is polled again
            // later.
            LeadRequest::FieldPoll(poll) => {
                change_shows(store, poll.lead, |shows| shows.note_polled(at))?;
            }
            LeadRequest::FieldWrite(_) | LeadRequest::Backfill(_) | LeadRequest::Asked(..) => {}
        },
        LeadOutcome::Writes(lead, write) => {
            let left_out = change_shows(store, *lead, |shows| shows.note_sent(write, at))?;
            store.tally.count(LEFT_OUT, left_out);
        }
        LeadOutcome::LookedUp(lead, found) => {
            change_memory(store, |memory| memory.claimant_done(*lead))?;
            return look_ups::store_finding(store, *lead, *found, at);
        }
        LeadOutcome::MergedInto(lead, survivor) => {
            change_memory(store, |memory| memory.claimant_done(*lead))?;
            let news = LeadNews {
                merged: vec![*lead],
                ..LeadNews::new(
                    *survivor,
                    at.floor_seconds(),
                    ChangeKind::Merged,
                    FirstPhone::Unchanged,
                )
            };
            look_ups::learn(store, &news)?;
            return look_ups::store_finding(store, *lead, Finding::LeadExists, at);
        }
        LeadOutcome::Catalog(catalog) => catalog_read(store, catalog, at)?,
        LeadOutcome::Accepted(lead, request_id, token) => {
            change_shows(store, *lead, |shows| {
                shows.note_accepted(request_id.clone(), token.clone(), at);
            })?;
            change_memory(store, |memory| memory.refused = 0)?;
        }
        LeadOutcome::NotYet(lead) => change_shows(store, *lead, |shows| shows.note_unfinished(at))?,
        LeadOutcome::Written(lead) => {
            let (written, items) = change_shows(store, *lead, |shows| shows.note_written(at))?;
            store.tally.count(WRITTEN, written);
            shows::note_accepted(store, &items)?;
        }
        LeadOutcome::Refused(lead, refusal) => fields_refused(store, *lead, refusal, at)?,
        LeadOutcome::Again(lead_request, reason) => {
            lead_request_again(store, lead_request, reason, at)?
        }
        LeadOutcome::Back(lead_request) => lead_request_back(store, lead_request, at)?,
        LeadOutcome::Granted => {
            change_memory(store, |memory| {
                memory.lookups = None;
                memory.fields = None;
            })?;
            backfill::backfill_granted(store)?;
        }
        LeadOutcome::Rest(kind, lead_request, reason) => {
            lead_request_back(store, lead_request, at)?;
            rest(store, *kind, reason, at)?;
        }
    }
    Ok(Done::Stored)
}

fn change_shows<T: Default>(
    db: &Db,
    lead: LeadId,
    change: impl FnOnce(&mut LeadFieldState) -> T,
) -> Result<T, Error> {
    let Some(mut shows) = shows::field_state(db, lead)? else {
        return Ok(T::default());
    };
    let done = change(&mut shows);
    shows::set_shows(db, lead, &shows)?;
    Ok(done)
}

/// Handles a refused write of lead fields. Writing is paused only after refusals for several leads,
/// because a single refusal can be caused by the lead.
fn fields_refused(
    store: &mut Store,
    lead: LeadId,
    refusal: &Refusal,
    at: EventTime,
) -> Result<(), Error> {
    let (polled, (given_up, items)) = change_shows(store, lead, |shows| {
        let polled = shows.next_action() == Some(NextAction::Poll);
        (polled, shows.note_refused(&refusal.blames, at))
    })?;
    store.tally.count(GIVEN_UP, given_up);
    shows::note_refused(store, lead, items, refusal, at)?;
    // FAILED means that the request had been accepted, and a response that names an item has at
    // least accepted the request's form. Neither refusal counts toward a pause.
    let named = matches!(refusal.blames, RefusedPart::Items(_));
    if !polled
        && !named
        && let Some(reason) = change_memory(store, |memory| memory.note_refusal(&refusal.reason))?
    {
        rest(store, RequestKind::Fields, &reason, at)?;
    }
    Ok(())
}

fn rest(store: &mut Store, kind: RequestKind, reason: &str, at: EventTime) -> Result<(), Error> {
    let warning = LeadWarning::Rest(kind, reason.to_owned());
    store.tally.warnings.push(warning);
    change_memory(store, |memory| memory.rest(kind, reason.to_owned(), at))
}

fn lead_request_again(
    store: &mut Store,
    lead_request: &LeadRequest,
    reason: &str,
    at: EventTime,
) -> Result<(), Error> {
    let lead = match lead_request {
        LeadRequest::LookUp(lead) => {
            change_memory(store, |memory| memory.claimant_done(*lead))?;
            return look_ups::look_up_again(store, *lead, at);
        }
        LeadRequest::Catalog => {
            if memory(store)?.catalog_tries >= CATALOG_TRIES {
                let unread = Catalog::unread(reason.to_owned(), at);
                return catalog_read(store, &unread, at);
            }
            return change_memory(store, |memory| memory.catalog_back(at));
        }
        LeadRequest::FieldWrite(lead) => *lead,
        LeadRequest::FieldPoll(poll) => poll.lead,
        LeadRequest::Backfill(_) | LeadRequest::Asked(..) => return Ok(()),
    };
    let given_up = change_shows(store, lead, |shows| shows.again(at))?;
    store.tally.count(GIVEN_UP, given_up);
    Ok(())
}

fn lead_request_back(db: &Db, lead_request: &LeadRequest, at: EventTime) -> Result<(), Error> {
    match lead_request {
        LeadRequest::LookUp(lead) => look_ups::look_up_at(db, *lead, at.plus(SOON)),
        LeadRequest::Catalog => change_memory(db, |memory| memory.catalog_back(at)),
        LeadRequest::FieldWrite(lead) => change_shows(db, *lead, |shows| shows.back(at)),
        LeadRequest::FieldPoll(poll) => {
            change_shows(db, poll.lead, |shows| shows.note_unfinished(at))
        }
        LeadRequest::Backfill(_) | LeadRequest::Asked(..) => Ok(()),
    }
}

fn catalog_read(store: &mut Store, catalog: &Catalog, at: EventTime) -> Result<(), Error> {
    let before = shows::doubtful(store)?;
    let fields = wanted_fields(store);
    change_memory(store, |memory| memory.catalog_read(catalog, fields, at))?;
    meta::remember(store, shows::CATALOG, catalog)?;
    for warning in shows::doubtful(store)? {
        if !before.contains(&warning) {
            store.tally.warnings.push(warning);
        }
    }
    Ok(())
}

/// Returns the number of waiting lookups, and of leads with values to write, whether due or not.
/// Paused kinds of requests count as 0, and without a sender, both numbers are 0.
pub fn lead_requests_waiting(store: &Store, now: EventTime) -> Result<(u64, u64), Error> {
    if !store.settings.look_up {
        return Ok((0, 0));
    }
    let memory = memory(store)?;
    let mut waiting = (0, 0);
    if memory.current_pause(RequestKind::LookUps, now).is_none() {
        waiting.0 = store.query_one(
            "SELECT count(*) FROM lead_lookups WHERE due IS NOT NULL",
            (),
        )?;
    }
    if store.settings.shows.is_some() && memory.current_pause(RequestKind::Fields, now).is_none() {
        waiting.1 = shows::leads_to_show(store)?;
    }
    Ok(waiting)
}

#[cfg(test)]
mod stored {
    use callbridge_leads::lead_request::memory::RequestMemory;

    #[test]
    fn lead_request_memory_keeps_its_stored_form() {
        callbridge_testkit::golden::keeps::<RequestMemory>("lead-request-memory");
    }
}
