//! What the page asks of the daemon, and the shapes of its answers. The daemon has the spool, the
//! rules and the sources; the page knows none of them.
//!
//! Times are epoch seconds unless their name says otherwise. Texts come from PBXs and the CRM and
//! are hostile: they are escaped where they are written, and never trusted to be short.

use crate::language::Language;
use async_trait::async_trait;
use callbridge_admin::{LetterChange, LetterOutcome, Refusal};
use callbridge_leads::{directory::LeadProfile, lead_request::Finding};
use callbridge_model::{LeadId, Reason, Status, status::TrunkStatus};
use callbridge_spool::employee_work::EmployeeWork;
use callbridge_spool::{Attempt, LeadByHand, Letter, Listed, MissedCustomer, RowId, WaitingPhone};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What the daemon answers, or why it refuses.
pub type Answer<T> = Result<T, Refusal>;

/// The daemon's side of the page: all that a view reads or does.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the status as `callbridge status --json` has it, with the findings that wait for a
    /// person (`problems`).
    async fn status(&self) -> Answer<Status>;
    /// The figures of today and of the last seven days.
    async fn today(&self) -> Answer<Figures>;
    /// The calls that go on now, longest first, 200 at most.
    async fn under_way(&self) -> Answer<Vec<OpenCallView>>;
    /// A page of kept calls, newest first.
    async fn calls(&self, query: CallQuery) -> Answer<CallPage>;
    /// One call by its uuid; `None` when none is kept.
    async fn call(&self, uuid: String) -> Answer<Option<CallView>>;
    /// A page of dead letters, newest first.
    async fn letters(&self, query: LetterQuery) -> Answer<LetterPage>;
    /// The causes of letters, most letters first; of the newest 5,000 letters.
    async fn causes(&self) -> Answer<Vec<CauseGroup>>;
    /// The ids of all letters that a query finds, for an action on all of them.
    async fn letter_ids(&self, query: LetterQuery) -> Answer<Vec<RowId>>;
    /// Does something with letters, 100 at most at once, and says for each what became of it.
    async fn act(
        &self,
        change: LetterChange,
        ids: &[RowId],
        who: &str,
    ) -> Answer<Vec<LetterOutcome>>;
    /// Numbers that called and have no lead, most calls first.
    async fn numbers(&self) -> Answer<Vec<WaitingPhone>>;
    /// Gives a number its lead; its waiting calls leave. The count of those.
    async fn give_lead(&self, phone: &str, lead: LeadId, who: &str) -> Answer<u64>;
    /// Takes the lead that was given by hand from the number; sent calls stay as they are.
    async fn take_lead(&self, phone: &str) -> Answer<()>;
    /// Leads that were given on the page or by `lead give`.
    async fn given_leads(&self) -> Answer<Vec<LeadByHand>>;
    /// Reads the names and fields that the directory has of these leads.
    async fn profiles(&self, leads: BTreeSet<LeadId>) -> Answer<Profiles>;
    /// Customers who wait for a call back, longest waiting first, each with what was tried.
    async fn missed(&self) -> Answer<Vec<WaitingCustomer>>;
    /// Counts the customers who wait for a call back.
    async fn missed_count(&self) -> Answer<u64>;
    /// Returns the figures of employees by extension, of so many days with today; calls that
    /// reached nobody stand without an extension.
    async fn employees(&self, days: i64) -> Answer<EmployeeTable>;
    /// The trunks; `day_calls` are those that each took today.
    async fn trunks(&self) -> Answer<Vec<TrunkStatus>>;
    /// Runs `callbridge check`, which asks PBX and CRM and takes its time.
    async fn check(&self) -> Answer<Vec<CheckFinding>>;
    /// The sessions as [`Backend::keep_sessions`] left them.
    async fn kept_sessions(&self) -> Answer<Option<String>>;
    /// Keeps sessions over restarts: JSON without any secret.
    async fn keep_sessions(&self, sessions: String) -> Answer<()>;
    /// Counts up whenever a call, a letter or a source changes; the live parts look again then.
    fn changes(&self) -> tokio::sync::watch::Receiver<u64>;
    /// The PBX that it stands beside, or those, as people name them.
    fn pbx(&self) -> String;
}

/// Calls by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Calls that stand in the CRM's journal.
    pub journaled: u64,
    /// Calls on their way to the CRM.
    pub queued: u64,
    /// Calls that wait for a lead or employee.
    pub waiting: u64,
    /// Dead letters.
    pub letters: u64,
    /// Calls that a person discarded.
    pub discarded: u64,
}

impl Outcomes {
    /// Returns the sum of all outcomes.
    pub const fn total(&self) -> u64 {
        self.journaled + self.queued + self.waiting + self.letters + self.discarded
    }
}

