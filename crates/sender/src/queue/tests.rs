//! Tests how the next request is chosen, lane by lane.

use super::*;
use crate::testing::{now_at, submitted_call};
use callbridge_model::LeadId;
use strum::VariantArray as _;

const SECOND: Duration = Duration::from_secs(1);
const LIVE: RowId = RowId(1);
const OLDER: RowId = RowId(2);

/// Returns a view in which nothing is waiting and every endpoint can be used.
fn idle_view() -> View {
    View {
        access: AccessByEndpoint {
            submit: Access::Yes,
            poll: Access::Yes,
            pages: Access::Yes,
            token: Access::Yes,
        },
        last_probed: None,
        token_info_due: false,
        stand_in_due: false,
        live: None,
        backlog: None,
        unconfirmed: UnconfirmedCalls::default(),
        is_reading: false,
        page_under_way: false,
        confirmed_last: false,
        lead_ending: None,
        lead_turn: None,
        lead: None,
        lead_spare: None,
    }
}

fn unconfirmed_call(id: i64) -> Unconfirmed {
    submitted_call(id, now_at(0))
}

fn unconfirmed_of_age(id: i64, seconds: u32) -> Option<(Unconfirmed, Duration)> {
    Some((unconfirmed_call(id), SECOND * seconds))
}

fn lead(id: i64) -> LeadRequest {
    LeadRequest::LookUp(LeadId::new(id).expect("positive"))
}

fn with_access(view: View, change: fn(&mut AccessByEndpoint)) -> View {
    let mut view = view;
    change(&mut view.access);
    view
}

fn lane(view: &View) -> Option<Lane> {
    next(view).map(|task| task.lane)
}

fn work(view: &View) -> Option<Work> {
    next(view).map(|task| task.work)
}

/// Returns a view in which every lane has a candidate.
fn busy_view() -> View {
    View {
        token_info_due: true,
        stand_in_due: true,
        live: Some(LIVE),
        backlog: Some(OLDER),
        unconfirmed: UnconfirmedCalls {
            all: 100,
            due: 50,
            oldest: 10 * SECOND,
            poll: unconfirmed_of_age(3, 10),
            absent: unconfirmed_of_age(4, 10),
            ending: Some(unconfirmed_call(5)),
            lost: Some(unconfirmed_call(6)),
            settle: Some(unconfirmed_call(7)),
        },
        lead_ending: Some(lead(1)),
        lead_turn: Some(lead(2)),
        lead: Some(lead(3)),
        lead_spare: Some(lead(4)),
        ..idle_view()
    }
}

/// Removes this lane's candidate.
fn remove_candidate(view: &mut View, lane: Lane) {
    match lane {
        Lane::Settle => view.unconfirmed.settle = None,
        Lane::Token => view.token_info_due = false,
        Lane::Deadline => match view.unconfirmed.ending.take() {
            Some(_) => {}
            None => view.lead_ending = None,
        },
        Lane::DueConfirmation => view.confirmed_last = true,
        Lane::Live => view.live = None,
        Lane::LeadTurn => view.lead_turn = None,
        Lane::Backlog => view.backlog = None,
        Lane::Confirmation => view.unconfirmed = UnconfirmedCalls::default(),
        Lane::Lead => view.lead = None,
        Lane::SpareLead => view.lead_spare = None,
        Lane::StandIn => view.stand_in_due = false,
    }
}

#[test]
fn lanes_are_served_in_their_order() {
    let mut view = busy_view();
    let mut served = Vec::new();
    while let Some(task) = next(&view) {
        served.push(task.lane);
        remove_candidate(&mut view, task.lane);
    }
    served.dedup();
    assert_eq!(served, Lane::VARIANTS);
    let listed: Vec<Lane> = LANES.iter().map(|(lane, _)| *lane).collect();
    assert_eq!(listed, Lane::VARIANTS);
}

#[test]
fn empty_queue_needs_no_request() {
    assert_eq!(next(&idle_view()), None);
}

#[test]
fn each_lane_sends_its_own_candidate() {
    let mut view = busy_view();
    let mut asked = Vec::new();
    while let Some(task) = next(&view) {
        asked.push(task.work);
        remove_candidate(&mut view, task.lane);
    }
    let page = Work::Page { begins: true };
    let expected = [
        Work::Settle(Box::new(unconfirmed_call(7))),
        Work::TokenInfo,
        Work::Poll(Box::new(unconfirmed_call(5))),
        Work::Lead(Box::new(lead(1))),
        page.clone(),
        Work::Submit(LIVE),
        Work::Lead(Box::new(lead(2))),
        Work::Submit(OLDER),
        page,
        Work::Lead(Box::new(lead(3))),
        Work::Lead(Box::new(lead(4))),
        Work::TokenInfo,
    ];
    assert_eq!(asked, expected);
}

