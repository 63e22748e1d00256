//! The interface between the page and the daemon, which defines what the page can ask for and the
//! types of the results. The page has no access to the spool, the rules, or the sources.
//!
//! Times are in epoch seconds unless their name says otherwise. Strings from PBXs and the CRM may
//! be hostile and of any length, so they're escaped when they're written.

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

/// The daemon's result, or why it refuses.
pub type Answer<T> = Result<T, Refusal>;

/// The daemon's side of the page, with everything that a view can read or do.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the status as in `callbridge status --json`, with the problems that need attention.
    async fn status(&self) -> Answer<Status>;
    /// Returns the counts for today, for the last 24 hours, and for the last 7 days.
    async fn today(&self) -> Answer<Figures>;
    /// Returns up to 200 calls in progress, longest first.
    async fn under_way(&self) -> Answer<Vec<OpenCallView>>;
    /// Returns a page of stored calls, newest first.
    async fn calls(&self, query: CallQuery) -> Answer<CallPage>;
    /// Returns the call with this UUID, or `None` if it isn't stored.
    async fn call(&self, uuid: String) -> Answer<Option<CallView>>;
    /// Returns a page of dead letters, newest first.
    async fn letters(&self, query: LetterQuery) -> Answer<LetterPage>;
    /// Returns the causes of the newest 5,000 dead letters, most frequent first.
    async fn causes(&self) -> Answer<Vec<CauseGroup>>;
    /// Returns the IDs of all dead letters that match a query, for use in bulk actions.
    async fn letter_ids(&self, query: LetterQuery) -> Answer<Vec<RowId>>;
    /// Applies an action to up to 100 dead letters, and returns the result for each.
    async fn act(
        &self,
        change: LetterChange,
        ids: &[RowId],
        who: &str,
    ) -> Answer<Vec<LetterOutcome>>;
    /// Returns the numbers that have called but don't have a lead, those with the most calls first.
    async fn numbers(&self) -> Answer<Vec<WaitingPhone>>;
    /// Returns `true` if all of the CRM's leads have been read and this one isn't among them.
    async fn is_unknown_lead(&self, lead: LeadId) -> Answer<bool>;
    /// Assigns a lead to a number, and releases the calls waiting for that number's lead. Returns
    /// how many calls were released, along with the number's dead letters that the CRM rejected.
    async fn give_lead(&self, phone: &str, lead: LeadId, who: &str) -> Answer<(u64, Vec<RowId>)>;
    /// Removes the lead that someone assigned to the number. Calls that have already been sent
    /// aren't affected.
    async fn take_lead(&self, phone: &str) -> Answer<()>;
    /// Returns the leads that were assigned on the page or using `lead give`.
    async fn given_leads(&self) -> Answer<Vec<LeadByHand>>;
    /// Reads these leads' names and fields from the lead directory.
    async fn profiles(&self, leads: BTreeSet<LeadId>) -> Answer<Profiles>;
    /// Returns the customers waiting for a callback, longest wait first, each with the attempts to
    /// call them back.
    async fn missed(&self) -> Answer<Vec<WaitingCustomer>>;
    async fn missed_count(&self) -> Answer<u64>;
    /// Returns the employee statistics by extension for this many days, including today. Calls that
    /// didn't reach anyone have no extension.
    async fn employees(&self, days: i64) -> Answer<EmployeeTable>;
    /// Returns the trunks, whose `day_calls` count today's calls.
    async fn trunks(&self) -> Answer<Vec<TrunkStatus>>;
    /// Runs `callbridge check`, which contacts the PBX and the CRM and takes some time.
    async fn check(&self) -> Answer<Vec<CheckFinding>>;
    /// Returns the sessions stored by [`Backend::keep_sessions`].
    async fn kept_sessions(&self) -> Answer<Option<String>>;
    /// Stores the sessions so that they survive a restart. `sessions` is JSON without any secrets.
    async fn keep_sessions(&self, sessions: String) -> Answer<()>;
    /// Returns a counter that's incremented whenever a call, a dead letter, or a source changes,
    /// which makes the live parts of the page reload.
    fn changes(&self) -> tokio::sync::watch::Receiver<u64>;
    /// Returns the names of the daemon's PBXs for display.
    fn pbx(&self) -> String;
}

/// Number of calls by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Calls in the CRM's journal.
    pub journaled: u64,
    /// Calls on their way to the CRM.
    pub queued: u64,
    /// Calls waiting for a lead or employee.
    pub waiting: u64,
    pub letters: u64,
    pub discarded: u64,
    /// Calls stored by a hub.
    pub forwarded: u64,
}

impl Outcomes {
    pub const fn total(&self) -> u64 {
        let open = self.queued + self.waiting + self.letters;
        open + self.journaled + self.discarded + self.forwarded
    }
}

/// Calls that started in a particular hour or on a particular day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The start of the hour or day.
    pub from: i64,
    pub outcomes: Outcomes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Customer calls that started today, in the PBX's time zone.
    pub today: Outcomes,
    /// One bar per hour for the last 24 hours, oldest first.
    pub hours: Vec<Bar>,
    /// One bar per day for the last 7 days, oldest first.
    pub days: Vec<Bar>,
    /// Median time in seconds from hangup to confirmation for today's calls, or `None` if there are
    /// none.
    pub confirmed_median_sec: Option<f64>,
    /// 95th percentile of the time in seconds from hangup to confirmation for today's calls.
    pub confirmed_p95_sec: Option<f64>,
}

/// A call in progress.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCallView {
    /// When the call started.
    pub since: i64,
    /// When an employee answered, or `None` if nobody has.
    pub answered_at: Option<i64>,
    /// The trunk's name, or `None` if it isn't known yet or the call is between extensions.
    pub trunk: Option<String>,
    /// The customer's number, if known.
    pub phone: Option<String>,
    /// The extensions that are ringing or talking.
    pub extensions: Vec<String>,
}

