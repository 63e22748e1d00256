//! When lead requests go out, and what their answers do to the line.

use super::tests::{at, due, lane, ready, submitted};
use crate::answered::Answered;
use crate::core::Core;
use crate::plan::{About, Decision, Lane, Launch, Settings, Task};
use callbridge_crm::{
    ApiError, ApiReply, ApiResponse, ApiResult, Endpoint, FilterPage, LeadsPage, Page, PageSize,
    Request, TokenInfo,
};
use callbridge_leads::lead_request::LeadChange;
use callbridge_leads::lead_request::due::{
    DueRequest, DueRequests, LeadRequest, RequestId, Urgency,
};
use callbridge_model::{Grant, LeadId, Now};
use callbridge_spool::{Op, WebhookPace, WorkQueue};
use std::time::Duration;

fn lead() -> LeadId {
    LeadId::new(4001).expect("positive")
}

fn job(urgency: Urgency, lead_request: LeadRequest) -> WorkQueue {
    WorkQueue {
        lead_requests: DueRequests {
            due: vec![DueRequest {
                urgency,
                lead_request,
            }],
            next: None,
        },
        ..WorkQueue::default()
    }
}

fn look_up() -> WorkQueue {
    job(Urgency::Soon, LeadRequest::LookUp(lead()))
}

fn backfill(page: u32) -> WorkQueue {
    let page = LeadsPage {
        page,
        size: 50,
        since: None,
    };
    job(Urgency::Spare, LeadRequest::Backfill(page))
}

/// Sends the next request, and answers it.
fn answered(core: &mut Core, now: Now, head: &WorkQueue, answer: ApiResult) -> (Request, Answered) {
    let Decision::Send(plan) = core.next(now, head) else {
        panic!("something is sent");
    };
    let slot = plan.slot;
    let Launch {
        request: Some((request, _)),
        ..
    } = core.launch(now, plan, About::default())
    else {
        panic!("it goes");
    };
    let heard = ApiResponse::from(answer);
    let outcome = core.answered(now, slot, heard).expect("under way");
    (request, outcome)
}

fn forbidden() -> ApiResult {
    Err(ApiError::Forbidden(String::new()))
}

#[test]
fn lead_request_precedes_backlog_once_in_ten_seconds() {
    let mut core = ready(Settings::default());
    let live = WorkQueue {
        live: Some(due(1)),
        ..look_up()
    };
    assert_eq!(lane(&mut core, at(1), &live), Some(Lane::Live));
    let backlog = WorkQueue {
        backlog: Some(due(1)),
        ..look_up()
    };
    let (request, _) = answered(&mut core, at(2), &backlog, Err(ApiError::TimedOut));
    assert_eq!(request, Request::Lead(lead()));
    let other = LeadId::new(4002).expect("positive");
    let backlog = WorkQueue {
        backlog: Some(due(1)),
        ..job(Urgency::Soon, LeadRequest::LookUp(other))
    };
    assert_eq!(lane(&mut core, at(11), &backlog), Some(Lane::Backlog));
    assert_eq!(lane(&mut core, at(12), &backlog), Some(Lane::LeadRequest));
}

#[test]
fn spare_lead_requests_use_at_most_half_of_budget() {
    let mut core = ready(Settings::default());
    let backlog = WorkQueue {
        backlog: Some(due(1)),
        ..backfill(1)
    };
    assert_eq!(lane(&mut core, at(1), &backlog), Some(Lane::Backlog));
    let told = || Ok(ApiReply::Data(serde_json::json!({ "data": [] })));
    let mut sent = 1; // token/info
    for second in 1..60 {
        let page = backfill(u32::try_from(second).expect("small"));
        let Decision::Send(plan) = core.next(at(second), &page) else {
            continue;
        };
        let slot = plan.slot;
        core.launch(at(second), plan, About::default());
        let heard = ApiResponse::from(told());
        core.answered(at(second), slot, heard).expect("under way");
        sent += 1;
    }
    assert_eq!(sent, 30);
    // a call finds the other half free
    let live = WorkQueue {
        live: Some(due(1)),
        ..backfill(99)
    };
    assert_eq!(lane(&mut core, at(59), &live), Some(Lane::Live));
}

#[test]
fn what_waits_for_the_budget_does_not_make_a_poll_wait_for_it() {
    let mut core = ready(Settings::default());
    for _ in 0..29 {
        let taken = core.budget.take(at(1), Lane::Token, Task::TokenInfo);
        assert!(matches!(taken, Decision::Send(_)), "room");
    }
    let head = WorkQueue {
        next_poll: Some(at(3).wall),
        ..backfill(1)
    };
    assert_eq!(core.next(at(1), &head), Decision::WaitUntil(at(3).boot));
}

