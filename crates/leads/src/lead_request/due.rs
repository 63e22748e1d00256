//! Requests beside the way of the calls: what is to be asked or written about leads.
//!
//! Each part keeps in the spool what of it is due, when, and how often it was tried in vain. A
//! lead request that is due may go out at once, whenever there is room for it.

use callbridge_call::EventTime;
use callbridge_crm::{LeadsPage, Request};
use callbridge_model::{LeadId, TokenFingerprint};
use std::time::Duration;

/// A request about leads, beside the way of the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadRequest {
    /// `GET lead/{id}` (§4.7): the lead, if there is such a one.
    LookUp(LeadId),
    /// `GET crm-field` (§4.7): the catalogue of fields.
    Catalogue,
    /// `POST lead/{id}/field/list` (§4.4): what is kept for this lead.
    FieldWrite(LeadId),
    /// `GET request/{requestId}` (§4.6): the outcome of such a write.
    FieldPoll(FieldPoll),
    /// `POST lead/filter` (§4.7): a page of leads.
    Backfill(LeadsPage),
    /// A request by command, for the client that waits under this id; answered, not stored.
    Asked(RequestId, CommandRequest),
}

/// Id of a client that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// An accepted write whose outcome is polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPoll {
    /// The lead whose fields were written.
    pub lead: LeadId,
    /// RequestId as the service gave it.
    pub request_id: String,
    /// The only token that can read it (§4.6).
    pub token: TokenFingerprint,
}

/// A command's request: the CRM's fields, values for a lead, their outcome, or a page of the CRM's
/// journal for the audit. There may be many of these pages: other commands' requests go before, and
/// so does what the calls need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The request to the CRM, without its token.
    pub request: Request,
    /// The only token that it can be asked with; `None` for the one in use.
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

/// Share of the rate limit that a lead request may take from the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Sent before all calls, because its requestId ends soon.
    Ending,
    /// Sent after live calls; while others wait, one in ten seconds.
    Soon,
    /// Sent only when nothing else is to be done, and from the half of the budget that is to spare.
    Spare,
}

/// A lead request that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRequest {
    /// Share of the rate limit that the request may take.
    pub urgency: Urgency,
    /// The request that is due.
    pub lead_request: LeadRequest,
}

/// Lead requests that are due, and the time of the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueRequests {
    /// Requests in the order of precedence; a few.
    pub due: Vec<DueRequest>,
    /// Earliest moment at which another falls due; `None` where none will.
    pub next: Option<EventTime>,
}

impl DueRequests {
    /// Returns `true` when it is due, or so far ahead that the clock was set back since; else it is
    /// checked again then.
    pub fn is_due(&mut self, due: EventTime, now: EventTime) -> bool {
        if due <= now || due > now.plus(DAILY + CLOCK_SLACK) {
            return true;
        }
        self.add_due(due);
        false
    }

    /// Notes that one more falls due at this moment.
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

    /// Adds a poll that is due, asked with its token: the one in use or the one before it. With any
    /// other token nobody can ask, and the write itself is due instead.
    pub fn push_poll(&mut self, poll: FieldPoll, tokens: &[TokenFingerprint]) {
        let (urgency, lead_request) = match tokens.iter().position(|token| *token == poll.token) {
            Some(0) => (Urgency::Spare, LeadRequest::FieldPoll(poll)),
            // the token before: nobody can ask when it ends
            Some(_) => (Urgency::Ending, LeadRequest::FieldPoll(poll)),
            // nobody can ask any more: written once more, which changes nothing
            None => (Urgency::Spare, LeadRequest::FieldWrite(poll.lead)),
        };
        self.push(urgency, lead_request);
    }
}

impl LeadRequest {
    /// Returns `true` for a request of the same kind: two of one kind are never under way at once.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The only token that it can be sent with; `None` for the one in use.
    pub const fn token(&self) -> Option<&TokenFingerprint> {
        match self {
            Self::FieldPoll(poll) => Some(&poll.token),
            Self::Asked(_, asked) => asked.token.as_ref(),
            Self::LookUp(_) | Self::Catalogue | Self::FieldWrite(_) | Self::Backfill(_) => None,
        }
    }
}

/// Time after which the catalogue is read anew.
pub(super) const DAILY: Duration = Duration::from_secs(24 * 3600);

/// Margin beyond the longest wait: a time further ahead is from before the clock was set back.
pub(super) const CLOCK_SLACK: Duration = Duration::from_secs(1800);
