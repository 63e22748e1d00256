//! Updates the customers waiting for a callback after a group of finished calls, with a single read
//! and a single write in PostgreSQL. `missed.rs` does the same for a single call.

use super::missed::{Contact, TALKS, contact};
use crate::db::Asked;
use crate::value::Columns;
use crate::{Db, Error, Finished};
use callbridge_model::LeadId;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The customers in a group of calls.
#[derive(Default)]
pub(super) struct Customers {
    phones: Vec<String>,
    asked: Option<Asked<FoundCustomer>>,
    /// Customers by phone, or `None` until the query's result is read and after a call was stored
    /// separately.
    known: Option<BTreeMap<String, Customer>>,
}

#[derive(Deserialize)]
struct FoundCustomer {
    phone: String,
    first_at: Option<i64>,
    last_at: Option<i64>,
    talk_end: Option<i64>,
}

/// A customer as of the last call collected.
struct Customer {
    /// When the first and the last missed call started, if the customer is waiting for a callback.
    waits: Option<(i64, i64)>,
    /// When the last stored conversation ended.
    talk_end: Option<i64>,
    /// Whether the customer's stored row must be deleted.
    is_forgotten: bool,
    /// Missed calls that haven't been stored yet.
    missed: Option<MissedCalls>,
}

/// A customer's missed calls, with the columns of the `missed_customers` table.
struct MissedCalls {
    pbx: String,
    trunk: String,
    lead: Option<i64>,
    first_at: i64,
    last_at: i64,
    tries: i64,
}

impl Customers {
    /// Sends the query for the customers in these calls.
    pub(super) fn ask(db: &Db, calls: &[&Finished]) -> Result<Self, Error> {
        let mut phones: Vec<String> = calls
            .iter()
            .filter_map(|new| contact(new))
            .map(|(phone, _)| phone.to_owned())
            .collect();
        phones.sort_unstable();
        phones.dedup();
        let mut asked = None;
        if !phones.is_empty() {
            asked = Some(ask(db, &phones)?);
        }
        Ok(Self {
            phones,
            asked,
            known: None,
        })
    }

    /// Reads the query's result, if there is one. Returns `false` if the customers have to be
    /// queried again.
    pub(super) fn are_known(&mut self, db: &Db) -> Result<bool, Error> {
        if let Some(asked) = self.asked.take() {
            let mut known = BTreeMap::new();
            for found in asked.all(db)? {
                let customer = Customer {
                    waits: found.first_at.zip(found.last_at),
                    talk_end: found.talk_end,
                    is_forgotten: false,
                    missed: None,
                };
                known.insert(found.phone, customer);
            }
            self.known = Some(known);
        }
        Ok(self.known.is_some())
    }

    /// Queries the customers again. All collected calls must have been stored by then.
    pub(super) fn ask_again(&mut self, db: &Db) -> Result<(), Error> {
        self.asked = Some(ask(db, &self.phones)?);
        self.are_known(db).map(drop)
    }

    /// Forgets the customers, because the next call is stored separately and might change them.
    pub(super) fn forget(&mut self) {
        self.asked = None;
        self.known = None;
    }

    /// Updates the customer according to what the call `new` proves. Returns `false` without
    /// changing anything if that requires reading stored calls.
    pub(super) fn note(&mut self, new: &Finished, phone: &str, contact: Contact) -> bool {
        let known = self.known.as_mut();
        let Some(customer) = known.and_then(|known| known.get_mut(phone)) else {
            return false;
        };
        match contact {
            Contact::Talked => customer.note_talk(new),
            Contact::Missed => {
                customer.note_missed(new);
                true
            }
        }
    }