#[test]
fn nothing_that_an_errand_is_refused_stops_the_calls() {
    let mut core = ready(Settings::default());
    let refusals = [
        Err(ApiError::WrongAddress(405)),
        Err(ApiError::NotFound {
            own: true,
            message: String::new(),
        }),
        Err(ApiError::Server {
            status: 500,
            own: true,
            message: String::new(),
        }),
        Err(ApiError::TimedOut),
        Err(ApiError::Rejected {
            status: 409,
            message: String::new(),
            errors: serde_json::Value::Null,
        }),
        // after this one the token's record is read before the next lead request
        forbidden(),
    ];
    for (n, answer) in (1..).zip(refusals) {
        let head = backfill(n);
        let now = at(u64::from(n) * 20);
        let (_, outcome) = answered(&mut core, now, &head, answer);
        assert_eq!((outcome.endpoint, outcome.row), (Endpoint::Leads, None));
        let live = WorkQueue {
            live: Some(due(1)),
            ..WorkQueue::default()
        };
        assert_eq!(lane(&mut core, now, &live), Some(Lane::Live), "{n}");
        assert_eq!(core.status(now, &head).pause, None);
    }
}

#[test]
fn a_dead_token_and_a_429_stop_the_line_whoever_meets_them() {
    for (answer, reason) in [
        (Err(ApiError::UNAUTHORIZED), "token_refused"),
        (Err(ApiError::TooMany(true)), "too_many_requests"),
    ] {
        let mut core = ready(Settings::default());
        let (_, outcome) = answered(&mut core, at(2), &look_up(), answer);
        assert!(outcome.again);
        let pause = core.status(at(2), &look_up()).pause.expect("a pause");
        assert_eq!(pause.reason, reason);
        assert_eq!(lane(&mut core, at(2), &look_up()), None);
    }
}

#[test]
fn lead_request_with_unchanged_result_waits_a_minute() {
    let mut core = ready(Settings::default());
    answered(&mut core, at(2), &look_up(), Err(ApiError::TimedOut));
    assert_eq!(lane(&mut core, at(12), &look_up()), Some(Lane::LeadRequest));
    // nothing came of it that the spool would know
    let lead_request = LeadRequest::LookUp(lead());
    core.lead_requests.answered(at(12), &lead_request, true);
    assert_eq!(lane(&mut core, at(71), &look_up()), None);
    assert_eq!(lane(&mut core, at(72), &look_up()), Some(Lane::LeadRequest));
}

#[test]
fn what_the_token_s_record_does_not_grant_is_not_tried() {
    let head = |lead_request| job(Urgency::Soon, lead_request);
    for (lead_request, needed) in [
        (LeadRequest::LookUp(lead()), Grant::LeadRead),
        (LeadRequest::FieldWrite(lead()), Grant::LeadSave),
    ] {
        let mut core = ready(Settings::default());
        let mut info = super::tests::info();
        if let Some(grants) = &mut info.grants {
            grants.retain(|it| it != needed.word());
        }
        core.tokens.info = Some(info);
        assert_eq!(lane(&mut core, at(2), &head(lead_request.clone())), None);
        let silent = TokenInfo {
            grants: None,
            ..super::tests::info()
        };
        core.tokens.info = Some(silent);
        assert_eq!(
            lane(&mut core, at(2), &head(lead_request)),
            Some(Lane::LeadRequest)
        );
    }
}

#[test]
fn no_two_errands_of_a_kind_are_under_way_and_none_in_a_dry_run() {
    let mut core = ready(Settings::default());
    let Decision::Send(plan) = core.next(at(1), &look_up()) else {
        panic!("it goes");
    };
    core.launch(at(1), plan, About::default());
    let other = LeadId::new(4002).expect("positive");
    let other = job(Urgency::Soon, LeadRequest::LookUp(other));
    assert_eq!(lane(&mut core, at(2), &other), None);
    let mut dry = ready(Settings {
        dry_run: true,
        ..Settings::default()
    });
    assert_eq!(lane(&mut dry, at(2), &look_up()), None);
}

#[test]
fn a_write_that_is_no_longer_to_be_made_costs_nothing() {
    let mut core = ready(Settings::default());
    let head = job(Urgency::Spare, LeadRequest::FieldWrite(lead()));
    let Decision::Send(plan) = core.next(at(1), &head) else {
        panic!("it goes");
    };
    let used = core.budget.used(at(1));
    let launch = core.launch(at(1), plan, About::default());
    let Launch { request: None, ops } = launch else {
        panic!("nothing is left to write");
    };
    assert!(
        matches!(ops[..], [Op::Lead(LeadChange::Request { .. })]),
        "due later: {ops:?}"
    );
    assert_eq!(core.budget.used(at(1)), used - 1);
}