#[test]
fn lane_pace_is_at_once_if_urgent_and_spare_for_spare_leads() {
    for &lane in Lane::VARIANTS {
        let expected = match lane {
            Lane::Settle | Lane::Token | Lane::Deadline | Lane::Live | Lane::StandIn => {
                Pace::AtOnce
            }
            Lane::SpareLead => Pace::Spare,
            _ => Pace::Even,
        };
        assert_eq!(lane.pace(), expected, "{lane:?}");
    }
}

#[test]
fn live_call_goes_before_backlog() {
    let view = View {
        live: Some(LIVE),
        backlog: Some(OLDER),
        ..idle_view()
    };
    assert_eq!(work(&view), Some(Work::Submit(LIVE)));
    let view = with_access(view, |access| access.submit = Access::No);
    assert_eq!(next(&view), None);
    let backlog = View {
        live: None,
        backlog: Some(OLDER),
        ..view
    };
    assert_eq!(next(&backlog), None);
}

/// Returns a view in which calls are ready and `due` other calls can be confirmed, the oldest of
/// which was submitted `oldest` seconds ago.
fn view_with_ready_calls(due: u32, oldest: u32) -> View {
    View {
        live: Some(LIVE),
        unconfirmed: UnconfirmedCalls {
            all: u64::from(due),
            due,
            oldest: SECOND * oldest,
            poll: unconfirmed_of_age(3, oldest),
            ..UnconfirmedCalls::default()
        },
        ..idle_view()
    }
}

#[test]
fn page_is_read_under_load_for_50_calls_or_after_2_minutes() {
    assert_eq!(lane(&view_with_ready_calls(49, 119)), Some(Lane::Live));
    assert_eq!(
        lane(&view_with_ready_calls(50, 10)),
        Some(Lane::DueConfirmation)
    );
    assert_eq!(
        lane(&view_with_ready_calls(1, 120)),
        Some(Lane::DueConfirmation)
    );
    assert_eq!(lane(&view_with_ready_calls(0, 120)), Some(Lane::Live));
}

#[test]
fn confirmations_use_at_most_every_second_slot_under_load() {
    let view = View {
        confirmed_last: true,
        ..view_with_ready_calls(100, 600)
    };
    assert_eq!(lane(&view), Some(Lane::Live));
}

#[test]
fn running_reading_continues_under_load() {
    let view = View {
        is_reading: true,
        ..view_with_ready_calls(0, 0)
    };
    let page = Work::Page { begins: false };
    assert_eq!(work(&view), Some(page));
    let under_way = View {
        page_under_way: true,
        ..view.clone()
    };
    assert_eq!(lane(&under_way), Some(Lane::Live));
    let after_page = View {
        confirmed_last: true,
        ..view
    };
    assert_eq!(lane(&after_page), Some(Lane::Live));
}

#[test]
fn old_calls_are_polled_under_load_if_pages_are_closed() {
    let young = with_access(view_with_ready_calls(9, 119), |access| {
        access.pages = Access::No
    });
    assert_eq!(lane(&young), Some(Lane::Live));
    let old = with_access(view_with_ready_calls(9, 120), |access| {
        access.pages = Access::No
    });
    assert_eq!(work(&old), Some(Work::Poll(Box::new(unconfirmed_call(3)))));
    let no_polls = with_access(old, |access| access.poll = Access::No);
    assert_eq!(lane(&no_polls), Some(Lane::Live));
}

#[test]
fn absent_call_is_polled_under_load_after_two_minutes() {
    let mut view = view_with_ready_calls(9, 60);
    view.unconfirmed.absent = unconfirmed_of_age(4, 120);
    assert_eq!(work(&view), Some(Work::Poll(Box::new(unconfirmed_call(4)))));
    view.unconfirmed.absent = unconfirmed_of_age(4, 119);
    assert_eq!(lane(&view), Some(Lane::Live));
}

/// Returns a view in which no calls are ready and `due` calls can be confirmed, the oldest of which
/// was submitted `age` seconds ago.
fn view_without_ready_calls(due: u32, age: u32) -> View {
    View {
        live: None,
        ..view_with_ready_calls(due, age)
    }
}

