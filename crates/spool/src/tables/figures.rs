//! Statistics for a time range: call states, confirmation delays, and calls with customers.

use crate::{Db, Error, Json, State, called_extensions};
use callbridge_call::{Direction, EventTime, Timeline};
use callbridge_model::{CallRecord, EmployeeId};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of delays to return, starting with those of the newest confirmed calls.
const DELAYS_MAX: u32 = 2_000;

/// Counts the calls that started in `from..until` (in epoch seconds), by state.
pub fn outcomes(db: &Db, from: i64, until: i64) -> Result<BTreeMap<State, u64>, Error> {
    let text =
        "SELECT state, count(*) FROM calls WHERE started >= ?1 AND started < ?2 GROUP BY state";
    Ok(db.query_all(text, (from, until))?.into_iter().collect())
}

/// Returns how long it took from hangup until the call was journaled, for the newest 2,000
/// journaled calls that started in `from..until` (in epoch seconds).
pub fn confirmation_delays(db: &Db, from: i64, until: i64) -> Result<Vec<Duration>, Error> {
    let text = "SELECT since - 1000000 * ended FROM calls
         WHERE started >= ?1 AND started < ?2 AND state = 'journaled'
         ORDER BY started DESC LIMIT ?3";
    let micros: Vec<i64> = db.query_all(text, (from, until, DELAYS_MAX))?;
    // Since the end of a call is rounded to whole seconds, a call may be confirmed before it
    // "ended".
    let delays = micros
        .into_iter()
        .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
    Ok(delays.collect())
}

/// A call with a customer, reduced to the values that
/// [`WorkSums`](crate::employee_work::WorkSums) needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomerCall {
    /// Epoch seconds.
    pub started: i64,
    /// Whether the customer made the call, rather than an employee.
    pub inbound: bool,
    /// Whether an employee talked with the customer.
    pub answered: bool,
    /// The customer's number, if known.
    pub phone: Option<String>,
    /// The extension that the call is attributed to.
    pub extension: Option<String>,
    /// CRM ID of the employee that the call is attributed to.
    pub employee_id: Option<i64>,
    /// Talk time in seconds.
    pub talk_sec: u64,
    /// How many seconds an answered caller waited, or 0 for other calls.
    pub wait_sec: u64,
    /// Extensions that rang for an unanswered inbound call, empty for other calls.
    pub rang: Vec<String>,
}

/// Returns the calls that started in `from..until` (in epoch seconds), ordered by start time.
///
/// This includes calls that `unanswered=no` keeps out of the journal. Discarded incomplete calls
/// are excluded, because in many cases the whole call arrived later.
pub fn customer_calls(db: &Db, from: i64, until: i64) -> Result<Vec<CustomerCall>, Error> {
    let text = "SELECT started, record, call, id FROM calls WHERE started >= ?1 AND started < ?2
           AND NOT (state = 'discarded' AND coalesce(reason, '') = 'incomplete')
         ORDER BY started, id";
    let mut calls = Vec::new();
    for (started, Json(record), Json(facts)) in db.query_all(text, [from, until])? {
        calls.push(customer_call(started, record, &facts));
    }
    let text =
        "SELECT started, phone, rang FROM left_out_calls WHERE started >= ?1 AND started < ?2
         ORDER BY started";
    for (started, phone, rang) in db.query_all::<(_, _, String)>(text, [from, until])? {
        calls.push(CustomerCall {
            started,
            inbound: true,
            phone,
            rang: rang.split_whitespace().map(str::to_owned).collect(),
            ..CustomerCall::default()
        });
    }
    calls.sort_by_key(|call| call.started);
    Ok(calls)
}

fn customer_call(started: i64, record: CallRecord, facts: &Facts) -> CustomerCall {
    let inbound = record.direction == Direction::Inbound;
    let mut wait_sec = 0;
    let mut extensions = Vec::new();
    if inbound && record.answered {
        wait_sec = facts.wait_time().as_secs();
    } else if inbound {
        extensions = called_extensions(facts.timeline.as_ref());
    }
    CustomerCall {
        started,
        inbound,
        answered: record.answered,
        phone: record.client_phone.map(|phone| phone.as_str().to_owned()),
        extension: record.employee,
        employee_id: record.employee_id.map(EmployeeId::get),
        talk_sec: u64::from(record.talk_time_sec),
        wait_sec,
        rang: extensions.into_iter().map(str::to_owned).collect(),
    }
}

#[derive(Deserialize)]
struct Facts {
    started: EventTime,
    ended: EventTime,
    talk: Duration,
    timeline: Option<Timeline>,
}

impl Facts {
    /// Returns the time from the start of the call until the conversation began. If only the talk
    /// time is known, returns the rest of the call's duration.
    fn wait_time(&self) -> Duration {
        let talk = self
            .timeline
            .as_ref()
            .and_then(|timeline| timeline.talk.first());
        match talk {
            Some(talk) => talk.from.since(self.started),
            None => self.ended.since(self.started).saturating_sub(self.talk),
        }
    }
}
