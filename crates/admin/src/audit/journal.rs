//! Looks for the calls that are journaled in this state on pages of the CRM's journal (§4.5, §4.7).
//!
//! ```text
//!  first pass ─▶ all were shown ─▶ over
//!       │ some were not, on more than a page
//!       ▼
//!  second pass, from the oldest of them on: pages move while records come and go
//!       │ some were not
//!       ▼
//!  does any page show our calls?     ── no ──▶ do the pages without a range? ── no ─▶ unread
//!       │ yes                                        │ yes
//!       └────────────── they are missing ◀───────────┘
//! ```
//! The filter has no upper bound and no published order. So a record only counts as missing after
//! every page was read. An answer that contradicts itself proves nothing.

mod pass;

use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{ApiError, FilterPage, Page, PageSize, ShownCall};
use callbridge_model::CallUuid;
use callbridge_model::status::BudgetStatus;
use callbridge_sender::confirm::reader::JournalReader;
use callbridge_spool::{JournaledCall, SentValues};
use pass::JournalPass;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A call that was journaled this recently is not looked for. Writing is asynchronous (§2.6), and
/// the document does not say how soon the journal shows it. This is twice the sender's estimate.
pub const TOO_NEW: Duration = Duration::from_secs(240);

/// Seconds by which the range starts before the first call, because the clocks of PBX and CRM can
/// differ.
const MARGIN_SEC: i64 = 3600;

/// Maximum number of pages. With half of the budget, reading them takes two hours.
const PAGES_MAX: u32 = 3600;

/// Failures in a row after which the search is given up.
const FAILURES_MAX: u32 = 4;

/// The outcome of the search in the CRM's journal, as in the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalReading {
    /// The search was completed, so `missing` is reliable.
    pub read: bool,
    pub asked: u64,
    /// Calls of `asked` that no page of the journal shows.
    pub missing: u64,
    /// Calls that were journaled so recently that the journal may not show them yet. They are not
    /// looked for.
    pub too_new: u64,
    pub requests: u32,
    /// A message with the reason why the journal was not read.
    pub reason: Option<String>,
}

/// A value that the CRM's journal shows differently from the value that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field's name in the submission (§2.6).
    pub field: &'static str,
    /// The value that was sent.
    pub here: Value,
    /// The value in the CRM's journal.
    pub there: Value,
}

/// The findings of the search. Calls are identified by their place in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalFindings {
    /// The figures for the report.
    pub reading: JournalReading,
    /// Calls that the CRM's journal does not have.
    pub missing: BTreeMap<usize, JournaledCall>,
    /// Calls that the journal shows with other values than were sent.
    pub changed: BTreeMap<usize, Vec<Difference>>,
}

impl JournalFindings {
    /// Returns empty findings. `reason` says why nothing could be read.
    pub fn unread(reason: impl Into<String>) -> Self {
        let mut findings = Self::default();
        findings.reading.reason = Some(reason.into());
        findings
    }
}

/// The answer to [`ControlRequest::JournalPage`](crate::ControlRequest::JournalPage): the daemon's
/// verdict on the CRM's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalAnswer {
    Page {
        page: Page,
        /// Number of calls on the page that are journaled in this state.
        ours: u32,
    },
    /// The CRM refused the page size: a page must have fewer records (`MAX`, §7.5).
    TooLarge {
        /// The CRM's message.
        reason: String,
    },
    /// The CRM refused the request because of its parameters, such as the range.
    Refused {
        /// The CRM's message.
        reason: String,
    },
    /// The page did not arrive. The same request can succeed later.
    Failed {
        /// The message of the CRM or a proxy.
        reason: String,
    },
    /// The page is not available, and another try does not help.
    Barred {
        /// The reason and the fix.
        reason: String,
        /// `true` if the CRM reported the reason, `false` if no request was sent to the CRM.
        asked: bool,
    },
}