#[test]
fn idle_queue_reads_a_page_for_three_calls_and_polls_fewer() {
    let page = Work::Page { begins: true };
    assert_eq!(work(&view_without_ready_calls(3, 11)), Some(page));
    let poll = Work::Poll(Box::new(unconfirmed_call(3)));
    assert_eq!(work(&view_without_ready_calls(2, 11)), Some(poll.clone()));
    assert_eq!(work(&view_without_ready_calls(1, 2)), Some(poll));
}

#[test]
fn young_call_is_not_polled_if_a_page_will_show_it() {
    let mut view = view_without_ready_calls(0, 9);
    view.unconfirmed.all = 3;
    assert_eq!(next(&view), None);
    view.unconfirmed.poll = unconfirmed_of_age(3, 10);
    assert_eq!(lane(&view), Some(Lane::Confirmation));
    view.unconfirmed.poll = unconfirmed_of_age(3, 9);
    view.unconfirmed.all = 2;
    assert_eq!(lane(&view), Some(Lane::Confirmation));
    view.page_under_way = true;
    assert_eq!(next(&view), None, "the page can show it");
    let no_pages = with_access(view_without_ready_calls(3, 9), |access| {
        access.pages = Access::No
    });
    assert_eq!(lane(&no_pages), Some(Lane::Confirmation), "none will come");
}

#[test]
fn page_is_read_for_one_call_if_polls_are_closed() {
    let view = with_access(view_without_ready_calls(1, 11), |access| {
        access.poll = Access::No
    });
    assert_eq!(work(&view), Some(Work::Page { begins: true }));
    let none = with_access(view_without_ready_calls(0, 11), |access| {
        access.poll = Access::No
    });
    assert_eq!(next(&none), None);
}

#[test]
fn absent_call_is_polled_before_others_when_idle() {
    let mut view = view_without_ready_calls(1, 11);
    view.unconfirmed.absent = unconfirmed_of_age(4, 11);
    assert_eq!(work(&view), Some(Work::Poll(Box::new(unconfirmed_call(4)))));
}

#[test]
fn page_is_read_for_a_lost_request_id() {
    let mut view = view_without_ready_calls(0, 2);
    view.unconfirmed.poll = None;
    view.unconfirmed.lost = Some(unconfirmed_call(6));
    assert_eq!(work(&view), Some(Work::Page { begins: true }));
}

#[test]
fn deadline_poll_needs_access_to_polls() {
    let mut view = view_with_ready_calls(1, 10);
    view.unconfirmed.ending = Some(unconfirmed_call(5));
    assert_eq!(lane(&view), Some(Lane::Deadline));
    let closed = with_access(view, |access| access.poll = Access::No);
    assert_eq!(lane(&closed), Some(Lane::Live));
}

#[test]
fn token_info_needs_access_to_its_endpoint() {
    let view = View {
        token_info_due: true,
        ..idle_view()
    };
    assert_eq!(lane(&view), Some(Lane::Token));
    let closed = with_access(view, |access| access.token = Access::No);
    assert_eq!(next(&closed), None);
}

/// Returns a view in which all breakers are open and a probe is due.
fn outage_view() -> View {
    View {
        access: AccessByEndpoint {
            submit: Access::Probe,
            poll: Access::Probe,
            pages: Access::Probe,
            token: Access::Probe,
        },
        ..view_without_ready_calls(2, 11)
    }
}

#[test]
fn probes_take_turns_between_endpoints() {
    let mut view = outage_view();
    view.live = Some(LIVE);
    assert_eq!(lane(&view), Some(Lane::Live));
    view.last_probed = Some(Endpoint::Submit);
    assert_eq!(lane(&view), Some(Lane::Confirmation));
    view.last_probed = Some(Endpoint::Poll);
    assert_eq!(lane(&view), Some(Lane::Live));
    view.last_probed = Some(Endpoint::Submit);
    view.unconfirmed = UnconfirmedCalls::default();
    assert_eq!(lane(&view), Some(Lane::Live), "there is no other");
}

#[test]
fn call_is_probe_after_token_info_or_a_page() {
    let mut view = outage_view();
    view.live = Some(LIVE);
    view.token_info_due = true;
    assert_eq!(lane(&view), Some(Lane::Token));
    view.last_probed = Some(Endpoint::TokenInfo);
    assert_eq!(lane(&view), Some(Lane::Live));
    view.token_info_due = false;
    view.unconfirmed.due = PAGE_UNDER_LOAD;
    assert_eq!(lane(&view), Some(Lane::DueConfirmation));
    view.last_probed = Some(Endpoint::Filter);
    assert_eq!(lane(&view), Some(Lane::Live));
}