    /// Writes the changes to all customers.
    pub(super) fn store(&mut self, db: &Db) -> Result<(), Error> {
        let mut forgotten = Columns::default();
        let mut rows = Columns::default();
        for (phone, customer) in self.known.iter_mut().flatten() {
            if std::mem::take(&mut customer.is_forgotten) {
                forgotten.push([phone]);
            }
            if let Some(missed) = customer.missed.take() {
                let MissedCalls {
                    pbx,
                    trunk,
                    lead,
                    first_at,
                    last_at,
                    tries,
                } = missed;
                rows.push((phone, pbx, trunk, lead, first_at, last_at, tries));
            }
        }
        if !forgotten.is_empty() {
            let text = "DELETE FROM missed_customers WHERE phone = ANY(?1::text[])";
            db.run_many(text, forgotten, None)?;
        }
        if rows.is_empty() {
            return Ok(());
        }
        let text = "INSERT INTO missed_customers AS m
                 (phone, pbx, trunk, lead, first_at, last_at, tries)
             SELECT * FROM unnest(?1::text[], ?2::text[], ?3::text[], ?4::bigint[], ?5::bigint[],
                 ?6::bigint[], ?7::bigint[])
             ON CONFLICT (phone) DO UPDATE SET
                 pbx = CASE WHEN excluded.last_at >= m.last_at THEN excluded.pbx ELSE m.pbx END,
                 trunk = CASE WHEN excluded.last_at >= m.last_at
                     THEN excluded.trunk ELSE m.trunk END,
                 lead = CASE WHEN excluded.last_at >= m.last_at THEN excluded.lead ELSE m.lead END,
                 first_at = least(excluded.first_at, m.first_at),
                 last_at = greatest(excluded.last_at, m.last_at),
                 tries = m.tries + excluded.tries";
        db.run_many(text, rows, None)
    }
}

impl Customer {
    /// Ends the customer's wait if the conversation came after all missed calls. Returns `false` if
    /// it ended after only some of them.
    fn note_talk(&mut self, new: &Finished) -> bool {
        let end = new.end();
        match self.waits {
            Some((_, last)) if end > last => {
                self.waits = None;
                self.is_forgotten = true;
                self.missed = None;
            }
            Some((first, _)) if end > first => return false,
            Some(_) | None => {}
        }
        if new.judged.outcome.is_kept() {
            self.talk_end = self.talk_end.max(Some(end));
        }
        true
    }

    fn note_missed(&mut self, new: &Finished) {
        let started = new.started();
        if self.talk_end.is_some_and(|end| end > started) {
            return;
        }
        let (first, last) = self.waits.unwrap_or((started, started));
        self.waits = Some((started.min(first), started.max(last)));
        let record = &new.judged.record;
        let newest = MissedCalls {
            pbx: record.pbx.clone(),
            trunk: new.trunk().to_owned(),
            lead: record.lead_id.map(LeadId::get),
            first_at: started,
            last_at: started,
            tries: 1,
        };
        self.missed = Some(match self.missed.take() {
            Some(before) => before.merge(newest),
            None => newest,
        });
    }
}

impl MissedCalls {
    /// Adds missed calls that were collected later.
    fn merge(self, later: Self) -> Self {
        let first_at = self.first_at.min(later.first_at);
        let last_at = self.last_at.max(later.last_at);
        let tries = self.tries + later.tries;
        let last = if later.last_at >= self.last_at {
            later
        } else {
            self
        };
        Self {
            first_at,
            last_at,
            tries,
            ..last
        }
    }
}

/// Sends the query for each customer's wait, and for the end of their last conversation.
fn ask(db: &Db, phones: &[String]) -> Result<Asked<FoundCustomer>, Error> {
    let mut column = Columns::default();
    for phone in phones {
        column.push([phone]);
    }
    // The LIMIT in each lookup makes PostgreSQL run it once per phone, using the index.
    let text = format!(
        "SELECT asked.phone, wait.first_at, wait.last_at, talk.ended AS talk_end
         FROM unnest(?1::text[]) AS asked(phone)
         LEFT JOIN LATERAL (SELECT first_at, last_at FROM missed_customers
             WHERE phone = asked.phone LIMIT 1) AS wait ON true
         LEFT JOIN LATERAL (SELECT ended FROM {}
             ORDER BY ended DESC LIMIT 1) AS talk ON true",
        TALKS.replace("?1", "asked.phone")
    );
    db.ask_many(&text, column)
}
