//! The interface between the page and the daemon: what the page asks, and the types of the answers.
//! The page has no access to the spool, the rules, or the sources.
//!
//! Times are epoch seconds unless their name says otherwise. Texts come from PBXs and the CRM, and
//! can be hostile and of any length. They are escaped when they are written.

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

/// The daemon's answer, or why it refuses.
pub type Answer<T> = Result<T, Refusal>;

/// The daemon's side of the page: everything that a view reads or does.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the status as in `callbridge status --json`, with the problems that need a person.
    async fn status(&self) -> Answer<Status>;
    /// Returns the figures of today, of the last 24 hours, and of the last 7 days.
    async fn today(&self) -> Answer<Figures>;
    /// Returns the calls in progress, longest first, at most 200.
    async fn under_way(&self) -> Answer<Vec<OpenCallView>>;
    /// Returns a page of stored calls, newest first.
    async fn calls(&self, query: CallQuery) -> Answer<CallPage>;
    /// Returns one call by its uuid. `None` if it is not stored.
    async fn call(&self, uuid: String) -> Answer<Option<CallView>>;
    /// Returns a page of dead letters, newest first.
    async fn letters(&self, query: LetterQuery) -> Answer<LetterPage>;
    /// Returns the causes of dead letters, most frequent first, for the newest 5,000.
    async fn causes(&self) -> Answer<Vec<CauseGroup>>;
    /// Returns the ids of all dead letters that match a query, for an action on all of them.
    async fn letter_ids(&self, query: LetterQuery) -> Answer<Vec<RowId>>;
    /// Applies an action to at most 100 dead letters, and returns the result for each.
    async fn act(
        &self,
        change: LetterChange,
        ids: &[RowId],
        who: &str,
    ) -> Answer<Vec<LetterOutcome>>;
    /// Returns the numbers that called and have no lead, most calls first.
    async fn numbers(&self) -> Answer<Vec<WaitingPhone>>;
    /// Returns `true` if all leads of the CRM have been read and this one isn't among them.
    async fn is_unknown_lead(&self, lead: LeadId) -> Answer<bool>;
    /// Assigns a lead to a number, and releases the number's waiting calls. Returns how many calls
    /// were released, and the number's dead letters that the CRM refused.
    async fn give_lead(&self, phone: &str, lead: LeadId, who: &str) -> Answer<(u64, Vec<RowId>)>;
    /// Removes the lead that a person assigned to the number. Calls that were sent stay unchanged.
    async fn take_lead(&self, phone: &str) -> Answer<()>;
    /// Returns the leads that were assigned on the page or by `lead give`.
    async fn given_leads(&self) -> Answer<Vec<LeadByHand>>;
    /// Reads the names and fields of these leads from the lead directory.
    async fn profiles(&self, leads: BTreeSet<LeadId>) -> Answer<Profiles>;
    /// Returns the customers who wait for a callback, longest wait first, each with the attempts to
    /// call them.
    async fn missed(&self) -> Answer<Vec<WaitingCustomer>>;
    async fn missed_count(&self) -> Answer<u64>;
    /// Returns the figures of employees by extension, for this many days including today. Calls
    /// that reached no one have no extension.
    async fn employees(&self, days: i64) -> Answer<EmployeeTable>;
    /// Returns the trunks. Their `day_calls` count the calls of today.
    async fn trunks(&self) -> Answer<Vec<TrunkStatus>>;
    /// Runs `callbridge check`, which asks PBX and CRM and takes some time.
    async fn check(&self) -> Answer<Vec<CheckFinding>>;
    /// Returns the sessions that [`Backend::keep_sessions`] stored.
    async fn kept_sessions(&self) -> Answer<Option<String>>;
    /// Stores the sessions, so they survive a restart. `sessions` is JSON without secrets.
    async fn keep_sessions(&self, sessions: String) -> Answer<()>;
    /// Returns a counter that increases when a call, a dead letter or a source changes. The live
    /// parts of the page then reload.
    fn changes(&self) -> tokio::sync::watch::Receiver<u64>;
    /// Returns the names of the daemon's PBXs, for people.
    fn pbx(&self) -> String;
}

/// Calls by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Calls in the CRM's journal.
    pub journaled: u64,
    /// Calls on their way to the CRM.
    pub queued: u64,
    /// Calls that wait for a lead or employee.
    pub waiting: u64,
    pub letters: u64,
    pub discarded: u64,
    /// Calls that a hub has stored.
    pub forwarded: u64,
}

impl Outcomes {
    pub const fn total(&self) -> u64 {
        let open = self.queued + self.waiting + self.letters;
        open + self.journaled + self.discarded + self.forwarded
    }
}

