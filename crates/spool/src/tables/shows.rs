//! What lead fields in the CRM have to show about calls (`--lead-field`), with one row per lead.

use super::{calls, meta, missed};
use crate::db::Asked;
use crate::{Db, Error, GIVEN_UP, Json, LeadWarning, RowId, Store, json};
use callbridge_call::EventTime;
use callbridge_leads::lead_field::shows::{NextAction, Order};
use callbridge_leads::lead_field::{
    Catalog, Field, FieldId, Fit, Item, LeadFieldState, Name, Refusal, RefusedFields, field_values,
};
use callbridge_leads::lead_request::due::FieldPoll;
use callbridge_leads::lead_request::memory::Rest;
use callbridge_leads::lead_request::{FieldWrite, RequestKind};
use callbridge_model::LeadId;
use serde::Deserialize;
use std::time::Duration;

/// How long after a lead's newest call its values are remembered. Older calls aren't shown.
const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);
/// Maximum number of leads whose values are remembered. Beyond that, the leads whose calls are the
/// oldest lose theirs.
const LEADS_MAX: i64 = 50_000;
/// Maximum number of rows that each of a purge's statements deletes.
const PURGE_MAX: i64 = 1_000;
/// Name of the setting that stores the CRM's field catalog as it was last read.
pub(crate) const CATALOG: &str = "lead_field.catalog";
/// Name of the setting that stores the fields whose values the CRM refused.
const REFUSED: &str = "lead_field.refused";
/// Name of the setting that stores the floor, in epoch seconds. A lead without remembered values
/// doesn't show any call that started at or before this time, since newer values may have been
/// deleted.
pub(crate) const FLOOR: &str = "lead_field.floor";

/// Name of the counter for values written to the CRM.
pub(crate) const WRITTEN: &str = "lead_fields_written";

/// Name of the counter for values that were skipped because their field can't be written.
pub(crate) const LEFT_OUT: &str = "lead_fields_left_out";

/// The state of the `--lead-field` fields, for use in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadFields {
    /// The name and ID of each field, and how it fits the CRM's catalog, or `None` if the catalog
    /// hasn't been read yet.
    pub fields: Vec<(Name, FieldId, Option<Fit>)>,
    /// Number of leads with values still to be written, or with a write in flight.
    pub waiting: u64,
    /// Why writing is paused and until when, or `None` if it isn't.
    pub rests: Option<Rest>,
}

/// Updates the values of a journaled call's lead so that its fields show the call. Fields that show
/// a newer call are left alone.
pub(crate) fn show_call(store: &mut Store, row: RowId, at: EventTime) -> Result<(), Error> {
    let Some(settings) = store.settings.shows.clone() else {
        return Ok(());
    };
    let call = calls::record(store, row)?;
    let Some(lead) = call.lead_id else {
        return Ok(());
    };
    let mut shows = match field_state(store, lead)? {
        Some(shows) => shows,
        None => {
            let kept = at.minus(KEPT).floor_seconds().get();
            if call.started_at.get() <= floor(store)?.map_or(kept, |floor| floor.max(kept)) {
                return Ok(());
            }
            LeadFieldState::default()
        }
    };
    let of = Order {
        started: call.started_at,
        row: row.0,
    };
    let mut learned = false;
    let tries = match &call.client_phone {
        Some(phone) if settings.fields.contains_key(&Name::MissedCount) => {
            Some(missed::count_tries(store, phone.as_str())?)
        }
        Some(_) | None => None,
    };
    for (name, text) in field_values(&call, &settings, tries) {
        learned |= shows.learn(name, text, of);
    }
    if learned {
        set_shows(store, lead, &shows)?;
    }
    Ok(())
}

fn floor(db: &Db) -> Result<Option<i64>, Error> {
    Ok(meta::meta(db, FLOOR)?.and_then(|text| text.parse().ok()))
}

/// Reads the values that a lead has to show, or `None` if none are remembered for it.
pub fn field_state(db: &Db, lead: LeadId) -> Result<Option<LeadFieldState>, Error> {
    let text = "SELECT field_state, lead AS id FROM lead_field_values WHERE lead = ?1";
    Ok(db.query_first(text, [lead.get()])?.map(|Json(shows)| shows))
}