#[test]
fn command_request_goes_after_live_calls_before_backlog() {
    let mut core = ready(Settings::default());
    assert!(
        core.lead_requests
            .ask(RequestId(1), Request::CrmFields.into())
    );
    let head = WorkQueue {
        live: Some(due(1)),
        backlog: Some(due(2)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(1), &head), Some(Lane::Live));
    let head = WorkQueue { live: None, ..head };
    let told = Ok(ApiReply::Data(serde_json::json!({})));
    let (request, outcome) = answered(&mut core, at(1), &head, told);
    assert_eq!(request, Request::CrmFields);
    assert!(!outcome.again);
    assert!(matches!(
        outcome.lead_request,
        Some((
            LeadRequest::Asked(RequestId(1), _),
            Ok(ApiReply::Data(_)),
            _
        ))
    ));
    assert_eq!(lane(&mut core, at(1), &head), Some(Lane::Backlog));
    assert!(
        core.lead_requests
            .ask(RequestId(2), Request::CrmFields.into())
    );
    assert!(
        core.lead_requests.drop_asked(RequestId(2)) && !core.lead_requests.drop_asked(RequestId(2))
    );
    assert_eq!(lane(&mut core, at(1), &head), Some(Lane::Backlog));
}

#[test]
fn audit_pages_yield_to_calls_and_leave_half_of_budget() {
    let page = FilterPage {
        page: 1,
        size: PageSize::LARGEST,
        since: None,
    };
    let mut core = ready(Settings::default());
    assert!(
        core.lead_requests
            .ask(RequestId(1), Request::Filter(page).into())
    );
    assert!(
        core.lead_requests
            .ask(RequestId(2), Request::CrmFields.into())
    );
    let told = |reply| Ok(reply);
    let fields = told(ApiReply::Data(serde_json::json!({})));
    let (request, _) = answered(&mut core, at(1), &WorkQueue::default(), fields);
    assert_eq!(request, Request::CrmFields, "what else is asked goes first");
    // Calls wait: they go, and a page in ten seconds.
    let waiting = WorkQueue {
        backlog: Some(due(2)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(2), &waiting), Some(Lane::Backlog));
    let empty = || told(ApiReply::Page(Page::default()));
    let (request, outcome) = answered(&mut core, at(12), &waiting, empty());
    assert_eq!(request, Request::Filter(page));
    assert!(!outcome.again);
    // On an idle line they go at the pace of what can wait, and half of the budget is left.
    let mut core = ready(Settings::default());
    let idle = WorkQueue::default();
    let before = core.budget.used(at(0));
    for second in 0..50 {
        if core.lead_requests.asked.is_empty() {
            assert!(
                core.lead_requests
                    .ask(RequestId(second), Request::Filter(page).into())
            );
        }
        let now = at(second);
        let Decision::Send(plan) = core.next(now, &idle) else {
            continue;
        };
        let (slot, lane) = (plan.slot, plan.lane);
        let launch = core.launch(now, plan, About::default());
        assert!(
            matches!(
                launch,
                Launch {
                    request: Some(_),
                    ..
                }
            ),
            "{launch:?}"
        );
        assert_eq!(lane, Lane::Spare);
        core.answered(now, slot, ApiResponse::from(empty()));
    }
    let used = core.budget.used(at(50)) - before;
    assert!((1..=30).contains(&used), "{used}");
}

#[test]
fn while_webhooks_flow_a_call_is_left_to_them_for_two_minutes() {
    let mut core = ready(Settings::default());
    let second = Duration::from_secs(1);
    let webhook_pace = WebhookPace {
        at: at(1).wall,
        after: second,
        usual: second,
    };
    let head = WorkQueue {
        polls: vec![submitted(3, at(0))],
        submitted: 1,
        webhook_pace: Some(webhook_pace),
        ..WorkQueue::default()
    };
    assert_eq!(core.next(at(119), &head), Decision::WaitUntil(at(120).boot));
    assert_eq!(
        core.ask(at(119)).confirmable_before,
        at(0).wall.minus(second)
    );
    assert_eq!(lane(&mut core, at(120), &head), Some(Lane::Confirm));
    let silent = WorkQueue {
        webhook_pace: None,
        ..head
    };
    let mut core = ready(Settings::default());
    assert_eq!(lane(&mut core, at(2), &silent), Some(Lane::Confirm));
}

#[test]
fn a_deadline_does_not_wait_for_webhooks() {
    let mut core = ready(Settings::default());
    let hour = at(3600).wall.floor_seconds();
    core.tokens.info = Some(TokenInfo {
        expires_at: Some(hour),
        ..super::tests::info()
    });
    let second = Duration::from_secs(1);
    let call = submitted(3, at(3590));
    let head = WorkQueue {
        polls: vec![call.clone()],
        oldest_submitted: vec![call],
        webhook_pace: Some(WebhookPace {
            at: at(3589).wall,
            after: second,
            usual: second,
        }),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(3592), &head), Some(Lane::Deadline));
}
