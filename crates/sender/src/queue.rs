//! Chooses the next request among the candidates in a plain struct. Since the choice is pure, you
//! can predict the next request from [`LANES`].

use crate::breaker::Access;
use crate::budget::pacer::Pace;
use callbridge_crm::Endpoint;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_spool::{RowId, Unconfirmed};
use std::time::Duration;

/// Minimum number of unconfirmed calls before a page is read while calls are ready.
pub const PAGE_UNDER_LOAD: u32 = 50;

/// Once the oldest unconfirmed call has reached this age, a page is read even while calls are
/// ready. If there are no pages, the call is polled instead.
const OLD: Duration = Duration::from_secs(120);

/// Minimum number of unconfirmed calls before a page is read while no calls are ready.
const PAGE_WHEN_IDLE: u32 = 3;

/// If there are enough unconfirmed calls for a page, a call isn't polled until it's this old.
const ALONE: Duration = Duration::from_secs(10);

/// Why a request is next, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray)]
pub enum Lane {
    /// A call whose next step needs no request.
    Settle,
    /// `token/info`, when it's due.
    Token,
    /// A poll for a requestId that will soon be unreadable, because its 24 hours are nearly over or
    /// its token is about to expire (§4.6).
    Deadline,
    /// A page or poll for calls that have long been waiting for confirmation. It takes at most
    /// every other slot while calls are ready.
    DueConfirmation,
    /// A call that finished in the last few minutes.
    Live,
    /// A command's request, or a lead request every ten seconds, both of which go before the
    /// backlog.
    LeadTurn,
    /// All other ready calls, newest first. A hub's branches take turns.
    Backlog,
    /// A page or poll for any call, while no calls are ready.
    Confirmation,
    /// A lead request, while nothing else is due.
    Lead,
    /// A lead request that leaves half of the budget free.
    SpareLead,
    /// `token/info` as the probe for an open breaker, while no other request can be the probe.
    StandIn,
}

impl Lane {
    /// Returns how this lane's requests are spread over the budget.
    pub const fn pace(self) -> Pace {
        match self {
            Self::Settle | Self::Token | Self::Deadline | Self::Live | Self::StandIn => {
                Pace::AtOnce
            }
            Self::DueConfirmation
            | Self::LeadTurn
            | Self::Backlog
            | Self::Confirmation
            | Self::Lead => Pace::Even,
            Self::SpareLead => Pace::Spare,
        }
    }
}

/// A request to the CRM, or a step without one.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Read the token's record.
    TokenInfo,
    /// Submit the call in this row.
    Submit(RowId),
    /// Poll this call's outcome.
    Poll(Box<Unconfirmed>),
    /// Read a page of the journal.
    Page {
        /// `true` for the first page of a reading.
        begins: bool,
    },
    /// Read or write leads.
    Lead(Box<LeadRequest>),
    /// Send nothing. The next step of this call needs no request.
    Settle(Box<Unconfirmed>),
}

/// The next request, and why it's next.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub lane: Lane,
    pub work: Work,
}

impl Work {
    /// Returns the row of the call that the request is about, or `None` for other requests.
    pub fn row(&self) -> Option<RowId> {
        match self {
            Self::Submit(row) => Some(*row),
            Self::Poll(call) | Self::Settle(call) => Some(call.row),
            Self::TokenInfo | Self::Page { .. } | Self::Lead(_) => None,
        }
    }

    /// Returns the call being polled, or `None` for other requests.
    pub fn poll(&self) -> Option<&Unconfirmed> {
        match self {
            Self::Poll(call) => Some(call),
            _ => None,
        }
    }

    pub fn lead_request(&self) -> Option<&LeadRequest> {
        match self {
            Self::Lead(request) => Some(request),
            _ => None,
        }
    }

    /// Returns the endpoint whose breaker decides whether the request may be sent, or `None` for
    /// lead requests, which no breaker stops, and for steps without a request.
    pub fn endpoint(&self) -> Option<Endpoint> {
        match self {
            Self::TokenInfo => Some(Endpoint::TokenInfo),
            Self::Submit(_) => Some(Endpoint::Submit),
            Self::Poll(_) => Some(Endpoint::Poll),
            Self::Page { .. } => Some(Endpoint::Filter),
            Self::Lead(_) | Self::Settle(_) => None,
        }
    }
}