/// Calls that began in one hour or on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The start of the hour or day.
    pub from: i64,
    pub outcomes: Outcomes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Customer calls that began today, in the PBX's zone.
    pub today: Outcomes,
    /// One bar per hour of the last 24 hours, oldest first.
    pub hours: Vec<Bar>,
    /// One bar per day of the last 7 days, oldest first.
    pub days: Vec<Bar>,
    /// Median seconds from hangup to confirmation, for today's calls. `None` if there are none.
    pub confirmed_median_sec: Option<f64>,
    /// 95th percentile of the seconds from hangup to confirmation, for today's calls.
    pub confirmed_p95_sec: Option<f64>,
}

/// A call in progress.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCallView {
    /// The time at which the call began.
    pub since: i64,
    /// The time at which an employee answered. `None` if no one has.
    pub answered_at: Option<i64>,
    /// The trunk's name. `None` between extensions or if it is not known yet.
    pub trunk: Option<String>,
    /// The customer's number, if known.
    pub phone: Option<String>,
    /// The extensions that ring or talk.
    pub extensions: Vec<String>,
}

/// A filter of calls. A filter without any condition matches all calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallQuery {
    /// A number as a person types it, a uuid, a linkedid or an extension.
    pub text: Option<String>,
    /// A date in the PBX's zone: `2026-11-21`.
    pub day: Option<String>,
    /// The name of a trunk. Calls on other trunks are left out.
    pub trunk: Option<String>,
    /// A state's word: `journaled`, `dead`…
    pub state: Option<String>,
    /// The key of the requested page, from [`CallPage::next`]. `None` for the first page.
    pub before: Option<String>,
}

/// A page of a list of calls, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPage {
    /// At most 50 calls.
    pub calls: Vec<Listed>,
    /// The key of the next page. `None` at the end.
    pub next: Option<String>,
    /// On the first page: how many calls match, as far as they were counted.
    pub count: Option<u64>,
    /// More calls match than were counted.
    pub more: bool,
}

/// A call with everything known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// The call as in lists.
    pub line: Listed,
    /// The picture of `explain --picture` without its values, as SVG. Empty if there is none.
    pub picture: String,
    /// The values with their reasons, as in `explain`.
    pub values: String,
    /// Each relevant event: its time (seconds since the start) and its description.
    pub events: Vec<(String, String)>,
    /// Seconds that the call rang before it was answered. `None` if it was not answered or no event
    /// reported it.
    pub wait_sec: Option<u64>,
    /// Time at which the call entered its state.
    pub since: i64,
    /// The request to the CRM with the call.
    pub request: RequestView,
    /// Attempts in addition to that request: failed tries, and why the call was sent again.
    pub attempts: Vec<Attempt>,
    /// The call's dead letter or waiting entry, if there is one.
    pub letter: Option<Letter>,
}

/// The request of a call, and the CRM's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestView {
    /// The request's body as it was or would be sent. `None` if there can be none because a lead is
    /// missing.
    pub body: Option<Value>,
    /// The time at which the request was first sent with these values. `None` if it was not sent.
    pub sent_at: Option<i64>,
    /// The CRM's id of the last request that it accepted.
    pub id: Option<String>,
    /// The time at which the CRM accepted the request of `id`.
    pub accepted_at: Option<i64>,
}

/// A filter of dead letters. A filter without any condition matches all dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterQuery {
    /// The word of a reason, such as `no_lead`. Dead letters with other reasons are left out.
    pub reason: Option<String>,
    /// A [`Cause`] in its displayed form, such as `lead:9001`. Dead letters with other causes are
    /// left out.
    pub cause: Option<String>,
    /// Only dead letters with ids below this id.
    pub before: Option<RowId>,
}

impl LetterQuery {
    /// Returns `true` if the dead letter has the requested cause, or no cause is requested.
    pub fn takes_cause(&self, letter: &Letter) -> bool {
        let wanted = self.cause.as_deref();
        wanted.is_none_or(|wanted| Cause::from_letter(letter).to_string() == wanted)
    }
}

/// The kind of a cause's subject. The words are part of links, so never change a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum About {
    /// A lead that the CRM does not know, or that it refuses.
    Lead,
    /// An employee that the CRM does not know.
    Employee,
    /// A number that has no lead, or two.
    Phone,
    /// An extension that has no employee.
    Extension,
}

/// The cause of dead letters: their reason, and the subject whose fix applies to all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The reason of all dead letters with this cause.
    pub reason: Reason,
    /// The lead, number or extension. `None` if each dead letter must be handled separately.
    pub about: Option<(About, String)>,
}