impl JournalAnswer {
    /// Classifies the reason why a page did not arrive.
    pub fn from_error(error: &ApiError) -> Self {
        let reason = error.to_string();
        match error {
            ApiError::Forbidden(..) => Self::Barred {
                reason: format!(
                    "the token has no right to read it ({reason}): give the connection the grant \
                     PERMISSION_OPEN_API_CALL:READ"
                ),
                asked: true,
            },
            ApiError::Rejected { errors, .. } if callbridge_crm::answer::names_max(errors) => {
                Self::TooLarge { reason }
            }
            ApiError::Rejected { .. } => Self::Refused { reason },
            ApiError::NotFound { .. } | ApiError::WrongAddress { .. } => Self::Barred {
                reason: format!("the CRM has no such endpoint ({reason})"),
                asked: true,
            },
            ApiError::TokenRefused { .. }
            | ApiError::TooMany(..)
            | ApiError::Server { .. }
            | ApiError::Unreadable(..)
            | ApiError::TimedOut
            | ApiError::Lost(..)
            | ApiError::NotConnected(..)
            | ApiError::TlsRefused(..)
            | ApiError::TooLate => Self::Failed { reason },
        }
    }
}

/// The stage of a search, which decides the next page to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SearchStage {
    /// The next page of a pass. The page after the last one must be empty.
    #[default]
    Pass,
    /// A check without a range whether the journal shows any of our calls. Requests page `last`, or
    /// the first page if `last` is `None`.
    Proof {
        last: Option<u32>,
    },
    Over,
}

/// The search for journaled calls in the pages of the CRM's journal. The caller requests the pages.
#[derive(Debug)]
pub struct JournalSearch {
    /// Calls that no page has shown so far, with their place in the file.
    missing: BTreeMap<CallUuid, (usize, JournaledCall)>,
    findings: JournalFindings,
    stage: SearchStage,
    /// The current pass is the second pass. During the proof, the last pass was the second one.
    is_second: bool,
    pass: JournalPass,
    ranged: bool,
    /// A page has shown a call that is journaled in this state.
    proven: bool,
    /// A pass that contradicted itself was restarted.
    anew: bool,
    failures: u32,
}

impl JournalSearch {
    /// Makes a search for these calls of the file. Each call comes with its place in the file.
    pub fn new(calls: impl IntoIterator<Item = (usize, JournaledCall)>, now: EventTime) -> Self {
        let mut findings = JournalFindings::default();
        let mut missing = BTreeMap::new();
        let ripe_before = now.minus(TOO_NEW);
        for (place, call) in calls {
            if call.since.is_none_or(|since| since <= ripe_before) {
                missing.insert(call.uuid, (place, call));
            } else {
                findings.reading.too_new += 1;
            }
        }
        findings.reading.asked = missing.len() as u64;
        let mut search = Self {
            missing,
            findings,
            stage: SearchStage::Pass,
            is_second: false,
            pass: JournalPass::new(JournalReader::new(None, PageSize::LARGEST)),
            ranged: true,
            proven: false,
            anew: false,
            failures: 0,
        };
        if search.missing.is_empty() {
            search.give_up("the file has no call to look for in it");
        } else {
            search.begin(false);
        }
        search
    }

    /// Returns the page to request. `None` if the search is over.
    pub fn next(&self) -> Option<FilterPage> {
        let reader = &self.pass.reader;
        match self.stage {
            SearchStage::Pass => Some(reader.next()),
            SearchStage::Proof { last } => Some(FilterPage {
                page: last.unwrap_or(1),
                size: reader.size,
                since: None,
            }),
            SearchStage::Over => None,
        }
    }

