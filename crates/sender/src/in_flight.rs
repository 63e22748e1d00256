//! The requests in flight, each in its slot.

use crate::breaker::refusals::SentCall;
use crate::plan::Plan;
use crate::queue::Work;
use callbridge_crm::Endpoint;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::RowId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of requests in flight, not counting slow ones.
const UNDER_WAY_MAX: usize = 4;

/// Maximum number of requests in flight overall. Slow requests count only toward this limit, so
/// they don't delay others.
const UNDER_WAY_SLOW_MAX: usize = 12;

/// A request is slow if it hasn't had a response for this long.
const SLOW: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) plan: Plan,
    pub(super) endpoint: Endpoint,
    pub(super) token: TokenFingerprint,
    pub(super) sent: Now,
    /// Number of failures so far that count against the submitted call.
    pub(super) failures: u32,
    /// The call that the request is about, or `None` for other requests.
    pub(super) call: Option<SentCall>,
}

/// The requests in flight, by slot.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests {
    pub(super) by_slot: BTreeMap<u32, InFlight>,
}

impl InFlightRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    /// Returns `true` if there's room for another request.
    pub(super) fn has_room(&self, now: Now) -> bool {
        let mut slow = 0;
        for request in self.by_slot.values() {
            if now.boot.saturating_sub(request.sent.boot) >= SLOW {
                slow += 1;
            }
        }
        let all = self.by_slot.len();
        all < UNDER_WAY_SLOW_MAX && all - slow < UNDER_WAY_MAX
    }

    /// Returns `true` if a request about this call is in flight.
    pub(super) fn has_call(&self, row: RowId) -> bool {
        let mut requests = self.by_slot.values();
        requests.any(|request| request.plan.task.work.row() == Some(row))
    }

    /// Returns `true` if a request about a call or the token is in flight to this endpoint. Lead
    /// requests don't count.
    pub(super) fn has_endpoint(&self, endpoint: Endpoint) -> bool {
        let mut requests = self.by_slot.values();
        requests.any(|request| request.plan.task.work.endpoint() == Some(endpoint))
    }

    /// Returns `true` if a call of this branch is being submitted.
    pub(super) fn submits_for(&self, branch: &str) -> bool {
        let mut requests = self.by_slot.values();
        requests.any(|request| {
            let is_submission = matches!(request.plan.task.work, Work::Submit(_));
            is_submission
                && request
                    .call
                    .as_ref()
                    .is_some_and(|call| call.branch == branch)
        })
    }

    pub(super) fn has_page(&self) -> bool {
        self.has_endpoint(Endpoint::Filter)
    }

    /// Returns `true` if a lead request of the same kind is in flight.
    pub(super) fn has_like(&self, other: &LeadRequest) -> bool {
        let mut requests = self.by_slot.values();
        requests.any(|request| match &request.plan.task.work {
            Work::Lead(request) => request.is_like(other),
            _ => false,
        })
    }

    /// Returns the number of polls in flight.
    pub(super) fn polls(&self) -> u32 {
        let mut polls = 0;
        for request in self.by_slot.values() {
            if request.plan.task.work.poll().is_some() {
                polls += 1;
            }
        }
        polls
    }
}