#[test]
fn repeated_probe_yields_only_to_another_probe() {
    let mut view = outage_view();
    view.live = Some(LIVE);
    view.last_probed = Some(Endpoint::Submit);
    view.access.poll = Access::Yes;
    view.access.pages = Access::Yes;
    view.lead = Some(lead(3));
    assert_eq!(lane(&view), Some(Lane::Live));
}

#[test]
fn work_returns_its_row_endpoint_poll_and_lead_request() {
    let poll = Work::Poll(Box::new(unconfirmed_call(3)));
    assert_eq!(poll.row(), Some(RowId(3)));
    assert_eq!(poll.poll(), Some(&unconfirmed_call(3)));
    let settle = Work::Settle(Box::new(unconfirmed_call(3)));
    assert_eq!((settle.row(), settle.poll()), (Some(RowId(3)), None));
    assert_eq!(Work::Submit(LIVE).row(), Some(LIVE));
    assert_eq!(Work::TokenInfo.row(), None);
    let work = Work::Lead(Box::new(lead(1)));
    assert_eq!(work.lead_request(), Some(&lead(1)));
    assert_eq!(Work::TokenInfo.lead_request(), None);
    let endpoints = [
        (poll, Some(Endpoint::Poll)),
        (settle, None),
        (Work::Submit(LIVE), Some(Endpoint::Submit)),
        (Work::TokenInfo, Some(Endpoint::TokenInfo)),
        (Work::Page { begins: true }, Some(Endpoint::Filter)),
        (work, None),
    ];
    for (work, endpoint) in endpoints {
        assert_eq!(work.endpoint(), endpoint, "{work:?}");
    }
}

/// The ten states in `docs/design/sender.md`, with the request that each of them leads to, if any.
#[test]
fn ten_documented_states_have_their_expected_answers() {
    let saturated = view_with_ready_calls(50, 20);
    let after_page = View {
        confirmed_last: true,
        ..view_with_ready_calls(50, 20)
    };
    let quiet = view_without_ready_calls(1, 5);
    let burst_is_over = view_without_ready_calls(3, 11);
    let ending = View {
        unconfirmed: UnconfirmedCalls {
            ending: Some(unconfirmed_call(5)),
            ..view_with_ready_calls(50, 600).unconfirmed
        },
        ..view_with_ready_calls(50, 600)
    };
    let no_grants = View {
        backlog: Some(OLDER),
        ..with_access(view_without_ready_calls(9, 600), |access| {
            access.poll = Access::No;
            access.pages = Access::No;
        })
    };
    let out = View {
        backlog: Some(OLDER),
        last_probed: Some(Endpoint::Poll),
        ..outage_view()
    };
    let nothing_open = with_access(outage_view(), |access| {
        access.submit = Access::No;
        access.poll = Access::No;
        access.pages = Access::No;
        access.token = Access::No;
    });
    let lost = View {
        unconfirmed: UnconfirmedCalls {
            settle: Some(unconfirmed_call(7)),
            ..UnconfirmedCalls::default()
        },
        live: Some(LIVE),
        ..idle_view()
    };
    let new_token = View {
        token_info_due: true,
        ..with_access(view_with_ready_calls(50, 600), |access| {
            access.submit = Access::No;
            access.poll = Access::No;
            access.pages = Access::No;
        })
    };
    let page = Some(Work::Page { begins: true });
    let states = [
        ("1 new token", new_token, Some(Work::TokenInfo)),
        ("2 requestId ends", ending, Some(poll(&unconfirmed_call(5)))),
        ("3 saturated, 50 unconfirmed", saturated, page.clone()),
        (
            "4 the slot after that",
            after_page,
            Some(Work::Submit(LIVE)),
        ),
        (
            "5 one call on a quiet line",
            quiet,
            Some(poll(&unconfirmed_call(3))),
        ),
        ("6 three calls, none ready", burst_is_over, page),
        (
            "7 nothing can confirm",
            no_grants,
            Some(Work::Submit(OLDER)),
        ),
        ("8 outage, a probe is due", out, Some(Work::Submit(OLDER))),
        ("9 outage, a probe is under way", nothing_open, None),
        (
            "10 lost requestId, no pages",
            lost,
            Some(Work::Settle(Box::new(unconfirmed_call(7)))),
        ),
    ];
    for (state, view, answer) in states {
        assert_eq!(work(&view), answer, "{state}");
    }
}