pub(crate) fn set_shows(db: &Db, lead: LeadId, shows: &LeadFieldState) -> Result<(), Error> {
    let text = "INSERT INTO lead_field_values (lead, field_state, next_action, due, newest_call)
         VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (lead) DO UPDATE SET field_state = excluded.field_state,
             next_action = excluded.next_action,
             due = excluded.due, newest_call = excluded.newest_call";
    let values = (
        lead.get(),
        json("what a lead shows", shows)?,
        shows.next_action().map(NextAction::word),
        shows.due,
        shows.newest(),
    );
    db.run(text, values)
}

/// Sends the query for the lead whose fields are to be written next, and when that's due.
pub(super) fn ask_next_write(db: &Db) -> Result<Asked<(LeadId, EventTime)>, Error> {
    let text =
        "SELECT lead, due FROM lead_field_values WHERE next_action = ?1 ORDER BY due LIMIT 1";
    db.ask(text, [NextAction::Write.word()])
}

/// A lead whose write was accepted, when to poll it, and its [`LeadFieldState`] as JSON.
#[derive(Deserialize)]
pub(super) struct NextPoll {
    pub(super) lead: LeadId,
    pub(super) due: EventTime,
    field_state: String,
}

/// Sends the query for the lead whose write is to be polled next.
pub(super) fn ask_next_poll(db: &Db) -> Result<Asked<NextPoll>, Error> {
    let text = "SELECT lead, due, field_state FROM lead_field_values
         WHERE next_action = ?1 ORDER BY due LIMIT 1";
    db.ask(text, [NextAction::Poll.word()])
}

impl NextPoll {
    /// Returns the request that polls the accepted write, or `None` if no write was accepted.
    pub(super) fn field_poll(&self, db: &Db) -> Result<Option<FieldPoll>, Error> {
        let shows: LeadFieldState = db.read_json(RowId(self.lead.get()), &self.field_state)?;
        let accepted = shows.request.and_then(|write| write.accepted);
        Ok(accepted.map(|(request_id, token)| FieldPoll {
            lead: self.lead,
            request_id,
            token,
        }))
    }
}

/// Builds the write that is now due for this lead's fields, or returns `None` if the values or the
/// catalog aren't known. If all values have been written already, it has no items.
pub fn field_write(
    store: &Store,
    lead: LeadId,
    now: EventTime,
) -> Result<Option<FieldWrite>, Error> {
    let shows = field_state(store, lead)?;
    let catalog = catalog(store)?;
    let (Some(settings), Some(shows), Some(catalog)) = (&store.settings.shows, shows, catalog)
    else {
        return Ok(None);
    };
    let refused = refused_fields(store)?;
    Ok(Some(shows.write(settings, &catalog, &refused, now)))
}

/// Reads the fields whose values the CRM refused.
pub fn refused_fields(db: &Db) -> Result<RefusedFields, Error> {
    Ok(meta::recall(db, REFUSED)?.unwrap_or_default())
}

/// Records that the CRM refused these items for a lead, so their fields are skipped for a while. If
/// that's new, also queues a warning for the log.
pub(crate) fn note_refused(
    store: &mut Store,
    lead: LeadId,
    items: Vec<(Name, Item)>,
    refusal: &Refusal,
    at: EventTime,
) -> Result<(), Error> {
    let Some(settings) = store.settings.shows.clone() else {
        return Ok(());
    };
    let mut all = refused_fields(store)?;
    for (name, item) in items {
        let field = settings.fields.get(&name).copied();
        let Some(field) = field.filter(|field| field.id == item.id) else {
            continue;
        };
        if all.note((name, field), (lead, item), refusal, at) {
            let fit = all.fit(name, field, Fit::Led);
            let named = LeadWarning::Field(format!("{name}={field}"), fit);
            store.tally.warnings.push(named);
        }
    }
    meta::remember(store, REFUSED, &all)
}

/// Records that the CRM accepted these items, so their fields are no longer skipped.
pub(crate) fn note_accepted(store: &Store, items: &[(Name, Item)]) -> Result<(), Error> {
    let mut all = refused_fields(store)?;
    if all.note_accepted(items) {
        meta::remember(store, REFUSED, &all)?;
    }
    Ok(())
}

