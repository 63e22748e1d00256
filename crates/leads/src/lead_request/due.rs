//! Requests beside the way of the calls: what is to be asked or written about leads.
//!
//! Each part keeps in the spool what of it is due, when, and how often it was tried in vain. A
//! lead request that is due may go out at once, whenever there is room for it.

use callbridge_call::EventTime;
use callbridge_crm::{LeadsPage, Request};
use callbridge_model::{LeadId, TokenFingerprint};
use std::time::Duration;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadRequest {
    /// `GET lead/{id}` (§4.7): is there such a lead?
    LookUp(LeadId),
    /// `GET crm-field` (§4.7): which fields are there?
    Catalogue,
    /// `POST lead/{id}/field/list` (§4.4): what is kept for this lead.
    FieldWrite(LeadId),
    /// What became of such a write (§4.6).
    FieldPoll(FieldPoll),
    /// `POST lead/filter` (§4.7): a page of leads.
    Backfill(LeadsPage),
    /// What somebody asked for by command; answered, not stored.
    Asked(RequestId, CommandRequest),
}

/// Of one who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A write whose outcome is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPoll {
    /// The lead.
    pub lead: LeadId,
    /// As the service gave it.
    pub request_id: String,
    /// The only token that can read it (§4.6).
    pub token: TokenFingerprint,
}

/// What a command asks for: the CRM's fields, values for a lead, what became of them, or a page of
/// the CRM's journal for the audit. There may be many of these: what else commands ask goes before,
/// and so does what the calls need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// The request.
    pub request: Request,
    /// The only token that it can be asked with; `None` for the one in use.
    pub token: Option<TokenFingerprint>,
}

impl CommandRequest {
    /// A page of the journal, which can wait.
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

/// How much a lead request may take from the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Its requestId ends soon: before all calls.
    Ending,
    /// After live calls; while others wait, one in ten seconds.
    Soon,
    /// When nothing else is to be done, and only from the half of the budget that is to spare.
    Spare,
}

/// A lead request that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRequest {
    /// How much it may take.
    pub urgency: Urgency,
    /// What it is.
    pub lead_request: LeadRequest,
}

/// What is due of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueRequests {
    /// In the order of precedence; a few.
    pub due: Vec<DueRequest>,
    /// When the next of the others falls due.
    pub next: Option<EventTime>,
}

impl DueRequests {
    /// Due, or so far ahead that the clock was set back since; what is not is looked at again then.
    pub fn is_due(&mut self, due: EventTime, now: EventTime) -> bool {
        if due <= now || due > now.plus(DAILY + CLOCK_SLACK) {
            return true;
        }
        self.add_due(due);
        false
    }

    /// One more falls due at this moment.
    pub fn add_due(&mut self, due: EventTime) {
        self.next = self.next.into_iter().chain([due]).min();
    }

    /// This one is due.
    pub fn push(&mut self, urgency: Urgency, lead_request: LeadRequest) {
        self.due.push(DueRequest {
            urgency,
            lead_request,
        });
    }

    /// This one is due: asked with its token, which is the one in use or the one before it.
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
    /// Two of one kind are never under way at once.
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

/// The catalogue is read anew after so long.
pub(super) const DAILY: Duration = Duration::from_secs(24 * 3600);

/// What lies further ahead than it can, by more than this, is from before the clock was set back.
pub(super) const CLOCK_SLACK: Duration = Duration::from_secs(1800);
