//! Requests about leads, and which of them are due.
//!
//! For each request, the spool stores when it's due and how many attempts have failed. A request
//! that's due can be sent as soon as the budget has room for it.

use callbridge_call::EventTime;
use callbridge_crm::{LeadsPage, Request};
use callbridge_model::{LeadId, TokenFingerprint};
use std::time::Duration;

/// A request about leads, in addition to those for calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadRequest {
    /// `GET lead/{id}` (§4.7), which returns the lead if it exists.
    LookUp(LeadId),
    /// `GET crm-field` (§4.7), which returns the catalog of fields.
    Catalog,
    /// `POST lead/{id}/field/list` (§4.4), which writes the values stored for this lead.
    FieldWrite(LeadId),
    /// `GET request/{requestId}` (§4.6), which returns the outcome of an accepted field write.
    FieldPoll(FieldPoll),
    /// `POST lead/filter` (§4.7), which returns a page of leads.
    Backfill(LeadsPage),
    /// A command's request. The response goes to the client waiting under this ID, and nothing is
    /// stored.
    Asked(RequestId, CommandRequest),
}

/// The ID of a client waiting for a response, as opposed to the CRM's requestId.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// An accepted write whose outcome is being polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPoll {
    pub lead: LeadId,
    pub request_id: String,
    /// The only token that can read the outcome (§4.6).
    pub token: TokenFingerprint,
}

/// A command's request, which is for the CRM's fields, values for a lead, their outcome, or a page
/// of the CRM's journal for the audit. There may be many such pages, so calls and other commands'
/// requests go first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The request to the CRM, without its token.
    pub request: Request,
    /// The only token that the request can be sent with, or `None` for the current one.
    pub token: Option<TokenFingerprint>,
}

impl CommandRequest {
    /// Returns `true` for a page of the journal, which can wait.
    pub const fn is_page(&self) -> bool {
        matches!(self.request, Request::Filter(_))
    }
}

impl From<Request> for CommandRequest {
    fn from(request: Request) -> Self {
        let token = None;
        Self { request, token }
    }
}

/// How much of the rate limit a lead request may take away from calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Sent before all calls, because the outcome can no longer be polled once the request's token
    /// has expired.
    Ending,
    /// Sent after live calls. While other calls are waiting, one such request is sent every ten
    /// seconds.
    Soon,
    /// Sent only if there's nothing else to do, and only from the spare half of the budget.
    Spare,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRequest {
    pub urgency: Urgency,
    pub lead_request: LeadRequest,
}

/// The lead requests that are due, and when the next one will be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueRequests {
    /// Some of the requests that are due, in order of precedence.
    pub due: Vec<DueRequest>,
    /// Earliest time at which another request will be due, or `None` if there is none.
    pub next: Option<EventTime>,
}

impl DueRequests {
    /// Returns `true` if the time `due` has been reached, or is so far in the future that the clock
    /// must have been set back. Otherwise, records that a request will be due at that time.
    pub fn is_due(&mut self, due: EventTime, now: EventTime) -> bool {
        if due <= now || due > now.plus(DAILY + CLOCK_SLACK) {
            return true;
        }
        self.add_due(due);
        false
    }

    /// Records that another request will be due at this time.
    pub fn add_due(&mut self, due: EventTime) {
        self.next = self.next.into_iter().chain([due]).min();
    }

    /// Adds a request that's due now.
    pub fn push(&mut self, urgency: Urgency, lead_request: LeadRequest) {
        self.due.push(DueRequest {
            urgency,
            lead_request,
        });
    }

    /// Adds a poll that's due, using the current or previous token. If the poll requires any other
    /// token, the outcome can't be polled, so the write is due again.
    pub fn push_poll(&mut self, poll: FieldPoll, tokens: &[TokenFingerprint]) {
        let (urgency, lead_request) = match tokens.iter().position(|token| *token == poll.token) {
            Some(0) => (Urgency::Spare, LeadRequest::FieldPoll(poll)),
            // This is the previous token, and once it expires, the write can't be polled.
            Some(_) => (Urgency::Ending, LeadRequest::FieldPoll(poll)),
            // No token can poll the outcome, so the fields are written again. Repeating a write
            // doesn't change anything.
            None => (Urgency::Spare, LeadRequest::FieldWrite(poll.lead)),
        };
        self.push(urgency, lead_request);
    }
}

impl LeadRequest {
    /// Returns `true` for a request of the same kind, since two of the same kind are never in
    /// flight at the same time.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns the only token that the request can be sent with, or `None` for the current one.
    pub const fn token(&self) -> Option<&TokenFingerprint> {
        match self {
            Self::FieldPoll(poll) => Some(&poll.token),
            Self::Asked(_, asked) => asked.token.as_ref(),
            Self::LookUp(_) | Self::Catalog | Self::FieldWrite(_) | Self::Backfill(_) => None,
        }
    }
}

/// How long until the catalog is read again.
pub(super) const DAILY: Duration = Duration::from_secs(24 * 3600);

/// Margin beyond the longest wait. If a time is further in the future, the clock must have been set
/// back.
pub(super) const CLOCK_SLACK: Duration = Duration::from_secs(1800);
