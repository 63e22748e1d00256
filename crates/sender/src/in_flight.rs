//! The requests under way, each in its slot.

use crate::{InFlightPart, Part, Plan, SLOW, Task};
use callbridge_crm::Endpoint;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::RowId;
use std::collections::BTreeMap;

/// Maximum number of requests in flight…
const UNDER_WAY_MAX: usize = 4;

/// …and with those whose answers are slow, which hold up no others.
const UNDER_WAY_SLOW_MAX: usize = 12;

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) plan: Plan,
    pub(super) endpoint: Endpoint,
    pub(super) token: TokenFingerprint,
    pub(super) sent: Now,
}

impl InFlight {
    /// The part of the CRM that it asks. `None` for a lead request.
    pub(super) fn part(&self) -> Option<Part> {
        match &self.plan.task {
            Task::LeadRequest(_) => None,
            _ => Part::of(self.endpoint),
        }
    }

    pub(super) fn is_page(&self) -> bool {
        matches!(self.plan.task, Task::Reconcile { .. })
    }

    fn is_slow(&self, now: Now) -> bool {
        now.boot.saturating_sub(self.sent.boot) >= SLOW
    }
}

/// By their slots.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests {
    pub(super) by_slot: BTreeMap<u32, InFlight>,
}

impl InFlightRequests {
    /// Returns `true` if another request can be sent.
    pub(super) fn has_room(&self, now: Now) -> bool {
        let slow = self.by_slot.values().filter(|it| it.is_slow(now)).count();
        let all = self.by_slot.len();
        all < UNDER_WAY_SLOW_MAX && all - slow < UNDER_WAY_MAX
    }

    /// A request about this call is in flight.
    pub(super) fn has_call(&self, row: RowId) -> bool {
        self.calls().any(|it| it == row)
    }

    /// The calls of the requests in flight.
    pub(super) fn calls(&self) -> impl Iterator<Item = RowId> + '_ {
        self.by_slot.values().filter_map(|it| it.plan.row())
    }

    pub(super) fn lead_requests(&self) -> impl Iterator<Item = &LeadRequest> {
        (self.by_slot.values()).filter_map(|it| it.plan.task.lead_request())
    }

    pub(super) fn polls(&self) -> u32 {
        let polls = (self.by_slot.values()).filter_map(|it| it.plan.task.poll());
        u32::try_from(polls.count()).unwrap_or(u32::MAX)
    }

    /// A page of the journal is being requested.
    pub(super) fn has_page(&self) -> bool {
        self.by_slot.values().any(InFlight::is_page)
    }

    /// The answer to a page is slow: its calls are polled individually.
    pub(super) fn page_is_slow(&self, now: Now) -> bool {
        (self.by_slot.values()).any(|it| it.is_page() && it.is_slow(now))
    }

    /// Part of the CRM and send time of each request.
    pub(super) fn in_flight_parts(&self) -> Vec<InFlightPart> {
        let parts = self.by_slot.values().map(|it| InFlightPart {
            part: it.part(),
            sent: it.sent.boot,
        });
        parts.collect()
    }
}
