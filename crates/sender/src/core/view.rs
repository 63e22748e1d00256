//! Determines the candidates for the next request from the head of the spool and the sender's
//! state.

use super::Core;
use crate::breaker::Access;
use crate::breaker::pause::Probe;
use crate::queue::{AccessByEndpoint, UnconfirmedCalls, View};
use callbridge_call::EventTime;
use callbridge_crm::Endpoint;
use callbridge_leads::lead_request::due::{LeadRequest, Urgency};
use callbridge_model::{Grant, Now};
use callbridge_spool::{Unconfirmed, WorkQueue};
use std::time::Duration;

/// If pages keep failing for this long while calls are accepted, calls with lost requestIds no
/// longer wait for them.
const PAGES_FAIL_LONG: Duration = Duration::from_secs(3600);

/// Collects the candidates.
pub(super) fn view(core: &Core, now: Now, head: &WorkQueue) -> View {
    let access = access(core, now);
    let mut view = View {
        access,
        last_probed: core.breakers.last_probed(),
        token_info_due: is_token_info_due(core, now),
        stand_in_due: core.tokens.is_verified
            && core.paused.is_none()
            && core.unsent == 0
            && core.breakers.is_probe_due(now.boot)
            && !core.in_flight.has_endpoint(Endpoint::TokenInfo),
        live: head.live.as_ref().map(|due| due.row),
        backlog: head.backlog.as_ref().map(|due| due.row),
        unconfirmed: unconfirmed(core, now, head),
        is_reading: core.confirm.is_reading(),
        page_under_way: core.in_flight.has_page(),
        confirmed_last: core.confirmed_last,
        lead_ending: None,
        lead_turn: None,
        lead: None,
        lead_spare: None,
    };
    // The head omits all other calls of a branch whose calls are being refused.
    if core.refusals.suspends()
        && let Some(tried) = head.retried.as_ref().or(head.trials.values().next())
    {
        view.live = Some(tried.row);
    }
    if may_ask_leads(core, now) {
        add_lead_requests(core, now, head, &mut view);
    }
    view
}

/// Determines which endpoints are accessible, given the breakers, the pause, and the grants.
pub(super) fn access(core: &Core, now: Now) -> AccessByEndpoint {
    let mut access = AccessByEndpoint {
        submit: breaker_access(core, now, Endpoint::Submit),
        poll: breaker_access(core, now, Endpoint::Poll),
        pages: breaker_access(core, now, Endpoint::Filter),
        token: breaker_access(core, now, Endpoint::TokenInfo),
    };
    if core.settings.dry_run {
        access.submit = Access::No;
        access.pages = Access::No;
    }
    if !core.confirm.reads_pages(now.wall) || now.boot < core.page_from {
        access.pages = Access::No;
    }
    if core.confirm.polls_refused.is_some() {
        access.poll = Access::No;
    }
    if let Some(paused) = &core.paused {
        let trial = paused.probe(now.boot) == Probe::Submission;
        if !trial || core.in_flight.has_endpoint(Endpoint::Submit) {
            access.submit = Access::No;
        }
    }
    if !confirms(core, now) {
        access.poll = Access::No;
        access.pages = Access::No;
    }
    if !core.tokens.is_verified || core.tokens.is_expired(now) {
        access.submit = Access::No;
    }
    access
}

fn breaker_access(core: &Core, now: Now, endpoint: Endpoint) -> Access {
    let under_way = core.in_flight.has_endpoint(endpoint);
    core.breakers.access(endpoint, now.boot, under_way)
}

/// Returns `true` if calls sent earlier can be confirmed.
fn confirms(core: &Core, now: Now) -> bool {
    let is_stopped = (core.paused.as_ref()).is_some_and(|paused| !paused.is_half_open());
    core.tokens.is_verified && !core.tokens.is_expired(now) && !is_stopped
}

fn is_token_info_due(core: &Core, now: Now) -> bool {
    if let Some(paused) = &core.paused
        && paused.is_about_token()
    {
        return paused.probe(now.boot) == Probe::TokenInfo && core.in_flight.is_empty();
    }
    if !core.tokens.is_verified {
        return core.in_flight.is_empty();
    }
    let is_probe = match &core.paused {
        Some(paused) => paused.probe(now.boot) == Probe::TokenInfo,
        None => false,
    };
    let due = is_probe || core.tokens.is_record_due(now.boot);
    due && !core.in_flight.has_endpoint(Endpoint::TokenInfo)
}

