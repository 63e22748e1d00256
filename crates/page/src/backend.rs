//! What the page asks of the daemon, and the shapes of its answers. The daemon has the spool, the
//! rules and the sources; the page knows none of them.
//!
//! Times are epoch seconds unless their name says otherwise. Texts come from PBXs and the CRM and
//! are hostile: they are escaped where they are written, and never trusted to be short.

use callbridge_control::protocol::MissedView;
use callbridge_model::Status;
use serde::{Deserialize, Serialize};
use std::pin::Pin;

/// An answer that takes a while.
pub type BackendAnswer<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, BackendRefusal>> + Send + 'a>>;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRefusal {
    /// Whose fault it is.
    pub kind: RefusalKind,
    /// What happened, where, and what to do.
    pub words: String,
}

/// Whose fault a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// What was typed: a number that is none, a lead that is none.
    Input,
    /// There is no such call or letter.
    Unknown,
    /// The daemon cannot: its disk fails, or it stops.
    Unavailable,
}

/// What the page needs of the daemon.
pub trait Backend: Send + Sync + 'static {
    /// What `callbridge status --json` says, with what waits for a person (`todo`).
    fn status(&self) -> BackendAnswer<'_, Status>;
    /// The figures of today and of the last seven days.
    fn today(&self) -> BackendAnswer<'_, Figures>;
    /// The calls that go on now, longest first, 200 at most.
    fn under_way(&self) -> BackendAnswer<'_, Vec<OpenCallView>>;
    /// A page of kept calls, newest first.
    fn calls(&self, query: CallQuery) -> BackendAnswer<'_, CallPage>;
    /// One call by its uuid; `None` when none is kept.
    fn call(&self, uuid: String) -> BackendAnswer<'_, Option<CallView>>;
    /// A page of dead letters, newest first.
    fn letters(&self, query: LetterQuery) -> BackendAnswer<'_, LetterPage>;
    /// The ids of all letters that a query finds, for an action on all of them.
    fn letter_ids(&self, query: LetterQuery) -> BackendAnswer<'_, Vec<u64>>;
    /// Does something with letters, 100 at most at once, and says for each what became of it.
    fn act<'a>(
        &'a self,
        action: &'a LetterAction,
        ids: &'a [u64],
        who: &'a str,
    ) -> BackendAnswer<'a, Vec<Acted>>;
    /// Numbers that called and have no lead, most calls first.
    fn numbers(&self) -> BackendAnswer<'_, Vec<NumberView>>;
    /// Gives a number its lead; its parked calls leave. The count of those.
    fn give_lead<'a>(
        &'a self,
        phone: &'a str,
        lead: &'a str,
        who: &'a str,
    ) -> BackendAnswer<'a, u64>;
    /// Takes it away again.
    fn take_lead<'a>(&'a self, phone: &'a str, who: &'a str) -> BackendAnswer<'a, ()>;
    /// Leads that were given on the page or by `lead give`.
    fn given_leads(&self) -> BackendAnswer<'_, Vec<GivenLead>>;
    /// Customers who wait for a call back, longest waiting first.
    fn missed(&self) -> BackendAnswer<'_, Vec<MissedView>>;
    /// What employees did, today or in the last seven days.
    fn employees(&self, span: Span) -> BackendAnswer<'_, Vec<EmployeeFigures>>;
    /// What is known of the PBX beside `status`.
    fn pbx(&self) -> BackendAnswer<'_, PbxView>;
    /// Runs `check`.
    fn check(&self) -> BackendAnswer<'_, Vec<CheckFinding>>;
    /// The sessions as [`Backend::keep_sessions`] left them.
    fn kept_sessions(&self) -> BackendAnswer<'_, Option<String>>;
    /// Keeps sessions over restarts: JSON without any secret.
    fn keep_sessions(&self, sessions: String) -> BackendAnswer<'_, ()>;
    /// Counts up whenever a call, a letter or a source changes; the live parts look again then.
    fn changes(&self) -> tokio::sync::watch::Receiver<u64>;
    /// The zone of the PBX, in which people read times (`Asia/Tashkent`).
    fn zone(&self) -> String;
    /// The name of this instance: it parts the cookies of two pages on one host.
    fn instance(&self) -> String;
}

