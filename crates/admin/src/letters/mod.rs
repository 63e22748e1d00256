//! Dead letters, which need a decision, and calls that wait for a lead or employee: which of them
//! a command means, how one is sent again, and ([`text`]) what is told of them.

pub mod text;

use crate::refusal::Refusal;
use callbridge_call::{Direction, EventTime};
use callbridge_mapping::{EmployeeChoice, People, RetryValues, Rules, journal};
use callbridge_model::{CallRecord, Outcome, Reason};
use callbridge_spool::{Error, Handle, Letter, LetterFilter, Row, RowId, State, Step, tables};
use serde::{Deserialize, Serialize};

/// The source of letter ids, for errors of a wrong one.
const IDS: &str = "ids are numbers, see `callbridge dead list`";

/// Letters read from the spool at a time.
const PAGE: usize = 200;

/// The dead letters that a command is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// By id; empty for all that the other rules let through.
    pub ids: Vec<String>,
    /// Letters of this reason alone.
    pub reason: Option<Reason>,
    /// Waiting calls in place of dead letters. Ids find both.
    #[serde(default)]
    pub waiting: bool,
    /// Without any other rule: all of them. A change to letters asks for one of the three.
    pub all: bool,
}

impl Selection {
    /// Nothing was chosen at all.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.reason.is_none() && !self.waiting && !self.all
    }
}

/// Walks over the letters of a selection, oldest first, a page at a time, so that however many
/// there are, few are in memory.
pub struct Letters {
    filter: LetterFilter,
    over: bool,
}

impl Letters {
    /// The letters of a selection; an empty one means all of them.
    ///
    /// # Errors
    /// When an id is no number.
    pub fn of(which: &Selection) -> Result<Self, Refusal> {
        let ids = which.ids.iter().map(|id| {
            let wrong = |_| format!("`{id}` is not the id of a letter: {IDS}");
            id.trim().parse().map(RowId).map_err(wrong)
        });
        let ids = ids.collect::<Result<Vec<_>, _>>().map_err(Refusal::usage)?;
        let state = match which.waiting {
            _ if !ids.is_empty() => None,
            true => Some(State::Waiting),
            false => Some(State::Dead),
        };
        Ok(Self::new(
            (!ids.is_empty()).then_some(ids),
            state,
            which.reason,
        ))
    }

    /// The letters of these ids, this state, and this reason.
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

    /// The next page; an empty one at the end.
    ///
    /// # Errors
    /// When the spool cannot be read.
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

/// Returns the step that sends the letter again: mapped anew by the rules in force, under its own
/// uuid. With another lead than before, where the call may
/// have been written all the same, the journal is searched first.
///
/// # Errors
/// In words, with what to do.
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
                "--answered, --talk and --direction are for dead letters `incomplete`: this one is \
                 {reason}"
            ));
        }
        record = record.said_by_hand(said, now.floor_seconds())?;
    }
    if record.direction == Direction::Unknown {
        return Err(
            "its direction is unknown: find out who called, then use `callbridge dead retry ID \
             --direction inbound` or `--direction outbound`"
                .to_owned(),
        );
    }
    // With these the CRM may have written the call all the same.
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

/// Returns the record to send, mapped anew where trunks are known.
fn record(
    row: &Row,
    asked: RetryValues,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<CallRecord, String> {
    if rules.trunks.is_empty() {
        return as_kept(row, asked);
    }
    let judged = journal::remap(&row.record, &row.call, Some(asked), rules, people, now);
    match judged.outcome {
        Outcome::Journal => Ok(judged.record),
        Outcome::DeadLetter | Outcome::Internal | Outcome::Skipped => Err(judged.message),
    }
}

/// Without the daemon's flags nothing can be mapped anew: the kept values are sent.
fn as_kept(row: &Row, asked: RetryValues) -> Result<CallRecord, String> {
    let mut record = row.record.clone();
    if asked.lead.is_some() {
        (record.lead_id, record.lead_from) = (asked.lead, Some(journal::BY_HAND.to_owned()));
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