/// Calls that began in one hour or on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The beginning of the hour or day.
    pub from: i64,
    /// The outcomes of its calls so far.
    pub outcomes: Outcomes,
}

/// The figures of the page Today.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Customers' calls that began today, in the PBX's zone.
    pub today: Outcomes,
    /// The last 24 hours, oldest first.
    pub hours: Vec<Bar>,
    /// The last 7 days, oldest first.
    pub days: Vec<Bar>,
    /// Seconds from hang-up to confirmed, of today's calls: the median; `None` without any.
    pub confirmed_median_sec: Option<f64>,
    /// The 95th percentile of the same.
    pub confirmed_p95_sec: Option<f64>,
}

/// A call that goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCallView {
    /// The time at which the call began.
    pub since: i64,
    /// The time at which somebody answered; `None` while nobody has.
    pub answered_at: Option<i64>,
    /// The trunk's name; `None` between extensions or where it is not known yet.
    pub trunk: Option<String>,
    /// The customer's number, as far as it is known.
    pub phone: Option<String>,
    /// The extensions that ring or talk.
    pub extensions: Vec<String>,
}

/// A filter of calls; without any rule all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallQuery {
    /// A number as a person types it, a uuid, a linkedid or an extension.
    pub text: Option<String>,
    /// A day in the PBX's zone: `2026-11-21`.
    pub day: Option<String>,
    /// The name of a trunk: calls over others are left out.
    pub trunk: Option<String>,
    /// A state's word: `journaled`, `dead`…
    pub state: Option<String>,
    /// The page's key as [`CallPage::next`] gave it.
    pub before: Option<String>,
}

/// A page of a list of calls, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPage {
    /// The calls of the page, 50 at most.
    pub calls: Vec<Listed>,
    /// The key of the next page; `None` at the end.
    pub next: Option<String>,
    /// On the first page: how many calls the query finds, as far as they were counted.
    pub count: Option<u64>,
    /// There are more than that.
    pub more: bool,
}

/// A call with all that is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// The call as lists show it.
    pub line: Listed,
    /// The picture of `explain --picture` without its values, as SVG; empty where there is none.
    pub picture: String,
    /// The values with the reason for each, as `explain` writes them.
    pub values: String,
    /// Each event that matters: when (seconds since the beginning), what.
    pub events: Vec<(String, String)>,
    /// Seconds that the call rang before somebody answered; `None` where nobody did or no event
    /// reported it.
    pub wait_sec: Option<u64>,
    /// Since when it stands in its state.
    pub since: i64,
    /// The request to the CRM that carried or would carry the call.
    pub request: RequestView,
    /// Attempts beside that request: tries that failed, and why the call was sent again.
    pub attempts: Vec<Attempt>,
    /// The letter that it is, if it is one.
    pub letter: Option<Letter>,
}

/// The request of a call, and what the CRM answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestView {
    /// The request's body, as it left or would leave; `None` where none can be made: a lead is
    /// missing.
    pub body: Option<Value>,
    /// The time at which it first left with these values; `None` where it has not.
    pub sent_at: Option<i64>,
    /// The CRM's id of the last one that it took.
    pub id: Option<String>,
    /// The time at which the CRM accepted the request of `id`.
    pub accepted_at: Option<i64>,
}

/// A filter of dead letters; without any rule all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterQuery {
    /// The word of a reason, such as `no_lead`: letters of others are left out.
    pub reason: Option<String>,
    /// The subject of a [`Cause`] of that reason, as it displays: `lead:9001`.
    pub cause: Option<String>,
    /// Letters with smaller ids than this.
    pub before: Option<RowId>,
}

impl LetterQuery {
    /// Is this letter of the cause that is asked for?
    pub fn takes_cause(&self, letter: &Letter) -> bool {
        let wanted = self.cause.as_deref();
        wanted.is_none_or(|wanted| Cause::of(letter).to_string() == wanted)
    }
}

/// The kind of subject that a cause has; its words stand in links: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum About {
    /// A lead that the CRM does not know or take.
    Lead,
    /// An employee that it does not know.
    Employee,
    /// A number that has no lead, or two.
    Phone,
    /// An extension that has no employee.
    Extension,
}

/// The cause of letters: their reason, and the subject that is mended once for all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The reason that all letters of the cause have.
    pub reason: Reason,
    /// The lead, number or extension; `None` where each letter is a case of its own.
    pub about: Option<(About, String)>,
}

