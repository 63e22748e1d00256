//! The requests about leads, and which of them are due.
//!
//! For each request, the spool stores when it is due, and how many tries failed. A request that is
//! due can be sent as soon as the budget has room for it.

use callbridge_call::EventTime;
use callbridge_crm::{LeadsPage, Request};
use callbridge_model::{LeadId, TokenFingerprint};
use std::time::Duration;

/// A request about leads, in addition to the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadRequest {
    /// `GET lead/{id}` (§4.7): the lead, if it exists.
    LookUp(LeadId),
    /// `GET crm-field` (§4.7): the catalog of fields.
    Catalog,
    /// `POST lead/{id}/field/list` (§4.4): the stored values for this lead.
    FieldWrite(LeadId),
    /// `GET request/{requestId}` (§4.6): the outcome of an accepted field write.
    FieldPoll(FieldPoll),
    /// `POST lead/filter` (§4.7): a page of leads.
    Backfill(LeadsPage),
    /// A command's request. The client that waits under this id gets the answer, and nothing is
    /// stored.
    Asked(RequestId, CommandRequest),
}

/// Id of a client that waits for an answer. It is not the CRM's requestId.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// An accepted write whose outcome is polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPoll {
    pub lead: LeadId,
    pub request_id: String,
    /// The only token that can read the outcome (§4.6).
    pub token: TokenFingerprint,
}

/// A command's request: the CRM's fields, values for a lead, their outcome, or a page of the CRM's
/// journal for the audit. There can be many of these pages, so calls and other commands' requests
/// go before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The request to the CRM, without its token.
    pub request: Request,
    /// The only token that the request can be sent with. `None` for the current token.
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

/// Share of the rate limit that a lead request can take from the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Sent before all calls, because the outcome cannot be polled any more once its token expires.
    Ending,
    /// Sent after live calls. While other calls wait, one such request is sent every ten seconds.
    Soon,
    /// Sent only if there is nothing else to do, and from the spare half of the budget.
    Spare,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRequest {
    pub urgency: Urgency,
    pub lead_request: LeadRequest,
}

/// Lead requests that are due, and the time of the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueRequests {
    /// Some of the requests that are due, in order of precedence.
    pub due: Vec<DueRequest>,
    /// Earliest time at which another request is due. `None` if there is no other request.
    pub next: Option<EventTime>,
}

impl DueRequests {
    /// Returns `true` if the time `due` is reached, or so far ahead that the clock was set back
    /// since. Otherwise, notes that a request is due at that time.
    pub fn is_due(&mut self, due: EventTime, now: EventTime) -> bool {
        if due <= now || due > now.plus(DAILY + CLOCK_SLACK) {
            return true;
        }
        self.add_due(due);
        false
    }

    /// Notes that one more request is due at this time.
    pub fn add_due(&mut self, due: EventTime) {
        self.next = self.next.into_iter().chain([due]).min();
    }

    /// Adds a request that is due now.
    pub fn push(&mut self, urgency: Urgency, lead_request: LeadRequest) {
        self.due.push(DueRequest {
            urgency,
            lead_request,
        });
    }

    /// Adds a poll that is due, with the current or the previous token. With any other token, the
    /// outcome cannot be polled, so the write is due again.
    pub fn push_poll(&mut self, poll: FieldPoll, tokens: &[TokenFingerprint]) {
        let (urgency, lead_request) = match tokens.iter().position(|token| *token == poll.token) {
            Some(0) => (Urgency::Spare, LeadRequest::FieldPoll(poll)),
            // The previous token: after it expires, the write cannot be polled.
            Some(_) => (Urgency::Ending, LeadRequest::FieldPoll(poll)),
            // No token can poll the outcome, so the fields are written again. Repeating a write
            // changes nothing.
            None => (Urgency::Spare, LeadRequest::FieldWrite(poll.lead)),
        };
        self.push(urgency, lead_request);
    }
}

impl LeadRequest {
    /// Returns `true` for a request of the same kind. Two requests of one kind are never in flight
    /// together.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns the only token that the request can be sent with. `None` for the current token.
    pub const fn token(&self) -> Option<&TokenFingerprint> {
        match self {
            Self::FieldPoll(poll) => Some(&poll.token),
            Self::Asked(_, asked) => asked.token.as_ref(),
            Self::LookUp(_) | Self::Catalog | Self::FieldWrite(_) | Self::Backfill(_) => None,
        }
    }
}

/// Time after which the catalog is read again.
pub(super) const DAILY: Duration = Duration::from_secs(24 * 3600);

/// Margin beyond the longest wait. A time further ahead is from before the clock was set back.
pub(super) const CLOCK_SLACK: Duration = Duration::from_secs(1800);
