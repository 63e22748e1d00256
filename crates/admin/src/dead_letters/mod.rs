//! Dead letters, which need a decision, and calls that wait for a lead or employee: how a command
//! selects them, how a call is sent again, and how they are shown ([`text`]).

pub mod text;

use crate::refusal::Refusal;
use callbridge_call::{Direction, EventTime};
use callbridge_mapping::{EmployeeChoice, People, RetryValues, Rules, journal};
use callbridge_model::{CallRecord, Outcome, Reason};
use callbridge_spool::{Error, Handle, Letter, LetterFilter, Row, RowId, State, Step, tables};
use serde::{Deserialize, Serialize};

/// Advice for errors about a wrong id.
const IDS: &str = "ids are numbers, see `callbridge dead list`";

/// Dead letters and waiting calls read from the spool at a time.
const PAGE: usize = 200;

/// The dead letters or waiting calls that a command is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Ids of dead letters or waiting calls. If empty, the other conditions select.
    pub ids: Vec<String>,
    /// Selects only dead letters and waiting calls with this reason.
    pub reason: Option<Reason>,
    /// Selects waiting calls instead of dead letters. Ignored if there are `ids`.
    #[serde(default)]
    pub waiting: bool,
    /// Selects all dead letters. A change needs at least one of the four fields.
    pub all: bool,
}

impl Selection {
    /// Returns `true` if no condition is set.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.reason.is_none() && !self.waiting && !self.all
    }
}

/// Reads the dead letters or waiting calls of a selection, oldest first, one page at a time, so
/// only a few are in memory.
pub struct Letters {
    filter: LetterFilter,
    over: bool,
}

impl Letters {
    /// Makes a reader for a selection. An empty selection means all dead letters.
    ///
    /// # Errors
    /// If an id is not a number.
    pub fn from_selection(which: &Selection) -> Result<Self, Refusal> {
        let mut ids = Vec::new();
        for id in &which.ids {
            let Ok(number) = id.trim().parse() else {
                let message = format!("`{id}` is not the id of a dead letter: {IDS}");
                return Err(Refusal::usage(message));
            };
            ids.push(RowId(number));
        }
        if !ids.is_empty() {
            return Ok(Self::new(Some(ids), None, which.reason));
        }
        let state = if which.waiting {
            State::Waiting
        } else {
            State::Dead
        };
        Ok(Self::new(None, Some(state), which.reason))
    }

    /// Makes a reader for these ids, this state, and this reason. `None` means any.
    pub(crate) fn new(
        ids: Option<Vec<RowId>>,
        state: Option<State>,
        reason: Option<Reason>,
    ) -> Self {
        let filter = LetterFilter {
            ids,
            state,
            reason,
            limit: PAGE,
            ..LetterFilter::default()
        };
        Self {
            filter,
            over: false,
        }
    }

    /// Returns the next page. Returns an empty page at the end.
    ///
    /// # Errors
    /// If the spool cannot be read.
    pub async fn next(&mut self, spool: &Handle) -> Result<Vec<Letter>, Error> {
        if self.over {
            return Ok(Vec::new());
        }
        let filter = self.filter.clone();
        let read = spool.read(move |store| tables::letters::letters(store, &filter));
        let page = read.await?;
        self.filter.after = page.last().map(|letter| letter.id);
        self.over = page.len() < PAGE;
        Ok(page)
    }
}

/// Returns the step that sends the call again under its uuid. The call is mapped again by the
/// current rules and the values in `asked`. If the lead has changed and the CRM may have written
/// the call, the step searches the journal first.
///
/// # Errors
/// A message with the reason and the fix.
pub(crate) fn plan_retry(
    row: &Row,
    asked: RetryValues,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<Step, String> {
    if !matches!(row.state, State::Dead | State::Waiting) {
        let state = row.state.word();
        return Err(format!("it is {state}, neither dead nor waiting"));
    }
    if row.reason == Some(Reason::UuidConflict) {
        return Err(Error::UuidTaken(row.id, row.uuid).to_string());
    }
    let mut record = record(row, asked, rules, people, now)?;
    if let Some(said) = asked.said {
        if row.reason != Some(Reason::Incomplete) {
            let reason = row.reason.map_or("no letter", Reason::word);
            return Err(format!(
                "only dead letters `incomplete` accept --answered, --talk, and --direction: this \
                 one is {reason}"
            ));
        }
        record = record.correct_by_hand(said, now.floor_seconds())?;
    }
    if record.direction == Direction::Unknown {
        return Err(
            "its direction is unknown: find out who called, then use `callbridge dead retry ID \
             --direction inbound` or `--direction outbound`"
                .to_owned(),
        );
    }
    // For these reasons, the CRM may have written the call.
    let may_be_written = matches!(row.reason, Some(Reason::ServerError | Reason::Unconfirmed));
    if let Some(old) = row
        .record
        .lead_id
        .filter(|old| Some(*old) != record.lead_id)
        && may_be_written
    {
        let before = format!("lead {old}");
        return Ok(Step::Recheck { record, before });
    }
    let by_itself = false;
    Ok(Step::Retry { record, by_itself })
}

/// Returns the record to send. The call is mapped again if `rules` has trunks.
fn record(
    row: &Row,
    asked: RetryValues,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<CallRecord, String> {
    if rules.trunks.is_empty() {
        return stored_record(row, asked);
    }
    let judged = journal::remap(&row.record, &row.call, Some(asked), rules, people, now);
    match judged.outcome {
        Outcome::Journal => Ok(judged.record),
        Outcome::DeadLetter | Outcome::Internal | Outcome::Skipped => Err(judged.message),
    }
}

/// Returns the stored record with the lead and the employee that `asked` names. It is not mapped
/// again, because only the daemon has the flags for that. Fails if it has no lead.
fn stored_record(row: &Row, asked: RetryValues) -> Result<CallRecord, String> {
    let mut record = row.record.clone();
    if asked.lead.is_some() {
        record.lead_id = asked.lead;
        record.lead_from = Some(journal::BY_HAND.to_owned());
    }
    match asked.employee {
        None => {}
        Some(EmployeeChoice::None) => record.employee_id = None,
        Some(EmployeeChoice::Is(id)) => record.employee_id = Some(id),
    }
    if record.lead_id.is_none() {
        return Err("it has no lead: give one with --lead".to_owned());
    }
    Ok(record)
}