impl Cause {
    /// Returns the cause that the letter shares with others.
    pub fn of(letter: &Letter) -> Self {
        let lead = || Some((About::Lead, letter.lead()?.to_string()));
        let phone = || Some((About::Phone, letter.phone()?.to_owned()));
        let about = match (letter.reason, letter.finding) {
            (Reason::Failed, Some(Finding::LeadExists)) => {
                (letter.employee()).map(|it| (About::Employee, it.to_string()))
            }
            (Reason::Failed | Reason::Rejected, _) => lead(),
            (Reason::NoLead | Reason::AmbiguousLead, _) => phone(),
            (Reason::NoEmployee, _) => letter.extension().map(|it| (About::Extension, it)),
            (Reason::Conflict | Reason::UuidConflict | Reason::ServerError, _)
            | (Reason::Unconfirmed | Reason::Incomplete | Reason::TalkExceedsDuration, _)
            | (Reason::InvalidEpoch | Reason::Unreadable, _) => None,
        };
        let reason = letter.reason;
        Self { reason, about }
    }
}

/// As a link has it: `lead:9001`; empty where it is about nothing.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.about {
            Some((about, which)) => write!(f, "{about}:{which}"),
            None => Ok(()),
        }
    }
}

/// The letters of one cause, as a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseGroup {
    /// The reason and subject that the letters have in common.
    pub cause: Cause,
    /// The count of the letters.
    pub letters: u64,
    /// Since when the first of them lies there.
    pub since: i64,
}

impl CauseGroup {
    /// Groups these letters by their causes, most letters first.
    pub fn of<'a>(letters: impl Iterator<Item = &'a Letter>) -> Vec<Self> {
        let mut groups = BTreeMap::<Cause, (u64, i64)>::new();
        for letter in letters {
            let since = letter.since.floor_seconds().get();
            let group = groups.entry(Cause::of(letter)).or_insert((0, since));
            *group = (group.0 + 1, group.1.min(since));
        }
        let group = |(cause, (letters, since))| Self {
            cause,
            letters,
            since,
        };
        let mut groups: Vec<Self> = groups.into_iter().map(group).collect();
        groups.sort_by_key(|it| std::cmp::Reverse(it.letters));
        groups
    }
}

/// A page of a list of dead letters, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LetterPage {
    /// The letters of the page, 50 at most.
    pub letters: Vec<Letter>,
    /// The key of the next page; `None` at the end.
    pub next: Option<RowId>,
    /// Each reason with the count of its letters.
    pub reasons: BTreeMap<Reason, u64>,
}

/// A customer who waits for a call back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCustomer {
    /// The number that called, with its missed calls.
    pub customer: MissedCustomer,
    /// Calls to them since, which they did not answer.
    pub tried: u64,
    /// The time at which the last of those calls began.
    pub tried_at: Option<i64>,
}

/// The names and fields of leads, as the directory has them.
pub type Profiles = BTreeMap<LeadId, LeadProfile>;

/// The figures of employees by extension; under `None` the calls that reached nobody.
pub type EmployeeTable = BTreeMap<Option<String>, EmployeeWork>;

/// One finding of `check`, as a line of `check --json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CheckFinding {
    /// The subject of the check: `token`, or a flag.
    pub name: String,
    /// The check passed; with a `fix` it is a doubt.
    pub ok: bool,
    /// The finding in words, in English.
    pub message: String,
    /// The remedy in words; empty where there is nothing to do.
    pub fix: String,
}

/// Names of findings whose texts stand under the key of another (`tried.version`, `mend.version`);
/// those of all others stand under the first word of the name.
const SHARED_TEXTS: [(&str, &str); 8] = [
    ("dead letters", "dead_letters"),
    ("delivery-mode", "mod_amqp"),
    ("event_filter", "mod_amqp"),
    ("gateway", "endpoint"),
    ("gateways", "endpoints"),
    ("line", "source"),
    ("log-b-leg", "mod_json_cdr"),
    ("release", "version"),
];

impl CheckFinding {
    /// The key of its texts: what it is and how it is mended, in the language of whoever reads.
    pub fn kind(&self) -> Option<&str> {
        let name = self.name.as_str();
        if name.starts_with("--") || name.starts_with("CALLBRIDGE_") {
            return Some("flag");
        }
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(' ');
        let begins = |(first, _): &&(&str, &str)| name.strip_prefix(first).is_some_and(ends);
        let shared = SHARED_TEXTS.iter().find(begins).map(|(_, key)| *key);
        let key = shared.or_else(|| name.split(' ').next())?;
        let is_known = Language::English.has(&format!("tried.{key}"));
        is_known.then_some(key)
    }

    /// Returns the class of the finding: `ok`, `doubt` or `failed`.
    pub fn result(&self) -> &'static str {
        match (self.ok, self.fix.is_empty()) {
            (true, true) => "ok",
            (true, false) => "doubt",
            (false, _) => "failed",
        }
    }
}