/// Which endpoints can be used now, given the breakers, the pause, and the grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessByEndpoint {
    pub submit: Access,
    pub poll: Access,
    pub pages: Access,
    pub token: Access,
}

/// Accepted calls that no page, poll, or webhook has shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnconfirmedCalls {
    /// Total number of unconfirmed calls.
    pub all: u64,
    /// Number of unconfirmed calls that are due and should be in the journal by now.
    pub due: u32,
    /// Age of the oldest due call.
    pub oldest: Duration,
    /// The next call to poll, with its age.
    pub poll: Option<(Unconfirmed, Duration)>,
    /// The next call to poll because pages didn't show it, with its age.
    pub absent: Option<(Unconfirmed, Duration)>,
    /// A call whose requestId will soon be unreadable.
    pub ending: Option<Unconfirmed>,
    /// A call with a lost requestId, for which pages are read before its next step.
    pub lost: Option<Unconfirmed>,
    /// A call whose next step needs no request, because its requestId has expired, or is lost while
    /// the call must wait or pages can't be read.
    pub settle: Option<Unconfirmed>,
}

/// All candidates, along with everything else that determines the next request.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub access: AccessByEndpoint,
    /// Endpoint of the last probe. The next probe goes to another endpoint if another one's breaker
    /// is open.
    pub last_probed: Option<Endpoint>,
    pub token_info_due: bool,
    /// Whether `token/info` can be the probe, because a breaker is open and its wait is over.
    pub stand_in_due: bool,
    pub live: Option<RowId>,
    pub backlog: Option<RowId>,
    pub unconfirmed: UnconfirmedCalls,
    /// Whether a journal reading is unfinished.
    pub is_reading: bool,
    /// Whether a page is in flight.
    pub page_under_way: bool,
    /// Whether the last request was a confirmation.
    pub confirmed_last: bool,
    /// A poll for a field write whose requestId expires soon.
    pub lead_ending: Option<LeadRequest>,
    /// A lead request that goes before the backlog.
    pub lead_turn: Option<LeadRequest>,
    /// A lead request for when nothing else is due.
    pub lead: Option<LeadRequest>,
    /// A lead request that leaves half of the budget free.
    pub lead_spare: Option<LeadRequest>,
}

impl View {
    /// Returns `true` if calls can be submitted now.
    fn has_ready_call(&self) -> bool {
        let ready = self.live.is_some() || self.backlog.is_some();
        ready && self.access.submit.is_possible()
    }

    /// Returns `true` if a page can be requested now. Pages are read one at a time.
    fn reads_pages(&self) -> bool {
        self.access.pages.is_possible() && !self.page_under_way
    }

    fn access_for(&self, work: &Work) -> Access {
        match work.endpoint() {
            Some(Endpoint::Submit) => self.access.submit,
            Some(Endpoint::Poll) => self.access.poll,
            Some(Endpoint::Filter) => self.access.pages,
            Some(Endpoint::TokenInfo) => self.access.token,
            _ => Access::Yes,
        }
    }

    /// Returns `true` if the request would probe the same endpoint as the last probe.
    fn repeats_probe(&self, work: &Work) -> bool {
        self.access_for(work) == Access::Probe && work.endpoint() == self.last_probed
    }
}

/// A lane and the function that chooses its candidate.
type Pick = (Lane, fn(&View) -> Option<Work>);

/// The lanes in order of precedence.
pub const LANES: [Pick; 11] = [
    (Lane::Settle, settle),
    (Lane::Token, token_info),
    (Lane::Deadline, deadline),
    (Lane::DueConfirmation, due_confirmation),
    (Lane::Live, live),
    (Lane::LeadTurn, lead_turn),
    (Lane::Backlog, backlog),
    (Lane::Confirmation, confirmation),
    (Lane::Lead, lead),
    (Lane::SpareLead, spare_lead),
    (Lane::StandIn, stand_in),
];

