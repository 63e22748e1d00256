//! What could be asked beside the calls, and what the answers change.

use super::finish::json;
use super::shows::{GIVEN_UP, LEFT_OUT, WRITTEN};
use crate::op::Done;
use crate::store::{Store, sql};
use crate::{Ask, Error, HELD_MAX, RowId};
use callbridge_call::EventTime;
use callbridge_leads::errand::due::{Errand, Errands, Job, Urgency};
use callbridge_leads::errand::lead::{REFUSALS_MAX, REST};
use callbridge_leads::errand::{Kind, Told};
use callbridge_leads::lead_field::shows::{Asks, LOST, SOON};
use callbridge_leads::lead_field::{Catalogue, Shows};
use callbridge_model::LeadId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The CRM's fields, as they were read last.
pub(crate) const CATALOGUE: &str = "lead_field.catalogue";
/// [`Memory`].
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
pub(crate) struct Memory {
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

impl Memory {
    fn rest(&mut self, kind: Kind) -> &mut Option<Rest> {
        match kind {
            Kind::LookUps => &mut self.look_ups,
            Kind::Fields => &mut self.fields,
        }
    }
}

const fn job(urgency: Urgency, errand: Errand) -> Job {
    Job { urgency, errand }
}

/// Due, or so far ahead that the clock was set back since; what is not is looked at again then.
fn is_due(due: EventTime, now: EventTime, errands: &mut Errands) -> bool {
    if due <= now || due > now.plus(DAILY + HELD_MAX) {
        return true;
    }
    errands.next = errands.next.into_iter().chain([due]).min();
    false
}

impl Store {
    fn errand_memory(&self) -> Result<Memory, Error> {
        let text = self.meta(MEMORY)?;
        let memory = text
            .map(|text| self.read_json(RowId(0), &text))
            .transpose()?;
        Ok(memory.unwrap_or_default())
    }

    fn set_errand_memory(&self, memory: &Memory) -> Result<(), Error> {
        self.set_meta(MEMORY, &json("what is remembered of errands", memory)?)?;
        Ok(())
    }

    /// The kinds that rest now, and why.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn resting(&self, now: EventTime) -> Result<Vec<(Kind, Rest)>, Error> {
        let mut memory = self.errand_memory()?;
        let kinds = [Kind::LookUps, Kind::Fields];
        let rests = kinds.map(|kind| (kind, memory.rest(kind).take()));
        let rests = rests
            .into_iter()
            .filter_map(|(kind, rest)| Some((kind, rest?)));
        Ok(rests.filter(|(_, rest)| !is_over(rest, now)).collect())
    }

    /// The fields that are asked for: the catalogue is read anew when they change.
    fn wanted_fields(&self) -> String {
        let fields = self.settings.shows.iter().flat_map(|it| &it.fields);
        let fields: Vec<String> = fields.map(|(name, id)| format!("{name}={id}")).collect();
        fields.join(",")
    }