    /// Returns the wait before the next request: 2, 4, 8, then 16 s after failures in a row.
    pub fn pause(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            times => Duration::from_secs(1 << times.min(4)),
        }
    }

    /// Returns the number of pages left and of all pages, if known.
    pub fn pages(&self) -> Option<(u32, u32)> {
        let total = self.pass.reader.total()?;
        Some((total.saturating_sub(self.pass.reader.read()), total))
    }

    /// Processes the answer to the page of [`JournalSearch::next`].
    pub fn on_answer(&mut self, answer: JournalAnswer) {
        if !matches!(answer, JournalAnswer::Barred { asked: false, .. }) {
            self.findings.reading.requests += 1;
        }
        match answer {
            JournalAnswer::Page { page, ours } => {
                self.failures = 0;
                self.proven |= ours > 0;
                self.page(&page);
            }
            JournalAnswer::TooLarge { reason } => {
                if self.pass.reader.use_smaller_pages() {
                    self.restart_pass();
                } else {
                    self.give_up(format!("the CRM refuses pages of any size ({reason})"));
                }
            }
            JournalAnswer::Refused { .. } if self.ranged => {
                self.ranged = false;
                self.restart_pass();
            }
            JournalAnswer::Refused { reason } => {
                self.give_up(format!("the CRM refuses to show pages of it ({reason})"));
            }
            JournalAnswer::Failed { reason } => {
                self.failures += 1;
                if self.failures >= FAILURES_MAX {
                    self.give_up(format!("the CRM does not show it ({reason})"));
                }
            }
            JournalAnswer::Barred { reason, .. } => self.give_up(reason),
        }
    }

    /// Returns the findings. They are complete once [`JournalSearch::next`] is `None`.
    pub fn findings(self) -> JournalFindings {
        self.findings
    }

    /// Begins a pass from the oldest call that no page has shown.
    fn begin(&mut self, is_second: bool) {
        let mut since = None;
        if self.ranged {
            let starts = self.missing.values().map(|(_, call)| search_start(call));
            since = starts.min();
        }
        self.pass = JournalPass::new(JournalReader::new(since, self.pass.reader.size));
        self.stage = SearchStage::Pass;
        self.is_second = is_second;
    }

    fn restart_pass(&mut self) {
        self.begin(self.stage == SearchStage::Pass && self.is_second);
    }

    fn page(&mut self, page: &Page) {
        match self.stage {
            SearchStage::Pass => {}
            SearchStage::Proof { last } => return self.proof(page, last.is_some()),
            SearchStage::Over => return,
        }
        let last = self.pass.reader.read();
        let number = self.pass.page();
        if self.pass.is_past_end() && page.rows == 0 {
            return self.end_pass();
        }
        // If the total is not smaller than this page's number, the journal has grown meanwhile.
        if self.pass.is_past_end() && page.total < Some(number) {
            return self.doubt(format!(
                "it reports page {last} as its last, but page {number} holds records"
            ));
        }
        if let Some(message) = self.pass.contradiction(page) {
            return self.doubt(message);
        }
        self.take(&page.shown);
        if self.missing.is_empty() {
            return self.finish();
        }
        if page.total.unwrap_or(number) > PAGES_MAX {
            return self.give_up(format!(
                "since the first of these calls it has more than {PAGES_MAX} pages; audit only \
                 later calls (--from)"
            ));
        }
        if !self.pass.count_page(page) {
            self.end_pass();
        }
    }

    /// Ends a pass. A second pass follows the first one, which can miss calls because pages move
    /// while they are read.
    fn end_pass(&mut self) {
        if !self.is_second && self.pass.reader.read() > 1 {
            return self.begin(true);
        }
        match (self.proven, self.ranged) {
            (true, _) => self.finish(),
            (false, true) => self.stage = SearchStage::Proof { last: None },
            (false, false) => self.give_up_unproven(),
        }
    }

    /// Handles a page that was requested without a range, because the pages of the range showed
    /// none of our calls. If this page shows a missing call, the search continues without a range.
    fn proof(&mut self, page: &Page, was_last: bool) {
        let mut shown = page.shown.iter();
        if shown.any(|call| self.missing.contains_key(&call.uuid)) {
            // The range hides existing records.
            self.ranged = false;
            return self.begin(false);
        }
        match page.total {
            _ if self.proven => self.finish(),
            Some(total) if total > 1 && !was_last => {
                self.stage = SearchStage::Proof { last: Some(total) };
            }
            _ => self.give_up_unproven(),
        }
    }

    fn give_up_unproven(&mut self) {
        let asked = self.findings.reading.asked;
        self.give_up(format!(
            "it shows none of the {asked} calls that callbridge journaled, nor any other such \
             call: perhaps its pages show no uuids, or are another company's; look for one of the \
             calls in the CRM"
        ));
    }

    /// Handles a page that contradicts another page. The first time, the pass is restarted. The
    /// second time, the search ends without a result.
    fn doubt(&mut self, message: String) {
        if self.anew {
            return self.give_up(format!("its pages contradict each other: {message}"));
        }
        self.anew = true;
        self.restart_pass();
    }

    fn take(&mut self, shown: &[ShownCall]) {
        for row in shown {
            if let Some((place, call)) = self.missing.remove(&row.uuid) {
                self.proven = true;
                let differences = call.sent.map(|sent| differences(&sent, row));
                let changed = differences.filter(|all| !all.is_empty());
                self.findings
                    .changed
                    .extend(changed.map(|all| (place, all)));
            }
        }
    }

    fn finish(&mut self) {
        self.stage = SearchStage::Over;
        self.findings.missing = std::mem::take(&mut self.missing).into_values().collect();
        self.findings.reading.missing = self.findings.missing.len() as u64;
        self.findings.reading.read = true;
    }

    /// Ends the search without a result, and stores the reason.
    pub fn give_up(&mut self, reason: impl Into<String>) {
        self.stage = SearchStage::Over;
        let reading = std::mem::take(&mut self.findings).reading;
        self.findings.reading = JournalReading {
            missing: 0,
            read: false,
            reason: Some(reason.into()),
            ..reading
        };
    }
}