/// Returns the request from the first lane that has one. Since probes take turns, a probe for the
/// endpoint that was probed last yields to one for another endpoint.
pub fn next(view: &View) -> Option<Task> {
    let mut repeated: Option<Task> = None;
    for (lane, pick) in LANES {
        let Some(work) = pick(view) else {
            continue;
        };
        let is_probe = view.access_for(&work) == Access::Probe;
        let repeats = view.repeats_probe(&work);
        let task = Task { lane, work };
        match repeated {
            None if !repeats => return Some(task),
            None => repeated = Some(task),
            Some(_) if is_probe && !repeats => return Some(task),
            Some(_) => {}
        }
    }
    repeated
}

fn settle(view: &View) -> Option<Work> {
    let call = view.unconfirmed.settle.as_ref()?;
    Some(Work::Settle(Box::new(call.clone())))
}

fn token_info(view: &View) -> Option<Work> {
    if view.token_info_due && view.access.token.is_possible() {
        return Some(Work::TokenInfo);
    }
    None
}

fn deadline(view: &View) -> Option<Work> {
    if let Some(call) = &view.unconfirmed.ending
        && view.access.poll.is_possible()
    {
        return Some(poll(call));
    }
    view.lead_ending.as_ref().map(lead_work)
}

/// Returns a page or a poll while calls are ready, in at most every other slot.
fn due_confirmation(view: &View) -> Option<Work> {
    if !view.has_ready_call() || view.confirmed_last {
        return None;
    }
    let calls = &view.unconfirmed;
    if view.access.pages.is_possible() {
        let is_worth_it = calls.due >= PAGE_UNDER_LOAD || calls.due > 0 && calls.oldest >= OLD;
        if view.reads_pages() && (view.is_reading || is_worth_it) {
            return Some(page(view));
        }
        return old_poll(view, calls.absent.as_ref());
    }
    old_poll(view, calls.poll.as_ref())
}

fn live(view: &View) -> Option<Work> {
    if !view.access.submit.is_possible() {
        return None;
    }
    view.live.map(Work::Submit)
}

fn lead_turn(view: &View) -> Option<Work> {
    view.lead_turn.as_ref().map(lead_work)
}

fn backlog(view: &View) -> Option<Work> {
    if !view.access.submit.is_possible() {
        return None;
    }
    view.backlog.map(Work::Submit)
}

/// Returns a page for three or more calls, or a poll for one or two. If polls aren't possible, a
/// single call is enough for a page.
fn confirmation(view: &View) -> Option<Work> {
    let calls = &view.unconfirmed;
    let polls = view.access.poll.is_possible();
    if view.reads_pages() {
        let worth = if polls { PAGE_WHEN_IDLE } else { 1 };
        if view.is_reading || calls.due >= worth || calls.lost.is_some() {
            return Some(page(view));
        }
    }
    if !polls {
        return None;
    }
    if let Some((call, _)) = &calls.absent {
        return Some(poll(call));
    }
    let (call, age) = calls.poll.as_ref()?;
    if view.access.pages.is_possible() {
        let has_company = calls.all >= u64::from(PAGE_WHEN_IDLE) && *age < ALONE;
        if view.page_under_way || has_company {
            return None;
        }
    }
    Some(poll(call))
}

fn lead(view: &View) -> Option<Work> {
    view.lead.as_ref().map(lead_work)
}

fn spare_lead(view: &View) -> Option<Work> {
    view.lead_spare.as_ref().map(lead_work)
}

fn stand_in(view: &View) -> Option<Work> {
    if view.stand_in_due {
        return Some(Work::TokenInfo);
    }
    None
}

fn old_poll(view: &View, candidate: Option<&(Unconfirmed, Duration)>) -> Option<Work> {
    let (call, age) = candidate?;
    if view.access.poll.is_possible() && *age >= OLD {
        return Some(poll(call));
    }
    None
}

fn poll(call: &Unconfirmed) -> Work {
    Work::Poll(Box::new(call.clone()))
}

fn page(view: &View) -> Work {
    Work::Page {
        begins: !view.is_reading,
    }
}

fn lead_work(request: &LeadRequest) -> Work {
    Work::Lead(Box::new(request.clone()))
}

#[cfg(test)]
mod tests;