    /// The errands that are due. Costs next to nothing while there are none.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn errands(&self, ask: &Ask) -> Result<Errands, Error> {
        let mut errands = Errands::default();
        if self.settings.look_up {
            self.lead_errands(ask, &mut errands)?;
        }
        self.backfill_errand(ask, &mut errands)?;
        Ok(errands)
    }

    fn lead_errands(&self, ask: &Ask, errands: &mut Errands) -> Result<(), Error> {
        let memory = self.errand_memory()?;
        let rests = |rest: &Option<Rest>| match rest {
            Some(rest) if !is_over(rest, ask.now) => rest.until,
            Some(_) | None => ask.now,
        };
        if let Some((lead, at)) = self.next_shows(Asks::Poll)?
            && is_due(at, ask.now, errands)
            && let Some(poll) = self.field_poll(lead)?
        {
            let place = ask.tokens.iter().position(|token| *token == poll.token);
            errands.due.push(match place {
                Some(0) => job(Urgency::Spare, Errand::FieldPoll(poll)),
                // the token before: nobody can ask when it ends
                Some(_) => job(Urgency::Ending, Errand::FieldPoll(poll)),
                // nobody can ask any more: written once more, which changes nothing
                None => job(Urgency::Spare, Errand::FieldWrite(lead)),
            });
        }
        if let Some((lead, at)) = self.next_look_up()?
            && is_due(at.max(rests(&memory.look_ups)), ask.now, errands)
        {
            errands.due.push(job(Urgency::Soon, Errand::LookUp(lead)));
        }
        if self.settings.shows.is_none() {
            return Ok(());
        }
        let known = memory.catalogue_for == self.wanted_fields();
        let at = EventTime::from_micros(memory.catalogue_due);
        if (!known && memory.catalogue_tries == 0) || is_due(at, ask.now, errands) {
            errands.due.push(job(Urgency::Spare, Errand::Catalogue));
        }
        if let Some((lead, at)) = self.next_shows(Asks::Write)?.filter(|_| known)
            && is_due(at.max(rests(&memory.fields)), ask.now, errands)
        {
            errands
                .due
                .push(job(Urgency::Spare, Errand::FieldWrite(lead)));
        }
        Ok(())
    }

    /// An errand leaves, or has its answer.
    pub(crate) fn told(&mut self, told: &Told, at: EventTime) -> Result<Done, Error> {
        match told {
            Told::Sent(errand) => match errand {
                Errand::LookUp(lead) => self.look_up_sent(*lead, at)?,
                Errand::Catalogue => self.catalogue_at(at.plus(LOST), 1)?,
                // a kill keeps its answer from us: asked again, not at once
                Errand::FieldPoll(poll) => {
                    self.change_shows(poll.lead, |shows| shows.asked(at))?;
                }
                Errand::FieldWrite(_) | Errand::Backfill(_) | Errand::Asked(..) => {}
            },
            Told::Writes(lead, write) => {
                let left_out = self.change_shows(*lead, |shows| shows.sent(write, at))?;
                self.tally.count(LEFT_OUT, left_out);
            }
            Told::LookedUp(lead, found) => return self.looked_up(*lead, *found, at),
            Told::Catalogue(catalogue) => self.catalogue_read(catalogue, at)?,
            Told::Accepted(lead, request_id, token) => {
                self.change_shows(*lead, |shows| {
                    shows.accepted(request_id.clone(), token.clone(), at);
                })?;
                self.refused_in_a_row(|_| 0)?;
            }
            Told::NotYet(lead) => self.change_shows(*lead, |shows| shows.not_yet(at))?,
            Told::Written(lead) => {
                let written = self.change_shows(*lead, |shows| shows.written(at))?;
                self.tally.count(WRITTEN, written);
            }
            Told::Refused(lead, why) => self.fields_refused(*lead, why, at)?,
            Told::Again(errand, why) => self.errand_again(errand, why, at)?,
            Told::Back(errand) => self.errand_back(errand, at)?,
            Told::Granted => self.granted()?,
            Told::Rest(kind, errand, why) => {
                self.errand_back(errand, at)?;
                self.rest(*kind, why, at)?;
            }
        }
        Ok(Done::Stored)
    }

    fn change_shows<T: Default>(
        &mut self,
        lead: LeadId,
        change: impl FnOnce(&mut Shows) -> T,
    ) -> Result<T, Error> {
        let Some(mut shows) = self.shows(lead)? else {
            return Ok(T::default());
        };
        let done = change(&mut shows);
        self.set_shows(lead, &shows)?;
        Ok(done)
    }

    /// What one lead is refused may be its own fault; what several are is not.
    fn fields_refused(&mut self, lead: LeadId, why: &str, at: EventTime) -> Result<(), Error> {
        let polled = |shows: &mut Shows| {
            let polled = shows.asks() == Some(Asks::Poll);
            (polled, shows.refused(at))
        };
        let (polled, given_up) = self.change_shows(lead, polled)?;
        self.tally.count(GIVEN_UP, given_up);
        // FAILED comes after an acceptance: the request itself was right
        if !polled && self.refused_in_a_row(|before| before + 1)? >= REFUSALS_MAX {
            self.refused_in_a_row(|_| 0)?;
            let why = format!("{REFUSALS_MAX} writes of fields in a row were refused: {why}");
            self.rest(Kind::Fields, &why, at)?;
        }
        Ok(())
    }

    fn refused_in_a_row(&self, change: impl FnOnce(u32) -> u32) -> Result<u32, Error> {
        let mut memory = self.errand_memory()?;
        let before = memory.refused;
        memory.refused = change(before);
        if memory.refused != before {
            self.set_errand_memory(&memory)?;
        }
        Ok(memory.refused)
    }

    fn rest(&self, kind: Kind, why: &str, at: EventTime) -> Result<(), Error> {
        let mut memory = self.errand_memory()?;
        *memory.rest(kind) = Some(Rest {
            until: at.plus(REST),
            why: why.to_owned(),
        });
        self.set_errand_memory(&memory)
    }

    /// What rests may be granted now.
    fn granted(&self) -> Result<(), Error> {
        let mut memory = self.errand_memory()?;
        let rested = [Kind::LookUps, Kind::Fields].map(|kind| memory.rest(kind).take());
        if rested.iter().any(Option::is_some) {
            self.set_errand_memory(&memory)?;
        }
        self.backfill_granted()
    }

    fn errand_again(&mut self, errand: &Errand, why: &str, at: EventTime) -> Result<(), Error> {
        let lead = match errand {
            Errand::LookUp(lead) => return self.look_up_again(*lead, at),
            Errand::Catalogue => {
                if self.errand_memory()?.catalogue_tries >= CATALOGUE_TRIES {
                    let unread = Catalogue::unread(why.to_owned(), at);
                    return self.catalogue_read(&unread, at);
                }
                return self.catalogue_at(at.plus(SOON), 0);
            }
            Errand::FieldWrite(lead) => *lead,
            Errand::FieldPoll(poll) => poll.lead,
            Errand::Backfill(_) | Errand::Asked(..) => return Ok(()),
        };
        let given_up = self.change_shows(lead, |shows| shows.again(at))?;
        self.tally.count(GIVEN_UP, given_up);
        Ok(())
    }

    fn errand_back(&mut self, errand: &Errand, at: EventTime) -> Result<(), Error> {
        match errand {
            Errand::LookUp(lead) => self.look_up_at(*lead, at.plus(SOON)),
            Errand::Catalogue => self.catalogue_at(at.plus(SOON), 0),
            Errand::FieldWrite(lead) => self.change_shows(*lead, |shows| shows.back(at)),
            Errand::FieldPoll(poll) => self.change_shows(poll.lead, |shows| shows.not_yet(at)),
            Errand::Backfill(_) | Errand::Asked(..) => Ok(()),
        }
    }

    fn catalogue_at(&self, due: EventTime, tries: u32) -> Result<(), Error> {
        let mut memory = self.errand_memory()?;
        memory.catalogue_due = due.micros();
        memory.catalogue_tries += tries;
        self.set_errand_memory(&memory)
    }

    fn catalogue_read(&self, catalogue: &Catalogue, at: EventTime) -> Result<(), Error> {
        let mut memory = self.errand_memory()?;
        let again = match catalogue.unread {
            None => DAILY,
            Some(_) => REST,
        };
        memory.catalogue_due = at.plus(again).micros();
        memory.catalogue_tries = 0;
        memory.catalogue_for = self.wanted_fields();
        self.set_errand_memory(&memory)?;
        self.set_meta(CATALOGUE, &json("the CRM's fields", catalogue)?)?;
        Ok(())
    }

    /// Look-ups, and leads with something to show, that wait, due or not; none of a kind that
    /// rests, and none without a sender.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn errands_waiting(&self, now: EventTime) -> Result<(u64, u64), Error> {
        if !self.settings.look_up {
            return Ok((0, 0));
        }
        let resting = self.resting(now)?;
        let rests = |kind| resting.iter().any(|(it, _)| *it == kind);
        let mut waiting = (0, 0);
        if !rests(Kind::LookUps) {
            let mut found = self.prepare("SELECT count(*) FROM lookups WHERE due IS NOT NULL")?;
            let look_ups: i64 = sql(self, found.query_row([], |row| row.get(0)))?;
            waiting.0 = u64::try_from(look_ups).unwrap_or(0);
        }
        if self.settings.shows.is_some() && !rests(Kind::Fields) {
            waiting.1 = self.leads_to_show()?;
        }
        Ok(waiting)
    }
}

fn is_over(rest: &Rest, now: EventTime) -> bool {
    rest.until <= now || rest.until > now.plus(REST + HELD_MAX)
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn is_read_and_written_as_released_versions_have_it() {
        callbridge_testkit::golden::keeps::<Memory>("errand-memory");
    }
}