/// Calls by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// In the CRM's journal.
    pub journaled: u64,
    /// On their way there.
    pub waiting: u64,
    /// Dead letters, parked ones included.
    pub letters: u64,
    /// Discarded by a person.
    pub discarded: u64,
    /// Taken by a broker in place of the CRM.
    pub forwarded: u64,
}

/// Calls that began in one hour or on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// When the hour or day begins.
    pub from: i64,
    /// What became of its calls.
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
    /// Its id at the PBX.
    pub linkedid: String,
    /// The PBX.
    pub pbx: String,
    /// When it began.
    pub since: i64,
    /// When somebody answered, if so.
    pub answered_at: Option<i64>,
    /// The trunk's name; `None` between extensions or where it is not known yet.
    pub trunk: Option<String>,
    /// The customer's number, as far as it is known.
    pub phone: Option<String>,
    /// The extensions that ring or talk.
    pub extensions: Vec<String>,
}

/// Which calls; all without any rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallQuery {
    /// A number as a person types it, a uuid, a linkedid or an extension.
    pub text: Option<String>,
    /// A day in the PBX's zone: `2026-11-21`.
    pub day: Option<String>,
    /// The trunk's name.
    pub trunk: Option<String>,
    /// A state's word: `journaled`, `dead`…
    pub state: Option<String>,
    /// The page's key as [`CallPage::next`] gave it.
    pub before: Option<String>,
}

/// Calls, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPage {
    /// 50 at most.
    pub calls: Vec<CallLine>,
    /// The key of the next page; `None` at the end.
    pub next: Option<String>,
}

/// A call in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLine {
    /// Its uuid.
    pub uuid: String,
    /// When it began.
    pub started_at: i64,
    /// `INBOUND`, `OUTBOUND`.
    pub direction: String,
    /// The customer's number, E.164 or as heard.
    pub phone: Option<String>,
    /// The trunk's name.
    pub trunk: Option<String>,
    /// The extension.
    pub employee: Option<String>,
    /// Whether they talked.
    pub answered: bool,
    /// How long, in seconds.
    pub talk_sec: u32,
    /// The state's word.
    pub state: String,
    /// Why it is a letter.
    pub reason: Option<String>,
}

/// A call with all that is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// As in a list.
    pub line: CallLine,
    /// The picture of `explain --picture` with its legend, as SVG; empty where there is none.
    pub picture: String,
    /// The story of `explain`, a line an event.
    pub story: Vec<String>,
    /// The same as a table for a screen reader: when (seconds since the beginning, rounded), what.
    pub events: Vec<(String, String)>,
    /// The record as it is sent, as indented JSON.
    pub record: String,
    /// Each attempt: when, and the service's own words.
    pub attempts: Vec<(i64, String)>,
    /// The letter that it is, if it is one.
    pub letter: Option<LetterView>,
}

/// Which letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterQuery {
    /// A reason's word.
    pub reason: Option<String>,
    /// Letters with smaller ids than this.
    pub before: Option<u64>,
}

/// Letters, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LetterPage {
    /// 50 at most.
    pub letters: Vec<LetterView>,
    /// The key of the next page; `None` at the end.
    pub next: Option<u64>,
    /// Each reason with its count and its cure in a sentence.
    pub reasons: Vec<ReasonView>,
}

/// A reason with its letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonView {
    /// Its word.
    pub reason: String,
    /// Letters that have it.
    pub count: u64,
    /// What to do.
    pub hint: String,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq)]