impl Cause {
    /// Returns the cause that the dead letter shares with others.
    pub fn from_letter(letter: &Letter) -> Self {
        let about = match (letter.reason, letter.finding) {
            (Reason::Failed, Some(Finding::LeadExists)) => {
                let employee = letter.employee();
                employee.map(|employee| (About::Employee, employee.to_string()))
            }
            (Reason::Failed | Reason::Rejected, _) => {
                let lead = letter.lead();
                lead.map(|lead| (About::Lead, lead.to_string()))
            }
            (Reason::NoLead | Reason::AmbiguousLead, _) => {
                let phone = letter.phone();
                phone.map(|phone| (About::Phone, phone.to_owned()))
            }
            (Reason::NoEmployee, _) => {
                let extension = letter.extension();
                extension.map(|extension| (About::Extension, extension))
            }
            (Reason::Conflict | Reason::UuidConflict | Reason::ServerError, _)
            | (Reason::Unconfirmed | Reason::Incomplete | Reason::TalkExceedsDuration, _)
            | (Reason::InvalidEpoch | Reason::Unreadable, _) => None,
        };
        let reason = letter.reason;
        Self { reason, about }
    }
}

/// Writes the cause in the form of links: `lead:9001`. Empty if the cause has no subject.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.about {
            Some((about, which)) => write!(f, "{about}:{which}"),
            None => Ok(()),
        }
    }
}

/// The number of dead letters with one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseGroup {
    pub cause: Cause,
    pub letters: u64,
    /// Time since which the oldest of these dead letters exists.
    pub since: i64,
}

impl CauseGroup {
    /// Groups these dead letters by their causes, most frequent first.
    pub fn from_letters<'a>(letters: impl Iterator<Item = &'a Letter>) -> Vec<Self> {
        let mut groups = BTreeMap::<Cause, (u64, i64)>::new();
        for letter in letters {
            let since = letter.since.floor_seconds().get();
            let group = groups
                .entry(Cause::from_letter(letter))
                .or_insert((0, since));
            *group = (group.0 + 1, group.1.min(since));
        }
        let mut groups: Vec<Self> = groups
            .into_iter()
            .map(|(cause, (letters, since))| Self {
                cause,
                letters,
                since,
            })
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.letters));
        groups
    }
}

/// A page of a list of dead letters, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LetterPage {
    /// At most 50 dead letters.
    pub letters: Vec<Letter>,
    /// The key of the next page. `None` at the end.
    pub next: Option<RowId>,
    /// Each reason with its number of dead letters.
    pub reasons: BTreeMap<Reason, u64>,
}

/// A customer who waits for a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCustomer {
    /// The number that called, with its missed calls.
    pub customer: MissedCustomer,
    /// Number of later calls to the customer that the customer did not answer.
    pub tried: u64,
    /// The time at which the last of the calls in `tried` began.
    pub tried_at: Option<i64>,
}

/// Names and fields of leads from the lead directory.
pub type Profiles = BTreeMap<LeadId, LeadProfile>;

/// The figures of employees by extension. The key `None` has the calls that reached no one.
pub type EmployeeTable = BTreeMap<Option<String>, EmployeeWork>;

/// One finding of `check`, as in a line of `check --json`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CheckFinding {
    /// The subject of the check: `token`, or a flag.
    pub name: String,
    /// The check passed. If `fix` is not empty, the result is a doubt.
    pub ok: bool,
    /// English text of the finding.
    pub message: String,
    /// Text of the fix. Empty if there is nothing to do.
    pub fix: String,
}

/// Beginnings of names of findings, each with the key of its texts (`tried.version`,
/// `mend.version`). For all other findings, the key is the first word of the name.
const SHARED_TEXTS: [(&str, &str); 9] = [
    ("bridge events", "events"),
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
    /// Returns the key of the texts that describe the finding and its fix in the reader's language.
    /// Returns `None` if there are no such texts.
    pub fn kind(&self) -> Option<&str> {
        let name = self.name.as_str();
        if name.starts_with("--") || name.starts_with("CALLBRIDGE_") {
            return Some("flag");
        }
        let mut shared = SHARED_TEXTS.iter();
        let key = match shared.find(|(words, _)| begins_with_words(name, words)) {
            Some((_, key)) => *key,
            None => name.split(' ').next()?,
        };
        if Language::English.has(&format!("tried.{key}")) {
            Some(key)
        } else {
            None
        }
    }

    /// Returns `ok`, `doubt` or `failed`.
    pub fn result(&self) -> &'static str {
        match (self.ok, self.fix.is_empty()) {
            (true, true) => "ok",
            (true, false) => "doubt",
            (false, _) => "failed",
        }
    }
}

fn begins_with_words(name: &str, words: &str) -> bool {
    let rest = name.strip_prefix(words);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}
