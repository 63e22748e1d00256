//! Leads manually assigned to phone numbers, with the time and the person.

use crate::db::Asked;
use crate::{Db, Error, LeadByHand, count};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::find::moment;
use callbridge_model::{LeadId, Phone};

/// An assigned lead's columns: the phone number, the lead, the time, and the person.
pub(super) type GivenColumns = (String, i64, EpochSeconds, String);

impl LeadByHand {
    /// Returns a message about the assignment: `given by ana on 2026-11-20 …`.
    pub fn message(&self) -> String {
        format!("given by {} on {}", self.who, moment(self.at))
    }
}

/// Assigns the lead to the phone number, replacing any lead assigned earlier.
pub(crate) fn give(db: &Db, given: &LeadByHand) -> Result<(), Error> {
    let text = "INSERT INTO assigned_leads (phone, lead, at, who)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (phone) DO UPDATE SET lead = excluded.lead, at = excluded.at,
             who = excluded.who";
    let values = (
        given.phone.as_str(),
        given.lead_id.get(),
        given.at.get(),
        &given.who,
    );
    db.run(text, values)
}

pub(crate) fn take(db: &Db, phone: &Phone) -> Result<(), Error> {
    db.run(
        "DELETE FROM assigned_leads WHERE phone = ?1",
        [phone.as_str()],
    )
}

/// Reads the lead that someone assigned to this phone number, or returns `None` if there is none.
pub fn assigned_lead(db: &Db, phone: &Phone) -> Result<Option<LeadByHand>, Error> {
    read_assigned_lead(db, ask_assigned_lead(db, phone)?)
}

/// Sends the query for the lead that someone assigned to this phone number.
pub(super) fn ask_assigned_lead(db: &Db, phone: &Phone) -> Result<Asked<GivenColumns>, Error> {
    let text = "SELECT phone, lead, at, who FROM assigned_leads WHERE phone = ?1";
    db.ask(text, [phone.as_str()])
}

/// Reads the result of [`ask_assigned_lead`].
pub(super) fn read_assigned_lead(
    db: &Db,
    asked: Asked<GivenColumns>,
) -> Result<Option<LeadByHand>, Error> {
    Ok(asked.first(db)?.and_then(lead_from_row))
}

/// Reads up to `limit` assigned leads after `after`, ordered by phone number.
pub fn given_leads(db: &Db, after: Option<&Phone>, limit: usize) -> Result<Vec<LeadByHand>, Error> {
    let after = after.map_or("", Phone::as_str);
    let text =
        "SELECT phone, lead, at, who FROM assigned_leads WHERE phone > ?1 ORDER BY phone LIMIT ?2";
    db.query_known(text, (after, count(limit)), lead_from_row)
}

/// Converts a row, or returns `None` for one that no version of callbridge has ever written.
fn lead_from_row((phone, lead, at, who): GivenColumns) -> Option<LeadByHand> {
    Some(LeadByHand {
        phone: Phone::from_e164(&phone)?,
        lead_id: LeadId::new(lead)?,
        at,
        who,
    })
}