pub struct LetterView {
    /// Its number, as `dead list` says it.
    pub id: u64,
    /// `None` of bytes that could not be read.
    pub uuid: Option<String>,
    /// Its word.
    pub reason: String,
    /// What happened, in the service's words where it refused.
    pub message: String,
    /// What to do.
    pub hint: String,
    /// Whether it leaves by itself when its lead or employee becomes known.
    pub parked: bool,
    /// Since when it lies there.
    pub since: i64,
    /// When the call began.
    pub started_at: Option<i64>,
    /// The customer's number.
    pub phone: Option<String>,
    /// The extension.
    pub extension: Option<String>,
    /// The lead it names.
    pub lead_id: Option<i64>,
    /// The employee it names.
    pub employee_id: Option<i64>,
    /// Who did what with it: when, who, what.
    pub acts: Vec<(i64, String, String)>,
    /// The whole letter as `dead export` writes it, as indented JSON.
    pub json: String,
}

/// What can be done with letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetterAction {
    /// Sends it again.
    Retry {
        /// With this lead in place of the rules'.
        lead: Option<String>,
        /// With this employee's CRM id in place of the rules'; `none` for nobody.
        employee: Option<String>,
        /// Only says what would be sent.
        dry_run: bool,
    },
    /// Takes it out for good.
    Discard,
}

/// What became of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acted {
    /// The letter.
    pub id: u64,
    /// `ready`, `looked_for`, `would_send`, `discarded`, `refused`.
    pub result: String,
    /// Why, or what would be sent.
    pub why: Option<String>,
    /// The lead it is or would be sent with.
    pub lead_id: Option<i64>,
    /// The employee it is or would be sent with.
    pub employee_id: Option<i64>,
}

/// A number that called and has no lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberView {
    /// E.164, or as heard.
    pub phone: String,
    /// Its parked calls.
    pub calls: u64,
    /// The first of them.
    pub first_at: i64,
    /// The last of them.
    pub last_at: i64,
    /// The newest of its calls, 5 at most.
    pub newest: Vec<CallLine>,
}

/// A lead that a person gave a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenLead {
    /// E.164.
    pub phone: String,
    /// The CRM's id.
    pub lead_id: i64,
    /// When.
    pub at: i64,
    /// Who.
    pub who: String,
}

/// Today, or the week up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Since midnight in the PBX's zone.
    Today,
    /// The last seven days, today included.
    Week,
}

/// What one employee did.
#[derive(Clone, Debug, PartialEq)]
pub struct EmployeeFigures {
    /// The extension; `None` for calls that reached nobody.
    pub extension: Option<String>,
    /// The CRM's id, where it is known.
    pub employee_id: Option<i64>,
    /// Inbound calls answered.
    pub answered: u64,
    /// Inbound calls that rang there and were not answered by anybody.
    pub missed: u64,
    /// Outbound calls.
    pub outbound: u64,
    /// Seconds talked.
    pub talk_sec: u64,
    /// Mean seconds that answered callers waited; `None` without any.
    pub wait_sec: Option<f64>,
    /// Mean seconds from a missed call to the call back; `None` without any.
    pub call_back_sec: Option<f64>,
}

/// A trunk with what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkView {
    /// Its name.
    pub name: String,
    /// Calls it took today.
    pub today: u64,
    /// When it took its last call; `None`: never.
    pub last_at: Option<i64>,
}

/// What is known of the PBX beside `status`, which has sources, gaps and unmatched channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PbxView {
    /// The trunks with the calls each took today.
    pub trunks: Vec<TrunkView>,
    /// Channel names that came by lately and belong to no trunk.
    pub channels: Vec<String>,
    /// Extensions without an employee, with their calls.
    pub extensions: Vec<(String, u64)>,
}

/// One finding of `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// What was looked at.
    pub what: String,
    /// `ok`, `doubt` or `failed`.
    pub result: String,
    /// What was found.
    pub found: String,
    /// What to do.
    pub todo: String,
}
