//! The requests under way, each in its slot.

use crate::{InFlightPart, Part, Plan, SLOW, Task};
use callbridge_crm::Endpoint;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::RowId;
use std::collections::BTreeMap;

/// Requests under way at one time…
const UNDER_WAY_MAX: usize = 4;

/// …and those whose answers are slow, which hold up no others: as many with them.
const UNDER_WAY_SLOW_MAX: usize = 12;

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) plan: Plan,
    pub(super) endpoint: Endpoint,
    pub(super) token: TokenFingerprint,
    /// Moment at which it left.
    pub(super) sent: Now,
}

impl InFlight {
    /// The part of the service that it asks; `None` for a lead request.
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

/// Requests under way, by their slots.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests {
    pub(super) by_slot: BTreeMap<u32, InFlight>,
}

impl InFlightRequests {
    /// Returns `true` when another request may leave.
    pub(super) fn has_room(&self, now: Now) -> bool {
        let slow = self.by_slot.values().filter(|it| it.is_slow(now)).count();
        let all = self.by_slot.len();
        all < UNDER_WAY_SLOW_MAX && all - slow < UNDER_WAY_MAX
    }

    /// A request about this call is under way.
    pub(super) fn has_call(&self, row: RowId) -> bool {
        self.calls().any(|it| it == row)
    }

    /// The calls that requests under way are about.
    pub(super) fn calls(&self) -> impl Iterator<Item = RowId> + '_ {
        self.by_slot.values().filter_map(|it| it.plan.row())
    }

    /// The lead requests under way.
    pub(super) fn lead_requests(&self) -> impl Iterator<Item = &LeadRequest> {
        (self.by_slot.values()).filter_map(|it| it.plan.task.lead_request())
    }

    /// Number of polls under way.
    pub(super) fn polls(&self) -> u32 {
        let polls = (self.by_slot.values()).filter_map(|it| it.plan.task.poll());
        u32::try_from(polls.count()).unwrap_or(u32::MAX)
    }

    /// A page of the journal is asked for.
    pub(super) fn has_page(&self) -> bool {
        self.by_slot.values().any(InFlight::is_page)
    }

    /// The answer to a page is long in coming: what it was to tell is asked for alone.
    pub(super) fn page_is_slow(&self, now: Now) -> bool {
        (self.by_slot.values()).any(|it| it.is_page() && it.is_slow(now))
    }

    /// Part of the service and moment of sending of each request.
    pub(super) fn in_flight_parts(&self) -> Vec<InFlightPart> {
        let parts = self.by_slot.values().map(|it| InFlightPart {
            part: it.part(),
            sent: it.sent.boot,
        });
        parts.collect()
    }
}
