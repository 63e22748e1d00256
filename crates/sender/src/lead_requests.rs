//! Lead requests, and requests that commands make. From the commands' requests and the responses,
//! this determines the next command's request and the request to send. The spool reports which lead
//! requests are due, and [`callbridge_leads::lead_request`] judges their responses.

use callbridge_crm::{ApiError, ApiReply, ApiResult, Request, WriteStatus};
use callbridge_leads::lead_request;
use callbridge_leads::lead_request::FieldWrite;
use callbridge_leads::lead_request::due::{CommandRequest, LeadRequest, RequestId};
use callbridge_model::Now;
use callbridge_spool::Op;
use std::collections::VecDeque;
use std::time::Duration;

/// Time between two lead requests while calls are waiting to be submitted.
const LOADED_EVERY: Duration = Duration::from_secs(10);

/// Time before a lead request is repeated if its response changed nothing in the spool.
const AGAIN: Duration = Duration::from_secs(60);

/// Maximum number of commands' requests waiting.
const ASKED_MAX: usize = 16;

/// Commands' waiting requests, and lead requests that recently got a response.
#[derive(Debug, Default)]
pub(super) struct LeadRequests {
    /// Commands' requests, oldest first.
    pub(super) asked: VecDeque<(RequestId, CommandRequest)>,
    /// Time since boot from which a lead request may be sent even though calls are waiting.
    pub(super) from: Duration,
    /// Requests whose responses changed nothing in the spool, with the time since boot of each
    /// response.
    answered: VecDeque<(LeadRequest, Duration)>,
}

impl LeadRequests {
    /// Queues a command's request, returning `false` if too many are waiting.
    pub(super) fn ask(&mut self, ticket: RequestId, asked: CommandRequest) -> bool {
        let room = self.asked.len() < ASKED_MAX;
        if room {
            self.asked.push_back((ticket, asked));
        }
        room
    }

    /// Removes a command's request from the queue, returning `false` if it's not in the queue
    /// because it's in flight.
    pub(super) fn drop_asked(&mut self, ticket: RequestId) -> bool {
        let before = self.asked.len();
        self.asked.retain(|(waiting, _)| *waiting != ticket);
        self.asked.len() < before
    }

    /// Returns the next command's request, in order of arrival. Audit pages come last, because
    /// there may be many of them.
    pub(super) fn first_asked(&self) -> Option<LeadRequest> {
        let other = self.asked.iter().find(|(_, asked)| !asked.is_page());
        let (ticket, asked) = other.or(self.asked.front())?;
        Some(LeadRequest::Asked(*ticket, asked.clone()))
    }

    /// Returns `true` if the request got a response in the last 60 s that changed nothing in the
    /// spool.
    pub(super) fn is_resting(&self, now: Now, lead_request: &LeadRequest) -> bool {
        let mut answered = self.answered.iter();
        answered.any(|(request, at)| request == lead_request && *at + AGAIN > now.boot)
    }

    /// Notes a response. If it left the spool `unchanged`, the request is still due, so it has to
    /// rest for a while. A command's request never rests.
    pub(super) fn note_answer(&mut self, now: Now, lead_request: &LeadRequest, unchanged: bool) {
        self.answered.retain(|(_, at)| *at + AGAIN > now.boot);
        if unchanged && !matches!(lead_request, LeadRequest::Asked(..)) {
            self.answered.push_back((lead_request.clone(), now.boot));
        }
    }

    /// Builds the request to send, adding the operations to commit first to `ops`. `write` is the
    /// body of a field write. Returns `None` if there's no field left to write.
    pub(super) fn request(
        &mut self,
        now: Now,
        lead_request: &LeadRequest,
        write: Option<FieldWrite>,
        ops: &mut Vec<Op>,
    ) -> Option<Request> {
        let body = write
            .as_ref()
            .filter(|write| !write.items.is_empty())
            .map(|write| write.body.clone());
        let changes = lead_request::changes_before_send(now.wall, lead_request, write);
        ops.extend(changes.into_iter().map(Op::Lead));
        let request = match lead_request {
            LeadRequest::LookUp(lead) => Request::Lead(*lead),
            LeadRequest::Catalog => Request::CrmFields,
            // Without a body, there's no field left to write.
            LeadRequest::FieldWrite(lead) => Request::FieldList {
                lead: *lead,
                body: body?,
            },
            LeadRequest::FieldPoll(poll) => Request::Poll {
                request_id: poll.request_id.clone(),
            },
            LeadRequest::Backfill(page) => Request::Leads(*page),
            LeadRequest::Asked(_, asked) => asked.request.clone(),
        };
        if let LeadRequest::Asked(ticket, _) = lead_request {
            self.drop_asked(*ticket);
        }
        self.from = now.boot + LOADED_EVERY;
        Some(request)
    }
}

/// Returns a response's label in metrics, which is one of a fixed set.
pub(super) const fn word(answer: &ApiResult) -> &'static str {
    match answer {
        Ok(ApiReply::Data(_) | ApiReply::Page(_) | ApiReply::TokenInfo(_)) => "read",
        Ok(ApiReply::Accepted(..)) => "submitted",
        Ok(ApiReply::Status(WriteStatus::Success)) => "written",
        Ok(ApiReply::Status(WriteStatus::Failed(..))) => "failed",
        Ok(ApiReply::Status(WriteStatus::Pending(..))) => "pending",
        Err(ApiError::Rejected { status: 409, .. } | ApiError::NotFound { .. }) => "missing",
        Err(ApiError::Rejected { .. }) => "rejected",
        Err(ApiError::Forbidden(..)) => "no_grant",
        Err(ApiError::WrongAddress { .. }) => "wrong_address",
        Err(ApiError::TokenRefused { .. }) => "token_refused",
        Err(ApiError::TooMany(..)) => "rate_limited",
        Err(
            ApiError::Server { .. }
            | ApiError::Unreadable(..)
            | ApiError::TimedOut
            | ApiError::Lost(..)
            | ApiError::NotConnected(..)
            | ApiError::TlsRefused(..),
        ) => "failure",
        Err(ApiError::TooLate) => "too_late",
    }
}