fn unconfirmed(core: &Core, now: Now, head: &WorkQueue) -> UnconfirmedCalls {
    let due = head.confirmable.calls;
    let mut calls = UnconfirmedCalls {
        all: head.submitted,
        due: due.saturating_sub(core.in_flight.polls()),
        oldest: head
            .confirmable
            .oldest
            .map_or(Duration::ZERO, |oldest| now.wall.since(oldest)),
        ..UnconfirmedCalls::default()
    };
    if !confirms(core, now) {
        return calls;
    }
    calls.poll = first_polled(core, now, &head.polls);
    calls.absent = first_polled(core, now, head.alone.as_slice());
    for call in &head.oldest_submitted {
        if core.in_flight.has_call(call.row) {
            continue;
        }
        if core.is_expired(now, call) {
            calls.settle = Some(call.clone());
        }
    }
    calls.ending = first_ending(core, now, head);
    if let Some(call) = &head.unresolved
        && !core.in_flight.has_call(call.row)
    {
        let waits = core.confirm.waits_until(call, now.wall).is_some();
        if waits || !reads_pages_for_lost(core, now.wall) {
            calls.settle = Some(call.clone());
        } else {
            calls.lost = Some(call.clone());
        }
    }
    calls
}

/// Returns the call whose requestId expires first, among those that are due for a poll.
fn first_ending(core: &Core, now: Now, head: &WorkQueue) -> Option<Unconfirmed> {
    let mut ending = Vec::new();
    for call in head.ending.iter().chain(&head.polls) {
        let is_free = call.request_id.is_some() && !core.in_flight.has_call(call.row);
        let is_due = call.next_poll <= now.wall && !core.is_expired(now, call);
        let end = core.tokens.request_id_end(call);
        if is_free && is_due && end.is_soon(now.wall) {
            ending.push((end.at, call));
        }
    }
    let first = ending.into_iter().min_by_key(|(end, _)| *end);
    first.map(|(_, call)| call.clone())
}

/// Returns the first call that can be polled and isn't left to webhooks, with its age.
fn first_polled(core: &Core, now: Now, calls: &[Unconfirmed]) -> Option<(Unconfirmed, Duration)> {
    for call in calls {
        let age = call.age(now.wall);
        let is_free = call.request_id.is_some() && !core.in_flight.has_call(call.row);
        if is_free && age >= core.confirm.webhook_wait() {
            return Some((call.clone(), age));
        }
    }
    None
}

/// Returns `true` if pages can be read now or soon, so that calls with lost requestIds should wait
/// for them.
fn reads_pages_for_lost(core: &Core, now: EventTime) -> bool {
    let mut pages_since = None;
    for failing in core.breakers.failing() {
        match failing.endpoint {
            Endpoint::Submit => return core.confirm.reads_pages(now) && !core.settings.dry_run,
            Endpoint::Filter => pages_since = Some(failing.since),
            _ => {}
        }
    }
    let fails_long = pages_since.is_some_and(|since| now.since(since) >= PAGES_FAIL_LONG);
    core.confirm.reads_pages(now) && !fails_long && !core.settings.dry_run
}

/// Returns `true` if lead requests may be sent.
fn may_ask_leads(core: &Core, now: Now) -> bool {
    !core.settings.dry_run && core.tokens.is_verified && !core.stops_commands(now)
}

fn add_lead_requests(core: &Core, now: Now, head: &WorkQueue, view: &mut View) {
    let ready = view.live.is_some() || view.backlog.is_some();
    let has_turn = ready && core.lead_requests.from <= now.boot;
    let is_idle = core.in_flight.is_empty();
    if let Some(request) = core.lead_requests.first_asked()
        && may_go(core, now, &request)
    {
        // An audit may request many pages, so they wait for calls.
        let can_wait = matches!(&request, LeadRequest::Asked(_, asked) if asked.is_page());
        if !can_wait || has_turn {
            view.lead_turn = Some(request);
        } else if !ready {
            view.lead_spare = Some(request);
        }
    }
    for due in &head.lead_requests.due {
        if !may_go(core, now, &due.lead_request) {
            continue;
        }
        let place = match due.urgency {
            Urgency::Ending => &mut view.lead_ending,
            Urgency::Soon if has_turn => &mut view.lead_turn,
            Urgency::Soon if !ready => &mut view.lead,
            Urgency::Spare if is_idle => &mut view.lead_spare,
            Urgency::Soon | Urgency::Spare => continue,
        };
        place.get_or_insert_with(|| due.lead_request.clone());
    }
}

fn may_go(core: &Core, now: Now, request: &LeadRequest) -> bool {
    let tokens = &core.tokens;
    let is_granted = match request {
        LeadRequest::LookUp(_) => tokens.may(Grant::LeadRead),
        LeadRequest::FieldWrite(_) => tokens.may(Grant::LeadSave),
        LeadRequest::FieldPoll(_) => core.confirm.polls_refused.is_none(),
        // If the grant is missing, the CRM will tell the command so. Pages of leads are requested
        // in any case.
        LeadRequest::Catalog | LeadRequest::Backfill(_) | LeadRequest::Asked(..) => true,
    };
    let has_token = request
        .token()
        .is_none_or(|token| tokens.can_read(now, token));
    is_granted
        && has_token
        && !core.in_flight.has_like(request)
        && !core.lead_requests.is_resting(now, request)
}