/// Returns, for people, how many pages are left and, if the budget is known, how long they take.
/// Pages use half of the budget, and less while calls wait.
pub fn progress(left: u32, all: u32, budget: Option<BudgetStatus>) -> String {
    let time = match budget.map(|budget| seconds_for(left, budget)) {
        None => String::new(),
        Some(0..90) => ", about a minute".to_owned(),
        Some(seconds) => format!(", about {} min", seconds.div_ceil(60)),
    };
    format!("the CRM's journal: {left} of {all} pages left{time}; calls are sent first")
}

fn seconds_for(pages: u32, budget: BudgetStatus) -> u64 {
    u64::from(pages) * budget.window_sec / u64::from(budget.limit / 2).max(1)
}

/// Returns the values that a row of the journal shows differently from the sent values. A value
/// that the row does not show counts as equal.
fn differences(sent: &SentValues, shown: &ShownCall) -> Vec<Difference> {
    // For a merged lead, the journal shows the surviving lead.
    let mut own = sent.leads.iter();
    let lead = if own.any(|own| shown.leads.contains(&own.get())) {
        None
    } else {
        shown.leads.first()
    };
    let values = [
        ("leadId", json!(sent.leads.first()), json!(lead)),
        (
            "durationSec",
            json!(sent.duration_sec),
            json!(shown.duration_sec),
        ),
        ("answered", json!(sent.answered), json!(shown.answered)),
        ("direction", json!(sent.direction), json!(shown.direction)),
    ];
    let mut differing = Vec::new();
    for (field, here, there) in values {
        if !here.is_null() && !there.is_null() && here != there {
            differing.push(Difference { field, here, there });
        }
    }
    differing
}

/// Returns the time from which pages must be read to find a call. The PBX's clock may have been
/// ahead, so this is not later than the time at which the call was journaled.
fn search_start(call: &JournaledCall) -> EpochSeconds {
    let mut first = call.started;
    if let Some(since) = call.since {
        first = first.min(since.floor_seconds());
    }
    EpochSeconds::new(first.get().saturating_sub(MARGIN_SEC))
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