/// Checks each `--lead-field` field against the CRM's catalog. The results are `None` until the
/// catalog has been read.
fn fits(store: &Store) -> Result<Vec<(Name, Field, Option<Fit>)>, Error> {
    let catalog = catalog(store)?;
    let refused = refused_fields(store)?;
    let mut fits = Vec::new();
    for (name, field) in store.settings.shows.iter().flat_map(|shows| &shows.fields) {
        let fit = catalog
            .as_ref()
            .map(|catalog| refused.fit(*name, *field, catalog.fit(field.id)));
        fits.push((*name, *field, fit));
    }
    Ok(fits)
}

/// Returns the CRM's field catalog as it was last read, if ever.
pub fn catalog(db: &Db) -> Result<Option<Catalog>, Error> {
    meta::recall(db, CATALOG)
}

/// Returns the state of the `--lead-field` fields, or `None` if the flag isn't set.
pub fn lead_fields(store: &Store, now: EventTime) -> Result<Option<LeadFields>, Error> {
    if store.settings.shows.is_none() {
        return Ok(None);
    }
    let fits = fits(store)?.into_iter();
    let fields = fits.map(|(name, field, fit)| (name, field.id, fit));
    let memory = meta::memory(store)?;
    Ok(Some(LeadFields {
        fields: fields.collect(),
        waiting: leads_to_show(store)?,
        rests: memory.current_pause(RequestKind::Fields, now).cloned(),
    }))
}

/// Finds the `--lead-field` fields that might not get written.
pub(crate) fn doubtful(store: &Store) -> Result<Vec<LeadWarning>, Error> {
    let fits = fits(store)?.into_iter();
    let doubtful = fits.filter_map(|(name, field, fit)| {
        let fit = fit.filter(|fit| *fit != Fit::Led)?;
        Some(LeadWarning::Field(format!("{name}={field}"), fit))
    });
    Ok(doubtful.collect())
}

/// Returns the number of leads with values still to be written, or with a write in flight.
pub fn leads_to_show(db: &Db) -> Result<u64, Error> {
    db.query_one(
        "SELECT count(*) FROM lead_field_values WHERE next_action IS NOT NULL",
        (),
    )
}

/// Deletes the values of leads whose newest call is older than [`KEPT`], and those of the leads
/// with the oldest calls once there are more than [`LEADS_MAX`]. The floor is raised to the newest
/// call among the deleted leads.
pub(crate) fn purge_shows(store: &mut Store, now: EventTime) -> Result<(), Error> {
    let count: i64 = store.query_one("SELECT count(*) FROM lead_field_values", ())?;
    let kept = now.minus(KEPT).floor_seconds().get();
    let too_many = (count - LEADS_MAX).clamp(0, PURGE_MAX);
    let mut gone: Vec<i64> = Vec::new();
    for asks in [None, Some(NextAction::Write), Some(NextAction::Poll)] {
        let action = match asks {
            None => "IS NULL".to_owned(),
            Some(action) => format!("= '{}'", action.word()),
        };
        let left = too_many - i64::try_from(gone.len()).unwrap_or(i64::MAX);
        // First the rows from before `kept`, and then as many of the oldest rows as exceed the
        // limit.
        for (before, limit) in [(kept, PURGE_MAX), (i64::MAX, left.max(0))] {
            // Naming both columns lets the index be used.
            let text = format!(
                "DELETE FROM lead_field_values WHERE lead IN (
                     SELECT lead FROM lead_field_values
                     WHERE next_action {action} AND newest_call < ?1
                     ORDER BY next_action, newest_call LIMIT ?2)
                 RETURNING newest_call"
            );
            let old: Vec<i64> = store.query_all(&text, (before, limit))?;
            if asks.is_some() {
                store.tally.count(GIVEN_UP, old.len() as u64);
            }
            gone.extend(old);
        }
    }
    let floor = floor(store)?;
    match gone.into_iter().max() {
        Some(highest) if floor.is_none_or(|floor| highest > floor) => {
            meta::set_meta(store, FLOOR, &highest.to_string())
        }
        Some(_) | None => Ok(()),
    }
}