/// A filter for calls. Without any conditions, it matches all calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallQuery {
    /// A number as someone would type it, a UUID, a linkedid, or an extension.
    pub text: Option<String>,
    /// A date in the PBX's time zone, such as `2026-11-21`.
    pub day: Option<String>,
    /// The name of a trunk. Calls on other trunks are filtered out.
    pub trunk: Option<String>,
    /// A state's name, such as `journaled` or `dead`.
    pub state: Option<String>,
    /// The key of the requested page, from [`CallPage::next`], or `None` for the first page.
    pub before: Option<String>,
}

/// A page in a list of calls, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPage {
    /// Up to 50 calls.
    pub calls: Vec<Listed>,
    /// The next page's key, or `None` at the end.
    pub next: Option<String>,
    /// How many calls match, as far as they were counted. Only set on the first page.
    pub count: Option<u64>,
    /// Whether more calls match than were counted.
    pub more: bool,
}

/// A call with everything known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// The call as shown in lists.
    pub line: Listed,
    /// The picture from `explain --picture` without its values, as SVG, or empty if there is none.
    pub picture: String,
    /// The values with their reasons, as in `explain`.
    pub values: String,
    /// Each relevant event's time (in seconds since the start) and description.
    pub events: Vec<(String, String)>,
    /// How many seconds the call rang before it was answered, or `None` if it wasn't answered or no
    /// event reported it.
    pub wait_sec: Option<u64>,
    /// When the call entered its state.
    pub since: i64,
    /// The request that sends the call to the CRM.
    pub request: RequestView,
    /// Attempts besides that request, including failed ones and why the call was resent.
    pub attempts: Vec<Attempt>,
    /// The call's dead letter or waiting entry, if it has one.
    pub letter: Option<Letter>,
}

/// A call's request, and the CRM's response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestView {
    /// The request's body as it was or would be sent, or `None` if there can't be one because a
    /// lead is missing.
    pub body: Option<Value>,
    /// When the request was first sent with these values, or `None` if it hasn't been sent.
    pub sent_at: Option<i64>,
    /// The CRM's ID for the last request that it accepted.
    pub id: Option<String>,
    /// When the CRM accepted the request `id`.
    pub accepted_at: Option<i64>,
}

/// A filter for dead letters. Without any conditions, it matches all dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterQuery {
    /// The name of a reason, such as `no_lead`. Dead letters with other reasons are filtered out.
    pub reason: Option<String>,
    /// A [`Cause`] as displayed, such as `lead:9001`. Dead letters with other causes are filtered
    /// out.
    pub cause: Option<String>,
    /// If set, only dead letters with lower IDs match.
    pub before: Option<RowId>,
}

impl LetterQuery {
    /// Returns `true` if the dead letter has the requested cause, or if no cause is requested.
    pub fn takes_cause(&self, letter: &Letter) -> bool {
        let wanted = self.cause.as_deref();
        wanted.is_none_or(|wanted| Cause::from_letter(letter).to_string() == wanted)
    }
}

/// What kind of thing a cause is about. The names are part of links, so never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum About {
    /// A lead that the CRM doesn't know or rejects.
    Lead,
    /// An employee that the CRM doesn't know.
    Employee,
    /// A number that has no lead, or two.
    Phone,
    /// An extension that has no employee.
    Extension,
}

/// The cause of dead letters, which consists of their reason and the thing whose fix applies to all
/// of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The reason of all dead letters with this cause.
    pub reason: Reason,
    /// The lead, number, or extension, or `None` if each dead letter has to be handled separately.
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

/// Writes the cause as it appears in links, such as `lead:9001`, or nothing if it isn't about
/// anything in particular.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.about {
            Some((about, which)) => write!(f, "{about}:{which}"),
            None => Ok(()),
        }
    }
}

/// The number of dead letters with the same cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseGroup {
    pub cause: Cause,
    pub letters: u64,
    /// When the oldest of these dead letters was created.
    pub since: i64,
}

impl CauseGroup {
    /// Groups these dead letters by cause, most frequent first.
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

/// A page in a list of dead letters, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LetterPage {
    /// Up to 50 dead letters.
    pub letters: Vec<Letter>,
    /// The next page's key, or `None` at the end.
    pub next: Option<RowId>,
    /// The number of dead letters for each reason.
    pub reasons: BTreeMap<Reason, u64>,
}

/// A customer waiting for a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCustomer {
    /// The number that called, with its missed calls.
    pub customer: MissedCustomer,
    /// Number of later calls to the customer that the customer didn't answer.
    pub tried: u64,
    /// When the last of the calls in `tried` started.
    pub tried_at: Option<i64>,
}

/// Leads' names and fields from the lead directory.
pub type Profiles = BTreeMap<LeadId, LeadProfile>;

/// Employee statistics by extension. The key `None` holds the calls that didn't reach anyone.
pub type EmployeeTable = BTreeMap<Option<String>, EmployeeWork>;

/// One finding from `check`, as in a line of `check --json`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CheckFinding {
    /// What the check is about, such as `token` or a flag.
    pub name: String,
    /// Whether the check passed. If it did but `fix` isn't empty, the result is doubtful.
    pub ok: bool,
    /// The finding's message in English.
    pub message: String,
    /// The fix, or empty if there's nothing to do.
    pub fix: String,
}

/// Prefixes of finding names, each with the key of its messages (`tried.version`, `mend.version`).
/// For all other findings, the key is the first word of the name.
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
    /// Returns the key of the localized messages for this finding and its fix, if there are any.
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

    /// Returns `ok`, `doubt`, or `failed`.
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
