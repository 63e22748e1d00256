//! Tests when lead requests are sent, and what their responses change.

use super::*;
use callbridge_crm::{Endpoint, FilterPage, LeadsPage};
use callbridge_leads::lead_request::LeadChange;
use callbridge_leads::lead_request::due::{
    DueRequest, DueRequests, LeadRequest, RequestId, Urgency,
};
use callbridge_model::{Grant, LeadId};

fn lead() -> LeadId {
    LeadId::new(4001).expect("positive")
}

fn queue_with_request(urgency: Urgency, lead_request: LeadRequest) -> WorkQueue {
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

fn queue_with_lookup() -> WorkQueue {
    queue_with_request(Urgency::Soon, LeadRequest::LookUp(lead()))
}

fn queue_with_backfill(page: u32) -> WorkQueue {
    let page = LeadsPage {
        page,
        size: 50,
        since: None,
    };
    queue_with_request(Urgency::Spare, LeadRequest::Backfill(page))
}

#[test]
fn lead_request_precedes_backlog_once_in_ten_seconds() {
    let mut core = ready_core(Settings::default());
    let live = WorkQueue {
        live: Some(due_call(1)),
        ..queue_with_lookup()
    };
    assert_eq!(lane(&mut core, now_at(1), &live), Some(Lane::Live));
    let backlog = WorkQueue {
        backlog: Some(due_call(1)),
        ..queue_with_lookup()
    };
    let (request, _) = exchange(&mut core, now_at(2), &backlog, Err(ApiError::TimedOut));
    assert_eq!(request, Request::Lead(lead()));
    let other = LeadId::new(4002).expect("positive");
    let backlog = WorkQueue {
        backlog: Some(due_call(1)),
        ..queue_with_request(Urgency::Soon, LeadRequest::LookUp(other))
    };
    assert_eq!(lane(&mut core, now_at(11), &backlog), Some(Lane::Backlog));
    assert_eq!(lane(&mut core, now_at(12), &backlog), Some(Lane::LeadTurn));
}

#[test]
fn spare_lead_requests_use_at_most_half_of_budget() {
    let mut core = ready_core(Settings::default());
    let backlog = WorkQueue {
        backlog: Some(due_call(1)),
        ..queue_with_backfill(1)
    };
    assert_eq!(lane(&mut core, now_at(1), &backlog), Some(Lane::Backlog));
    let mut sent = 1; // token/info
    for second in 1..60 {
        let page = queue_with_backfill(u32::try_from(second).expect("small"));
        let Decision::Send(plan) = core.next(now_at(second), &page) else {
            continue;
        };
        let slot = plan.slot;
        core.launch(now_at(second), plan, RequestInputs::default());
        let empty_list = serde_json::json!({ "data": [] });
        let response = ApiResponse::from(Ok(ApiReply::Data(empty_list)));
        core.judge_answer(now_at(second), slot, response)
            .expect("under way");
        sent += 1;
    }
    assert_eq!(sent, 30);
    // The other half of the budget is left for calls.
    let live = WorkQueue {
        live: Some(due_call(1)),
        ..queue_with_backfill(99)
    };
    assert_eq!(lane(&mut core, now_at(59), &live), Some(Lane::Live));
}

#[test]
fn poll_is_not_delayed_by_a_lead_request_awaiting_budget() {
    let mut core = ready_core(Settings::default());
    for _ in 0..29 {
        let taken = core.budget.take(
            now_at(1),
            Task {
                lane: Lane::Token,
                work: Work::TokenInfo,
            },
        );
        assert!(matches!(taken, Decision::Send(_)), "room");
    }
    let head = WorkQueue {
        next_poll: Some(now_at(3).wall),
        ..queue_with_backfill(1)
    };
    assert_eq!(
        core.next(now_at(1), &head),
        Decision::WaitUntil(now_at(3).boot)
    );
}

#[test]
fn refused_lead_request_does_not_stop_calls() {
    let mut core = ready_core(Settings::default());
    let refusals = [
        Err(ApiError::WrongAddress {
            status: 405,
            own: true,
        }),
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
        // After this refusal, the token's record is read before the next lead request.
        forbidden_answer(),
    ];
    for (n, answer) in (1..).zip(refusals) {
        let head = queue_with_backfill(n);
        let now = now_at(u64::from(n) * 20);
        let (_, outcome) = exchange(&mut core, now, &head, answer);
        assert_eq!((outcome.endpoint, outcome.row), (Endpoint::Leads, None));
        let live = WorkQueue {
            live: Some(due_call(1)),
            ..WorkQueue::default()
        };
        assert_eq!(lane(&mut core, now, &live), Some(Lane::Live), "{n}");
        assert_eq!(core.status(now, &head).pause, None);
    }
}

#[test]
fn refused_token_or_429_of_a_lead_request_pauses_everything() {
    for (answer, reason) in [
        (Err(ApiError::UNAUTHORIZED), "token_refused"),
        (Err(ApiError::TooMany(true)), "rate_limited"),
    ] {
        let mut core = ready_core(Settings::default());
        let (_, outcome) = exchange(&mut core, now_at(2), &queue_with_lookup(), answer);
        assert!(outcome.again);
        let pause = core
            .status(now_at(2), &queue_with_lookup())
            .pause
            .expect("a pause");
        assert_eq!(pause.reason, reason);
        assert_eq!(lane(&mut core, now_at(2), &queue_with_lookup()), None);
    }
}

#[test]
fn lead_request_with_unchanged_result_waits_a_minute() {
    let mut core = ready_core(Settings::default());
    exchange(
        &mut core,
        now_at(2),
        &queue_with_lookup(),
        Err(ApiError::TimedOut),
    );
    assert_eq!(
        lane(&mut core, now_at(12), &queue_with_lookup()),
        Some(Lane::Lead)
    );
    // The response changed nothing in the spool.
    let lead_request = LeadRequest::LookUp(lead());
    core.lead_requests
        .note_answer(now_at(12), &lead_request, true);
    assert_eq!(lane(&mut core, now_at(71), &queue_with_lookup()), None);
    assert_eq!(
        lane(&mut core, now_at(72), &queue_with_lookup()),
        Some(Lane::Lead)
    );
}

#[test]
fn lead_request_without_its_grant_is_not_tried() {
    for (lead_request, needed) in [
        (LeadRequest::LookUp(lead()), Grant::LeadRead),
        (LeadRequest::FieldWrite(lead()), Grant::LeadSave),
    ] {
        let mut core = ready_core(Settings::default());
        let mut info = super::tests::info();
        if let Some(grants) = &mut info.grants {
            grants.retain(|grant| grant != needed.word());
        }
        core.tokens.info = Some(info);
        let head = queue_with_request(Urgency::Soon, lead_request);
        assert_eq!(lane(&mut core, now_at(2), &head), None);
        let silent = TokenInfo {
            grants: None,
            ..super::tests::info()
        };
        core.tokens.info = Some(silent);
        assert_eq!(lane(&mut core, now_at(2), &head), Some(Lane::Lead));
    }
}

#[test]
fn lead_requests_of_a_kind_run_singly_and_not_in_dry_run() {
    let mut core = ready_core(Settings::default());
    let Decision::Send(plan) = core.next(now_at(1), &queue_with_lookup()) else {
        panic!("it goes");
    };
    core.launch(now_at(1), plan, RequestInputs::default());
    let other = LeadId::new(4002).expect("positive");
    let other = queue_with_request(Urgency::Soon, LeadRequest::LookUp(other));
    assert_eq!(lane(&mut core, now_at(2), &other), None);
    let mut dry = ready_core(Settings {
        dry_run: true,
        ..Settings::default()
    });
    assert_eq!(lane(&mut dry, now_at(2), &queue_with_lookup()), None);
}

#[test]
fn obsolete_field_write_uses_no_slot() {
    let mut core = ready_core(Settings::default());
    let head = queue_with_request(Urgency::Spare, LeadRequest::FieldWrite(lead()));
    let Decision::Send(plan) = core.next(now_at(1), &head) else {
        panic!("it goes");
    };
    let used = core.budget.used(now_at(1));
    let launch = core.launch(now_at(1), plan, RequestInputs::default());
    let Launch { request: None, ops } = launch else {
        panic!("nothing is left to write");
    };
    assert!(
        matches!(ops[..], [Op::Lead(LeadChange::Request { .. })]),
        "due later: {ops:?}"
    );
    assert_eq!(core.budget.used(now_at(1)), used - 1);
}

#[test]
fn command_request_goes_after_live_calls_before_backlog() {
    let mut core = ready_core(Settings::default());
    assert!(
        core.lead_requests
            .ask(RequestId(1), Request::CrmFields.into())
    );
    let head = WorkQueue {
        live: Some(due_call(1)),
        backlog: Some(due_call(2)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, now_at(1), &head), Some(Lane::Live));
    let head = WorkQueue { live: None, ..head };
    let fields = Ok(ApiReply::Data(serde_json::json!({})));
    let (request, outcome) = exchange(&mut core, now_at(1), &head, fields);
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
    assert_eq!(lane(&mut core, now_at(1), &head), Some(Lane::Backlog));
    assert!(
        core.lead_requests
            .ask(RequestId(2), Request::CrmFields.into())
    );
    assert!(
        core.lead_requests.drop_asked(RequestId(2)) && !core.lead_requests.drop_asked(RequestId(2))
    );
    assert_eq!(lane(&mut core, now_at(1), &head), Some(Lane::Backlog));
}

fn empty_page() -> ApiResult {
    Ok(ApiReply::Page(Page::default()))
}

#[test]
fn audit_pages_yield_to_calls_and_leave_half_of_budget() {
    let page = FilterPage {
        page: 1,
        size: PageSize::LARGEST,
        since: None,
    };
    let mut core = ready_core(Settings::default());
    assert!(
        core.lead_requests
            .ask(RequestId(1), Request::Filter(page).into())
    );
    assert!(
        core.lead_requests
            .ask(RequestId(2), Request::CrmFields.into())
    );
    let fields = Ok(ApiReply::Data(serde_json::json!({})));
    let (request, _) = exchange(&mut core, now_at(1), &WorkQueue::default(), fields);
    assert_eq!(request, Request::CrmFields, "what else is asked goes first");
    // Waiting calls go first, with one page every ten seconds.
    let waiting = WorkQueue {
        backlog: Some(due_call(2)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, now_at(2), &waiting), Some(Lane::Backlog));
    let (request, outcome) = exchange(&mut core, now_at(12), &waiting, empty_page());
    assert_eq!(request, Request::Filter(page));
    assert!(!outcome.again);
    // Without calls, pages are read at the pace of requests that can wait, which leaves half of the
    // budget free.
    let mut core = ready_core(Settings::default());
    let idle = WorkQueue::default();
    let before = core.budget.used(now_at(0));
    for second in 0..50 {
        if core.lead_requests.asked.is_empty() {
            assert!(
                core.lead_requests
                    .ask(RequestId(second), Request::Filter(page).into())
            );
        }
        let now = now_at(second);
        let Decision::Send(plan) = core.next(now, &idle) else {
            continue;
        };
        let (slot, lane) = (plan.slot, plan.task.lane);
        let launch = core.launch(now, plan, RequestInputs::default());
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
        assert_eq!(lane, Lane::SpareLead);
        core.judge_answer(now, slot, ApiResponse::from(empty_page()));
    }
    let used = core.budget.used(now_at(50)) - before;
    assert!((1..=30).contains(&used), "{used}");
}

fn token_record_with(scope: &[&str]) -> ApiResult {
    let mut grants = Vec::new();
    for grant in scope {
        grants.push(format!("PERMISSION_OPEN_API_{grant}"));
    }
    Ok(ApiReply::TokenInfo(TokenInfo {
        grants: Some(grants),
        ..info()
    }))
}

fn has_granted_request(answered: &Answered) -> bool {
    answered.ops.iter().any(|op| match op {
        Op::Lead(LeadChange::Request { outcome, .. }) => {
            **outcome == callbridge_leads::lead_request::LeadOutcome::Granted
        }
        _ => false,
    })
}

#[test]
fn granted_right_is_noticed_within_an_hour() {
    let mut core = ready_core(Settings::default());
    let head = queue_with_lookup();
    // The company revokes the permission, which is noticed an hour later.
    assert_eq!(lane(&mut core, now_at(3_599), &head), Some(Lane::Lead));
    let (request, answered) = exchange(
        &mut core,
        now_at(3_600),
        &head,
        token_record_with(&["CALL:SAVE"]),
    );
    assert_eq!(
        (request, has_granted_request(&answered)),
        (Request::TokenInfo, false)
    );
    assert_eq!(lane(&mut core, now_at(7_199), &head), None);
    let given = token_record_with(&["CALL:SAVE", "LEAD:READ"]);
    let (request, answered) = exchange(&mut core, now_at(7_200), &head, given.clone());
    assert_eq!(
        (request, has_granted_request(&answered)),
        (Request::TokenInfo, true)
    );
    assert_eq!(lane(&mut core, now_at(7_201), &head), Some(Lane::Lead));
    let (_, answered) = exchange(&mut core, now_at(10_800), &head, given);
    assert!(!has_granted_request(&answered), "nothing is new");
}

/// Sends a command's field update for a lead, which the CRM accepts.
fn set_fields(core: &mut Core, seconds: u64) {
    let list = Request::FieldList {
        lead: lead(),
        body: serde_json::json!([]),
    };
    assert!(core.lead_requests.ask(RequestId(seconds), list.into()));
    let accepted = Ok(ApiReply::Accepted("r1".to_owned()));
    exchange(core, now_at(seconds), &WorkQueue::default(), accepted);
}

#[test]
fn contradicting_answer_rereads_token_info_once_a_minute() {
    let mut core = ready_core(Settings::default());
    exchange(
        &mut core,
        now_at(3_600),
        &WorkQueue::default(),
        token_record_with(&["CALL:SAVE"]),
    );
    set_fields(&mut core, 3_610);
    let (request, _) = exchange(
        &mut core,
        now_at(3_610),
        &WorkQueue::default(),
        token_record_with(&["CALL:SAVE"]),
    );
    assert_eq!(request, Request::TokenInfo);
    set_fields(&mut core, 3_669);
    assert_eq!(lane(&mut core, now_at(3_669), &WorkQueue::default()), None);
    set_fields(&mut core, 3_670);
    assert_eq!(
        lane(&mut core, now_at(3_670), &WorkQueue::default()),
        Some(Lane::Token)
    );
}
